# SPDX-License-Identifier: Apache-2.0
"""Defines the optimizer of Keras 3 that `to_keras3` returns.

Importing this module imports Keras 3. Import this module before you load a
`.keras` file of a model that was saved before it was trained: the file names
the class below, and Keras finds registered classes alone.
"""

from __future__ import annotations

import importlib
from typing import Any

keras: Any = importlib.import_module("keras")

_Base: Any = keras.optimizers.LossScaleOptimizer


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


def count_steps(optimizer: Any) -> int:
  """Returns the number of steps that a Keras 3 optimizer has done."""
  return int(_find_count(optimizer).numpy()) // _find_accumulation(optimizer)


def _find_count(optimizer: Any) -> Any:
  # `iterations` is no variable if the optimizer accumulates gradients.
  return next(v for v in optimizer.variables if v.name == "iteration")


def _find_accumulation(optimizer: Any) -> int:
  # The number of gradients in a step; 1 in Keras 3.0, without this attribute.
  return getattr(optimizer, "gradient_accumulation_steps", None) or 1
