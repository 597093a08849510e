# SPDX-License-Identifier: Apache-2.0
"""Computes in float16 on the CPU, by TensorFlow's graph rewrite."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
from typing import Any

import helpers
import numpy as np
import tensorflow as tf

from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale._core.tf import rewrite

tf1 = tf.compat.v1
_WIDTH = 16


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
  """Lets the rewrite convert on CPUs; at the end it is off, as if it never was.

  The rewrite itself is turned on by the program, or by
  `graph_rewrite.turn_on()`.
  """
  rewrite._state.set_non_mixed_precision_session_created(False)
  graph_rewrite.enable_on_cpu()
  try:
    yield
  finally:
    graph_rewrite.disable_on_cpu()
    off = {"auto_mixed_precision": False}
    tf.config.optimizer.set_experimental_options(off)
    rewrite._state.set_mixed_precision_graph_rewrite_enabled(False)
    rewrite._state.set_non_mixed_precision_session_created(False)


def multiply() -> tf.Tensor:
  """Returns a scalar that is infinite in float16, and finite in float32."""
  large = tf.fill([4, 4], tf.random.uniform([], 300.0, 301.0))
  return tf.reduce_sum(tf.nn.relu(tf.matmul(large, large)) - 1.0)


def is_float16(config: Any = None, kind: Any = tf1.Session) -> bool:
  """Returns whether a new session computes in float16."""
  with tf.Graph().as_default():
    value = multiply()
    session = kind(config=config)
    try:
      return bool(np.isinf(session.run(value)))
    finally:
      session.close()


class Network:
  """A float32 network of three products that learns a small task.

  Args:
    mode: A graph mode of `helpers.MODES`, or "function".
    make: Returns the optimizer, and a function that reads its loss scale; it
      is called in the mode.
    strategy: Where to train, in a function.
  """

  def __init__(
    self,
    mode: str,
    make: Callable[[], tuple[Any, Callable[[], Any]]],
    strategy: tf.distribute.Strategy | None = None,
  ):
    rng = np.random.default_rng(0)
    self._x = rng.standard_normal([32, _WIDTH]).astype(np.float32)
    self._y = np.tanh(self._x[:, :1])
    shapes = [(_WIDTH, _WIDTH), (_WIDTH, _WIDTH), (_WIDTH, 1)]
    starts = [rng.standard_normal(s).astype(np.float32) / 4 for s in shapes]
    scope = contextlib.nullcontext() if strategy is None else strategy.scope()
    with helpers.mode_scope(mode) as self.graph, scope:
      self.weights = [
        tf1.Variable(start, name=f"w{i}", use_resource=True)
        for i, start in enumerate(starts)
      ]
      self.opt, self._read_scale = make()
      if self.graph is None:
        step = self._take_step
        if strategy is not None:  # The results are those of the last replica.
          step = lambda: tf.nest.map_structure(  # noqa: E731
            lambda x: strategy.experimental_local_results(x)[-1],
            strategy.run(self._take_step),
          )
        self._function = tf.function(step, autograph=False)
        return
      self.fetches = self._take_step()
      self.saver = tf1.train.Saver()
      self.session = tf1.Session()
      self.session.run(tf1.global_variables_initializer())

  def _loss(self) -> tf.Tensor:
    h = tf.constant(self._x)
    for weight in self.weights[:-1]:
      h = tf.nn.relu(tf.matmul(h, weight))
    return tf.reduce_mean(tf.square(tf.matmul(h, self.weights[-1]) - self._y))

  def _take_step(self) -> tuple[Any, ...]:
    loss, scale = self._loss(), tf.identity(self._read_scale())
    if self.graph is None:
      self.opt.minimize(self._loss, var_list=self.weights)
      return loss, scale
    self._scale = scale
    return loss, self.opt.minimize(loss)

  def train(self, steps: int) -> tuple[list[float], list[float]]:
    """Returns the losses and the loss scales before so many steps."""
    losses, scales = [], []
    for _ in range(steps):
      if self.graph is None:
        loss, scale = self._function()
      else:
        scale = self.session.run(self._scale)
        loss, _ = self.session.run(self.fetches)
      losses.append(loss)
      scales.append(scale)
    return [float(x) for x in losses], [float(x) for x in scales]

  def read_weights(self) -> list[np.ndarray]:
    if self.graph is None:
      return [weight.numpy() for weight in self.weights]
    return self.session.run(self.weights)
