# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of `scan` and `migrate`."""

from collections.abc import Iterator

import pytest

from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.migration import absences
from tf_compat_lossscale.programs import estimator


@pytest.fixture
def all_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  """Makes findings be those of a Python with Keras 2 and tf.estimator.

  Older releases of TensorFlow bring both, but not as packages that fit the
  newest release.
  """
  monkeypatch.setattr(which_keras, "is_missing", lambda release: False)
  monkeypatch.setattr(estimator, "explain_absence", lambda: None)
  absences.find_absence.cache_clear()
  yield
  absences.find_absence.cache_clear()
