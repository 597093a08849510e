# SPDX-License-Identifier: Apache-2.0
"""Tests agreement of workers, with a second worker that the test plays."""

import contextlib
import copy
import sys
import types

import helpers
from helpers import tf1
import numpy as np
import pytest
import tensorflow as tf

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


class Worker:
  """A worker whose partner's numbers the test chooses.

  Attributes:
    others: The partner's `found_inf`, a tensor.
    calls: The number of exchanges that were built.
  """

  def __init__(self, mode, make_scale, agrees, target="optimizer"):
    self.calls = 0
    with contextlib.ExitStack() as stack:
      self.graph = stack.enter_context(helpers.mode_scope(mode))
      self.build(mode, make_scale, agrees, target)
      self.close = stack.pop_all().close

  def build(self, mode, make_scale, agrees, target):
    self.v = tf1.Variable([1.0, 1.0], use_resource=True, name="v")
    self.loss_scale = make_scale()
    self.opt = wrap(self.loss_scale)
    if agrees:
      given = self.opt if target == "optimizer" else self.loss_scale
      assert distributed.agree(given, self.all_reduce) is given
    if self.graph is None:
      self.x, self.others = tf.Variable(0.0), tf.Variable(0.0)
      step = tf.function(self.minimize) if mode == "function" else self.minimize
      self.run = lambda x, others: (
        self.x.assign(x),
        self.others.assign(others),
        step(),
      )
    else:
      self.x = tf1.placeholder(tf.float32, [])
      self.others = tf1.placeholder(tf.float32, [])
      op = self.minimize()
      self.session = tf1.Session()
      self.session.run(tf1.global_variables_initializer())
      self.run = lambda x, others: self.session.run(
        op, {self.x: x, self.others: others}
      )

  def all_reduce(self, value):
    self.calls += 1
    assert value.dtype == tf.float32
    return value + self.others

  def minimize(self):
    op = self.opt.minimize(
      lambda: tf.reduce_sum(self.v * self.x), var_list=[self.v]
    )
    return None if self.graph is None else op

  def state(self):
    slot = self.opt.get_slot(self.v, "momentum")
    parts = [self.v, slot, *self.loss_scale._weights.values()]
    if self.graph is None:
      return [x.numpy().tolist() for x in parts]
    return [x.tolist() for x in self.session.run(parts)]


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
  with contextlib.ExitStack() as stack:
    states = []
    for agrees in (True, False):
      worker = Worker(mode, SCALES[scale], agrees)
      stack.callback(worker.close)
      found = []
      for own, is_bad in _STEPS:
        if agrees:
          worker.run(own, float(is_bad))
        else:
          worker.run(_NAN if is_bad else own, 0.0)
        found.append(worker.state())
      states.append(found)
      worker.close()
    assert states[0] == states[1]
    assert states[0][0][:2] == states[0][1][:2] == states[0][3][:2]


@pytest.mark.parametrize("scale", SCALES)
def test_one_exchange_a_step(scale):
  worker = Worker("eager", SCALES[scale], True, target="loss scale")
  for _ in range(3):
    worker.run(1.0, 0.0)
  assert worker.calls == 3
  worker.close()


def test_a_fixed_loss_scale_exchanges_nothing():
  worker = Worker("eager", lambda: tfl.FixedLossScale(8), True)
  worker.run(1.0, 1.0)
  assert worker.calls == 0
  worker.close()


@pytest.mark.parametrize(
  ("own", "other", "names"), [(_INF, 0.0, "v"), (1.0, 1.0, "")]
)
def test_an_error_names_gradients_of_the_own_worker(own, other, names):
  make = lambda: policies.GrowthBackoff(  # noqa: E731
    1, min_loss_scale=1, at_minimum="raise"
  )
  worker = Worker("eager", make, True)
  message = rf"fault: {names}\."
  with pytest.raises(tf.errors.InvalidArgumentError, match=message):
    worker.run(own, other)
  worker.close()


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


def test_replicas_agree_by_themselves():
  """An infinity in one replica skips the step of both, as another worker's."""
  strategy = helpers.two_replicas()
  other = tf.Variable(0.0)
  with strategy.scope():
    v = tf.Variable(1.0)
    opt = wrap(tfl.DynamicLossScale(8))

  def step(bad):
    factor = helpers.factor_of_replica(bad)
    opt.minimize(lambda: v * factor, var_list=[v])

  function = tf.function(step)

  def run(bad):
    strategy.run(function, (tf.constant(bad),))
    values = strategy.experimental_local_results(v)
    assert len({x.numpy() for x in values}) == 1
    return values[0].numpy(), opt.loss_scale().numpy()

  first = run(False)
  assert first[1] == 8
  assert run(True) == (first[0], 4)
  distributed.agree(opt, lambda value: value + other)
  function = tf.function(step)
  assert run(True) == (first[0], 2)
  other.assign(1.0)
  assert run(False) == (first[0], 1)
  other.assign(0.0)
  assert run(False)[0] != first[0]


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


if __name__ == "__main__":
  helpers.main()
