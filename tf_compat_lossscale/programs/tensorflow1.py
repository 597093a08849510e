# SPDX-License-Identifier: Apache-2.0
"""Makes `import tensorflow` give TensorFlow 1's namespace to a program."""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core.tf import private_names
from tf_compat_lossscale.programs import dataset_options
from tf_compat_lossscale.programs import hints
from tf_compat_lossscale.programs import import_hooks
from tf_compat_lossscale.programs import install
from tf_compat_lossscale.programs import lazy_modules
from tf_compat_lossscale.programs import told_version
from tf_compat_lossscale.programs import wrong_guess


class _TensorFlow1(types.ModuleType):
  """A module with TensorFlow 1's names, used instead of TensorFlow's own."""

  def __init__(self, real: types.ModuleType, v1: types.ModuleType):
    super().__init__("tensorflow", v1.__doc__)
    for name in ("__file__", "__loader__", "__package__", "__path__"):
      setattr(self, name, getattr(real, name))
    self.__spec__ = real.__spec__
    self._real = real
    self._v1 = v1
    # Where Python looks for a module's function.
    vars(self)["__getattr__"] = lazy_modules.make_getattr(
      "tensorflow", self._load
    )

  def _load(self, name: str) -> Any:
    v1 = self._v1
    if name == "compat":  # Its v1 and v2 stay what they are.
      return sys.modules["tensorflow.compat"]
    if name in told_version.NAMES:
      return told_version.answer(self._real.__version__)
    try:
      return getattr(v1, name)
    except AttributeError:
      module = sys.modules.get(f"tensorflow.{name}")  # `tf.python` and such.
      if module is not None:
        return module
      message = f"module 'tensorflow' has no attribute {name!r}"
      message = hints.explain_module(f"tensorflow.{name}") or (
        message + wrong_guess.explain_absence(name, self._real, v1=True)
      )
      raise AttributeError(message, name=name, obj=self) from None

  def __reduce__(self) -> tuple[Any, ...]:
    return importlib.import_module, ("tensorflow",)

  def __dir__(self) -> list[str]:
    return sorted({*super().__dir__(), *dir(self._v1)})

  @property
  def __all__(self) -> list[str]:
    """The names that `from tensorflow import *` binds."""
    return [name for name in dir(self._v1) if not name.startswith("_")]


class _SubmoduleWatcher(import_hooks.ImportWatcher):
  """A watcher that makes `import tensorflow.…` give TensorFlow 1's modules."""

  def __init__(self, v1: types.ModuleType):
    self._v1 = v1

  def watches(self, name: str) -> bool:
    return name.startswith("tensorflow.") and not name.startswith(
      ("tensorflow._api.", "tensorflow.compat.", "tensorflow.python.")
    )

  def replace_module(self, name: str) -> types.ModuleType | None:
    value: Any = self._v1
    for part in name.split(".")[1:]:
      value = getattr(value, part, None)
      if not isinstance(value, types.ModuleType):
        return None
    dir(value)  # Loads a lazy module such as `keras`.
    return sys.modules.get(value.__name__, value)


def prepare(
  real: types.ModuleType, v1: bool, keras_optimizers: Any = None
) -> None:
  """Puts the legacy names in place just after TensorFlow's import.

  From then on, NVIDIA's environment variables have their old effect, too.

  Args:
    real: TensorFlow.
    v1: Whether `import tensorflow` is to give TensorFlow 1: the namespace of
      `tensorflow.compat.v1`, with TensorFlow 2's behavior off.
    keras_optimizers: The argument of `install`.
  """
  install.install(keras_optimizers)
  environment = importlib.import_module("tf_compat_lossscale.environment")
  environment.honor_environment(quiet=os.environ.get(legacy_names.QUIET) == "1")
  if v1:
    _replace_tensorflow(real)
  wrong_guess.explain_in_modules(real, v1)


def _replace_tensorflow(real: types.ModuleType) -> None:
  """Makes `import tensorflow` give TensorFlow 1 from now on."""
  v1 = real.compat.v1
  with private_names.silence_deprecations():
    v1.disable_v2_behavior()
  dataset_options.allow_changes(real)
  _allow_other_numbers(real)
  own = os.environ.get(legacy_names.PACKAGES, "").split(os.pathsep)
  told_version.set_own_packages(own)
  for module in (v1, v1.version):
    told_version.tell_in(module)
  sys.modules["tensorflow"] = _TensorFlow1(real, v1)
  sys.modules.setdefault("tensorflow.compat", real.compat)
  _SubmoduleWatcher(v1).start()


def _allow_other_numbers(real: types.ModuleType) -> None:
  """Lets shapes have sizes such as 4.0 and True, as in TensorFlow 1.

  Programs that were written for Python 2 divide a number of units by 2, and
  give the result to a cell or to `tf.get_variable`. StyleGAN and its forks give
  `tf.get_variable` the shape [1, use_noise, 4, 4]. In a release whose shapes do
  not use `tf.Dimension`, this has no effect.

  Args:
    real: TensorFlow, of either namespace.
  """
  dimension = real.compat.v1.Dimension
  own = dimension.__init__

  def __init__(self: Any, value: Any) -> None:
    is_whole = getattr(value, "is_integer", None)
    if isinstance(value, bool):
      value = int(value)
    elif not isinstance(value, int) and is_whole is not None:
      if not is_whole():
        raise ValueError(
          f"Ambiguous dimension: {value}. Expected a whole number: divide by "
          "// instead of /, or round"
        )
      value = int(value)
    own(self, value)

  dimension.__init__ = __init__
