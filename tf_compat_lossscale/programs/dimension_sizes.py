# SPDX-License-Identifier: Apache-2.0
"""The sizes of dimensions that TensorFlow 1 took."""

from __future__ import annotations

import types
from typing import Any


def allow_whole_floats(real: types.ModuleType) -> None:
  """Lets shapes have sizes such as 4.0, as in TensorFlow 1.

  Programs that were written for Python 2 divide a number of units by 2, and
  give the result to a cell or to `tf.get_variable`. In a release whose shapes
  do not use `tf.Dimension`, this has no effect.

  Args:
    real: TensorFlow, of either namespace.
  """
  dimension = real.compat.v1.Dimension
  own = dimension.__init__

  def __init__(self: Any, value: Any) -> None:
    is_whole = getattr(value, "is_integer", None)
    if not isinstance(value, int) and is_whole is not None:
      if not is_whole():
        raise ValueError(
          f"Ambiguous dimension: {value}. Expected a whole number: divide by "
          "// instead of /, or round"
        )
      value = int(value)
    own(self, value)

  dimension.__init__ = __init__
