# SPDX-License-Identifier: Apache-2.0
"""Explains in one line how to install TensorFlow if it is missing or too old.

pip does not install TensorFlow with this package: TensorFlow has several
distributions (`tensorflow`, `tensorflow-cpu`, builds of hardware vendors), and
two of them in one environment overwrite each other's files.
"""

import importlib
import re
import sys
from types import ModuleType

from tf_compat_lossscale import _releases

_INSTALL = (
  f"install TensorFlow {_releases.show(_releases.OLDEST)} or later: pip "
  "install 'tf_compat_lossscale[tensorflow]', or the build of TensorFlow that "
  "you use"
)
_PYTHONS = _releases.OLDEST_PYTHON, max(_releases.PYTHONS.values())
_FOR_PYTHON = (
  f" (TensorFlow has no wheels for Python {sys.version_info[0]}."
  f"{sys.version_info[1]}: use Python 3.{_PYTHONS[0]} to 3.{_PYTHONS[1]})"
  if sys.version_info[:2] > (3, _PYTHONS[1])
  else ""
)
MISSING = (
  "tf_compat_lossscale needs TensorFlow, which is missing: "
  f"{_INSTALL}{_FOR_PYTHON}"
)


def _check_release() -> None:
  """Raises an ImportError if the TensorFlow that is imported is too old."""
  version = _get_imported_version()
  found = re.match(r"(\d+)\.(\d+)", version or "")
  if found and (int(found[1]), int(found[2])) < _releases.OLDEST:
    raise ImportError(
      f"tf_compat_lossscale does not run on TensorFlow {version}: {_INSTALL}",
      name="tensorflow",
    )


def explain(error: Exception) -> None:
  """Raises a clearer error if the error of an import is about TensorFlow.

  Raises:
    ImportError: TensorFlow is missing, or older than 2.12.
  """
  _check_release()
  name = getattr(error, "name", None) or ""
  is_missing = (
    isinstance(error, ImportError) and _get_imported_version() is None
  )
  # TensorFlow brings google.protobuf, which some modules import before it.
  if is_missing and name.partition(".")[0] in ("tensorflow", "google"):
    raise ImportError(MISSING, name="tensorflow") from None


def import_module(name: str) -> ModuleType:
  """Imports TensorFlow, or a module that may need TensorFlow.

  Raises:
    ImportError: TensorFlow is missing, or older than 2.12.
  """
  try:
    module = importlib.import_module(name)
  except (AttributeError, ImportError) as error:
    explain(error)
    raise
  _check_release()
  return module


def _get_imported_version() -> str | None:
  return getattr(sys.modules.get("tensorflow"), "__version__", None)
