# SPDX-License-Identifier: Apache-2.0
"""Tests checksums, tables and bundles, in comparison with TensorFlow."""

import contextlib
import dataclasses
import io
import math
import os
import pathlib
import sys
import time
import tracemalloc
import types

import helpers
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale._core.bytes import crc32c as _crc32c
from tf_compat_lossscale._core.bytes import wire as _wire
from tf_compat_lossscale.checkpoint.files import bundle
from tf_compat_lossscale.checkpoint.files import entries
from tf_compat_lossscale.checkpoint.files import object_graph
from tf_compat_lossscale.checkpoint.files import table as _table
from tf_compat_lossscale.checkpoint.files import values
from tf_compat_lossscale.checkpoint.files import writer as writing
from tf_compat_lossscale.cli import printing

tf1 = tf.compat.v1
_INDEXES = sorted(
  str(path)[: -len(".index")] for path in helpers.GOLDENS.rglob("*.index")
)
_DTYPES = (
  *("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32"),
  *("int64", "uint8", "uint16", "uint32", "uint64", "bool", "complex64"),
  *("complex128", "string"),
)


def write(prefix, tensors):
  """Writes a checkpoint of tensors by name."""
  with writing.reserve(prefix) as new:
    new.write(tensors)
    assert new.publish() == ()


def slowly(data, value=0):
  """Returns the CRC-32C of `data` by its definition, bit by bit."""
  value ^= 0xFFFFFFFF
  for byte in data:
    value ^= byte
    for _ in range(8):
      value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
  return value ^ 0xFFFFFFFF


@pytest.fixture(params=["google-crc32c", "numpy"])
def route(request, monkeypatch):
  """Computes checksums by the package, or by this one."""
  if request.param == "numpy":
    monkeypatch.setattr(_crc32c, "_extend", None)
  elif _crc32c._extend is None:
    pytest.skip("google-crc32c is not installed")


@pytest.mark.parametrize("implementation", ["c", "cffi", "python", None])
def test_checksums_by_the_processors_instruction(implementation, monkeypatch):
  """Checks that google-crc32c is used if its C code is there, and only then."""
  other = implementation and types.SimpleNamespace(
    implementation=implementation, extend=len
  )
  monkeypatch.setitem(sys.modules, "google_crc32c", other)
  found = _crc32c._find_extend()
  assert found is (len if implementation == "c" else None)


@pytest.mark.usefixtures("route")
def test_checksum_of_the_standard():
  """Checks the examples of RFC 3720, B.4."""
  assert _crc32c.crc32c(b"123456789") == 0xE3069283
  assert _crc32c.crc32c(bytes(32)) == 0x8A9136AA
  assert _crc32c.crc32c(b"\xff" * 32) == 0x62A8AB43
  assert _crc32c.crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("size", [0, 1, 16383, 16384, 16385, 262147, 1100003])
def test_checksum_of_any_length(size):
  data = np.random.RandomState(size).bytes(size)
  whole = _crc32c.crc32c(data)
  cut = size // 3
  assert _crc32c.crc32c(data[cut:], _crc32c.crc32c(data[:cut])) == whole
  view = memoryview(bytearray(data))
  assert _crc32c.crc32c(view[cut:], _crc32c.crc32c(view[:cut])) == whole
  if size < 20000:
    assert whole == slowly(data)


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(
  st.dictionaries(st.binary(max_size=40), st.binary(max_size=99))
)
def test_tables(items):
  written = _table.write(sorted(items.items()))
  assert _table.read(written) == items


def test_a_table_of_many_blocks():
  items = {b"%08d" % i: bytes(100) for i in range(6000)}
  written = _table.write(items.items())
  assert _table.read(written) == items


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(st.integers(0, 2**64 - 1))
def test_numbers(value):
  written = _wire.encode_varint(value)
  assert _wire.read_varint(written, 0) == (value, len(written))
  for cut in range(len(written)):
    with pytest.raises(ValueError, match="cut off"):
      _wire.read_varint(written[:cut], 0)


@pytest.mark.parametrize(
  ("data", "what"),
  [(b"\x0b", "kind 3"), (b"\x0a\x05ab", "cut off"), (b"\x0d\1", "cut off")],
)
def test_no_message(data, what):
  with pytest.raises(ValueError, match=what):
    list(_wire.read_fields(data))


@pytest.mark.parametrize("prefix", _INDEXES)
def test_goldens_read_as_tensorflow_reads_them(prefix):
  opened = bundle.Bundle(prefix)
  opened.check()
  reader = tf.train.load_checkpoint(prefix)
  shapes = reader.get_variable_to_shape_map()
  dtypes = reader.get_variable_to_dtype_map()
  assert set(opened.specs) == set(shapes)
  for name in opened.specs:
    tensor = opened.specs[name]
    assert tensor == (dtypes[name].name, tuple(shapes[name]))
    value = reader.get_tensor(name)
    if isinstance(value, bytes):
      assert opened.read_string(name) == value
    else:
      entry = opened.entries[name.encode()]
      assert opened.read(entry) == value.tobytes()
      if not tensor.shape:
        assert opened.read_scalar(name) == value


def test_object_graphs_are_written_as_they_were_read():
  from tensorflow.core.protobuf import trackable_object_graph_pb2 as proto

  bundles = map(bundle.Bundle, _INDEXES)
  with_graph = [x for x in bundles if bundle.OBJECT_GRAPH in x.specs]
  assert len(with_graph) >= 20
  for opened in with_graph:
    data = opened.read_string(bundle.OBJECT_GRAPH)
    graph = object_graph.ObjectGraph(data)
    again = object_graph.ObjectGraph(graph.encode())
    assert again.nodes == graph.nodes
    message = proto.TrackableObjectGraph.FromString(data)
    assert proto.TrackableObjectGraph.FromString(graph.encode()) == message
    graph.prune()
    assert len(graph.nodes) == len(message.nodes)


def save_all_dtypes(folder):
  values = {}
  for dtype in _DTYPES:
    if dtype == "string":
      values[dtype] = tf.constant(["", "a" * 300, "ü"])
    else:
      values[dtype] = tf.cast(tf.range(6), dtype)
  values["empty"] = tf.zeros([0, 3])
  values["nothing"] = tf.zeros([])
  prefix = str(folder / "all")
  tf.raw_ops.SaveV2(
    prefix=prefix,
    tensor_names=list(values),
    shape_and_slices=[""] * len(values),
    tensors=list(values.values()),
  )
  return prefix, values


def test_every_dtype(tmp_path):
  prefix, arrays = save_all_dtypes(tmp_path)
  opened = bundle.Bundle(prefix)
  opened.check()
  new = str(tmp_path / "new")
  tensors = {f"x/{name}": values.Stored(opened, name) for name in opened.specs}
  tensors["made"] = values.Literal("int64", -5)
  write(new, tensors)
  reader = tf.train.load_checkpoint(new)
  for name, value in arrays.items():
    assert opened.specs[name].dtype == value.dtype.name
    np.testing.assert_array_equal(reader.get_tensor(f"x/{name}"), value.numpy())
  assert reader.get_tensor("made") == -5
  bundle.Bundle(new).check()


def test_several_shards(tmp_path):
  parts = []
  for i in range(3):
    prefix = str(tmp_path / f"part{i}")
    tf.raw_ops.SaveV2(
      prefix=prefix,
      tensor_names=[f"v{i}"],
      shape_and_slices=[""],
      tensors=[tf.fill([5], float(i))],
    )
    parts.append(prefix)
  prefix = str(tmp_path / "joined")
  tf.raw_ops.MergeV2Checkpoints(
    checkpoint_prefixes=parts, destination_prefix=prefix
  )
  opened = bundle.Bundle(prefix)
  assert opened.shards == 3
  opened.check()
  write(
    str(tmp_path / "one"),
    {name: values.Stored(opened, name) for name in opened.specs},
  )
  reader = tf.train.load_checkpoint(str(tmp_path / "one"))
  for i in range(3):
    assert reader.get_tensor(f"v{i}").tolist() == [i] * 5
  (tmp_path / "joined.data-00001-of-00003").unlink()
  with pytest.raises(bundle.CheckpointError, match="00001-of-00003: No such"):
    bundle.Bundle(prefix)


def with_checksum(block):
  """Returns a block followed by its checksum, as a table stores blocks."""
  crc = _crc32c.mask(_crc32c.crc32c(block))
  return block + crc.to_bytes(4, "little")


def table_of(block):
  """Returns a table whose only block of entries is `block`, with checksum."""
  whole = _table.write([])
  handle = _wire.encode_varint(0) + _wire.encode_varint(len(block) - 5)
  entry = b"\0\1" + bytes([len(handle)]) + b"k" + handle
  index = with_checksum(entry + bytes(4) + b"\1\0\0\0" + b"\0")
  handles = _wire.encode_varint(0) * 2 + b"".join(
    map(_wire.encode_varint, (len(block), len(index) - 5))
  )
  return block + index + handles.ljust(40, b"\0") + whole[-8:]


_BLOCK = b"\0\1\1av" + bytes(4) + b"\1\0\0\0"


@pytest.mark.any_release
def test_damaged_tables():
  assert _table.read(table_of(with_checksum(_BLOCK + b"\0"))) == {b"a": b"v"}
  for block, what in (
    (_BLOCK + b"\0" + bytes(4), "checksum"),
    (with_checksum(_BLOCK + b"\1"), "compressed"),
    (
      with_checksum(_BLOCK.replace(b"\0\1\1", b"\1\1\1") + b"\0"),
      "entry is cut",
    ),
    (
      with_checksum(_BLOCK.replace(b"\0\1\1", b"\0\1\2") + b"\0"),
      "entry is cut",
    ),
    (with_checksum(b"ab\0"), "too short"),
  ):
    with pytest.raises(ValueError, match=what):
      _table.read(table_of(block))
  handles = b"".join(map(_wire.encode_varint, (0, 0, 9, 40)))
  with pytest.raises(ValueError, match="block is cut off"):
    _table.read(handles.ljust(40, b"\0") + _table.write([])[-8:])


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("dtype", "shape", "size"),
  [
    *(
      (1, (2, 3), 20),
      (8, (2,), 8),
      (18, (), 8),
      (22, (3,), 13),
      (19, (2,), 2),
    ),
    *((1, (-1, -1), 4), (10, (), 0)),
  ],
)
def test_entries_whose_size_does_not_fit(dtype, shape, size):
  with pytest.raises(ValueError, match=rf"has {size} bytes|the shape \[-1"):
    entries.Entry.parse(entries.Entry(dtype, shape, size=size).encode())


@pytest.mark.any_release
@pytest.mark.parametrize("value", [b"", b"abc", b"x" * 300, 0.25])
def test_a_changed_byte_fails_the_checksum(value):
  dtype = "string" if isinstance(value, bytes) else "float64"
  entry, data = entries.encode_scalar(dtype, value)
  entry.check(data)
  assert entries.Entry.parse(entry.encode()) == entry
  for at in range(len(data)):
    changed = bytearray(data)
    changed[at] ^= 4
    with pytest.raises(ValueError, match=r"checksum|cut off"):
      entry.check(bytes(changed))


@pytest.mark.any_release
def test_numbers_are_unsigned_if_their_dtype_is():
  for dtype, value in (("uint32", 2**32 - 1), ("uint64", 2**63), ("int8", -1)):
    entry, data = entries.encode_scalar(dtype, value)
    assert entry.decode_number(data) == value


@pytest.mark.parametrize(
  ("dtype", "value"),
  [("int32", 2**31), ("int64", 0.5), ("uint8", -1), ("float32", 1e40)],
)
def test_a_scalar_that_its_dtype_cannot_hold(dtype, value):
  with pytest.raises(OverflowError):
    entries.encode_scalar(dtype, value)


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("change", "what"),
  [
    ({"offset": 1}, "4 bytes, but the index says 5"),
    ({"shard": 1}, "00001-of-00001: No such file"),
    ({"crc": 1}, "checksum"),
  ],
)
def test_an_index_that_does_not_fit_its_data(change, what, tmp_path):
  entry, data = entries.encode_scalar("float32", 0.5)
  prefix = str(tmp_path / "x")
  pathlib.Path(bundle.make_shard_path(prefix, 0, 1)).write_bytes(data)
  index = pathlib.Path(prefix + ".index")
  index.write_bytes(bundle.encode_index({b"a": entry}, 1))
  assert bundle.Bundle(prefix).read_scalar("a") == 0.5
  bad = dataclasses.replace(entry, **change)
  index.write_bytes(bundle.encode_index({b"a": bad}, 1))
  with pytest.raises(bundle.CheckpointError, match=what):
    bundle.Bundle(prefix).check()


@pytest.mark.any_release
def test_paths_lead_to_their_objects():
  path = helpers.GOLDENS / "tf-2.0.4" / "keras_dynamic_adam" / "object/ckpt-1"
  graph = object_graph.ObjectGraph.read(bundle.Bundle(str(path)))
  paths = graph.find_paths()
  assert max(found.count("/") for found in paths.values()) >= 2
  for number, found in paths.items():
    reached = 0
    for name in found.split("/") if found else ():
      reached = graph.nodes[reached].children[name]
    assert reached == number, found


@pytest.mark.any_release
def test_object_graphs_without_the_object():
  child = _wire.encode_field(
    1, _wire.encode_field(1, 1) + _wire.encode_field(2, "a")
  )
  slot = _wire.encode_field(
    3, _wire.encode_field(1, 1) + _wire.encode_field(2, "m")
  )
  for node in (child, slot):
    with pytest.raises(ValueError, match="not there"):
      object_graph.ObjectGraph(_wire.encode_field(1, node))
    object_graph.ObjectGraph(
      _wire.encode_field(1, node) + _wire.encode_field(1, b"")
    )
  with pytest.raises(ValueError, match="empty"):
    object_graph.ObjectGraph(b"")


@pytest.mark.any_release
@pytest.mark.parametrize("refused", [(), ("symlink",), ("symlink", "link")])
def test_an_index_over_linked_files(refused, tmp_path, monkeypatch):
  """Checks file systems and users that cannot make links of some kinds."""

  def refuse(*_):
    raise OSError(1, "Operation not permitted")

  for name in refused:
    monkeypatch.setattr(os, name, refuse)
  opened = bundle.Bundle(_INDEXES[0])
  tensors = {name: values.Stored(opened, name) for name in opened.specs}
  tensors["made"] = values.Literal("float32", 0.5)
  over = bundle.Bundle(writing.write_overlay(str(tmp_path), opened, tensors))
  over.check()
  assert over.read_scalar("made") == 0.5
  assert list(over.specs) == sorted([*opened.specs, "made"])
  for key, entry in opened.entries.items():
    assert over.read(over.entries[key]) == opened.read(entry)


_NAMES = {
  "line ends": b"a\nb/c\r\n",
  "NULs": b"\0a\0\1b\0",
  "no text": b"\xff\xfe\0\xff",
  "beyond ASCII": "\u00e4/\u65e5\u672c_\u0663".encode(),
  "digits": b"good_steps_" + b"1" * 5000,
  "cond": b"cond_" + b"9" * 5000 + b"/beta1_power_" + b"7" * 4301,
  "long": b"w/" * 40_000 + b"w",
  "spaces": b" a  b ",
}


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("name", _NAMES.values(), ids=_NAMES)
def test_any_name_that_tensorflow_saves(name, partitioned, tmp_path):
  """Checks every way from the file to the screen; only b"" is no name."""
  prefix, new = str(tmp_path / "old"), str(tmp_path / "new")
  value = np.arange(12, dtype=np.float32).reshape(4, 3)
  slices = ["4 3 0,1:-", "4 3 1,3:0,2", "4 3 1,3:2,1"]
  parts = [value[:1], value[1:, :2], value[1:, 2:]]
  tf.raw_ops.SaveV2(
    prefix=prefix,
    tensor_names=[name] * (3 if partitioned else 1),
    shape_and_slices=slices if partitioned else [""],
    tensors=parts if partitioned else [value],
  )
  text = entries.decode_name(name)
  description = checkpoint.describe(prefix, verify=True)
  assert description.keys == {text: entries.TensorSpec("float32", (4, 3))}
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    printing.show(description, keys=True)
  assert len(out.getvalue().splitlines()) == 10
  conversion = checkpoint.convert(prefix, new, "saver")
  assert not conversion.renamed and not conversion.dropped
  (read,) = tf.raw_ops.RestoreV2(
    prefix=new,
    tensor_names=[name],
    shape_and_slices=[""],
    dtypes=[tf.float32],
  )
  np.testing.assert_array_equal(read, value)
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=tf.zeros([4, 3]))
    report = checkpoint.restore(session, prefix, variables={text: v})
    np.testing.assert_array_equal(session.run(v), value)
    assert len(str(report).splitlines()) == 1
    # Errors and proofs name the variable, each in its line.
    other = {"other": v}
    with pytest.raises(checkpoint.CheckpointError, match="other") as error:
      checkpoint.restore(session, prefix, variables=other)
    assert len(str(error.value).splitlines()) == 1
    report = checkpoint.restore(
      session, prefix, variables=other, mapping={"other": text}
    )
    assert len(str(report).splitlines()) == 2
    assert len(report.summary.splitlines()) == 1


def write_index(prefix, made):
  """Writes an index of entries, and zeros for their bytes."""
  size = max(entry.offset + entry.size for entry in made.values())
  pathlib.Path(bundle.make_shard_path(prefix, 0, 1)).write_bytes(bytes(size))
  pathlib.Path(f"{prefix}.index").write_bytes(bundle.encode_index(made, 1))


def encode_slice(box):
  """Returns a TensorSliceProto of begins and ends."""
  return b"".join(
    _wire.encode_field(
      1, _wire.encode_field(1, begin) + _wire.encode_field(2, end - begin)
    )
    for begin, end in box
  )


def make_slices(boxes, shape=(4, 3), name=b"v"):
  """Returns the entries of a partitioned variable with slices of zeros."""
  slices = [encode_slice(box) for box in boxes]
  made = {name: entries.Entry(1, shape, slices=tuple(slices))}
  for data, box in zip(slices, boxes):
    size = 4 * math.prod(end - begin for begin, end in box)
    crc = _crc32c.mask(_crc32c.crc32c(bytes(size)))
    dims = tuple(end - begin for begin, end in box)
    key = entries.Slice.parse(data).make_key(name)
    offset = sum(entry.size for entry in made.values())
    made[key] = entries.Entry(1, dims, offset=offset, size=size, crc=crc)
  return made


_COVER = [((0, 1), (0, 3)), ((1, 4), (0, 2)), ((1, 4), (2, 3))]


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("boxes", "lost", "what"),
  [
    (_COVER, 0, None),
    (_COVER, 1, "a slice .* is missing"),
    (_COVER[:2], 0, "only some slices"),
    ([*_COVER, _COVER[0]], 0, "overlap"),
    ([_COVER[0], ((1, 4), (0, 3)), _COVER[2]], 0, "overlap"),
    ([((0, 4), (0, 2)), ((0, 4), (1, 3))], 0, "overlap"),
    ([((0, 5), (0, 3))], 0, "does not fit"),
    ([((0, 4),)], 0, "does not fit"),
  ],
)
def test_slices_of_a_partitioned_variable(boxes, lost, what, tmp_path):
  prefix, made = str(tmp_path / "x"), make_slices(boxes)
  if lost:
    made.pop(list(made)[lost])
  write_index(prefix, made)
  if what is None:
    bundle.Bundle(prefix).check()
    read = tf.train.load_checkpoint(prefix).get_tensor("v")
    assert not read.any() and read.shape == (4, 3)
  else:
    with pytest.raises(bundle.CheckpointError, match=what):
      checkpoint.describe(prefix)
      bundle.Bundle(prefix).read_array("v")


@pytest.mark.any_release
@hypothesis.settings(deadline=None, max_examples=300, derandomize=True)
@hypothesis.given(
  st.lists(
    st.tuples(
      *[st.tuples(st.integers(0, 5), st.integers(0, 5)).map(sorted)] * 2
    ),
    min_size=1,
    max_size=5,
  )
)
def test_slices_that_overlap(boxes):
  """Checks any slices, by counting how often each element is in them."""
  times = np.zeros((5, 5), int)
  for (a, b), (c, d) in boxes:
    times[a:b, c:d] += 1
  index = make_slices(boxes, (5, 5))
  entry = index[b"v"]
  if times.max() > 1:
    with pytest.raises(ValueError, match="overlap"):
      entry.find_parts(b"v")
    return
  entry.find_parts(b"v")
  assert entry.lacks_elements == (times.min() < 1)
  value = np.arange(25.0).reshape(5, 5)
  pieces = [(box, value[slice(*box[0]), slice(*box[1])]) for box in boxes]
  for (a, b), (c, d) in [((0, 5), (0, 5)), ((1, 3), (2, 5)), *boxes]:
    found = entries.Slices(pieces).cut((a, c), (b - a, d - c))
    if times[a:b, c:d].all():
      np.testing.assert_equal(found, value[a:b, c:d])
    else:
      assert found is None


@pytest.mark.thorough
@pytest.mark.any_release
def test_very_many_slices():
  """Checks that comparing slices takes bounded time."""

  def make(shape, boxes):
    return entries.Entry(1, shape, slices=tuple(map(encode_slice, boxes)))

  begin = time.process_time()
  apart = [((0, 1), (2 * i, 2 * i + 1)) for i in range(20_000)]
  assert len(make((1, 40_000), apart).find_parts(b"v")) == 20_000
  # Each is compared with most of the others, whatever the dimension.
  cross = [((0, 3000), (2 * i, 2 * i + 1)) for i in range(1500)]
  cross += [((2 * i, 2 * i + 1), (3001, 6000)) for i in range(1500)]
  with pytest.raises(ValueError, match="overlap"):
    make((3000, 6000), cross).find_parts(b"v")
  assert time.process_time() - begin < 10


@hypothesis.settings(deadline=None, max_examples=200, derandomize=True)
@hypothesis.given(st.integers(-(2**63), 2**63 - 1), st.integers(-70, 2**40))
def test_keys_of_slices_sort_as_their_numbers(a, b):
  def key(*numbers):
    return entries.Slice(numbers, (1,) * len(numbers)).make_key(b"v")

  assert (key(a) < key(b)) == (a < b)
  assert (key(a, b) < key(b, a)) == (a < b)


def make_strings(folder):
  """Writes a checkpoint of 300,000 strings."""
  tf.raw_ops.SaveV2(
    prefix=str(folder / "x"),
    tensor_names=["strings"],
    shape_and_slices=[""],
    tensors=[tf.constant([b"abc"] * 300_000)],
  )


def write_graph(folder, graph):
  """Writes a checkpoint of an object graph."""
  literal = values.Literal("string", graph)
  write(str(folder / "x"), {bundle.OBJECT_GRAPH: literal})


def make_unknown_fields(folder):
  """Writes a checkpoint whose object graph has 200,000 unknown fields."""
  fields = _wire.encode_field(9, 1) * 200_000
  write_graph(folder, _wire.encode_field(1, fields))


@pytest.mark.parametrize("make", [make_strings, make_unknown_fields])
def test_time_grows_with_the_file_alone(make, tmp_path):
  make(tmp_path)
  begin = time.process_time()
  checkpoint.describe(tmp_path / "x", verify=True)
  checkpoint.convert(tmp_path / "x", tmp_path / "new", "fp32")
  assert time.process_time() - begin < 6


def test_memory_grows_with_the_file_alone(tmp_path):
  """Checks a chain of objects, whose paths would have 80 MB together."""
  count, name = 2000, "n" * 40
  child = _wire.encode_field(2, name)
  nodes = [
    _wire.encode_field(1, _wire.encode_field(1, i + 1) + child)
    for i in range(count)
  ]
  # The last one is an optimizer with a loss scale.
  scale = _wire.encode_field(2, "loss_scale") + _wire.encode_field(1, count + 1)
  nodes += [_wire.encode_field(1, scale), b""]
  write_graph(tmp_path, b"".join(_wire.encode_field(1, node) for node in nodes))
  tracemalloc.start()
  try:
    checkpoint.describe(tmp_path / "x")
    peak = tracemalloc.get_traced_memory()[1]
    graph = object_graph.ObjectGraph.read(bundle.Bundle(str(tmp_path / "x")))
  finally:
    tracemalloc.stop()
  assert peak < 20 << 20
  paths = graph.find_paths()
  whole = "/".join([name] * count)
  assert paths[count] == whole and paths.find(whole) == {count}
  assert paths.abbreviate(count, 50) == f"…/{name}/{name}"
  assert list(paths.find_short(100)) == ["", name, f"{name}/{name}"]


@pytest.mark.any_release
def test_an_index_that_unfolds():
  """Checks small tables that would have many large keys, or blocks."""
  key = b"k" * 20_000
  whole = _wire.encode_varint(0) + _wire.encode_varint(len(key)) + b"\0" + key
  block = whole + b"".join(
    _wire.encode_varint(len(key) + i) + b"\1\0k" for i in range(2000)
  )
  with pytest.raises(ValueError, match="longer than those of any writer"):
    _table.read(table_of(with_checksum(block + bytes(4) + b"\1\0\0\0\0")))
  block = b"\0\1\1bv\0\1\1av" + bytes(4) + b"\1\0\0\0\0"
  with pytest.raises(ValueError, match="not in order"):
    _table.read(table_of(with_checksum(block)))
  block = with_checksum(_BLOCK + b"\0")
  handle = _wire.encode_varint(0) + _wire.encode_varint(len(block) - 5)
  twice = b"".join(
    b"\0\1" + bytes([len(handle)]) + name + handle for name in (b"a", b"b")
  )
  index = with_checksum(twice + bytes(4) + b"\1\0\0\0" + b"\0")
  handles = _wire.encode_varint(0) * 2 + b"".join(
    map(_wire.encode_varint, (len(block), len(index) - 5))
  )
  with pytest.raises(ValueError, match="there twice"):
    _table.read(
      block + index + handles.ljust(40, b"\0") + _table.write([])[-8:]
    )


@pytest.mark.any_release
def test_tensors_that_share_bytes(tmp_path, monkeypatch):
  """Checks that names may share a tensor, which is read and written once."""
  crc = _crc32c.mask(_crc32c.crc32c(bytes(4000)))
  entry = entries.Entry(1, (1000,), size=4000, crc=crc)
  prefix, new = str(tmp_path / "x"), str(tmp_path / "new")
  write_index(prefix, {b"%03d" % i: entry for i in range(500)})
  read, check_file = [], entries.Entry.check_file

  def count(entry, file):
    read.append(entry.size)
    check_file(entry, file)

  with monkeypatch.context() as patch:
    patch.setattr(entries.Entry, "check_file", count)
    bundle.Bundle(prefix).check()
  assert read == [4000]
  assert len(checkpoint.describe(prefix).keys) == 500
  checkpoint.convert(prefix, new, "saver")
  assert os.path.getsize(f"{new}.data-00000-of-00001") == 4000
  assert tf.train.load_checkpoint(new).get_tensor("499").shape == (1000,)
  for change, what in (
    ({"offset": 400}, "share a part"),
    ({"crc": 5}, "not the checksum"),
  ):
    other = dataclasses.replace(entry, **change)
    write_index(prefix, {b"a": entry, b"b": other})
    with pytest.raises(bundle.CheckpointError, match=what):
      bundle.Bundle(prefix)


@pytest.mark.any_release
def test_variants_are_compared_with_their_checksums(tmp_path):
  prefix = str(tmp_path / "x")
  handle = tf.raw_ops.TensorListFromTensor(
    tensor=tf.range(6.0), element_shape=tf.constant([], tf.int32)
  )
  tf.raw_ops.SaveV2(
    prefix=prefix,
    tensor_names=["list"],
    shape_and_slices=[""],
    tensors=[handle],
  )
  bundle.Bundle(prefix).check()
  data = pathlib.Path(bundle.make_shard_path(prefix, 0, 1))
  content = bytearray(data.read_bytes())
  for at in range(0, len(content), 3):
    changed = bytearray(content)
    changed[at] ^= 1
    data.write_bytes(changed)
    with pytest.raises(bundle.CheckpointError):
      bundle.Bundle(prefix).check()


def test_of_a_big_endian_machine(tmp_path):
  items = [(b"", _wire.encode_field(1, 1) + _wire.encode_field(2, 1))]
  (tmp_path / "x.index").write_bytes(_table.write(items))
  with pytest.raises(bundle.CheckpointError, match="big-endian"):
    bundle.Bundle(str(tmp_path / "x"))


if __name__ == "__main__":
  helpers.main()
