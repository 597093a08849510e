# SPDX-License-Identifier: Apache-2.0
"""Measures the limits of the machine, to compare other figures with."""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
_LARGE = 1 << 24
_CHAIN = 200


def _best(fetch: tf.Tensor, rounds: int) -> float:
  """Returns the seconds of the fastest of `rounds` evaluations of `fetch`."""
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
  """Returns the bytes a second that TensorFlow reads and the seconds of an op.

  The bytes a second are those of summing four tensors of 64 MiB. The seconds of
  an op are those of each op in a chain of scalar arctangents, because no graph
  optimizer merges them.
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
