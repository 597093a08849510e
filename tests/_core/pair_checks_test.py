# SPDX-License-Identifier: Apache-2.0
"""Tests gradients that one replica has and the other lacks."""

import contextlib

import helpers
from helpers import GRAPH_MODES
from helpers import MODES
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib

tf1 = tf.compat.v1
_SHARED, _DENSE, _SPARSE, _NEVER = range(4)
_SHAPES = [(2,), (2,), (3, 2), (2,)]


def make_optimizer(kind, inner):
  """Returns an optimizer with a loss scale."""
  if kind == "contrib":
    manager = contrib.ExponentialUpdateLossScaleManager(8, 2, 1, 2, 0.5)
    return contrib.LossScaleOptimizer(inner, manager)
  if kind == "keep":
    manager = contrib.FixedLossScaleManager(8)
    return contrib.LossScaleOptimizer(inner, manager, sparse="keep")
  scale = 8 if kind == "fixed" else tfl.DynamicLossScale(8, 2)
  return tfl.MixedPrecisionLossScaleOptimizer(inner, scale)


def train(mode, kind):
  """Trains two replicas for two steps.

  Args:
    mode: One of helpers.MODES.
    kind: The kind of optimizer.

  Returns:
    The values of the variables.
  """
  strategy = helpers.two_replicas()
  with contextlib.ExitStack() as stack:
    graph = stack.enter_context(helpers.mode_scope(mode))
    stack.enter_context(strategy.scope())
    variables = [
      tf1.Variable(tf.ones(shape), use_resource=True, name=f"v{i}")
      for i, shape in enumerate(_SHAPES)
    ]
    opt = make_optimizer(kind, tf1.train.GradientDescentOptimizer(0.25))

    def replica_fn(factor):
      context = tf.distribute.get_replica_context()
      # A replica's Python code knows its number only in this way.
      second = int(tf.get_static_value(context.replica_id_in_sync_group)) == 1

      def loss():
        shared, dense, sparse, _ = variables
        total = tf.reduce_sum(shared * factor)
        if second:
          return total
        own = tf.reduce_sum(dense * factor) * 2
        own += tf.reduce_sum(tf.gather(sparse, [0, 0, 2]) * factor)
        return total + own

      op = opt.minimize(loss, var_list=variables)
      return op if mode in GRAPH_MODES else None

    def run(factor):
      return strategy.run(replica_fn, (factor,))

    if graph is None:
      run = tf.function(run, autograph=False) if mode == "function" else run
      for factor in (1.0, 2.0):
        run(tf.constant(factor))
      return [v.values[0].numpy() for v in variables]
    feed = tf1.placeholder(tf.float32, [])
    ops = strategy.experimental_local_results(run(feed))
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      for factor in (1.0, 2.0):
        session.run(ops, {feed: factor})
      return session.run([v.values[0] for v in variables])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["fixed", "dynamic", "contrib", "keep"])
def test_zeros_where_a_replica_has_none(mode, kind):
  values = train(mode, kind)
  np.testing.assert_array_equal(values[_SHARED], [-0.5] * 2)
  np.testing.assert_array_equal(values[_DENSE], [-0.5] * 2)
  rows = [[-0.5] * 2, [1.0] * 2, [0.25] * 2]
  np.testing.assert_array_equal(values[_SPARSE], rows)
  np.testing.assert_array_equal(values[_NEVER], [1.0] * 2)


if __name__ == "__main__":
  helpers.main()
