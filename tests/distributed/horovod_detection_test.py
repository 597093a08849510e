# SPDX-License-Identifier: Apache-2.0
"""Tests how Horovod's optimizers are known, without Horovod."""

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


class _Helper:
  def __init__(self, passes):
    self.backward_passes_per_step = passes
    self._local_vars = set()


class _DistributedOptimizer(tf1.train.Optimizer):
  """An optimizer that has the attributes of Horovod's, and no exchange."""

  __module__ = "horovod.tensorflow"

  def __init__(self, optimizer, passes=1):
    super().__init__(name="Distributed", use_locking=False)
    self._optimizer = optimizer
    self._agg_helper = _Helper(passes) if passes > 1 else None
    self._local_vars = set()

  def compute_gradients(self, *args, **kwargs):
    return self._optimizer.compute_gradients(*args, **kwargs)

  def apply_gradients(self, *args, **kwargs):
    return self._optimizer.apply_gradients(*args, **kwargs)


class _DistributedAdasumOptimizer(_DistributedOptimizer):
  __module__ = "horovod.tensorflow"

  def __init__(self, optimizer, passes=1):
    super().__init__(optimizer)
    self._backward_passes_per_step = passes


class _Wrapper(tf1.train.Optimizer):
  """An optimizer of a user, around another one."""

  def __init__(self, optimizer, attribute="_opt"):
    super().__init__(name="Wrapper", use_locking=False)
    setattr(self, attribute, optimizer)


def sgd():
  return tf1.train.GradientDescentOptimizer(1.0)


@pytest.fixture
def other(monkeypatch):
  """Makes a Horovod of two ranks; the other's `found_inf` is the first item."""
  found = [0.0]
  hvd = types.ModuleType("horovod.tensorflow")
  hvd.is_initialized = lambda: True
  hvd.Sum = "sum"
  hvd.allreduce = lambda x, op, name: x + found[0]
  package = types.ModuleType("horovod")
  package.tensorflow = hvd
  monkeypatch.setitem(sys.modules, "horovod", package)
  monkeypatch.setitem(sys.modules, "horovod.tensorflow", hvd)
  return found


@pytest.mark.parametrize(
  "make",
  [
    lambda: _DistributedOptimizer(sgd(), 2),
    lambda: _DistributedAdasumOptimizer(sgd(), 2),
    lambda: _Wrapper(_DistributedOptimizer(sgd(), 2)),
    lambda: _Wrapper(_DistributedOptimizer(sgd(), 2), "inner"),
    lambda: _DistributedOptimizer(_DistributedOptimizer(sgd(), 2)),
  ],
)
@pytest.mark.parametrize(
  "wrap",
  [
    lambda opt: tfl.MixedPrecisionLossScaleOptimizer(opt, 8),
    lambda opt: contrib.LossScaleOptimizer(
      opt, contrib.FixedLossScaleManager(8)
    ),
  ],
)
def test_passes_inside_are_an_error_that_says_what_works(make, wrap):
  message = (
    r"backward_passes_per_step=2: .*tf_compat_lossscale\.accumulate\("
    r"tf_compat_lossscale\.MixedPrecisionLossScaleOptimizer\("
    r"hvd\.DistributedOptimizer\(opt\), loss_scale\), 2\)"
  )
  with pytest.raises(ValueError, match=message):
    wrap(make())


def test_other_optimizers_pass():
  for opt in (sgd(), _DistributedOptimizer(sgd()), _Wrapper(sgd())):
    tfl.MixedPrecisionLossScaleOptimizer(opt, 8)
  looped = _Wrapper(None)
  looped._opt = looped
  tfl.MixedPrecisionLossScaleOptimizer(looped, 8)


def test_a_property_of_the_program_is_left_alone():
  class Lazy(tf1.train.GradientDescentOptimizer):
    @property
    def optimizer(self):
      raise RuntimeError("not built yet")

  tfl.MixedPrecisionLossScaleOptimizer(Lazy(1.0), "dynamic")


def test_pairs_that_were_read_before_are_an_error():
  v = tf.Variable(1.0)
  opt = tfl.MixedPrecisionLossScaleOptimizer(sgd(), "dynamic")
  pairs = zip([tf.constant(1.0)], [v])
  list(pairs)
  with pytest.raises(ValueError, match=r"apply_gradients\(list\(zip\("):
    opt.apply_gradients(pairs)
  opt.apply_gradients(zip([tf.constant(1.0)], [v]))
  assert v.numpy() == 0


def make_local(order, kind):
  """Returns an optimizer whose gradients each rank has for itself."""
  cls = _DistributedAdasumOptimizer if kind == "adasum" else None
  cls = cls or _DistributedOptimizer
  if order == "outside":
    outer = cls(sgd())
    opt = tfl.MixedPrecisionLossScaleOptimizer(outer, tfl.DynamicLossScale(8))
  else:
    inner = tfl.MixedPrecisionLossScaleOptimizer(sgd(), tfl.DynamicLossScale(8))
    opt = outer = cls(_Wrapper2(inner) if order == "between" else inner)
  if kind == "local":
    outer._local_vars.add("v")
  return opt


class _Wrapper2(_Wrapper):
  def compute_gradients(self, *args, **kwargs):
    return self._opt.compute_gradients(*args, **kwargs)

  def apply_gradients(self, *args, **kwargs):
    return self._opt.apply_gradients(*args, **kwargs)


@pytest.mark.parametrize("kind", ["adasum", "local", "averaged"])
@pytest.mark.parametrize("order", ["outside", "inside", "between"])
@pytest.mark.parametrize("mode", helpers.MODES)
def test_ranks_with_own_gradients_agree_by_themselves(other, mode, order, kind):
  with helpers.mode_scope(mode) as graph:
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    if graph is None:
      v = tf.Variable(1.0)
    opt = make_local(order, kind)
    flag = tf.Variable(0.0) if graph is None else tf1.placeholder(tf.float32)
    other[0] = flag

    def minimize():
      op = opt.minimize(lambda: v * 1.0, var_list=[v])
      return op if graph is not None else None

    if graph is not None:
      op = minimize()
      session = tf1.Session()
      session.run(tf1.global_variables_initializer())

      def step(found):
        session.run(op, {flag: found})
        return session.run(v)

    else:
      function = tf.function(minimize) if mode == "function" else minimize

      def step(found):
        flag.assign(found)
        function()
        return v.numpy()

    assert step(0.0) == 0
    assert step(1.0) == (-1 if kind == "averaged" else 0)
    assert step(0.0) == (-2 if kind == "averaged" else -1)


def test_without_horovod_there_is_an_error():
  opt = tfl.MixedPrecisionLossScaleOptimizer(sgd(), "dynamic")
  if "horovod" in sys.modules:
    pytest.skip("Horovod is loaded")
  try:
    import horovod  # noqa: F401
  except ImportError:
    with pytest.raises(ImportError, match="HOROVOD_WITH_TENSORFLOW"):
      distributed.agree(opt)


def test_horovod_must_be_initialized(other):
  sys.modules["horovod.tensorflow"].is_initialized = lambda: False
  opt = tfl.MixedPrecisionLossScaleOptimizer(sgd(), "dynamic")
  with pytest.raises(RuntimeError, match=r"tensorflow\.init\(\) first"):
    distributed.agree(opt)
  assert np.isfinite(opt.loss_scale().numpy())


if __name__ == "__main__":
  helpers.main()
