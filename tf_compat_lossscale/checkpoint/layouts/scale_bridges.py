# SPDX-License-Identifier: Apache-2.0
"""Converts loss scales from one API's variables to another's.

    compat.v1             tf.contrib
    current_loss_scale    loss_scale
    good_steps (int64)    good_steps (int32)
                          bad_steps (int32), which starts from 0

The conversion of a counter reads the counter's value.
"""

from __future__ import annotations

from collections.abc import Mapping

from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Source
from tf_compat_lossscale.checkpoint.layouts.names import SCALE_TENSORS
from tf_compat_lossscale.checkpoint.layouts.names import ScaleNames

_INT32_MAX = 2**31 - 1


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
  count = int(source.read_scalar())
  if tensor.dtype == "int32" and count > _INT32_MAX:
    raise CheckpointError(
      f"{source.origin} is {count}, more than tf.contrib's int32 can hold"
    )
  return Literal(tensor.dtype, count, origin=source.origin)


def make_new_scale(loss_scale: float, api: str) -> list[Source]:
  """Returns the variables of a loss scale that has counted no steps yet."""
  first, *counts = SCALE_TENSORS[api].values()
  return [
    Literal(first.dtype, loss_scale),
    *(Literal(count.dtype, 0) for count in counts),
  ]
