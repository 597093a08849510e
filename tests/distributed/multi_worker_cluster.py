# SPDX-License-Identifier: Apache-2.0
"""A worker that trains under `MultiWorkerMirroredStrategy`.

Usage: multi_worker_cluster.py JSON, with the keys that `main` reads. The worker
prints its state after each attempt of a step.
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
OWN = tf1.mixed_precision


def draw_factors(seed, workers, steps, rate):
  """Returns the factors of gradients: a row for each step, by worker."""
  rng = np.random.RandomState(seed)
  factors = rng.randint(1, 9, [steps, workers]) / np.float32(8)
  bad = rng.rand(steps, workers) < rate
  kinds = rng.choice([np.inf, -np.inf, np.nan], [steps, workers])
  return np.where(bad, kinds, factors).astype(np.float32)


class Trainer(strategy_trainer.Trainer):
  """A program that shows what this worker has."""

  def state(self):
    """Returns the bytes of all variables in hexadecimal digits, by name."""
    return {
      name: np.asarray(self.local(v)).tobytes().hex()
      for name, v in self.variables().items()
    }

  def local(self, variable):
    """Returns a variable's value on this worker."""
    return self.strategy.experimental_local_results(variable)[0]


def main():
  """Trains, and prints a row for each attempt of a step."""
  given = json.loads(sys.argv[1])
  addresses, index = given["workers"], given["index"]
  os.environ["TF_CONFIG"] = json.dumps(
    {
      "cluster": {"worker": addresses},
      "task": {"type": "worker", "index": index},
    }
  )
  options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=30)
  strategy = tf.distribute.MultiWorkerMirroredStrategy(
    communication_options=options
  )
  trainer = Trainer(strategy, tfl if given["module"] == "tfl" else OWN)
  factors = draw_factors(
    given["seed"], len(addresses), given["steps"], given["rate"]
  )
  manager = make_manager(trainer, pathlib.Path(given["folder"]), index)
  begin = int(trainer.attempts.numpy())
  for i in range(begin, given.get("stop", given["steps"])):
    trainer.run(tf.constant(factors[i, index]))
    write({"state": [i + 1, trainer.state()]})
  manager.save()
  write({"end": 1})
  os._exit(0)


def make_manager(trainer, folder, index):
  """Restores the newest checkpoint, and returns the manager of the next."""
  path = tf.train.latest_checkpoint(str(folder / "chief"))
  if path:
    trainer.checkpoint.restore(path)
  # All workers save, because reading a variable may need all of them. The chief
  # alone writes what is restored.
  own = "chief" if index == 0 else f"worker{index}"
  return tf.train.CheckpointManager(trainer.checkpoint, str(folder / own), 3)


if __name__ == "__main__":
  main()
