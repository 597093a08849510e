# SPDX-License-Identifier: Apache-2.0
"""Writes a file, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets


def replace_file(path: str, data: bytes) -> None:
  """Writes a file beside its place, and then moves it there.

  An error or an interrupt leaves the old file as it was, and no temporary file.
  A process that is killed may leave that: `.lossscale-` and hexadecimal digits.
  A file that was there keeps its mode. If `path` is a link, the link stays, and
  the file that it leads to is replaced.

  Raises:
    OSError: The file cannot be written.
  """
  path = os.path.realpath(path)
  # An interrupt may come as soon as the file is there, so its name is known
  # before.
  temporary = os.path.join(
    os.path.dirname(path), f".lossscale-{secrets.token_hex(8)}"
  )

  def create(name: str, flags: int) -> int:
    try:
      return os.open(name, flags | os.O_EXCL, 0o600)
    except OSError as error:
      error.filename = path  # The user does not know the temporary file.
      raise

  try:
    with open(temporary, "wb", opener=create) as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.chmod(temporary, _find_mode(path))
    os.replace(temporary, path)
  except BaseException:
    with contextlib.suppress(FileNotFoundError):
      os.unlink(temporary)
    raise


def _find_mode(path: str) -> int:
  try:
    return os.stat(path).st_mode & 0o7777
  except FileNotFoundError:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
