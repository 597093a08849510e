# SPDX-License-Identifier: Apache-2.0
"""Tests what `convert` keeps of a checkpoint if only the model is asked for."""

import os
import re

import helpers
import numpy as np
import pytest
import safetensors
from safetensors import numpy as safetensors_numpy
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.keras import _keras2

tf1 = tf.compat.v1

_BY_NAME = sorted(
  path.with_suffix("")
  for path in helpers.GOLDENS.rglob("*.index")
  if not tf.train.load_checkpoint(str(path.with_suffix(""))).has_tensor(
    "_CHECKPOINTABLE_OBJECT_GRAPH"
  )
)
_NO_WEIGHT = re.compile(
  r"(^|.*/)(Adam|Momentum|RMSProp|adam_[mv]|beta\d_power|global_step|good_steps"
  r"|bad_steps|current_loss_scale|loss_scale)(_\d+)?$"
)


def save(folder, values, trainable=(), build=None):
  """Saves variables with a MetaGraph, and returns the checkpoint's prefix."""
  with tf.Graph().as_default():
    for name, value in values.items():
      value = np.asarray(value)
      tf1.get_variable(
        name, initializer=tf.constant(value), trainable=name in trainable
      )
    if build:
      build()
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      return tf1.train.Saver().save(session, str(folder / "old"))


def export(source, folder, to="weights", **kwargs):
  """Converts a checkpoint, and returns the result and the values."""
  new = str(folder / ("new" if to == "weights" else f"new.{to}"))
  result = checkpoint.convert(source, new, to, overwrite=True, **kwargs)
  if to == "npz":
    with np.load(new, allow_pickle=False) as loaded:
      return result, dict(loaded)
  if to == "safetensors":
    return result, safetensors_numpy.load_file(new)
  reader = tf.train.load_checkpoint(new)
  names = reader.get_variable_to_shape_map()
  return result, {name: reader.get_tensor(name) for name in names}


def restore_plainly(prefix, values):
  """Restores variables by TensorFlow's Saver, in a graph without optimizer."""
  with tf.Graph().as_default():
    variables = [
      tf1.get_variable(name, value.shape, tf.as_dtype(value.dtype))
      for name, value in values.items()
    ]
    with tf1.Session() as session:
      tf1.train.Saver().restore(session, prefix)
      return dict(zip(values, session.run(variables)))


@pytest.mark.any_release
@pytest.mark.parametrize(
  "source", _BY_NAME, ids=lambda p: str(p.relative_to(helpers.GOLDENS))
)
def test_goldens(source, tmp_path):
  """Checks the model of each golden, by a plain Saver and as an npz file."""
  result, values = export(source, tmp_path)
  assert values
  if "user" not in source.parent.name:  # Those have variables of such names.
    assert not [name for name in values if _NO_WEIGHT.match(name)]
  reader = tf.train.load_checkpoint(str(source))
  assert len(values) + len(result.dropped) == len(
    reader.get_variable_to_shape_map()
  )
  plain = restore_plainly(result.path, values)
  for to in ("npz", "safetensors"):
    _, arrays = export(source, tmp_path, to)
    for name, value in values.items():
      old = reader.get_tensor(name)
      for new in (value, plain[name], arrays[name]):
        assert (new.dtype, new.shape) == (old.dtype, old.shape)
        assert new.tobytes() == old.tobytes(), (to, name)


@pytest.mark.any_release
def test_masters_in_place_of_weights(tmp_path):
  half = np.ones([3], np.float16)
  master = "optimizer/FP32-master-copy/w"
  values = {"w": half, master: np.full([3], 1.0001, np.float32), "b": half[0]}
  prefix = save(tmp_path, values, ["w", "b"])
  result, written = export(prefix, tmp_path, masters=True)
  plain, halves = export(prefix, tmp_path)
  assert "--masters" in plain.notes[0]
  assert not any("--masters" in note for note in result.notes)
  assert np.array_equal(written["w"], values[master])
  assert written["w"].dtype == np.float32
  assert halves["w"].dtype == written["b"].dtype == np.float16
  assert result.renamed == {"w": master}
  assert result.reasons["w"] == f"replaced by {master}"


_EVERYDAY = {
  "bert/w": ("adam_m", "adam_v"),
  "w1": ("lamb_m", "lamb_v"),
  "w2": ("Adam", "Adam_1"),
  "w3": ("Momentum",),
  "w4": ("RMSProp", "RMSProp_1", "RMSProp_2"),
  "w5": ("Adagrad",),
  "w6": ("Ftrl", "Ftrl_1"),
  "w7": ("Adadelta", "Adadelta_1"),
  "w8": ("AdaMax", "AdaMax_1"),
  "w9": ("LARSOptimizer",),
  "w10": ("m", "v"),
  "w11": ("LazyAdam", "LazyAdam_1"),
}


@pytest.mark.any_release
@pytest.mark.parametrize("with_graph", [True, False])
def test_everyday_slots(tmp_path, with_graph):
  """Checks slots by their names, whether a MetaGraph is there or not."""
  shape = np.ones([3, 2], np.float32)
  values = dict.fromkeys(_EVERYDAY, shape)
  values["global_step"] = np.int64(3)
  values["beta1_power"] = values["beta2_power"] = np.float32(0.5)
  values["bert/w/vr"] = shape[:, 0]
  values["bert/w/vc"] = shape[0]
  values |= {f"{w}/{s}": shape for w in _EVERYDAY for s in _EVERYDAY[w]}
  prefix = save(tmp_path, values, _EVERYDAY)
  if not with_graph:
    (tmp_path / "old.meta").unlink()
  result, written = export(prefix, tmp_path)
  assert written.keys() == _EVERYDAY.keys()
  assert result.unproven == ()
  assert result.reasons["bert/w/adam_m"] == "slot of bert/w"
  assert result.reasons["bert/w/vr"] == "slot of bert/w"
  assert result.reasons["global_step"] == "counter of steps"


@pytest.mark.any_release
def test_variables_of_the_user_are_kept(tmp_path):
  """Checks names that could be a slot's, without a proof that they are."""
  ones = np.ones([3], np.float32)
  values = {
    "w": ones,
    "w/mask": ones,  # No optimizer has slots of this name.
    "w/v": np.ones([5], np.float32),  # Of another shape.
    "head/Adam": ones,  # There is no variable `head`.
    "m": ones,
    "beta1_power": ones,  # No scalar.
    "bn/moving_mean": ones,
    "bn/moving_variance": ones,
    "scale": np.float32(2),
    "loss_scale": ones,
  }
  prefix = save(tmp_path, values, ["w"])
  result, written = export(prefix, tmp_path)
  assert written.keys() == values.keys()
  assert set(result.unproven) == {"w/mask", "w/v", "scale"}


@pytest.mark.any_release
def test_averages(tmp_path):
  ones = np.ones([3], np.float32)
  end = "ExponentialMovingAverage"
  values = {"w": ones, "b": ones * 2, f"w/{end}": ones * 3}
  values |= {"bn/moving_mean": ones, "bn/moving_mean/biased": ones}
  values |= {"bn/moving_mean/local_step": np.float32(4), f"loss/{end}": ones}
  prefix = save(tmp_path, values, ["w", "b"])
  result, written = export(prefix, tmp_path)
  assert written.keys() == {"w", "b", "bn/moving_mean", f"loss/{end}"}
  assert result.unproven == (f"loss/{end}",)
  result, written = export(prefix, tmp_path, averages=True)
  assert written["w"].tolist() == [3, 3, 3]
  assert written["b"].tolist() == [2, 2, 2]
  assert result.notes[0] == (
    "without an average, and written as they are: b, bn/moving_mean, "
    f"loss/{end}"
  )
  assert result.reasons["w"] == f"replaced by w/{end}"


@pytest.mark.any_release
def test_averages_of_what_is_no_weight(tmp_path):
  ones, end = np.ones([3], np.float32), "ExponentialMovingAverage"
  values = {"w": ones, "w/Adam": ones, "beta1_power": np.float32(0.9)}
  values |= {"current_loss_scale": np.float32(8), "good_steps": np.int64(1)}
  # NumPy 1 returns a float64 for twice a float32 scalar.
  values |= {f"{x}/{end}": (y * 2).astype(y.dtype) for x, y in values.items()}
  values |= {"net/b": ones, f"opt/net/b/{end}": ones * 4}
  values |= {"accumulation/bias": ones[0], "w/biased": np.float32([1, 2])}
  prefix = save(tmp_path, values, ["w", "net/b"])
  _, written = export(prefix, tmp_path, averages=True)
  assert written.keys() == {"w", "net/b", "accumulation/bias", "w/biased"}
  assert written["w"].tolist() == [2, 2, 2]
  assert written["net/b"].tolist() == [4, 4, 4]


@pytest.mark.any_release
@pytest.mark.parametrize("other", ["net/w/{}_1", "scope/net/w/{}"])
def test_two_averages_of_one_variable(other, tmp_path):
  """Checks that patterns decide, and the error says which."""
  ones, end = np.ones([3], np.float32), "ExponentialMovingAverage"
  first, second = f"net/w/{end}", other.format(end)
  values = {"net/w": ones, first: ones * 2, second: ones * 3}
  prefix = save(tmp_path, values, ["net/w"])
  with pytest.raises(checkpoint.CheckpointError) as error:
    export(prefix, tmp_path, averages=True)
  assert first in str(error.value) and second in str(error.value)
  pattern = re.search("--exclude='(.*)'", str(error.value))[1]
  for exclude, value in (
    ([pattern], 3 if pattern == first else 2),
    ([first], 3),
    ([second], 2),
  ):
    _, written = export(prefix, tmp_path, averages=True, exclude=exclude)
    assert written["net/w"].tolist() == [value] * 3
  _, written = export(
    prefix, tmp_path, averages=True, include=[second, "net/w"]
  )
  assert written["net/w"].tolist() == [3] * 3


@pytest.mark.any_release
def test_loss_scales_of_objects(tmp_path):
  policy = tfl.policies.GrowthBackoff()
  policy.update([tf.constant(1.0)])
  saved = tf.train.Checkpoint(
    w=tf.Variable([1.0], name="w"), a=tfl.DynamicLossScale(), b=policy
  )
  _, written = export(saved.save(str(tmp_path / "old")), tmp_path, "npz")
  assert written.keys() == {"w"}


@pytest.mark.any_release
def test_scalars_that_are_learned(tmp_path):
  part = tf.train.Checkpoint(
    iter=tf.Variable(3, name="iter"), bias=tf.Variable(2.0, name="bias")
  )
  saved = tf.train.Checkpoint(part=part)
  _, written = export(saved.save(str(tmp_path / "old")), tmp_path, "npz")
  assert written["bias"] == 2


@pytest.mark.any_release
def test_short_names_of_keras(tmp_path):
  ones = np.ones([3], np.float32)
  values = {"dense/w": ones, "training/Adam/dense/w/m": ones}
  values |= {"training/RMSprop_1/dense/w/rms": ones}
  prefix = save(tmp_path, values)
  _, written = export(prefix, tmp_path)
  assert written.keys() == {"dense/w"}


@pytest.mark.any_release
def test_short_names_of_another_scope(tmp_path):
  """Checks names that a program may have: `m` and `v`."""
  ones = np.ones([3], np.float32)
  values = {"w": ones, "enc/w/m": ones, "w/m": ones, "blk/m": ones}
  result, written = export(save(tmp_path, values, ["w"]), tmp_path)
  assert written.keys() == {"w", "enc/w/m", "blk/m"}
  assert result.unproven == ("enc/w/m",)


@pytest.mark.any_release
def test_averages_of_masters(tmp_path):
  half = np.ones([3], np.float16)
  master = "Loss_Optimization/FP32-master-copy/w"
  whole = half.astype(np.float32)
  values = {"w": half, master: whole * 2}
  values[f"{master}/ExponentialMovingAverage"] = whole * 3
  prefix = save(tmp_path, values, ["w"])
  result, written = export(prefix, tmp_path, averages=True)
  assert written.keys() == {"w"} and written["w"].dtype == np.float32
  assert written["w"].tolist() == [3, 3, 3]
  assert result.reasons[master] == "float32 master of w"


@pytest.mark.any_release
def test_a_loss_scale_and_slots_of_another_name(tmp_path):
  """Checks that slots of an optimizer that nobody knows are kept, and said."""
  ones = np.ones([3], np.float32)
  values = {"w": ones, "w/Mine": ones, "w/Mine_1": ones, "loss_scale": ones[0]}
  values |= {"current_loss_scale": ones[0], "good_steps": np.int64(1)}
  result, written = export(save(tmp_path, values, ["w"]), tmp_path)
  assert written.keys() == {"w", "w/Mine", "w/Mine_1", "loss_scale"}
  assert set(result.unproven) == {"w/Mine", "w/Mine_1", "loss_scale"}
  assert result.reasons["good_steps"] == "loss scale"


@pytest.mark.any_release
def test_patterns(tmp_path):
  values = {f"layer_{i}/{n}": np.float32([i]) for i in range(3) for n in "ab"}
  prefix = save(tmp_path, values, values)
  _, written = export(prefix, tmp_path, include=["layer_[01]/*"])
  assert written.keys() == {f"layer_{i}/{n}" for i in (0, 1) for n in "ab"}
  result, written = export(
    prefix, tmp_path, include=["*/a"], exclude=["layer_0/*", "layer_2/*"]
  )
  assert written.keys() == {"layer_1/a"}
  assert result.reasons["layer_0/a"] == "left out by its name"
  for kwargs, what in (
    ({"include": ["layer_1"]}, "include='layer_1' matches no tensor.*layer_1/"),
    ({"exclude": ["x*"]}, r"exclude='x\*' matches no tensor"),
    ({"exclude": ["*"]}, "leave no tensor"),
    ({"include": "layer_1/*"}, "must be a list of patterns"),
    ({"masters": True}, "has no float32 masters of weights"),
    ({"averages": True}, "has no averages of weights"),
    ({"masters": True, "averages": True}, "exclude each other"),
    ({"reset": True}, r"reset \(--reset\) is an option of the other layouts"),
    (
      {"mapping": {"a": "b"}},
      r"mapping \(--map\) is an option of the other layouts",
    ),
  ):
    with pytest.raises(checkpoint.CheckpointError, match=what):
      checkpoint.convert(prefix, tmp_path / "none", "weights", **kwargs)
  with pytest.raises(
    checkpoint.CheckpointError, match=r"include \(--include\) is an opt"
  ):
    checkpoint.convert(prefix, tmp_path / "none", "saver", include=["*"])
  assert not list(tmp_path.glob("none*"))


@pytest.mark.any_release
def test_names_that_look_like_patterns(tmp_path):
  values = {"br[0]": np.float32([1]), "br0": np.float32([2])}
  prefix = save_raw(tmp_path, values)
  _, written = export(prefix, tmp_path, "npz", include=["br[0]"])
  assert written.keys() == {"br[0]", "br0"}
  _, written = export(
    prefix, tmp_path, "npz", include=["br[0]"], exclude=["br0"]
  )
  assert written.keys() == {"br[0]"}


def save_raw(folder, values):
  """Saves tensors of any names."""
  tf.raw_ops.SaveV2(
    prefix=str(folder / "old"),
    tensor_names=list(values),
    tensors=list(map(tf.constant, values.values())),
    shape_and_slices=[""] * len(values),
  )
  return str(folder / "old")


@pytest.mark.any_release
def test_what_a_format_cannot_hold(tmp_path):
  values = {"w": np.float32([1]), "words": np.array([b"a", b"b"])}
  prefix = save(tmp_path, values, ["w"])
  _, written = export(prefix, tmp_path)
  assert written["words"].tolist() == [b"a", b"b"]
  for to in ("npz", "safetensors"):
    with pytest.raises(
      checkpoint.CheckpointError, match=rf"{to} has no string.*words \(string"
    ):
      export(prefix, tmp_path, to)
    assert not (tmp_path / f"new.{to}").exists()
    _, written = export(prefix, tmp_path, to, exclude=["words"])
    assert written.keys() == {"w"}


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("name", "to"),
  [
    (b"a\0b", "npz"),
    (b"w.npy", "npz"),
    (b"a" * 70_000, "npz"),
    (b"__metadata__", "safetensors"),
  ],
)
def test_a_name_that_a_format_cannot_hold(name, to, tmp_path):
  prefix = str(tmp_path / "old")
  tf.raw_ops.SaveV2(
    prefix=prefix,
    tensor_names=[b"w", name],
    tensors=[tf.constant([1.0]), tf.constant([2.0])],
    shape_and_slices=["", ""],
  )
  with pytest.raises(checkpoint.CheckpointError, match="cannot have a tensor"):
    export(prefix, tmp_path, to)
  assert not (tmp_path / f"new.{to}").exists()
  _, written = export(prefix, tmp_path, to, include=["w"])
  assert written.keys() == {"w"}
  other = "safetensors" if to == "npz" else "npz"
  if name.isascii():
    _, written = export(prefix, tmp_path, other)
    assert written[name.decode()].tolist() == [2]


@pytest.mark.any_release
def test_bfloat16(tmp_path):
  with tf.Graph().as_default():
    value = tf.constant([1.5, -2.0, 1e30], tf.bfloat16)
    tf1.get_variable("w", initializer=value)
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      prefix = tf1.train.Saver().save(session, str(tmp_path / "old"))
      want = session.run(value)
  with pytest.raises(checkpoint.CheckpointError, match="npz has no bfloat16"):
    export(prefix, tmp_path, "npz")
  _, written = export(prefix, tmp_path, "safetensors")
  assert written["w"].tobytes() == want.tobytes()
  # TensorFlow 2.12 has a type of its own.
  assert written["w"].dtype.name == want.dtype.name == "bfloat16"


@pytest.mark.any_release
def test_partitioned_weights(tmp_path):
  with tf.Graph().as_default():
    whole = np.arange(40, dtype=np.float32).reshape(10, 4)
    tf1.get_variable(
      "w",
      [10, 4],
      initializer=lambda shape, partition_info, **_: tf.constant(
        whole[partition_info.var_offset[0] :][: shape[0]]
      ),
      partitioner=tf1.fixed_size_partitioner(3),
    )
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      prefix = tf1.train.Saver().save(session, str(tmp_path / "old"))
  for to in ("weights", "npz", "safetensors"):
    result, written = export(prefix, tmp_path, to)
    assert np.array_equal(written["w"], whole)
    assert result.sizes["w"] == whole.nbytes


class _Net(tf.Module):
  """A model with a variable in a list."""

  def __init__(self):
    super().__init__()
    self.kernel = tf.Variable([1.0, 2.0], name="first/kernel")
    self.rest = [tf.Variable([3.0, 4.0], name="first/bias")]


@pytest.mark.parametrize("kind", ["compat.v1", "keras"])
def test_objects(tmp_path, kind):
  """Checks a checkpoint of a model with its optimizer and its step."""
  model = _Net()
  if kind == "keras":
    opt = tfl.keras.LossScaleOptimizer(
      _keras2.keras.optimizers.legacy.Adam(), "dynamic"
    )
  else:
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(), "dynamic"
    )
  pairs = [(tf.ones_like(v), v) for v in model.trainable_variables]
  opt.apply_gradients(pairs)
  saved = tf.train.Checkpoint(net=model, optimizer=opt, step=tf.Variable(7))
  source = saved.save(str(tmp_path / "old"))
  for to in ("weights", "npz"):
    result, written = export(source, tmp_path, to)
    assert written.keys() == {"first/kernel", "first/bias"}
    assert np.array_equal(written["first/kernel"], model.kernel)
  kinds = {why.split(" of ")[0] for why in result.reasons.values()}
  assert {"slot", "counter", "state"} <= kinds


@pytest.mark.parametrize("kind", ["keras2", "keras3", "saved_model"])
def test_metrics_are_no_weights(kind, tmp_path):
  if kind == "keras3":
    keras = pytest.importorskip("keras", "3")
  else:
    keras = _keras2.keras
  model = keras.Sequential(
    [keras.layers.Dense(1), keras.layers.BatchNormalization()]
  )
  model.compile("sgd", "mse", metrics=["mae"])
  model.fit(np.ones([4, 2]), np.ones([4, 1]), verbose=0)
  if kind == "saved_model":
    source = str(tmp_path / "old")
    model.save(source, save_format="tf")
  else:
    source = tf.train.Checkpoint(model=model).save(str(tmp_path / "old"))
  _, written = export(source, tmp_path, "npz")
  assert len(written) == len(model.weights)
  for value, weight in zip(
    sorted(v.sum() for v in written.values()),
    sorted(np.sum(w) for w in model.get_weights()),
  ):
    assert value == weight


@pytest.mark.any_release
def test_names_of_objects_that_are_not_unique(tmp_path):
  saved = tf.train.Checkpoint(
    kernel=tf.Variable(1.0, name="w"),
    rec=tf.Variable(2.0, name="w"),
    out=tf.Variable(3.0, name="kernel"),
  )
  _, written = export(saved.save(str(tmp_path / "old")), tmp_path, "npz")
  assert written == {"kernel": 1, "rec": 2, "out": 3}


@pytest.mark.any_release
@pytest.mark.parametrize(
  "name", ["iter", "_iterations", "beta1_power", "inner_optimizer"]
)
def test_a_model_with_a_name_of_an_optimizer(name, tmp_path):
  part = tf.train.Checkpoint(kernel=tf.Variable([2.0], name="kernel"))
  setattr(part, name, tf.Variable([1, 2], name="count"))
  part.epoch = tf.Variable(7, name="number_of_bins")
  saved = tf.train.Checkpoint(part=part, epoch=tf.Variable(3, name="epoch"))
  _, written = export(saved.save(str(tmp_path / "old")), tmp_path, "npz")
  assert written.keys() == {"kernel", "count", "number_of_bins"}


@pytest.mark.any_release
def test_a_root_that_counts(tmp_path):
  saved = tf.train.Checkpoint(
    iter=tf.Variable(5, name="iter"), w=tf.Variable([1.0], name="w")
  )
  _, written = export(saved.save(str(tmp_path / "old")), tmp_path, "npz")
  assert written.keys() >= {"w"}


@pytest.mark.any_release
def test_a_layer_that_counts(tmp_path):
  part = tf.train.Checkpoint(
    iter=tf.Variable(5, name="iter"), beta=tf.Variable([1.0], name="beta")
  )
  saved = tf.train.Checkpoint(part=part, w=tf.Variable([1.0], name="w"))
  _, written = export(saved.save(str(tmp_path / "old")), tmp_path, "npz")
  assert written.keys() >= {"w", "beta"}


@pytest.mark.any_release
def test_a_users_own_list_of_metrics(tmp_path):
  root = tf.train.Checkpoint(metrics=[tf.Variable([1.0], name="w")])
  _, written = export(root.save(str(tmp_path / "old")), tmp_path, "npz")
  assert written["w"].tolist() == [1]


@pytest.mark.any_release
def test_equal_names_of_objects(tmp_path):
  first, second = (tf.Variable([float(i)], name="kernel") for i in range(2))
  saved = tf.train.Checkpoint(a=first, b=tf.train.Checkpoint(c=second))
  _, written = export(saved.save(str(tmp_path / "old")), tmp_path)
  assert {k: v.tolist() for k, v in written.items()} == {"a": [0], "b/c": [1]}


@pytest.mark.any_release
def test_the_command(tmp_path, capsys):
  source = str(helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam")
  new = str(tmp_path / "folder" / "new.npz")
  command = ["convert", source, new, "--to=npz"]
  assert cli.main([*command, "--dry-run"]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert "drop global_step: 8 bytes, counter of steps" in lines
  assert re.search(
    r"not written \(dry run\); \d+ tensors, [\d,]+ bytes", lines[-1]
  )
  assert not list(tmp_path.iterdir())
  assert cli.main(command) == 0
  assert re.search(
    r"dropped: \d+ tensors \(.*\d+ x slot", capsys.readouterr().out
  )
  for arguments, what in (
    (command, "it exists; --overwrite"),
    (["convert", source, str(tmp_path), "--to=npz"], "a folder"),
    (["convert", source, str(tmp_path / "a"), "--to=zip"], "is no layout"),
    (["convert", source, "gs://b/x", "--to=npz"], "this machine"),
  ):
    with pytest.raises(SystemExit) as caught:
      cli.main(arguments)
    error = capsys.readouterr().err
    assert caught.value.code == 2
    assert what in error and error.count("\n") == 1
  assert sorted(p.name for p in tmp_path.rglob("*")) == ["folder", "new.npz"]


@pytest.mark.any_release
def test_the_command_tells_of_one_tensor(tmp_path, capsys):
  with tf.Graph().as_default(), tf1.Session() as session:
    tf1.get_variable("w", [2])
    tf1.train.create_global_step()
    session.run(tf1.global_variables_initializer())
    source = tf1.train.Saver().save(session, str(tmp_path / "old"))
  command = ["convert", source, str(tmp_path / "new.npz"), "--to=npz"]
  assert cli.main([*command, "--dry-run"]) == 0
  assert "; 1 tensor, 8 bytes; " in capsys.readouterr().out
  assert cli.main(command) == 0
  out = capsys.readouterr().out
  assert "written, 1 tensor, 8 bytes" in out and "dropped: 1 tensor (" in out


@pytest.mark.any_release
def test_a_dry_run_tells_what_the_run_does(tmp_path, capsys):
  """Checks sizes of tensors that are computed, and a path that is taken."""
  source = str(helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam")
  for to in ("saver", "weights"):
    new = str(tmp_path / to)
    command = ["convert", source, new, f"--to={to}"]
    assert cli.main([*command, "--dry-run"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    written = [line for line in lines if line.startswith("write ")]
    sizes = [re.search(r", ([\d,]+) bytes", line)[1] for line in written]
    total = sum(int(size.replace(",", "")) for size in sizes)
    assert f"{len(written)} tensors, {total:,} bytes" in "\n".join(
      [*lines, last]
    )
    assert cli.main(command) == 0
    assert (tmp_path / f"{to}.data-00000-of-00001").stat().st_size == total
    for arguments in (command, [*command, "--dry-run"]):
      with pytest.raises(SystemExit):
        cli.main(arguments)
      assert "there is a checkpoint already" in capsys.readouterr().err
    capsys.readouterr()


@pytest.mark.any_release
@pytest.mark.parametrize("to", ["npz", "safetensors"])
def test_only_a_file_of_that_kind_is_replaced(to, tmp_path):
  prefix = save(tmp_path, {"w": np.float32([1])}, ["w"])
  other = {"npz": "safetensors", "safetensors": "npz"}[to]
  for name in ("old.index", "old.meta", f"new.{other}", "model.ckpt-10"):
    with pytest.raises(checkpoint.CheckpointError, match="does not end in"):
      checkpoint.convert(prefix, tmp_path / name, to, overwrite=True)
  os.mkfifo(tmp_path / f"pipe.{to}")
  (tmp_path / "file").write_bytes(b"precious")
  for name in (f"pipe.{to}", "file"):
    with pytest.raises(checkpoint.CheckpointError, match=f"is no file .*{to}"):
      checkpoint.convert(prefix, tmp_path / name, to, overwrite=True)
  assert (tmp_path / "file").read_bytes() == b"precious"
  for _ in range(2):
    checkpoint.convert(prefix, tmp_path / f"new.{to}", to, overwrite=True)
  checkpoint.convert(prefix, tmp_path / "no_suffix", to)


@pytest.mark.any_release
def test_safetensors_say_where_they_come_from(tmp_path):
  source = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"
  result, _ = export(source, tmp_path, "safetensors")
  with safetensors.safe_open(result.path, "numpy") as file:
    metadata = file.metadata()
  assert metadata["source"] == "model.ckpt-10"
  assert metadata["source_path"] == str(source / "model.ckpt-10")
  assert metadata["tensorflow_version"] == "1.15.5"
  assert metadata["written_by"].startswith("tf_compat_lossscale ")


@pytest.mark.any_release
def test_a_missing_package(tmp_path, monkeypatch):
  monkeypatch.setitem(__import__("sys").modules, "safetensors.numpy", None)
  source = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"
  with pytest.raises(checkpoint.CheckpointError, match="pip install"):
    checkpoint.convert(source, tmp_path / "x", "safetensors")
  assert not list(tmp_path.iterdir())


@pytest.mark.thorough
@pytest.mark.any_release
def test_a_damaged_source_leaves_nothing(tmp_path):
  values = {"w": np.arange(9, dtype=np.float32)}
  prefix = save(tmp_path, values, ["w"])
  data = next(tmp_path.glob("old.data*"))
  data.write_bytes(data.read_bytes()[:-1] + b"x")
  before = sorted(tmp_path.iterdir())
  for to in ("weights", "npz", "safetensors"):
    with pytest.raises(checkpoint.CheckpointError):
      checkpoint.convert(prefix, tmp_path / "sub" / "new", to)
  assert sorted(tmp_path.iterdir()) == before


if __name__ == "__main__":
  helpers.main()
