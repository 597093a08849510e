# SPDX-License-Identifier: Apache-2.0
"""Tests gradients that one replica has and the other lacks."""

import helpers
import pytest
from scaled_optimizers import dynamic
from scaled_optimizers import wrap
import tensorflow as tf
import trainers
from trainers import Spec

from tf_compat_lossscale import contrib

tf1 = tf.compat.v1


def manage(manager, **kwargs):
  inner = tf1.train.GradientDescentOptimizer(0.25)
  return contrib.LossScaleOptimizer(inner, manager, **kwargs)


def sgd():
  return tf1.train.GradientDescentOptimizer(0.25)


_KINDS = {
  "fixed": wrap(8, sgd),
  "dynamic": wrap(dynamic(), sgd),
  "contrib": lambda: manage(
    contrib.ExponentialUpdateLossScaleManager(8, 2, 1, 2, 0.5)
  ),
  "keep": lambda: manage(contrib.FixedLossScaleManager(8), sparse="keep"),
}


class OneSided(trainers.Trainer):
  """Training of four variables: both replicas, one or none have gradients."""

  def _build(self, fed):
    # A replica's Python code knows its number only in this way.
    context = tf.distribute.get_replica_context()
    number = tf.get_static_value(context.replica_id_in_sync_group)
    factor = fed[0]

    def loss():
      shared, dense, sparse, _ = self.variables
      total = tf.reduce_sum(shared * factor)
      if int(number) == 1:
        return total
      own = tf.reduce_sum(dense * factor) * 2
      own += tf.reduce_sum(tf.gather(sparse, [0, 0, 2]) * factor)
      return total + own

    return self.opt.minimize(
      loss if self.graph is None else loss(), var_list=self.variables
    )


@pytest.mark.parametrize("mode", helpers.MODES)
@pytest.mark.parametrize("kind", _KINDS)
def test_zeros_where_a_replica_has_none(mode, kind):
  specs = (Spec(), Spec(), Spec((3, 2)), Spec())
  strategy = helpers.two_replicas()
  with OneSided(mode, _KINDS[kind], specs, strategy=strategy) as trainer:
    for factor in (1.0, 2.0):
      trainer.step(factor, 0.0, 0.0, 0.0)
    shared, dense, sparse, never = map(trainer.value, trainer.variables)
  assert shared.tolist() == [-0.25] * 2  # The second replica's factor is 1.
  assert dense.tolist() == [-0.5] * 2
  assert sparse.tolist() == [[-0.5] * 2, [1.0] * 2, [0.25] * 2]
  assert never.tolist() == [1.0] * 2
