# SPDX-License-Identifier: Apache-2.0
"""Tests optimizers that wrap others, in the manner of tensorflow_addons.

Their first step is skipped. With Keras's own class, variables that a wrapper
makes in that step are lost in a `tf.function`.
"""

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2

k2 = _keras2.keras
legacy = k2.optimizers.legacy
_X, _Y = np.ones((4, 2), "f"), np.ones((4, 1), "f")


class Each(legacy.Optimizer):
  """Has an optimizer for each layer, as `MultiOptimizer` does.

  It makes its own variable, the number of steps, when it applies gradients.
  """

  def __init__(self, parts):
    super().__init__("Each")
    self.parts = parts

  def apply_gradients(self, grads_and_vars, **kwargs):
    pairs = list(grads_and_vars)
    done = []
    for optimizer, layer in self.parts:
      of_layer = {v.ref() for v in layer.weights}
      chosen = [(g, v) for g, v in pairs if v.ref() in of_layer]
      done.append(optimizer.apply_gradients(chosen, **kwargs))
    if tf.executing_eagerly():
      return self.iterations.assign_add(1)
    with tf.control_dependencies([tf.group(done)]):
      return self.iterations.assign_add(1, read_value=False)

  def get_config(self):
    return {}


class Slow(legacy.Optimizer):
  """Has a slow copy of each weight in a slot, as `Lookahead` does."""

  def __init__(self, inner):
    super().__init__("Slow")
    self.inner = inner

  def _create_hypers(self):
    self.inner._create_hypers()

  def _create_slots(self, var_list):
    self.inner._create_slots(var_list)
    for v in var_list:
      self.add_slot(v, "slow", initializer=v)

  def _prepare(self, var_list):
    return self.inner._prepare(var_list)

  def apply_gradients(self, grads_and_vars, name=None, **kwargs):
    self.inner._iterations = self.iterations
    return super().apply_gradients(grads_and_vars, name, **kwargs)

  def _resource_apply_dense(self, grad, var, apply_state=None):
    done = self.inner._resource_apply_dense(grad, var)
    slow = self.get_slot(var, "slow")
    with tf.control_dependencies([done]):
      mean = (slow + var) / 2
      return tf.group(slow.assign(mean), var.assign(mean))

  def get_config(self):
    return {}


def scaled(optimizer):
  return keras.LossScaleOptimizer(optimizer, tfl.DynamicLossScale(8))


_WRAPPED = {
  "scaled each": lambda a, b: scaled(Each([(Slow(sgd()), a), (sgd(), b)])),
  "each scaled": lambda a, b: Each(
    [(scaled(legacy.Adam()), a), (scaled(sgd()), b)]
  ),
  "scaled slow": lambda a, b: scaled(Slow(legacy.Adam())),
}


def sgd():
  return legacy.SGD(0.125, momentum=0.5)


@pytest.mark.parametrize(
  ("name", "how"),
  helpers.pairs(
    *(_WRAPPED, ("eager", "function", "fit", "jit")),
    # XLA cannot make the variable of the outer wrapper.
    allowed=lambda row: row != ("each scaled", "jit"),
  ),
)
def test_the_first_step_is_skipped(name, how):
  layers = [k2.layers.Dense(2, input_shape=(2,)), k2.layers.Dense(1)]
  model = k2.Sequential(layers)
  optimizer = _WRAPPED[name](*layers)
  scale = getattr(optimizer, "get_scaled_loss", lambda loss: loss * 8)
  unscale = getattr(
    optimizer, "get_unscaled_gradients", lambda grads: [g / 8 for g in grads]
  )

  def step(x, y):
    with tf.GradientTape() as tape:
      loss = scale(tf.reduce_mean((model(x) - y) ** 2))
    variables = model.trainable_variables
    grads = unscale(tape.gradient(loss, variables))
    optimizer.apply_gradients(zip(grads, variables))

  if how == "fit":
    model.compile(optimizer, "mse")
    act = lambda x, y: model.fit(x, y, verbose=0)  # noqa: E731
  elif how == "eager":
    act = step
  else:
    act = tf.function(step, jit_compile=how == "jit")
  before = [w.copy() for w in model.get_weights()]
  act(tf.constant(_X * np.float32(np.inf)), tf.constant(_Y))
  for w, old in zip(model.get_weights(), before):
    np.testing.assert_array_equal(w, old)
  for _ in range(2):
    act(tf.constant(_X), tf.constant(_Y))
  assert int(optimizer.iterations) == 3
  for w, old in zip(model.get_weights(), before):
    assert np.all(np.isfinite(w)) and not np.array_equal(w, old)
  for part in getattr(optimizer, "parts", [(optimizer, None)]):
    if isinstance(part[0], keras.LossScaleOptimizer):
      assert float(part[0].loss_scale) == 4.0
