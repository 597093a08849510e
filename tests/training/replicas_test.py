# SPDX-License-Identifier: Apache-2.0
"""Tests several replicas: a bad gradient on one replica makes all skip."""

import functools
import math

import helpers
import pytest
from scaled_optimizers import wrap
import tensorflow as tf
import trainers

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1

_CPUS = ["/cpu:0", "/cpu:1"]
# Cached, because two mirrored strategies of a process share their collectives.
_STRATEGIES = {
  "one_device": functools.cache(
    lambda: tf.distribute.OneDeviceStrategy("/cpu:0")
  ),
  "mirrored": functools.cache(lambda: tf.distribute.MirroredStrategy(_CPUS)),
  "central": functools.cache(
    lambda: tf.distribute.experimental.CentralStorageStrategy(_CPUS)
  ),
}


class Clipped(trainers.Trainer):
  """A trainer that clips gradients between computing and applying."""

  def _build(self, fed):
    loss = lambda: tf.add_n(  # noqa: E731
      [tf.reduce_sum(v * g) for v, g in zip(self.variables, fed)]
    )
    pairs = self.opt.compute_gradients(
      loss if self.graph is None else loss(), self.variables
    )
    grads, variables = zip(*pairs)
    grads, _ = tf.clip_by_global_norm(grads, 1.0)
    step = self.opt.apply_gradients(zip(grads, variables), self.global_step)
    return None if self.mode == "function" else step


def make_optimizer(module):
  return module.MixedPrecisionLossScaleOptimizer(
    tf1.train.MomentumOptimizer(0.1, 0.9), module.DynamicLossScale(8, 2)
  )


@pytest.mark.parametrize(
  ("mode", "strategy", "replica"),
  helpers.pairs(helpers.MODES, _STRATEGIES, [0, 1]),
)
def test_as_tensorflows_own(mode, strategy, replica):
  found = []
  for module in (tfl, helpers.OWN):
    with Clipped(
      mode,
      functools.partial(make_optimizer, module),
      (trainers.Spec(), trainers.Spec((20_000,))),
      strategy=_STRATEGIES[strategy](),
      replica=replica,
    ) as trainer:
      states, scales = [], []
      for grad in (1.0, 1.0, math.nan, 1.0, -math.inf, 1.0):
        trainer.step(grad, 2.0)
        states.append(trainer.state())
        scales.append(trainer.loss_scale)
        both = trainer._strategy.experimental_local_results(
          trainer.variables[0]
        )
        assert len({trainer.value(v).tobytes() for v in both}) == 1
      found.append(states)
  for state, own in zip(*found, strict=True):
    trainers.assert_same_state(state, own)
  if (strategy, replica) == ("one_device", 1):  # Its gradients are 1.
    assert scales == [8, 16, 16, 32, 32, 64]
  else:
    assert scales == [8, 16, 8, 8, 4, 4]
    trainers.assert_same_state(
      *(
        {k: v for k, v in s.items() if "scale" not in k and "good" not in k}
        for s in states[1:3]
      )
    )


@pytest.mark.parametrize("bad", [None, 0, 1])
def test_update_takes_per_replica_values(bad):
  strategy = _STRATEGIES["mirrored"]()
  with strategy.scope():
    loss_scale = tfl.DynamicLossScale(8, 1)

    def grad():
      replica = tf.distribute.get_replica_context().replica_id_in_sync_group
      return tf.where(replica == (-1 if bad is None else bad), math.nan, 1.0)

    grads = {"a": [strategy.run(grad), None], "b": tf.constant(2.0)}
    _, should_apply = loss_scale.update(grads)
    assert bool(should_apply) == (bad is None)
    assert float(loss_scale()) == (16 if bad is None else 4)
    assert "current_loss_scale=" in repr(loss_scale)


def test_update_in_replica_context_is_an_error():
  strategy = _STRATEGIES["mirrored"]()
  with strategy.scope():
    loss_scale = tfl.DynamicLossScale()
    with pytest.raises(ValueError, match="cross-replica context"):
      strategy.run(lambda: loss_scale.update([1.0]))


@pytest.mark.parametrize("loss_scale", ["dynamic", 8])
def test_apply_in_cross_replica_context_is_an_error(loss_scale):
  with _STRATEGIES["mirrored"]().scope():
    v, opt = tf.Variable(1.0), wrap(loss_scale)()
    with pytest.raises(ValueError, match="must be called in a replica context"):
      opt.apply_gradients([(tf.constant(1.0), v)])


class Vetoing(tfl.LossScale):
  """A loss scale that skips every step, by a Python bool."""

  def __call__(self):
    return tf.constant(4.0)

  def update(self, grads):
    assert tf.distribute.in_cross_replica_context()
    return None, False

  def get_config(self):
    return {}


def test_a_users_own_update_runs_in_cross_replica_context():
  strategy = _STRATEGIES["mirrored"]()
  with strategy.scope():
    v, opt = tf.Variable(1.0), wrap(Vetoing())()
    strategy.run(lambda: opt.minimize(lambda: v * 2.0, var_list=[v]))
    assert float(v.values[0]) == 1
