# SPDX-License-Identifier: Apache-2.0
"""Names that NumPy had when programs for TensorFlow 1 were written.

NumPy 1.24 and 2.0 removed them. `tf-lossscale run` puts them back, since a new
TensorFlow needs a new NumPy.
"""

from __future__ import annotations

import builtins
import types
from typing import Any

# Names that were types of Python in NumPy 1.x -> the type. NumPy 2 has another
# `bool` and another `long`.
_BUILTINS = {
  "bool": "bool",
  "complex": "complex",
  "float": "float",
  "int": "int",
  "long": "int",
  "object": "object",
  "str": "str",
  "unicode": "str",
}
# Name -> the name by which NumPy still has the same.
_RENAMED = {
  "Inf": "inf",
  "Infinity": "inf",
  "NAN": "nan",
  "NaN": "nan",
  "PINF": "inf",
  "alltrue": "all",
  "bool8": "bool_",
  "complex_": "complex128",
  "cumproduct": "cumprod",
  "float_": "float64",
  "infty": "inf",
  "longcomplex": "clongdouble",
  "longfloat": "longdouble",
  "object0": "object_",
  "product": "prod",
  "round_": "round",
  "row_stack": "vstack",
  "singlecomplex": "complex64",
  "sometrue": "any",
  "str0": "str_",
  "string_": "bytes_",
  "trapz": "trapezoid",
  "unicode_": "str_",
}


# Name that NumPy 2 lacks -> the name that means the same. NumPy 2 has `bool`
# and `long` again, which are not the types of Python. NumPy 1.26, which
# TensorFlow up to 2.17 needs, has no other name for `trapz`.
REPLACED = {**_RENAMED, **_BUILTINS}
del REPLACED["trapz"]


def is_builtin(name: str) -> bool:
  """Returns whether a name was one of Python's own types."""
  return name in _BUILTINS


def add_names(numpy: types.ModuleType) -> None:
  """Sets the names that NumPy lacks; those that NumPy has stay."""
  have = set(vars(numpy))
  for name, builtin in _BUILTINS.items():
    if name not in have:
      setattr(numpy, name, getattr(builtins, builtin))
  for name, now in _RENAMED.items():
    if name not in have and now in have:
      setattr(numpy, name, getattr(numpy, now))
  for name, value in (
    ("NINF", lambda: -numpy.inf),
    ("asscalar", lambda: lambda array: array.item()),
    ("asfarray", lambda: _make_asfarray(numpy)),
  ):
    if name not in have:
      setattr(numpy, name, value())


def _make_asfarray(numpy: types.ModuleType) -> Any:
  """Returns a function that converts its argument to an array of floats."""

  def asfarray(a: Any, dtype: Any = numpy.float64) -> Any:
    if not numpy.issubdtype(dtype, numpy.inexact):
      dtype = numpy.float64
    return numpy.asarray(a, dtype=dtype)

  return asfarray
