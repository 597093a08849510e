# SPDX-License-Identifier: Apache-2.0
"""What the machine can do: the bounds that figures are held against."""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
_LARGE = 1 << 24
_CHAIN = 200


def _best(fetch: tf.Tensor, rounds: int) -> float:
  """Seconds that evaluating `fetch` takes, the best of so many rounds."""
  with tf1.Session(graph=fetch.graph) as session:
    session.run(fetch.graph.get_collection("initialize"))
    run = session.make_callable(fetch.op)
    times = []
    for _ in range(rounds):
      begin = time.perf_counter()
      run()
      times.append(time.perf_counter() - begin)
  return float(np.min(times))


def measure() -> dict[str, float]:
  """Bytes a second that TensorFlow reads, and seconds that an op costs it.

  The first by summing four tensors of 64 MiB, the second by a chain of
  arctangents of scalars, which no optimization of graphs joins.
  """
  with tf.Graph().as_default() as graph:
    large = [
      tf1.Variable(tf.ones([_LARGE]), use_resource=True) for _ in range(4)
    ]
    graph.add_to_collection("initialize", tf1.global_variables_initializer())
    reading = _best(tf.add_n([tf.reduce_sum(v) for v in large]), 20)
  with tf.Graph().as_default() as graph:
    variable = tf1.Variable(1.0, use_resource=True)
    graph.add_to_collection("initialize", variable.initializer)
    value = variable.read_value()
    start = _best(tf.identity(value), 200)
    for _ in range(_CHAIN):
      value = tf.math.atan2(value, variable)
    chain = _best(value, 200)
  return {
    "bytes_per_second": 4 * 4 * _LARGE / reading,
    "seconds_per_op": (chain - start) / _CHAIN,
  }
