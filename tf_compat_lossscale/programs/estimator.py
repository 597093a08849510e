# SPDX-License-Identifier: Apache-2.0
"""Puts `tf.estimator` back, which TensorFlow has lacked since 2.16.

The package `tensorflow_estimator` still has all of it. That package asks
TensorFlow for a few modules that went with `tf.estimator`; modules of
`_core/tf` stand in for these. Nothing of this loads before a program uses it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from typing import Any

from tf_compat_lossscale._core import install_commands
from tf_compat_lossscale._core import patching
from tf_compat_lossscale.programs import import_hooks
from tf_compat_lossscale.programs import lazy_modules
from tf_compat_lossscale.programs import loading

_PACKAGE = "tensorflow_estimator"
_PYTHON = f"{_PACKAGE}.python.estimator"
_CORE = "tf_compat_lossscale._core.tf"

# Modules that TensorFlow had up to 2.15; those that tensorflow_estimator itself
# imports; and names that TensorFlow's namespaces lack. Submodules go with their
# parents.
_TABLE = loading.read_table(f"""
tensorflow.estimator = {_PYTHON}.api._v2.estimator
tensorflow.compat.v1.estimator = {_PYTHON}.api._v1.estimator
tensorflow.compat.v2.estimator = {_PYTHON}.api._v2.estimator
tensorflow.python.estimator = {_PYTHON}
tensorflow.python.estimator.keras = {_PYTHON}.keras_lib
tensorflow.python.tpu.error_handling = {_PYTHON}.tpu.error_handling
tensorflow.python.tpu.tpu_config = {_PYTHON}.tpu.tpu_config
tensorflow.python.tpu.tpu_context = {_PYTHON}.tpu.tpu_context
tensorflow.python.tpu.tpu_estimator = {_PYTHON}.tpu.tpu_estimator
tensorflow.python.tpu.util = {_PYTHON}.tpu.util

tensorflow.python.distribute.estimator_training = {_CORE}.estimator_training
tensorflow.python.tpu.session_support = {_CORE}.tpu_parts
tensorflow.python.tpu.tpu_embedding = {_CORE}.tpu_parts
tensorflow.python.tpu.tpu_embedding_gradient = {_CORE}.tpu_parts

tensorflow
  {_PYTHON}.api._v2: estimator
tensorflow.compat.v1
  {_PYTHON}.api._v1: estimator
tensorflow.compat.v2
  {_PYTHON}.api._v2: estimator
tensorflow.compat.v1.tpu.experimental
  {_CORE}.tpu_parts: AdagradParameters AdamParameters FtrlParameters
    StochasticGradientDescentParameters
""")
INSTALL_COMMAND = install_commands.make_command(_PACKAGE, None)
_MISSING = (
  "tf.estimator was removed in TensorFlow 2.16, and the package "
  f"tensorflow-estimator has it: {INSTALL_COMMAND}"
)


def explain_absence() -> str | None:
  """Returns what to install for `tf.estimator`; None if it is installed."""
  if sys.modules.get(_PACKAGE):
    return None
  if importlib.util.find_spec(_PACKAGE) is None:
    return _MISSING
  from importlib import metadata  # Seldom needed.

  try:
    version = metadata.version(_PACKAGE)
  except metadata.PackageNotFoundError:
    return None  # A build that pip has not installed.
  if [int(part) for part in version.split(".")[:2]] >= [2, 15]:
    return None
  return (
    "tf.estimator needs tensorflow-estimator 2.15 on this TensorFlow, not "
    f"{version}: {INSTALL_COMMAND}"
  )


class EstimatorRestorer(import_hooks.ImportWatcher):
  """Gives TensorFlow `tf.estimator` between `start` and `stop`."""

  def __init__(
    self, tensorflow: types.ModuleType, log: patching.UndoLog
  ) -> None:
    self._tensorflow, self._log = tensorflow, log

  def watches(self, name: str) -> bool:
    return name == _PACKAGE or _TABLE.find_module(name) is not None

  def before_load(self, name: str) -> None:
    from tf_compat_lossscale._core.tf import estimator_export

    estimator_export.add_estimator()

  def replace_module(self, name: str) -> types.ModuleType | None:
    home = _TABLE.find_module(name)
    if home is None:
      return None
    try:
      module = _import_home(home)
    except ModuleNotFoundError as error:
      if error.name != home:
        raise
      return None  # No release had this module.
    return self._log.supply(name, module)

  def start(self) -> None:
    """Starts to find the modules and the names."""
    super().start()
    for path, targets in _TABLE.names.items():
      namespace = self._tensorflow
      for part in path.split(".")[1:]:
        namespace = getattr(namespace, part)
      load = functools.partial(self._load_name, namespace)
      lazy_modules.serve_names(self._log, namespace, targets, load)

  def _load_name(
    self, namespace: types.ModuleType, name: str, target: str
  ) -> Any:
    """Returns the value of a name, and sets it in the namespace."""
    message = explain_absence() if name == "estimator" else None
    if message:
      raise AttributeError(message, name=name, obj=namespace)
    try:
      value = loading.load(target)
    except loading.TargetError as error:
      raise AttributeError(str(error), name=name, obj=namespace) from error
    self._log.set(namespace, name, value)
    return value

  def stop(self) -> None:
    """Stops to find them; what is imported stays valid."""
    super().stop()
    if _PACKAGE in sys.modules:
      from tf_compat_lossscale._core.tf import estimator_export

      estimator_export.remove_estimator()


def restore(log: patching.UndoLog) -> EstimatorRestorer | None:
  """Puts `tf.estimator` back if TensorFlow, which is imported, lacks it.

  Args:
    log: The log that undoes this when the restorer has stopped.

  Returns:
    The restorer; None up to TensorFlow 2.15.
  """
  tensorflow = sys.modules["tensorflow"]
  major, minor = tensorflow.__version__.split(".")[:2]
  if (int(major), int(minor)) < (2, 16):
    return None
  restorer = EstimatorRestorer(tensorflow, log)
  restorer.start()
  return restorer


def _import_home(home: str) -> types.ModuleType:
  """Imports a module.

  Raises:
    ModuleNotFoundError: The module is one of tensorflow_estimator, which is
      missing.
  """
  if home.startswith(_PACKAGE):
    message = explain_absence()
    if message:
      raise ModuleNotFoundError(message, name=_PACKAGE)
  return importlib.import_module(home)
