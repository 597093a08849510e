# SPDX-License-Identifier: Apache-2.0
"""Tests files of TensorFlow's first format, in comparison with TensorFlow."""

import contextlib
import os
import random
import time
import tracemalloc

import helpers
import numpy as np
import pytest
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale._core.bytes import crc32c
from tf_compat_lossscale._core.bytes import snappy
from tf_compat_lossscale._core.bytes import wire
from tf_compat_lossscale.checkpoint.files import bundle
from tf_compat_lossscale.checkpoint.files import entries
from tf_compat_lossscale.checkpoint.files import first_format
from tf_compat_lossscale.checkpoint.files import table

tf1 = tf.compat.v1
_EXAMPLES = int(os.environ.get("FIRST_FORMAT_EXAMPLES", "30"))
_MUTANTS = int(os.environ.get("FIRST_FORMAT_MUTANTS", "400"))
_NUMBERS = (
  *("float32", "float64", "float16", "int8", "int16", "int32", "int64"),
  *("uint8", "uint16", "bool", "complex64", "complex128"),
)
_QUANTIZED = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}
_DTYPES = (*_NUMBERS, "string", *_QUANTIZED)


def make_value(rng, dtype, shape):
  """Returns an array of any bytes of a dtype, so also of NaN and the like."""
  size = int(np.prod(shape))
  if dtype == "string":
    texts = [rng.randbytes(rng.choice([0, 1, 7, 300])) for _ in range(size)]
    return np.array(texts, object).reshape(shape)
  plain = np.dtype(_QUANTIZED.get(dtype, dtype))
  if dtype == "bool" or rng.random() < 0.3:
    return np.array([rng.randrange(2) for _ in range(size)], plain).reshape(
      shape
    )
  return np.frombuffer(rng.randbytes(size * plain.itemsize), plain).reshape(
    shape
  )


def as_array(value):
  """Returns what a session returned as an array: strings may be bytes."""
  return np.array(value, object) if isinstance(value, bytes) else value


def same(left, right):
  """Returns whether arrays have the same bytes."""
  if left.dtype == object or right.dtype == object:
    return left.shape == right.shape and left.tolist() == right.tolist()
  return (left.dtype, left.shape, left.tobytes()) == (
    *(right.dtype, right.shape),
    right.tobytes(),
  )


def save(path, tensors):
  """Writes a table by TensorFlow.

  Args:
    path: The file.
    tensors: (name, slice, dtype, value) of each.
  """
  with tf.Graph().as_default(), tf1.Session() as session:
    data, fed = [], {}
    for _, _, dtype, value in tensors:
      plain = tf1.placeholder(_QUANTIZED.get(dtype, dtype), np.shape(value))
      data.append(tf.bitcast(plain, dtype) if dtype in _QUANTIZED else plain)
      fed[plain] = value
    session.run(
      tf.raw_ops.SaveSlices(
        filename=path,
        tensor_names=[t[0] for t in tensors],
        shapes_and_slices=[t[1] for t in tensors],
        data=data,
      ),
      fed,
    )


def restore(path, names, dtypes, slices=None):
  """Reads tensors by TensorFlow."""
  with tf.Graph().as_default(), tf1.Session() as session:
    return session.run(
      tf.raw_ops.RestoreV2(
        prefix=path,
        tensor_names=names,
        shape_and_slices=slices or [""] * len(names),
        dtypes=[tf.as_dtype(dtype) for dtype in dtypes],
      )
    )


@pytest.mark.parametrize("dtype", _DTYPES)
def test_every_dtype(dtype, tmp_path):
  rng = random.Random(dtype)
  shapes = [(), (0,), (5,), (3, 2), (2, 0, 3), (1, 1, 1, 4), (150_000,)]
  values = [make_value(rng, dtype, shape) for shape in shapes]
  path = str(tmp_path / "x")
  save(path, [(f"v{i}", "", dtype, v) for i, v in enumerate(values)])
  opened = first_format.FirstFormatBundle(path)
  opened.check()
  new = str(tmp_path / "new")
  checkpoint.convert(path, new, "saver")
  names = [f"v{i}" for i in range(len(values))]
  expected = restore(path, names, [dtype] * len(names))
  converted = restore(new, names, [dtype] * len(names))
  for name, value, theirs, again in zip(names, values, expected, converted):
    assert opened.specs[name] == (dtype, value.shape)
    mine = opened.read_array(name)
    assert same(mine, as_array(theirs)) and same(mine, value)
    assert same(as_array(again), value)
  if dtype == "string":
    assert opened.read_string("v0") == values[0].item()
  elif dtype in ("float32", "int64", "uint8"):
    np.testing.assert_equal(opened.read_scalar("v0"), values[0].item())


def split(rng, shape):
  """Returns boxes that cover a shape: [(begin, end) of each dimension]."""
  boxes = [tuple((0, size) for size in shape)]
  for _ in range(rng.randrange(4)):
    axis = rng.randrange(len(shape))
    begin, end = boxes[0][axis]
    if end - begin > 1:
      box, at = boxes.pop(0), rng.randrange(begin + 1, end)
      for part in ((begin, at), (at, end)):
        boxes.append((*box[:axis], part, *box[axis + 1 :]))
  return boxes


def as_slice(shape, box, whole):
  """Returns a slice as Savers write it: '7 2 0,3:-' or '7 2 0,3:0,2'."""
  parts = [
    "-" if whole and part == (0, size) else f"{part[0]},{part[1] - part[0]}"
    for part, size in zip(box, shape)
  ]
  return " ".join(map(str, shape)) + " " + ":".join(parts)


def write_randomly(rng, folder):
  """Writes a random checkpoint; returns its path and name -> (dtype, value)."""
  shards = rng.choice([1, 1, 2, 5])
  path = f"{folder}/m.ckpt-3"
  tables = [[] for _ in range(shards)]
  tensors = {}
  for i in range(rng.randint(1, 8)):
    name = f"{rng.choice('abc')}/{'ü' * rng.randrange(2)}{i}"
    dtype = rng.choice(_DTYPES)
    shape = tuple(rng.choice([0, 1, 2, 3, 9]) for _ in range(rng.randrange(4)))
    value = make_value(rng, dtype, shape)
    tensors[name] = (dtype, value)
    if not shape or not value.size or rng.random() < 0.5:
      rng.choice(tables).append((name, "", dtype, value))
      continue
    for box in split(rng, shape):
      spec = as_slice(shape, box, rng.random() < 0.5)
      part = value[tuple(slice(*ends) for ends in box)]
      rng.choice(tables).append((name, spec, dtype, part))
  if shards == 1:
    save(path, tables[0])
    return path, tensors
  for number, items in enumerate(tables):
    # A device without variables has a table that names none.
    items = items or [(f"none{number}", "", "int32", np.int32(0))]
    save(f"{path}-{number:05}-of-{shards:05}", items)
  return f"{path}-?????-of-{shards:05}", tensors


@pytest.mark.parametrize("seed", range(_EXAMPLES))
def test_random_checkpoints(seed, tmp_path):
  rng = random.Random(seed)
  path, tensors = write_randomly(rng, tmp_path)
  opened = first_format.FirstFormatBundle(path)
  opened.check()
  names = sorted(tensors)
  theirs = restore(path, names, [tensors[name][0] for name in names])
  for name, value in zip(names, theirs):
    dtype, expected = tensors[name]
    assert opened.specs[name] == (dtype, expected.shape)
    assert same(opened.read_array(name), expected), name
    assert same(opened.read_array(name), as_array(value)), name
  new = str(tmp_path / "new")
  checkpoint.convert(path, new, "saver")
  converted = bundle.Bundle(new)
  converted.check()
  for name, (dtype, expected) in tensors.items():
    assert converted.specs[name] == (dtype, expected.shape)
    assert same(as_array(converted.read_array(name)), expected)


def compress(data):
  """Returns a Snappy stream with literals and copies of all kinds."""
  out = bytearray(wire.encode_varint(len(data)))
  seen, at, begin = {}, 0, 0

  def write_literal(text):
    while text:
      part, text = text[:70_000], text[70_000:]
      size = len(part) - 1
      if size < 60:
        out.append(size << 2)
      else:
        more = (size.bit_length() + 7) // 8
        out.append((59 + more) << 2)
        out.extend(size.to_bytes(more, "little"))
      out.extend(part)

  while at + 4 <= len(data):
    word = data[at : at + 4]
    found = seen.get(word)
    seen[word] = at
    if found is None:
      at += 1
      continue
    write_literal(data[begin:at])
    size = 4
    while at + size < len(data) and data[found + size] == data[at + size]:
      size += 1
      if size == 64:
        break
    offset = at - found
    if size < 12 and offset < 1 << 11:
      out += bytes([1 | (size - 4) << 2 | offset >> 8 << 5, offset & 255])
    else:
      width = 2 if offset < 1 << 16 else 4
      out.append((size - 1) << 2 | (2 if width == 2 else 3))
      out += offset.to_bytes(width, "little")
    at += size
    begin = at
  write_literal(data[begin:])
  return bytes(out)


@pytest.mark.any_release
@pytest.mark.parametrize(
  "data",
  [b"", b"a", b"ab" * 50, bytes(100_000), b"abcdefgh" + bytes(10) + b"abcdefgh"]
  + [random.Random(i).randbytes(2**i) for i in range(0, 18, 3)]
  + [random.Random(7).randbytes(70_000) * 2]
  + [(text := random.Random(3).randbytes(900)) + text[:8]],
  ids=lambda data: str(len(data)),
)
def test_snappy(data):
  packed = compress(data)
  assert snappy.decompress(packed) == data
  rng = random.Random(1)
  for _ in range(200):  # No damage raises another error, or takes long.
    damaged = bytearray(packed[: rng.randint(0, min(len(packed), 400))])
    if damaged:
      damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    with contextlib.suppress(ValueError):
      assert len(snappy.decompress(damaged)) <= snappy.MOST * len(damaged)


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("data", "what"),
  [
    (b"\xff\xff\xff\x7f" + bytes(9), "cannot be"),
    (b"\x05\x10abcd", "cut off"),  # A literal of 5 bytes, of which 4 are there.
    (b"\x03\x0cabcd", "cut off"),  # Of 4 bytes, but 3 are announced.
    (b"\x09\x10abcde\x01\x00", "beyond"),  # A copy from here.
    (b"\x09\x10abcde\x01\x06", "beyond"),  # From before the beginning.
    (b"\x09\x10abcde\x01", "cut off"),
    (b"\x08\x10abcde\x01\x05", "beyond"),  # A copy of 4, where 3 are left.
    (b"\x0a\x10abcde", "cut off"),
  ],
)
def test_damaged_snappy(data, what):
  with pytest.raises(ValueError, match=what):
    snappy.decompress(data)


def put_block(out, block, kind=0):
  """Appends a block to a table, and returns its handle."""
  data = compress(block) if kind else block
  handle = wire.encode_varint(len(out)) + wire.encode_varint(len(data))
  out += data + bytes([kind])
  crc = crc32c.mask(crc32c.crc32c(data + bytes([kind])))
  out += crc.to_bytes(4, "little")
  return handle


def rewrite(data, change=lambda number, block: block, kind=0):
  """Writes a table again, with blocks that are changed or compressed.

  Args:
    data: The table.
    change: Called with the number of each block and its bytes, the index last.
      All checksums are right afterwards.
    kind: 1 to compress each block.
  """
  old = table.Table(
    lambda offset, size: data[offset : offset + size], len(data)
  )
  out = bytearray()
  pairs = []
  for number, (last, handle) in enumerate(zip(old._lasts, old._handles)):
    block = change(number, old._read_block(handle))
    pairs.append((last, put_block(out, block, kind)))
  handles = put_block(out, bytes(4) + b"\1\0\0\0")
  index = bytearray()
  for last, handle in pairs:
    lengths = (0, len(last), len(handle))
    index += b"".join(map(wire.encode_varint, lengths)) + last + handle
  index += bytes(4) + b"\1\0\0\0"
  handles += put_block(out, change(len(pairs), bytes(index)), kind)
  return bytes(out) + handles.ljust(40, b"\0") + data[-8:]


@pytest.mark.parametrize("seed", range(6))
def test_compressed_tables(seed, tmp_path):
  """Checks blocks as TensorFlow before 1.2 wrote them; today's reads them."""
  rng = random.Random(seed)
  path, tensors = write_randomly(rng, tmp_path)
  zeros = np.zeros([300, 300], np.float32)
  save(f"{tmp_path}/zeros", [("zeros", "", "float32", zeros)])
  for file in tmp_path.iterdir():
    file.write_bytes(rewrite(file.read_bytes(), kind=1))
  for where, expected in (
    (path, {name: value for name, (_, value) in tensors.items()}),
    (f"{tmp_path}/zeros", {"zeros": zeros}),
  ):
    opened = first_format.FirstFormatBundle(where)
    opened.check()
    for name, value in expected.items():
      dtype = opened.specs[name].dtype
      (theirs,) = restore(where, [name], [dtype])
      assert same(opened.read_array(name), as_array(theirs))
      assert same(opened.read_array(name), value)


def test_a_compressed_index(tmp_path):
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[1.0, 2.0])
    session.run(v.initializer)
    path = tf1.train.Saver().save(session, str(tmp_path / "x"))
  index = tmp_path / "x.index"
  index.write_bytes(rewrite(index.read_bytes(), kind=1))
  (theirs,) = restore(path, ["v"], ["float32"])
  assert theirs.tolist() == [1, 2]
  new = str(tmp_path / "new")
  checkpoint.convert(path, new, "saver")
  assert restore(new, ["v"], ["float32"])[0].tolist() == [1, 2]


def field(tag, *values):
  """Returns fields of a message, one for each value."""
  return b"".join(wire.encode_field(tag, value) for value in values)


def extents(box):
  """Returns a TensorSliceProto."""
  return b"".join(
    field(1, b"" if part is None else field(1, part[0]) + field(2, part[1]))
    for part in box
  )


def key_of(name, box):
  """Returns the key of a slice."""
  starts = tuple(0 if part is None else part[0] for part in box)
  lengths = tuple(-1 if part is None else part[1] for part in box)
  return entries.Slice(starts, lengths).make_key(name)


def shape_of(*sizes):
  return b"".join(field(2, field(1, size)) for size in sizes)


def describe_tensor(name, dtype, shape, *boxes):
  """Returns a SavedSliceMeta."""
  return (
    field(1, name)
    + field(2, shape_of(*shape))
    + field(3, dtype)
    + field(4, *map(extents, boxes))
  )


def make_item(name, box, values, inner=None):
  """Returns the key and the value of a slice."""
  saved = field(1, name) + field(2, extents(inner or box)) + field(3, values)
  return key_of(name, box), field(2, saved)


def write_table(path, metas, items, versions=b"\x08\x01"):
  """Writes a table of given messages."""
  meta = field(1, field(1, *metas) + field(2, versions))
  path.write_bytes(table.write(sorted([(b"", meta), *items])))
  os.utime(path, (1, 1))  # A file that was just written is read again.


_WHOLE = (None,)
_FLOATS = np.float32([1, 2, 3]).tobytes()
_EACH = [wire.encode_varint(5 << 3 | 5) + _FLOATS[i : i + 4] for i in (0, 4, 8)]


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("dtype", "values", "expected"),
  [
    (1, field(5, _FLOATS), [1, 2, 3]),
    (1, b"".join(_EACH), [1, 2, 3]),
    (1, _EACH[0] + field(5, _FLOATS[4:]), [1, 2, 3]),
    (1, field(5, _FLOATS[:4]) + _EACH[1] + field(5, _FLOATS[8:]), [1, 2, 3]),
    (1, field(4, _FLOATS), [1, 2, 3]),
    (1, field(1, 1) + field(2, shape_of(3)) + field(5, _FLOATS), [1, 2, 3]),
    (3, field(7, b"\x01\x02\x03"), [1, 2, 3]),
    (3, field(7, 1, 2**64 - 2, 3), [1, -2, 3]),
    (3, field(7, 1) + field(7, b"\x02\x03"), [1, 2, 3]),
    (6, field(7, b"\x7f" + wire.encode_varint(-128) + b"\0"), [127, -128, 0]),
    (10, field(11, b"\1\0\5"), [True, False, True]),
    (19, field(13, 0x3C00, 0xC000, 0), [1, -2, 0]),
    (7, field(8, b"a", b"", b"bc"), [b"a", b"", b"bc"]),
  ],
)
def test_ways_to_have_values(dtype, values, expected, tmp_path):
  path = tmp_path / "x"
  meta = describe_tensor(b"v", dtype, (3,), _WHOLE)
  write_table(path, [meta], [make_item(b"v", _WHOLE, values)])
  opened = first_format.FirstFormatBundle(str(path))
  opened.check()
  assert opened.read_array("v").tolist() == expected


_V = describe_tensor(b"v", 1, (3,), _WHOLE)
_ITEM = make_item(b"v", _WHOLE, field(5, _FLOATS))


def halves(*boxes, shape=(4,)):
  """Returns the metas and the items of a variable with slices."""
  items = {}
  for box in boxes:
    size = int(np.prod([length for _, length in box]))
    key, value = make_item(b"v", box, field(5, bytes(4 * size)))
    items[key] = value
  return [describe_tensor(b"v", 1, shape, *boxes)], list(items.items())


_HUGE = describe_tensor(b"v", 1, (2**40, 2**20), (None, None))


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("metas", "items", "what"),
  [
    # Slices.
    (*halves(((0, 2),), ((1, 3),)), "overlap"),
    (*halves(((0, 2),), ((1, 1),)), "overlap"),
    (*halves(((3, 1),), ((0, 2),), ((1, 1),)), "overlap"),
    (*halves(((0, 1), (0, 4)), ((0, 2), (3, 1)), shape=(4, 4)), "overlap"),
    (*halves(((0, 4), (0, 1)), ((3, 1), (0, 2)), shape=(4, 4)), "overlap"),
    (*halves(((0, 4),), ((0, 4),)), "overlap|is there twice"),
    (*halves(((0, 4),), ((4, 0),), ((4, 0),)), "is there twice"),
    (*halves(((0, 2),), ((2, 3),)), "does not fit"),
    (*halves(((0, 2), (0, 1))), "does not fit"),
    ([describe_tensor(b"v", 1, (3,), ((-1, 4),))], [], "does not fit"),
    ([describe_tensor(b"v", 1, (3,), ((1, 2**63 - 1),))], [], "does not fit"),
    ([describe_tensor(b"v", 1, (3,))], [_ITEM], "has no slices"),
    # Tensors.
    ([_V, describe_tensor(b"v", 1, (4,), _WHOLE)], [_ITEM], "elsewhere"),
    ([_V, describe_tensor(b"v", 3, (3,), _WHOLE)], [_ITEM], "elsewhere"),
    ([_V, _V], [_ITEM], "overlap"),
    ([_HUGE], [make_item(b"v", (None, None), b"")], "too small"),
    ([describe_tensor(b"v", 1, (-3,), _WHOLE)], [], r"the shape \[-3\]"),
    ([describe_tensor(b"v", 1, (1,) * 300, _WHOLE)], [], "300 dimensions"),
    ([describe_tensor(b"v", 14, (3,), _WHOLE)], [], "no Saver wrote"),
    ([describe_tensor(b"v", 99, (3,), _WHOLE)], [], "no Saver wrote"),
    ([describe_tensor(b"", 1, (3,), _WHOLE)], [], "tensor called ''"),
    (
      [describe_tensor(b"_CHECKPOINTABLE_OBJECT_GRAPH", 7, ())],
      [],
      "no slices",
    ),
    (
      [describe_tensor(b"_CHECKPOINTABLE_OBJECT_GRAPH", 7, (), ())],
      [],
      "tensor called",
    ),
    # Values.
    ([_V], [], "missing|no values"),
    ([], [_ITEM], "no tensor of its list"),
    ([_V], [make_item(b"v", _WHOLE, field(5, bytes(8)))], "8 bytes, not 12"),
    ([_V], [make_item(b"v", _WHOLE, field(5, bytes(16)))], "16 bytes, not 12"),
    ([_V], [make_item(b"v", _WHOLE, field(5, 2**32, 0, 0))], "v: "),
    ([_V], [make_item(b"v", _WHOLE, field(4, bytes(8)))], "8 bytes, not 12"),
    (
      [_V],
      [make_item(b"v", _WHOLE, field(4, _FLOATS) + field(5, _FLOATS))],
      "twice",
    ),
    ([_V], [make_item(b"v", _WHOLE, field(1, 3) + field(5, _FLOATS))], "dtype"),
    (
      [_V],
      [make_item(b"v", _WHOLE, field(2, shape_of(1, 3)) + field(5, _FLOATS))],
      "shape",
    ),
    ([_V], [make_item(b"v", _WHOLE, field(7, b"\1\2\3"))], "0 bytes, not 12"),
    (
      [_V],
      [make_item(b"v", _WHOLE, field(5, _FLOATS), inner=((0, 3),))],
      "of another tensor",
    ),
    ([_V], [(_ITEM[0], make_item(b"w", _WHOLE, b"")[1])], "of another tensor"),
    ([_V], [(_ITEM[0], b"")], "no values"),
    ([_V], [(_ITEM[0], _ITEM[1] * 2)], "no values"),
    ([_V], [(_ITEM[0], b"\x12\x05abc")], "cut off"),
    (
      [describe_tensor(b"v", 3, (3,), _WHOLE)],
      [make_item(b"v", _WHOLE, field(7, b"\1\2"))],
      "2 values",
    ),
    (
      [describe_tensor(b"v", 3, (3,), _WHOLE)],
      [make_item(b"v", _WHOLE, field(7, b"\1\2\3\4"))],
      "4 values",
    ),
    (
      [describe_tensor(b"v", 3, (3,), _WHOLE)],
      [make_item(b"v", _WHOLE, field(7, b"\1\2\x83"))],
      "2 values|cut off",
    ),
    (
      [describe_tensor(b"v", 3, (1,), _WHOLE)],
      [make_item(b"v", _WHOLE, field(7, b"\xff" * 10 + b"\1"))],
      "too long",
    ),
    (
      [describe_tensor(b"v", 7, (3,), _WHOLE)],
      [make_item(b"v", _WHOLE, field(8, b"a", b"b"))],
      "2 values",
    ),
  ],
)
def test_forged_tables(metas, items, what, tmp_path):
  path = tmp_path / "x"
  write_table(path, metas, items)
  with pytest.raises(checkpoint.CheckpointError, match=what) as error:
    checkpoint.describe(path, verify=True)
  assert str(path) in str(error.value)
  assert len(str(error.value).splitlines()) == 1
  if not metas:
    return  # Only reading all finds a value that no tensor has.
  with pytest.raises(checkpoint.CheckpointError):
    checkpoint.convert(path, tmp_path / "new", "saver")
  assert os.listdir(tmp_path) == ["x"]


@pytest.mark.any_release
def test_versions(tmp_path):
  path = tmp_path / "x"
  for versions in (b"", b"\x08\x01", b"\x08\x63\x10\x01", b"\x1a\x02\x02\x03"):
    write_table(path, [_V], [_ITEM], versions)
    assert checkpoint.describe(path).checked
  for versions in (b"\x10\x02", b"\x18\x01", b"\x1a\x02\x02\x01"):
    write_table(path, [_V], [_ITEM], versions)
    with pytest.raises(checkpoint.CheckpointError, match="later TensorFlow"):
      checkpoint.describe(path)


@pytest.mark.any_release
def test_an_index_without_its_name(tmp_path):
  path = tmp_path / "x"
  path.write_bytes(table.write([(b"", b"\x08\x01\x1a\x02\x08\x01")]))
  with pytest.raises(checkpoint.CheckpointError, match=r"rename .* \.index"):
    checkpoint.describe(path)


@pytest.mark.any_release
def test_shards_that_do_not_belong_together(tmp_path):
  prefix = tmp_path / "m"
  for number, metas in enumerate(([_V], [_V])):
    write_table(tmp_path / f"m-0000{number}-of-00002", metas, [_ITEM])
  with pytest.raises(checkpoint.CheckpointError, match="overlap"):
    checkpoint.describe(prefix)
  other = describe_tensor(b"v", 1, (4,), _WHOLE)
  write_table(tmp_path / "m-00001-of-00002", [other], [_ITEM])
  with pytest.raises(checkpoint.CheckpointError, match="elsewhere"):
    checkpoint.describe(prefix)
  (tmp_path / "m-00001-of-00002").write_bytes(b"")
  with pytest.raises(checkpoint.CheckpointError, match="not end as a table"):
    checkpoint.describe(prefix)


_GOLDENS = [
  helpers.GOLDENS / "others" / name / "model.ckpt-8"
  for name in ("v1_unsharded", "v1_partitioned")
]


def read_all(path):
  """Returns the bytes of all tensors, or the error."""
  try:
    described = checkpoint.describe(path, verify=True)
    opened = first_format.FirstFormatBundle(str(path))
    values = {n: opened.read_array(n).tolist() for n in opened.specs}
    return described.keys, values
  except checkpoint.CheckpointError as error:
    assert len(str(error).splitlines()) == 1
    return None


def damage(rng, data):
  """Returns damaged bytes: without a part, with further ones, with others."""
  data = bytearray(data)
  kind = rng.randrange(6)
  at = rng.randrange(len(data))
  if kind == 0:
    del data[at:]
  elif kind == 1:
    del data[at : at + rng.randint(1, 40)]
  elif kind == 2:
    data[at:at] = rng.randbytes(rng.randint(1, 40))
  elif kind == 3:
    data[at:at] = data[rng.randrange(len(data)) :][: rng.randint(1, 200)]
  else:
    for _ in range(rng.choice([1, 1, 4])):
      data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
  return bytes(data)


def in_bounds(call):
  """Returns the result of a call, which takes little memory and time."""
  begin = time.process_time()
  tracemalloc.start()
  try:
    result = call()
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
  finally:
    tracemalloc.stop()
  assert time.process_time() - begin < 5
  return result


@pytest.mark.any_release
@pytest.mark.parametrize("golden", _GOLDENS, ids=lambda path: path.parent.name)
def test_damaged_files(golden, tmp_path):
  """Checks that damage is found, or does no harm."""
  expected = read_all(golden)
  assert expected
  rng = random.Random(3)
  path = tmp_path / "model.ckpt-8"
  for _ in range(_MUTANTS):
    path.write_bytes(damage(rng, golden.read_bytes()))
    os.utime(path, (1, 1))  # A file that was just written is read again.
    assert in_bounds(lambda: read_all(path)) in (None, expected)


@pytest.mark.thorough
@pytest.mark.any_release
@pytest.mark.parametrize("golden", _GOLDENS, ids=lambda path: path.parent.name)
def test_damaged_blocks_with_right_checksums(golden, tmp_path):
  """Checks that any messages are read or refused, in bounded memory."""
  rng = random.Random(5)
  path = tmp_path / "model.ckpt-8"
  data = golden.read_bytes()
  refused = 0
  for _ in range(_MUTANTS):
    blocks = [lambda block: block, lambda block: damage(rng, block)]
    rng.shuffle(blocks)  # The only block of entries, and the index.
    path.write_bytes(
      rewrite(data, lambda i, block: blocks[i](block), rng.randrange(2))  # noqa: B023
    )
    os.utime(path, (1, 1))
    refused += in_bounds(lambda: read_all(path)) is None
  assert refused > _MUTANTS // 2


@pytest.mark.any_release
def test_lengths_that_are_forged(tmp_path):
  """Checks that lengths in a small file take no memory."""
  path = tmp_path / "x"
  huge = 1 << 60
  for metas in (
    [describe_tensor(b"v", 1, (huge,), _WHOLE)],
    [describe_tensor(b"v", 7, (huge,), _WHOLE)],
    [describe_tensor(b"v", 1, (huge, 0), (None, None))],
    [describe_tensor(b"v", 1, (huge,), ((0, huge),))],
  ):
    write_table(path, metas, [_ITEM])
    os.utime(path, (1, 1))
    assert in_bounds(lambda: read_all(path)) is None
  bomb = wire.encode_varint(21 << 20) + b"\x00a" + b"\xfe\x01\x00" * (1 << 14)
  assert len(bomb) < 60_000
  with pytest.raises(ValueError, match="cannot be"):
    in_bounds(lambda: snappy.decompress(bomb))


@pytest.mark.thorough
def test_memory_and_time(tmp_path):
  """Checks that large checkpoints are read by blocks, and many tensors fast."""
  path = str(tmp_path / "large")
  one = np.arange(1 << 20, dtype=np.float32)
  save(path, [(f"v{i:02}", "", "float32", one) for i in range(16)])
  opened = None
  tracemalloc.start()
  try:
    opened = first_format.FirstFormatBundle(path)
    opened.check()
    for i in range(16):
      assert same(opened.read_array(f"v{i:02}"), one)
    assert tracemalloc.get_traced_memory()[1] < 48 << 20  # Of 64 MiB.
  finally:
    tracemalloc.stop()
  path = str(tmp_path / "many")
  count = 5000
  save(path, [(f"v{i}", "", "int32", np.int32(i)) for i in range(count)])
  opened = first_format.FirstFormatBundle(path)
  order = list(range(count))
  random.Random(0).shuffle(order)
  begin = time.process_time()
  assert [opened.read_scalar(f"v{i}") for i in order] == order
  assert time.process_time() - begin < 5


if __name__ == "__main__":
  helpers.main()
