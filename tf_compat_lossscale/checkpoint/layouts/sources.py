# SPDX-License-Identifier: Apache-2.0
"""Chooses and converts the source of a value: a stored tensor or a literal.

Restoring and converting first decide, for each variable of the new program or
checkpoint, where its value comes from. Nothing is copied meanwhile:

    beta1_power -> Stored(bundle, "cond_1/beta1_power")    # Copy that tensor.
    good_steps  -> Literal("int32", 7, origin="good_steps")  # Was int64.
    bad_steps   -> Literal("int32", 0)                       # Starts anew.

Loss scales are converted here from one API's variables to another's. For that,
their scalars are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping

from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError
from tf_compat_lossscale.checkpoint.files.sources import Literal
from tf_compat_lossscale.checkpoint.files.sources import Source
from tf_compat_lossscale.checkpoint.files.sources import Stored
from tf_compat_lossscale.checkpoint.layouts.names import SCALE_TENSORS
from tf_compat_lossscale.checkpoint.layouts.names import ScaleNames

# Why a variable does not get a value of the checkpoint.
NO_SCALE = "the checkpoint has no loss scale for it"
NOT_THERE = "it is not in the checkpoint"
NOT_COUNTED = "that loss scale has no such count; it starts from 0"
_INT32_MAX = 2**31 - 1
# The name of a variable, or a key of a checkpoint -> the source of its value.
Sources = dict[str, Source]


def get_origin(source: Source) -> str:
  """Returns the key of the tensor that a value was made of, or ''."""
  return source.origin if isinstance(source, Literal) else source.name


def is_unchanged(name: str, source: Source) -> bool:
  """Returns whether a variable gets the tensor with its own name, as it is."""
  return not isinstance(source, Literal) and source.name == name


def read_scalar(source: Source) -> float | int:
  """Returns the value of a numeric scalar."""
  if isinstance(source, Literal):
    assert not isinstance(source.value, bytes)
    return source.value
  return source.bundle.read_scalar(source.name)


def convert_scale(
  sources: Mapping[str, Source], scale: ScaleNames, api: str
) -> list[Source]:
  """Converts a loss scale to the variables of another API.

  Args:
    sources: Name -> source, of all variables.
    scale: The names of the loss scale's variables.
    api: COMPAT or CONTRIB.

  Returns:
    The sources in the order of `SCALE_TENSORS[api]`. Bad steps, which only
    tf.contrib counts, are dropped or start from 0.

  Raises:
    CheckpointError: A count is too large for tf.contrib's int32.
  """
  old = [sources[name] for name in scale.names]
  if scale.api == api:
    return old
  _, good_steps, *bad_steps = SCALE_TENSORS[api].values()
  return [
    old[0],
    convert_counter(old[1], good_steps),
    *(Literal(bad.dtype, 0) for bad in bad_steps),
  ]


def convert_counter(source: Source, tensor: TensorSpec) -> Source:
  """Converts a counter of steps between int32 and int64.

  Args:
    source: The counter.
    tensor: The wanted dtype and shape.

  Returns:
    The counter with that dtype; `source` if it is no counter, or if `tensor` is
    none.

  Raises:
    CheckpointError: The count is too large for int32.
  """
  are_scalars = not source.spec.shape and not tensor.shape
  if source.spec == tensor or not are_scalars:
    return source
  if not {source.spec.dtype, tensor.dtype} <= {"int32", "int64"}:
    return source
  count = int(read_scalar(source))
  name = get_origin(source)
  if tensor.dtype == "int32" and count > _INT32_MAX:
    raise CheckpointError(
      f"{name} is {count}, more than tf.contrib's int32 can hold"
    )
  return Literal(tensor.dtype, count, origin=name)


def make_new_scale(loss_scale: float, api: str) -> list[Source]:
  """Returns the variables of a loss scale that has counted no steps yet."""
  first, *counts = SCALE_TENSORS[api].values()
  return [
    Literal(first.dtype, loss_scale),
    *(Literal(count.dtype, 0) for count in counts),
  ]


def collect_stored(pairs: Iterable[tuple[str, str]], bundle: Bundle) -> Sources:
  """Collects a checkpoint's tensors by the names of their variables.

  Args:
    pairs: (the variable's name, the tensor's key in the checkpoint).
    bundle: The checkpoint.

  Returns:
    The variable's name -> the tensor.

  Raises:
    CheckpointError: Two tensors belong to variables of one name.
  """
  sources: Sources = {}
  for name, key in pairs:
    source = Stored(bundle, key)
    if sources.get(name, source) != source:
      raise CheckpointError(
        f"{bundle.prefix}: two variables in it are called {name}, so the name "
        "does not tell them apart"
      )
    sources[name] = source
  return sources
