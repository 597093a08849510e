# SPDX-License-Identifier: Apache-2.0
"""Tests event files, with TensorFlow's own readers and writers to compare."""

import math
import os
import pathlib
import resource
import signal
import struct

import helpers
import pytest
import tensorflow as tf

from tf_compat_lossscale._core.bytes import crc32c
from tf_compat_lossscale.monitoring import event_files

pytestmark = pytest.mark.any_release

tf1 = tf.compat.v1
_TAG = "loss_scale/value"


def read_by_tensorflow(path):
  """Returns the messages `Event` that TensorFlow reads."""
  records = tf.data.TFRecordDataset(path).as_numpy_iterator()
  return [tf1.Event.FromString(record) for record in records]


def write_by_tensorflow(path, *records):
  with tf.io.TFRecordWriter(path) as writer:
    for record in records:
      writer.write(record)


def encode_event(step, *values):
  return tf1.Event(
    step=step, wall_time=1.0, summary=tf1.Summary(value=values)
  ).SerializeToString()


def write_three(folder):
  """Writes a version, a start and two events; returns the path."""
  file = event_files.EventFile(folder)
  file.add_start(7, 1.5)
  file.add_scalars(7, {_TAG: 32768.0, "skipped": 0.0}, 2.25)
  file.add_scalars(8, {_TAG: 16384.0}, 3.0)
  file.close()
  return pathlib.Path(file.path)


def test_tensorflow_reads_what_we_write(tmp_path):
  with event_files.EventFile(tmp_path) as file:
    file.add_start(-3, 1.5)
    values = {_TAG: 32768.0, "größe": 0.1, "inf": math.inf, "large": -1e300}
    file.add_scalars(2**40, values, 2.25)
    file.add_scalars(2**63 - 1, {"nan": math.nan, "x" * 300: 1}, 1.7e9)
  version, start, first, second = read_by_tensorflow(file.path)
  assert version.file_version == "brain.Event:2"
  assert (start.step, start.wall_time) == (-3, 1.5)
  assert start.session_log.status == tf1.SessionLog.START
  assert (first.step, first.wall_time) == (2**40, 2.25)
  found = {v.tag: v.simple_value for v in first.summary.value}
  assert found == {
    _TAG: 32768.0,
    "größe": struct.unpack("f", struct.pack("f", 0.1))[0],
    "inf": math.inf,
    "large": -math.inf,
  }
  assert (second.step, second.wall_time) == (2**63 - 1, 1.7e9)
  assert math.isnan(second.summary.value[0].simple_value)
  # The reader that old programs use reads the same.
  steps = [e.step for e in tf1.train.summary_iterator(file.path)]
  assert steps == [0, -3, 2**40, 2**63 - 1]


def test_we_read_what_a_file_writer_writes(tmp_path):
  with tf.Graph().as_default() as graph:
    tf1.get_variable("v", [300])
    writer = tf1.summary.FileWriter(str(tmp_path), graph)
    writer.add_session_log(tf1.SessionLog(status=tf1.SessionLog.STOP), 4)
    writer.add_session_log(tf1.SessionLog(status=tf1.SessionLog.START), 5)
    summary = tf1.Summary()
    summary.value.add(tag=_TAG, simple_value=3.5)
    summary.value.add(tag="histogram").histo.min = 1.0
    summary.value.add(tag="b", simple_value=-0.0)
    writer.add_summary(summary, 6)
    writer.close()
  (path,) = event_files.list_files(tmp_path)
  *_, stop, start, scalars = event_files.read_events(path)
  assert (stop.step, stop.is_start) == (4, False)
  assert (start.step, start.is_start) == (5, True)
  assert (scalars.step, scalars.scalars) == (6, {_TAG: 3.5, "b": 0.0})
  assert scalars.wall_time == read_by_tensorflow(path)[-1].wall_time
  assert scalars.end == os.path.getsize(path)


def test_we_read_what_a_writer_of_tensorflow_2_writes(tmp_path):
  writer = tf.summary.create_file_writer(str(tmp_path))
  with writer.as_default():
    for step, value in enumerate([4.5, 0.0, -1.25]):
      # That is how `tf.summary.scalar` of TensorBoard writes.
      tf.summary.write(_TAG, tf.constant(value), step)
    tf.summary.write("vector", tf.constant([1.0]), 3)
    tf.summary.write("text", tf.constant("word"), 4)
  writer.close()
  (path,) = event_files.list_files(tmp_path)
  found = [(e.step, e.scalars) for e in event_files.read_events(path)]
  assert found[-5:] == [
    (0, {_TAG: 4.5}),
    (1, {_TAG: 0.0}),
    (2, {_TAG: -1.25}),
    (3, {}),
    (4, {}),
  ]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
  "dtype", [tf.float32, tf.float64, tf.int32, tf.int64], ids=lambda d: d.name
)
@pytest.mark.parametrize("value", [0, 1, -3, 2**30])
def test_tensors_of_scalars(tmp_path, dtype, value, packed):
  tensor = tf.make_tensor_proto(value, dtype)
  if packed:
    content = tf.make_ndarray(tensor).tobytes()
    shape = tensor.tensor_shape
    tensor = type(tensor)(
      dtype=tensor.dtype, tensor_shape=shape, tensor_content=content
    )
  path = str(tmp_path / "tfevents")
  value_ = tf1.Summary.Value(tag="a", tensor=tensor)
  write_by_tensorflow(path, encode_event(1, value_))
  (event,) = event_files.read_events(path)
  assert event.scalars == {"a": float(value)}


def test_a_writer_that_was_killed(tmp_path):
  path = write_three(tmp_path)
  whole = path.read_bytes()
  events = list(event_files.read_events(path))
  cut = tmp_path / "cut"
  for size in range(len(whole)):
    cut.write_bytes(whole[:size])
    found = list(event_files.read_events(cut))
    assert found == [event for event in events if event.end <= size]


def test_reading_goes_on_where_it_ended(tmp_path):
  path = write_three(tmp_path)
  events = list(event_files.read_events(path))
  assert [event.step for event in events] == [0, 7, 7, 8]
  for i, event in enumerate(events):
    assert list(event_files.read_events(path, event.end)) == events[i + 1 :]


def test_damage_names_the_file_and_the_place(tmp_path):
  path = write_three(tmp_path)
  data = bytearray(path.read_bytes())
  ends = [0, *(event.end for event in event_files.read_events(path))]
  for place in range(len(data)):
    damaged = bytearray(data)
    damaged[place] ^= 16
    bad = tmp_path / "bad"
    bad.write_bytes(damaged)
    start = max(end for end in ends if end <= place)
    events = event_files.read_events(bad)
    with pytest.raises(ValueError, match=f"bad: the record at byte {start} is"):
      list(events)


def test_a_record_that_is_no_event(tmp_path):
  path = str(tmp_path / "tfevents")
  write_by_tensorflow(path, b"\x0f\xff\xff")
  with pytest.raises(ValueError, match=r"tfevents: the record at byte 0 is"):
    list(event_files.read_events(path))


def test_events_come_one_by_one(tmp_path):
  path = write_three(tmp_path)
  with open(path, "ab") as file:
    file.write(bytes(100))
  events = event_files.read_events(path)
  assert [next(events).step for _ in range(4)] == [0, 7, 7, 8]
  with pytest.raises(ValueError, match="damaged"):
    next(events)


def test_a_large_record(tmp_path):
  path = str(tmp_path / "tfevents")
  graph = tf1.Event(graph_def=b"x" * (1 << 22)).SerializeToString()
  value = tf1.Summary.Value(tag="a", simple_value=2.0)
  write_by_tensorflow(path, graph, encode_event(5, value))
  assert [e.step for e in event_files.read_events(path)] == [0, 5]


def test_names_are_in_the_order_of_creation(tmp_path, monkeypatch):
  paths = []
  for now in (1700000005, 1700000005, 1700000001):
    monkeypatch.setattr("time.time", lambda now=now: float(now))
    with event_files.EventFile(tmp_path) as file:
      paths.append(file.path)
  assert paths == event_files.list_files(tmp_path) == sorted(paths)
  first = os.path.basename(paths[0])
  assert first.startswith("events.out.tfevents.1700000005.")
  assert first.endswith(f".{os.getpid()}.loss_scale")


def test_names_come_after_those_of_other_machines(tmp_path, monkeypatch):
  other = tmp_path / "events.out.tfevents.1700000009.zzz.99999999.v2"
  other.touch()
  monkeypatch.setattr("time.time", lambda: 1700000001.0)
  with event_files.EventFile(tmp_path) as file:
    assert event_files.list_files(tmp_path) == [str(other), file.path]


def test_a_missing_folder_has_no_file(tmp_path):
  with pytest.raises(FileNotFoundError):
    event_files.EventFile(tmp_path / "missing")


def test_a_closed_file_takes_nothing(tmp_path):
  file = event_files.EventFile(tmp_path)
  file.close()
  file.close()
  with pytest.raises(ValueError, match="closed"):
    file.add_start(1, 1.0)


@pytest.fixture
def small_disk():
  """Returns a function that lets files have so many bytes at most."""
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

  def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

  yield limit
  resource.setrlimit(resource.RLIMIT_FSIZE, before)
  signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_whole_records(tmp_path, small_disk):
  with event_files.EventFile(tmp_path) as file:
    file.add_scalars(1, {_TAG: 1.0}, 1.0)
    size = os.path.getsize(file.path)
    for spare in (0, 1, 13, 30):
      small_disk(size + spare)
      with pytest.raises(OSError, match="loss_scale"):
        file.add_scalars(2, {_TAG: 2.0}, 2.0)
      assert os.path.getsize(file.path) == size
    small_disk(size + 1000)
    file.add_scalars(3, {_TAG: 3.0}, 3.0)
  assert [e.step for e in read_by_tensorflow(file.path)] == [0, 1, 3]


def test_a_full_disk_at_the_creation_leaves_no_file(tmp_path, small_disk):
  small_disk(10)
  with pytest.raises(OSError, match="loss_scale"):
    event_files.EventFile(tmp_path)
  assert not os.listdir(tmp_path)


def test_a_record_is_written_at_once(tmp_path, monkeypatch):
  sizes = []
  write = os.write
  with event_files.EventFile(tmp_path) as file:
    monkeypatch.setattr(
      os, "write", lambda f, d: sizes.append(len(d)) or write(f, d)
    )
    start = os.path.getsize(file.path)
    file.add_scalars(1, {_TAG: 1.0, "b": 2.0}, 1.0)
    monkeypatch.undo()
    assert sizes == [os.path.getsize(file.path) - start]


def test_checksums_are_those_of_the_checkpoints(tmp_path):
  path = write_three(tmp_path)
  data = path.read_bytes()
  (length,) = struct.unpack_from("<Q", data)
  crc = crc32c.mask(crc32c.crc32c(data[12 : 12 + length]))
  assert struct.unpack_from("<I", data, 12 + length) == (crc,)


def test_no_tensorflow_is_imported(tmp_path):
  program = (
    "import sys\n"
    "from tf_compat_lossscale.monitoring import event_files\n"
    "with event_files.EventFile(sys.argv[1]) as file:\n"
    "  file.add_scalars(1, {'a': 2.5}, 3.0)\n"
    "print([e.scalars for e in event_files.read_events(file.path)])\n"
    "print([name for name in sys.modules if name.startswith('tensorflow')])"
  )
  out = helpers.run_python("-c", program, str(tmp_path))
  assert out.splitlines() == ["[{}, {'a': 2.5}]", "[]"]


if __name__ == "__main__":
  helpers.main()
