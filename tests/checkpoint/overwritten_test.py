# SPDX-License-Identifier: Apache-2.0
"""Tests restores of checkpoints that another process overwrites meanwhile."""

import contextlib
import os
import pathlib
import random
import shutil
import threading
import time

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import paths
from tf_compat_lossscale.checkpoint.files import bundle as bundles
from tf_compat_lossscale.checkpoint.files import consistency as _consistency
from tf_compat_lossscale.checkpoint.files import opening
from tf_compat_lossscale.checkpoint.files.bundle import Bundle

tf1 = tf.compat.v1
_COUNT, _SIZE = 6, 3000


def make_variables():
  """Returns variables on two devices, which sharded savers read separately."""
  made = []
  for i in range(_COUNT):
    with tf.device(f"/cpu:{i % 2}"):
      made.append(tf1.get_variable(f"v{i}", initializer=tf.zeros([_SIZE])))
  return made


def write_forever():
  """Sets all variables to a step's number and saves them, step by step."""
  prefix = os.environ["PREFIX"]
  pause = pathlib.Path(f"{prefix}.pause")
  with tf.Graph().as_default(), tf1.Session() as session:
    made = make_variables()
    step = tf1.placeholder(tf.float32, [])
    update = [v.assign(tf.fill([_SIZE], step)) for v in made]
    # A sharded saver would truncate an index that a reader has open, which
    # TensorFlow's own readers do not always survive.
    saver = tf1.train.Saver()
    for number in range(1_000_000):
      session.run(update, {step: number})
      saver.save(session, prefix, write_meta_graph=False, write_state=False)
      time.sleep(random.uniform(0.0, float(pause.read_text() or 0)))


@contextlib.contextmanager
def start_writer(prefix):
  """Runs `write_forever` in a process; waits for the first checkpoint."""
  code = f"{helpers.import_line(__file__)}test.write_forever()"
  with open(f"{prefix}.log", "w+") as log:
    with helpers.start_forked(
      "-c", code, stdout=log, stderr=log, PREFIX=prefix
    ) as process:
      end = time.monotonic() + 120
      while not os.path.exists(f"{prefix}.index"):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)
      yield
      status = process.poll()
    assert status is None, f"the writer failed: {log.seek(0)}{log.read()}"


class Reader:
  """A program that restores checkpoints that another process overwrites.

  Attributes:
    steps: The steps that were restored.
    failed: The number of restores that gave up.
    longest: The seconds that the longest restore took.
  """

  def __init__(self, has_new_scale):
    self.steps, self.failed, self.longest = [], 0, 0.0
    graph = tf.Graph()
    with graph.as_default():
      self._made = make_variables()
      if has_new_scale:  # No checkpoint has a loss scale: it is bridged.
        tfl.DynamicLossScale(4.0)()
      self._saver = checkpoint.Saver(sharded=True)
    self._session = tf1.Session(graph=graph)

  def restore(self, prefix):
    """Checks that a restore gives values of one step, if it succeeds.

    Returns:
      Whether the restore succeeds.
    """
    begin, count = time.monotonic(), len(self.steps)
    try:
      with self._session.graph.as_default():
        self._saver.restore(self._session, prefix)
    except checkpoint.CheckpointError as error:
      assert "another process overwrote it" in str(error)
      self.failed += 1
    else:
      values = np.unique(self._session.run(self._made))
      assert len(values) == 1, values
      self.steps.append(values[0])
    self.longest = max(self.longest, time.monotonic() - begin)
    return len(self.steps) > count

  def has_enough(self):
    """Returns whether enough different steps were restored."""
    return len(self.steps) >= 10 and len(set(self.steps)) >= 5


@pytest.mark.thorough
@pytest.mark.any_release
@pytest.mark.parametrize("pauses", [True, False])
def test_all_values_are_of_one_checkpoint(pauses, tmp_path):
  """Checks restores under a writer, which pauses for about a restore's time."""
  prefix = str(tmp_path / "model")
  pause, path = 0.02 * pauses, tmp_path / "model.pause"
  path.write_text(str(pause))
  readers = [Reader(has_new_scale) for has_new_scale in (False, True)]
  with start_writer(prefix):
    end = time.monotonic() + (120 if pauses else 3)
    while time.monotonic() < end:
      waiting = [reader for reader in readers if not reader.has_enough()]
      if not waiting:
        break
      for reader in waiting:
        pause *= 0.8 if reader.restore(prefix) else 1.5
        path.write_text(str(pause))
  for reader in readers:
    print(len(reader.steps), "restored", len(set(reader.steps)), "different")
    print(reader.failed, "failed; the longest took", reader.longest, "seconds")
    assert reader.longest < 20
    assert reader.steps or reader.failed
    if pauses:  # Without pauses, every restore may fail.
      assert reader.has_enough()


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
  save(prefix, 1.0)  # Writes the same bytes to new files.
  assert not opened.is_current()
  opened = Bundle(prefix)
  os.utime(data, (1, 1))
  assert not opened.is_current()
  opened = Bundle(prefix)
  other = tmp_path / "other"
  shutil.copy2(data, other)
  other.replace(data)  # Size and time are the same.
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
    _consistency.read_consistently(lambda: prefix, attempt)
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
    assert _consistency.read_consistently(lambda: prefix, attempt).is_current()
    assert len(calls) == changes + 1
  else:
    with pytest.raises(checkpoint.CheckpointError, match=r"\(at last: torn\)"):
      _consistency.read_consistently(lambda: prefix, attempt)


def test_errors_of_a_checkpoint_that_stays(tmp_path):
  """Checks that errors are unchanged, and immediate without a recent write."""
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
    _consistency.read_consistently(lambda: prefix, attempt)
  assert len(calls) == 1
  assert time.monotonic() - begin < _consistency._PATIENCE
  with pytest.raises(checkpoint.CheckpointError, match="No such file"):
    _consistency.read_consistently(lambda: str(tmp_path / "missing"), attempt)


def test_data_that_is_there_before_its_index(tmp_path):
  """Checks a restore between a writer's replacing the data and the index."""
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
  # No writer replaces the index this time.
  save(new, 3.0)
  os.replace(new + data, prefix + data)
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[0.0] * 3)
    with pytest.raises(tf.errors.DataLossError):
      checkpoint.Saver().restore(session, prefix)


def save_scaled(prefix, scale):
  """Saves a weight and a loss scale of one value."""
  with tf.Graph().as_default(), tf1.Session() as session:
    tf1.get_variable("v", initializer=[scale] * 50)
    tfl.DynamicLossScale(scale)()
    session.run(tf1.global_variables_initializer())
    tf1.train.Saver().save(session, prefix, write_state=False)


def list_states(tmp_path):
  """Returns two checkpoints, and what reading each of them gives."""
  states = {}
  for scale in (2.0, 4.0):
    path = str(tmp_path / f"scale{scale:g}")
    save_scaled(path, scale)
    states[path] = scale
  return states


def put(source, prefix, *suffixes):
  """Renames copies of a checkpoint's files to a prefix."""
  for suffix in suffixes:
    shutil.copy(source + suffix, f"{prefix}.part")
    os.replace(f"{prefix}.part", prefix + suffix)


class Interleaving:
  """Another process's steps, between two accesses to files.

  Attributes:
    count: The number of accesses so far.
  """

  def __init__(self, monkeypatch, at, steps):
    self.count = 0
    monkeypatch.setattr(opening, "open_file", self._wrap(opening.open_file))
    monkeypatch.setattr(opening, "read_stamp", self._wrap(_READ_STAMP))
    monkeypatch.setattr(paths, "find_at_prefix", self._wrap(_FIND_AT_PREFIX))
    monkeypatch.setattr(paths, "_read_latest", self._wrap_end(_READ_LATEST))
    self._at, self._steps = at, steps

  def _step(self):
    self.count += 1
    if self.count == self._at:
      self._steps()

  def _wrap(self, function):
    def call(path, **kwargs):
      self._step()
      return function(path, **kwargs)

    return call

  def _wrap_end(self, function):
    def call(path):
      result = function(path)
      self._step()
      return result

    return call


_READ_STAMP = opening.read_stamp
_READ_LATEST, _FIND_AT_PREFIX = paths._read_latest, paths.find_at_prefix
_DATA = ".data-00000-of-00001"


def describe_state(path, target):
  del target
  (state,) = checkpoint.describe(path, verify=True).loss_scales
  return state.value


def convert_state(path, target):
  checkpoint.convert(path, target, "saver-v2")
  opened = Bundle(target)
  opened.check()
  (value,) = set(np.frombuffer(opened.read(opened.entries[b"v"]), "<f4"))
  assert opened.read_scalar("current_loss_scale") == value
  return value


def restore_state(path, target):
  del target
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[0.0] * 50)
    checkpoint.restore(session, path)
    (value,) = set(session.run(v).tolist())
  return value


@pytest.mark.parametrize("read", [describe_state, convert_state, restore_state])
@pytest.mark.parametrize("way", ["at once", "index later", "next in a folder"])
def test_a_saver_between_any_two_accesses(read, way, tmp_path, monkeypatch):
  """Checks that a sound checkpoint is never called damaged or missing."""
  (old, scale), (new, new_scale) = list_states(tmp_path).items()
  folder, target = tmp_path / "folder", str(tmp_path / "target" / "new")
  folder.mkdir()
  prefix = str(folder / "model")
  path = str(folder) if way == "next in a folder" else prefix
  later = []

  def replace():
    if way == "next in a folder":
      put(new, f"{prefix}-2", _DATA, ".index")
      tf1.train.update_checkpoint_state(str(folder), f"{prefix}-2")
      for file in folder.glob("model-1.*"):
        file.unlink()
    elif way == "at once":
      put(new, prefix, _DATA, ".index")
    else:
      put(new, prefix, _DATA)
      later.append(threading.Timer(0.1, put, (new, prefix, ".index", ".meta")))
      later[0].start()

  found, at = set(), 1
  while True:
    for file in folder.iterdir():
      file.unlink()
    start = f"{prefix}-1" if way == "next in a folder" else prefix
    put(old, start, _DATA, ".index", ".meta")
    tf1.train.update_checkpoint_state(str(folder), start)
    shutil.rmtree(tmp_path / "target", ignore_errors=True)
    with monkeypatch.context() as patches:
      seen = Interleaving(patches, at, replace)
      found.add(read(path, target))
    for timer in later:
      timer.join()
    later.clear()
    if seen.count < at:
      break
    at += 1
  assert found == {scale, new_scale}
  assert at > 5


@pytest.mark.parametrize("of_template", [False, True])
def test_converting_what_changes_all_the_time(
  of_template, tmp_path, monkeypatch
):
  """Checks a source, or a template, that is overwritten in each try."""
  source, _ = list_states(tmp_path)
  objects = helpers.GOLDENS / "tf-2.8.4" / "session_dynamic_adam" / "object"
  if of_template:
    source, to = str(tmp_path / "adam"), "object"
    copied = shutil.copytree(objects, tmp_path / "template")
    changed = checkpoint.describe(copied).path
    checkpoint.convert(changed, source, "saver")
  else:
    changed, to, copied = source, "saver-v2", None
  copy, tries = bundles.Bundle.copy, []

  def overwritten(*args):
    tries.append(None)
    for suffix in (_DATA, ".index"):
      shutil.copy(changed + suffix, f"{tmp_path}/same")
      os.replace(f"{tmp_path}/same", changed + suffix)
    copy(*args)

  monkeypatch.setattr(bundles.Bundle, "copy", overwritten)
  with pytest.raises(checkpoint.CheckpointError, match="each of 5 tries"):
    checkpoint.convert(source, tmp_path / "new", to, template=copied)
  assert len(tries) >= 5
  assert not list(tmp_path.glob("*new*"))


@pytest.mark.thorough
@pytest.mark.any_release
def test_a_saver_that_saves_often(tmp_path):
  """Checks 80 descriptions and conversions while a process saves."""
  prefix = str(tmp_path / "model")
  (tmp_path / "model.pause").write_text("0.4")
  with start_writer(prefix):
    for _ in range(80):
      assert len(checkpoint.describe(prefix, verify=True).keys) == _COUNT
      checkpoint.convert(prefix, tmp_path / "new", "fp32", overwrite=True)
      opened = Bundle(str(tmp_path / "new"))
      values = {
        bytes(opened.read(entry)[:4]) for entry in opened.entries.values()
      }
      assert len(values) == 1
      time.sleep(random.uniform(0, 0.1))


if __name__ == "__main__":
  helpers.main()
