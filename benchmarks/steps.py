# SPDX-License-Identifier: Apache-2.0
"""A training step in a graph, in a `tf.function` or eager."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import gc
from typing import Any

import tensorflow as tf

from benchmarks import rivals
from benchmarks import shapes

tf1 = tf.compat.v1
MODES = ("graph v1", "graph v2", "function", "eager")
_Loss = Callable[[Sequence[tf.Variable]], tf.Tensor]


def filled(variables: Sequence[tf.Variable]) -> tf.Tensor:
  """Returns a loss whose gradients cost a Fill op each.

  So the optimizer takes nearly all of the step. TensorFlow would merge a
  product with the product that unscales it. A Fill leaves the unscaling apart,
  as the ops of a real model do.
  """

  @tf.custom_gradient
  def loss(*values: tf.Tensor) -> Any:
    first = tf.add_n([value[(0,) * value.shape.rank] for value in values])
    return first, lambda dy: [gradient(value, dy) for value in values]

  def gradient(value: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    # Otherwise TensorFlow would merge the Fill ops of equal shapes.
    with tf.control_dependencies([value]):
      return tf.fill(value.shape, dy)

  return loss(*[tf.convert_to_tensor(variable) for variable in variables])


def products(variables: Sequence[tf.Variable]) -> tf.Tensor:
  """Returns a loss whose gradients are products, which merge with unscaling."""
  return tf.add_n([tf.nn.l2_loss(variable) for variable in variables])


FILLED = "filled"
LOSSES: dict[str, _Loss] = {FILLED: filled, "products": products}


def gathered(variables: Sequence[tf.Variable]) -> tf.Tensor:
  """Returns a loss with sparse gradients: 1,024 rows of each variable."""
  rows = tf.range(1024) * 37
  return tf.add_n(
    [tf.reduce_sum(tf.gather(variable, rows)) for variable in variables]
  )


class Step:
  """A rival's training step with its own variables; a call runs the step.

  Attributes:
    nodes: The number of nodes in the graph and its functions; None in modes
      without a graph.
  """

  nodes: int | None = None

  def __init__(
    self,
    wrap: rivals.Wrapper,
    variable_shapes: Sequence[shapes.Shape],
    optimizer: str = "momentum",
    mode: str = MODES[0],
    loss: _Loss = filled,
  ) -> None:
    gc.collect()  # Earlier graphs must not be collected while steps are timed.
    self._wrap, self._shapes, self._loss = wrap, variable_shapes, loss
    self._make_optimizer = rivals.OPTIMIZERS[optimizer]
    self._session: tf1.Session | None = None
    if mode.startswith("graph"):
      self._run = self._in_graph(mode == "graph v2")
    else:
      self._run = self._outside(mode == "function")

  def __call__(self) -> None:
    self._run()

  def close(self) -> None:
    if self._session:
      self._session.close()

  def _variables(self) -> list[tf.Variable]:
    return [
      tf1.Variable(tf.zeros(shape), name="v", use_resource=True)
      for shape in self._shapes
    ]

  def _in_graph(self, v2: bool) -> Callable[[], Any]:
    if v2:
      tf1.enable_control_flow_v2()
    else:
      tf1.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
      variables = self._variables()
      # Graph optimizers would remove a factor whose value they know.
      one = tf1.Variable(1.0, trainable=False, use_resource=True)
      loss = self._loss(variables) * one
      opt = self._wrap(self._make_optimizer())
      global_step = tf1.train.get_or_create_global_step()
      train = opt.minimize(loss, global_step, variables)
      initialize = tf1.global_variables_initializer()
    definition = graph.as_graph_def()
    self.nodes = len(definition.node) + sum(
      len(function.node_def) for function in definition.library.function
    )
    self._session = tf1.Session(graph=graph)
    self._session.run(initialize)
    return self._session.make_callable(train)

  def _outside(self, in_function: bool) -> Callable[[], Any]:
    variables = self._variables()
    opt = self._wrap(self._make_optimizer())

    def minimize() -> None:
      opt.minimize(lambda: self._loss(variables), var_list=variables)

    # AutoGraph would convert the package's code first, for seconds.
    return tf.function(minimize, autograph=False) if in_function else minimize
