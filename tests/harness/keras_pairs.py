# SPDX-License-Identifier: Apache-2.0
"""Trains the same variables on Keras 2 and on Keras 3, to compare them."""

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2

k2 = _keras2.keras
HAS_KERAS_3 = helpers.RELEASE >= (2, 16)
KINDS = {"legacy": k2.optimizers.legacy, "new": k2.optimizers}
kinds = pytest.mark.parametrize("kind", list(KINDS))
needs_keras_3 = pytest.mark.skipif(
  not HAS_KERAS_3, reason="Keras 3 comes with 2.16"
)
if HAS_KERAS_3:
  import keras as k3
else:
  k3 = None

_SHAPES = ((3, 4), (4,), ())
_GROWTH = 5


def wrap(optimizer, scale=64.0, growth=_GROWTH):
  """Wraps an optimizer of Keras 2 in a dynamic loss scale."""
  return keras.LossScaleOptimizer(
    optimizer, tfl.DynamicLossScale(scale, growth)
  )


def make_variables(names=("a", "b", "c")):
  """Returns new variables to train on Keras 2: a matrix, a vector, a scalar.

  Two names leave the scalar out.
  """
  random = np.random.RandomState(0)
  return [
    tf.Variable(random.normal(size=shape).astype("f"), name=name)
    for shape, name in zip(_SHAPES, names)
  ]


def copy_variables(variables):
  """Returns Keras 3 variables with the values of Keras 2 variables."""
  return [k3.Variable(variable.numpy()) for variable in variables]


def make_gradients(step):
  """Returns the gradients of a step."""
  random = np.random.RandomState(step)
  return [tf.constant(random.normal(size=s), tf.float32) for s in _SHAPES]


def train2(opt, variables, steps):
  """Trains with unscaled gradients, which Keras 2 expects."""
  for step in steps:
    opt.apply_gradients(zip(make_gradients(step), variables))


def train3(opt, variables, steps):
  """Trains with scaled gradients, which Keras 3 expects."""
  for step in steps:
    scale = opt.dynamic_scale
    pairs = zip(make_gradients(step), variables)
    opt.apply([gradient * scale for gradient, _ in pairs], variables)


def train_some(make, steps=7):
  """Returns a wrapped Keras 2 optimizer and variables, after some steps."""
  opt2, variables = wrap(make()), make_variables()
  train2(opt2, variables, range(steps))
  return opt2, variables


def state_of(opt):
  """Returns the scale, its counter and the steps of an optimizer."""
  if isinstance(opt, _keras2.BaseLossScaleOptimizer):
    own = (opt.loss_scale, opt.dynamic_counter)
  else:
    own = (opt.dynamic_scale, opt.step_counter)
  scale, counter, steps = (
    tf.convert_to_tensor(value).numpy() for value in (*own, opt.iterations)
  )
  return float(scale), int(counter), int(steps)


def assert_close(ones, others, atol=1e-6):
  """Asserts that two lists of variables or arrays have the same values."""
  for one, other in zip(ones, others, strict=True):
    # NumPy 2 warns that `__array__` of a Keras 3 variable takes no `copy`.
    one, other = map(tf.convert_to_tensor, (one, other))
    np.testing.assert_allclose(one.numpy(), other.numpy(), 1e-5, atol)


def take_over(opt2, variables):
  """Converts an optimizer to Keras 3; checks the type and the state.

  Returns:
    The Keras 3 optimizer and its variables.
  """
  news = copy_variables(variables)
  opt3 = keras.to_keras3(opt2, variables=list(zip(variables, news)))
  assert type(opt3) is k3.optimizers.LossScaleOptimizer
  assert state_of(opt3) == state_of(opt2)
  return opt3, news


def assert_agree(opt2, variables, others, steps, atol=1e-6):
  """Asserts that all optimizers agree while they train on.

  Args:
    opt2: The Keras 2 optimizer.
    variables: The variables of `opt2`.
    others: Pairs of a Keras 3 optimizer and its variables.
    steps: The number of steps to run.
    atol: The difference to tolerate between variables.
  """
  first = int(opt2.iterations)
  for step in range(first, first + steps):
    train2(opt2, variables, [step])
    for opt3, news in others:
      train3(opt3, news, [step])
      assert state_of(opt3) == state_of(opt2)
  for _, news in others:
    assert_close(news, variables, atol)
