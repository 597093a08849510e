# SPDX-License-Identifier: Apache-2.0
"""Settings of the tests of checkpoints."""

from collections.abc import Iterator

import helpers
import pytest

from tf_compat_lossscale.checkpoint import reading

_options = helpers.tf.config.optimizer.set_experimental_options


@pytest.fixture(scope="module", autouse=True)
def _no_grappler() -> Iterator[None]:
  """Lets sessions and functions run their graphs as they are.

  Optimizing takes half the time of a small graph's first run, and moves no
  tensor to another variable. `goldens_test.py` runs programs with Grappler.
  """
  _options({"disable_meta_optimizer": True})
  yield
  _options({"disable_meta_optimizer": False})


@pytest.fixture(autouse=True)
def _no_patience(
  request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Lets an error of a checkpoint that a test just wrote come at once.

  The package otherwise waits up to a second for a writer that may still be at
  work; `overwritten_test.py` tests that it does.
  """
  if request.path.stem != "overwritten_test":
    monkeypatch.setattr(reading, "_PATIENCE", 0.0)
