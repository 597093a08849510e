# SPDX-License-Identifier: Apache-2.0
"""Opens files for reading, and finds out what is at a path.

A path such as gs://bucket/model.ckpt is one of TensorFlow's file systems. Such
paths go through `tf.io.gfile`, and import TensorFlow; others do not.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import errno
import io
import os
import re
import shutil
import stat
from typing import Any
from typing import BinaryIO
from typing import cast
from typing import NamedTuple

_SCHEME = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://")  # As in TensorFlow.
_BUFFER = 1 << 18  # Bytes: each read may be a request to a server.
_COPIED = 16 << 20  # Bytes that are copied at a time.
_LONG = 300  # Characters of an error from which on it is cut.


class Stamp(NamedTuple):
  """A file's state, which changes if the file is replaced or written.

  Attributes:
    inode: The file's number; 0 if its file system is TensorFlow's.
    size: The number of bytes.
    time_ns: When the file was last written, in nanoseconds since 1970.
  """

  inode: int
  size: int
  time_ns: int


def is_remote(path: str) -> bool:
  """Returns whether a path is one of TensorFlow's file systems (gs://…)."""
  return _SCHEME.match(path) is not None


def open_file(path: str, buffered: bool = True) -> BinaryIO:
  """Opens a regular file for reading in binary.

  To open a pipe may wait for ever, and a device such as /dev/zero has no end.

  Args:
    path: The file's path.
    buffered: Whether to read more than is asked for. Without a buffer, a read
      may return fewer bytes than asked for also before the file's end.

  Raises:
    OSError: The file cannot be opened, or is no regular file.
  """
  if is_remote(path):
    raw = cast(BinaryIO, _RemoteFile(path))
    if not buffered:
      return raw
    return io.BufferedReader(cast(io.RawIOBase, raw), _BUFFER)
  if not stat.S_ISREG(os.stat(path).st_mode):
    raise OSError(None, "not a regular file", path)
  return open(path, "rb", -1 if buffered else 0)


def read_stamp(path: str) -> Stamp:
  """Reads the state of a file.

  Raises:
    OSError: The file is missing, or its file system cannot be reached.
  """
  if is_remote(path):
    found = _ask(path, "stat")
    return Stamp(0, found.length, found.mtime_nsec)
  status = os.stat(path)
  return Stamp(status.st_ino, status.st_size, status.st_mtime_ns)


def exists(path: str) -> bool:
  """Returns whether there is a file or a folder.

  Raises:
    OSError: The path's file system is TensorFlow's, and cannot be reached.
  """
  return _ask(path, "exists") if is_remote(path) else os.path.exists(path)


def is_folder(path: str) -> bool:
  """Returns whether there is a folder.

  Raises:
    OSError: As `exists` does.
  """
  return _ask(path, "isdir") if is_remote(path) else os.path.isdir(path)


def is_file(path: str) -> bool:
  """Returns whether there is a file that is no folder.

  Raises:
    OSError: As `exists` does.
  """
  if is_remote(path):
    return exists(path) and not is_folder(path)
  return os.path.isfile(path)


def list_folder(folder: str) -> list[str]:
  """Returns the names in a folder, sorted.

  Raises:
    OSError: There is no such folder, or it cannot be reached.
  """
  if is_remote(folder):
    names = _ask(folder, "listdir")
    return sorted(name.rstrip("/") for name in names)  # Folders have a slash.
  return sorted(os.listdir(folder or "."))


def join(folder: str, path: str) -> str:
  """Returns the path that `path` is, seen from a folder."""
  return path if is_remote(path) else os.path.join(folder, path)


def copy_file(source: str, path: str) -> None:
  """Copies a file to a path of this machine.

  Raises:
    OSError: The file cannot be read, or the copy cannot be written.
  """
  with open_file(source, buffered=False) as file, open(path, "wb") as copy:
    shutil.copyfileobj(file, copy, _COPIED)


class _RemoteFile(io.RawIOBase):
  """A file of TensorFlow's file systems, which is read as it is asked for."""

  def __init__(self, path: str) -> None:
    self._path, self._size, self._at = path, read_stamp(path).size, 0
    with _raise_as_os_error(path):
      self._file = _load_gfile(path).GFile(path, "rb")

  def readable(self) -> bool:
    """Returns True."""
    return True

  def seekable(self) -> bool:
    """Returns True."""
    return True

  def tell(self) -> int:
    """Returns the position."""
    return self._at

  def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
    """Sets the position."""
    base = {os.SEEK_CUR: self._at, os.SEEK_END: self._size}.get(whence, 0)
    self._at = max(0, base + offset)
    return self._at

  def read(self, size: int | None = -1) -> bytes:
    """Reads bytes from the position on."""
    left = max(0, self._size - self._at)
    size = left if size is None or size < 0 else min(size, left)
    if not size:
      return b""
    with _raise_as_os_error(self._path):
      if self._file.tell() != self._at:
        self._file.seek(self._at)
      data: bytes = self._file.read(size)
    self._at += len(data)
    return data

  def readinto(self, buffer: Any) -> int:
    """Reads bytes from the position on into a buffer."""
    data = self.read(len(buffer))
    buffer[: len(data)] = data
    return len(data)

  def close(self) -> None:
    """Closes the file."""
    if not self.closed and hasattr(self, "_file"):
      self._file.close()
    super().close()


def _load_gfile(path: str) -> Any:
  """Returns `tf.io.gfile`, once the file system of a path is known to it.

  Raises:
    OSError: TensorFlow is missing, or does not know the file system.
  """
  scheme = _find_scheme(path)
  try:
    import tensorflow.compat.v2 as tf
  except ImportError as error:
    raise OSError(
      None, f"{scheme}:// is read by TensorFlow: pip install tensorflow", path
    ) from error
  if scheme in tf.io.gfile.get_registered_schemes():
    return tf.io.gfile
  with contextlib.suppress(Exception):  # It may not fit this TensorFlow.
    import tensorflow_io  # noqa: F401

    if scheme in tf.io.gfile.get_registered_schemes():
      return tf.io.gfile
  raise OSError(
    None,
    f"TensorFlow knows no file system {scheme}://: install tensorflow-io if it "
    "has that one, or copy the files to a folder of this machine",
    path,
  )


def _ask(path: str, what: str) -> Any:
  """Returns the result of a function of `tf.io.gfile` that takes a path."""
  with _raise_as_os_error(path):
    return getattr(_load_gfile(path), what)(path)


def _find_scheme(path: str) -> str:
  return path.partition("://")[0]


@contextlib.contextmanager
def _raise_as_os_error(path: str) -> Iterator[None]:
  """Raises TensorFlow's errors as `OSError`s of one line."""
  try:
    yield
  except OSError:
    raise
  except Exception as error:
    import tensorflow.compat.v2 as tf

    if isinstance(error, tf.errors.NotFoundError):
      raise FileNotFoundError(
        errno.ENOENT, os.strerror(errno.ENOENT), path
      ) from None
    if not isinstance(error, tf.errors.OpError):
      raise
    lines = error.message.splitlines() or [type(error).__name__]
    raise OSError(
      None,
      f"{_find_scheme(path)}:// cannot be read: {lines[0][:_LONG]}; check the "
      "path, the network and your credentials, or copy the files to a folder "
      "of this machine",
      path,
    ) from None
