# SPDX-License-Identifier: Apache-2.0
"""Opens regular files for reading, and refuses pipes and devices."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO


def open_file(path: str) -> BinaryIO:
  """Opens a regular file for reading in binary.

  To open a pipe may wait for ever, and a device such as /dev/zero has no end.

  Args:
    path: The file's path.

  Raises:
    OSError: The file cannot be opened, or is no regular file.
  """
  if not stat.S_ISREG(os.stat(path).st_mode):
    raise OSError(None, "not a regular file", path)
  return open(path, "rb")
