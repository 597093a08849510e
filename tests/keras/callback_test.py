# SPDX-License-Identifier: Apache-2.0
"""Tests LossScaleCallback: what it logs, writes, and does not change."""

import collections
import logging
import random

import helpers
from keras_trainers import KINDS as _KINDS
from keras_trainers import kinds
from keras_trainers import optimizer_of
from keras_trainers import state_of_optimizer
import numpy as np
import processes
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import keras
from tf_compat_lossscale import monitoring
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _loss_scales

k2 = _keras2.keras
_NAMES = {
  False: "not finite: a/kernel, a/bias, b/kernel, b/bias",
  True: "the gradients at fault are not known",
}


def lines_of(caplog):
  """Returns the lines of the log so far, and empties it."""
  lines = [x.getMessage() for x in caplog.records if x.name == "absl"]
  caplog.clear()
  return lines


def model_of(kind, own=False, **how):
  layers = [k2.layers.Dense(2, name="a"), k2.layers.Dense(1, name="b")]
  model = k2.Sequential([k2.layers.InputLayer((2,)), *layers])
  opt = _KINDS[kind].Adam(0.01)
  if own:
    opt = k2.mixed_precision.LossScaleOptimizer(opt, dynamic_growth_steps=4)
  else:
    opt = keras.LossScaleOptimizer(opt, tfl.DynamicLossScale(2**15, 4))
  model.compile(opt, "mse", **how)
  return model


def fit(model, bad, callbacks=(), epochs=1, steps=12):
  x = np.linspace(0, 1, steps * 4, dtype="f").reshape(steps, 4)
  x[list(bad)] = np.inf
  x, how = x.reshape(-1, 2), {"batch_size": 2, "shuffle": False, "verbose": 0}
  return model.fit(x, x[:, :1], callbacks=[*callbacks], epochs=epochs, **how)


@kinds
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
  "how", ["", "replicated", "run_eagerly", "jit_compile", "steps_per_execution"]
)
def test_fit(kind, own, how, tmp_path, caplog):
  caplog.set_level(logging.INFO, logger="absl")
  strategy = tf.distribute.get_strategy()
  with (helpers.two_replicas() if how == "replicated" else strategy).scope():
    arguments = {} if how in ("", "replicated") else {how: True}
    arguments = {how: 3} if how == "steps_per_execution" else arguments
    model = model_of(kind, own, **arguments)
  fit(model, (2, 5), [keras.LossScaleCallback(tmp_path, every_n_steps=4)])
  lines = ["Step 3 was", "Step 6 was", "Step 10"]
  if how == "steps_per_execution":
    lines = ["1 of steps 1 to 3 were", "1 of steps 4 to 6 were", "Step 12"]
  assert lines_of(caplog) == [
    f"{lines[0]} skipped; loss scale 32768 -> 16384; {_NAMES[own]}.",
    f"{lines[1]} skipped; loss scale 16384 -> 8192; {_NAMES[own]}.",
    f"{lines[2]}: loss scale 8192 -> 16384.",
  ]
  rows = helpers.read_scalars(tmp_path)
  changes = {0: 2**15, 3: 2**14, 6: 2**13, int(lines[2].split()[1]): 2**14}
  assert changes.items() <= {i: row["value"] for i, row in rows.items()}.items()
  assert "steps" in how or {8, 12} <= rows.keys()
  last = {"skipped_total": 2, "good_steps": 2}
  assert max(rows) == 12 and last.items() <= rows[12].items()
  assert rows[12]["skipped_rate"] == pytest.approx(1 / 6)


@kinds
@pytest.mark.parametrize("mode", ["eager", "function", "replicas"])
def test_own_loops_name_the_gradients(kind, mode, caplog):
  strategy = tf.distribute.get_strategy()
  strategy = helpers.two_replicas() if mode == "replicas" else strategy
  with strategy.scope():
    variables = [tf.Variable(1.0, name=name) for name in "uvw"]
    opt = keras.LossScaleOptimizer(_KINDS[kind].SGD(0.1), "dynamic")

  def apply(*grads):
    index = tf.distribute.get_replica_context().replica_id_in_sync_group
    if int(tf.get_static_value(index)) == 1:  # The first alone has bad ones.
      grads = [one] * 3
    opt.apply_gradients(list(zip(grads, variables)))

  def step(*factors):
    strategy.run(apply, [tf.convert_to_tensor(x) for x in factors])

  step = step if mode == "eager" else tf.function(step)
  callback = keras.LossScaleCallback(on_stuck="stop", patience=2)
  one, bad = tf.constant(1.0), tf.constant(np.nan)
  assert not callback.after_step(opt)
  opt.get_scaled_loss(one)
  stops = []
  for factors in (
    (one, bad, one),
    (one,) * 3,
    (bad, one, bad),
    (one, bad, bad),
  ):
    step(*factors)
    stops.append(callback.after_step(opt))
  callback.close()
  assert stops == [False, False, False, True]
  moved = 0.1 * strategy.num_replicas_in_sync  # By the second step alone.
  np.testing.assert_allclose([v.numpy() for v in variables], 1 - moved, 1e-6)
  *skips, stuck = lines_of(caplog)
  assert [x[: x.index(";")] for x in skips] == [
    f"Step {i} was skipped" for i in (1, 3, 4)
  ]
  ends = "finite: v.", "finite: u, w.", "finite: v, w."
  assert all(map(str.endswith, skips, ends))
  assert "the last 2 steps were skipped, up to step 4" in stuck


@pytest.mark.parametrize("own", [False, True])
def test_stuck(own, caplog):
  stop = keras.LossScaleCallback(on_stuck="stop", patience=3)
  model = model_of("new", own)
  assert len(fit(model, range(12), [stop], epochs=2).epoch) == 1
  assert int(model.optimizer.iterations) == 3
  assert "stuck: the last 3 steps" in lines_of(caplog)[3]
  # At its floor, the scale does not change.
  model.optimizer.loss_scale  # noqa: B018
  fails = keras.LossScaleCallback(on_stuck="raise", patience=20)
  with pytest.raises(monitoring.StuckError, match="the last 20 steps"):
    fit(model, range(24), [fails], steps=24)


def test_steps_that_iterations_does_not_count(caplog):
  model = model_of("legacy")
  for variable, value in keras.LossScaleOptimizer.stop_counting_skips(
    model.optimizer
  ):
    variable.assign(value)
  fit(model, (2, 5), [keras.LossScaleCallback()])
  assert int(model.optimizer.iterations) == 10
  first, second = lines_of(caplog)
  assert first.startswith("Step 3 was") and second.startswith("Step 6 was")


@pytest.mark.parametrize("seed", range(20))
def test_training_is_the_same(seed, tmp_path):
  rng = random.Random(seed)
  kind, steps = rng.choice(list(_KINDS)), rng.choice([1, 1, 2, 3])
  bad = rng.sample(range(12), rng.randrange(5))
  how = {"steps_per_execution": steps, "jit_compile": rng.random() < 0.2}
  how |= {"run_eagerly": True} if rng.random() < 0.2 and steps == 1 else {}
  results = []
  for callbacks in ([], [keras.LossScaleCallback(tmp_path, 2, patience=2)]):
    k2.utils.set_random_seed(seed)
    model = model_of(kind, **how)
    losses = fit(model, bad, callbacks, epochs=2).history["loss"]
    state = state_of_optimizer(model.optimizer)
    results.append([losses, model.get_weights(), state])
  without, with_callback = map(tf.nest.flatten, results)
  for one, other in zip(without, with_callback, strict=True):
    np.testing.assert_array_equal(one, other)


@kinds
def test_a_good_step_does_nothing_more(kind, monkeypatch):
  """All ops that keep a note are in the branch of a skipped step."""

  def ops():
    v = tf.Variable([1.0])
    opt = keras.LossScaleOptimizer(_KINDS[kind].SGD(0.1), "dynamic")
    step = tf.function(lambda: opt.apply_gradients([(v * 2, v)]) and None)
    graph = step.get_concrete_function().graph
    return collections.Counter(op.type for op in graph.get_operations())

  with_notes = ops()
  monkeypatch.setattr(_loss_scales.SkipNotes, "write", lambda *_: None)
  assert with_notes - ops() == {"Placeholder": 1}  # The variable's handle.


@kinds
def test_a_saved_step_can_be_skipped(kind, tmp_path):
  """A SavedModel has the notes and rules that its functions use."""
  model = tf.Module()
  model.v, model.opt = tf.Variable(1.0), optimizer_of(kind, 64.0)
  shapes = [tf.TensorSpec([])]

  def step(grad):
    model.opt.apply_gradients([(grad, model.v)])
    return model.opt.loss_scale()

  model.step = tf.function(step, input_signature=shapes)
  model.step(1.0)
  tf.saved_model.save(model, str(tmp_path))
  loaded = tf.saved_model.load(str(tmp_path))
  factors = (np.inf, np.nan, 1.0)
  expected = [(float(model.step(x)), float(model.v)) for x in factors]
  results = [(float(loaded.step(x)), float(loaded.v)) for x in factors]
  assert results == expected and expected[1][0] == 16


def test_errors():
  model = model_of("new")
  model.compile("sgd", "mse")
  with pytest.raises(ValueError, match="has no loss scale"):
    fit(model, (), [keras.LossScaleCallback()])
  with pytest.raises(ValueError, match="on_stuck"):
    keras.LossScaleCallback(on_stuck="halt")
  opt = model_of("new").optimizer
  after_step = keras.LossScaleCallback().after_step
  with tf.Graph().as_default(), pytest.raises(RuntimeError, match="in a graph"):
    after_step(opt)


def keras_3():
  import keras as k3

  for cls in (k3.optimizers.LossScaleOptimizer, keras.Keras3LossScaleOptimizer):
    model = k3.Sequential([k3.Input((2,)), k3.layers.Dense(1)])
    opt = cls(k3.optimizers.Adam(0.01), dynamic_growth_steps=4)
    model.compile(opt, "mse", jit_compile=False)
    callback, seen = keras.LossScaleCallback(), []
    callback._log.add = lambda x, seen=seen: seen.append(x)
    fit(model, (2, 5), [callback])
    skipped = [i for i, x in enumerate(seen) if x.skipped]
    assert skipped == [2, 5] and sum(x.steps for x in seen) == 12, seen
    assert {x.culprits for x in seen} == {None} and seen[-1].scale == 2**14


@helpers.NEEDS_KERAS_3
def test_keras_3():
  processes.run_alone(keras_3, **helpers.KERAS_3)
