# SPDX-License-Identifier: Apache-2.0
"""Tests programs that go on from checkpoints of TensorFlow's first format."""

import json
import os
import shutil

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import paths
from tf_compat_lossscale.checkpoint.files import consistency
from tf_compat_lossscale.checkpoint.files import first_format
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1
_GOLDENS = helpers.GOLDENS / "others"
_V1 = tf1.train.SaverDef.V1
_EXTRAS = {
  "extra_bool": [False] * 3,
  "extra_half": np.zeros([2, 2], np.float16),
  "extra_string": [b""] * 3,
}


class Program:
  """The program that wrote a golden, whose gradients are fed."""

  def __init__(self, expected):
    self._expected = expected
    names = {v["name"] for v in expected["variables"]}
    stored = {t["name"]: t for t in expected["stored"]}
    self.graph = tf.Graph()
    with self.graph.as_default():
      self._fed = {}
      losses = []
      for name in ("w", "b", "emb/table"):
        if name not in stored:
          continue
        shape = stored[name]["shape"]
        slicing = tf1.fixed_size_partitioner(3) if name not in names else None
        v = tf1.get_variable(name, shape, partitioner=slicing)
        self._fed[name] = tf1.placeholder(tf.float32, shape)
        losses.append(tf.reduce_sum(tf.convert_to_tensor(v) * self._fed[name]))
      for name, value in _EXTRAS.items():
        if name in names:
          tf1.get_variable(name, initializer=value, trainable=False)
      rule = expected["scaler_parameters"]
      opt = tfl.MixedPrecisionLossScaleOptimizer(
        tf1.train.AdamOptimizer(expected["optimizer"]["learning_rate"]),
        tfl.DynamicLossScale(
          rule["initial_loss_scale"],
          rule["increment_period"],
          rule["multiplier"],
        ),
      )
      self._factor = tf1.placeholder(tf.float32, [])
      step = tf1.train.get_or_create_global_step()
      loss = tf.add_n(losses) * self._factor
      self._train = opt.minimize(loss, global_step=step)
      self.saver = checkpoint.Saver()
      self._variables = {v.op.name: v for v in tf1.global_variables()}

  def train(self, session, row):
    """Does a recorded step."""
    feed = {self._fed[k]: v for k, v in row["gradients"].items()}
    feed[self._factor] = np.inf if row["poisoned"] else 1.0
    session.run(self._train, feed)

  def check(self, session, values):
    """Compares the variables with recorded values."""
    found = session.run(self._variables)
    for name, value in values.items():
      mine = found.get(name)
      if mine is None:  # The name depends on the control flow.
        (mine,) = (v for n, v in found.items() if n.endswith(name[-11:]))
      assert_close(mine, value)


def assert_close(mine, value):
  """Compares an array with a recorded value, whose decimals are few."""
  if mine.dtype == object:
    assert [v.decode() for v in mine] == value
  else:
    value = np.asarray(value).astype(mine.dtype)
    np.testing.assert_allclose(mine, value, rtol=2e-5, atol=2e-7)


def expected_of(golden):
  return json.loads((_GOLDENS / golden / "expected.json").read_text())


def values_of(expected):
  """Returns the values of all variables of the program when it was saved."""
  return {v["name"]: v["value"] for v in expected["variables"]}


def stored_of(expected):
  return {t["name"]: t["value"] for t in expected["stored"]}


@pytest.mark.any_release
@pytest.mark.parametrize("golden", ["v1_unsharded", "v1_partitioned"])
def test_is_described(golden, capsys):
  expected = expected_of(golden)
  for path in ("", "model.ckpt-8", "model.ckpt-8.meta"):
    found = checkpoint.describe(_GOLDENS / golden / path)
    assert found.path == str(_GOLDENS / golden / "model.ckpt-8")
    assert found.is_first_format and found.checked and found.step == 8
    assert found.release == "TensorFlow 1.15.5" and found.api == "compat.v1"
    (state,) = found.loss_scales
    assert (state.value, state.good_steps) == (512, 1)
    assert {n: (s.dtype, list(s.shape)) for n, s in found.keys.items()} == {
      t["name"]: (t["dtype"], t["shape"]) for t in expected["stored"]
    }
  assert cli.main(["inspect", "--verify", str(_GOLDENS / golden)]) == 0
  assert "in the first format (V1)" in capsys.readouterr().out


@pytest.mark.parametrize("golden", ["v1_unsharded", "v1_partitioned"])
@pytest.mark.parametrize("way", ["restore", "saver", "converted"])
def test_trains_on_as_recorded(golden, way, tmp_path):
  expected = expected_of(golden)
  program = Program(expected)
  path = str(_GOLDENS / golden)
  if way == "converted":
    path = str(tmp_path / "new")
    checkpoint.convert(_GOLDENS / golden, path, "saver-v2")
    assert not checkpoint.describe(path).is_first_format
  with tf1.Session(graph=program.graph) as session:
    if way == "restore":
      report = checkpoint.restore(session, path)
      assert not report.initialized
    else:
      program.saver.restore(session, path)
    program.check(session, values_of(expected))
    for row in expected["rows"][expected["steps_before"] :]:
      program.train(session, row)
      program.check(session, row["variables"])
      assert {"global_step", "current_loss_scale"} <= set(row["variables"])


@pytest.mark.parametrize("golden", ["v1_unsharded", "v1_partitioned"])
def test_is_converted(golden, tmp_path):
  """Checks what TensorFlow reads of a converted checkpoint."""
  new = str(tmp_path / "new")
  result = checkpoint.convert(_GOLDENS / golden, new, "saver")
  assert not result.renamed and not result.dropped and not result.added
  reader = tf.train.load_checkpoint(new)
  stored = stored_of(expected_of(golden))
  assert set(reader.get_variable_to_shape_map()) == set(stored)
  for name, value in stored.items():
    assert_close(reader.get_tensor(name), value)


def save(folder, sharded, write_version=_V1, **kwargs):
  """Saves variables of two devices; returns what `save` returns."""
  folder.mkdir(exist_ok=True)
  with tf.Graph().as_default():
    with tf1.device("/cpu:0"):
      tf1.get_variable("v", initializer=[1.0, 2.0])
      tf1.get_variable("step", initializer=7)
    with tf1.device("/cpu:1"):
      tf1.get_variable("mask", initializer=[True, False])
      tf1.get_variable("half", initializer=np.float16([1.5, -2.0]))
      slicing = tf1.fixed_size_partitioner(2)
      tf1.get_variable("parted", initializer=tf.range(5.0), partitioner=slicing)
    saver = tf1.train.Saver(
      sharded=sharded, write_version=write_version, **kwargs
    )
    config = tf1.ConfigProto(device_count={"CPU": 2})
    with tf1.Session(config=config) as session:
      session.run(tf1.global_variables_initializer())
      return saver.save(session, str(folder / "model.ckpt"), global_step=5)


def check_restored(path):
  """Checks what a Saver and `restore` make of the variables of `save`."""
  with tf.Graph().as_default():
    for name, value in (
      *(("v", [0.0, 0.0]), ("step", 0), ("mask", [False, True])),
      ("half", np.float16([0, 0])),
    ):
      tf1.get_variable(name, initializer=value)
    slicing = tf1.fixed_size_partitioner(5)  # Other parts than when saved.
    tf1.get_variable("parted", initializer=tf.zeros(5), partitioner=slicing)
    saver = checkpoint.Saver()
    with tf1.Session() as session:
      for restore in (
        saver.restore,
        lambda session, path: checkpoint.restore(session, path),
      ):
        session.run(tf1.global_variables_initializer())
        restore(session, path)
        values = session.run([v.value() for v in tf1.global_variables()])
        plain = [v.tolist() for v in values]
        assert plain == [
          *([1, 2], 7, [True, False], [1.5, -2]),
          *([float(i)] for i in range(5)),
        ]


@pytest.mark.parametrize("sharded", [False, True])
def test_paths(sharded, tmp_path):
  path = save(tmp_path, sharded)
  prefix = str(tmp_path / "model.ckpt-5")
  tables = [prefix]
  if sharded:
    assert path == f"{prefix}-?????-of-00002"
    tables = [f"{prefix}-0000{i}-of-00002" for i in (0, 1)]
  for name in (path, prefix, *tables, f"{prefix}.meta", str(tmp_path)):
    assert paths.find(name).path == path
    described = checkpoint.describe(name)
    assert described.path == prefix and described.step == 5
    assert described.is_first_format
  (tmp_path / "checkpoint").unlink()  # Then the files tell.
  save(tmp_path / "other", False, tf1.train.SaverDef.V2)
  shutil.copy(tmp_path / "other" / "model.ckpt-5.index", tmp_path / "a-4.index")
  assert paths.find(str(tmp_path)).path == path
  check_restored(path)
  check_restored(prefix)


def test_missing_and_ambiguous_shards(tmp_path):
  path = save(tmp_path, True)
  prefix = str(tmp_path / "model.ckpt-5")
  shutil.copy(f"{prefix}-00000-of-00002", f"{prefix}-00000-of-00001")
  with pytest.raises(checkpoint.CheckpointError) as error:
    checkpoint.describe(prefix)
  assert "-?????-of-00001 or " in str(error.value)
  assert checkpoint.describe(path).is_first_format
  assert len(checkpoint.describe(f"{prefix}-?????-of-00001").keys) == 2
  os.remove(f"{prefix}-00001-of-00002")
  for name in (path, f"{prefix}-00000-of-00002", str(tmp_path)):
    with pytest.raises(
      checkpoint.CheckpointError, match="00001-of-00002: No such"
    ):
      checkpoint.describe(name)


def test_a_file_that_is_cut_off(tmp_path):
  path = save(tmp_path, False)
  os.truncate(path, 100)
  for name in (path, str(tmp_path)):
    with pytest.raises(checkpoint.CheckpointError, match="is cut off"):
      checkpoint.describe(name)


@pytest.mark.parametrize("sharded", [False, True])
def test_conversion_replaces_no_file_of_the_first_format(sharded, tmp_path):
  path = save(tmp_path, sharded)
  prefix = str(tmp_path / "model.ckpt-5")
  before = sorted(os.listdir(tmp_path))
  for overwrite in (False, True):
    for source in (path, save(tmp_path / "other", False)):
      with pytest.raises(checkpoint.CheckpointError, match="first format"):
        checkpoint.convert(source, prefix, "saver", overwrite=overwrite)
  assert set(os.listdir(tmp_path)) == {*before, "other"}
  new = str(tmp_path / "new")
  checkpoint.convert(path, new, "saver", set_loss_scale=8.0)
  check_restored(new)
  assert checkpoint.describe(new).loss_scales[0].value == 8


def test_keys_that_are_no_names(tmp_path):
  """Checks that the MetaGraph's saver tells whose keys a checkpoint has."""
  with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("w", initializer=[1.0, 2.0])
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.MomentumOptimizer(0.5, 0.5), tfl.DynamicLossScale(8.0)
    )
    opt.minimize(tf.reduce_sum(w * w))
    tf1.get_variable("good_steps_1", initializer=np.int64(3))  # The user's.
    session.run(tf1.global_variables_initializer())
    renamed = {f"a/{v.op.name}": v for v in tf1.global_variables()}
    saver = tf1.train.Saver(renamed, write_version=_V1, sharded=True)
    path = saver.save(session, str(tmp_path / "model"))
  opened = consistency.open_bundle(path)
  found = evidence.find_evidence(opened)
  assert found is not None
  assert set(opened.specs) == set(renamed)
  (state,) = checkpoint.describe(path).loss_scales
  assert state.names == ("a/current_loss_scale", "a/good_steps")
  os.utime(f"{tmp_path}/model.meta", (1, 1))  # It is of another checkpoint.
  assert evidence.find_evidence(consistency.open_bundle(path)) is None


@pytest.mark.any_release
def test_other_file_systems():
  """Checks shards that TensorFlow's file systems have."""
  for golden in ("v1_unsharded", "v1_partitioned"):
    data = (_GOLDENS / golden / "model.ckpt-8").read_bytes()
    folder = f"ram://first_format/{golden}"
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(f"{folder}/model.ckpt-8-00000-of-00001", "wb") as f:
      f.write(data)
    with tf.io.gfile.GFile(f"{folder}/checkpoint", "w") as f:
      f.write('model_checkpoint_path: "model.ckpt-8-?????-of-00001"')
    for path in (f"{folder}/model.ckpt-8-?????-of-00001", folder):
      found = checkpoint.describe(path)
      assert found.is_first_format and found.step == 8 and found.checked
      assert found.loss_scales[0].value == 512


def build_in_scope(count):
  """Builds a partitioned variable and an optimizer in one scope.

  TensorFlow then gives the slot of each part a tensor of its own, which has the
  shape of the whole variable and one slice.
  """
  with tf1.variable_scope("net"):
    slicing = tf1.fixed_size_partitioner(count)
    v = tf1.get_variable("v", [6], tf.float16, partitioner=slicing)
    loss = tf.reduce_sum(tf.square(tf.convert_to_tensor(v)))
    return tf1.train.MomentumOptimizer(0.25, 0.5).minimize(loss)


@pytest.mark.parametrize("version", [1, 2])
def test_slots_of_parts_in_a_scope(version, tmp_path):
  with tf.Graph().as_default(), tf1.Session() as session:
    train = build_in_scope(3)
    session.run(tf1.global_variables_initializer())
    session.run(train)
    path = tf1.train.Saver(write_version=version).save(
      session, str(tmp_path / "model")
    )
    expected = session.run([v.value() for v in tf1.global_variables()])
    session.run(train)
    after = session.run([v.value() for v in tf1.global_variables()])
  new = str(tmp_path / "new")
  checkpoint.convert(path, new, "saver-v2")
  keys = checkpoint.describe(path, verify=True).keys
  names = [name for name in keys if name.endswith("_1/Momentum")]
  assert [keys[name].shape for name in names] == [(6,)]
  for source in (path, new):
    with tf.Graph().as_default(), tf1.Session() as session:
      train = build_in_scope(3)
      checkpoint.restore(session, source)
      for values in (expected, after):
        found = session.run([v.value() for v in tf1.global_variables()])
        assert [v.tolist() for v in found] == [v.tolist() for v in values]
        session.run(train)
      # That tensor has no values for another part, or for a whole variable.
      whole = tf1.get_variable("whole", [6], tf.float16)
      for variable in (tf1.global_variables()[0], whole):
        with pytest.raises(checkpoint.CheckpointError, match="other slices"):
          checkpoint.restore(session, source, variables={names[0]: variable})


def test_saveables_that_are_no_variables(tmp_path):
  """Checks a Saver of a table, which TensorFlow's own restore reads."""
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=[1.0])
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    insert = table.insert(tf.constant(["a"]), tf.constant([3], tf.int64))
    saver = checkpoint.Saver(write_version=_V1)
    with tf1.Session() as session:
      session.run([v.initializer, insert])
      path = saver.save(session, str(tmp_path / "model"))
    with tf1.Session() as session:
      saver.restore(session, path)
      assert session.run(table.lookup(tf.constant(["a"]))).tolist() == [3]


def test_is_overwritten_while_it_is_read(tmp_path, monkeypatch):
  """Checks that all values are of one checkpoint."""
  path = save(tmp_path, True)
  read = first_format.FirstFormatBundle.read
  seen = []

  def overwrite_once(bundle, entry):
    if not seen:
      seen.append(entry)
      save(tmp_path, True)
    return read(bundle, entry)

  monkeypatch.setattr(first_format.FirstFormatBundle, "read", overwrite_once)
  check_restored(path)
  assert seen


if __name__ == "__main__":
  helpers.main()
