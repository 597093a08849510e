# SPDX-License-Identifier: Apache-2.0
"""Defines the optimizer of Keras 3 that scales the loss.

Importing this module imports Keras 3.
"""

from __future__ import annotations

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

  `apply` and `apply_gradients` take unscaled gradients after
  `get_unscaled_gradients`, and scaled gradients otherwise, as from `scale_loss`
  in `Model.fit`. In a `tf.function` that calls one of these itself, that call
  decides; eagerly, the last call does. If the optimizer goes both ways, and a
  `tf.function` computes gradients that other code applies, a RuntimeError says
  so.

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
      dynamic_growth_steps: The finite steps after which the loss scale grows.
      **kwargs: Other arguments of Keras's own class.

    Raises:
      TypeError: `inner_optimizer` is no optimizer of Keras 3, or scales a loss.
    """
    if isinstance(inner_optimizer, _Base):
      raise TypeError(
        "LossScaleOptimizer cannot wrap another LossScaleOptimizer, but got "
        f"{inner_optimizer!r}. Wrap its inner_optimizer."
      )
    if not isinstance(inner_optimizer, keras.optimizers.Optimizer):
      raise TypeError(
        "optimizer must be an optimizer of Keras 3, but got "
        f"{optimizer_kinds.show(inner_optimizer)}."
        f"{optimizer_kinds.advise_for_keras(inner_optimizer)} For optimizers "
        "of Keras 2 there is tf_compat_lossscale.keras.LossScaleOptimizer."
      )
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
    """Multiplies a loss, or what a function returns, by the loss scale."""
    if callable(loss):
      return lambda: self.get_scaled_loss(loss())
    return super().scale_loss(loss)

  def get_unscaled_gradients(self, grads: Iterable[Any]) -> list[Any]:
    """Divides gradients of the scaled loss by the loss scale.

    Args:
      grads: The gradients; some may be None. Those of float16 become float32.

    Returns:
      The gradients of the loss itself, in the order of `grads`.
    """
    self._ways.note(self.name, True)
    scale = self._read_scale()
    return [None if x is None else keras.ops.divide(x, scale) for x in grads]

  def scale_loss(self, loss: Any) -> Any:
    """Multiplies a loss by the loss scale, for gradients that stay scaled."""
    self._ways.note(self.name, False)
    return super().scale_loss(loss)

  def apply(self, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
    """Applies gradients if all of them are finite, and changes the loss scale.

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
  is known if a function computes and applies gradients, if all code is eager,
  or if there is one way alone. A copy begins anew.
  """

  def __init__(self) -> None:
    self._lock = threading.Lock()
    # The ways of eager calls since gradients were last applied.
    self._eager: set[bool] = set()
    self._is_applied = False
    # The way of each graph that computes gradients; which of these graphs do
    # not apply them; and the way of each graph that applies those of others.
    self._computed: Any = weakref.WeakKeyDictionary()
    self._open: Any = weakref.WeakSet()
    self._taken: Any = weakref.WeakKeyDictionary()

  def __reduce__(self) -> tuple[Any, ...]:
    return _Ways, ()

  def note(self, name: str, is_unscaled: bool) -> None:
    """Notes which gradients the caller computes, for an optimizer's name."""
    graphs = _list_graphs()
    with self._lock:
      _check(name, {is_unscaled, *self._taken.values()})
      if graphs:
        self._computed[graphs[0]] = is_unscaled
        self._open.add(graphs[0])
        return
      if self._is_applied:
        self._eager.clear()
      self._is_applied = False
      self._eager.add(is_unscaled)

  def find(self, name: str) -> bool:
    """Returns whether the gradients that the caller applies are unscaled."""
    graphs = _list_graphs()
    with self._lock:
      around = [x for x in graphs if x in self._computed][:1]
      self._open.difference_update(around)
      # The bodies of loops and conds, and functions within this one.
      within = [x for x in self._open if graphs and graphs[0] in _climb(x)]
      ways = {self._computed[x] for x in [*around, *within]}
      if ways:
        _check(name, ways)
        bodies = [x for x in within if _is_body(x, graphs[0])]
        if bodies:  # They are called from here alone.
          self._open.difference_update(bodies)
          self._computed[graphs[0]] = True in ways
        return True in ways
      ways = self._eager | {self._computed[x] for x in self._open}
      ways = ways or set(self._computed.values())
      self._is_applied = not graphs
      _check(name, ways)
      if graphs:
        self._taken[graphs[0]] = True in ways
      return True in ways


def _list_graphs() -> list[Any]:
  """Returns the graph that is being made and those around it; [] if eager."""
  eager = tf.executing_eagerly()
  return [] if eager else list(_climb(tf.compat.v1.get_default_graph()))


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


def _check(name: str, ways: set[bool]) -> None:
  """Raises a RuntimeError if an optimizer may go both ways."""
  if len(ways) == 2:
    raise RuntimeError(
      f"The optimizer {name!r} cannot know whether its gradients are scaled: "
      "it takes unscaled ones from get_unscaled_gradients() and scaled ones "
      "from scale_loss() or Model.fit, and computes some in one tf.function or "
      "thread and applies them in another, or eagerly. Compute and apply "
      "gradients in one tf.function, or make one optimizer for each way."
    )


# Files name the class. With Keras's name, files load without this package.
Keras3LossScaleOptimizer.__module__ = "keras.optimizers"
Keras3LossScaleOptimizer.__name__ = "LossScaleOptimizer"
