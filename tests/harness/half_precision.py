# SPDX-License-Identifier: Apache-2.0
"""Computes in float16 on the CPU, by TensorFlow's graph rewrite."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
from typing import Any

import helpers
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.eager import context

from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale._core.tf import rewrite

tf1 = tf.compat.v1


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


def list_lowered(graphs: Iterable[Any]) -> dict[str, str]:
  """Returns the float16 ops of GraphDefs by name; without casts."""
  nodes = [
    node
    for graph in graphs
    for part in (graph.node, *(f.node_def for f in graph.library.function))
    for node in part
  ]
  return {
    node.name: node.op
    for node in nodes
    if node.op != "Cast"
    and any(
      types_pb2.DT_HALF in (value.type, *value.list.type)
      for value in node.attr.values()
    )
  }


def graphs_of(function: Callable[[], Any]) -> list[Any]:
  """Runs a tf.function; returns its graphs, after TensorFlow's optimizers."""
  context.enable_run_metadata()
  context.export_run_metadata()  # Of functions that ran first before.
  try:
    function()
  finally:
    metadata = context.export_run_metadata()
    context.disable_run_metadata()
  return [each.post_optimization_graph for each in metadata.function_graphs]


def deep(x: np.ndarray, weights: list[Any]) -> tf.Tensor:
  """Returns the loss of three products at a small task."""
  h = tf.constant(x)
  for weight in weights[:-1]:
    h = tf.nn.relu(tf.matmul(h, weight))
  error = tf.matmul(h, weights[-1]) - np.tanh(x[:, :1])
  return tf.reduce_mean(tf.square(error))


class Network:
  """A program that trains float32 weights.

  Args:
    mode: A graph mode of `helpers.MODES`, or "function".
    make: Returns the optimizer, and the variable of its loss scale; it is
      called in the mode.
    strategy: Where to train, in a function.
    shapes: Those of the weights.
    loss: Returns the loss of 32 rows of 16 inputs, and of the weights.
  """

  def __init__(
    self,
    mode: str,
    make: Callable[[], tuple[Any, tf.Variable]],
    strategy: tf.distribute.Strategy | None = None,
    shapes: Iterable[tuple[int, ...]] = ((16, 16), (16, 16), (16, 1)),
    loss: Callable[[np.ndarray, list[Any]], tf.Tensor] = deep,
  ):
    rng = np.random.default_rng(0)
    self._x = rng.standard_normal([32, 16]).astype(np.float32)
    self._starts = [
      rng.standard_normal(s).astype(np.float32) / 4 for s in shapes
    ]
    scope = contextlib.nullcontext() if strategy is None else strategy.scope()
    with helpers.mode_scope(mode) as self.graph, scope:
      self.weights = [
        tf1.Variable(start, name=f"w{i}", use_resource=True)
        for i, start in enumerate(self._starts)
      ]
      self._loss_of = loss
      self.opt, self._scale = make()
      if self.graph is None:
        step = self._take_step
        if strategy is not None:  # The results are those of the last replica.
          step = lambda: tf.nest.map_structure(  # noqa: E731
            lambda x: strategy.experimental_local_results(x)[-1],
            strategy.run(self._take_step),
          )
        self.step = tf.function(step, autograph=False)
        return
      self.fetches = self._take_step()
      self._read = tf.identity(self._scale)
      self._fed = tf1.placeholder(tf.float32, [])
      self._assign = self._scale.assign(self._fed)
      self.saver = tf1.train.Saver()
      self._initialize = tf1.global_variables_initializer()
      self.session = tf1.Session()
      self.session.run(self._initialize)

  def _loss(self) -> tf.Tensor:
    with tf.name_scope("model"):
      return self._loss_of(self._x, self.weights)

  def _take_step(self) -> tuple[Any, ...]:
    if self.graph is not None:
      loss = self._loss()
      return loss, self.opt.minimize(loss, var_list=self.weights)
    loss, scale = self._loss(), tf.identity(self._scale)
    self.opt.minimize(self._loss, var_list=self.weights)
    return loss, scale

  def start(self, scale: float) -> None:
    """Makes the state that of the beginning, with another loss scale."""
    if self.graph is None:
      for variable in self.opt.variables():
        variable.assign(tf.zeros_like(variable))
      for weight, start in zip(self.weights, self._starts):
        weight.assign(start)
      self._scale.assign(scale)
    else:
      self.session.run(self._initialize)
      self.session.run(self._assign, {self._fed: scale})

  def train(self, steps: int) -> tuple[list[float], list[float]]:
    """Returns the losses and the loss scales before so many steps."""
    losses, scales = [], []
    for _ in range(steps):
      if self.graph is None:
        loss, scale = self.step()
      else:
        scale = self.session.run(self._read)
        loss, _ = self.session.run(self.fetches)
      losses.append(loss)
      scales.append(scale)
    return [float(x) for x in losses], [float(x) for x in scales]

  def read(self) -> list[np.ndarray]:
    """Returns the weights, and at last the loss scale."""
    if self.graph is None:
      return [each.numpy() for each in (*self.weights, self._scale)]
    return self.session.run([*self.weights, self._read])
