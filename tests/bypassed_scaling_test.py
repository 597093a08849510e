# SPDX-License-Identifier: Apache-2.0
"""Tests the warning that nothing scaled the loss of a step."""

import contextlib
import copy
import logging

import helpers
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
_SAID = "compute_gradients was not called, and nobody read the loss scale"
_MODES = pytest.mark.parametrize("mode", ["graph", "function", "eager"])


def _sgd():
  return tf1.train.GradientDescentOptimizer(0.1)


def _wrap(scale="dynamic"):
  return tfl.MixedPrecisionLossScaleOptimizer(_sgd(), scale)


def _manage(manager):
  return contrib.LossScaleOptimizer(_sgd(), manager)


_DYNAMIC = {
  "dynamic": _wrap,
  "policy": lambda: _wrap(policies.GrowthBackoff()),
  "manager": lambda: _manage(contrib.ExponentialUpdateLossScaleManager(8, 2)),
  "accumulate": lambda: tfl.accumulate(_wrap(), 2),
}


class _OwnManager:
  __slots__ = ()

  def get_loss_scale(self):
    return tf.constant(8.0)

  def update_loss_scale(self, finite_grads):
    return tf.no_op()


class _OwnScale(tfl.DynamicLossScale):
  def __call__(self):
    return tf.constant(8.0)


def _differentiate(v, factor=1.0):
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(v * v) * factor
  return tape.gradient(loss, v)


def _bypass(optimizer, v):
  del optimizer
  return _differentiate(v)


def _train(mode, make, compute, caplog):
  """Takes two steps with what `compute` returns for gradients of `v`."""
  with contextlib.ExitStack() as stack:
    if mode == "graph":
      stack.enter_context(tf.Graph().as_default())
    v = tf1.Variable([1.0, 2.0], use_resource=True)
    optimizer = make()

    def step():
      optimizer.apply_gradients([(compute(optimizer, v), v)])

    with caplog.at_level(logging.WARNING):
      for _ in range(2):
        if mode == "function":
          tf.function(step, autograph=False).get_concrete_function()
        else:
          step()


@_MODES
@pytest.mark.parametrize("kind", _DYNAMIC)
def test_gradients_of_a_tape_warn_once(mode, kind, caplog):
  _train(mode, _DYNAMIC[kind], _bypass, caplog)
  assert caplog.text.count(_SAID) == 1
  assert "LossScaleOptimizer.apply" in caplog.text or kind == "accumulate"


def _by_hand(optimizer, v):
  scale = optimizer.loss_scale()
  return _differentiate(v, scale) * (1 / scale)


def _by_its_variable(optimizer, v):
  scale = optimizer.loss_scale.current_loss_scale
  return _differentiate(v, scale) / scale


def _computed(optimizer, v):
  ((grad, _),) = optimizer.compute_gradients(lambda: tf.reduce_sum(v * v), [v])
  return tf.clip_by_norm(grad, 1.0)


def _zeros(optimizer, v):
  del optimizer
  return tf.zeros_like(v)


@_MODES
@pytest.mark.parametrize(
  "compute", [_by_hand, _by_its_variable, _computed, _zeros]
)
def test_no_false_alarm(mode, compute, caplog):
  _train(mode, _wrap, compute, caplog)
  assert _SAID not in caplog.text


@_MODES
@pytest.mark.parametrize(
  "make",
  [
    lambda: _wrap(128),
    lambda: _manage(contrib.FixedLossScaleManager(128)),
    lambda: _manage(_OwnManager()),
  ],
)
def test_what_is_fixed_or_unknown_does_not_warn(mode, make, caplog):
  _train(mode, make, _bypass, caplog)
  assert _SAID not in caplog.text


def test_a_copy_and_a_manager_that_is_read(caplog):
  _train("eager", lambda: _wrap(_OwnScale()), _computed, caplog)
  manager = contrib.ExponentialUpdateLossScaleManager(8, 2)
  manager.get_loss_scale()
  _train("eager", lambda: _manage(manager), _bypass, caplog)
  optimizer = _wrap()
  optimizer.loss_scale()
  _train("eager", lambda: copy.deepcopy(optimizer), _bypass, caplog)
  assert _SAID not in caplog.text


def test_optimizers_by_the_environment_do_not_warn(monkeypatch, caplog):
  monkeypatch.setenv("TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING", "1")
  tfl.honor_environment(quiet=True)
  try:
    _train("graph", _sgd, _bypass, caplog)
  finally:
    tfl.ignore_environment()
  assert _SAID not in caplog.text


def test_eager_gradients_in_a_function():
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    tf.compat.v1.train.MomentumOptimizer(1.0, 0.9), "dynamic"
  )
  variable, zeros = tf.Variable([1.0]), tf.zeros([1])

  @tf.function
  def make_slots():
    opt.apply_gradients([(zeros, variable)])

  make_slots()
  assert variable.numpy() == [1.0]


if __name__ == "__main__":
  helpers.main()
