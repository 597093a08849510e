# SPDX-License-Identifier: Apache-2.0
"""A program that several processes train under a strategy."""

import json

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


class Trainer:
  """A program with a dense and a sparse gradient, under a strategy."""

  def __init__(self, strategy, module):
    self.strategy = strategy
    with strategy.scope():
      self.dense = tf.Variable([1.0, 2.0, 3.0], name="dense")
      self.sparse = tf.Variable(np.ones([4, 2], np.float32), name="sparse")
      self.step, self.attempts = (
        tf.Variable(
          0,
          dtype=tf.int64,
          trainable=False,
          aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        for _ in range(2)
      )
      self.scale = module.DynamicLossScale(8, 4)
      self.inner = tf1.train.MomentumOptimizer(0.01, 0.9)
      self.opt = module.MixedPrecisionLossScaleOptimizer(self.inner, self.scale)
    self.checkpoint = tf.train.Checkpoint(
      dense=self.dense,
      sparse=self.sparse,
      step=self.step,
      attempts=self.attempts,
      optimizer=self.opt,
    )

  @tf.function
  def run(self, factor):
    """Does a step in all replicas of this worker."""
    self.strategy.run(self.replica_step, args=(factor,))

  def replica_step(self, factor):
    """Does a step in a replica."""

    def loss():
      rows = tf.gather(self.sparse, [0, 0, 2])
      squares = tf.reduce_sum(self.dense**2) + tf.reduce_sum(rows**2)
      return squares * factor

    both = [self.dense, self.sparse]
    self.opt.minimize(loss, var_list=both, global_step=self.step)
    self.attempts.assign_add(1)

  def variables(self):
    """Returns all variables of the state, by name."""
    found = {"dense": self.dense, "sparse": self.sparse, "step": self.step}
    found["scale"] = self.scale._current_loss_scale
    found["good"] = self.scale._num_good_steps
    for slot in self.inner.get_slot_names():
      found[f"{slot}0"] = self.inner.get_slot(self.dense, slot)
      found[f"{slot}1"] = self.inner.get_slot(self.sparse, slot)
    return found


def write(row):
  """Prints a row of JSON."""
  print(json.dumps(row), flush=True)
