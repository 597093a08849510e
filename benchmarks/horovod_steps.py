# SPDX-License-Identifier: Apache-2.0
"""Times steps of ranks of Horovod: this package, TensorFlow's own, agreement.

  horovodrun -np 2 --gloo -H localhost:2 python -m benchmarks.horovod_steps

Needs Horovod: see tools/machines.sh. The steps of all rivals take turns in the
same order on all ranks. A step is one of the small network, in a graph.
"""

from __future__ import annotations

from collections.abc import Callable
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from benchmarks import network
import tf_compat_lossscale as tfl
from tf_compat_lossscale import distributed

tf1 = tf.compat.v1
_SCALE = 2.0**10


def _momentum() -> Any:
  return tf1.train.MomentumOptimizer(1e-6, 0.9)


def _wrap(agrees: bool) -> Any:
  """Returns this package's wrapper around Horovod's optimizer."""
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    hvd.DistributedOptimizer(_momentum()), tfl.DynamicLossScale(_SCALE)
  )
  return distributed.agree(opt) if agrees else opt


def _wrap_own() -> Any:
  """Returns TensorFlow's own wrapper around Horovod's optimizer."""
  own = tf1.mixed_precision
  return own.MixedPrecisionLossScaleOptimizer(
    hvd.DistributedOptimizer(_momentum()), own.DynamicLossScale(_SCALE)
  )


RIVALS: dict[str, Callable[[], Any]] = {
  "bare": lambda: hvd.DistributedOptimizer(_momentum()),
  "own": _wrap_own,
  "ours": lambda: _wrap(False),
  "ours agree": lambda: _wrap(True),
}


def build(make: Callable[[], Any]) -> Callable[[], None]:
  """Returns a step of the small network with an optimizer."""
  with tf.Graph().as_default():
    random = np.random.default_rng(0)
    variables = [
      tf1.Variable(
        random.normal(0, 0.01, shape).astype(np.float32), use_resource=True
      )
      for shape in network.SHAPES
    ]
    op = make().minimize(network.loss(variables), var_list=variables)
    # Ranks share the cores.
    config = tf1.ConfigProto(
      inter_op_parallelism_threads=1, intra_op_parallelism_threads=1
    )
    session = tf1.Session(config=config)
    session.run(tf1.global_variables_initializer())
  return lambda: session.run(op)


def main() -> None:
  """Times the rivals; rank 0 prints medians, and ratios by round."""
  rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
  hvd.init()
  steps = {name: build(make) for name, make in RIVALS.items()}
  times: dict[str, list[float]] = {name: [] for name in steps}
  random = np.random.default_rng(0)  # The same order on all ranks.
  for i in range(rounds + 5):
    for name in random.permutation(list(steps)):
      begin = time.perf_counter()
      steps[name]()
      if i >= 5:  # The first rounds warm up.
        times[name].append(time.perf_counter() - begin)
  if hvd.rank() == 0:
    for name, own in times.items():
      ratios = np.asarray(own) / np.asarray(times["own"])
      low, ratio, high = np.percentile(ratios, [25, 50, 75])
      print(
        f"{hvd.size()} ranks, {name}: {1e3 * np.median(own):.2f} ms, "
        f"{ratio:.3f} of TensorFlow's own ({low:.3f} to {high:.3f})",
        flush=True,
      )
  hvd.shutdown()


if __name__ == "__main__":
  main()
