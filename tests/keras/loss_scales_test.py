# SPDX-License-Identifier: Apache-2.0
"""Tests Keras 2's optimizer with loss scales that Keras's own cannot have.

A rule in plain Python is the oracle; where Keras's own class can do the same,
that class is.
"""

import growth_backoff_oracle
import helpers
from keras_trainers import KINDS as _KINDS
from keras_trainers import kinds
from keras_trainers import take_step
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import keras
from tf_compat_lossscale import policies
from tf_compat_lossscale.keras import _keras2

k2 = _keras2.keras
_BOUNDED = {
  "initial_loss_scale": 2.0**-3,
  "growth_interval": 2,
  "min_loss_scale": 2.0**-5,
  "max_loss_scale": 2.0**-2,
}


class Counting(tfl.DynamicLossScale):
  """Overrides `update`, and counts its calls."""

  calls = 0

  def update(self, grads):
    type(self).calls += 1
    return super().update(grads)


class Falling(tfl.LossScale):
  """A loss scale of a program's own, in the manner of TensorFlow 2.3."""

  def __init__(self, first=64.0):
    super().__init__()
    self._first = first
    self._add_weight("value", first, tf.float32)

  def __call__(self):
    return tf.convert_to_tensor(self._get_weight("value"))

  def update(self, grads):
    finite = tfl.gradients.all_replicas_finite(grads)
    value = self._get_weight("value")
    return value.assign(value * tf.where(finite, 1.0, 0.25)), finite

  def get_config(self):
    return {"first": self._first}


class Skipping(tfl.FixedLossScale):
  """A fixed scale whose `update` skips steps."""

  def update(self, grads):
    return None, tfl.gradients.all_replicas_finite(grads)


_CLASSES = {cls.__name__: cls for cls in (Counting, Falling, Skipping)}


def dynamic_rule(multiplier=2.0, interval=2):
  """Returns a function that does a step of `DynamicLossScale`'s rule."""

  def step(state, finite):
    scale, good = state
    if not finite:
      return max(scale / multiplier, 1.0), 0
    if good + 1 < interval:
      return scale, good + 1
    return scale * multiplier, 0

  return step


def bounded_rule(state, finite):
  scale, good = state
  start = growth_backoff_oracle.State(scale, good)
  after = growth_backoff_oracle.Rule(**_BOUNDED).step(start, finite)
  return after.current_loss_scale, after.good_steps


# A maker of a loss scale, and its rule: (scale, good steps) after a step.
_RULES = {
  "multiplier": (lambda: tfl.DynamicLossScale(64, 2, 4), dynamic_rule(4.0)),
  "bounded": (lambda: policies.GrowthBackoff(**_BOUNDED), bounded_rule),
  "counting": (lambda: Counting(64, 2), dynamic_rule()),
  "falling": (
    Falling,
    lambda state, finite: (state[0] * (1 if finite else 0.25), 0),
  ),
  "skipping": (lambda: Skipping(8), lambda state, _: state),
}
rules = pytest.mark.parametrize("rule", list(_RULES))
# With `bounded`, the scale is at both bounds once.
_FACTORS = (1, 1, 1, 1, np.inf, np.nan, np.inf, np.inf, np.inf, 1, 1, 1)


def step_of(opt, w):
  return lambda factor: take_step(
    opt, lambda: tf.reduce_sum(w * w) * factor, [w]
  )


def value_of(variable):
  return (
    tf.distribute.get_strategy().experimental_local_results(variable)[0].numpy()
  )


@pytest.mark.parametrize("how", ["eager", "function", "jit", "replicas"])
@rules
@kinds
def test_the_rule_is_that_of_the_loss_scale(kind, rule, how):
  make, rule = _RULES[rule]
  strategy = tf.distribute.get_strategy()
  if how == "replicas":
    strategy = helpers.two_replicas()
  with strategy.scope():
    loss_scale = make()
    opt = keras.LossScaleOptimizer(_KINDS[kind].SGD(0.125), loss_scale)
    w = tf.Variable([1.0, 2.0])
  step = step_of(opt, w)
  wraps = {
    "function": lambda: tf.function(step),
    "jit": lambda: tf.function(step, jit_compile=True),
    "replicas": lambda: tf.function(lambda x: strategy.run(step, (x,))),
  }
  act = wraps[how]() if how in wraps else step
  Counting.calls = 0
  state, value = (float(opt.loss_scale), 0), np.array([1.0, 2.0], "f")
  assert state[0] == float(loss_scale())
  for i, factor in enumerate(_FACTORS):
    act(tf.constant(factor, tf.float32))
    finite = bool(np.isfinite(factor))
    state = rule(state, finite)
    if finite:
      value -= 0.125 * 2 * value * strategy.num_replicas_in_sync
    assert float(opt.loss_scale) == state[0], i
    if opt.dynamic_counter is not None:
      assert int(value_of(opt.dynamic_counter)) == state[1], i
    with strategy.scope():
      np.testing.assert_array_equal(value_of(w), value)
      assert int(value_of(opt.iterations)) == i + 1
    if how == "eager":
      assert bool(opt.last_step_applied) == finite
      assert Counting.calls == (i + 1) * isinstance(loss_scale, Counting)


@rules
@kinds
def test_fit_with_a_policy_and_files(kind, rule, tmp_path):
  make, step = _RULES[rule]
  keras.set_policy(keras.Policy("float32", make()))
  try:
    model = k2.Sequential([k2.layers.Dense(1, input_shape=(2,))])
  finally:
    keras.set_policy(None)
  model.compile(_KINDS[kind].SGD(0.01), "mse")
  opt = model.optimizer
  assert type(opt).__mro__[1] is keras.LossScaleOptimizer
  state = (float(opt.loss_scale), 0)
  for factor in (1, 1, np.inf, 1):
    model.fit(np.full((2, 2), factor, "f"), np.ones((2, 1)), verbose=0)
    state = step(state, bool(np.isfinite(factor)))
    assert float(opt.loss_scale) == state[0]
  path = str(tmp_path / "saved")
  model.save(path, save_format="tf", save_traces=False)
  loaded = keras.load_model(path, custom_objects=_CLASSES).optimizer
  assert isinstance(loaded, keras.LossScaleOptimizer)
  assert loaded.get_config() == opt.get_config()
  assert float(loaded.loss_scale) == state[0]
  assert int(loaded.iterations) == 4
  model.save(str(tmp_path / "model.h5"))
  again = keras.load_model(str(tmp_path / "model.h5"), _CLASSES).optimizer
  assert again.get_config() == opt.get_config()
  assert float(again.loss_scale) == float(make()())


@rules
@kinds
def test_configs_and_checkpoints(kind, rule, tmp_path):
  make, _ = _RULES[rule]
  opt, again = (
    keras.LossScaleOptimizer(_KINDS[kind].SGD(0.125), make()) for _ in range(2)
  )
  w = tf.Variable([1.0, 2.0])
  for factor in (1.0, np.inf):
    step_of(opt, w)(factor)
  path = tf.train.Checkpoint(opt=opt).write(str(tmp_path / "c"))
  step_of(again, w)(1.0)
  tf.train.Checkpoint(opt=again).read(path).assert_consumed()
  assert float(again.loss_scale) == float(opt.loss_scale)
  if type(make()) not in _CLASSES.values():
    return
  config = opt.get_config()
  with pytest.raises(ValueError, match="custom_objects="):
    keras.LossScaleOptimizer.from_config(config)
  with pytest.raises(ValueError, match="custom_objects="):
    keras.Policy.from_config(keras.Policy("float32", make()).get_config())


@kinds
@pytest.mark.parametrize(
  ("loss_scale", "expected"),
  [
    ("dynamic", (True, 2**15, 2000, 0)),
    (8, (False, 8, None, None)),
    (np.float32(8.5), (False, 8.5, None, None)),
    (tfl.FixedLossScale(16), (False, 16, None, None)),
    (tfl.DynamicLossScale(8, 3, 4), (True, 8, 3, 0)),
    (helpers.OWN.FixedLossScale(16), (False, 16, None, None)),
    (helpers.OWN.DynamicLossScale(4, 3), (True, 4, 3, 0)),
    (
      {"class_name": "FixedLossScale", "config": {"loss_scale_value": 4}},
      (False, 4, None, None),
    ),
    (tfl.DynamicLossScale(32, 7).get_config(), (True, 32, 7, 0)),
    (policies.GrowthBackoff(**_BOUNDED), (True, 2**-3, 2, 0)),
    (Skipping(8), (True, 8, None, None)),
    (Falling(), (True, None, None, None)),
  ],
)
def test_attributes(kind, loss_scale, expected):
  opt = keras.LossScaleOptimizer(_KINDS[kind].SGD(), loss_scale)
  counter = None if opt.dynamic_counter is None else int(opt.dynamic_counter)
  initial, growth = opt.initial_scale, opt.dynamic_growth_steps
  assert (opt.dynamic, initial, growth, counter) == expected


@kinds
def test_a_stuck_run_names_its_gradients(kind):
  loss_scale = policies.GrowthBackoff(1, at_minimum="raise")
  opt = keras.LossScaleOptimizer(_KINDS[kind].SGD(), loss_scale)
  good, bad = tf.Variable(1.0, name="good"), tf.Variable(1.0, name="bad")
  pairs = [(None, good), (tf.constant(1.0), good), (tf.constant(np.inf), bad)]
  with pytest.raises(tf.errors.InvalidArgumentError, match=r"fault: bad\."):
    opt.apply_gradients(pairs[1:])
  assert int(loss_scale.skipped_steps) == 0


@kinds
@pytest.mark.parametrize("traced", [False, True])
def test_the_largest_scales_train(kind, traced):
  opt = keras.LossScaleOptimizer(
    _KINDS[kind].SGD(1.0), tfl.DynamicLossScale(2.0**125, 1)
  )
  w = tf.Variable(0.0)
  tiny = 2.0**-20

  def step():
    take_step(opt, lambda: w * tiny, [w])

  step = tf.function(step) if traced else step
  for i in range(4):
    step()
    assert float(w) == -(i + 1) * tiny
  assert float(opt.loss_scale) == 2.0**127
