# SPDX-License-Identifier: Apache-2.0
"""Finds the optimizer and the loss scale that are to be watched."""

from __future__ import annotations

import numbers
from typing import Any

from tf_compat_lossscale import accumulation
from tf_compat_lossscale import contrib
from tf_compat_lossscale import environment
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import step_records
from tf_compat_lossscale._core import wrapped_optimizers
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.monitoring import rows

_Scaled = loss_scale_optimizer.MixedPrecisionLossScaleOptimizer


def list_optimizers(optimizer: Any, keras: bool = False) -> list[Any]:
  """Returns the optimizers with a loss scale that an optimizer is or wraps.

  There may be several if they have their loss scales by NVIDIA's environment
  variables, which give one to a wrapper, too. The wrapper uses its own only if
  its methods call those of `tf.compat.v1.train.Optimizer`.

  The arguments are those of `find_optimizer`.

  Returns:
    The optimizers, the outermost first, at least one.

  Raises:
    ValueError: There is no loss scale.
  """

  def is_scaled(each: Any) -> bool:
    if isinstance(each, _Scaled):
      return True
    return keras and optimizer_kinds.is_keras_with_scale(each)

  found: list[Any] = []
  for each in wrapped_optimizers.walk(optimizer, is_scaled, ("optimizer",)):
    own = each if is_scaled(each) else environment.find_steps(each)
    if own is not None and all(own is not x for x in found):
      found.append(own)
  if not found:
    also = "tf_compat_lossscale.keras.LossScaleOptimizer, a " if keras else ""
    raise ValueError(
      f"optimizer must be a {also}MixedPrecisionLossScaleOptimizer, a "
      "contrib.LossScaleOptimizer or an optimizer that wraps one, but got "
      f"{wrong_values.show(optimizer)}. For models of Keras, use "
      "LossScaleCallback."
    )
  return found


def find_optimizer(optimizer: Any, keras: bool = False) -> Any:
  """Returns the optimizer with a loss scale that an optimizer is or wraps.

  If there are several (see `list_optimizers`), it is the outermost that took a
  step in the current graph, or eagerly. If none did yet, it is the outermost
  whose method `apply_gradients` is not overridden.

  Args:
    optimizer: An optimizer, also one that has a loss scale by NVIDIA's
      environment variables.
    keras: Whether the optimizer may be a `keras.LossScaleOptimizer`.

  Raises:
    ValueError: There is no loss scale.
  """
  found = list_optimizers(optimizer, keras)
  stepped = (x for x in found if step_records.has_stepped(x))
  likely = (x for x in found if not environment.overrides_steps(x))
  return next(stepped, None) or next(likely, found[-1])


def refuse_accumulation(name: str, optimizer: Any) -> None:
  """Raises a ValueError if an optimizer accumulates gradients.

  Args:
    name: What cannot watch such an optimizer.
    optimizer: What `find_optimizer` returned.
  """
  if isinstance(optimizer, accumulation.AccumulatingOptimizer):
    raise ValueError(
      f"{name} cannot watch an optimizer that accumulates, whose steps are in "
      f"a cond: {optimizer!r}. Fetch its loss_scale() and last_step_applied "
      "instead; eagerly and in a tf.function, use Monitor."
    )


def find_loss_scale(optimizer: Any) -> Any:
  """Returns the loss scale of an optimizer that `find_optimizer` returned."""
  if optimizer_kinds.is_keras_with_scale(optimizer):
    return optimizer.monitored_loss_scale
  return optimizer.loss_scale


def find_owner(optimizer: Any) -> Any:
  """Returns the object that has the notes and the agreement of a loss scale.

  Args:
    optimizer: What `find_optimizer` returned.
  """
  if optimizer_kinds.is_keras_with_scale(optimizer):
    return optimizer  # Its loss scale is an object of Keras.
  return graph_weights.find_owner(optimizer.loss_scale)


def find_minimum(loss_scale: Any) -> float | None:
  """Returns the lowest value that a loss scale takes; None if unknown."""
  dynamic = (
    loss_scale_lib.DynamicLossScale,
    contrib.ExponentialUpdateLossScaleManager,
  )
  if isinstance(graph_weights.find_owner(loss_scale), dynamic):
    return 1.0
  lowest = getattr(getattr(loss_scale, "rule", None), "lowest", None)
  lowest = getattr(loss_scale, "minimum", lowest)
  return None if lowest is None else float(lowest)


def describe(loss_scale: Any) -> dict[str, Any]:
  """Returns the class and the arguments of a loss scale, as JSON has them."""
  owner = graph_weights.find_owner(loss_scale)
  try:
    config = dict(loss_scale.get_config())
  except NotImplementedError:
    config = {}
  return {
    "class_name": getattr(owner, "class_name", type(owner).__name__),
    **{
      name: _to_json(value)
      for name, value in config.items()
      if isinstance(value, (bool, numbers.Real, str))
    },
    "minimum": find_minimum(loss_scale),
  }


def _to_json(value: Any) -> Any:
  """Returns a value as JSON has it; NumPy's numbers become Python's."""
  if isinstance(value, (bool, str)):
    return value
  if isinstance(value, numbers.Integral):
    return int(value)
  return rows.to_json(float(value))
