"""Old programs: the names that they use, put back, read, run and rewritten."""
