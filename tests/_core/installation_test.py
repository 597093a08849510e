# SPDX-License-Identifier: Apache-2.0
"""Tests how packages that go with TensorFlow are said to be installed."""

import pytest

from tf_compat_lossscale._core import installation
from tf_compat_lossscale.programs import missing_names

pytestmark = pytest.mark.any_release


@pytest.mark.parametrize(
  ("release", "package", "version"),
  [
    ((2, 12), "tensorflow_probability", "0.20.*"),
    ((2, 16), "tensorflow_probability", "0.24.*"),
    ((2, 21), "tensorflow_probability", "0.25.*"),
    # Python 3.11 has the candidate alone.
    ((2, 13), "tensorflow_text", "2.13.*,>=2.13.0rc0"),
    ((2, 14), "tensorflow_text", "2.14.*"),
    ((2, 13), "tensorboard", "2.13.*"),
    ((2, 13), "tensorflow_addons", "0.23.*"),
  ],
)
def test_the_version_that_goes_with_a_release(release, package, version):
  command = installation.make_command(package, release)
  assert command == f"pip install '{package}=={version}'"


def test_versions_are_left_out_if_the_release_is_unknown():
  for package in ("tensorboard", "tensorflow_probability", "tf_keras"):
    command = installation.make_command(package, None)
    assert command == f"pip install {package}"


def test_contrib_gives_the_same_advice(monkeypatch):
  monkeypatch.setattr(installation, "find_release", lambda: (2, 13))
  monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
  assert missing_names.find_install_command("tensorboard") == (
    installation.make_command("tensorboard", (2, 13))
  )
