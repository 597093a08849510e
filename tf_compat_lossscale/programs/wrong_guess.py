# SPDX-License-Identifier: Apache-2.0
"""Makes the error for a missing name say that the other TensorFlow has it.

`tf-lossscale run` may take a program of TensorFlow 2 for one of TensorFlow 1,
or the other way round.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from tf_compat_lossscale.programs import lazy_modules


def explain_absence(path: str, other: Any, v1: bool) -> str:
  """Returns what to add to the error for a missing name.

  Args:
    path: The name below `tensorflow`, such as "train.AdamOptimizer".
    other: The namespace of the other TensorFlow.
    v1: Whether the program runs on TensorFlow 1.

  Returns:
    A sentence that begins with a blank; "" if the other TensorFlow does not
    have the name, either.
  """
  value = other
  for part in path.split("."):
    if part.startswith("_"):
      return ""
    try:
      value = getattr(value, part)
    except (AttributeError, ImportError):
      return ""
  has = 2 if v1 else 1
  return (
    f". TensorFlow {has} has tf.{path}: if the program is for TensorFlow "
    f"{has}, try tf-lossscale run --tf{has}"
  )


def explain_in_modules(real: types.ModuleType, v1: bool) -> None:
  """Makes errors for missing names say which names the other TensorFlow has.

  Args:
    real: TensorFlow.
    v1: Whether the program runs on TensorFlow 1. Then `tensorflow1` makes the
      errors for the namespace `tensorflow` itself.
  """
  used, other = (real.compat.v1, real) if v1 else (real, real.compat.v1)
  # Such as `tensorflow._api.v2.`: the parent's name for code inside TensorFlow.
  start = used.train.__name__.removesuffix("train")
  for name, module in list(sys.modules.items()):
    path = name.removeprefix(start)
    if name.startswith(start) and path.split(".")[0] not in ("compat", "v2"):
      _set_functions(module, path, other, v1)
  if not v1:
    _set_functions(real, "", other, v1)
    if not real.summary.__name__.startswith(start):  # It is TensorBoard's.
      _set_functions(real.summary, "summary", other, v1)


def _set_functions(
  module: types.ModuleType, path: str, other: Any, v1: bool
) -> None:
  """Sets `__getattr__` in a module, and a `__dir__` that lists neither."""
  own = vars(module).get("__getattr__")
  exported = list(getattr(module, "__all__", ()))

  def load(name: str) -> Any:
    message = f"module {module.__name__!r} has no attribute {name!r}"
    if own is not None:
      try:
        return own(name)
      except AttributeError as error:
        message = str(error)
    message += explain_absence(f"{path}.{name}".lstrip("."), other, v1)
    raise AttributeError(message, name=name, obj=module)

  for name, function in lazy_modules.make_functions(module, load).items():
    setattr(module, name, function)
  if exported:
    module.__all__ = exported  # type: ignore[attr-defined]
