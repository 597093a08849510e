# SPDX-License-Identifier: Apache-2.0
"""Tests several replicas: a bad gradient on one replica makes all skip."""

import contextlib
import functools
import math

import helpers
from helpers import GRAPH_MODES
from helpers import MODES
from helpers import OWN
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1

_CPUS = ["/cpu:0", "/cpu:1"]
# Cached, because two mirrored strategies of a process share their collectives.
_STRATEGIES = {
  "default": tf.distribute.get_strategy,
  "one_device": functools.cache(
    lambda: tf.distribute.OneDeviceStrategy("/cpu:0")
  ),
  "mirrored": functools.cache(lambda: tf.distribute.MirroredStrategy(_CPUS)),
  "central": functools.cache(
    lambda: tf.distribute.experimental.CentralStorageStrategy(_CPUS)
  ),
}


_SCHEDULE = [  # Rows of (replica, the factor of the replica's gradient).
  (0, 1.0),
  (0, 1.0),
  (1, math.nan),  # Without a second replica, this step is good.
  (0, 1.0),
  (0, math.inf),
  (0, 1.0),
]


@functools.cache  # Several tests compare with the same training.
def train(module, mode, strategy_name, clipped=False):
  """Trains by the schedule.

  Args:
    module: The module whose classes to use.
    mode: One of helpers.MODES.
    strategy_name: One of `_STRATEGIES`.
    clipped: Whether to clip large gradients by their global norm.

  Returns:
    After each step: loss scale, good steps, variable, slot and global step.
  """
  strategy = _STRATEGIES[strategy_name]()
  rows = []
  with contextlib.ExitStack() as stack:
    graph = stack.enter_context(helpers.mode_scope(mode))
    if strategy_name != "default":
      stack.enter_context(strategy.scope())
    initial = tf.tile([1.0, 2.0], [10_000 if clipped else 1])
    v = tf1.Variable(initial, use_resource=True, name="v")
    step = tf1.Variable(
      0,
      dtype=tf.int64,
      name="step",
      use_resource=True,
      aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
    loss_scale = module.DynamicLossScale(8, 2)
    inner = tf1.train.MomentumOptimizer(0.1, 0.9)
    opt = module.MixedPrecisionLossScaleOptimizer(inner, loss_scale)

    def replica_fn(bad_replica, factor):
      context = tf.distribute.get_replica_context()
      bad = tf.equal(context.replica_id_in_sync_group, bad_replica)

      def loss():
        return tf.reduce_sum(v * v) * tf.where(bad, factor, 1.0)

      if clipped:
        ((grad, _),) = opt.compute_gradients(loss, [v])
        (grad,), _ = tf.clip_by_global_norm([grad], 1.0)
        op = opt.apply_gradients([(grad, v)], step)
      else:
        op = opt.minimize(loss, var_list=[v], global_step=step)
      return op if mode in GRAPH_MODES else None

    def run(bad_replica, factor):
      return strategy.run(replica_fn, (bad_replica, factor))

    def values():
      slot = inner.get_slot(v, "momentum")
      return [loss_scale(), loss_scale._num_good_steps, v, slot, step]

    if graph is None:
      run = tf.function(run, autograph=False) if mode == "function" else run
      for bad_replica, factor in _SCHEDULE:
        run(tf.constant(bad_replica), tf.constant(factor))
        rows.append([tf.convert_to_tensor(x).numpy() for x in values()])
    else:
      feeds = (tf1.placeholder(tf.int32, []), tf1.placeholder(tf.float32, []))

      ops = strategy.experimental_local_results(run(*feeds))
      with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        for fed in _SCHEDULE:
          session.run(ops, dict(zip(feeds, fed)))
          rows.append(session.run(values()))
  return [[x.tolist() for x in row] for row in rows]


@pytest.mark.parametrize(
  ("mode", "strategy", "clipped"),
  helpers.Rows(
    # Each mode and each strategy is clipped once.
    (mode, strategy, (i + j) % 4 == 2)
    for i, mode in enumerate(MODES)
    for j, strategy in enumerate(_STRATEGIES)
  ),
)
def test_as_tensorflows_own(mode, strategy, clipped):
  rows = train(tfl, mode, strategy, clipped=clipped)
  assert rows == train(OWN, mode, strategy, clipped=clipped)
  second = strategy in ("mirrored", "central")
  assert [row[0] for row in rows] == (
    [8, 16, 8, 8, 4, 4] if second else [8, 16, 16, 32, 16, 16]
  )
  assert rows[2][2:] == rows[1][2:] or not second  # All replicas skipped.


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
    v = tf.Variable(1.0)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.5), loss_scale
    )
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
    v = tf.Variable(1.0)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.5), Vetoing()
    )
    strategy.run(lambda: opt.minimize(lambda: v * 2.0, var_list=[v]))
    assert float(v.values[0]) == 1


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_checkpoint_of_mirrored_state(mode, tmp_path):
  strategy = _STRATEGIES["mirrored"]()
  with strategy.scope():
    v = tf.Variable([1.0])
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.MomentumOptimizer(0.1, 0.9), tfl.DynamicLossScale(1, 2.0)
    )

    def run():
      strategy.run(lambda: opt.minimize(lambda: v * 1.0, var_list=[v]) and None)

    run = tf.function(run, autograph=False) if mode == "function" else run
    run()
    checkpoint = tf.train.Checkpoint(opt=opt, v=v)
    path = checkpoint.save(str(tmp_path / "ckpt"))

    def state():
      slot = opt.get_slot(v, "momentum")
      tensors = (opt.loss_scale(), opt.loss_scale.good_steps, v, slot)
      return [tf.convert_to_tensor(x).numpy().tolist() for x in tensors]

    saved = state()
    run()
    assert state() != saved
    checkpoint.restore(path).assert_consumed()
    assert state() == saved


if __name__ == "__main__":
  helpers.main()
