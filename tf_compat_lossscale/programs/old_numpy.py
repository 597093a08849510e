# SPDX-License-Identifier: Apache-2.0
"""The names of old NumPy that are no other name of today's: their values.

A function without an underscore is NumPy's of that name. The module is imported
after NumPy, and not at the start of each process.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
import functools
import inspect
import math
from typing import Any

import numpy as np

_KINDS = "buifcSUVOMm"  # A later kind of dtype can hold more than an earlier.
_read_text = np.fromstring


def disp(mesg: Any, device: Any = None, linefeed: bool = True) -> None:
  print(mesg, file=device, end="\n" if linefeed else "")


def find_common_type(array_types: Any, scalar_types: Any) -> Any:
  arrays, scalars = map(_promote, (array_types, scalar_types))
  if arrays is None or scalars is None:
    return scalars if arrays is None else arrays
  if _KINDS.index(scalars.kind) <= _KINDS.index(arrays.kind):
    return arrays
  return np.promote_types(arrays, scalars)


def _promote(types: Any) -> Any:
  """Returns the dtype that holds all types; None if there are none."""
  if not len(types):
    return None
  return functools.reduce(np.promote_types, map(np.dtype, types))


def fromstring(
  string: Any, dtype: Any = float, count: int = -1, sep: str = "", **like: Any
) -> Any:
  if sep:
    return _read_text(string, dtype, count, sep=sep, **like)
  data = string.encode() if isinstance(string, str) else string
  return np.frombuffer(data, dtype, count, **like).copy()


def issubclass_(arg1: Any, arg2: Any) -> bool:
  try:
    return issubclass(arg1, arg2)
  except TypeError:
    return False


def lookfor(*args: Any, **kwargs: Any) -> None:
  raise NotImplementedError(
    "numpy.lookfor is gone: search NumPy's documentation, numpy.org/doc"
  )


def obj2sctype(rep: Any, default: Any = None) -> Any:
  if isinstance(rep, type) and issubclass(rep, np.generic):
    return rep
  try:
    return np.dtype(getattr(rep, "dtype", rep)).type
  except TypeError:
    return default


def recfromcsv(fname: Any, **kwargs: Any) -> Any:
  names = {"case_sensitive": "lower", "names": True, "delimiter": ","}
  return recfromtxt(fname, **{**names, **kwargs})


def recfromtxt(fname: Any, **kwargs: Any) -> Any:
  found = np.genfromtxt(fname, **{"dtype": None, **kwargs})
  if not kwargs.get("usemask"):
    return found.view(np.recarray)
  import numpy.ma.mrecords as masked  # Seldom needed.

  return found.view(masked.MaskedRecords)


def sctype2char(sctype: Any) -> str:
  kind = obj2sctype(sctype)
  if kind is None:
    raise ValueError(f"sctype2char got {sctype!r}, which is no type")
  return str(np.dtype(kind).char)


def set_string_function(f: Any, repr: bool = True) -> None:
  if not repr:
    raise NotImplementedError(
      "numpy.set_string_function(f, repr=False) is gone: use "
      "numpy.set_printoptions(formatter=...)"
    )
  np.set_printoptions(override_repr=f)


def asfarray(a: Any, dtype: Any = np.float64) -> Any:
  return np.asarray(
    a, dtype if np.issubdtype(dtype, np.inexact) else np.float64
  )


def asscalar(a: Any) -> Any:
  return a.item()


def in1d(ar1: Any, *args: Any, **kwargs: Any) -> Any:
  return np.isin(np.asarray(ar1).ravel(), *args, **kwargs)


def issctype(rep: Any) -> bool:
  is_type = isinstance(rep, type | np.dtype)
  return is_type and obj2sctype(rep) not in (None, np.object_)


def msort(a: Any) -> Any:
  return np.sort(a, axis=0)


def source(object: Any, output: Any = None) -> None:
  print(inspect.getsource(object), file=output)


class _ByType(dict[Any, Any]):
  """A dict whose keys may be all that names a type, such as "f4"."""

  def __init__(self, make: Callable[[Any], Any]) -> None:
    super().__init__()
    self._make = make

  def __missing__(self, key: Any) -> Any:
    return self._make(key)


VALUES: dict[str, Any] = {
  name: function
  for name, function in vars().items()
  if inspect.isfunction(function) and not name.startswith("_")
}
VALUES |= {
  "NINF": -np.inf,
  "NZERO": -0.0,
  "PZERO": 0.0,
  "cast": _ByType(lambda t: lambda x: np.asarray(x).astype(np.dtype(t))),
  "math": math,
  "nbytes": _ByType(lambda t: np.dtype(t).itemsize),
  "safe_eval": ast.literal_eval,
  "sctypes": {
    "int": [np.int8, np.int16, np.int32, np.int64],
    "uint": [np.uint8, np.uint16, np.uint32, np.uint64],
    "float": [np.float16, np.float32, np.float64, np.longdouble],
    "complex": [np.complex64, np.complex128, np.clongdouble],
    "others": [bool, object, bytes, str, np.void],
  },
}
