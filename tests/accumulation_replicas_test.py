# SPDX-License-Identifier: Apache-2.0
"""Tests accumulation on replicas against one large batch, in random set-ups."""

import os

import helpers
import pytest

_SETUPS = int(os.environ.get("ACCUMULATION_SETUPS", "6"))
_PROGRAM = str(helpers.HARNESS / "accumulation_replicas.py")


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(_SETUPS))
def test_as_one_large_batch(seed):
  """Runs each strategy in a process of its own."""
  printed = helpers.run_forked(_PROGRAM, str(seed), timeout=120)
  assert f"done: {seed}:" in printed


if __name__ == "__main__":
  helpers.main()
