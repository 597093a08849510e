"""Old programs: their legacy names, and how to run and migrate them."""
