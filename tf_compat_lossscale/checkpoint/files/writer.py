# SPDX-License-Identifier: Apache-2.0
"""Writes new checkpoints: whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import os
import shutil
import sys
from typing import IO

from tf_compat_lossscale.checkpoint.files import bundle as _bundle
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.entries import encode_scalar
from tf_compat_lossscale.checkpoint.files.entries import Entry
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError
from tf_compat_lossscale.checkpoint.files.opening import open_file
from tf_compat_lossscale.checkpoint.files.sources import Literal
from tf_compat_lossscale.checkpoint.files.sources import Source
from tf_compat_lossscale.checkpoint.files.sources import Stored

try:
  import fcntl
except ImportError:  # Windows does not have it.
  fcntl = None  # type: ignore[assignment]

_CHUNK = 8 << 20  # Bytes.


@contextlib.contextmanager
def write_whole(
  prefix: str,
  sources: Mapping[str, Source],
  overwrite: bool = False,
  progress: Callable[[int], None] = lambda size: None,
) -> Iterator[None]:
  """Writes a checkpoint with one shard, which appears when the context ends.

  The files are written into a temporary folder beside the checkpoint, flushed
  to the disk and renamed, the index last: until then, the old checkpoint can be
  read. The next write removes the temporary folder of a killed process.

  Args:
    prefix: The new checkpoint's path.
    sources: Name -> the tensor.
    overwrite: Whether a checkpoint at that path may be replaced.
    progress: Called with the number of bytes that were written.

  Yields:
    None, after the data is written and before the checkpoint appears. If the
    context raises an error, the checkpoint does not appear.

  Raises:
    CheckpointError: There is a checkpoint already, the folder cannot be
      written, or a source is damaged.
  """
  if not overwrite and os.path.exists(prefix + ".index"):
    raise CheckpointError(
      f"{prefix}: there is a checkpoint already; --overwrite replaces it"
    )
  if os.path.isdir(prefix) or not os.path.basename(prefix):
    raise CheckpointError(
      f"{prefix}: a folder; name a checkpoint in it, such as "
      f"{os.path.join(prefix, 'model.ckpt')}"
    )
  stored = (s for s in sources.values() if isinstance(s, Stored))
  read = {source.bundle.prefix for source in stored}
  if os.path.realpath(prefix) in map(os.path.realpath, read):
    raise CheckpointError(
      f"{prefix}: the source, which is never changed, has that path; name "
      "another path"
    )
  try:
    with _make_parent(prefix), _lock_folder(prefix) as folder:
      data = os.path.join(folder, "data")
      with open(data, "wb") as file:
        entries = _copy(file, sources, progress)
        _flush(file)
      yield
      _publish(prefix, folder, data, entries)
  except OSError as error:
    where = error.filename or prefix
    raise CheckpointError(f"{where}: {error.strerror or error}") from None


def write_overlay(
  folder: str, bundle: Bundle, sources: Mapping[str, Source]
) -> str:
  """Writes a new index for the data files of another checkpoint.

  Args:
    folder: An empty folder.
    bundle: The other checkpoint. The new one links to its data files, and can
      be read for as long as they stay.
    sources: Name -> the tensor, which must be the other checkpoint's or a
      literal.

  Returns:
    The new checkpoint's prefix.
  """
  prefix = os.path.join(folder, "overlay")
  shards = bundle.shards + 1
  for shard in range(bundle.shards):
    target = os.path.abspath(bundle.make_shard_path(shard))
    if os.path.exists(target):
      _link(target, _bundle.make_shard_path(prefix, shard, shards))
  entries: dict[bytes, Entry] = {}
  literals: dict[str, Source] = {}
  for name, source in sources.items():
    if isinstance(source, Literal):
      literals[name] = source
    else:
      entries.update(source.bundle.list_parts(source.name, name))
  with open(_bundle.make_shard_path(prefix, shards - 1, shards), "wb") as file:
    for key, entry in _copy(file, literals, lambda size: None).items():
      entries[key] = dataclasses.replace(entry, shard=shards - 1)
  with open(prefix + ".index", "wb") as file:
    file.write(_bundle.encode_index(entries, shards))
  return prefix


def _link(target: str, path: str) -> None:
  """Makes a file appear at a second path: as a link, or else as a copy."""
  for link in (os.symlink, os.link):
    try:
      return link(target, path)
    except OSError:
      continue  # Windows may forbid links, and some file systems have none.
  shutil.copyfile(target, path)


def _publish(
  prefix: str, folder: str, data: str, entries: dict[bytes, Entry]
) -> None:
  """Renames the data file and then the index.

  Args:
    prefix: The checkpoint's path.
    folder: The temporary folder.
    data: The path of the data file in it.
    entries: Key -> the tensor's place in the data file.
  """
  # The data file gets a name that the old index does not refer to. Readers of
  # the old checkpoint keep its bytes until the new index replaces the old one.
  old = _bundle.list_data_files(prefix)
  shards = 1
  while (new := _bundle.make_shard_path(prefix, shards - 1, shards)) in old:
    shards += 1
  entries = {
    key: dataclasses.replace(entry, shard=shards - 1)
    for key, entry in entries.items()
  }
  index = os.path.join(folder, "index")
  with open(index, "wb") as file:
    file.write(_bundle.encode_index(entries, shards))
    _flush(file)
  if not os.path.exists(prefix + ".index"):
    # A killed process left these files: no index refers to them.
    for path in old:
      os.remove(path)
    old = []
  os.replace(data, new)
  try:
    # The old MetaGraph would seem to describe the new checkpoint.
    with contextlib.suppress(FileNotFoundError):
      os.remove(prefix + ".meta")
    os.replace(index, prefix + ".index")
  except OSError:
    os.remove(new)
    raise
  _flush_folder(os.path.dirname(prefix))
  for path in old:
    os.remove(path)


def _copy(
  file: IO[bytes],
  sources: Mapping[str, Source],
  progress: Callable[[int], None],
) -> dict[bytes, Entry]:
  """Writes the bytes of every source to an empty file; returns the entries."""
  entries: dict[bytes, Entry] = {}
  offset = 0
  for name in sorted(sources):
    source = sources[name]
    if isinstance(source, Literal):
      entry, data = encode_scalar(source.dtype, source.value)
      file.write(data)
      entries[name.encode("utf-8")] = dataclasses.replace(entry, offset=offset)
      offset += len(data)
      progress(len(data))
      continue
    for key, entry in source.bundle.list_parts(source.name, name):
      entries[key] = entry
      if entry.size:
        entries[key] = dataclasses.replace(entry, offset=offset)
        _copy_bytes(source.bundle, entry, file, progress)
        offset += entry.size
  return entries


def _copy_bytes(
  bundle: Bundle,
  entry: Entry,
  file: IO[bytes],
  progress: Callable[[int], None],
) -> None:
  """Appends the bytes of a checkpoint's entry to a file."""
  path = bundle.make_shard_path(entry.shard)
  file.flush()
  with open_file(path) as shard:
    shard.seek(entry.offset)
    at, end = entry.offset, entry.offset + entry.size
    while at < end:
      size = _copy_chunk(shard, at, min(end - at, _CHUNK), file)
      if not size:
        raise CheckpointError(f"{path}: it became shorter while it was read")
      at += size
      progress(size)


def _copy_chunk(shard: IO[bytes], at: int, size: int, file: IO[bytes]) -> int:
  """Appends a part of one file to another file.

  Args:
    shard: The first file, whose position is `at` unless the kernel copies.
    at: The part's offset.
    size: The part's size.
    file: The other file.

  Returns:
    The number of bytes that were copied, 0 at the end of the first file.
  """
  # Linux copies in the kernel. Other systems send only to sockets, or have no
  # `sendfile`.
  if sys.platform == "linux" and hasattr(os, "sendfile"):
    return os.sendfile(file.fileno(), shard.fileno(), at, size)
  data = shard.read(size)
  file.write(data)
  return len(data)


@contextlib.contextmanager
def _make_parent(prefix: str) -> Iterator[None]:
  """Creates the folders of a checkpoint; removes them again after an error."""
  made = []
  parent = os.path.dirname(os.path.abspath(prefix))
  while not os.path.lexists(parent):
    made.append(parent)
    parent = os.path.dirname(parent)
  try:
    for folder in reversed(made):
      os.makedirs(folder, exist_ok=True)  # Another process may be first.
    yield
  except BaseException:
    for folder in made:
      with contextlib.suppress(OSError):  # It is missing, or others use it.
        os.rmdir(folder)
    raise


@contextlib.contextmanager
def _lock_folder(prefix: str) -> Iterator[str]:
  """Creates a temporary folder beside a checkpoint, and removes it at the end.

  On systems that can lock a folder, the folder of a killed process is reused.
  Otherwise nothing shows whether the process still runs.

  Args:
    prefix: The checkpoint's path.

  Yields:
    The folder's path.

  Raises:
    CheckpointError: Another process has the folder.
  """
  parent, base = os.path.split(prefix)
  folder = os.path.join(parent, f".{base}.unfinished")
  if fcntl is None:
    try:
      os.mkdir(folder)
    except FileExistsError:
      raise CheckpointError(
        f"{prefix}: another process is writing it now; if that process was "
        f"killed, remove {folder}"
      ) from None
    try:
      yield folder
    finally:
      shutil.rmtree(folder, ignore_errors=True)
    return
  os.makedirs(folder, exist_ok=True)
  lock = os.open(folder, os.O_RDONLY)
  try:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      raise CheckpointError(
        f"{prefix}: another process is writing it now"
      ) from None
    try:
      yield folder
    finally:
      shutil.rmtree(folder, ignore_errors=True)
  finally:
    os.close(lock)


def _flush(file: IO[bytes]) -> None:
  """Flushes the bytes of a file to the disk."""
  file.flush()
  os.fsync(file.fileno())


def _flush_folder(folder: str) -> None:
  """Flushes the names of a folder's files to the disk."""
  if not hasattr(os, "O_DIRECTORY"):
    return  # Windows cannot open a folder.
  number = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
  try:
    os.fsync(number)
  finally:
    os.close(number)
