# SPDX-License-Identifier: Apache-2.0
"""A worker that trains under `MultiWorkerMirroredStrategy`.

Usage: multi_worker_cluster.py JSON, with the keys that `main` reads. The worker
prints its state after each attempt of a step.
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
OWN = tf1.mixed_precision


def draw_factors(seed, workers, steps, rate):
  """Returns the factors of gradients: a row for each step, by worker."""
  rng = np.random.RandomState(seed)
  factors = rng.randint(1, 9, [steps, workers]) / np.float32(8)
  bad = rng.rand(steps, workers) < rate
  kinds = rng.choice([np.inf, -np.inf, np.nan], [steps, workers])
  return np.where(bad, kinds, factors).astype(np.float32)


class Trainer:
  """A program with a dense and a sparse gradient, under a strategy."""

  def __init__(self, strategy, module, inner="momentum"):
    self.strategy = strategy
    with strategy.scope():
      self.dense = tf.Variable([1.0, 2.0, 3.0], name="dense")
      self.sparse = tf.Variable(np.ones([4, 2], np.float32), name="sparse")
      self.step = tf1.train.get_or_create_global_step()
      self.attempts = tf.Variable(
        0,
        dtype=tf.int64,
        trainable=False,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
      )
      self.scale = module.DynamicLossScale(8, 4)
      self.inner = tf1.train.MomentumOptimizer(0.01, 0.9)
      if inner == "adam":
        self.inner = tf1.train.AdamOptimizer(0.01)
      self.opt = module.MixedPrecisionLossScaleOptimizer(self.inner, self.scale)

  def replica_step(self, factor):
    """Does a step in a replica."""

    def loss():
      rows = tf.gather(self.sparse, [0, 0, 2])
      squares = tf.reduce_sum(self.dense**2) + tf.reduce_sum(rows**2)
      return squares * factor

    both = [self.dense, self.sparse]
    self.opt.minimize(loss, var_list=both, global_step=self.step)
    self.attempts.assign_add(1)

  @tf.function
  def run(self, factor):
    """Does a step in all replicas of this worker."""
    self.strategy.run(self.replica_step, args=(factor,))

  def variables(self):
    """Returns all variables of the state, by name."""
    found = {"dense": self.dense, "sparse": self.sparse, "step": self.step}
    found["scale"] = self.scale._current_loss_scale
    found["good"] = self.scale._num_good_steps
    for slot in self.inner.get_slot_names():
      found[f"{slot}0"] = self.inner.get_slot(self.dense, slot)
      found[f"{slot}1"] = self.inner.get_slot(self.sparse, slot)
    return found

  def state(self):
    """Returns the bytes of all variables in hexadecimal digits, by name."""
    return {
      name: np.asarray(self.local(v)).tobytes().hex()
      for name, v in self.variables().items()
    }

  def local(self, variable):
    """Returns a variable's value on this worker."""
    return self.strategy.experimental_local_results(variable)[0]


def write(row):
  """Prints a row of JSON."""
  print(json.dumps(row), flush=True)


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
  options = tf.distribute.experimental.CommunicationOptions(
    timeout_seconds=given.get("timeout", 30)
  )
  strategy = tf.distribute.MultiWorkerMirroredStrategy(
    communication_options=options
  )
  trainer = Trainer(strategy, tfl if given["module"] == "tfl" else OWN)
  factors = draw_factors(
    given["seed"], len(addresses), given["steps"], given["rate"]
  )
  manager = None
  if "folder" in given:
    manager = make_manager(trainer, pathlib.Path(given["folder"]), index)
  begin = int(trainer.attempts.numpy())
  write({"begin": begin})
  try:
    train(trainer, manager, factors[:, index], given)
  except tf.errors.OpError as error:
    write({"error": [type(error).__name__, str(error)[:500]]})
    os._exit(3)
  os._exit(0)


def train(trainer, manager, factors, given):
  """Trains to the end, and saves now and then."""
  begin = int(trainer.attempts.numpy())
  for i in range(begin, given["steps"]):
    trainer.run(tf.constant(factors[i]))
    write({"state": [i + 1, trainer.state()]})
    if manager and (i + 1) % given["save_every"] == 0:
      manager.save()
    time.sleep(given.get("pause", 0))
  write({"end": [given["steps"], trainer.state()]})


def make_manager(trainer, folder, index):
  """Restores the newest checkpoint, and returns the manager of the next."""
  checkpoint = tf.train.Checkpoint(
    dense=trainer.dense,
    sparse=trainer.sparse,
    step=trainer.step,
    attempts=trainer.attempts,
    optimizer=trainer.opt,
  )
  path = tf.train.latest_checkpoint(str(folder / "chief"))
  if path:
    checkpoint.restore(path)
  # All workers save, because reading a variable may need all of them. The chief
  # alone writes what is restored.
  own = "chief" if index == 0 else f"worker{index}"
  return tf.train.CheckpointManager(checkpoint, str(folder / own), 3)


if __name__ == "__main__":
  main()
