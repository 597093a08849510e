"""Which Keras `tf.keras` is: Keras 2, as old programs need it, or Keras 3."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import re
import sys
from typing import Any

_SWITCH = "TF_USE_LEGACY_KERAS"  # TensorFlow reads it when it is imported.


def use_keras_2() -> None:
  """Makes `tf.keras` Keras 2, as it was in every release up to 2.15.

  From TensorFlow 2.16 on Keras 2 is the package tf_keras. What TensorFlow 1 had
  as `tf.layers` is built on it, too. Call this before TensorFlow is imported.

  Raises:
    ImportError: tf_keras is needed and not installed.
    RuntimeError: TensorFlow is imported already, with Keras 3.
  """
  settings = environment(2)
  if "tensorflow" in sys.modules and not settings.items() <= os.environ.items():
    raise RuntimeError(
      "use_keras_2() must be called before TensorFlow is imported: then "
      "TensorFlow decides which Keras it has. Call it earlier, or set "
      f"{_SWITCH}=1 in the environment."
    )
  os.environ.update(settings)


def environment(keras: int) -> dict[str, str]:
  """What makes `tf.keras` that Keras, if it is set in time.

  Args:
    keras: 2 or 3.

  Returns:
    Environment variables.

  Raises:
    ImportError: That Keras is not installed beside this TensorFlow.
  """
  release = _tensorflow_release()
  if release is None or release < (2, 16):
    if keras == 3:
      raise ImportError(
        "tf.keras is Keras 2 up to TensorFlow 2.15: for Keras 3 install "
        "TensorFlow 2.16 or later"
      )
    return {}
  if keras == 3:
    return {_SWITCH: "0"}
  if importlib.machinery.PathFinder.find_spec("tf_keras") is None:
    raise ImportError(
      f"Keras 2 is not installed: {how_to_install(release)}", name="tf_keras"
    )
  return {_SWITCH: "1"}


def is_keras_3(package: str = "tensorflow") -> bool:
  """Returns whether the Keras of a package is Keras 3. Loads that Keras.

  Args:
    package: 'tensorflow' for `tf.keras`, else 'keras' or 'tf_keras'.

  Returns:
    Whether it is. Where there is no Keras, it is not.
  """
  try:
    module = importlib.import_module(package)
    if package == "tensorflow":
      module = module.keras
    return hasattr(module, "ops")  # Which no Keras 2 has.
  except ImportError:
    return False


def import_keras_3() -> Any:
  """Imports Keras 3.

  Raises:
    ImportError: Keras 3 is not installed.
  """
  if not is_keras_3("keras"):
    release = ".".join(map(str, _tensorflow_release() or ("unknown",)))
    raise ImportError(
      "Keras 3 is not installed. It comes with TensorFlow 2.16 and later; this "
      f"is TensorFlow {release}.",
      name="keras",
    )
  return importlib.import_module("keras")


def how_to_install(release: tuple[int, ...]) -> str:
  """What gets Keras 2 for a TensorFlow release, (major, minor)."""
  return f"pip install 'tf_keras=={release[0]}.{release[1]}.*'"


def _tensorflow_release() -> tuple[int, int] | None:
  """TensorFlow's (major, minor), read off its folder: importing takes long."""
  spec = importlib.machinery.PathFinder.find_spec("tensorflow")
  if spec is None or spec.origin is None:
    return None
  packages = os.path.dirname(os.path.dirname(spec.origin))
  for entry in os.listdir(packages):
    match = re.fullmatch(
      r"(?:tensorflow(?:_cpu|_gpu|_intel|_rocm|_macos|_cpu_aws)?|tf_nightly\w*)"
      r"-(\d+)\.(\d+)\..*\.dist-info",
      entry,
    )
    if match:
      return int(match[1]), int(match[2])
  return None
