"""Writes a checkpoint of tensors that others have: whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import fcntl
import os
import shutil
from typing import IO

from tf_compat_lossscale.checkpoint.files import bundle as bundle_lib
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.entries import encode_scalar
from tf_compat_lossscale.checkpoint.files.entries import Entry
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError
from tf_compat_lossscale.checkpoint.files.sources import Literal
from tf_compat_lossscale.checkpoint.files.sources import Source
from tf_compat_lossscale.checkpoint.files.sources import Stored

_CHUNK = 8 << 20  # Bytes.


@contextlib.contextmanager
def whole(
  prefix: str,
  sources: Mapping[str, Source],
  overwrite: bool = False,
  progress: Callable[[int], None] = lambda size: None,
) -> Iterator[None]:
  """Writes a checkpoint with one shard, and has it appear on leaving.

  It is written beside, flushed to the disk and renamed; until the index is, at
  last, the old checkpoint is as it was. A process that is killed leaves
  nothing by which another one would be held up.

  Args:
    prefix: The new checkpoint's path.
    sources: Name -> where the tensor comes from.
    overwrite: Whether a checkpoint of that path may be replaced.
    progress: Called with the number of bytes that were written.

  Yields:
    When all is written, before it appears: what is raised then prevents it.

  Raises:
    CheckpointError: There is one already, it cannot be written there, or a
      source is damaged.
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
      f"{prefix}: that is where it is read from, which is never changed; "
      "name another one"
    )
  try:
    with _folder_beside(prefix) as folder:
      data = os.path.join(folder, "data")
      with open(data, "wb") as file:
        entries = _copy(file, sources, progress)
        _flush(file)
      yield
      _publish(prefix, folder, data, entries)
  except OSError as error:
    where = error.filename or prefix
    raise CheckpointError(f"{where}: {error.strerror or error}") from None


def overlay(folder: str, bundle: Bundle, sources: Mapping[str, Source]) -> str:
  """Writes an index of its own for the bytes of another checkpoint.

  Args:
    folder: An empty folder.
    bundle: The checkpoint, whose shards are linked to.
    sources: Name -> the tensor, one of the checkpoint's or a literal.

  Returns:
    The prefix. It is good as long as the checkpoint's files stay.
  """
  prefix = os.path.join(folder, "overlay")
  shards = bundle.shards + 1
  for shard in range(bundle.shards):
    target = os.path.abspath(bundle.shard_path(shard))
    if os.path.exists(target):
      os.symlink(target, bundle_lib.shard_path(prefix, shard, shards))
  entries: dict[bytes, Entry] = {}
  literals: dict[str, Source] = {}
  for name, source in sources.items():
    if isinstance(source, Literal):
      literals[name] = source
    else:
      entries.update(source.bundle.parts(source.name, name))
  with open(bundle_lib.shard_path(prefix, shards - 1, shards), "wb") as file:
    for key, entry in _copy(file, literals, lambda size: None).items():
      entries[key] = dataclasses.replace(entry, shard=shards - 1)
  with open(prefix + ".index", "wb") as file:
    file.write(bundle_lib.encode_index(entries, shards))
  return prefix


def _publish(
  prefix: str, folder: str, data: str, entries: dict[bytes, Entry]
) -> None:
  """Gives the bytes their name, and then the index."""
  # A name that no index refers to now: who reads the old checkpoint meanwhile
  # finds its bytes, and the renaming of the index changes one for the other.
  old = bundle_lib.data_files(prefix)
  shards = 1
  while (new := bundle_lib.shard_path(prefix, shards - 1, shards)) in old:
    shards += 1
  entries = {
    key: dataclasses.replace(entry, shard=shards - 1)
    for key, entry in entries.items()
  }
  index = os.path.join(folder, "index")
  with open(index, "wb") as file:
    file.write(bundle_lib.encode_index(entries, shards))
    _flush(file)
  if not os.path.exists(prefix + ".index"):
    # What a killed process left. Nothing refers to it.
    for path in old:
      os.remove(path)
    old = []
  os.rename(data, new)
  # The MetaGraph of the old checkpoint would say wrong things of the new one.
  with contextlib.suppress(FileNotFoundError):
    os.remove(prefix + ".meta")
  os.rename(index, prefix + ".index")
  _flush_folder(os.path.dirname(prefix))
  for path in old:
    os.remove(path)


def _copy(
  file: IO[bytes],
  sources: Mapping[str, Source],
  progress: Callable[[int], None],
) -> dict[bytes, Entry]:
  """Appends every source's bytes; returns the entries that say where."""
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
    for key, entry in source.bundle.parts(source.name, name):
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
  path = bundle.shard_path(entry.shard)
  file.flush()
  with open(path, "rb") as shard:
    at, end = entry.offset, entry.offset + entry.size
    while at < end:
      # By the kernel: the bytes never come here.
      size = os.sendfile(
        file.fileno(), shard.fileno(), at, min(end - at, _CHUNK)
      )
      if not size:
        raise CheckpointError(f"{path}: it became shorter while it was read")
      at += size
      progress(size)


@contextlib.contextmanager
def _folder_beside(prefix: str) -> Iterator[str]:
  """A folder for what is not whole yet; another one's that was killed goes."""
  parent, base = os.path.split(prefix)
  if not os.path.isdir(parent or "."):
    raise CheckpointError(f"{parent}: no such folder")
  folder = os.path.join(parent, f".{base}.unfinished")
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
  file.flush()
  os.fsync(file.fileno())


def _flush_folder(folder: str) -> None:
  number = os.open(folder or ".", os.O_RDONLY)
  try:
    os.fsync(number)
  finally:
    os.close(number)
