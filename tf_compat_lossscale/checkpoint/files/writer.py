# SPDX-License-Identifier: Apache-2.0
"""Writes new checkpoints: whole, or not at all."""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import concurrent.futures
import contextlib
import dataclasses
import os
import stat
from typing import IO
from typing import NamedTuple

from tf_compat_lossscale._core.bytes import crc32c as _crc32c
from tf_compat_lossscale.checkpoint.files import bundle as _bundle
from tf_compat_lossscale.checkpoint.files import opening
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.entries import encode_name
from tf_compat_lossscale.checkpoint.files.entries import encode_scalar
from tf_compat_lossscale.checkpoint.files.entries import Entry
from tf_compat_lossscale.checkpoint.files.entries import Place
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import multiply
from tf_compat_lossscale.checkpoint.files.values import Scaled
from tf_compat_lossscale.checkpoint.files.values import Source
from tf_compat_lossscale.checkpoint.files.values import Stored

try:
  import fcntl
except ImportError:  # Windows does not have it.
  fcntl = None  # type: ignore[assignment]

_TRIES = 100  # To lock a folder that other processes remove meanwhile.
# The files of a temporary folder. The copy has names with which it can be read
# before it appears. `_INDEX` is the index that appears, `_META` the MetaGraph
# of the replaced checkpoint, and `data` the data file of earlier releases.
_COPY, _INDEX, _META = "new", "index", "meta"
_COPY_INDEX = f"{_COPY}.index"
_COPY_DATA = _bundle.make_shard_path(_COPY, 0, 1)
# `_FILE` is the whole new file of `replacing`.
_FILE = "file"
_FILES = {_COPY_INDEX, _COPY_DATA, _FILE, _INDEX, _META, "data"}


class _Piece(NamedTuple):
  """A part of the new data file.

  Attributes:
    key: The key of the tensor in the new index.
    offset: The position in the new data file.
    bundle: The checkpoint that has the bytes; None for `data`.
    old_key: The key of the tensor there.
    entry: The tensor's entry there.
    data: The bytes of a tensor that no checkpoint has.
    factor: The factor by which the values there are multiplied.
  """

  key: bytes
  offset: int
  bundle: Bundle | None
  old_key: bytes
  entry: Entry
  data: bytes = b""
  factor: float | None = None

  @property
  def copied(self) -> Bundle | None:
    """The checkpoint whose bytes are copied; None if they are computed."""
    return self.bundle if self.factor is None else None

  def compute(self) -> bytes:
    """Returns bytes that are not copied: `data`, or values times the factor.

    Raises:
      CheckpointError: The bytes there are damaged.
    """
    if self.bundle is None or self.factor is None:
      return self.data
    values = self.entry.decode_array(self.bundle.read(self.entry))
    return multiply(values, self.factor).tobytes()


class NewCheckpoint:
  """A checkpoint with one shard that is written, but does not appear yet.

  Attributes:
    prefix: Its path.
  """

  def __init__(self, prefix: str, folder: str, overwrite: bool) -> None:
    self.prefix = prefix
    self._folder = folder
    self._overwrite = overwrite
    self._entries: dict[bytes, Entry] = {}
    self._index = _bundle.encode_index({}, 1)

  def write(
    self,
    sources: Mapping[str, Source],
    progress: _bundle.Progress = lambda size: None,
  ) -> None:
    """Writes tensors, and compares what was written with the checksums.

    Each byte of the sources is read once. What was written is read again, so a
    source that changes between two reads cannot pass. A second call replaces
    the tensors of the first.

    Args:
      sources: Name -> the tensor.
      progress: Called with each number of bytes that were written or compared.

    Raises:
      CheckpointError: A source is damaged, or is this checkpoint; or there is
        a checkpoint already that may not be overwritten.
      OSError: The folder cannot be written.
    """
    _check_absence(self.prefix, self._overwrite)
    read = {s.bundle.prefix for s in sources.values() if isinstance(s, Stored)}
    if os.path.realpath(self.prefix) in map(os.path.realpath, read):
      raise CheckpointError(
        f"{self.prefix}: the source, which is never changed, has that path; "
        "name another path"
      )
    entries, pieces = _lay_out(sources)
    self._entries = entries
    self._index = _bundle.encode_index(entries, 1)
    with self._create(_COPY_INDEX) as file:
      file.write(self._index)
    with self._create(_COPY_DATA) as file:
      file.truncate(max((p.offset + p.entry.size for p in pieces), default=0))
      copy = Bundle(os.path.join(self._folder, _COPY))
      checks: collections.deque[concurrent.futures.Future[None]]
      checks = collections.deque()

      def copied(size: int) -> None:
        while checks and checks[0].done():
          checks.popleft().result()  # Raises if the source is damaged.
        progress(size)

      # Another thread compares what was copied while this one copies on.
      with (
        copy.open_check() as check_entry,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
      ):
        try:
          for group in _group(pieces):
            source = group[0].copied
            if source is not None:
              source.copy([piece.entry for piece in group], file, copied)
            else:
              for piece in group:
                copied(file.write(piece.compute()))
            file.flush()
            checks.append(
              pool.submit(_check_copy, copy, check_entry, group, progress)
            )
          _flush(file)
          for check in checks:
            check.result()
        finally:
          pool.shutdown(cancel_futures=True)

  def publish(self) -> tuple[str, ...]:
    """Renames the data file and then the index, with which it appears.

    Returns:
      The files of the replaced checkpoint that could not be removed.

    Raises:
      CheckpointError: There is another checkpoint meanwhile.
      OSError: A file cannot be renamed. The old checkpoint is unchanged.
    """
    _check_absence(self.prefix, self._overwrite)
    # The data file gets a name that the old index does not refer to. Readers
    # of the old checkpoint keep its bytes until the new index replaces it.
    old = _bundle.list_data_files(self.prefix)
    shards = 1
    while _bundle.make_shard_path(self.prefix, shards - 1, shards) in old:
      shards += 1
    new = _bundle.make_shard_path(self.prefix, shards - 1, shards)
    if shards > 1:
      entries = {
        key: dataclasses.replace(entry, shard=shards - 1)
        for key, entry in self._entries.items()
      }
      self._index = _bundle.encode_index(entries, shards)
    with self._create(_INDEX) as file:
      file.write(self._index)
      _flush(file)
    index, meta = self.prefix + ".index", self.prefix + ".meta"
    # The old MetaGraph would seem to describe the new checkpoint.
    kept_meta = os.path.join(self._folder, _META)
    if os.path.lexists(meta):
      os.replace(meta, kept_meta)
    try:
      os.replace(os.path.join(self._folder, _COPY_DATA), new)
      try:
        os.replace(os.path.join(self._folder, _INDEX), index)
      except BaseException:
        os.remove(new)
        raise
    except BaseException:
      if os.path.lexists(kept_meta):
        os.replace(kept_meta, meta)
      raise
    _flush_folder(os.path.dirname(self.prefix))
    left = []
    for path in old:  # No index refers to them any more.
      try:
        os.remove(path)
      except OSError:
        left.append(path)
    return tuple(left)

  def _create(self, name: str) -> IO[bytes]:
    """Creates a file of the temporary folder, and never follows a link."""
    path = os.path.join(self._folder, name)
    with contextlib.suppress(FileNotFoundError):
      os.unlink(path)
    return open(path, "xb")


@contextlib.contextmanager
def reserve(prefix: str, overwrite: bool = False) -> Iterator[NewCheckpoint]:
  """Reserves a path for a checkpoint, which appears when it is published.

  The files are written into a temporary folder beside the checkpoint, flushed
  to the disk and renamed, the index last: until then, the old checkpoint can be
  read. The next write removes the temporary folder of a killed process.

  Args:
    prefix: The new checkpoint's path.
    overwrite: Whether a checkpoint at that path may be replaced.

  Yields:
    The checkpoint to write and publish. If the context raises an error before
    the checkpoint is published, it does not appear.

  Raises:
    CheckpointError: The folder cannot be written, or another process writes
      the checkpoint.
  """
  check_destination(prefix)
  _check_name(prefix)
  with _lock_folder(prefix) as folder:
    yield NewCheckpoint(prefix, folder, overwrite)


def check_destination(path: str) -> None:
  """Checks that a path is one of this machine.

  On TensorFlow's file systems, files can neither be locked nor be renamed all
  at once, so a checkpoint would not appear whole or not at all.

  Raises:
    CheckpointError: The path is one of TensorFlow's file systems.
  """
  if opening.is_remote(path):
    raise CheckpointError(
      f"{path}: checkpoints are written to folders of this machine alone: name "
      "one, and copy the files with the tool of that storage, the index last"
    )


def check_free(prefix: str, overwrite: bool) -> None:
  """Checks that a checkpoint may be written at a path.

  Args:
    prefix: The new checkpoint's path.
    overwrite: Whether a checkpoint at that path may be replaced.

  Raises:
    CheckpointError: The path is a folder, or files are there.
  """
  _check_name(prefix)
  _check_absence(prefix, overwrite)


def _check_name(prefix: str) -> None:
  if os.path.isdir(prefix) or not os.path.basename(prefix):
    raise CheckpointError(
      f"{prefix}: a folder; name a checkpoint in it, such as "
      f"{os.path.join(prefix, 'model.ckpt')}"
    )


def _check_absence(prefix: str, overwrite: bool) -> None:
  """Checks that no files are there which a new checkpoint would replace.

  Args:
    prefix: The new checkpoint's path.
    overwrite: Whether the files may be replaced.

  Raises:
    CheckpointError: There are such files.
  """
  if overwrite:
    return
  if os.path.lexists(prefix + ".index"):
    raise CheckpointError(
      f"{prefix}: there is a checkpoint already; --overwrite replaces it"
    )
  parts = [*_bundle.list_data_files(prefix), prefix + ".meta"]
  for path in filter(os.path.lexists, parts):
    raise CheckpointError(
      f"{path}: there is a part of a checkpoint without an index: another "
      "process may be writing it, or its index was lost; --overwrite replaces "
      "it"
    )


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
    target = bundle.make_shard_path(shard)
    if opening.exists(target):
      _link(target, _bundle.make_shard_path(prefix, shard, shards))
  entries: dict[bytes, Entry] = {}
  computed: dict[str, Source] = {}
  for name, source in sources.items():
    if isinstance(source, (Literal, Scaled)):
      computed[name] = source
    else:
      for _, key, entry in source.bundle.list_parts(source.name, name):
        entries[key] = entry
  own, pieces = _lay_out(computed)
  with open(_bundle.make_shard_path(prefix, shards - 1, shards), "wb") as file:
    for piece in pieces:
      file.write(piece.compute())
  for key, entry in own.items():
    entries[key] = dataclasses.replace(entry, shard=shards - 1)
  with open(prefix + ".index", "wb") as file:
    file.write(_bundle.encode_index(entries, shards))
  return prefix


def _link(target: str, path: str) -> None:
  """Makes a file appear at a second path: as a link, or else as a copy."""
  if not opening.is_remote(target):
    for link in (os.symlink, os.link):
      try:
        return link(os.path.abspath(target), path)
      except OSError:
        continue  # Windows may forbid links, and some file systems have none.
  opening.copy_file(target, path)


def _lay_out(
  sources: Mapping[str, Source],
) -> tuple[dict[bytes, Entry], list[_Piece]]:
  """Places tensors in a data file, one after the other.

  Tensors that share their bytes in a source share them in the new file.

  Returns:
    The entries of the new index, and the parts of the data file in order.
  """
  entries: dict[bytes, Entry] = {}
  pieces: list[_Piece] = []
  places: dict[tuple[int, Place], int] = {}  # A bundle's `id`, place -> offset.
  end = 0
  for name in sorted(sources):
    source = sources[name]
    if isinstance(source, Literal):
      entry, data = encode_scalar(source.dtype, source.value)
      key = encode_name(name)
      pieces.append(_Piece(key, end, None, b"", entry, data))
      entries[key] = dataclasses.replace(entry, offset=end)
      end += entry.size
      continue
    for old_key, key, entry in source.bundle.list_parts(source.name, name):
      if isinstance(source, Scaled) and entry.size:
        piece = _Piece(
          key, end, source.bundle, old_key, entry, factor=source.factor
        )
        crc = _crc32c.mask(_crc32c.crc32c(piece.compute()))
        entries[key] = dataclasses.replace(entry, offset=end, shard=0, crc=crc)
        pieces.append(piece)
        end += entry.size
        continue
      offset = places.setdefault((id(source.bundle), entry.place), end)
      entries[key] = dataclasses.replace(entry, offset=offset, shard=0)
      if offset == end:
        pieces.append(_Piece(key, end, source.bundle, old_key, entry))
        end += entry.size
  return entries, pieces


def _group(pieces: list[_Piece]) -> Iterator[list[_Piece]]:
  """Yields pieces that are copied by one call: of one source, one by one.

  They have no more than `CHUNK` bytes, unless it is one piece: while they are
  copied, another thread compares those before with their checksums.
  """
  group: list[_Piece] = []
  size = 0
  for piece in pieces:
    size += piece.entry.size
    if group and (piece.copied is not group[0].copied or size > _bundle.CHUNK):
      yield group
      group, size = [], piece.entry.size
    group.append(piece)
  if group:
    yield group


def _check_copy(
  copy: Bundle,
  check_entry: Callable[[bytes, Entry], None],
  pieces: list[_Piece],
  progress: _bundle.Progress,
) -> None:
  """Compares tensors of a copy, which were written, with their checksums.

  Raises:
    CheckpointError: A tensor fails its checksum. The message names the source.
  """
  for piece in pieces:
    entry = copy.entries[piece.key]
    try:
      check_entry(piece.key, entry)
      progress(entry.size)
    except CheckpointError as error:
      if piece.bundle is not None:
        with piece.bundle.open_check() as check_source:
          check_source(piece.old_key, piece.entry)
      raise CheckpointError(
        f"{error} (the bytes in the new file are not those of the source: "
        "another process changed the source meanwhile, or the disk is damaged)"
      ) from None


@contextlib.contextmanager
def replacing(path: str, overwrite: bool = False) -> Iterator[IO[bytes]]:
  """Writes one file, whole or not at all.

  The file is written into a temporary folder beside it, flushed to the disk and
  renamed. The next write removes the temporary folder of a killed process. If
  `path` is a link, the file that it leads to is replaced.

  Args:
    path: The file.
    overwrite: Whether a file that appears there meanwhile may be replaced.

  Yields:
    The file, open for writing.

  Raises:
    CheckpointError: The folder cannot be written, or another process writes
      the file.
  """
  path = os.path.realpath(path)
  with _lock_folder(path) as folder:
    temporary = os.path.join(folder, _FILE)
    with open(temporary, "xb") as file:
      yield file
      _flush(file)
    if os.path.lexists(path) and not overwrite:
      raise CheckpointError(f"{path}: another process wrote it meanwhile")
    with contextlib.suppress(FileNotFoundError):
      os.chmod(temporary, os.stat(path).st_mode & 0o7777)
    os.replace(temporary, path)
    _flush_folder(os.path.dirname(path))


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
    CheckpointError: Another process has the folder, or something is in its
      place that no conversion made; or a file cannot be written.
  """
  parent, base = os.path.split(prefix)
  folder = os.path.join(parent, f".{base}.unfinished")
  try:
    with _make_parent(prefix), contextlib.ExitStack() as stack:
      if fcntl is not None:
        stack.callback(os.close, _lock(prefix, folder))
      else:
        try:
          os.mkdir(folder)
        except FileExistsError:
          raise CheckpointError(
            f"{prefix}: another process is writing it now; if that process was "
            f"killed, remove {folder}"
          ) from None
      _clear(prefix, folder)
      stack.callback(_remove_folder, folder)
      yield folder
  except OSError as error:
    where = error.filename or prefix
    raise CheckpointError(f"{where}: {error.strerror or error}") from None


def _lock(prefix: str, folder: str) -> int:
  """Creates a folder, or takes that of a killed process; locks it.

  Returns:
    The number of the open folder. To close it unlocks the folder.

  Raises:
    CheckpointError: Another process has the folder, or it is not ours.
  """
  for _ in range(_TRIES):
    # It may exist: of a process that was killed, or that runs.
    with contextlib.suppress(FileExistsError):
      os.mkdir(folder, 0o700)
    try:
      status = os.lstat(folder)
      if not stat.S_ISDIR(status.st_mode):
        kind = "a link" if stat.S_ISLNK(status.st_mode) else "no folder"
        raise _make_foreign_error(prefix, folder, f"it is {kind}")
      if status.st_uid != os.geteuid():
        raise _make_foreign_error(
          prefix, folder, f"it belongs to the user {status.st_uid}"
        )
      lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
      continue  # The other process just ended.
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
      # The process that had the lock may have removed the folder meanwhile, and
      # a third one may have made and locked a new folder.
      if _is_same(lock, folder):
        return lock
    except BlockingIOError:
      os.close(lock)
      break
    except BaseException:
      os.close(lock)
      raise
    os.close(lock)
  raise CheckpointError(f"{prefix}: another process is writing it now")


def _is_same(number: int, path: str) -> bool:
  """Returns whether an open file still is the one at a path."""
  try:
    return os.path.samestat(os.fstat(number), os.lstat(path))
  except FileNotFoundError:
    return False


def _make_foreign_error(prefix: str, folder: str, what: str) -> CheckpointError:
  return CheckpointError(
    f"{prefix}: {folder} is in the way, in which the new checkpoint is written "
    f"first: {what}. No conversion left it: rename or remove it, or name "
    "another destination"
  )


def _clear(prefix: str, folder: str) -> None:
  """Undoes what a killed process left: its files, and a part of a checkpoint.

  Raises:
    CheckpointError: The folder has a file that no conversion wrote.
  """
  files = {}
  for name in sorted(os.listdir(folder)):
    status = files[name] = os.lstat(os.path.join(folder, name))
    regular = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    if name not in _FILES or not regular:
      raise _make_foreign_error(prefix, folder, f"it has {name!r}")
  if _INDEX in files:  # The process was killed before it renamed the index.
    if _META in files and not os.path.lexists(prefix + ".meta"):
      os.replace(os.path.join(folder, _META), prefix + ".meta")
    if not files.keys() & {_COPY_DATA, "data"}:
      _remove_orphan(prefix, os.path.join(folder, _INDEX))
  _remove_files(folder)


def _remove_orphan(prefix: str, index: str) -> None:
  """Removes the data file that a killed process had renamed.

  Args:
    prefix: The checkpoint's path.
    index: The process's index, which it did not rename.
  """
  if os.path.lexists(prefix + ".index"):
    return  # To overwrite that checkpoint removes all of its data files.
  try:
    shards = _bundle.read_shard_count(index)
  except CheckpointError:
    return  # The process was killed before it had renamed anything.
  data = _bundle.make_shard_path(prefix, shards - 1, shards)
  with contextlib.suppress(FileNotFoundError):
    # The data file was written before the index. A later one is another's.
    if os.lstat(data).st_mtime_ns <= os.lstat(index).st_mtime_ns:
      os.remove(data)


def _remove_files(folder: str) -> None:
  """Removes the files of a temporary folder."""
  for name in _FILES.intersection(os.listdir(folder)):
    os.unlink(os.path.join(folder, name))


def _remove_folder(folder: str) -> None:
  """Removes a temporary folder, unless a replaced MetaGraph is left in it.

  The folder stays if it cannot be removed: the next conversion does so.
  """
  with contextlib.suppress(OSError):
    if not {_INDEX, _META} <= set(os.listdir(folder)):
      _remove_files(folder)
      os.rmdir(folder)


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
