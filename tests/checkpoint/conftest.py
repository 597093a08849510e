# SPDX-License-Identifier: Apache-2.0
"""Settings of the tests of checkpoints."""

import pytest

from tf_compat_lossscale.checkpoint.files import consistency


@pytest.fixture(autouse=True)
def _no_patience(
  request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Lets an error of a checkpoint that a test just wrote come at once.

  The package otherwise waits up to a second for a writer that may still be at
  work; `overwritten_test.py` tests that it does.
  """
  if request.path.stem != "overwritten_test":
    monkeypatch.setattr(consistency, "_PATIENCE", 0.0)
    monkeypatch.setattr(consistency, "_PATIENCE_FOR_INDEX", 0.0)
