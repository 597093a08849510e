# SPDX-License-Identifier: Apache-2.0
"""Names that NumPy had when programs for TensorFlow 1 were written.

NumPy 1.24 and 2.0 removed them, and 2.3 removed what `fromstring` did without
`sep`. `tf-lossscale run` puts them back, since a new TensorFlow needs a new
NumPy.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
import functools
import importlib
import inspect
import math
import re
import types
from typing import Any

from tf_compat_lossscale.programs import tables

_OLD = tables.Table({}, {})
_OLD.add(
  "numpy",
  """
  builtins: bool complex float int long=int object str unicode=str
  numpy: Inf=inf Infinity=inf NAN=nan NaN=nan PINF=inf alltrue=all bool8=bool_
    bytes0=bytes_ cfloat=complex128 clongfloat=clongdouble complex_=complex128
    cumproduct=cumprod float_=float64 infty=inf int0=intp issubsctype=issubdtype
    longcomplex=clongdouble longfloat=longdouble mat=asmatrix object0=object_
    product=prod round_=round row_stack=vstack singlecomplex=complex64
    sometrue=any str0=str_ string_=bytes_ trapz=trapezoid typeDict=sctypeDict
    uint0=uintp unicode_=str_ void0=void
  numpy.exceptions: AxisError ComplexWarning ModuleDeprecationWarning
    RankWarning TooHardError VisibleDeprecationWarning
  numpy.lib.npyio: DataSource
  numpy.lib: add_docstring add_newdoc
  numpy.lib.array_utils: byte_bounds
  numpy.char: compare_chararrays
  numpy.rec: format_parser
""",
)
_NAMES = _OLD.names["numpy"]
# Name that NumPy 2 lacks -> the name that means the same. NumPy 2 has `bool`
# and `long` again, which are not the types of Python. NumPy 1.26, which
# TensorFlow up to 2.17 needs, has no other name for `trapz`.
REPLACED = {
  name: target.rpartition(".")[2]
  for name, target in _NAMES.items()
  if re.fullmatch(r"(numpy|builtins)\.\w+", target) and name != "trapz"
}


def is_builtin(name: str) -> bool:
  """Returns whether a name was one of Python's own types."""
  return _NAMES.get(name, "").startswith("builtins.")


def add_names(numpy: types.ModuleType) -> None:
  """Sets the names that NumPy lacks, and a `fromstring` that takes bytes.

  What else NumPy has stays.
  """
  have = set(vars(numpy))
  for name, target in _NAMES.items():
    home, _, last = target.rpartition(".")
    if name not in have and (home != "numpy" or last in have):
      setattr(numpy, name, getattr(importlib.import_module(home), last))
  for name, value in _make_others(numpy).items():
    if name not in have:
      setattr(numpy, name, value)
  numpy.fromstring = _make_fromstring(numpy)  # type: ignore[attr-defined]


def _make_fromstring(np: Any) -> Callable[..., Any]:
  """Returns a `numpy.fromstring` that copies bytes, and reads a text as is."""
  read_text = np.fromstring

  @functools.wraps(read_text)
  def fromstring(
    string: Any, dtype: Any = float, count: int = -1, sep: str = "", **like: Any
  ) -> Any:
    if sep:
      return read_text(string, dtype, count, sep=sep, **like)
    data = string.encode() if isinstance(string, str) else string
    return np.frombuffer(data, dtype, count, **like).copy()

  return fromstring


def _make_others(np: Any) -> dict[str, Any]:
  """Returns the names that are values of their own."""
  kinds = {
    "int": (np.int8, np.int16, np.int32, np.int64),
    "uint": (np.uint8, np.uint16, np.uint32, np.uint64),
    "float": (np.float16, np.float32, np.float64, np.longdouble),
    "complex": (np.complex64, np.complex128, np.clongdouble),
    "others": (builtins.bool, builtins.object, bytes, str, np.void),
  }

  def disp(mesg: Any, device: Any = None, linefeed: bool = True) -> None:
    print(mesg, file=device, end="\n" if linefeed else "")

  def find_common_type(array_types: Any, scalar_types: Any) -> Any:
    arrays, scalars = (
      functools.reduce(np.promote_types, map(np.dtype, types_))
      if len(types_)
      else None
      for types_ in (array_types, scalar_types)
    )
    if arrays is None or scalars is None:
      return scalars if arrays is None else arrays
    order = "buifcSUVOMm"
    if order.index(scalars.kind) <= order.index(arrays.kind):
      return arrays
    return np.promote_types(arrays, scalars)

  def issubclass_(arg1: Any, arg2: Any) -> bool:
    try:
      return issubclass(arg1, arg2)
    except TypeError:
      return False

  def lookfor(*args: Any, **kwargs: Any) -> None:
    del args, kwargs
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

  return {
    "NINF": -np.inf,
    "NZERO": -0.0,
    "PZERO": 0.0,
    "asfarray": lambda a, dtype=np.float64: np.asarray(
      a, dtype if np.issubdtype(dtype, np.inexact) else np.float64
    ),
    "asscalar": lambda a: a.item(),
    "cast": _ByType(obj2sctype, lambda t: lambda x: np.asarray(x).astype(t)),
    "disp": disp,
    "find_common_type": find_common_type,
    "in1d": lambda ar1, *args, **kwargs: np.isin(
      np.asarray(ar1).ravel(), *args, **kwargs
    ),
    "issctype": lambda rep: (
      isinstance(rep, type | np.dtype)
      and obj2sctype(rep) not in (None, np.object_)
    ),
    "issubclass_": issubclass_,
    "lookfor": lookfor,
    "math": math,
    "msort": lambda a: np.sort(a, axis=0),
    "nbytes": _ByType(obj2sctype, lambda t: np.dtype(t).itemsize),
    "obj2sctype": obj2sctype,
    "recfromcsv": recfromcsv,
    "recfromtxt": recfromtxt,
    "safe_eval": ast.literal_eval,
    "sctype2char": sctype2char,
    "sctypes": {kind: list(each) for kind, each in kinds.items()},
    "set_string_function": set_string_function,
    "source": lambda object, output=None: print(
      inspect.getsource(object), file=output
    ),
  }


class _ByType(dict[Any, Any]):
  """A dict whose keys may be all that names a type, such as "f4"."""

  def __init__(self, find: Callable[[Any], Any], make: Callable[[Any], Any]):
    super().__init__()
    self._find, self._make = find, make

  def __missing__(self, key: Any) -> Any:
    kind = self._find(key)
    if kind is None:
      raise KeyError(key)
    return self._make(kind)
