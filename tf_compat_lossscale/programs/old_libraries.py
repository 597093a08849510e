# SPDX-License-Identifier: Apache-2.0
"""What Python's library, absl-py and NumPy had in TensorFlow 1's time.

`tf-lossscale run` puts the names back that Python 3.10 and 3.11, NumPy 1.24 and
2.0 removed, and what `numpy.fromstring` did before 2.3 without `sep`: no Python
and no NumPy that has them runs today's TensorFlow.
"""

from __future__ import annotations

import _collections_abc  # What Python itself loads at start.
import collections
import functools
import importlib
import re
import types
from typing import Any

# The abstract classes that `collections` had beside `collections.abc`.
ABSTRACT = frozenset(_collections_abc.__all__) - {"Buffer"}

# Module -> the names of it that `numpy` had, too; `old=new` if the name there
# is another one.
_NUMPY = {
  "builtins": "bool complex float int long=int object str unicode=str",
  "numpy": """
    Inf=inf Infinity=inf NAN=nan NaN=nan PINF=inf alltrue=all bool8=bool_
    bytes0=bytes_ cfloat=complex128 clongfloat=clongdouble complex_=complex128
    cumproduct=cumprod float_=float64 infty=inf int0=intp issubsctype=issubdtype
    longcomplex=clongdouble longfloat=longdouble mat=asmatrix object0=object_
    product=prod round_=round row_stack=vstack singlecomplex=complex64
    sometrue=any str0=str_ string_=bytes_ trapz=trapezoid typeDict=sctypeDict
    uint0=uintp unicode_=str_ void0=void
  """,
  "numpy.char": "compare_chararrays",
  "numpy.exceptions": """
    AxisError ComplexWarning ModuleDeprecationWarning RankWarning TooHardError
    VisibleDeprecationWarning
  """,
  "numpy.lib": "add_docstring add_newdoc",
  "numpy.lib.array_utils": "byte_bounds",
  "numpy.lib.npyio": "DataSource",
  "numpy.rec": "format_parser",
}
# Name -> (module, name there).
_NUMPY_NAMES = {
  old: (home, new or old)
  for home, names in _NUMPY.items()
  for old, _, new in (name.partition("=") for name in names.split())
}
# Name that NumPy 2 lacks -> ("builtins" or "numpy", the name there that means
# the same). NumPy 2 has `bool` and `long` again, which are not the types of
# Python. NumPy 1.26, which TensorFlow up to 2.17 needs, has no other name for
# `trapz`.
NUMPY_REPLACED = {
  old: found
  for old, found in _NUMPY_NAMES.items()
  if found[0] in ("builtins", "numpy") and old != "trapz"
}


# The parameters of a function, as `inspect.getargspec` returned them.
ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")


def add_to_collections(module: types.ModuleType) -> None:
  """Sets the abstract classes that `collections` lacks."""
  for name in ABSTRACT:
    if name not in vars(module):
      setattr(module, name, getattr(_collections_abc, name))


def add_to_inspect(inspect: types.ModuleType) -> None:
  """Sets `getargspec`, if `inspect` lacks it."""
  if hasattr(inspect, "getargspec"):
    return

  def getargspec(func: Any) -> ArgSpec:
    spec = inspect.getfullargspec(func)
    if spec.kwonlyargs or spec.annotations:
      raise ValueError(
        f"{func} has keyword-only parameters or annotations, which "
        "inspect.getargspec cannot express: use inspect.getfullargspec"
      )
    return ArgSpec(*spec[:4])

  inspect.getargspec = getargspec  # type: ignore[attr-defined]
  inspect.ArgSpec = ArgSpec  # type: ignore[attr-defined]


def split_choices(text: str) -> list[str]:
  """Returns the choices of a flag that a text means: its words.

  TensorFlow's official models, and programs that copied their flags, have the
  choices `("keras', 'graph_rewrite")` for the kind of mixed precision: one
  text, by a mistake. Old releases of absl-py looked for the flag's value in it.
  """
  return re.findall(r"[\w.+-]+", text)


def accept_texts(module: types.ModuleType) -> None:
  """Makes the parser of flags with choices accept a text."""
  parser = module.EnumParser
  own = parser.__init__

  @functools.wraps(own)
  def init(self: Any, enum_values: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(enum_values, str):
      enum_values = split_choices(enum_values)
    own(self, enum_values, *args, **kwargs)

  parser.__init__ = init


def add_to_numpy(numpy: types.ModuleType) -> None:
  """Sets the names that NumPy lacks, and a `fromstring` that takes bytes."""
  have = vars(numpy).keys() - {"fromstring"}
  for name, (home, last) in _NUMPY_NAMES.items():
    if name not in have and (home != "numpy" or last in have):
      setattr(numpy, name, getattr(importlib.import_module(home), last))
  from tf_compat_lossscale.programs import old_numpy  # It imports NumPy.

  for name, value in old_numpy.VALUES.items():
    if name not in have:
      setattr(numpy, name, value)


def prepare(module: types.ModuleType) -> None:
  """Prepares a module that was imported: one of those in `sitecustomize`."""
  changes = {
    "absl.flags._argument_parser": accept_texts,
    "collections": add_to_collections,
    "inspect": add_to_inspect,
    "numpy": add_to_numpy,
  }
  changes[module.__name__](module)
