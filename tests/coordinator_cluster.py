# SPDX-License-Identifier: Apache-2.0
"""A task of a cluster with parameter servers, in TensorFlow 2's way.

Usage: coordinator_cluster.py JSON, with the keys that `main` reads. The
coordinator prints the state after each step or at the end.
"""

import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


def draw_factors(seed, steps, rate):
  """Returns the factors of gradients, by attempt."""
  rng = np.random.RandomState(seed)
  factors = rng.randint(1, 9, steps) / 8
  bad = rng.rand(steps) < rate
  return np.where(bad, np.inf, factors).astype(np.float32)


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

  @tf.function
  def run(self, factor):
    """Does a step on a worker."""
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

  def state(self):
    """Returns the values of all variables as lists."""
    found = [self.attempts, self.step, self.dense, self.sparse]
    found += [self.scale._current_loss_scale, self.scale._num_good_steps]
    for slot in self.inner.get_slot_names():
      both = (self.dense, self.sparse)
      found += [self.inner.get_slot(v, slot) for v in both]
    return [x.numpy().tolist() for x in found]


def write(row):
  """Prints a row of JSON."""
  print(json.dumps(row), flush=True)


def main():
  """Serves, or coordinates the steps from the newest checkpoint on."""
  given = json.loads(sys.argv[1])
  job, index, cluster = given["job"], given["index"], given["cluster"]
  if job != "chief":
    # A worker gives up a peer that is gone, rather than wait for its return.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    server = tf.distribute.Server(cluster, job_name=job, task_index=index)
    write({"ready": 1})
    server.join()
  resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec(cluster), rpc_layer="grpc"
  )
  strategy = tf.distribute.ParameterServerStrategy(resolver)
  coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
  module = tfl if given.get("module", "tfl") == "tfl" else tf1.mixed_precision
  trainer = Trainer(strategy, module)
  steps, save_every = given["steps"], given["save_every"]
  factors = draw_factors(given["seed"], steps, given["rate"])
  checkpoint = tf.train.Checkpoint(
    dense=trainer.dense,
    sparse=trainer.sparse,
    step=trainer.step,
    attempts=trainer.attempts,
    optimizer=trainer.opt,
  )
  folder = str(pathlib.Path(given["folder"]))
  manager = tf.train.CheckpointManager(checkpoint, folder, 3)
  if manager.latest_checkpoint:
    checkpoint.restore(manager.latest_checkpoint)
  done = int(trainer.attempts.numpy())
  write({"begin": done})
  try:
    while done < steps:
      end = min(steps, done + save_every)
      for factor in factors[done:end]:
        time.sleep(given.get("pause", 0))
        coordinator.schedule(trainer.run, args=(tf.constant(factor),))
        if given["one_by_one"]:
          coordinator.join()
          write({"state": trainer.state()})
      coordinator.join()
      done = end
      manager.save()
      write({"saved": done})
    write({"end": trainer.state()})
  except tf.errors.OpError as error:
    write({"error": [type(error).__name__, str(error)[:500]]})
    os._exit(3)
  os._exit(0)


if __name__ == "__main__":
  main()
