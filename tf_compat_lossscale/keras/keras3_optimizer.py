# SPDX-License-Identifier: Apache-2.0
"""Defines the optimizer of Keras 3 that scales the loss.

Importing this module imports Keras 3.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import itertools
import threading
from typing import Any
import weakref

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import which_keras

keras: Any = which_keras.import_keras_3()

_Base: Any = keras.optimizers.LossScaleOptimizer


class Keras3LossScaleOptimizer(_Base):
  """A LossScaleOptimizer of Keras 3 with the methods of Keras 2 for own loops.

  ```
  opt = Keras3LossScaleOptimizer(keras.optimizers.Adam())
  with tf.GradientTape() as tape:
    loss = opt.get_scaled_loss(compute_loss())
  grads = opt.get_unscaled_gradients(tape.gradient(loss, variables))
  opt.apply_gradients(zip(grads, variables))  # Skips, and changes the scale.
  ```

  Keras 3's own way works, too, in other loops and in `Model.fit`:

  ```
    loss = opt.scale_loss(compute_loss())
  opt.apply(tape.gradient(loss, variables), variables)  # Unscales, too.
  ```

  `apply` and `apply_gradients` take unscaled gradients after
  `get_unscaled_gradients`, and scaled gradients otherwise. In a `tf.function`
  that calls `get_unscaled_gradients` or `scale_loss` itself, that call decides;
  eagerly, the last call of the thread does. If the optimizer goes both ways,
  and it cannot be known which gradients come, a RuntimeError says so. That can
  be if a `tf.function` computes gradients which other code applies.

  Checkpoints and files are those of Keras 3's own class.
  """

  def __init__(
    self,
    inner_optimizer: Any,
    initial_scale: float = 2.0**15,
    dynamic_growth_steps: int = 2000,
    **kwargs: Any,
  ) -> None:
    """Wraps an optimizer.

    Args:
      inner_optimizer: The optimizer of Keras 3 to wrap.
      initial_scale: The loss scale to start from.
      dynamic_growth_steps: The number of finite steps that make the loss scale
        grow.
      **kwargs: Other arguments of Keras's own class.

    Raises:
      TypeError: `inner_optimizer` is no optimizer of Keras 3, or a
        LossScaleOptimizer.
    """
    _check_inner(inner_optimizer)
    super().__init__(
      inner_optimizer, initial_scale, dynamic_growth_steps, **kwargs
    )
    self._ways = _Ways()

  def __getattr__(self, name: str) -> Any:
    """Returns an attribute of the wrapped optimizer."""
    inner = vars(self).get("inner_optimizer")
    return optimizer_kinds.read_of_wrapped(self, inner, name)

  def __reduce_ex__(self, protocol: Any) -> Any:
    """Returns what copies and pickles are made from: Keras's file."""
    function, args, *rest = super().__reduce_ex__(protocol)
    if getattr(function, "__self__", None) is Keras3LossScaleOptimizer:
      # A method of this class, which is not found by its name.
      function, args = _rebuild, (function.__name__, *args)
    return function, args, *rest

  def get_scaled_loss(self, loss: Any) -> Any:
    """Multiplies a loss by the loss scale.

    Args:
      loss: A floating-point tensor, or a function that returns one.

    Returns:
      The scaled loss, or a function that returns it.
    """
    if callable(loss):
      function: Callable[[], Any] = loss
      return lambda: super(Keras3LossScaleOptimizer, self).scale_loss(
        function()
      )
    return super().scale_loss(loss)

  def get_unscaled_gradients(self, grads: Iterable[Any]) -> list[Any]:
    """Divides gradients of the scaled loss by the loss scale.

    Args:
      grads: The gradients; some may be None.

    Returns:
      The gradients of the loss itself, in the order of `grads`. Gradients of
      float16 become float32.

    Raises:
      RuntimeError: A `tf.function` applies scaled gradients computed elsewhere.
    """
    self._ways.note(self.name, True)
    scale = self._read_scale()
    return [None if x is None else keras.ops.divide(x, scale) for x in grads]

  def scale_loss(self, loss: Any) -> Any:
    """Multiplies a loss by the loss scale, for gradients that stay scaled.

    Args:
      loss: A floating-point tensor.

    Returns:
      The scaled loss.

    Raises:
      RuntimeError: A `tf.function` applies unscaled gradients computed
        elsewhere.
    """
    self._ways.note(self.name, False)
    return super().scale_loss(loss)

  def apply(self, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
    """Applies gradients if all of them are finite, and changes the loss scale.

    Args:
      grads: The gradients: see the class for whether they are scaled.
      trainable_variables: The variables, unless the optimizer is built.

    Returns:
      What the method of Keras's own class returns.

    Raises:
      RuntimeError: It cannot be known whether the gradients are scaled.
    """
    grads = list(grads)
    if self._ways.find(self.name):
      # Keras's own method divides by the scale: a power of 2 changes no digit.
      scale = self._read_scale()
      grads = [
        None if x is None else keras.ops.multiply(x, scale) for x in grads
      ]
    return super().apply(grads, trainable_variables)

  def _read_scale(self) -> Any:
    """Returns the loss scale, a float32 scalar."""
    scale = self.dynamic_scale if self.built else self.initial_scale
    return keras.ops.convert_to_tensor(scale, "float32")


def _rebuild(method: str, *args: Any) -> Any:
  """Makes an optimizer from Keras's file, which names Keras's own class."""
  optimizer = getattr(_Base, method)(*args)
  if type(optimizer) is _Base:
    optimizer = Keras3LossScaleOptimizer(
      optimizer.inner_optimizer,
      optimizer.initial_scale,
      optimizer.dynamic_growth_steps,
      name=optimizer.name,
    )
  return optimizer


class _Ways:
  """The ways that an optimizer goes: whether its gradients come unscaled.

  Python sees the calls in a `tf.function` once, while it is traced. So the way
  of gradients is known if they are applied in the function that computes them,
  if all code is eager, or if there is one way alone. A copy begins anew.
  """

  def __init__(self) -> None:
    self._lock = threading.Lock()
    # The ways of eager calls since gradients were last applied.
    self._eager: set[bool] = set()
    self._is_applied = False
    # The way of each graph that computes gradients, and those of these graphs
    # that do not apply them.
    self._of_graphs: weakref.WeakKeyDictionary[Any, bool] = (
      weakref.WeakKeyDictionary()
    )
    self._open: weakref.WeakSet[Any] = weakref.WeakSet()
    # The way of each graph that applies gradients computed elsewhere.
    self._taken: weakref.WeakKeyDictionary[Any, bool] = (
      weakref.WeakKeyDictionary()
    )

  def __reduce__(self) -> tuple[Any, ...]:
    return _Ways, ()

  def note(self, name: str, is_unscaled: bool) -> None:
    """Notes which gradients the caller computes.

    Args:
      name: The optimizer's name.
      is_unscaled: Whether they are unscaled.

    Raises:
      RuntimeError: A graph applies gradients of the other way.
    """
    graph = _find_graph()
    with self._lock:
      if (not is_unscaled) in list(self._taken.values()):
        raise _explain(name)
      if graph is None:
        if self._is_applied:
          self._eager.clear()
        self._is_applied = False
        self._eager.add(is_unscaled)
      else:
        self._of_graphs[graph] = is_unscaled
        self._open.add(graph)

  def find(self, name: str) -> bool:
    """Returns whether the gradients that the caller applies are unscaled.

    Args:
      name: The optimizer's name.

    Raises:
      RuntimeError: They may be either.
    """
    graph = _find_graph()
    with self._lock:
      outer = next((x for x in _climb(graph) if x in self._of_graphs), None)
      ways: set[bool] = set()
      if outer is not None:
        ways = {self._of_graphs[outer]}
        self._open.discard(outer)
      # The bodies of loops, and functions within this one.
      within = [x for x in self._open if graph in _climb(x)] if graph else []
      ways |= {self._of_graphs[x] for x in within}
      bodies = [x for x in within if _is_body(x, graph)]
      if bodies and len(ways) == 1:  # They are called from here alone.
        self._open.difference_update(bodies)
        self._of_graphs[graph] = True in ways
      if not ways:
        ways = self._eager | {self._of_graphs[x] for x in self._open}
        ways = ways or set(self._of_graphs.values())
        if graph is None:
          self._is_applied = True
        elif len(ways) < 2:
          self._taken[graph] = True in ways
      if len(ways) == 2:
        raise _explain(name)
      return True in ways


def _find_graph() -> Any:
  """Returns the graph that is being made; None in eager code."""
  if tf.executing_eagerly():
    return None
  return tf.compat.v1.get_default_graph()


def _climb(graph: Any) -> Iterator[Any]:
  """Yields a graph, then those around it."""
  while graph is not None:
    yield graph
    graph = getattr(graph, "outer_graph", None)


def _is_body(inner: Any, graph: Any) -> bool:
  """Returns whether a graph is of a loop or a cond directly in another one."""
  between = itertools.takewhile(lambda x: x is not graph, _climb(inner))
  ends = ("WhileBodyFuncGraph", "CondBranchFuncGraph")
  return all(type(x).__name__ in ends for x in between)


def _explain(name: str) -> RuntimeError:
  return RuntimeError(
    f"The optimizer {name!r} cannot know whether its gradients are scaled. It "
    "is used both for unscaled gradients, as get_unscaled_gradients() returns "
    "them, and for scaled gradients, as with scale_loss() and Model.fit. Some "
    "are computed in one tf.function or thread and applied in another, or "
    "eagerly. Compute and apply gradients in one tf.function, or make one "
    "optimizer object for each of the two ways."
  )


# Files name the class. With Keras's name, files load without this package.
Keras3LossScaleOptimizer.__module__ = "keras.optimizers"
Keras3LossScaleOptimizer.__name__ = "LossScaleOptimizer"


def _check_inner(optimizer: Any) -> None:
  """Checks an optimizer that is to be wrapped.

  Raises:
    TypeError: `optimizer` is no optimizer of Keras 3, or a LossScaleOptimizer.
  """
  if isinstance(optimizer, _Base):
    raise TypeError(
      "LossScaleOptimizer cannot wrap another LossScaleOptimizer, but got "
      f"{optimizer!r}. Wrap its inner_optimizer."
    )
  if not isinstance(optimizer, keras.optimizers.Optimizer):
    raise TypeError(
      "optimizer must be an optimizer of Keras 3, but got "
      f"{optimizer_kinds.show(optimizer)}."
      f"{optimizer_kinds.advise_for_keras(optimizer)} "
      "For optimizers of Keras 2 there is "
      "tf_compat_lossscale.keras.LossScaleOptimizer."
    )
