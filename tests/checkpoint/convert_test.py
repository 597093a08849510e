# SPDX-License-Identifier: Apache-2.0
"""Tests the tensors that conversions change, and mistakes in arguments."""

import functools
import json
import os
import pathlib

from checkpoint_contents import contents
import helpers
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import converting
from tf_compat_lossscale.checkpoint.files import bundle
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1
_SAVER_GOLDENS = sorted(
  path.parent
  for case in ("session", "contrib")
  for path in helpers.GOLDENS.glob(f"tf-*/{case}_*/expected.json")
)
_OBJECT_GOLDENS = sorted(
  pathlib.Path(str(path)[: -len(".index")])
  for pattern in ("*/object/ckpt-1.index", "*/weights/ckpt.index")
  for path in helpers.GOLDENS.glob(f"tf-*/{pattern}")
)
_STATE = {"loss_scale", "current_loss_scale", "good_steps", "bad_steps"}


def name_of(path):
  return str(path.relative_to(helpers.GOLDENS))


@functools.cache
def golden_contents(golden):
  return contents(checkpoint.describe(golden).path)


def pairs(layouts, core=""):
  """Returns (golden, layout) pairs, with each kind of golden in each layout.

  Each golden is in at least one pair. If several releases wrote a kind of
  golden, the releases and the layouts take turns. Pairs whose golden has `core`
  in its name are tested on every release of TensorFlow, other pairs on one.
  """
  kinds = {}
  for path in _SAVER_GOLDENS:
    kinds.setdefault(path.name, []).append(path)
  return [
    pytest.param(
      paths[i % len(paths)],
      layouts[i % len(layouts)],
      id=f"{name_of(paths[i % len(paths)])}-{layouts[i % len(layouts)]}",
      marks=[] if core and core in kind else [pytest.mark.any_release],
    )
    for kind, paths in kinds.items()
    for i in range(max(len(paths), len(layouts)))
  ]


def without_state(tensors):
  """Returns tensors without loss scales, object graph and cond scopes."""
  return {
    key.replace("cond_1/", "").replace("cond/", ""): value
    for key, value in tensors.items()
    if not _STATE & set(key.split("/")) and key != bundle.OBJECT_GRAPH
  }


@pytest.mark.parametrize(("golden", "middle"), pairs(["contrib", "saver-v2"]))
def test_there_and_back(golden, middle, tmp_path):
  before = golden_contents(golden)
  checkpoint.convert(golden, tmp_path / "middle", middle)
  checkpoint.convert(tmp_path / "middle", tmp_path / "back", "saver")
  after = contents(tmp_path / "back")
  assert without_state(after) == without_state(before)
  if "contrib" not in golden.name and "fixed" not in golden.name:
    assert after == before or "v2_behavior" in golden.name
  assert without_state(contents(tmp_path / "middle")) == without_state(before)


@pytest.mark.parametrize(
  ("golden", "layout"),
  pairs(["saver", "saver-v2", "contrib", "fp32"], core="session_dynamic_adam"),
)
def test_names_are_those_of_that_api(golden, layout, tmp_path):
  """Checks that TensorFlow's Saver restores into a model of that API."""
  expected = json.loads((golden / "expected.json").read_text())
  checkpoint.convert(golden, tmp_path / "new", layout)
  d = checkpoint.describe(tmp_path / "new")
  old = checkpoint.describe(golden)
  dynamic = bool(old.loss_scales) and layout != "fp32"
  assert bool(d.loss_scales) == dynamic
  if dynamic:
    assert d.api == ("contrib" if layout == "contrib" else "compat.v1")
    assert d.loss_scales[0].value == old.loss_scales[0].value
    assert d.loss_scales[0].good_steps == old.loss_scales[0].good_steps
  import golden_runner

  kind = {
    "api": "contrib" if layout == "contrib" else "compat.v1",
    "kind": "dynamic" if dynamic else "fixed",
    "increment_period": 3,
  }
  if not dynamic:
    kind["api"] = "compat.v1"
  resource = {"use_resource": layout == "saver-v2"}
  model = expected | kind | resource
  with (
    helpers.control_flow(layout == "saver-v2"),
    tf.Graph().as_default(),
    tf1.Session() as session,
  ):
    golden_runner.Model(model)
    tf1.train.Saver().restore(session, str(tmp_path / "new"))


@pytest.mark.any_release
@pytest.mark.parametrize("path", _OBJECT_GOLDENS, ids=name_of)
def test_objects_without_loss_scale(path, tmp_path):
  done = checkpoint.convert(path, tmp_path / "fp32", "fp32")
  before, after = golden_contents(path), contents(tmp_path / "fp32")
  dropped = {key for key in before if "/loss_scale/" in key}
  assert set(done.dropped) == dropped == set(before) - set(after)
  for key in set(after) - {bundle.OBJECT_GRAPH}:
    assert after[key] == before[key], key
  assert not checkpoint.describe(tmp_path / "fp32").loss_scales


@pytest.mark.parametrize(
  "path",
  [p for p in _OBJECT_GOLDENS if "session" in str(p) and "adam" in str(p)],
  ids=name_of,
)
def test_objects_without_loss_scale_restore(path, tmp_path):
  """Checks that an unwrapped optimizer consumes all values."""
  checkpoint.convert(path, tmp_path / "fp32", "fp32")
  expected = golden_contents(path)
  with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("w", [4, 3], use_resource=True)
    b = tf1.get_variable("b", [3], use_resource=True)
    step = tf1.train.get_or_create_global_step()
    opt = tf1.train.AdamOptimizer(0.01)
    opt.minimize(tf.reduce_sum(w) + tf.reduce_sum(b), step)
    root = tf.train.Checkpoint(optimizer=opt, w=w, b=b, global_step=step)
    status = root.restore(str(tmp_path / "fp32"))
    status.assert_consumed()
    status.initialize_or_restore(session)
    for value, key in (
      (
        (w, "w"),
        (opt.get_slot(w, "v"), "w/.OPTIMIZER_SLOT/optimizer/base_optimizer/v"),
        (opt._beta1_power, "optimizer/base_optimizer/beta1_power"),
      )
      if hasattr(opt, "_beta1_power")
      else (
        (w, "w"),
        (opt.get_slot(w, "v"), "w/.OPTIMIZER_SLOT/optimizer/base_optimizer/v"),
      )
    ):
      data = session.run(value).tobytes()
      assert data == expected[f"{key}/.ATTRIBUTES/VARIABLE_VALUE"][2]


@pytest.mark.any_release
@pytest.mark.parametrize(
  "path", [p for p in _OBJECT_GOLDENS if "keras" in str(p)], ids=name_of
)
def test_keras2(path, tmp_path):
  checkpoint.convert(path, tmp_path / "new", "keras2")
  d = checkpoint.describe(tmp_path / "new")
  old = checkpoint.describe(path)
  assert d.kind == "object" and not any("base_opt" in key for key in d.keys)
  assert d.loss_scales == old.loss_scales and d.step == old.step
  before = {k: v for k, v in golden_contents(path).items() if k[0] != "_"}
  after = {k: v for k, v in contents(tmp_path / "new").items() if k[0] != "_"}
  assert {
    k.replace("base_optimizer/", ""): v for k, v in before.items()
  } == after


def restore_by_keras():
  """Restores checkpoints in a process in which `tf.keras` is Keras 2."""
  keras = tf.keras
  for path in json.loads(os.environ["CHECKPOINTS"]):
    model = keras.Sequential(
      [keras.layers.InputLayer((4,)), keras.layers.Dense(3, name="dense")]
    )
    optimizer = keras.mixed_precision.LossScaleOptimizer(
      keras.optimizers.legacy.Adam(0.5), initial_scale=2.0
    )
    status = tf.train.Checkpoint(model=model, optimizer=optimizer).restore(path)
    grads = [tf.zeros_like(v) for v in model.trainable_variables]
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    status.assert_consumed()
    assert float(optimizer.loss_scale) == 16384.0
    assert int(optimizer.iterations) == 11


@pytest.mark.thorough
def test_keras_itself_restores_that(tmp_path):
  golden = helpers.GOLDENS / "tf-2.0.4" / "keras_dynamic_adam"
  path = golden / "object" / "ckpt-1"
  from_objects, from_names = str(tmp_path / "objects"), str(tmp_path / "new")
  checkpoint.convert(path, from_objects, "keras2")
  with helpers.control_flow(False), tf.Graph().as_default():
    with tf1.variable_scope("dense"):
      kernel = tf1.get_variable("kernel", [4, 3])
      bias = tf1.get_variable("bias", [3])
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale(2.0**14)
    )
    step = tf1.train.get_or_create_global_step()
    opt.minimize(tf.reduce_sum(kernel) + tf.reduce_sum(bias), step)
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      session.run(step.assign(10))
      names = tf1.train.Saver().save(session, str(tmp_path / "names"))
  checkpoint.convert(names, from_names, "keras2", template=path)
  new, old = contents(from_names), contents(names)
  key = "model/layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE"
  assert new[key] == old["dense/kernel"]
  helpers.run_alone(
    restore_by_keras,
    CHECKPOINTS=json.dumps([from_objects, from_names]),
    **helpers.KERAS_2,
  )


@pytest.mark.any_release
@pytest.mark.parametrize(
  "path", [p for p in _OBJECT_GOLDENS if "session" in str(p)], ids=name_of
)
def test_names_into_objects(path, tmp_path):
  """Checks that names converted back into objects give the same tensors."""
  before = golden_contents(path)
  checkpoint.convert(path, tmp_path / "names", "saver")
  done = checkpoint.convert(
    tmp_path / "names", tmp_path / "objects", "object", template=path
  )
  after = contents(tmp_path / "objects")
  assert after == before
  counter = "save_counter/.ATTRIBUTES/VARIABLE_VALUE"
  assert done.added == (counter,) and not done.dropped
  assert checkpoint.describe(tmp_path / "names").kind == "saver"


@pytest.mark.parametrize(("golden", "reset"), pairs([False, True]))
def test_the_scale_is_set(golden, reset, tmp_path):
  how = {"reset": True} if reset else {"set_loss_scale": 2.0**20}
  done = checkpoint.convert(golden, tmp_path / "new", "saver", **how)
  (state,) = checkpoint.describe(tmp_path / "new").loss_scales
  assert state.value == (2.0**15 if reset else 2.0**20)
  assert state.good_steps == 0
  assert {name.split("/")[-1] for name in done.changed} <= _STATE
  before = without_state(golden_contents(golden))
  assert without_state(contents(tmp_path / "new")) == before


@pytest.mark.any_release
@pytest.mark.parametrize("layout", ["object", "keras2"])
def test_the_scale_of_objects_is_set(layout, tmp_path):
  golden = helpers.GOLDENS / "tf-2.0.4" / "keras_dynamic_adam"
  new = tmp_path / "new"
  checkpoint.convert(golden / "object/ckpt-1", new, layout, set_loss_scale=4)
  (state,) = checkpoint.describe(new).loss_scales
  assert (state.value, state.good_steps) == (4.0, 0)


_SESSION = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"
_OBJECTS = _SESSION / "object" / "ckpt-1"
_KERAS = helpers.GOLDENS / "tf-2.8.4" / "keras_policy_model"


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("source", "arguments", "what"),
  [
    (_SESSION, ["--to=savers"], "'savers' is no layout; there are saver, sav"),
    (_SESSION, [], "required: --to"),
    (_SESSION, ["--to=object"], "give a template"),
    (_SESSION, ["--to=keras2"], "give a template"),
    (_SESSION, ["--to=saver", "--set-loss-scale=0"], "at least 1"),
    (_SESSION, ["--to=saver", "--set-loss-scale=nan"], "at least 1"),
    (_SESSION, ["--to=saver", "--set-loss-scale=x"], "invalid float"),
    (_SESSION, ["--to=saver", "--set-loss-scale=2", "--reset"], "not allowed"),
    (_SESSION, ["--to=fp32", "--reset"], "fp32 has no loss scale"),
    (_SESSION, ["--to=saver", "--template=x"], "needs no template"),
    (_SESSION, ["--to=object", "--template=nowhere"], "nowhere: no such"),
    (_SESSION, ["--to=object", f"--template={_SESSION}"], "object-based"),
    (_OBJECTS, ["--to=keras2"], "no optimizer in it is Keras's"),
    (
      _SESSION,
      ["--to=object", f"--template={_KERAS / 'weights/ckpt'}"],
      "dense/kernel",
    ),
    (
      helpers.GOLDENS / "tf-2.8.4/keras_fixed_sgd/object/ckpt-1",
      ["--to=object", "--reset"],
      "no optimizer in it has a dynamic loss scale",
    ),
    ("nowhere", ["--to=fp32"], "nowhere: no such checkpoint"),
  ],
)
def test_mistakes(source, arguments, what, tmp_path, capsys):
  with pytest.raises(SystemExit) as exit_:
    cli.main(["convert", str(source), str(tmp_path / "new"), *arguments])
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith("tf-lossscale convert: ") and what in line, line
  assert not list(tmp_path.iterdir())


@pytest.mark.any_release
def test_counters_that_contrib_cannot_hold(tmp_path):
  with tf.Graph().as_default(), tf1.Session() as session:
    scale = tfl.DynamicLossScale()
    session.run([v.initializer for v in scale._weights.values()])
    session.run(scale.good_steps.assign(2**31))
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  with pytest.raises(checkpoint.CheckpointError, match="int32"):
    checkpoint.convert(path, tmp_path / "new", "contrib")


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("mapping", "what"),
  [
    ({"scale": "current_loss_scal"}, "nearest: current_loss_scale.*not in it"),
    ({"a": "good_steps", "b": "good_steps"}, "'good_steps' for 'b'.*twice"),
    ({"dense/kernel": None}, "not in it"),
  ],
)
def test_mappings_that_do_not_fit(mapping, what, tmp_path):
  with pytest.raises(checkpoint.CheckpointError, match=what):
    checkpoint.convert(_SESSION, tmp_path / "new", "saver", mapping=mapping)
  assert not list(tmp_path.iterdir())


@pytest.mark.any_release
@pytest.mark.parametrize("layout", ["saver", "contrib"])
@pytest.mark.parametrize("contrib_first", [False, True])
def test_scales_of_two_apis_are_numbered_as_they_were_made(
  contrib_first, layout, tmp_path
):
  with tf.Graph().as_default(), tf1.Session() as session:
    made = [
      lambda inner: tfl.MixedPrecisionLossScaleOptimizer(
        inner, tfl.DynamicLossScale(8.0)
      ),
      lambda inner: tfl.contrib.LossScaleOptimizer(
        inner, tfl.contrib.ExponentialUpdateLossScaleManager(32.0, 100)
      ),
    ]
    for i, wrap in enumerate(made[::-1] if contrib_first else made):
      weight = tf1.get_variable(f"weight{i}", initializer=1.0)
      opt = wrap(tf1.train.GradientDescentOptimizer(0.1))
      opt.apply_gradients(opt.compute_gradients(weight * weight, [weight]))
    session.run(tf1.global_variables_initializer())
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  checkpoint.convert(path, tmp_path / "new", layout)
  reader = tf.train.load_checkpoint(str(tmp_path / "new"))
  name = "loss_scale" if layout == "contrib" else "current_loss_scale"
  found = [reader.get_tensor(each) for each in (name, f"{name}_1")]
  assert found == ([32.0, 8.0] if contrib_first else [8.0, 32.0])


@pytest.mark.any_release
def test_layouts_are_those_of_the_command_line(capsys):
  with pytest.raises(SystemExit):
    cli.main(["convert", "--help"])
  help_ = capsys.readouterr().out
  for layout in converting.LAYOUTS:
    assert layout in help_


@pytest.mark.any_release
def test_setting_leaves_the_variables_of_a_subclass(tmp_path):
  """Checks that a user's own `LossScale` keeps its further variables."""

  class Mine(tfl.DynamicLossScale):
    def __init__(self):
      super().__init__(2.0**10)
      self.weight = self._add_weight("weight", 3.0, tf.float32)

  with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("w", [], use_resource=True)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.MomentumOptimizer(0.1, 0.9), Mine()
    )
    opt.minimize(lambda: w * w, var_list=[w])
    session.run(tf1.global_variables_initializer())
    with session.as_default():
      path = tf.train.Checkpoint(opt=opt, w=w).save(str(tmp_path / "old"))
  new = checkpoint.convert(path, tmp_path / "new", "object", set_loss_scale=4)
  (weight,) = (n for n in checkpoint.describe(path).keys if "/weight/" in n)
  assert bundle.Bundle(str(tmp_path / "new")).read_scalar(weight) == 3
  assert weight not in new.changed and len(new.changed) == 2


if __name__ == "__main__":
  helpers.main()
