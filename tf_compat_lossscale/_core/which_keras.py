# SPDX-License-Identifier: Apache-2.0
"""Decides which Keras `tf.keras` is: Keras 2, for old programs, or Keras 3."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import Any

from tf_compat_lossscale import _releases
from tf_compat_lossscale._core import installation

_SWITCH = "TF_USE_LEGACY_KERAS"  # TensorFlow reads it when it is imported.


def use_keras_2() -> None:
  """Makes `tf.keras` Keras 2, as in every release up to 2.15.

  From TensorFlow 2.16 on, Keras 2 is the package tf_keras. TensorFlow 1's
  `tf.layers` needs Keras 2, too. Call this before TensorFlow is imported.

  Raises:
    ImportError: tf_keras is needed and not installed.
    RuntimeError: TensorFlow is already imported, with Keras 3.
  """
  settings = make_environment(2)
  if "tensorflow" in sys.modules and not settings.items() <= os.environ.items():
    raise RuntimeError(
      "use_keras_2() must be called before TensorFlow is imported, because the "
      "import decides which Keras tf.keras is. Call use_keras_2() earlier, or "
      f"set {_SWITCH}=1 in the environment."
    )
  os.environ.update(settings)


def make_environment(keras: int) -> dict[str, str]:
  """Returns the environment variables by which TensorFlow has Keras 2 or 3.

  Raises:
    ImportError: That Keras is not installed for this TensorFlow.
  """
  release = installation.find_release()
  if not _is_apart(release):
    if keras == 3:
      raise ImportError(
        "tf.keras is Keras 2 up to TensorFlow 2.15: to use Keras 3, install "
        "TensorFlow 2.16 or later"
      )
    return {}
  if keras == 3:
    return {_SWITCH: "0"}
  if is_missing(release):
    command = installation.make_command("tf_keras", release)
    raise ImportError(f"Keras 2 is not installed: {command}", name="tf_keras")
  return {_SWITCH: "1"}


def means_keras_3() -> bool:
  """Returns whether `tf.keras` is or will be Keras 3; loads no Keras."""
  is_on = os.environ.get(_SWITCH, "").lower() in ("1", "true")
  return _is_apart(installation.find_release()) and not is_on


def is_keras_3(package: str = "tensorflow") -> bool:
  """Returns whether the Keras of a package is Keras 3. Loads that Keras.

  Besides TensorFlow, that is 'keras' or 'tf_keras', which may be missing.
  """
  try:
    module = importlib.import_module(package)
    if package == "tensorflow":
      module = module.keras
    return hasattr(module, "ops")  # No Keras 2 has `ops`.
  except ImportError:
    return False


def import_keras_3() -> Any:
  """Imports Keras 3.

  Raises:
    ImportError: Keras 3 is not installed.
  """
  if not is_keras_3("keras"):
    release = ".".join(map(str, installation.find_release() or ("unknown",)))
    raise ImportError(
      "Keras 3 is not installed. It comes with TensorFlow 2.16 and later; this "
      f"is TensorFlow {release}.",
      name="keras",
    )
  return importlib.import_module("keras")


def _is_apart(release: tuple[int, ...] | None) -> bool:
  """Returns whether a release of TensorFlow has Keras 2 in a package apart."""
  return release is not None and release >= _releases.WITH_KERAS_3


def is_missing(release: tuple[int, ...] | None) -> bool:
  """Returns whether Keras 2 is a package, and not installed, for a release."""
  return _is_apart(release) and installation.find_spec("tf_keras") is None


@functools.cache
def find_private_keras_2() -> str:
  """Returns the package that has Keras 2's own modules, such as "keras.src"."""
  name = "tf_keras" if _is_apart(installation.find_release()) else "keras"
  private = f"{name}.src"
  return name if installation.find_spec(private) is None else private
