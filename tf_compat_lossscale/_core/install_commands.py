# SPDX-License-Identifier: Apache-2.0
"""Tells how to install the packages that go with TensorFlow.

Several errors, `scan` and `migrate` name such a command. Each package has one.
"""

from __future__ import annotations

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
