# SPDX-License-Identifier: Apache-2.0
"""A process of a cluster that trains under a strategy of several processes.

Usage: strategy_cluster.py JSON, with the keys that `main` reads. A worker of
`MultiWorkerMirroredStrategy`, or the coordinator of parameter servers, prints
the state after each step, and at the end.
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


def draw_factors(seed, steps, workers, rate):
  """Returns the factors of gradients: a row for each step, by worker."""
  rng = np.random.RandomState(seed)
  factors = rng.randint(1, 9, [steps, workers]) / np.float32(8)
  bad = rng.rand(steps, workers) < rate
  kinds = rng.choice([np.inf, -np.inf, np.nan], [steps, workers])
  return np.where(bad, kinds, factors).astype(np.float32)


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

  def state(self):
    """Returns the values of all variables that this process sees."""
    scale, both = self.scale, [self.dense, self.sparse]
    found = [self.attempts, self.step, *both, scale._current_loss_scale]
    found += [scale._num_good_steps]
    found += [self.inner.get_slot(v, "momentum") for v in both]
    local = self.strategy.experimental_local_results
    return [np.asarray(local(v)[0]).tolist() for v in found]


def make_strategy(jobs, job, index):
  """Returns the strategy of the process, and the chief's coordinator."""
  distribute = tf.distribute
  if "ps" in jobs:
    resolver = distribute.cluster_resolver.SimpleClusterResolver(
      tf.train.ClusterSpec(jobs), rpc_layer="grpc"
    )
    strategy = distribute.ParameterServerStrategy(resolver)
    return strategy, distribute.coordinator.ClusterCoordinator(strategy)
  task = {"type": job, "index": index}
  os.environ["TF_CONFIG"] = json.dumps({"cluster": jobs, "task": task})
  options = distribute.experimental.CommunicationOptions(timeout_seconds=30)
  return distribute.MultiWorkerMirroredStrategy(
    communication_options=options
  ), None


def main():
  """Serves, or does the steps from the newest checkpoint on."""
  given = json.loads(sys.argv[1])
  jobs, job, index = given["jobs"], given["job"], given["index"]
  if "ps" in jobs and job != "chief":
    tf.distribute.Server(jobs, job_name=job, task_index=index).join()
  strategy, coordinator = make_strategy(jobs, job, index)
  trainer = Trainer(strategy, tf1.mixed_precision if given["own"] else tfl)
  # All workers save, because reading a variable may need all of them. The first
  # alone writes what is restored.
  path = tf.train.latest_checkpoint(f"{given['folder']}/0")
  if path:
    trainer.checkpoint.restore(path)
  workers = 1 if coordinator else len(jobs["worker"])
  factors = draw_factors(given["seed"], given["steps"], workers, given["rate"])
  for row in factors[int(trainer.attempts.numpy()) : given["stop"]]:
    factor = tf.constant(row[index])
    if coordinator is None:
      trainer.run(factor)
    else:
      coordinator.schedule(trainer.run, args=(factor,))
      if given["at_once"]:
        continue
      coordinator.join()
    print(json.dumps({"state": trainer.state()}), flush=True)
  if coordinator:
    coordinator.join()
  folder = f"{given['folder']}/{index}"
  tf.train.CheckpointManager(trainer.checkpoint, folder, 3).save()
  print(json.dumps({"end": trainer.state()}), flush=True)
  os._exit(0)


if __name__ == "__main__":
  main()
