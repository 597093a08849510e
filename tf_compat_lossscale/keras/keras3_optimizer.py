# SPDX-License-Identifier: Apache-2.0
"""Defines optimizers of Keras 3 that scale the loss.

Importing this module imports Keras 3. Import this module before you load a
`.keras` file of a model that has an optimizer of `to_keras3` and was saved
before it was trained: the file names `ResumedLossScaleOptimizer`, and Keras
finds registered classes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
import weakref

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale._core import wrapped_optimizers

keras: Any = which_keras.import_keras_3()

_Base: Any = keras.optimizers.LossScaleOptimizer


class Keras3LossScaleOptimizer(wrapped_optimizers.Delegating, _Base):
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
  `get_unscaled_gradients`, and scaled gradients otherwise. A `tf.function` goes
  one way: that of the method which it has called. If it has called neither, the
  method that was called last decides.

  Checkpoints and files are those of Keras 3's own class.
  """

  _WRAPPED = "inner_optimizer"
  # Whether gradients come unscaled, by the last call.
  _is_unscaled = False

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
    check_inner(inner_optimizer)
    super().__init__(
      inner_optimizer, initial_scale, dynamic_growth_steps, **kwargs
    )
    # The same in each graph.
    self._is_unscaled_in: weakref.WeakKeyDictionary[Any, bool] = (
      weakref.WeakKeyDictionary()
    )

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
    """
    self._note(True)
    scale = self._read_scale()
    return [None if x is None else keras.ops.divide(x, scale) for x in grads]

  def scale_loss(self, loss: Any) -> Any:
    """Multiplies a loss by the loss scale, for gradients that stay scaled.

    Args:
      loss: A floating-point tensor.

    Returns:
      The scaled loss.
    """
    self._note(False)
    return super().scale_loss(loss)

  def apply(self, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
    """Applies gradients if all of them are finite, and changes the loss scale.

    Args:
      grads: The gradients: see the class for whether they are scaled.
      trainable_variables: The variables, unless the optimizer is built.

    Returns:
      What the method of Keras's own class returns.
    """
    grads = list(grads)
    if self._takes_unscaled():
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

  def _note(self, is_unscaled: bool) -> None:
    """Notes which gradients the caller will apply."""
    self._is_unscaled = is_unscaled
    if not tf.executing_eagerly():
      graph = tf.compat.v1.get_default_graph()
      self._is_unscaled_in[graph] = is_unscaled

  def _takes_unscaled(self) -> bool:
    """Returns whether the gradients of this call are unscaled."""
    if not tf.executing_eagerly():
      graph: Any = tf.compat.v1.get_default_graph()
      while graph is not None:
        if graph in self._is_unscaled_in:
          return bool(self._is_unscaled_in[graph])
        graph = getattr(graph, "outer_graph", None)
    return bool(self._is_unscaled)


# Files name the class. With Keras's name, files load without this package.
Keras3LossScaleOptimizer.__module__ = "keras.optimizers"
Keras3LossScaleOptimizer.__name__ = "LossScaleOptimizer"


@keras.saving.register_keras_serializable(package="tf_compat_lossscale")
class ResumedLossScaleOptimizer(_Base):
  """A LossScaleOptimizer of Keras 3 whose counter does not start from 0.

  Keras often builds an optimizer inside a graph, where an assignment to the new
  counter would be an op that never runs. An initializer does run, so this class
  passes the count as an initializer. Once it is built, the object is of Keras's
  own class, and files of trained models load without this package.
  """

  def __init__(
    self,
    inner_optimizer: Any,
    initial_scale: float = 2.0**15,
    dynamic_growth_steps: int = 2000,
    good_steps: int = 0,
    iterations: int = 0,
    **kwargs: Any,
  ) -> None:
    """Wraps an optimizer.

    Args:
      inner_optimizer: The optimizer to wrap.
      initial_scale: The loss scale to start from.
      dynamic_growth_steps: The number of finite steps that make the loss scale
        grow.
      good_steps: The number of these steps that are done.
      iterations: The number of steps that `inner_optimizer` starts from, unless
        it has done some.
      **kwargs: Other arguments of Keras's own class.
    """
    kwargs["name"] = kwargs.get("name") or "loss_scale_optimizer"
    super().__init__(
      inner_optimizer, initial_scale, dynamic_growth_steps, **kwargs
    )
    self._good_steps = good_steps
    self._is_counting = False
    if count_steps(inner_optimizer) == 0:
      _find_count(inner_optimizer).assign(
        iterations * _find_accumulation(inner_optimizer)
      )

  def build(self, *args: Any, **kwargs: Any) -> None:
    """Makes the variables; from then on Keras's own class does the work.

    Args:
      *args: The arguments of the method of Keras's own class.
      **kwargs: Its keyword arguments.

    Raises:
      RuntimeError: This release of Keras keeps the count elsewhere.
    """
    super().build(*args, **kwargs)
    if not self._is_counting:
      raise RuntimeError(
        f"Keras {keras.__version__} has no variable 'step_counter' in its "
        "LossScaleOptimizer, so the count of finite steps would be lost: use "
        "a release of Keras from 3.0 to 3.15."
      )
    del self._good_steps, self._is_counting
    self.__class__ = _Base

  def add_variable(self, *args: Any, **kwargs: Any) -> Any:
    """Adds a variable; the counter starts from the good steps done."""
    if kwargs.get("name") == "step_counter":
      kwargs["initializer"] = keras.initializers.Constant(self._good_steps)
      self._is_counting = True
    return super().add_variable(*args, **kwargs)

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments, with the counters as they are now."""
    return {
      **super().get_config(),
      "good_steps": self._good_steps,
      "iterations": count_steps(self.inner_optimizer),
    }


def check_inner(optimizer: Any, advice: str = "") -> None:
  """Checks an optimizer that is to be wrapped.

  Args:
    optimizer: The argument of a constructor.
    advice: A sentence for the end of the message.

  Raises:
    TypeError: `optimizer` is no optimizer of Keras 3, or a LossScaleOptimizer.
  """
  if isinstance(optimizer, _Base):
    raise TypeError(
      "LossScaleOptimizer cannot wrap another LossScaleOptimizer, but got "
      f"{optimizer!r}. Wrap its inner_optimizer."
    )
  if not isinstance(optimizer, keras.optimizers.Optimizer):
    message = (
      "optimizer must be an optimizer of Keras 3, but got "
      f"{optimizer_kinds.show(optimizer)}."
      f"{optimizer_kinds.advise_for_keras(optimizer)} "
      "For optimizers of Keras 2 there is "
      f"tf_compat_lossscale.keras.LossScaleOptimizer. {advice}"
    )
    raise TypeError(message.rstrip())


def count_steps(optimizer: Any) -> int:
  """Returns the number of steps that a Keras 3 optimizer has done."""
  return int(_find_count(optimizer).numpy()) // _find_accumulation(optimizer)


def _find_count(optimizer: Any) -> Any:
  # `iterations` is no variable if the optimizer accumulates gradients.
  return next(v for v in optimizer.variables if v.name == "iteration")


def _find_accumulation(optimizer: Any) -> int:
  # The number of gradients in a step; 1 in Keras 3.0, without this attribute.
  return getattr(optimizer, "gradient_accumulation_steps", None) or 1
