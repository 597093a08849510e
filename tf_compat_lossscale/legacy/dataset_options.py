# SPDX-License-Identifier: Apache-2.0
"""Gives `Dataset.options()` of TensorFlow 1 back: its value may be changed.

TensorFlow 1 made the options anew at each call, so that programs changed them
and passed them to `with_options`. Since 2.5 such a change is an error.
"""

from __future__ import annotations

import functools
import types
from typing import Any


def _copy_options(options: Any) -> Any:
  """Returns options of the same values, nested ones copied, too."""
  copy = type(options)()
  base = type(options).__mro__[1]
  for name, option in vars(type(options)).items():
    value = getattr(options, name) if isinstance(option, property) else None
    if value is not None:
      nested = isinstance(value, base) and base is not object
      setattr(copy, name, _copy_options(value) if nested else value)
  return copy


def allow_changes(real: types.ModuleType) -> None:
  """Makes `Dataset.options()` return options that a program may change.

  Args:
    real: TensorFlow, of either namespace.
  """
  dataset = real.compat.v2.data.Dataset
  method = dataset.options

  @functools.wraps(method)
  def options(self: Any) -> Any:
    return _copy_options(method(self))

  dataset.options = options
