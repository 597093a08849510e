# SPDX-License-Identifier: Apache-2.0
"""One of two workers that accumulate gradients of their own, and agree.

Usage: agree_cluster.py JSON, with the keys that `main` reads. The inner
optimizer takes the mean of both workers' gradients as it applies them. The
worker prints its state after each window.
"""

import json
from multiprocessing import connection
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import helpers
import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import distributed

tf1 = tf.compat.v1
STEPS = 3


class Link:
  """A connection to the other worker. Each exchange must be of one kind."""

  def __init__(self, port, index):
    address = ("127.0.0.1", port)
    if index == 0:
      with connection.Listener(address) as listener:
        self._connection = listener.accept()
    else:
      self._connection = _connect(address)

  def reduce(self, value, kind="agreement"):
    """Returns the sum over both workers."""

    def exchange(own):
      self._connection.send((kind, own))
      if not self._connection.poll(30):
        raise TimeoutError(f"the other worker takes no part in {kind}")
      others, other = self._connection.recv()
      if others != kind or other.shape != own.shape:
        raise RuntimeError(f"one worker does {others}, the other {kind}")
      # The same order on both workers.
      return np.sort(np.stack([own, other]), axis=0).sum(0).astype(own.dtype)

    reduced = tf.numpy_function(exchange, [value], value.dtype)
    return tf.ensure_shape(reduced, value.shape)


def _connect(address):
  """Connects to a worker that may not listen yet."""
  end = time.monotonic() + 60
  while True:
    try:
      return connection.Client(address)
    except ConnectionRefusedError:
      if time.monotonic() > end:
        raise
      time.sleep(0.05)


class Averaging(tf1.train.GradientDescentOptimizer):
  """Applies the mean of both workers' gradients."""

  def __init__(self, link):
    super().__init__(0.5)
    self._link = link

  def apply_gradients(self, grads_and_vars, *args, **kwargs):
    pairs = [
      (self._link.reduce(grad, "mean") / 2, var) for grad, var in grads_and_vars
    ]
    return super().apply_gradients(pairs, *args, **kwargs)


def draw(seed, index, windows):
  """Returns a worker's gradients: a row for each window."""
  rng = np.random.RandomState(seed + 1000 * index)
  grads = rng.randint(-8, 9, [windows, STEPS]) / np.float32(8)
  rates = rng.choice([0.0, 0.5, 1.0], [windows, 1])
  kinds = rng.choice([np.inf, -np.inf, np.nan], [windows, STEPS])
  return np.where(rng.rand(windows, STEPS) < rates, kinds, grads)


def model(seed, windows, drop):
  """Yields by NumPy what both workers must have after each window."""
  grads = [draw(seed, index, windows) for index in range(2)]
  value, step, scale, good = 0.0, 0, 8.0, 0
  for rows in zip(*grads):
    window = np.float32(rows)
    kept = window[np.isfinite(window)]
    is_complete = kept.size == window.size
    good += 1
    if not is_complete:
      scale, good = max(scale / 2, 1.0), 0
    elif good == 2:
      scale, good = scale * 2, 0
    if is_complete or (drop == "micro_batch" and kept.size):
      value, step = value - 0.5 * kept.mean(), step + 1
    yield [value, step, scale]


def main():
  """Trains, and prints the state after each window."""
  given = json.loads(sys.argv[1])
  link = Link(given["port"], given["index"])
  mode, fixed = given["mode"], given["fixed"]
  scale = tfl.FixedLossScale(8) if fixed else tfl.DynamicLossScale(8, 2)
  with helpers.mode_scope(mode) as graph:
    v = tf1.Variable(0.0, use_resource=True)
    step = tf1.Variable(0, dtype=tf.int64, use_resource=True)
    scaled = tfl.MixedPrecisionLossScaleOptimizer(Averaging(link), scale)
    opt = tfl.accumulate(scaled, STEPS, given["drop"])
    distributed.agree(opt, link.reduce)

    def train(factor):
      op = opt.minimize(lambda: v * factor, step, [v])
      return op if graph else None

    state = [v, step]
    if graph:
      feed = tf1.placeholder(tf.float32, [])
      op, state = train(feed), [*state, scale()]
      session = tf1.Session()
      session.run(tf1.global_variables_initializer())
      run = lambda grad: session.run(op, {feed: grad})  # noqa: E731
      read = lambda: session.run(state)  # noqa: E731
    else:
      function = tf.function(train) if mode == "function" else train
      run = lambda grad: function(tf.constant(grad, tf.float32))  # noqa: E731
      read = lambda: [x.numpy() for x in (*state, scale())]  # noqa: E731
    for row in draw(given["seed"], given["index"], given["windows"]):
      for grad in row:
        run(grad)
      print(json.dumps({"state": [x.item() for x in read()]}), flush=True)


if __name__ == "__main__":
  main()
