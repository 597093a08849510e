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
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod.tensorflow as hvd
import tensorflow as tf

from benchmarks import network
from benchmarks import rank_steps
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
  rank_steps.OWN: _wrap_own,
  "ours": lambda: _wrap(False),
  "ours agree": lambda: _wrap(True),
}


def build(make: Callable[[], Any]) -> Callable[[], None]:
  """Returns a step of the small network with an optimizer."""
  with tf.Graph().as_default():
    variables = rank_steps.make_variables()
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
  times = rank_steps.take_turns(steps, rounds)
  if hvd.rank() == 0:
    rank_steps.print_ratios(times, f"{hvd.size()} ranks")
  hvd.shutdown()


if __name__ == "__main__":
  main()
