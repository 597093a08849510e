# SPDX-License-Identifier: Apache-2.0
"""Tests how Keras 2 is chosen for `tf.keras`."""

import os
import sys

import helpers
import processes
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale._core import installation
from tf_compat_lossscale._core import which_keras

_HAS_KERAS_3 = helpers.RELEASE >= (2, 16)


@pytest.mark.any_release
def test_without_keras_2_it_says_what_to_install(tmp_path, monkeypatch):
  monkeypatch.setattr(installation, "find_release", lambda: (2, 99))
  monkeypatch.setattr(sys, "path", [str(tmp_path)])
  with pytest.raises(ImportError, match=r"pip install 'tf_keras==2\.99\.\*'"):
    which_keras.make_environment(2)
  monkeypatch.setattr(installation, "find_release", lambda: (2, 15))
  assert which_keras.make_environment(2) == {}
  with pytest.raises(ImportError, match=r"2\.16"):
    which_keras.make_environment(3)


def test_reads_the_release_off_the_folder():
  assert installation.find_release() == helpers.RELEASE


def test_use_keras_2_before_tensorflow_is_imported():
  """Checks a process whose TensorFlow had the variable at its import."""
  code = """if True:
    import os, sys
    tensorflow = sys.modules.pop("tensorflow")
    settings = os.environ.copy()
    os.environ.pop("TF_USE_LEGACY_KERAS", None)
    import tf_compat_lossscale as tfl
    tfl.use_keras_2()
    assert os.environ == settings and "tensorflow" not in sys.modules
    sys.modules["tensorflow"] = tensorflow
    tfl.use_keras_2()
    assert ".engine." in tensorflow.keras.Model.__module__
  """
  processes.run_forked("-c", code, **helpers.KERAS_2)


def test_use_keras_2_too_late(monkeypatch):
  monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
  assert "tensorflow" in sys.modules
  if _HAS_KERAS_3:
    with pytest.raises(RuntimeError, match="before TensorFlow is imported"):
      tfl.use_keras_2()
  else:
    tfl.use_keras_2()
  assert "TF_USE_LEGACY_KERAS" not in os.environ
