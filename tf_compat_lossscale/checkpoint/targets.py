# SPDX-License-Identifier: Apache-2.0
"""Holds the variables that are restored by name."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.entries import Slices
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.layouts import evidence as evidence_lib


class Targets:
  """Variables by the names that a checkpoint has for them.

  Attributes:
    parts: Name -> the variable, or the parts of a partitioned one.
    tensors: Name -> dtype and shape, of the whole.
  """

  def __init__(
    self,
    variables: Mapping[str, Any] | Iterable[tf.Variable],
    renamed: Mapping[int, str] | None = None,
  ) -> None:
    """Takes variables, or a dict from names to them, as a Saver does.

    Args:
      variables: The variables.
      renamed: The `id` of a variable -> its name, if not its own.
    """
    self.parts: dict[str, list[Any]] = {}
    self.tensors: dict[str, TensorSpec] = {}
    if isinstance(variables, Mapping):
      for name, value in variables.items():
        for variable in _list_parts(value):
          self._add(name, variable)
    else:
      for value in variables:
        for variable in _list_parts(value):
          part = tracking.find_slice(variable)
          name = part.full_name if part else variable.name.split(":")[0]
          self._add((renamed or {}).get(id(variable), name), variable)

  def _add(self, name: str, variable: Any) -> None:
    part = tracking.find_slice(variable)
    shape = part.full_shape if part else variable.shape.as_list()
    dtype = variable.dtype.base_dtype.name
    known = self.parts.setdefault(name, [])
    if known and not part:
      raise ValueError(
        f"Two variables are called {name!r}, but names must differ: give a "
        "dict from the names in the checkpoint to the variables."
      )
    known.append(variable)
    self.tensors[name] = TensorSpec(dtype, tuple(int(size) for size in shape))

  def find_evidence(
    self, session: tf.compat.v1.Session
  ) -> evidence_lib.Evidence | None:
    """Returns the evidence that the session's graph has about the variables."""
    keys: dict[str, list[str]] = {}
    for name, parts in self.parts.items():
      for part in parts:
        keys.setdefault(part.name.split(":")[0], []).append(name)
    for variable in session.graph.get_collection(
      tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
    ):  # The graph's other variables are evidence, too.
      name = variable.name.split(":")[0]
      if name not in keys and name not in self.parts:
        keys[name] = [name]
    try:
      graph_def = session.graph.as_graph_def().SerializeToString()
    except ValueError:
      return None  # The graph is larger than protocol buffers can be.
    trainable = session.graph.get_collection(
      tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES
    )
    return evidence_lib.find_graph_evidence(
      graph_def, keys, {variable.name.split(":")[0] for variable in trainable}
    )


def _list_parts(value: Any) -> list[Any]:
  """Returns the parts of a partitioned variable, or the variable alone."""
  if isinstance(value, (list, tuple)):
    return list(value)
  # A PartitionedVariable is no variable itself.
  return list(value) if hasattr(value, "partitions") else [value]


def slice_part(variable: Any, value: np.ndarray | Slices) -> np.ndarray:
  """Returns the slice of a value that a part of a variable holds.

  Args:
    variable: The variable, or the part.
    value: The value of the whole; `Slices` if the checkpoint lacks others.

  Raises:
    CheckpointError: The checkpoint lacks elements of the slice.
  """
  part = tracking.find_slice(variable)
  if isinstance(value, Slices):
    found = value.cut(part.var_offset, part.var_shape) if part else None
    if found is None:
      raise CheckpointError(
        f"{variable.name.split(':')[0]}: the checkpoint has only other slices "
        "of that variable: build it with the partitions of the program that "
        "saved it"
      )
    return found
  if part is None:
    return value
  slices = zip(part.var_offset, part.var_shape)
  return value[tuple(slice(begin, begin + size) for begin, size in slices)]
