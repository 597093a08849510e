# SPDX-License-Identifier: Apache-2.0
"""Checks loss scales and policies for Keras 2, which it does not import."""

from __future__ import annotations

import contextlib
from typing import Any
from typing import Literal
from typing import NamedTuple
from typing import Protocol
from typing import TypeAlias

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import legacy_names

_TENSORFLOWS = legacy_names.LOSS_SCALE_MODULE
# Policies whose layers computed in the dtype of their first input.
_OF_FIRST_INPUT = ("infer_float32_vars", "infer_with_float32_vars")

# What stands for a loss scale that optimizers of Keras can have.
Identifier: TypeAlias = (
  loss_scale_lib.DynamicLossScale
  | loss_scale_lib.FixedLossScale
  | arguments.Number
  | Literal["dynamic"]
  | dict[str, Any]
)
PolicyName: TypeAlias = Literal[
  "_infer",
  "mixed_float16",
  "mixed_bfloat16",
  "bfloat16",
  "bool",
  "complex128",
  "complex64",
  "float16",
  "float32",
  "float64",
  "int16",
  "int32",
  "int64",
  "int8",
  "string",
  "uint16",
  "uint32",
  "uint64",
  "uint8",
  "bfloat16_with_float32_vars",
  "float16_with_float32_vars",
  "float32_with_float32_vars",
  "infer",
]


class AnyPolicy(Protocol):
  """A dtype policy of this package or of Keras."""

  @property
  def compute_dtype(self) -> Any:
    """The dtype in which a layer computes."""


class Numbers(NamedTuple):
  """A loss scale, as the arguments of Keras's own classes.

  Attributes:
    dynamic: Whether the loss scale changes.
    initial_scale: The first value; the only value if the loss scale is fixed.
    growth_steps: How many finite steps make the loss scale double; None if the
      loss scale is fixed.
  """

  dynamic: bool
  initial_scale: float
  growth_steps: int | None


def find_policy(name: Any) -> tuple[Any, Literal["dynamic"] | None]:
  """Returns the policy that a name of TensorFlow 1.14 to 2.0 stands for.

  Args:
    name: The argument of a `Policy`.

  Returns:
    A pair: the name in Keras 2, and the loss scale that 'auto' means.

  Raises:
    ValueError: No Keras of today has that policy.
  """
  if name in _OF_FIRST_INPUT:
    raise ValueError(
      f"The policy {name!r} of TensorFlow 1.14 to 2.0 computed in the dtype of "
      "a layer's first input, with float32 variables, and no Keras of today "
      "has it. Name the policy for the dtype of your inputs: "
      "Policy('mixed_float16', loss_scale=None), Policy('mixed_bfloat16') or "
      "Policy('float32')."
    )
  if name == "infer":
    return "_infer", None  # Keras 2 still has it by that name.
  if isinstance(name, str) and name.endswith("_with_float32_vars"):
    compute = name.removesuffix("_with_float32_vars")
    if compute in ("float16", "bfloat16"):
      return f"mixed_{compute}", None
    if compute == "float32":
      return compute, None
  return name, "dynamic" if name == "mixed_float16" else None


def find_loss_scale(
  value: Any, also: tuple[str, ...] = ()
) -> loss_scale_lib.LossScale | None:
  """Returns the loss scale that an argument stands for.

  In a graph, a loss scale that this function makes leaves no variables in that
  graph: the program may only want the loss scale's numbers. A loss scale makes
  its variables in each graph that uses it.

  Args:
    value: An argument of `loss_scale.get`, or a loss scale of TensorFlow's own.
    also: What the caller allows beside loss scales, for the message.

  Returns:
    A loss scale of this package, or None for None.

  Raises:
    TypeError: `value` is a LossScale of a class that is based on TensorFlow's.
    ValueError: `value` is no loss scale.
  """
  if value is None or isinstance(value, loss_scale_lib.LossScale):
    return value
  with tf.init_scope():
    in_graph = not tf.executing_eagerly()
  with tf.Graph().as_default() if in_graph else contextlib.nullcontext():
    if not any(cls.__module__ == _TENSORFLOWS for cls in type(value).__mro__):
      return loss_scale_lib.make(value, also)
    cls = getattr(loss_scale_lib, type(value).__name__, None)
    if cls is None or type(value).__module__ != _TENSORFLOWS:
      raise _refuse(value)
    return cls.from_config(value.get_config())


def find_numbers(loss_scale: Any) -> Numbers:
  """Returns the numbers of a loss scale that Keras can have.

  The error messages begin as those of TensorFlow 2.4 to 2.8 did.

  Args:
    loss_scale: An argument of `find_loss_scale`.

  Returns:
    The numbers.

  Raises:
    TypeError: `loss_scale` is a LossScale of another class than
      FixedLossScale and DynamicLossScale.
    ValueError: `loss_scale` is None or no loss scale, or its multiplier is not
      2.
  """
  try:
    scale = find_loss_scale(loss_scale)
  except ValueError as error:
    raise ValueError(f"Invalid value passed to loss_scale. {error}") from error
  if scale is None:
    raise ValueError(
      "loss_scale cannot be None: it must be 'dynamic', a number, a "
      "FixedLossScale or a DynamicLossScale. To have none, use the optimizer "
      "as it is."
    )
  if isinstance(scale, loss_scale_lib.FixedLossScale):
    return Numbers(False, scale.get_config()["loss_scale_value"], None)
  if not isinstance(scale, loss_scale_lib.DynamicLossScale):
    raise _refuse(scale)
  if scale.multiplier != 2:
    raise ValueError(
      'When passing a DynamicLossScale to "loss_scale", DynamicLossScale.'
      f"multiplier must be 2. Got: {scale!r}. The loss scale of Keras doubles "
      "and halves."
    )
  return Numbers(True, scale.initial_loss_scale, scale.increment_period)


def check_floating(policy: Any) -> None:
  """Checks that a dtype policy computes in floating point.

  Raises:
    ValueError: The policy does not.
  """
  dtype = policy.compute_dtype
  if dtype is not None and not tf.as_dtype(dtype).is_floating:
    raise ValueError(
      "set_policy can only be used to set the global policy to floating-point "
      'policies, such as "float32" and "mixed_float16", but got policy: '
      f"{policy.name}"
    )


def _refuse(loss_scale: Any) -> TypeError:
  """Makes the error for a loss scale that optimizers of Keras do not take."""
  return TypeError(
    "Passing a LossScale that is not a FixedLossScale or a DynamicLossScale is "
    f"no longer supported. Got: {loss_scale!r}. Optimizers of Keras take one "
    "of these two."
  )
