# SPDX-License-Identifier: Apache-2.0
"""Modules that stand for those of `tf.contrib`, which TensorFlow 2 lacks.

A module below `tensorflow.contrib.layers`, such as
`tensorflow.contrib.layers.python.layers.utils`, has the names of
`tf.contrib.layers`: programs import names from the one and from the other.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from tf_compat_lossscale._core import patching
from tf_compat_lossscale.programs import contrib_hints
from tf_compat_lossscale.programs import contrib_names
from tf_compat_lossscale.programs import contrib_signatures
from tf_compat_lossscale.programs import lazy_modules
from tf_compat_lossscale.programs import loading

_PREFIX = "tensorflow.contrib."


class _ContribModule(lazy_modules.LazyModule):
  """A module of `tf.contrib`."""

  def __init__(self, path: str) -> None:
    super().__init__(_PREFIX + path, self._load, self._list_names)
    self._contrib_path = path
    self._names = contrib_names.list_names(path.partition(".")[0])

  def _list_names(self) -> list[str]:
    return sorted(self._names)

  def _load(self, name: str) -> Any:
    if name == "__all__":  # The names that `from … import *` binds.
      return [each for each in dir(self) if self._has(each)]
    if name.startswith("__"):
      return patching.ABSENT
    value = _load_member(self._contrib_path, name)
    setattr(self, name, value)
    return value

  def _has(self, name: str) -> bool:
    """Returns whether there is a member in this installation."""
    try:
      _load_member(self._contrib_path, name)
    except AttributeError:
      return False
    return True

  def __setattr__(self, name: str, value: Any) -> None:
    # The import of a module sets it in its parent. But the function `arg_scope`
    # of `framework.python.ops` hid the module of that name.
    if isinstance(value, types.ModuleType) and name in self._names:
      return
    super().__setattr__(name, value)


@functools.cache
def get_module(path: str) -> types.ModuleType:
  """Returns an existing module that serves as `tf.contrib.PATH`, or makes it.

  Args:
    path: Such as "layers" or "layers.python.layers.utils".

  Raises:
    ModuleNotFoundError: There is no such module; the message says what to do.
  """
  top = path.partition(".")[0]
  reason = contrib_hints.explain_missing_package(top)
  if reason:
    raise ModuleNotFoundError(reason, name=_PREFIX + path)
  target = contrib_names.TABLE.find_module(path)
  if target:
    try:
      value = loading.load(target)
    except loading.TargetError as error:
      raise _make_error(path, str(error)) from None
    if isinstance(value, types.ModuleType):
      return value
  if contrib_names.is_module(path):
    return _ContribModule(path)
  raise _make_error(path)


def _load_member(path: str, name: str) -> Any:
  """Returns a member of a module of contrib.

  Raises:
    AttributeError: There is none; the message says what to do.
  """
  top = path.partition(".")[0]
  reason = ""
  for target in contrib_names.find_targets(top, name):
    try:
      value = loading.load(target)
    except loading.TargetError as error:
      reason = str(error)
    else:
      return contrib_signatures.adapt(f"{top}.{name}", value)
  child = f"{path}.{name}"
  if contrib_names.is_module(child):
    try:
      return get_module(child)
    except ImportError as error:
      raise AttributeError(str(error)) from None
  raise AttributeError(str(_make_error(child, reason)))


def _make_error(path: str, reason: str = "") -> ModuleNotFoundError:
  """Returns the error for a name below `tf.contrib` that cannot be served."""
  return ModuleNotFoundError(
    contrib_hints.explain_absence(path, reason), name=_PREFIX + path
  )
