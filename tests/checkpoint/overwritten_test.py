# SPDX-License-Identifier: Apache-2.0
"""Tests reads of checkpoints that another process overwrites meanwhile."""

import contextlib
import os
import pathlib
import random
import threading
import time

import numpy as np
import processes
import pytest
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import reading

tf1 = tf.compat.v1
pytestmark = pytest.mark.any_release
_COUNT, _SIZE = 6, 3000
_DATA = ".data-00000-of-00001"


def save(prefix, value):
  """Saves variables that all have one value."""
  with tf.Graph().as_default(), tf1.Session() as session:
    for i in range(3):
      tf1.get_variable(f"v{i}", initializer=[value] * 3)
    session.run(tf1.global_variables_initializer())
    tf1.train.Saver().save(session, prefix, write_state=False)


def read_all(opened):
  """Returns the only value of all variables."""
  (value,) = {x for name in opened.specs for x in opened.read(name)}
  return value


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("changes", [0, 1, 4, 5])
def test_tries_while_it_changes(changes, fails, tmp_path):
  """Checks reads that fail, and reads whose end is another checkpoint's."""
  prefix, calls = str(tmp_path / "model"), []
  save(prefix, 0.0)

  def attempt(opened):
    calls.append(opened)
    if len(calls) <= changes:
      save(prefix, float(len(calls)))
      if fails:
        raise tf.errors.DataLossError(None, None, "torn\nin two")
      opened.check_current()
      pytest.fail("It was overwritten.")
    return read_all(opened)

  if changes < 5:
    assert reading.read_consistently(prefix, attempt) == changes
  else:
    with pytest.raises(checkpoint.CheckpointError, match="each of 5 tries"):
      reading.read_consistently(prefix, attempt)
  assert len(calls) == min(changes + 1, 5)


def test_what_is_assigned_counts(tmp_path):
  """Checks that no second attempt follows the first assignment."""
  prefix, calls = str(tmp_path / "model"), []
  save(prefix, 0.0)

  def attempt(opened):
    calls.append(read_all(opened))
    opened.check_current()
    save(prefix, 1.0)

  reading.read_consistently(prefix, attempt)
  assert calls == [0.0]


def test_an_old_index_and_new_data(tmp_path):
  """Checks a reader between a writer's replacing the data and the index."""
  prefix, new = str(tmp_path / "model"), str(tmp_path / "new")
  save(prefix, 1.0)
  save(new, 2.0)
  os.replace(new + _DATA, prefix + _DATA)
  later = threading.Timer(0.2, os.replace, (f"{new}.index", f"{prefix}.index"))
  later.start()
  assert reading.read_consistently(prefix, read_all) == 2.0
  later.join()
  # No writer replaces the index this time.
  save(new, 3.0)
  os.replace(new + _DATA, prefix + _DATA)
  with pytest.raises(checkpoint.CheckpointError, match="it is damaged"):
    reading.read_consistently(prefix, read_all)


def write_forever():
  """Sets all variables to a step's number and saves them, step by step."""
  prefix = os.environ["PREFIX"]
  with tf.Graph().as_default(), tf1.Session() as session:
    made = [
      tf1.get_variable(f"v{i}", initializer=tf.zeros([_SIZE]))
      for i in range(_COUNT)
    ]
    step = tf1.placeholder(tf.float32, [])
    update = [v.assign(tf.fill([_SIZE], step)) for v in made]
    saver = tf1.train.Saver()
    for number in range(1_000_000):
      session.run(update, {step: number})
      saver.save(session, prefix, write_meta_graph=False, write_state=False)
      time.sleep(random.uniform(0.0, 0.05))


@contextlib.contextmanager
def start_writer(prefix):
  """Runs `write_forever` in a process; waits for the first checkpoint."""
  code = f"{processes.import_line(__file__)}test.write_forever()"
  with open(f"{prefix}.log", "w+") as log:
    with processes.start_forked(
      "-c", code, stdout=log, stderr=log, PREFIX=prefix
    ) as process:
      end = time.monotonic() + 120
      while not os.path.exists(f"{prefix}.index"):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)
      yield
      status = process.poll()
    assert status is None, (
      f"the writer failed: {pathlib.Path(log.name).read_text()}"
    )


def test_all_values_are_of_one_checkpoint(tmp_path):
  """Checks restores and conversions under a writer that pauses now and then."""
  prefix = str(tmp_path / "model")
  with tf.Graph().as_default(), tf1.Session() as session:
    made = [tf1.get_variable(f"v{i}", [_SIZE]) for i in range(_COUNT)]
    saver = checkpoint.Saver()
    with start_writer(prefix):
      seen = set()
      for number in range(30):
        try:
          if number % 3:
            saver.restore(session, prefix)
            values = session.run(made)
          else:
            checkpoint.convert(prefix, tmp_path / "new", "fp32", overwrite=True)
            new = reading.Checkpoint(str(tmp_path / "new"))
            values = [new.read(name) for name in new.specs]
        except checkpoint.CheckpointError as error:
          assert "another process overwrote it" in str(error)
          continue
        (value,) = np.unique(values)
        seen.add(value)
  assert len(seen) >= 3
