# SPDX-License-Identifier: Apache-2.0
"""Tells which kind of optimizer a user passed, for errors and warnings.

Neither Keras is imported: their optimizers are told by their classes' modules.
"""

from __future__ import annotations

from collections.abc import Iterator
import sys
from typing import Any

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import wrong_values

_PACKAGE = __name__.partition(".")[0]
_OF_KERAS = f"{_PACKAGE}.keras.LossScaleOptimizer"
_OF_COMPAT_V1 = f"{_PACKAGE}.MixedPrecisionLossScaleOptimizer"
# The classes that scale the loss: ours, and TensorFlow's own.
_SCALING = (
  "LossScaleOptimizer",
  "MixedPrecisionLossScaleOptimizer",
  "MixedPrecisionLossScaleOptimizerV1",
)
_KERAS = ("keras", "tf_keras")
_PRIVATE_KERAS = "tensorflow.python.keras."
_NO_NAME = "Pass an optimizer, not its name: for instance"
# The attribute of an optimizer that has a loss scale by the environment.
BY_ENVIRONMENT = "_loss_scale_by_environment"


def walk(optimizer: Any) -> Iterator[Any]:
  """Yields an optimizer, then the optimizers within, the outermost first."""
  seen: list[Any] = []  # An optimizer may refer to itself.
  while optimizer is not None and all(optimizer is not x for x in seen):
    yield optimizer
    seen.append(optimizer)
    optimizer = find_inner(optimizer)


def find_inner(optimizer: Any) -> Any:
  """Returns the optimizer that an optimizer wraps, or None.

  Wrappers of TensorFlow and of Horovod hold it in `_optimizer` or `_opt`.
  """
  own = vars(optimizer) if hasattr(optimizer, "__dict__") else {}
  return own.get("_optimizer", own.get("_opt"))


def find_scale_by_environment(optimizer: Any) -> Any:
  """Returns the loss scale by the environment of the innermost optimizer."""
  found = [
    getattr(x, "__dict__", {}).get(BY_ENVIRONMENT) for x in walk(optimizer)
  ]
  return next(filter(None, reversed(found)), None)


def read_of_wrapped(wrapper: Any, inner: Any, name: str) -> Any:
  """Returns an attribute of a wrapped optimizer that its wrapper lacks.

  The wrapper's `__getattr__` calls this. `inner` is None as long as a copy is
  made. Attributes of Python and of TensorFlow are each one's own.

  Raises:
    AttributeError: Neither optimizer has it, or a property of the wrapper
      raises this error.
  """
  if inner is None or name.startswith(("__", "_self_")):
    kind = type(wrapper).__name__
    raise AttributeError(f"{kind!r} object has no attribute {name!r}")
  if hasattr(type(wrapper), name):
    return object.__getattribute__(wrapper, name)  # Raises a property's error.
  try:
    return getattr(inner, name)
  except AttributeError:
    raise AttributeError(
      f"{type(wrapper).__name__!r} object has no attribute {name!r}, and the "
      f"{type(inner).__name__} that it wraps has none."
    ) from None


def show_wrong(value: Any) -> str:
  """Returns what is no `tf.compat.v1.train.Optimizer`, and what to do with it.

  This is the end of a message, after "but got".
  """
  shown = show(value)
  if find_keras(value):
    return f"{shown}. {_advise_keras(value)}"
  if any(x.__module__.startswith(_PRIVATE_KERAS) for x in type(value).__mro__):
    return (
      f"{shown}. This optimizer is of TensorFlow's private copy of Keras: make "
      "one of tf.keras.optimizers in its place; "
      f"{_PACKAGE}.use_keras_2() makes tf.keras Keras 2."
    )
  if isinstance(value, str):
    return f"{shown}. {_NO_NAME} tf.compat.v1.train.AdamOptimizer(1e-3)."
  if callable(getattr(value, "update", None)) and hasattr(value, "get_config"):
    return f"{shown}. Pass the optimizer first, then the loss scale."
  return f"{shown}."


def show(value: Any) -> str:
  """Returns a wrong value for an optimizer, with its type if that helps."""
  shown = wrong_values.show(value)
  if wrong_values.is_called(value):
    return shown
  kind = type(value)
  module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
  return f"{shown} of type {module}{kind.__qualname__}"


def find_keras(value: Any) -> str:
  """Returns the version of the Keras that an optimizer is of; "" for others."""
  for cls in type(value).__mro__:
    package = cls.__module__.split(".")[0]
    if package in _KERAS and "Optimizer" in cls.__name__:
      return str(getattr(sys.modules.get(package), "__version__", "2"))
  return ""


def is_keras_with_scale(optimizer: Any) -> bool:
  """Returns whether an optimizer is a `keras.LossScaleOptimizer`.

  The class is not asked for, since Keras 2 may be missing.
  """
  modules = [cls.__module__ for cls in type(optimizer).__mro__]
  return f"{_PACKAGE}.keras.optimizer" in modules


def advise_for_keras(value: Any) -> str:
  """Returns what to do with a value that is no optimizer of Keras, or ""."""
  if isinstance(value, str):
    return f" {_NO_NAME} tf.keras.optimizers.Adam(1e-3)."
  if not isinstance(value, tf.compat.v1.train.Optimizer):
    return ""
  return f" For optimizers of tf.compat.v1.train there is {_OF_COMPAT_V1}."


def warn_if_scaling(owner: str, optimizer: Any) -> None:
  """Logs a warning if an optimizer to wrap scales the loss already.

  Such programs trained in TensorFlow 1, so this is no error.
  """
  for each in walk(optimizer):
    if _is_scaling(each):
      logging.warning(
        "%s wraps an optimizer that scales the loss already: %s. The loss is "
        "multiplied by both loss scales, and overflows sooner. Wrap an "
        "optimizer once.",
        owner,
        wrong_values.show(each),
      )
      return


def _is_scaling(optimizer: Any) -> bool:
  """Returns whether an optimizer scales the loss, as its class's name tells."""
  return any(cls.__name__ in _SCALING for cls in type(optimizer).__mro__)


def _advise_keras(value: Any) -> str:
  """Returns which class scales the loss for an optimizer of Keras."""
  if _is_scaling(value):
    return "This optimizer of Keras scales the loss already: use it as it is."
  if find_keras(value).startswith("3."):
    return (
      "This is an optimizer of Keras 3: wrap it in "
      "keras.optimizers.LossScaleOptimizer. For optimizers of Keras 2 there "
      f"is {_OF_KERAS}; {_PACKAGE}.use_keras_2() makes tf.keras Keras 2."
    )
  return f"For optimizers of Keras there is {_OF_KERAS}(optimizer, loss_scale)."


def check_order(optimizer: Any) -> None:
  """Raises a ValueError if an optimizer is or wraps a `SyncReplicasOptimizer`.

  The ops of a `SyncReplicasOptimizer` cannot be in a cond: a session could not
  run its queue. And a worker alone would decide whether to skip a step.
  """
  kind = tf.compat.v1.train.SyncReplicasOptimizer
  if any(isinstance(x, kind) for x in walk(optimizer)):
    raise ValueError(
      f"A SyncReplicasOptimizer must be outside, but got {optimizer}: write "
      "SyncReplicasOptimizer(MixedPrecisionLossScaleOptimizer(...), n), with "
      "accumulate(...) between both if there is any."
    )


def check_passes(optimizer: Any) -> None:
  """Checks that no optimizer of Horovod within accumulates gradients.

  Between its exchanges, Horovod returns the gradients of the rank alone. So
  each rank would check and apply its own gradients.

  Raises:
    ValueError: An optimizer of Horovod has backward_passes_per_step above 1.
  """
  for found in walk(optimizer):
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


def _find_passes(optimizer: Any) -> int:
  """Returns the passes of each exchange; 1 if an optimizer is not Horovod's."""
  modules = [
    cls.__module__.partition(".")[0] for cls in type(optimizer).__mro__
  ]
  if "horovod" not in modules:
    return 1
  passes = getattr(optimizer, "_backward_passes_per_step", 1)  # Adasum.
  helper = getattr(optimizer, "_agg_helper", None)
  return int(getattr(helper, "backward_passes_per_step", passes))
