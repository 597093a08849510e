# SPDX-License-Identifier: Apache-2.0
"""Tests training in float16, in graphs that auto mixed precision converts."""

import itertools
import os

import float16_graphs
import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import distributed
from tf_compat_lossscale import environment
from tf_compat_lossscale import monitoring
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
_STARTS = (2.0**15, 2.0**17, 2.0**32, 2.0**126)
_FALL = 2.0**8
_STEPS = 24
_RNG = np.random.default_rng(0)
_X = _RNG.normal(size=(16, 8)).astype("float32")
_Y = np.eye(4, dtype="float32")[np.arange(16) % 4]

_LOSSES = {
  # Lowered itself: the seed of its gradient is a number of float16.
  "product": lambda y: tf.reshape(tf.matmul(y[:1], _Y[:1], False, True), []),
  "sum": lambda y: tf.reduce_sum(y) / 8.0,
  "log-softmax": lambda y: -tf.reduce_sum(tf.nn.log_softmax(y) * _Y) / 16.0,
  "squares": lambda y: tf.reduce_mean(tf.square(y - _Y)),
}


def sgd():
  return tf1.train.GradientDescentOptimizer(0.01)


def own():
  scale = helpers.OWN.DynamicLossScale(1.0, 6, _FALL)
  return helpers.OWN.MixedPrecisionLossScaleOptimizer(sgd(), scale)


def compat():
  scale = tfl.DynamicLossScale(1.0, 6, _FALL)
  return tfl.MixedPrecisionLossScaleOptimizer(sgd(), scale)


def managed():
  manager = contrib.ExponentialUpdateLossScaleManager(
    1.0, 6, 1, _FALL, 1 / _FALL
  )
  return contrib.LossScaleOptimizer(sgd(), manager)


def growth_backoff():
  scale = policies.GrowthBackoff(
    1.0, _FALL, 1 / _FALL, 6, 2.0**-20, 2.0**126, at_minimum="raise"
  )
  return tfl.MixedPrecisionLossScaleOptimizer(sgd(), scale)


def accumulating():
  return tfl.accumulate(compat(), 2)


def agreeing():
  return distributed.agree(compat(), tf.identity)


def by_environment():
  environment.honor_environment(quiet=True)
  opt = sgd()
  # Each fall is a factor of 2 otherwise, and takes a step.
  environment.find_loss_scale(opt)._multiplier = _FALL
  return opt


_OPTIMIZERS = {
  each.__name__: each
  for each in (
    compat,
    managed,
    growth_backoff,
    accumulating,
    agreeing,
    by_environment,
  )
}


class _Training:
  """A program that trains two layers, in a converted graph or function."""

  def __init__(self, mode, make, loss):
    self.watch = float16_graphs.Watch()
    self._loss = loss
    self._in_graph = mode != "function"
    self._initial = np.random.default_rng(1)
    with helpers.mode_scope(mode):
      self.weights = [self._make_weight(s) for s in ((8, 8), (8,), (8, 4))]
      self.opt = make()
      if self._in_graph:
        self._build_graph()
      else:
        self._build_function()

  def _make_weight(self, shape):
    values = self._initial.normal(size=shape).astype("float32") / 4
    return tf1.Variable(values, name="w")

  def _minimize(self):
    def loss():
      with tf.name_scope("model"):
        w1, b1, w2 = self.weights
        hidden = tf.nn.relu(tf.matmul(_X, w1) + b1)
        return self._loss(tf.matmul(hidden, w2))

    made = loss() if self._in_graph else loss
    return self.opt.minimize(made, var_list=self.weights)

  def _find_scale(self):
    """Returns the variable."""
    if isinstance(self.opt, contrib.LossScaleOptimizer):
      return self.opt.loss_scale_manager.loss_scale
    found = environment.find_loss_scale(self.opt) or self.opt._loss_scale
    is_own = isinstance(found, helpers.OWN.DynamicLossScale)
    return found._current_loss_scale if is_own else found.current_loss_scale

  def _build_graph(self):
    train, scale = self._minimize(), self._find_scale()
    fed = tf1.placeholder(tf.float32, [])
    values = [scale.read_value(), *self.weights]
    initialize, assign = tf1.global_variables_initializer(), scale.assign(fed)
    session = tf1.Session(config=float16_graphs.session_config())

    def start(value):
      session.run(initialize)
      session.run(assign, {fed: value})

    self._start, self._read = start, lambda: session.run(values)
    self._step = lambda: session.run(train)
    start(1.0)
    watched = _WatchedSession(session, self.watch)
    if isinstance(self.opt, helpers.OWN.MixedPrecisionLossScaleOptimizer):
      watched.run(train)
    else:  # The hook's ops are the package's, too.
      monitoring.LossScaleHook(self.opt).run(watched, train)

  def _build_function(self):
    scale, initial = self._find_scale(), [v.numpy() for v in self.weights]
    step = tf.function(lambda: self._minimize() and None, autograph=False)
    with self.watch.functions():
      step()

    def start(value):
      for variable in self.opt.variables():
        variable.assign(tf.zeros_like(variable))
      for variable, first in zip(self.weights, initial):
        variable.assign(first)
      scale.assign(value)

    self._start, self._step = start, step
    self._read = lambda: [v.numpy() for v in (scale, *self.weights)]

  def train(self, scale):
    """Trains from a loss scale; returns the scale and weights of each step."""
    self._start(scale)
    rows = [self._read()]
    for _ in range(_STEPS):
      for _ in range(getattr(self.opt, "steps", 1)):
        self._step()
      rows.append(self._read())
    return rows


class _WatchedSession:
  """A session, whose runs are watched."""

  def __init__(self, session, watch):
    self._session, self._watch = session, watch
    self.graph = session.graph

  def run(self, fetches, feed_dict=None, *_):
    return self._watch.run(self._session, fetches, feed_dict=feed_dict)


def _trains():
  """Trains by each loss from each scale; runs in a process of its own."""
  mode, name = os.environ["MODE"], os.environ["OPTIMIZER"]
  with float16_graphs.converted_functions():
    for what, loss in _LOSSES.items():
      training = _Training(mode, _OPTIMIZERS[name], loss)
      lowered = training.watch.list_lowered()
      assert "MatMul" in str(lowered), lowered
      ours = {k: v for k, v in lowered.items() if not _is_of_model(k)}
      assert not ours, f"{what}: {ours}"
      theirs = _Training(mode, own, loss) if name == "compat" else None
      for scale in _STARTS:
        rows = training.train(scale)
        _check(rows)
        if theirs:
          for row, expected in zip(rows, theirs.train(scale), strict=True):
            for value, own_value in zip(row, expected):
              np.testing.assert_array_equal(value, own_value)


def _is_of_model(name):
  """Returns whether an op is of the model, or of the gradient of its loss."""
  return "model/" in name or name.startswith(("gradients/", "gradient_tape/"))


def _check(rows):
  """Checks that steps which are not skipped train."""
  good = 0
  for before, after in itertools.pairwise(rows):
    is_skipped = after[0] < before[0]
    for old, new in zip(before[1:], after[1:]):
      assert is_skipped == np.array_equal(old, new)
    good += not is_skipped
  assert rows[-1][0] < 2.0**40
  assert good > _STEPS / 4


@pytest.mark.parametrize("mode", ["graph_v1", "graph_v2", "function"])
@pytest.mark.parametrize("optimizer", _OPTIMIZERS)
def test_nothing_of_the_package_is_lowered(mode, optimizer):
  env = {"TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING": "1"}
  env = env if optimizer == "by_environment" else {}
  helpers.run_alone(
    _trains, MODE=mode, OPTIMIZER=optimizer, **float16_graphs.ENVIRONMENT, **env
  )


def _by_hand():
  """Multiplies a loss by a loss scale that has bounds, as a program may."""
  with tf.Graph().as_default():
    weight = tf1.Variable([[0.5]] * 8)
    scale = policies.GrowthBackoff(2.0**17, max_loss_scale=2.0**30)()
    loss = _LOSSES["product"](tf.matmul(_X, tf.tile(weight, [1, 4])))
    (grad,) = tf.gradients(loss * scale, weight)
    session = tf1.Session(config=float16_graphs.session_config())
    session.run(tf1.global_variables_initializer())
    watch = float16_graphs.Watch()
    found = watch.run(session, grad / scale)
  assert not {"Maximum", "Minimum"} & {*watch.list_lowered().values()}
  # As with TensorFlow's own loss scale, and not 0.
  assert not np.isfinite(found).any()


def test_bounds_of_a_loss_scale_are_not_lowered():
  helpers.run_alone(_by_hand, **float16_graphs.ENVIRONMENT)
