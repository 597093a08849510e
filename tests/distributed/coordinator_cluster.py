# SPDX-License-Identifier: Apache-2.0
"""A task of a cluster with parameter servers, in TensorFlow 2's way.

Usage: coordinator_cluster.py JSON, with the keys that `main` reads. The
coordinator prints the state after each step or at the end.
"""

import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import strategy_trainer
from strategy_trainer import write
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


def draw_factors(seed, steps, rate):
  """Returns the factors of gradients, by attempt."""
  rng = np.random.RandomState(seed)
  factors = rng.randint(1, 9, steps) / 8
  bad = rng.rand(steps) < rate
  return np.where(bad, np.inf, factors).astype(np.float32)


class Trainer(strategy_trainer.Trainer):
  """A program that shows the variables of the parameter servers."""

  def state(self):
    """Returns the number of attempts, and the values of all variables."""
    found = [self.attempts, *self.variables().values()]
    return [x.numpy().tolist() for x in found]


def main():
  """Serves, or coordinates the steps from the newest checkpoint on."""
  given = json.loads(sys.argv[1])
  job, index, cluster = given["job"], given["index"], given["cluster"]
  if job != "chief":
    server = tf.distribute.Server(cluster, job_name=job, task_index=index)
    server.join()
  resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec(cluster), rpc_layer="grpc"
  )
  strategy = tf.distribute.ParameterServerStrategy(resolver)
  coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
  module = tfl if given.get("module", "tfl") == "tfl" else tf1.mixed_precision
  trainer = Trainer(strategy, module)
  factors = draw_factors(given["seed"], given["steps"], given["rate"])
  folder = str(pathlib.Path(given["folder"]))
  manager = tf.train.CheckpointManager(trainer.checkpoint, folder, 3)
  if manager.latest_checkpoint:
    trainer.checkpoint.restore(manager.latest_checkpoint)
  done = int(trainer.attempts.numpy())
  for factor in factors[done : given.get("stop")]:
    coordinator.schedule(trainer.run, args=(tf.constant(factor),))
    if given["one_by_one"]:
      coordinator.join()
      write({"state": trainer.state()})
  coordinator.join()
  manager.save()
  write({"end": trainer.state()})
  os._exit(0)


if __name__ == "__main__":
  main()
