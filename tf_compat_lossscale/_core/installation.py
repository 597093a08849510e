# SPDX-License-Identifier: Apache-2.0
"""Finds packages, and tells how to install them; imports none of them."""

from __future__ import annotations

from collections.abc import Sequence
import importlib.machinery
import os
import re

# Packages that a release of TensorFlow takes in its own minor version alone.
_OF_EACH_RELEASE = ("tensorboard", "tensorflow_text", "tf_keras")
# The last release of each. TensorFlow itself had tf.estimator up to 2.15.
_LAST = {
  "tensorflow_addons": "tensorflow_addons==0.23.*",
  "tensorflow_estimator": "tensorflow-estimator==2.15.*",
}
# TensorFlow Probability: the last TensorFlow that a release is for -> release.
_PROBABILITY = {
  (2, 12): "0.20",
  (2, 13): "0.21",
  (2, 14): "0.22",
  (2, 15): "0.23",
  (2, 16): "0.24",
}
_LAST_PROBABILITY = "0.25"
# Python 3.11 has no other release of tensorflow_text for TensorFlow 2.13.
_CANDIDATES = {"tensorflow_text==2.13.*": ",>=2.13.0rc0"}


def find_folder(package: str) -> str | None:
  """Returns a package's folder, or None if it is not installed."""
  spec = find_spec(package)
  if spec is None or spec.origin is None:
    return None
  return os.path.dirname(spec.origin)


def find_spec(
  name: str, path: Sequence[str] | None = None
) -> importlib.machinery.ModuleSpec | None:
  """Returns the spec of a module, by default in `sys.path`; imports nothing.

  The name in the spec is the last part of the dotted name.
  """
  folders, spec = path, None
  for i, part in enumerate(name.split(".")):
    if i and folders is None:
      return None
    # Of `a.b`, "b" is asked for: the finder would look for "a", imported, if a
    # folder has no `__init__.py`.
    spec = importlib.machinery.PathFinder.find_spec(part, folders)
    folders = spec.submodule_search_locations if spec is not None else None
  return spec


def find_release() -> tuple[int, int] | None:
  """Returns TensorFlow's (major, minor), or None if it is not installed.

  The release is read off a folder's name, because importing TensorFlow is slow.
  """
  folder = find_folder("tensorflow")
  if folder is None:
    return None
  for entry in os.listdir(os.path.dirname(folder)):
    match = re.fullmatch(
      r"(?:tensorflow(?:_cpu|_gpu|_intel|_rocm|_macos|_cpu_aws)?|tf_nightly\w*)"
      r"-(\d+)\.(\d+)\..*\.dist-info",
      entry,
    )
    if match:
      return int(match[1]), int(match[2])
  return None


def make_command(package: str, release: tuple[int, ...] | None) -> str:
  """Returns the command that installs a package.

  Args:
    package: The name by which programs import it.
    release: TensorFlow's (major, minor); None if that is unknown.
  """
  requirement = _LAST.get(package, package)
  if release is not None and package in _OF_EACH_RELEASE:
    requirement = f"{package}=={release[0]}.{release[1]}.*"
    requirement += _CANDIDATES.get(requirement, "")
  elif release is not None and package == "tensorflow_probability":
    fitting = (v for last, v in _PROBABILITY.items() if release[:2] <= last)
    requirement = f"{package}=={next(fitting, _LAST_PROBABILITY)}.*"
  if "=" in requirement:
    requirement = f"'{requirement}'"  # A shell takes `*` and `>` for its own.
  return f"pip install {requirement}"
