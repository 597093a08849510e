# SPDX-License-Identifier: Apache-2.0
"""Accumulates on the ranks of Horovod; each rank checks what it trained.

`accumulation_horovod_test.py` starts this program by `horovodrun`.
"""

import math
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1
_STEPS = 4


def make(op):
  """Returns an optimizer that accumulates and averages over ranks."""
  sgd = tf1.train.GradientDescentOptimizer(0.5)
  inner = hvd.DistributedOptimizer(sgd, op=op)
  scaled = tfl.MixedPrecisionLossScaleOptimizer(
    inner, tfl.DynamicLossScale(8, 2)
  )
  return tfl.accumulate(scaled, _STEPS)


def make_runner(mode, op):
  """Returns functions that run a micro-batch, and that read the state."""
  if mode in ("eager", "function"):
    v = tf.Variable([1.0, 2.0])
    opt = make(op)

    def step(grad):
      opt.minimize(lambda: tf.reduce_sum(v * grad), var_list=[v])

    step = tf.function(step) if mode == "function" else step
    return (
      lambda grad: step(tf.constant(grad, tf.float32)),
      lambda: [v.numpy(), opt.loss_scale().numpy()],
    )
  graph = tf.Graph()
  with graph.as_default():
    v = tf1.Variable([1.0, 2.0], use_resource=True)
    opt = make(op)
    feed = tf1.placeholder(tf.float32, [])
    train = opt.minimize(tf.reduce_sum(v * feed), var_list=[v])
    session = tf1.Session(graph=graph)
    session.run(tf1.global_variables_initializer())
    state = [v, opt.loss_scale()]
  return (
    lambda grad: session.run(train, {feed: grad}),
    lambda: session.run(state),
  )


def check(mode, op):
  """Trains by a random schedule, which is the same on all ranks."""
  size, rank = hvd.size(), hvd.rank()
  rng = np.random.default_rng(3)
  run, read = make_runner(mode, op)
  value, scale, good = np.float32([1, 2]), 8.0, 0
  for _ in range(10):
    grads = rng.integers(-8, 8, [_STEPS, size]) / np.float32(8)
    if rng.random() < 0.5:
      grads[rng.integers(_STEPS), rng.integers(size)] = math.inf
    if rng.random() < 0.2:
      grads[:] = math.nan
    for row in grads:
      run(row[rank])
    is_finite = np.isfinite(grads).all()
    good += 1
    if not is_finite:
      scale, good = max(scale / 2, 1), 0
    elif good == 2:
      scale, good = scale * 2, 0
    if is_finite:
      factor = 1 if op == hvd.Average else size
      value = value - np.float32(0.5) * grads.mean() * factor
    seen, seen_scale = read()
    np.testing.assert_allclose(seen, value, rtol=1e-5)
    assert seen_scale == scale, (seen_scale, scale)
    value = np.float32(seen)


def main():
  """Checks the modes that the command line names."""
  hvd.init()
  assert hvd.size() > 1
  for mode in sys.argv[1:]:
    if mode in ("graph_v1", "graph_v2"):
      (
        tf1.enable_control_flow_v2
        if mode == "graph_v2"
        else tf1.disable_control_flow_v2
      )()
    for op in (hvd.Average, hvd.Sum):
      check(mode, op)
    print(f"done {mode} of rank {hvd.rank()}", flush=True)


if __name__ == "__main__":
  main()
