# SPDX-License-Identifier: Apache-2.0
"""Tests agreement of workers, with a second worker that the test plays."""

import copy
import sys
import types

import helpers
from helpers import tf1
import numpy as np
import pytest
import tensorflow as tf
import trainers

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import distributed
from tf_compat_lossscale import gradients
from tf_compat_lossscale import policies


class Doubling(tfl.LossScale):
  """A user's loss scale, with state of its own."""

  def __init__(self):
    super().__init__()
    self._add_weight("scale", 8.0)

  def __call__(self):
    return tf.convert_to_tensor(self._get_weight("scale"))

  def update(self, grads):
    finite = gradients.all_replicas_finite(grads)
    scale = self._get_weight("scale")
    factor = tf.where(finite, 2.0, 0.5)
    update = scale.assign(scale * factor)
    return (None if tf.executing_eagerly() else update), finite

  def get_config(self):
    return {}


def wrap(loss_scale):
  opt = tf1.train.MomentumOptimizer(0.5, 0.5)
  if isinstance(loss_scale, contrib.LossScaleManager):
    return contrib.LossScaleOptimizer(opt, loss_scale)
  return tfl.MixedPrecisionLossScaleOptimizer(opt, loss_scale)


_INF, _NAN = float("inf"), float("nan")
SCALES = {
  "dynamic": lambda: tfl.DynamicLossScale(8, 2),
  "growth": lambda: policies.GrowthBackoff(8, growth_interval=2),
  "contrib": lambda: contrib.ExponentialUpdateLossScaleManager(8, 2, 1, 2, 0.5),
  "user": Doubling,
}


class Worker(trainers.Trainer):
  """A worker whose partner the test plays.

  Attributes:
    others: The partner's `found_inf`.
    calls: The number of exchanges.
  """

  def __init__(
    self, mode, make_scale, agrees=True, target="optimizer", replicas=1
  ):
    self.others, self.calls = 0.0, 0

    def make():
      opt = wrap(make_scale())
      given = opt if target == "optimizer" else opt._loss_scale
      if agrees:
        assert distributed.agree(given, self.all_reduce) is given
      return opt

    strategy = helpers.two_replicas() if replicas == 2 else None
    super().__init__(mode, make, strategy=strategy)

  def all_reduce(self, value):
    assert value.dtype == tf.float32
    others = tf.numpy_function(self.read_others, [], tf.float32)
    return value + tf.ensure_shape(others, [])

  def read_others(self):
    self.calls += 1
    return np.float32(self.others)


# Rows of own gradient, and whether the other worker's is bad.
_STEPS = [
  (1.0, False),
  (1.0, True),
  (_INF, False),
  (_NAN, True),
  (2.0, False),
  (1.0, False),
  (1.0, False),
]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("mode", helpers.MODES)
def test_any_workers_infinity_skips_the_step_of_all(mode, scale):
  """Compares with a worker that has all infinities itself."""
  states = []
  for agrees in (True, False):
    with Worker(mode, SCALES[scale], agrees) as worker:
      found = []
      for own, is_bad in _STEPS:
        worker.others = float(is_bad)
        worker.step(_NAN if is_bad and not agrees else own)
        found.append(worker.state())
      states.append(found)
      assert worker.calls == (len(_STEPS) if agrees else 0)
  for state, expected in zip(*states, strict=True):
    trainers.assert_same_state(state, expected)
  steps = [int(state["global_step"]) for state in states[0]]
  assert steps == [1, 1, 1, 1, 2, 3, 4]


def test_a_fixed_loss_scale_exchanges_nothing():
  with Worker("eager", lambda: tfl.FixedLossScale(8)) as worker:
    worker.step(1.0)
    assert worker.calls == 0


@pytest.mark.parametrize(
  ("own", "other", "names"), [(_INF, 0.0, "v0"), (1.0, 1.0, "")]
)
def test_an_error_names_gradients_of_the_own_worker(own, other, names):
  make = lambda: policies.GrowthBackoff(  # noqa: E731
    1, min_loss_scale=1, at_minimum="raise"
  )
  message = rf"fault: {names}\."
  with Worker("eager", make) as worker:
    worker.others = other
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
      worker.step(own)


@pytest.mark.parametrize("mode", ("eager", "function"))
def test_keras(mode):
  keras = tf.keras
  if helpers.RELEASE >= (2, 16):
    keras = pytest.importorskip("tf_keras")
  opt = tfl.keras.LossScaleOptimizer(
    keras.optimizers.legacy.SGD(1.0), tfl.DynamicLossScale(8)
  )
  other = tf.Variable(0.0)
  distributed.agree(opt, lambda value: value + other)
  v = tf.Variable(1.0)

  def step():
    opt.minimize(lambda: v * 1.0, [v])

  step = tf.function(step) if mode == "function" else step
  step()
  assert v.numpy() == 0
  other.assign(1.0)
  step()
  assert v.numpy() == 0
  assert opt.loss_scale.numpy() == 4
  if mode == "eager":
    assert not opt.last_step_applied.numpy()


def test_replicas_agree():
  """Another worker's infinity skips the step of both replicas."""
  make = SCALES["dynamic"]
  with Worker("function", make, target="loss scale", replicas=2) as worker:
    for own, others, scale in ((1, 0, 8), (_INF, 0, 4), (1, 1, 2), (1, 0, 2)):
      before = worker.state()["v0"].tolist()
      worker.others = others
      worker.step(own)
      skipped = worker.state()["v0"].tolist() == before
      assert (skipped, worker.loss_scale) == (own == _INF or others == 1, scale)


@pytest.mark.parametrize(
  ("grads", "other", "mean"),
  [((1.0, 2.0), 0.0, 1.5), ((1.0, 2.0), 1.0, None), ((1.0, _NAN), 0.0, None)],
)
@pytest.mark.parametrize("fixed", [False, True])
def test_accumulation_agrees_once_in_a_window(grads, other, mean, fixed):
  seen = []

  def all_reduce(value):
    seen.append(float(value))
    return value + other

  v = tf.Variable(0.0)
  scale = tfl.FixedLossScale(8) if fixed else tfl.DynamicLossScale(8, 1000)
  opt = tfl.accumulate(
    tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(1.0), scale
    ),
    2,
  )
  distributed.agree(opt, all_reduce)
  for grad in grads:
    opt.apply_gradients([(tf.constant(grad), v)])
  assert seen == [float(np.isnan(grads).any())]
  assert bool(opt.last_step_applied) == (mean is not None)
  assert v.numpy() == -(mean or 0.0)
  assert float(scale()) == (8 if fixed or mean else 4)


def test_checkpoints_and_copies_stay_the_same():
  loss_scale = tfl.DynamicLossScale(8)
  before = set(loss_scale._trackable_children())
  distributed.agree(loss_scale, lambda value: value)
  assert set(loss_scale._trackable_children()) == before
  assert copy.deepcopy(loss_scale).get_config() == loss_scale.get_config()


def test_arguments_are_checked():
  opt = wrap(tfl.DynamicLossScale(8))
  with pytest.raises(ValueError, match="all_reduce must be 'horovod'"):
    distributed.agree(opt, "mpi")
  with pytest.raises(ValueError, match="optimizer must be"):
    distributed.agree(tf1.train.GradientDescentOptimizer(1.0), lambda x: x)
  v = tf.Variable(1.0)
  for wrong in (lambda x: x[None], lambda x: tf.cast(x, tf.float64)):
    distributed.agree(opt, wrong)
    with pytest.raises(ValueError, match="must return a scalar of float32"):
      opt.apply_gradients([(tf.constant(1.0), v)])


def test_horovod_must_be_there(monkeypatch):
  opt = wrap(tfl.DynamicLossScale(8))
  monkeypatch.setitem(sys.modules, "horovod.tensorflow", None)
  with pytest.raises(ImportError, match="HOROVOD_WITH_TENSORFLOW"):
    distributed.agree(opt)
  hvd = types.ModuleType("horovod.tensorflow")
  package = types.ModuleType("horovod")
  monkeypatch.setitem(sys.modules, "horovod", package)
  monkeypatch.setitem(sys.modules, "horovod.tensorflow", hvd)
  hvd.is_initialized = lambda: False
  with pytest.raises(RuntimeError, match=r"tensorflow\.init\(\) first"):
    distributed.agree(opt)
  hvd.is_initialized, hvd.Sum = lambda: True, "sum"
  hvd.allreduce = lambda x, op, name: x + 1.0
  distributed.agree(opt)
  v = tf.Variable(1.0)
  opt.apply_gradients([(tf.constant(1.0), v)])
  assert v.numpy() == 1
  assert opt.loss_scale().numpy() == 4
