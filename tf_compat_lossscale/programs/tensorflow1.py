# SPDX-License-Identifier: Apache-2.0
"""Prepares TensorFlow for a program of `run`, right after its import.

A program for TensorFlow 1 gets TensorFlow 1's namespace by `import tensorflow`.
It is told that TensorFlow's version is 1.15.5, because a program for both
TensorFlows asks for the version. Installed libraries are told the truth: they
are made for the TensorFlow that is installed.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import types
from typing import Any

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core.tf import private_names
from tf_compat_lossscale.programs import import_hooks
from tf_compat_lossscale.programs import install
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import old_methods
from tf_compat_lossscale.programs import program_files

# Programs unpack three numbers from it, so nothing is appended.
VERSION = "1.15.5"
_VERSIONS = ("VERSION", "__version__")
_OURS = re.compile(r"tf_compat_lossscale(\.|$)")
# Modules whose functions pass an attribute's name on to this one.
_BETWEEN = ("tensorflow.python.util.module_wrapper", __name__)


class _TensorFlow1(types.ModuleType):
  """A module with TensorFlow 1's names, used instead of TensorFlow's own."""

  def __init__(self, real: types.ModuleType, v1: types.ModuleType):
    super().__init__("tensorflow", v1.__doc__)
    for name in ("__file__", "__loader__", "__package__", "__path__"):
      setattr(self, name, getattr(real, name))
    self.__spec__ = real.__spec__
    self._v1 = v1
    # Where Python looks for a module's function.
    vars(self)["__getattr__"] = self._load

  def _load(self, name: str) -> Any:
    if name == "compat":  # Its v1 and v2 stay what they are.
      return sys.modules["tensorflow.compat"]
    try:
      return getattr(self._v1, name)
    except AttributeError as error:
      module = sys.modules.get(f"tensorflow.{name}")  # `tf.python` and such.
      if module is not None:
        return module
      message = str(error).replace(self._v1.__name__, "tensorflow", 1)
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

  pattern = re.compile(r"tensorflow\.(?!(_api|compat|contrib|python)\.)")

  def __init__(self, v1: types.ModuleType):
    self._v1 = v1

  def replace_module(self, name: str) -> types.ModuleType | None:
    value: Any = self._v1
    for part in name.split(".")[1:]:
      value = getattr(value, part, None)
      if not isinstance(value, types.ModuleType):
        return None
    dir(value)  # Loads a lazy module such as `keras`.
    return sys.modules.get(value.__name__, value)


def add_hints() -> None:
  """Adds a line after two errors that do not say what to do.

  The keys of a loss scale depend on the API and on the control flow. Programs
  of TensorFlow 1 set options to True that are numbers. The process keeps this.
  """
  show = sys.excepthook

  def show_more(kind: Any, error: Any, trace: Any) -> None:
    show(kind, error, trace)
    if hint := _find_hint(str(error)):
      print(f"tf-lossscale run: {hint}", file=sys.stderr)

  sys.excepthook = show_more


def _find_hint(message: str) -> str | None:
  """Returns what to do after an error, if its message does not say it."""
  if message.endswith("Expected an int, got a boolean."):
    return "protobuf 7 takes no True for a number: pip install 'protobuf<7'"
  if found := re.search(r"Key (\S+) not found in checkpoint", message):
    names = importlib.import_module("tf_compat_lossscale.checkpoint.names")
    if names.is_power(found[1]) or names.get_base(found[1]) in names.MEANINGS:
      return (
        f"{found[1]} depends on the API and control flow; "
        "tf_compat_lossscale.checkpoint.Scaffold() restores it: "
        "MonitoredTrainingSession(scaffold=…), or its Saver().restore"
      )
  return None


def prepare(real: types.ModuleType, v1: bool) -> None:
  """Puts the legacy names in place just after TensorFlow's import.

  From then on, NVIDIA's environment variables have their old effect on programs
  for TensorFlow 1, and the errors for missing names say if the other TensorFlow
  has the name.

  Args:
    real: TensorFlow.
    v1: Whether `import tensorflow` is to give TensorFlow 1: the namespace of
      `tensorflow.compat.v1`, with TensorFlow 2's behavior off.
  """
  optimizers: Any = os.environ.get(legacy_names.KERAS_OPTIMIZERS)
  install.install(optimizers)
  add_hints()
  environment = importlib.import_module("tf_compat_lossscale.environment")
  is_quiet = os.environ.get(legacy_names.QUIET) == "1"
  if v1:
    environment.honor_environment(quiet=is_quiet)
  elif not is_quiet:
    environment.say_ignored()
  if os.environ.get(legacy_names.FLOAT16_ON_CPU) == "1":
    from tf_compat_lossscale.programs import rehearsal

    rehearsal.start(is_quiet)
  used = real.compat.v1 if v1 else real
  if v1:
    _replace_tensorflow(real, used)
  # Such as `tensorflow._api.v2.`: the parent's name for code inside TensorFlow.
  start = used.train.__name__.removesuffix("train")
  modules = {"": used, "summary": used.summary}  # It may be TensorBoard's.
  for name, module in list(sys.modules.items()):
    if name.startswith(start):
      modules.setdefault(name.removeprefix(start), module)
  for path, module in modules.items():
    if path.split(".")[0] not in ("compat", "v2"):
      set_getattr(module, path, 1 if v1 else 2)
  if watch := os.environ.get(legacy_names.WATCH):
    watching = importlib.import_module("tf_compat_lossscale.programs.watching")
    watching.SessionWatcher(watch).start()


def _replace_tensorflow(real: types.ModuleType, v1: types.ModuleType) -> None:
  """Makes `import tensorflow` give TensorFlow 1 from now on."""
  with private_names.silence_deprecations():
    v1.disable_v2_behavior()
  old_methods.allow_changes(real)
  _allow_other_numbers(v1)
  sys.modules["tensorflow"] = _TensorFlow1(real, v1)
  sys.modules.setdefault("tensorflow.compat", real.compat)
  _SubmoduleWatcher(v1).start()


def _allow_other_numbers(v1: Any) -> None:
  """Lets shapes have sizes such as 4.0 and True, as in TensorFlow 1.

  Programs that were written for Python 2 divide a number of units by 2, and
  give the result to a cell or to `tf.get_variable`. StyleGAN and its forks give
  `tf.get_variable` the shape [1, use_noise, 4, 4]. In a release whose shapes do
  not use `tf.Dimension`, this has no effect.
  """
  own = v1.Dimension.__init__

  def __init__(self: Any, value: Any) -> None:
    if isinstance(value, bool) or hasattr(value, "is_integer"):
      if value % 1:
        raise ValueError(
          f"Ambiguous dimension: {value}. Expected a whole number: divide by "
          "// instead of /, or round"
        )
      value = int(value)
    own(self, value)

  v1.Dimension.__init__ = __init__


def set_getattr(module: Any, path: str, tensorflow: int) -> None:
  """Makes a public module of TensorFlow tell the version, and what is missing.

  `path` is its name below the TensorFlow that the program means (1 or 2).
  """
  own, listed = vars(module).get("__getattr__"), dir(module)
  versions: dict[str, str] = {}

  def find(name: str) -> Any:
    if name in versions:
      return tell_version(versions[name])
    if name == "__all__" and versions:  # Such modules had none in 2.12.
      return [each for each in listed if not each.startswith("_")]
    message = f"module {module.__name__!r} has no attribute {name!r}"
    if own is not None:
      try:
        return own(name)
      except AttributeError as error:
        message = str(error)
    full = f"tensorflow.{path}.{name}".replace("..", ".")
    advice = missing_names.explain(full, "", tensorflow)
    if advice and advice not in message:
      message += f". {advice}"
    raise AttributeError(message, name=name, obj=module)

  def list_names() -> list[str]:
    hidden = ("__getattr__", "__dir__")
    return sorted({*listed, *vars(module)}.difference(hidden))

  # Not by `setattr`, which would add the functions to `__all__`.
  for namespace in private_names.list_namespaces(module):
    for name in _VERSIONS if tensorflow == 1 else ():
      if name in namespace:
        versions[name] = namespace.pop(name)
    namespace.update(__getattr__=find, __dir__=list_names)


def tell_version(real: str) -> str:
  """Returns what the code that asks for TensorFlow's version is told.

  Python tells a module's `__getattr__` nothing about who reads the attribute.
  So the call stack says which module asks. The installed TensorFlow is `real`.
  """
  frame: Any = sys._getframe(1)
  while frame and str(frame.f_globals.get("__name__")) in _BETWEEN:
    frame = frame.f_back
  asks = frame.f_globals if frame else {}
  package = program_files.find_package(str(asks.get("__file__")))
  own = os.environ.get(legacy_names.PACKAGES, "").split(os.pathsep)
  is_library = package is not None and package not in own
  is_ours = _OURS.match(str(asks.get("__name__"))) is not None
  return real if is_library or is_ours else VERSION
