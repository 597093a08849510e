# SPDX-License-Identifier: Apache-2.0
"""Keeps from standard error what TensorFlow's libraries write at their start.

They write there before they read how much to log.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import os
import sys


@contextlib.contextmanager
def drop() -> Iterator[None]:
  """Drops what anything in this process writes to standard error meanwhile."""
  if sys.stderr is None:
    yield
    return
  sys.stderr.flush()
  kept = os.dup(2)
  with open(os.devnull, "wb") as null:
    os.dup2(null.fileno(), 2)
  try:
    yield
  finally:
    os.dup2(kept, 2)
    os.close(kept)
