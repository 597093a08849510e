"""Flags, as module globals; no TensorFlow here."""
BATCH = 2
INITIAL_SCALE = 2 ** 20
