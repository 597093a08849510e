# SPDX-License-Identifier: Apache-2.0
"""Sources of values: a tensor of a checkpoint, perhaps scaled, or a scalar.

Restoring and converting first decide, for each variable of the program or of
the new checkpoint, where its value comes from. Nothing is copied meanwhile:

    w      -> Stored(bundle, "w")                 # Copy that tensor.
    steps  -> Literal("int32", 7, origin="steps")  # Was int64.
    epochs -> Literal("int32", 0)                  # Starts anew.
    v      -> Scaled(bundle, "accum", -0.1)        # Multiply that tensor.
    sum    -> Scaled(bundle, "sum", 0.0)           # As many zeros.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.entries import encode_scalar
from tf_compat_lossscale.checkpoint.files.entries import Slices
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec


@dataclasses.dataclass(frozen=True)
class Stored:
  """A tensor of a checkpoint, which is copied byte by byte.

  Attributes:
    bundle: The checkpoint.
    name: The tensor's name in the checkpoint.
  """

  bundle: Bundle
  name: str

  @property
  def origin(self) -> str:
    """The name of the tensor that the value comes from."""
    return self.name

  @property
  def spec(self) -> TensorSpec:
    """The dtype and the shape."""
    return self.bundle.specs[self.name]

  @property
  def size(self) -> int:
    """The number of bytes in a checkpoint."""
    return self.bundle.get_size(self.name)

  def read_scalar(self) -> float | int:
    """Returns the value of a numeric scalar."""
    return self.bundle.read_scalar(self.name)

  def read(self) -> np.ndarray | Slices:
    """Returns the value of any tensor; slices if the checkpoint lacks some."""
    if self.bundle.lacks_elements(self.name):
      return self.bundle.read_slices(self.name)
    return self.bundle.read_array(self.name)


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

  @property
  def size(self) -> int:
    """The number of bytes in a checkpoint."""
    return encode_scalar(self.dtype, self.value)[0].size

  def read_scalar(self) -> float | int:
    """Returns the value of a numeric scalar."""
    assert not isinstance(self.value, bytes)
    return self.value

  def read(self) -> np.ndarray:
    """Returns the value of any scalar."""
    return np.array(self.value, self.dtype)


@dataclasses.dataclass(frozen=True)
class Scaled(Stored):
  """A floating-point tensor of a checkpoint times a factor.

  Attributes:
    factor: The factor. Products are rounded once, to the tensor's dtype.
  """

  factor: float

  def read_scalar(self) -> float | int:
    """Returns the product, if the tensor is a scalar."""
    return float(self.read())

  def read(self) -> np.ndarray:
    """Returns the product, of the whole tensor."""
    return multiply(self.bundle.read_array(self.name), self.factor)


def multiply(values: np.ndarray, factor: float) -> np.ndarray:
  """Multiplies floating-point values; rounds to their dtype once.

  The factor 0 makes any value 0, also one that is not finite.
  """
  if not factor:
    return np.zeros_like(values)
  return np.asarray(values.astype(np.float64) * factor).astype(values.dtype)


Source = Stored | Literal
# The name of a variable, or a key of a checkpoint -> the source of its value.
Sources = dict[str, Source]
