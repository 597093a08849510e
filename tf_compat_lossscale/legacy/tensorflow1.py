"""`import tensorflow` as it was in TensorFlow 1, for programs that need it."""

from __future__ import annotations

import sys
import types
from typing import Any

from tf_compat_lossscale.legacy import import_hooks as _imports
from tf_compat_lossscale.legacy import install as legacy_modules

# What TensorFlow 1 had at the top, and its `tf.compat.v1` may not have.
_GONE = {
  "estimator": (
    "tf.estimator went with TensorFlow 2.16: use TensorFlow 2.15 or older, "
    "tf.keras, or a loop over a Session"
  ),
  "examples": (
    "tensorflow.examples (its tutorials, and MNIST) went with TensorFlow 2.0: "
    "tf.keras.datasets.mnist.load_data() has that data"
  ),
}


def _gone(name: str) -> str | None:
  """What to say of a module that is no more, by its name below tensorflow."""
  reason = _GONE.get(name.partition(".")[0])
  return f"TensorFlow 1 had tf.{name}: {reason}." if reason else None


class _TensorFlow1(types.ModuleType):
  """TensorFlow 1's namespace, in the place of TensorFlow's own module."""

  def __init__(self, real: types.ModuleType, v1: types.ModuleType):
    super().__init__("tensorflow", v1.__doc__)
    for name in ("__file__", "__loader__", "__package__", "__path__"):
      setattr(self, name, getattr(real, name))
    self.__spec__ = real.__spec__
    self._v1 = v1

  def __getattr__(self, name: str) -> Any:
    v1 = self.__dict__["_v1"]
    if name == "compat":  # There v1 and v2 are, as they are for others.
      return sys.modules["tensorflow.compat"]
    try:
      return getattr(v1, name)
    except AttributeError:
      module = sys.modules.get(f"tensorflow.{name}")  # `tf.python` and such.
      if module is not None:
        return module
      message = _gone(name) or f"module 'tensorflow' has no attribute {name!r}"
      raise AttributeError(message, name=name, obj=self) from None

  def __dir__(self) -> list[str]:
    return sorted({*super().__dir__(), *dir(self._v1)})

  @property
  def __all__(self) -> list[str]:
    """What `from tensorflow import *` takes."""
    return [name for name in dir(self._v1) if not name.startswith("_")]


class _Submodules(_imports.Finder):
  """Gives TensorFlow 1's module for `import tensorflow.…`, where it had one."""

  def __init__(self, v1: types.ModuleType):
    self._v1 = v1

  def wants(self, name: str) -> bool:
    return name.startswith("tensorflow.") and not name.startswith(
      ("tensorflow._api.", "tensorflow.compat.", "tensorflow.python.")
    )

  def replacement(self, name: str) -> types.ModuleType | None:
    value: Any = self._v1
    for part in name.split(".")[1:]:
      value = getattr(value, part, None)
      if not isinstance(value, types.ModuleType):
        return None
    # `keras` is one that loads when used; now it is.
    dir(value)
    return sys.modules.get(value.__name__, value)

  def stand_in(self, name: str) -> None:
    message = _gone(name.partition(".")[2])
    if message:
      raise ImportError(message, name=name)


def prepare(real: types.ModuleType, v1: bool) -> None:
  """Puts the legacy names in place, when TensorFlow has just been imported.

  Args:
    real: TensorFlow.
    v1: `import tensorflow` is TensorFlow 1 from now on, too: the namespace of
      `tensorflow.compat.v1`, with TensorFlow 2's behaviour off.
  """
  legacy_modules.install()
  if v1:
    _become(real)


def _become(real: types.ModuleType) -> None:
  from tf_compat_lossscale._core.tf import deprecation  # It imports TensorFlow.

  v1 = real.compat.v1
  with deprecation.quiet_deprecations():
    v1.disable_v2_behavior()
  sys.modules["tensorflow"] = _TensorFlow1(real, v1)
  sys.modules.setdefault("tensorflow.compat", real.compat)
  _Submodules(v1).enter()
