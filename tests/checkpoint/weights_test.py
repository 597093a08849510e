# SPDX-License-Identifier: Apache-2.0
"""Tests what `convert` keeps of a checkpoint if only the model is asked for."""

import os
import re

import helpers
import numpy as np
import pytest
import safetensors
from safetensors import numpy as safetensors_numpy
from saved_graphs import save_tensors
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.keras import _keras2

tf1 = tf.compat.v1
_SESSION = str(helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam")
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
_ONES = np.ones([3], np.float32)
_AVERAGE = "ExponentialMovingAverage"


def export(source, folder, to="weights", **kwargs):
  """Converts a checkpoint, and returns the result and the values."""
  new = str(folder / ("new" if to == "weights" else f"new.{to}"))
  result = checkpoint.convert(source, new, to, **kwargs)
  if to == "npz":
    with np.load(new, allow_pickle=False) as loaded:
      written = dict(loaded)
  elif to == "safetensors":
    written = safetensors_numpy.load_file(new)
  else:
    reader = tf.train.load_checkpoint(new)
    names = reader.get_variable_to_shape_map()
    written = {name: reader.get_tensor(name) for name in names}
  for path in folder.glob("new*"):
    path.unlink()
  return result, written


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
  """Checks the model of each golden, by a plain Saver and as a file."""
  result = checkpoint.convert(source, tmp_path / "plain", "weights")
  _, values = export(source, tmp_path)
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


_SHAPE = np.ones([3, 2], np.float32)
_SLOTS = {
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
_BEFORE = {"w": _ONES, "w/Adam": _ONES, "beta1_power": np.float32(0.9)} | {
  "current_loss_scale": np.float32(8),
  "good_steps": np.int64(1),
}
# The model's tensors, which are kept; others, which are dropped; and the names
# of those that are kept without a proof.
_CASES = {
  "everyday slots": (
    dict.fromkeys(_SLOTS, _SHAPE),
    {f"{w}/{s}": _SHAPE for w, slots in _SLOTS.items() for s in slots}
    | {"global_step": np.int64(3), "beta1_power": np.float32(0.5)}
    | {"beta2_power": np.float32(0.5)}
    | {"bert/w/vr": _SHAPE[:, 0], "bert/w/vc": _SHAPE[0]},
    (),
  ),
  "the user's": (
    {
      "w": _ONES,
      "w/mask": _ONES,  # No optimizer has slots of this name.
      "w/v": np.ones([5], np.float32),  # Of another shape.
      "head/Adam": _ONES,  # There is no variable `head`.
      "m": _ONES,
      "beta1_power": _ONES,  # No scalar.
      "beta2_power": np.int64(3),  # Not of floating point.
      "bn/moving_mean": _ONES,
      "bn/moving_variance": _ONES,
      "scale": np.float32(2),
      "loss_scale": _ONES,
    },
    {},
    ("w/mask", "w/v", "scale", "beta2_power"),
  ),
  "averages": (
    {"w": _ONES, "bn/moving_mean": _ONES, f"loss/{_AVERAGE}": _ONES},
    {f"w/{_AVERAGE}": _ONES, "bn/moving_mean/biased": _ONES}
    | {"bn/moving_mean/local_step": np.float32(4)},
    (f"loss/{_AVERAGE}",),
  ),
  "slots of Keras": (
    {"dense/w": _ONES},
    {"training/Adam/dense/w/m": _ONES, "training/RMSprop_1/dense/w/rms": _ONES},
    (),
  ),
  "a program's own m": (
    {"w": _ONES, "enc/w/m": _ONES, "blk/m": _ONES},
    {"w/m": _ONES},
    ("enc/w/m",),
  ),
  "averages of what is no weight": (
    {"w": _ONES, "net/b": _ONES, "accumulation/bias": _ONES[0]},
    {n: v for n, v in _BEFORE.items() if n != "w"}
    | {f"{n}/{_AVERAGE}": v for n, v in _BEFORE.items()}
    | {f"opt/net/b/{_AVERAGE}": _ONES},
    ("accumulation/bias",),
  ),
}


@pytest.mark.any_release
def test_slots_of_one_slice_each(tmp_path):
  """Checks slots of parts, which are made within the weight's scope."""
  with tf.Graph().as_default(), tf1.Session() as session:
    with tf1.variable_scope(
      "s", partitioner=tf1.fixed_size_partitioner(2), use_resource=True
    ):
      w = tf1.get_variable("w", [3, 2])
      loss = tf.reduce_sum(tf.convert_to_tensor(w))
      tf1.train.AdamOptimizer().minimize(loss)
    session.run(tf1.global_variables_initializer())
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  (note,) = checkpoint.describe(path, verify=True).notes
  assert "4 tensors have one slice each" in note
  result, written = export(path, tmp_path)
  assert [*written] == ["s/w"] and not result.unproven
  with pytest.raises(checkpoint.CheckpointError, match="only some slices of"):
    checkpoint.convert(path, tmp_path / "other", "saver")


@pytest.mark.any_release
@pytest.mark.parametrize("case", _CASES)
def test_names(case, tmp_path):
  kept, dropped, unproven = _CASES[case]
  result, written = export(save_tensors(tmp_path, kept | dropped), tmp_path)
  assert written.keys() == kept.keys()
  assert result.reasons.keys() == dropped.keys()
  assert set(result.unproven) == set(unproven)


@pytest.mark.any_release
def test_masters_in_place_of_weights(tmp_path):
  half, master = np.ones([3], np.float16), "optimizer/FP32-master-copy/w"
  values = {"w": half, master: np.full([3], 1.0001, np.float32), "b": half[0]}
  values[f"{master}/{_AVERAGE}"] = np.full([3], 3, np.float32)
  prefix = save_tensors(tmp_path, values)
  result, written = export(prefix, tmp_path, masters=True)
  plain, halves = export(prefix, tmp_path)
  assert "--masters" in plain.notes[0]
  assert not any("--masters" in note for note in result.notes)
  assert np.array_equal(written["w"], values[master])
  assert written["w"].dtype == np.float32
  assert halves["w"].dtype == written["b"].dtype == np.float16
  assert result.renamed == {"w": master}
  assert result.reasons["w"] == f"replaced by {master}"
  result, written = export(prefix, tmp_path, averages=True)
  assert written["w"].tolist() == [3, 3, 3]
  assert result.reasons[master] == "float32 master of w"


@pytest.mark.any_release
def test_averages_in_place_of_weights(tmp_path):
  values = {"w": _ONES, "b": _ONES * 2, f"w/{_AVERAGE}": _ONES * 3}
  values |= {"net/b": _ONES, f"opt/net/b/{_AVERAGE}": _ONES * 4}
  result, written = export(
    save_tensors(tmp_path, values), tmp_path, averages=True
  )
  assert {name: value[0] for name, value in written.items()} == {
    "w": 3,
    "b": 2,
    "net/b": 4,
  }
  assert result.notes[0] == "without an average, and written as they are: b"
  assert result.reasons["w"] == f"replaced by w/{_AVERAGE}"


@pytest.mark.any_release
@pytest.mark.parametrize("other", ["net/w/{}_1", "scope/net/w/{}"])
def test_two_averages_of_one_variable(other, tmp_path):
  """Checks that patterns decide, and the error says which."""
  first, second = f"net/w/{_AVERAGE}", other.format(_AVERAGE)
  values = {"net/w": _ONES, first: _ONES * 2, second: _ONES * 3}
  prefix = save_tensors(tmp_path, values)
  with pytest.raises(checkpoint.CheckpointError) as error:
    export(prefix, tmp_path, averages=True)
  assert first in str(error.value) and second in str(error.value)
  pattern = re.search("--exclude='(.*)'", str(error.value))[1]
  for choice, value in (
    ({"exclude": [pattern]}, 3 if pattern == first else 2),
    ({"exclude": [first]}, 3),
    ({"exclude": [second]}, 2),
    ({"include": [second, "net/w"]}, 3),
  ):
    _, written = export(prefix, tmp_path, averages=True, **choice)
    assert written["net/w"].tolist() == [value] * 3


@pytest.mark.any_release
def test_patterns(tmp_path):
  values = {f"layer_{i}/{n}": np.float32([i]) for i in range(3) for n in "ab"}
  values |= {"br[0]": _ONES, "br0": _ONES}
  prefix = save_tensors(tmp_path, values)
  for include, exclude, kept in (
    (["layer_[01]/*"], [], {f"layer_{i}/{n}" for i in (0, 1) for n in "ab"}),
    (["*/a"], ["layer_0/*", "layer_2/*"], {"layer_1/a"}),
    (["br[0]"], [], {"br[0]", "br0"}),
    (["br[0]"], ["br0"], {"br[0]"}),
  ):
    result, written = export(prefix, tmp_path, include=include, exclude=exclude)
    assert written.keys() == kept
    assert set(result.reasons.values()) == {"left out by its name"}
  for kwargs, what in (
    ({"include": ["layer_1"]}, "'layer_1' matches no tensor.*layer_1/"),
    ({"exclude": ["x*"]}, r"pattern 'x\*' matches no tensor"),
    ({"exclude": ["*"]}, "leave no tensor"),
    ({"include": "layer_1/*"}, "must be lists of patterns"),
    ({"masters": True}, "has no float32 masters of weights"),
    ({"averages": True}, "has no averages of weights"),
    ({"masters": True, "averages": True}, "exclude each other"),
    ({"reset": True}, r"reset \(--reset\) is an option of saver, sav"),
    ({"mapping": {"a": "b"}}, r"mapping \(--map\) is an option of saver,"),
    ({"to": "saver", "include": ["*"]}, r"include \(--include\) is an opt"),
  ):
    with pytest.raises(checkpoint.CheckpointError, match=what):
      export(prefix, tmp_path, **kwargs)
  assert not list(tmp_path.glob("new*"))


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("name", "value", "to"),
  [
    (b"words", [b"a", b"b"], "npz"),
    (b"words", [b"a", b"b"], "safetensors"),
    (b"half", tf.constant([1.5, 1e30], tf.bfloat16), "npz"),
    (b"a\0b", [2.0], "npz"),
    (b"w.npy", [2.0], "npz"),
    (b"a" * 70_000, [2.0], "npz"),
    (b"__metadata__", [2.0], "safetensors"),
  ],
)
def test_what_a_format_cannot_hold(name, value, to, tmp_path):
  prefix = save_tensors(tmp_path, {b"w": [1.0], name: value})
  with pytest.raises(
    checkpoint.CheckpointError, match="cannot have tensors of such"
  ) as error:
    export(prefix, tmp_path, to)
  assert name.decode()[:9] in str(error.value).replace("\\x00", "\0")
  assert not list(tmp_path.glob("new*"))
  _, written = export(prefix, tmp_path, to, include=["w"])
  assert written.keys() == {"w"}
  if name != b"words":
    other = "safetensors" if to == "npz" else "npz"
    _, written = export(prefix, tmp_path, other)
    want = np.asarray(tf.constant(value))
    # TensorFlow 2.12 has a bfloat16 of its own.
    assert written[name.decode()].dtype.name == want.dtype.name
    assert written[name.decode()].tobytes() == want.tobytes()


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


class _Boosted(_keras2.keras.optimizers.legacy.SGD):
  """An optimizer with a hyperparameter more."""

  def __init__(self):
    super().__init__(0.1)
    self._set_hyper("boost", 2.0)


@pytest.mark.parametrize(
  ("make_optimizer", "is_fixed"),
  [
    (_Boosted, False),
    (_Boosted, True),
    (_keras2.keras.optimizers.legacy.SGD, True),
    (_keras2.keras.optimizers.legacy.Adam, True),
  ],
)
def test_optimizers_without_slots(make_optimizer, is_fixed, tmp_path):
  """Checks Keras's own wrapper with a fixed scale, and before a first step."""
  optimizer = make_optimizer()
  if is_fixed:
    wrap = _keras2.keras.mixed_precision.LossScaleOptimizer
    optimizer = wrap(optimizer, dynamic=False, initial_scale=8.0)
  w = tf.Variable([1.0], name="w")
  _ = optimizer.iterations
  source = tf.train.Checkpoint(w=w, opt=optimizer).save(str(tmp_path / "old"))
  _, written = export(source, tmp_path, "npz")
  assert written.keys() == {"w"}
  api = checkpoint.describe(source).api
  assert api == ("Keras 2.3+" if is_fixed else None)


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


def make(**members):
  """Returns an object; its members, if they are values, as variables."""
  return tf.train.Checkpoint(
    **{
      name: tf.Variable(value, name=name)
      if isinstance(value, (int, float))
      else value
      for name, value in members.items()
    }
  )


def make_policy():
  policy = tfl.policies.GrowthBackoff()
  policy.update([tf.constant(1.0)])
  return policy


# An object, and the values that are kept, by name.
_OBJECTS = {
  "loss scales": (
    lambda: make(w=1.0, a=tfl.DynamicLossScale(), b=make_policy()),
    {"w": 1},
  ),
  "a root that counts": (
    lambda: make(iter=5, part=make(iter=3, bias=2.0)),
    {"iter": 5, "part/iter": 3, "bias": 2},
  ),
  "a layer that counts": (
    lambda: make(part=make(iter=3, momentum=0.5, w=make(b=1.0))),
    {"momentum": 0.5, "b": 1, "iter": 3},
  ),
  "a list called as Keras's metrics": (
    lambda: make(metrics=[tf.Variable(1.0, name="w")]),
    {"w": 1},
  ),
  "equal names": (
    lambda: make(
      a=tf.Variable(0.0, name="kernel"),
      b=make(c=tf.Variable(1.0, name="kernel")),
    ),
    {"a": 0, "b/c": 1},
  ),
  "equal names that are another's path": (
    lambda: make(
      kernel=tf.Variable(1.0, name="w"),
      rec=tf.Variable(2.0, name="w"),
      out=tf.Variable(3.0, name="kernel"),
    ),
    {"kernel": 1, "rec": 2, "out": 3},
  ),
  **{
    f"a layer's {name}": (
      lambda name=name: make(
        part=make(
          kernel=2.0,
          epoch=tf.Variable(7, name="bins"),
          **{name: tf.Variable([1, 1], name="count")},
        ),
        epoch=3,
      ),
      {"kernel": 2, "count": 1, "bins": 7},
    )
    for name in ("iter", "_iterations", "beta1_power", "inner_optimizer")
  },
}


@pytest.mark.any_release
@pytest.mark.parametrize("case", _OBJECTS)
def test_objects_that_users_write(case, tmp_path):
  build, kept = _OBJECTS[case]
  _, written = export(build().save(str(tmp_path / "old")), tmp_path, "npz")
  assert {name: np.max(value) for name, value in written.items()} == kept


@pytest.mark.any_release
@pytest.mark.parametrize("to", ["saver", "weights", "npz"])
def test_a_dry_run_tells_what_the_run_does(to, tmp_path, capsys):
  """Checks the sizes of tensors, also of those that are computed."""
  new = tmp_path / f"new{'.npz' if to == 'npz' else ''}"
  command = ["convert", _SESSION, str(new), f"--to={to}"]
  assert cli.main([*command, "--dry-run"]) == 0
  assert not list(tmp_path.iterdir())
  out = capsys.readouterr().out
  sizes = re.findall(r"^write .*, ([\d,]+) bytes", out, re.MULTILINE)
  total = sum(int(size.replace(",", "")) for size in sizes)
  assert f"not written (dry run); {len(sizes)} tensors, {total:,} bytes" in out
  if to != "saver":
    assert "drop global_step: 8 bytes, counter of steps\n" in out
    assert "drop good_steps: 8 bytes, loss scale\n" in out
    assert "drop w/Adam: 48 bytes, slot of w\n" in out
  assert cli.main(command) == 0
  out = capsys.readouterr().out
  if to != "saver":
    assert re.search(r"dropped: \d+ tensors \(.*\d+ x slot", out)
  if to != "npz":
    data = new.with_name("new.data-00000-of-00001")
    assert data.stat().st_size == total
    with pytest.raises(SystemExit):
      cli.main([*command, "--dry-run"])
    assert "there is a checkpoint already" in capsys.readouterr().err


@pytest.mark.any_release
@pytest.mark.parametrize("to", ["npz", "safetensors"])
def test_only_a_file_of_that_kind_is_replaced(to, tmp_path):
  prefix = save_tensors(tmp_path, {"w": _ONES})
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
  path = tmp_path / "new.safetensors"
  checkpoint.convert(_SESSION, path, "safetensors")
  with safetensors.safe_open(str(path), "numpy") as file:
    metadata = file.metadata()
  assert metadata["source"] == f"{_SESSION}/model.ckpt-10"


@pytest.mark.any_release
def test_a_missing_package(tmp_path, monkeypatch):
  monkeypatch.setitem(__import__("sys").modules, "safetensors.numpy", None)
  with pytest.raises(checkpoint.CheckpointError, match="pip install"):
    checkpoint.convert(_SESSION, tmp_path / "x", "safetensors")
  assert not list(tmp_path.iterdir())
