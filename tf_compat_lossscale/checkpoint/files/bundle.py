# SPDX-License-Identifier: Apache-2.0
"""Reads checkpoints: an index of tensors, and shards with their bytes.

The format is TensorFlow's second ("V2", since 0.12). Savers,
`tf.train.Checkpoint` and SavedModels write it. PREFIX.index is a sorted table
of entries, PREFIX.data-00000-of-00001 and so on are the shards. Reading them
here takes milliseconds; importing TensorFlow takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import hashlib
import io
import os
import re
import sys
from typing import Any
from typing import BinaryIO
from typing import IO
from typing import TypeVar

from tf_compat_lossscale._core.bytes import wire as _wire
from tf_compat_lossscale.checkpoint.files import meta_graph as _meta_graph
from tf_compat_lossscale.checkpoint.files import opening as _opening
from tf_compat_lossscale.checkpoint.files import table as _table
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.entries import decode_name
from tf_compat_lossscale.checkpoint.files.entries import encode_name
from tf_compat_lossscale.checkpoint.files.entries import Entry
from tf_compat_lossscale.checkpoint.files.entries import Place
from tf_compat_lossscale.checkpoint.files.entries import read_exactly
from tf_compat_lossscale.checkpoint.files.entries import Slice
from tf_compat_lossscale.checkpoint.files.entries import Slices
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# In bytes. Describing a checkpoint of up to this size compares all checksums.
CHECKED_AT_SIGHT = 64 << 20
# In seconds. Copying a checkpoint may write its files in any order.
_MARGIN = 2.0
_DATA_FILE = re.compile(r"\.data-.{5}-of-.{5}", re.DOTALL)
CHUNK = 8 << 20  # The number of bytes that are copied at a time.
Progress = Callable[[int], None]
_T = TypeVar("_T")


class Bundle:
  """A checkpoint that is open for reading.

  Outside of `files/`, nothing knows of entries, shards and offsets.

  Attributes:
    prefix: The path, without '.index'.
    specs: Name -> dtype and shape of every tensor, sorted by key.
    entries: Key -> Entry, slices of partitioned variables included.
    shards: The number of data files.
    largest_meta_graph: The size in bytes up to which a MetaGraph is read.
  """

  largest_meta_graph = _meta_graph.LARGEST

  def __init__(self, prefix: str) -> None:
    """Reads the index.

    Args:
      prefix: The path, without '.index'.

    Raises:
      CheckpointError: The checkpoint is missing or damaged, or a shard is
        missing or too short.
    """
    self.prefix = prefix
    index = prefix + ".index"
    self.entries: dict[bytes, Entry] = {}
    with name_file_in_errors(index):
      with _opening.open_file(index) as file:
        data = file.read()
      self._digest = hashlib.sha256(data).digest()
      items = _table.read(data)
      self.shards = _read_header(items.pop(b"", b""))
      for key, value in items.items():
        self.entries[key] = Entry.parse(value)
      self._parts = self._find_parts()
      ends = self._find_ends()
    self._slices: set[bytes] = set().union(*self._parts.values())
    self.specs: dict[str, TensorSpec] = {
      decode_name(key): self.entries[key].spec
      for key in sorted(self.entries)
      if key not in self._slices
    }
    self._stamps: dict[str, _opening.Stamp] = {}
    for shard, end in ends.items():
      path = self.make_shard_path(shard)
      with name_file_in_errors(path):
        self._stamps[path] = stamp = _opening.read_stamp(path)
        if not 0 <= shard < self.shards or stamp.size < end:
          raise ValueError(
            f"it has {stamp.size} bytes, but the index says {end}: it is cut "
            "off or belongs to another checkpoint"
          )

  def _find_parts(self) -> dict[bytes, dict[bytes, Any]]:
    """Returns the key of each partitioned variable -> those of its slices.

    Raises:
      ValueError: A slice is missing, or does not fit.
    """
    found = {}
    for key, entry in self.entries.items():
      if entry.slices:
        found[key] = parts = entry.find_parts(key)
        for part, spec in parts.items():
          there = self.entries.get(part)
          if there is None or there.slices or there.spec != spec:
            has = "it is missing" if there is None else f"it has {there.spec}"
            raise ValueError(
              f"a slice {spec} of the variable {decode_name(key)!r}: {has}"
            )
    return found

  def _find_ends(self) -> dict[int, int]:
    """Returns shard -> the end of the last tensor in it.

    Several names may have the same bytes, but no tensor has a part of another.
    So to read all tensors takes no more time than to read the files.

    Raises:
      ValueError: A part of a tensor belongs to another.
    """
    found = {entry.place: entry for entry in self.entries.values()}
    for entry in self.entries.values():
      other = found[entry.place]
      if entry.size and not entry.has_same_bytes(other):
        raise ValueError("two tensors share their bytes, but not the checksum")
    ends: dict[int, int] = {}
    for place in sorted(found):
      if place.size:
        if place.offset < ends.get(place.shard, 0):
          raise ValueError("two tensors share a part of their bytes")
        ends[place.shard] = place.offset + place.size
      else:
        ends.setdefault(place.shard, place.offset)
    return ends

  def get_size(self, name: str) -> int:
    """Returns the number of bytes of a tensor."""
    key = encode_name(name)
    keys = [key, *self._parts.get(key, ())]
    return sum(self.entries[each].size for each in keys)

  @functools.cached_property
  def size(self) -> int:
    """The number of bytes of all tensors."""
    return sum(place.size for place in {e.place for e in self.entries.values()})

  @property
  def is_small(self) -> bool:
    """Whether describing the checkpoint compares all checksums."""
    return self.size <= CHECKED_AT_SIGHT

  def is_current(self) -> bool:
    """Returns whether the files are still those that were opened.

    If so, all tensors that were read since are of one checkpoint: each was
    compared with its checksum in the index.
    """
    try:
      digest = self._read_digest()
      stamps = {path: _opening.read_stamp(path) for path in self._stamps}
    except OSError:
      return False
    return digest == self._digest and stamps == self._stamps

  def _read_digest(self) -> bytes:
    """Returns a checksum of the index as it is now."""
    with _opening.open_file(self.prefix + ".index") as file:
      return hashlib.sha256(file.read()).digest()

  @property
  def time(self) -> float:
    """When the index was written, in seconds."""
    return _opening.read_stamp(self.prefix + ".index").time_ns / 1e9

  @functools.cached_property
  def meta_graph(self) -> tuple[_meta_graph.MetaGraph | None, str]:
    """The MetaGraph beside the checkpoint, and why there is none.

    A Saver writes the file last, so an older file belongs to another
    checkpoint. The file has no checksum, and tensors can be read without it. If
    there is no such file, the reason is "".
    """
    path = self.prefix + ".meta"
    try:
      stamp = _opening.read_stamp(path)
      if stamp.time_ns / 1e9 < self.time - _MARGIN:
        why = (
          "it is older than the checkpoint, so it may be another's; if it is "
          "not, touch it"
        )
      elif stamp.size > self.largest_meta_graph:
        why = (
          f"it has {stamp.size} bytes, and up to {self.largest_meta_graph} are "
          "read"
        )
      else:
        return _meta_graph.load(path), ""
    except FileNotFoundError:
      return None, ""
    except OSError as error:
      why = str(error.strerror or error)
    except (ValueError, KeyError):
      why = "it is damaged"
    return None, f"{path} is not used: {why}"

  def list_parts(
    self, name: str, new: str
  ) -> Iterator[tuple[bytes, bytes, Entry]]:
    """Yields a tensor's entry and, if it was partitioned, those of its slices.

    Args:
      name: The tensor's name.
      new: The tensor's name in another checkpoint.

    Yields:
      (the key, the key in that other checkpoint, the entry).
    """
    key = encode_name(name)
    entry = self.entries[key]
    yield key, encode_name(new), entry
    new_keys = entry.find_parts(encode_name(new))
    for part, new_part in zip(self._parts.get(key, ()), new_keys):
      yield part, new_part, self.entries[part]

  def make_shard_path(self, shard: int) -> str:
    """Returns the path of a data file."""
    return make_shard_path(self.prefix, shard, self.shards)

  def read(self, entry: Entry) -> bytes:
    """Reads the bytes of an entry.

    Raises:
      CheckpointError: The bytes fail their checksum, or cannot be read.
    """
    path = self.make_shard_path(entry.shard)
    with name_file_in_errors(path):
      with _opening.open_file(path, buffered=False) as file:
        file.seek(entry.offset)
        data = read_exactly(file, entry.size)
      entry.check(data)
    return data

  def copy(
    self, entries: Sequence[Entry], file: IO[bytes], progress: Progress
  ) -> None:
    """Appends the bytes of entries to a file, one after the other.

    Raises:
      CheckpointError: A data file became shorter meanwhile.
      OSError: A data file cannot be read, or the file cannot be written.
    """
    file.flush()
    for place in _join(entries):
      path = self.make_shard_path(place.shard)
      with _opening.open_file(path, buffered=False) as shard:
        shard.seek(place.offset)
        at, end = place.offset, place.offset + place.size
        while at < end:
          size = _copy_chunk(shard, at, min(end - at, CHUNK), file)
          if not size:
            raise CheckpointError(
              f"{path}: it became shorter while it was read"
            )
          at += size
          progress(size)

  def read_scalar(self, name: str) -> float | int:
    """Returns the value of a scalar number."""
    return self._decode(name, Entry.decode_number)

  def read_string(self, name: str) -> bytes:
    """Returns the value of a scalar string."""
    return self._decode(name, Entry.decode_string)

  def _decode(self, name: str, decode: Callable[[Entry, bytes], _T]) -> _T:
    """Returns what `decode` makes of a tensor's bytes."""
    entry = self.entries[encode_name(name)]
    data = self.read(entry)
    try:
      return decode(entry, data)
    except ValueError as error:
      raise CheckpointError(f"{self.prefix}: {name}: {error}") from None

  def read_array(self, name: str) -> Any:
    """Returns the value of a tensor, as an array of NumPy.

    Arrays of bfloat16 have the dtype of the package ml_dtypes.

    Raises:
      CheckpointError: The bytes fail their checksum, elements are missing, or
        NumPy has no such dtype.
    """
    entry = self.entries[encode_name(name)]
    if not entry.slices:
      return self._decode(name, Entry.decode_array)
    if entry.lacks_elements:
      raise CheckpointError(
        f"{self.prefix}: {name}: it has only some slices of that variable"
      )
    return self.read_slices(name).cut((0,) * len(entry.shape), entry.shape)

  def lacks_elements(self, name: str) -> bool:
    """Returns whether the checkpoint has only some slices of a tensor.

    TensorFlow 1 gave the slot of each part of a partitioned variable a tensor
    of its own if the program had a scope open: 'a/v/v/part_0/Momentum' has the
    variable's shape, but one slice.
    """
    return self.entries[encode_name(name)].lacks_elements

  def read_slices(self, name: str) -> Slices:
    """Returns all slices of a partitioned variable.

    Raises:
      CheckpointError: The bytes fail their checksum.
    """
    key = encode_name(name)
    entry = self.entries[key]
    pieces = []
    for part, data in zip(self._parts[key], entry.slices):
      box = Slice.parse(data).find_box(entry.shape)
      array = self.entries[part].decode_array(self.read(self.entries[part]))
      pieces.append((box, array))
    return Slices(pieces)

  def check(self) -> None:
    """Compares every byte with its checksum.

    Raises:
      CheckpointError: A tensor fails its checksum.
    """
    seen: set[Place] = set()
    with self.open_check() as check_entry:
      for key, entry in self.entries.items():
        place = entry.place
        if not place.size or place not in seen:
          seen.add(place)
          check_entry(key, entry)

  @contextlib.contextmanager
  def open_check(self) -> Iterator[Callable[[bytes, Entry], None]]:
    """Opens the checkpoint for comparing entries with their checksums.

    Yields:
      A function that compares the entry of a key. It raises `CheckpointError`
      if the bytes fail their checksum. It keeps one data file open, without a
      buffer, so that it can read what another thread has just written.
    """
    file: BinaryIO | None = None
    opened = -1

    def check_entry(key: bytes, entry: Entry) -> None:
      nonlocal file, opened
      if entry.slices:
        return  # The slices have entries of their own.
      path = self.make_shard_path(entry.shard)
      with name_file_in_errors(path):
        if file is None or opened != entry.shard:
          if file is not None:
            file.close()
          file = None  # Opening may fail.
          file, opened = _opening.open_file(path, buffered=False), entry.shard
        file.seek(entry.offset)
        try:
          entry.check_file(file)
        except ValueError as error:
          if key in self._slices:
            raise
          raise ValueError(f"{decode_name(key)}: {error}") from None

    try:
      yield check_entry
    finally:
      if file is not None:
        file.close()


def _join(entries: Sequence[Entry]) -> Iterator[Place]:
  """Yields the places of bytes; those that follow one another as one place."""
  last: Place | None = None
  for place in (entry.place for entry in entries if entry.size):
    if last and place[:2] == (last.shard, last.offset + last.size):
      last = last._replace(size=last.size + place.size)
      continue
    if last:
      yield last
    last = place
  if last:
    yield last


def _copy_chunk(shard: IO[bytes], at: int, size: int, file: IO[bytes]) -> int:
  """Appends a part of one file to another file.

  Args:
    shard: The first file, without a buffer, whose position is `at` unless the
      kernel copies.
    at: The part's offset.
    size: The part's size.
    file: The other file.

  Returns:
    The number of bytes that were copied, 0 at the end of the first file.
  """
  # Linux copies in the kernel. Other systems send only to sockets, or have no
  # `sendfile`.
  is_local = isinstance(shard, io.FileIO)
  if is_local and sys.platform == "linux" and hasattr(os, "sendfile"):
    return os.sendfile(file.fileno(), shard.fileno(), at, size)
  data = shard.read(size)
  file.write(data)
  return len(data)


def read_shard_count(index: str) -> int:
  """Reads the number of data files from an index.

  Raises:
    CheckpointError: The index cannot be read.
  """
  with name_file_in_errors(index), _opening.open_file(index) as file:
    return _read_header(_table.read(file.read())[b""])


def _read_header(data: bytes) -> int:
  """Returns the number of data files in an encoded header."""
  header = {tag: value for tag, value in _wire.read_fields(data) if tag < 3}
  if header.get(2):
    raise ValueError("a big-endian machine wrote it")
  return _wire.get_number(header.get(1, 0))


def make_shard_path(prefix: str, shard: int, shards: int) -> str:
  """Returns the path of the data file with number `shard` of `shards`."""
  return f"{prefix}.data-{shard:05}-of-{shards:05}"


def list_data_files(prefix: str) -> list[str]:
  """Returns the paths of all data files that a checkpoint has on the disk."""
  base = os.path.basename(prefix)
  folder = prefix[: len(prefix) - len(base)]  # With the slash, or empty.
  try:
    names = _opening.list_folder(folder)
  except OSError:
    return []
  size = len(base)
  return [
    os.path.join(folder, name)
    for name in names
    if name.startswith(base) and _DATA_FILE.fullmatch(name, size)
  ]


def encode_index(entries: dict[bytes, Entry], shards: int) -> bytes:
  """Returns the bytes of an index."""
  header = _wire.encode_field(1, shards) + _wire.encode_field(
    3, _wire.encode_field(1, 1)
  )
  items = sorted((key, entry.encode()) for key, entry in entries.items())
  return _table.write([(b"", header), *items])


@contextlib.contextmanager
def name_file_in_errors(path: str) -> Iterator[None]:
  """Raises errors as `CheckpointError`s that name the file."""
  try:
    yield
  except CheckpointError:
    raise
  except OSError as error:
    reason = error.strerror or str(error)
    raise CheckpointError(f"{path}: {reason}") from None
  except (
    *(ValueError, IndexError, KeyError, OverflowError, MemoryError),
  ) as error:
    raise CheckpointError(
      f"{path}: no checkpoint that can be read: {error}"
    ) from None
