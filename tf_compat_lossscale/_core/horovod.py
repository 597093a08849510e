# SPDX-License-Identifier: Apache-2.0
"""Horovod: the check of its optimizers, and the exchange of an answer.

This module does not import Horovod unless a program asks for it. An optimizer
of Horovod is known by its class's module. What is read off such an optimizer
has no public name; in a release without the attribute, the optimizer is taken
for a plain one.
"""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import optimizer_kinds


def check_passes(optimizer: Any) -> None:
  """Checks that no optimizer of Horovod within accumulates gradients.

  Between its exchanges, Horovod returns the gradients of the rank alone. So
  each rank would check and apply its own gradients.

  Args:
    optimizer: The optimizer that a loss scale is to wrap.

  Raises:
    ValueError: An optimizer of Horovod has backward_passes_per_step above 1.
  """
  for found in optimizer_kinds.walk(optimizer):
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


def load() -> Any:
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


def add_up(value: tf.Tensor) -> tf.Tensor:
  """Returns the sum of a scalar over all ranks."""
  hvd = load()
  total: tf.Tensor = hvd.allreduce(value, op=hvd.Sum, name="found_inf")
  return total
