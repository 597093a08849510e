# SPDX-License-Identifier: Apache-2.0
"""Times steps of MultiWorkerMirroredStrategy with several processes.

  python -m benchmarks.multi_worker_steps [WORKERS [ROUNDS]]

The processes run on 127.0.0.1. A step is one of the small network, in a
`tf.function`.
"""

from __future__ import annotations

from collections.abc import Callable
import json
import os
import socket
import subprocess
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks import network
from benchmarks import rank_steps
import tf_compat_lossscale as tfl

tf1 = tf.compat.v1
_SCALE = 2.0**10
_LIMIT = 1200  # Seconds.


def _momentum() -> Any:
  return tf1.train.MomentumOptimizer(1e-6, 0.9)


def _wrap(module: Any) -> Any:
  """Returns the optimizer with the loss scale of a module."""
  return module.MixedPrecisionLossScaleOptimizer(
    _momentum(), module.DynamicLossScale(_SCALE)
  )


RIVALS: dict[str, Callable[[], Any]] = {
  "bare": _momentum,
  rank_steps.OWN: lambda: _wrap(tf1.mixed_precision),
  "ours": lambda: _wrap(tfl),
}


def build(
  strategy: tf.distribute.Strategy, make: Callable[[], Any]
) -> Callable[[], object]:
  """Returns a step of the small network with an optimizer."""
  with strategy.scope():
    variables = rank_steps.make_variables()
    optimizer = make()

  def replica_step() -> None:
    optimizer.minimize(lambda: network.loss(variables), var_list=variables)

  @tf.function
  def step() -> None:
    strategy.run(replica_step)

  return step


def train(rounds: int) -> None:
  """Times the rivals as one of the workers; the first worker prints."""
  # Workers share the cores.
  tf.config.threading.set_inter_op_parallelism_threads(2)
  tf.config.threading.set_intra_op_parallelism_threads(1)
  strategy = tf.distribute.MultiWorkerMirroredStrategy()
  steps = {name: build(strategy, make) for name, make in RIVALS.items()}
  times = rank_steps.take_turns(steps, rounds)
  if strategy.cluster_resolver.task_id == 0:
    count = strategy.num_replicas_in_sync
    rank_steps.print_ratios(times, f"{count} workers")


def start(count: int, rounds: int) -> int:
  """Starts the workers; returns the highest exit status."""
  sockets = [socket.socket() for _ in range(count)]
  for one in sockets:
    one.bind(("127.0.0.1", 0))
  workers = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
  for one in sockets:
    one.close()
  tasks = []
  for index in range(count):
    task = {"type": "worker", "index": index}
    config = json.dumps({"cluster": {"worker": workers}, "task": task})
    command = [sys.executable, "-m", __spec__.name, str(count), str(rounds)]
    env = {**os.environ, "TF_CONFIG": config}
    tasks.append(subprocess.Popen(command, env=env))
  try:
    return max(task.wait(_LIMIT) for task in tasks)
  finally:
    for task in tasks:
      task.kill()


def main() -> None:
  """Starts the workers, or is one of them if TF_CONFIG is set."""
  count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
  rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 100
  if "TF_CONFIG" in os.environ:
    train(rounds)
  else:
    sys.exit(start(count, rounds))


if __name__ == "__main__":
  main()
