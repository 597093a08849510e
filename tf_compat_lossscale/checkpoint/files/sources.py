# SPDX-License-Identifier: Apache-2.0
"""Sources of the tensors of a new checkpoint."""

from __future__ import annotations

import dataclasses

from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec


@dataclasses.dataclass(frozen=True)
class Stored:
  """A tensor of a checkpoint, which is copied byte by byte.

  Attributes:
    bundle: The checkpoint.
    name: The tensor's name in it.
  """

  bundle: Bundle
  name: str

  @property
  def spec(self) -> TensorSpec:
    """The dtype and the shape."""
    return self.bundle.get_spec(self.name)


@dataclasses.dataclass(frozen=True)
class Literal:
  """A scalar with a given value.

  Attributes:
    dtype: The dtype's name.
    value: The value.
    origin: The name of the tensor that the value was computed from, if any.
  """

  dtype: str
  value: float | bytes
  origin: str = ""

  @property
  def spec(self) -> TensorSpec:
    """The dtype and the shape."""
    return TensorSpec(self.dtype, ())


Source = Stored | Literal
