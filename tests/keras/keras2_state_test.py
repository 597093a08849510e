# SPDX-License-Identifier: Apache-2.0
"""Tests that `to_keras3` reads the state of all loss scales, or refuses."""

import helpers
from keras_pairs import k2
from keras_pairs import k3
from keras_pairs import needs_keras_3
from keras_pairs import state_of
from keras_pairs import wrap
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import keras

_INF = float("inf")


@needs_keras_3
@pytest.mark.parametrize(
  ("counter", "growth", "expected", "in_function"),
  [
    (0, 5, 0, False),
    (4, 5, 4, True),
    (5, 5, 4, False),
    (7, 5, 4, False),
    (0, 1, 0, False),
    (2**24 + 1, 2**25, 2**24 + 1, False),
    (2**40 + 1, 2**41, 2**40 + 1, True),
    (np.int64(3), np.float32(5), 3, False),
  ],
)
def test_counters(counter, growth, expected, in_function):
  given = {"loss_scale": 8, "good_steps": counter, "growth_steps": growth}
  opt = keras.to_keras3(
    {**given, "iterations": 2**31 + 1}, optimizer=k3.optimizers.SGD(0.25)
  )
  v = k3.Variable([1.0])
  opt.build([v])
  assert int(opt.step_counter) == expected

  def apply(gradient):
    opt.apply([gradient], [v])

  apply = tf.function(apply) if in_function else apply
  apply(tf.constant([8.0]))
  grows = expected == int(growth) - 1
  assert state_of(opt) == (
    (16.0, 0, 2**31 + 2) if grows else (8.0, expected + 1, 2**31 + 2)
  )


@needs_keras_3
@pytest.mark.parametrize(
  ("change", "what"),
  [
    *(
      ({"loss_scale": bad}, "loss_scale must be above 0")
      for bad in (0, -1, _INF, float("nan"), True, "8", None, 1e60)
    ),
    *(
      ({"good_steps": bad}, "good_steps must be")
      for bad in (-1, 0.5, float("nan"), True, "2", 2**64, tf.constant(True))
    ),
    *(({"growth_steps": bad}, "growth_steps must") for bad in (0, -1, 1.5)),
    *(({"iterations": bad}, "iterations must be") for bad in (-1, 0.5, True)),
    ({"goodsteps": 1}, "'goodsteps' too many"),
  ],
)
def test_dicts_that_are_wrong(change, what):
  sgd = k3.optimizers.SGD(0.25)
  with pytest.raises(ValueError, match=what):
    keras.to_keras3({"loss_scale": 8, "good_steps": 1} | change, optimizer=sgd)


@needs_keras_3
def test_dicts_of_scalars():
  with pytest.raises(ValueError, match="'good_steps' too few"):
    keras.to_keras3({"loss_scale": 8}, optimizer=k3.optimizers.SGD(0.25))
  for make in (np.float32, np.array, tf.constant, tf.Variable):
    opt = keras.to_keras3(
      {
        "loss_scale": make(8.0),
        "good_steps": make(3.0),
        "iterations": make(4.0),
      },
      optimizer=k3.optimizers.SGD(0.25),
    )
    opt.build([k3.Variable([1.0])])
    assert state_of(opt) == (8.0, 3, 4)


@needs_keras_3
def test_an_optimizer_that_has_trained_keeps_its_own():
  sgd, v = k3.optimizers.SGD(0.25), k3.Variable([1.0])
  for _ in range(3):
    sgd.apply([tf.constant([1.0])], [v])
  given = {"loss_scale": 8, "good_steps": 1, "iterations": 9}
  opt = keras.to_keras3(given, optimizer=sgd)
  opt.apply([tf.constant([8.0])], [v])
  assert state_of(opt) == (8.0, 2, 4) and float(v[0]) == 0.0


@needs_keras_3
def test_accumulated_gradients():
  sgd = k3.optimizers.SGD(0.25, gradient_accumulation_steps=2)
  given = {"loss_scale": 8, "good_steps": 1, "iterations": 9}
  assert int(keras.to_keras3(given, optimizer=sgd).iterations) == 9


@needs_keras_3
def test_what_else_has_a_loss_scale():
  def v1():
    return tf.compat.v1.train.GradientDescentOptimizer(0.1)

  managers = [
    contrib.ExponentialUpdateLossScaleManager(8, 4, 1, 2, 0.5) for _ in "ab"
  ]
  scales = [tfl.DynamicLossScale(8, 4) for _ in "ab"]
  for manager in managers:
    manager.update_loss_scale(True)
  for scale in scales:
    scale.update([tf.constant(1.0)])
  for given in (
    managers[0],
    contrib.LossScaleOptimizer(v1(), managers[1]),
    scales[0],
    tfl.MixedPrecisionLossScaleOptimizer(v1(), scales[1]),
  ):
    with pytest.raises(ValueError, match="optimizer="):
      keras.to_keras3(given)
    opt = keras.to_keras3(given, optimizer=k3.optimizers.SGD(0.25))
    opt.build([k3.Variable([1.0])])
    assert state_of(opt) == (8.0, 1, 0) and opt.dynamic_growth_steps == 4


@needs_keras_3
@pytest.mark.parametrize(
  ("make", "error", "what"),
  [
    *(
      (
        lambda a=arguments: contrib.ExponentialUpdateLossScaleManager(8, 4, *a),
        ValueError,
        "incr_ratio=2, decr_ratio=0.5",
      )
      for arguments in ((), (2, 2, 0.5), (1, 2, 0.8), (1, 4, 0.25))
    ),
    (lambda: contrib.FixedLossScaleManager(8), ValueError, "loss_scale_factor"),
    (lambda: tfl.FixedLossScale(8), ValueError, r"loss_scale_factor=8\.0"),
    (
      lambda: keras.LossScaleOptimizer(k2.optimizers.legacy.SGD(), 8),
      ValueError,
      r"loss_scale_factor=8\.0",
    ),
    (lambda: tfl.DynamicLossScale(8, 4, 4), ValueError, "doubles and halves"),
    (lambda: "x", TypeError, "'x'"),
    (lambda: k2.optimizers.SGD(), TypeError, "SGD"),
  ],
)
def test_what_has_no_counterpart(make, error, what):
  with pytest.raises(error, match=what):
    keras.to_keras3(make(), optimizer=k3.optimizers.SGD(0.25))


@needs_keras_3
def test_optimizers_that_are_none():
  scale = tfl.DynamicLossScale()
  wrapping = k3.optimizers.LossScaleOptimizer(k3.optimizers.SGD(0.25))
  for wrong in (k2.optimizers.legacy.SGD(), "sgd", wrapping):
    with pytest.raises(TypeError, match="of Keras 3"):
      keras.to_keras3(scale, optimizer=wrong)


@needs_keras_3
def test_graphs():
  with tf.Graph().as_default():
    manager = contrib.ExponentialUpdateLossScaleManager(8, 4, 1, 2, 0.5)
    w = tf.compat.v1.get_variable("w", [], use_resource=True)
    opt2 = wrap(k2.optimizers.legacy.SGD(0.5, momentum=0.5), 8.0, 4)
    op = opt2.apply_gradients([(tf.constant(1.0), w)])
    update = manager.update_loss_scale(tf.constant(True))
    for given in (manager, opt2):
      with pytest.raises(ValueError, match=r"session\.as_default"):
        keras.to_keras3(given)
    with tf.compat.v1.Session() as session:
      session.run(tf.compat.v1.global_variables_initializer())
      session.run([op, update])
      with tf.init_scope(), tf.__internal__.eager_context.eager_mode():
        sgd, v = k3.optimizers.SGD(0.5), k3.Variable(0.0)
      one = keras.to_keras3(manager, optimizer=sgd)
      two = keras.to_keras3(opt2, variables=[(w, v)])
  one.build([v])
  assert state_of(one) == (8.0, 1, 0) and state_of(two) == (8.0, 1, 1)
  assert float(two.inner_optimizer.momentums[0]) == -0.5


def without_v2_behavior():
  tf.compat.v1.disable_v2_behavior()
  opt = wrap(k2.optimizers.legacy.SGD())
  opt.loss_scale, opt.iterations  # noqa: B018  # Creates variables.
  with tf.compat.v1.Session() as session:
    session.run(tf.compat.v1.global_variables_initializer())
    with pytest.raises(ValueError, match="'iterations'"):
      keras.to_keras3(opt)


@needs_keras_3
def test_without_v2_behavior():
  helpers.run_alone(without_v2_behavior)


@needs_keras_3
def test_a_keras_that_counts_elsewhere(monkeypatch):
  base = k3.optimizers.LossScaleOptimizer
  monkeypatch.setattr(base, "build", lambda self, variables: None)
  opt = keras.to_keras3(
    {"loss_scale": 8, "good_steps": 1}, optimizer=k3.optimizers.SGD(0.25)
  )
  with pytest.raises(RuntimeError, match="step_counter"):
    opt.build([k3.Variable([1.0])])


if __name__ == "__main__":
  helpers.main()
