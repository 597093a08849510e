# SPDX-License-Identifier: Apache-2.0
"""Horovod's optimizers: how to know them, and the exchange of numbers.

This module does not import Horovod. An optimizer of Horovod is known by its
class's module. What is read off such an optimizer has no public name; in a
release without the attribute, the optimizer is taken for a plain one.

`DistributedOptimizer.compute_gradients` asks the optimizer that it wraps, then
reduces. To accumulate gradients without communication, the two must be apart:
`find_local` computes, and `reduce` reduces.
"""

from __future__ import annotations

from collections.abc import Iterator
import copy
import importlib
import sys
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import agreements
from tf_compat_lossscale._core import wrapped_optimizers

# What Horovod 0.21 to 0.28 call the function that reduces.
_REDUCE = "_allreduce_grads"
# The number of frames to look at for an optimizer that calls another one. With
# AutoGraph there are about ten for each call.
_MOST_FRAMES = 128


def check_passes(optimizer: Any) -> None:
  """Checks that no optimizer of Horovod within accumulates gradients.

  Between its exchanges, Horovod returns the gradients of the rank alone. So
  each rank would check and apply its own gradients.

  Args:
    optimizer: The optimizer that a loss scale is to wrap.

  Raises:
    ValueError: An optimizer of Horovod has backward_passes_per_step above 1.
  """
  for found in wrapped_optimizers.walk(optimizer):
    passes = _find_passes(found)
    if passes > 1:
      raise ValueError(
        f"A loss scale cannot wrap {type(found).__name__} of Horovod with "
        f"backward_passes_per_step={passes}: its gradients are those of one "
        "rank in all but every last pass, so the loss scales of the ranks "
        "would differ. Leave backward_passes_per_step at 1 and accumulate "
        "outside: tf_compat_lossscale.accumulate("
        "tf_compat_lossscale.MixedPrecisionLossScaleOptimizer("
        f"hvd.DistributedOptimizer(opt), loss_scale), {passes}). Or wrap the "
        "loss scale in Horovod's optimizer: hvd.DistributedOptimizer("
        "tf_compat_lossscale.MixedPrecisionLossScaleOptimizer(opt, "
        f"loss_scale), backward_passes_per_step={passes})."
      )


def find_agreement(optimizer: Any) -> agreements.Agreement | None:
  """Returns the agreement that Horovod's optimizers need, or None.

  Most need none: all ranks get the same gradients. With Adasum and for
  variables that `register_local_var` got, each rank has gradients of its own.

  Args:
    optimizer: The optimizer with a loss scale. Horovod's optimizer is within,
      or calls the method that calls this function.
  """
  if "horovod" not in sys.modules:
    return None
  for found in (*wrapped_optimizers.walk(optimizer), *_list_callers(optimizer)):
    if _is_horovods(found) and _has_local_gradients(found):
      return make_agreement(getattr(found, "process_set", None))
  return None


def _list_callers(optimizer: Any) -> Iterator[Any]:
  """Yields the optimizers of Horovod that wrap an optimizer and now call it.

  The call stack tells. `distributed.agree` is the explicit way, but programs
  with Adasum were promised that they need not call it, and Horovod gives the
  optimizer that it wraps no sign of itself.
  """
  frame: Any = sys._getframe(1)
  for _ in range(_MOST_FRAMES):
    if frame is None:
      return
    if "self" in frame.f_code.co_varnames + frame.f_code.co_freevars:
      caller = frame.f_locals.get("self")
      if _is_horovods(caller) and any(
        x is optimizer for x in wrapped_optimizers.walk(caller)
      ):
        yield caller
    frame = frame.f_back


def _is_horovods(optimizer: Any) -> bool:
  """Returns whether an object's class or a base of it is Horovod's."""
  return any(
    cls.__module__.partition(".")[0] == "horovod"
    for cls in type(optimizer).__mro__
  )


def _find_passes(optimizer: Any) -> int:
  """Returns the passes of each exchange; 1 if an optimizer is not Horovod's."""
  if not _is_horovods(optimizer):
    return 1
  passes = getattr(optimizer, "_backward_passes_per_step", 1)  # Adasum.
  helper = getattr(optimizer, "_agg_helper", None)
  return int(getattr(helper, "backward_passes_per_step", passes))


def _has_local_gradients(optimizer: Any) -> bool:
  """Returns whether an optimizer of Horovod leaves gradients to each rank."""
  helper = getattr(optimizer, "_agg_helper", None)
  return (
    "Adasum" in type(optimizer).__name__
    or bool(getattr(optimizer, "_local_vars", None))
    or bool(getattr(helper, "_local_vars", None))
  )


class _Given:
  """An optimizer whose gradients are known."""

  def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
    self._pairs = pairs

  def compute_gradients(self) -> list[tuple[Any, Any]]:
    """Returns the (gradient, variable) pairs."""
    return self._pairs


def _reduces(optimizer: Any) -> bool:
  """Returns whether an optimizer reduces as it computes gradients."""
  return hasattr(optimizer, _REDUCE) and hasattr(optimizer, "_optimizer")


def is_accumulating(optimizer: Any) -> bool:
  """Returns whether an optimizer that reduces accumulates gradients itself."""
  return getattr(optimizer, "_agg_helper", None) is not None


def find_local(optimizer: Any) -> Any:
  """Returns the optimizer that computes gradients without communication."""
  while _reduces(optimizer):
    optimizer = optimizer._optimizer
  return optimizer


def reduce(
  optimizer: Any, pairs: list[tuple[Any, Any]]
) -> list[tuple[Any, Any]]:
  """Reduces gradients as an optimizer does that computes them.

  A copy of the optimizer gets the gradients in place of the optimizer that it
  wraps. So all settings of the reduction count: compression, groups, variables
  that are local.

  Args:
    optimizer: Any optimizer.
    pairs: (gradient, variable) pairs.

  Returns:
    The pairs, with reduced gradients if the optimizer is reducing.
  """
  if not _reduces(optimizer) or not pairs:
    return pairs
  twin = copy.copy(optimizer)
  twin._optimizer = _Given(reduce(optimizer._optimizer, pairs))
  return list(twin.compute_gradients())


def _load() -> Any:
  """Returns the module `horovod.tensorflow`, initialized.

  Raises:
    ImportError: Horovod is not installed, or without TensorFlow.
    RuntimeError: The program has not called `hvd.init()`.
  """
  try:
    hvd = importlib.import_module("horovod.tensorflow")
  except ImportError as error:
    raise ImportError(
      "'horovod' needs Horovod with TensorFlow, which cannot be imported: "
      f"{error}. Install Horovod with HOROVOD_WITH_TENSORFLOW=1, or pass a "
      "function.",
      name="horovod",
    ) from error
  if not hvd.is_initialized():
    raise RuntimeError(
      "Horovod is not initialized: call horovod.tensorflow.init() first."
    )
  return hvd


def make_agreement(process_set: Any = None) -> agreements.Agreement:
  """Returns an agreement of all ranks, or of those of a process set."""
  hvd = _load()
  more = {} if process_set is None else {"process_set": process_set}

  def all_reduce(value: tf.Tensor) -> tf.Tensor:
    return hvd.allreduce(value, op=hvd.Sum, name="found_inf", **more)

  return agreements.Agreement(all_reduce)
