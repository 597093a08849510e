# SPDX-License-Identifier: Apache-2.0
"""Reads checkpoints of TensorFlow's first format ("V1").

TensorFlow before 0.12 wrote it, and later ones if a Saver asked for it. A
checkpoint is one table PREFIX, or shards PREFIX-00000-of-00002 and so on, each
a table. In a table, the empty key has the names, dtypes, shapes and slices of
its tensors, and each other key is a slice's, whose value is the slice's values
(SavedTensorSlices in TensorFlow's saved_tensor_slice.proto).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os
import re
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale._core.bytes import snappy as _snappy
from tf_compat_lossscale._core.bytes import wire as _wire
from tf_compat_lossscale.checkpoint.files import bundle as _bundle
from tf_compat_lossscale.checkpoint.files import entries as _entries
from tf_compat_lossscale.checkpoint.files import opening as _opening
from tf_compat_lossscale.checkpoint.files import table as _table
from tf_compat_lossscale.checkpoint.files import tensor_values as _values
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)

# A shard, or the pattern of all shards, which TensorFlow takes as a path. The
# second format has data files, which are no such shards.
_SHARD = re.compile(
  r"(.+)(?<!\.data)-(?:[0-9]{5}|\?{5})-of-([0-9]{5})", re.DOTALL
)
_VERSION = 1  # Of the format's writers, as TensorFlow counts.


class Files(NamedTuple):
  """The files of a checkpoint.

  Attributes:
    prefix: The path without the number of a shard.
    path: The path that TensorFlow's own Saver takes: that of the only file, or
      a pattern of the shards.
    tables: The paths of the files.
  """

  prefix: str
  path: str
  tables: tuple[str, ...]


def find_files(path: str) -> Files | None:
  """Finds a checkpoint of the first format.

  Args:
    path: A file, a prefix of shards, one shard, or a pattern of shards.

  Returns:
    The files; None if there is no such checkpoint. Of several shards, some may
    be missing.

  Raises:
    CheckpointError: There are several numbers of shards.
  """
  if _opening.exists(path + ".index"):
    return None
  match = _SHARD.fullmatch(path)
  if match:
    found = _make_files(match[1], int(match[2]))
    return found if any(map(_opening.is_file, found.tables)) else None
  if _opening.is_file(path):
    with _opening.open_file(path) as file:
      file.seek(max(0, _opening.read_stamp(path).size - _table.FOOTER))
      is_table = _table.is_table(file.read())
    return Files(path, path, (path,)) if is_table else None
  base = os.path.basename(path)
  folder = path[: len(path) - len(base)]
  try:
    names = _opening.list_folder(folder) if base else []
  except OSError:
    return None
  counts = set()
  for name in names:
    match = _SHARD.fullmatch(name)
    if match and match[1] == base:
      counts.add(int(match[2]))
  if len(counts) > 1:
    patterns = [_make_files(path, count).path for count in sorted(counts)]
    raise CheckpointError(
      f"{path}: there are several checkpoints of that name: name "
      f"{' or '.join(patterns)}"
    )
  return _make_files(path, counts.pop()) if counts else None


def find_in_folder(folder: str) -> list[str]:
  """Returns the prefixes of a folder's checkpoints of the first format.

  A file needs a MetaGraph beside it: other programs have tables, too.
  """
  names = set(_opening.list_folder(folder))
  prefixes = {name[:-5] for name in names if name.endswith(".meta")} & names
  prefixes |= {match[1] for name in names if (match := _SHARD.fullmatch(name))}
  return sorted(
    name for name in prefixes if find_files(_opening.join(folder, name))
  )


def _make_files(prefix: str, count: int) -> Files:
  """Returns the files of a checkpoint with `count` shards."""
  shards = tuple(f"{prefix}-{i:05}-of-{count:05}" for i in range(count))
  return Files(prefix, f"{prefix}-?????-of-{count:05}", shards)


class _Item(NamedTuple):
  """A slice of a tensor, or a whole tensor, in a table.

  Attributes:
    table: The number of the table.
    key: The key in the table.
    name: The tensor's encoded name.
    part: The slice.
  """

  table: int
  key: bytes
  name: bytes
  part: _entries.Slice


class FirstFormatBundle(_bundle.Bundle):
  """A checkpoint of the first format that is open for reading.

  It has the entries that the checkpoint would have in the second format, except
  for checksums and the sizes of strings, which `list_parts` adds. `shard` is
  the number of a table there, and `offset` counts the slices.
  """

  is_first_format = True

  def __init__(self, path: str) -> None:
    """Reads the names of all tensors.

    Args:
      path: A path as for `find_files`.

    Raises:
      CheckpointError: The checkpoint is missing or damaged.
    """
    files = find_files(path)
    if files is None:
      raise CheckpointError(f"{path}: No such file")
    self.prefix, self.path = files.prefix, files.path
    self.entries: dict[bytes, _entries.Entry] = {}
    self._stamps = {}
    self._digest = b""
    self._paths = files.tables
    self._tables: list[_table.Table] = []
    self._items: list[_Item] = []
    tensors: dict[bytes, _entries.Entry] = {}
    # Tensor -> (the number of the table, slice), for all slices.
    slices: dict[bytes, list[tuple[int, bytes]]] = {}
    for number, table in enumerate(files.tables):
      with _bundle.name_file_in_errors(table):
        self._stamps[table] = _opening.read_stamp(table)
        elements = 0
        self._tables.append(_open_table(table))
        meta = self._tables[number].read_value(b"")
        for name, tensor in _read_meta(meta):
          known = tensors.setdefault(name, tensor)
          if known.spec != tensor.spec:
            raise ValueError(
              f"{_entries.decode_name(name)!r} is {tensor.spec}, and "
              f"{known.spec} elsewhere"
            )
          for data in tensor.slices:
            slices.setdefault(name, []).append((number, data))
            elements += tensor.count_elements(data)
        if elements > _snappy.MOST * self._stamps[table].size:
          raise ValueError("it is too small for its tensors: it is cut off")
    with _bundle.name_file_in_errors(files.path):
      for name, tensor in tensors.items():
        self._add(name, tensor, slices[name])
      self._parts = self._find_parts()
    self._list_specs()

  def _add(
    self,
    name: bytes,
    tensor: _entries.Entry,
    slices: list[tuple[int, bytes]],
  ) -> None:
    """Adds the entries of a tensor and of its slices."""
    parts = [_entries.Slice.parse(data) for _, data in slices]
    text = _entries.decode_name(name)
    if text in ("", _bundle.OBJECT_GRAPH):
      raise ValueError(f"no Saver wrote a tensor called {text!r}")
    whole = _entries.Slice((0,) * len(tensor.shape), (-1,) * len(tensor.shape))
    if parts == [whole]:
      keys = [name]
      shapes = [tensor.shape]
    else:
      entry = tensor.make_part(tensor.shape, tuple(data for _, data in slices))
      self.entries[name] = entry
      found = entry.find_parts(name)
      if len(found) != len(parts):
        raise ValueError("a slice is there twice")
      keys = list(found)
      shapes = [spec.shape for spec in found.values()]
    for key, shape, part, (number, _) in zip(keys, shapes, parts, slices):
      if key in self.entries:
        raise ValueError(f"two tensors have the key {key!r}")
      self.entries[key] = tensor.make_part(
        shape, shard=number, offset=len(self._items)
      )
      self._items.append(_Item(number, part.make_key(name), name, part))

  @property
  def is_small(self) -> bool:
    """Whether describing the checkpoint compares all checksums."""
    size = sum(stamp.size for stamp in self._stamps.values())
    return max(size, self.size) <= _bundle.CHECKED_AT_SIGHT

  @property
  def time(self) -> float:
    """When the checkpoint was written, in seconds."""
    return max(stamp.time_ns for stamp in self._stamps.values()) / 1e9

  def _read_digest(self) -> bytes:
    return b""  # The stamps tell all.

  def list_parts(
    self, name: str, new: str
  ) -> Iterator[tuple[bytes, bytes, _entries.Entry]]:
    """Yields entries as `Bundle` does, with sizes and checksums."""
    for key, new_key, entry in super().list_parts(name, new):
      if not entry.slices:
        entry = entry.seal(self.read(entry))
      yield key, new_key, entry

  def read(self, entry: _entries.Entry) -> bytes:
    """Reads the bytes that an entry would have in the second format.

    Raises:
      CheckpointError: The bytes fail their checksum, or cannot be read.
    """
    if entry.slices:
      return b""
    item = self._items[entry.offset]
    with _bundle.name_file_in_errors(self._paths[item.table]):
      value = self._tables[item.table].read_value(item.key)
      return _decode(value, item, entry)

  def copy(
    self,
    entries: Sequence[_entries.Entry],
    file: Any,
    progress: _bundle.Progress,
  ) -> None:
    """Appends the bytes of entries to a file, one after the other.

    Raises:
      CheckpointError: The bytes fail their checksum, or cannot be read.
    """
    for entry in entries:
      data = self.read(entry)
      file.write(data)
      progress(len(data))

  def check(self) -> None:
    """Compares every block with its checksum, and decodes every tensor.

    Raises:
      CheckpointError: A block fails its checksum, or a tensor is missing.
    """
    expected: list[dict[bytes, int]] = [{} for _ in self._tables]
    for number, item in enumerate(self._items):
      expected[item.table][item.key] = number
    found = {e.offset: e for e in self.entries.values() if not e.slices}
    for path, table, numbers in zip(self._paths, self._tables, expected):
      with _bundle.name_file_in_errors(path):
        for key, value in table.read_items():
          if not key:
            continue
          if key not in numbers:
            raise ValueError(f"it has {key!r}, which is no tensor of its list")
          number = numbers.pop(key)
          _decode(value, self._items[number], found[number])
        for number in numbers.values():
          name = _entries.decode_name(self._items[number].name)
          raise ValueError(f"{name}: it is in the list, but has no values")

  @contextlib.contextmanager
  def open_check(
    self,
  ) -> Iterator[Callable[[bytes, _entries.Entry], None]]:
    """Yields a function that reads an entry, as `Bundle` does."""

    def check_entry(key: bytes, entry: _entries.Entry) -> None:
      del key
      self.read(entry)

    yield check_entry


def _open_table(path: str) -> _table.Table:
  """Opens a table, whose file is opened anew for each read."""

  def read_at(offset: int, size: int) -> bytes:
    with _opening.open_file(path) as file:
      file.seek(offset)
      return file.read(size)

  return _table.Table(read_at, _opening.read_stamp(path).size)


def _read_meta(value: memoryview) -> Iterator[tuple[bytes, _entries.Entry]]:
  """Reads which tensors a table has.

  Args:
    value: The value of the empty key.

  Yields:
    A tensor's encoded name, and its dtype, shape and slices in that table.

  Raises:
    ValueError: The value is no list of tensors, or a later TensorFlow wrote it.
  """
  for tag, meta in _wire.read_fields(value):
    if tag == 1 and isinstance(meta, int):
      raise ValueError(
        "it is the index of a checkpoint, but has not the name of one: rename "
        "it so that it ends with .index"
      )
    if tag != 1:
      raise ValueError("its first value is no list of tensors")
    for inner, tensor in _wire.read_fields(_wire.get_bytes(meta)):
      if inner == 1:
        yield _parse_tensor(_wire.get_bytes(tensor))
      elif inner == 2:
        _check_versions(_wire.get_bytes(tensor))


def _check_versions(data: memoryview) -> None:
  """Checks that a VersionDef allows to read the format.

  Raises:
    ValueError: It does not.
  """
  for tag, value in _wire.read_fields(data):
    newer = tag == 2 and _wire.get_number(value) > _VERSION
    bad = tag == 3 and (
      value == _VERSION if isinstance(value, int) else _VERSION in value
    )
    if newer or bad:
      raise ValueError("it must be read by a later TensorFlow")


def _parse_tensor(data: memoryview) -> tuple[bytes, _entries.Entry]:
  """Parses a SavedSliceMeta.

  Returns:
    The tensor's encoded name, and its dtype, shape and slices.

  Raises:
    ValueError: The bytes are no such message.
  """
  name, dtype, slices = b"", 0, []
  shape: tuple[int, ...] = ()
  for tag, value in _wire.read_fields(data):
    if tag == 1:
      name = bytes(_wire.get_bytes(value))
    elif tag == 2:
      shape += _entries.parse_shape(bytes(_wire.get_bytes(value)))
    elif tag == 3:
      dtype = _wire.get_number(value)
    elif tag == 4:
      slices.append(bytes(_wire.get_bytes(value)))
  text = _entries.decode_name(name)
  entry = _entries.Entry.make_unplaced(dtype, shape, tuple(slices))
  if not slices:
    raise ValueError(f"{text!r} has no slices")
  if not _values.is_known(entry.spec.dtype):
    raise ValueError(
      f"{text!r} is {entry.spec}, which no Saver wrote in the first format"
    )
  return name, entry


def _decode(value: memoryview, item: _Item, entry: _entries.Entry) -> bytes:
  """Decodes the values of a slice.

  Args:
    value: A SavedTensorSlices.
    item: The slice that it must have.
    entry: Its dtype and its shape.

  Returns:
    The bytes that the slice has in the second format.

  Raises:
    ValueError: It is another slice, or has not as many values as its shape.
  """
  name = _entries.decode_name(item.name)
  saved = [inner for tag, inner in _wire.read_fields(value) if tag == 2]
  if len(saved) != 1:
    raise ValueError(f"{name}: it has no values")
  tensors = []
  for tag, inner in _wire.read_fields(_wire.get_bytes(saved[0])):
    data = _wire.get_bytes(inner)
    if (tag == 1 and data != item.name) or (
      tag == 2 and _entries.Slice.parse(data) != item.part
    ):
      raise ValueError(f"{name}: the values of another tensor are in its place")
    if tag == 3:
      tensors.append(data)
  if len(tensors) > 1:
    raise ValueError(f"{name}: it has its values twice")
  try:
    return _values.decode(tensors[0] if tensors else memoryview(b""), entry)
  except (ValueError, OverflowError) as error:
    raise ValueError(f"{name}: {error}") from None
