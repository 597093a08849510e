"""Checkpoints that another process overwrites while they are restored."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.files import consistency as _consistency
from tf_compat_lossscale.checkpoint.files.bundle import Bundle

tf1 = tf.compat.v1
_COUNT, _SIZE = 6, 3000


def variables():
  """Some of each device, so that sharded savers read several times."""
  made = []
  for i in range(_COUNT):
    with tf.device(f"/cpu:{i % 2}"):
      made.append(tf1.get_variable(f"v{i}", initializer=tf.zeros([_SIZE])))
  return made


def write_forever():
  """Saves steps, each of which sets all variables to its number."""
  prefix, pause = os.environ["PREFIX"], float(os.environ["PAUSE"])
  with tf.Graph().as_default(), tf1.Session() as session:
    made = variables()
    step = tf1.placeholder(tf.float32, [])
    update = [v.assign(tf.fill([_SIZE], step)) for v in made]
    # Not a sharded one: it truncates the index that others have open, which
    # TensorFlow's own readers do not always survive.
    saver = tf1.train.Saver()
    for number in range(1_000_000):
      session.run(update, {step: number})
      saver.save(session, prefix, write_meta_graph=False, write_state=False)
      time.sleep(pause)
      if os.getppid() == 1:
        return  # The test is gone.


@contextlib.contextmanager
def writer(prefix, pause):
  """A process that writes, from its first checkpoint on."""
  process = subprocess.Popen(
    [
      sys.executable,
      "-c",
      "import checkpoint_overwritten_test as t; t.write_forever()",
    ],
    cwd=helpers.ROOT,
    env={
      **os.environ,
      "PYTHONPATH": f"{helpers.ROOT}:{helpers.ROOT / 'tests'}",
      "PREFIX": prefix,
      "PAUSE": str(pause),
    },
  )
  try:
    end = time.monotonic() + 120
    while not os.path.exists(f"{prefix}.index"):
      assert process.poll() is None and time.monotonic() < end
      time.sleep(0.05)
    yield process
    assert process.poll() is None, "the writer failed"
  finally:
    process.kill()
    process.wait()


@pytest.mark.any_release
@pytest.mark.parametrize("bridged", [False, True])
@pytest.mark.parametrize("pause", [0.02, 0.0], ids=["pauses", "never_pauses"])
def test_all_values_are_of_one_checkpoint(bridged, pause, tmp_path):
  prefix = str(tmp_path / "model")
  failed, steps, longest = 0, [], 0.0
  with tf.Graph().as_default(), tf1.Session() as session:
    made = variables()
    if bridged:
      tfl.DynamicLossScale(4.0)()  # Which the checkpoints have not.
    saver = checkpoint.Saver(sharded=True)
    with writer(prefix, pause):
      end = time.monotonic() + (60 if pause else 10)
      while (len(steps) < 100 or len(set(steps)) < 10) and (
        time.monotonic() < end
      ):
        begin = time.monotonic()
        try:
          saver.restore(session, prefix)
        except checkpoint.CheckpointError as error:
          assert "another process overwrote it" in str(error)
          failed += 1
        else:
          values = np.unique(session.run(made))
          assert len(values) == 1, values
          steps.append(values[0])
        longest = max(longest, time.monotonic() - begin)
  print(len(steps), "restored", len(set(steps)), "steps in at most", longest)
  print(failed, "failed")
  assert longest < 20
  if pause:  # Otherwise, it may fail each time.
    assert len(steps) >= 100
    assert len(set(steps)) >= 10


def save(prefix, value, size=3):
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[value] * size)
    session.run(v.initializer)
    tf1.train.Saver().save(session, prefix, write_state=False)


def test_what_is_current(tmp_path):
  prefix = str(tmp_path / "model")
  data = pathlib.Path(f"{prefix}.data-00000-of-00001")
  index = pathlib.Path(f"{prefix}.index")
  save(prefix, 1.0)
  opened = Bundle(prefix)
  assert opened.is_current()
  save(prefix, 1.0)  # The same bytes in other files.
  assert not opened.is_current()
  opened = Bundle(prefix)
  os.utime(data, (1, 1))
  assert not opened.is_current()
  opened = Bundle(prefix)
  other = tmp_path / "other"
  shutil.copy2(data, other)
  other.replace(data)  # Of the same size and time.
  assert not opened.is_current()
  opened = Bundle(prefix)
  content = index.read_bytes()
  index.write_bytes(content[:-1] + b"?")
  assert not opened.is_current()
  index.unlink()
  assert not opened.is_current()
  index.write_bytes(content)
  assert opened.is_current()
  data.unlink()
  assert not opened.is_current()


def test_tries_are_bounded(tmp_path):
  prefix, calls = str(tmp_path / "model"), []
  save(prefix, 0.0)

  def attempt(bundle):
    calls.append(bundle)
    save(prefix, float(len(calls)))

  with pytest.raises(checkpoint.CheckpointError, match="each of 5 tries"):
    _consistency.read_consistently(prefix, attempt)
  assert len(calls) == 5


@pytest.mark.parametrize("changes", [0, 1, 4, 5])
def test_errors_while_it_changes(changes, tmp_path):
  prefix, calls = str(tmp_path / "model"), []
  save(prefix, 0.0)

  def attempt(bundle):
    calls.append(bundle)
    if len(calls) <= changes:
      save(prefix, float(len(calls)))
      raise tf.errors.DataLossError(None, None, "torn\nin two")
    return bundle

  if changes < 5:
    assert _consistency.read_consistently(prefix, attempt).is_current()
    assert len(calls) == changes + 1
  else:
    with pytest.raises(checkpoint.CheckpointError, match=r"\(at last: torn\)"):
      _consistency.read_consistently(prefix, attempt)


def test_errors_of_a_checkpoint_that_stays(tmp_path):
  """They are raised as they are, at once if nobody was writing lately."""
  prefix = str(tmp_path / "model")
  save(prefix, 0.0)
  for path in tmp_path.iterdir():
    os.utime(path, (1, 1))
  calls = []

  def attempt(bundle):
    calls.append(bundle)
    raise KeyError("what is wrong otherwise")

  begin = time.monotonic()
  with pytest.raises(KeyError, match="otherwise"):
    _consistency.read_consistently(prefix, attempt)
  assert len(calls) == 1
  assert time.monotonic() - begin < _consistency._PATIENCE
  with pytest.raises(checkpoint.CheckpointError, match="No such file"):
    _consistency.read_consistently(str(tmp_path / "missing"), attempt)


def test_data_that_is_there_before_its_index(tmp_path):
  """A writer replaces the data first: for a moment, it is no checkpoint."""
  prefix, new = str(tmp_path / "model"), str(tmp_path / "new")
  save(prefix, 1.0)
  save(new, 2.0, size=3)
  data = ".data-00000-of-00001"
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[0.0] * 3)
    saver = checkpoint.Saver()
    os.replace(new + data, prefix + data)
    later = threading.Timer(
      0.1, os.replace, (f"{new}.index", f"{prefix}.index")
    )
    later.start()
    saver.restore(session, prefix)
    later.join()
    assert session.run(v).tolist() == [2.0] * 3
  # Nobody completes this one.
  save(new, 3.0)
  os.replace(new + data, prefix + data)
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[0.0] * 3)
    with pytest.raises(tf.errors.DataLossError):
      checkpoint.Saver().restore(session, prefix)


if __name__ == "__main__":
  helpers.main()
