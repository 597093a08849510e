# SPDX-License-Identifier: Apache-2.0
"""Tests the checks of `make gpu` on the CPU."""

import helpers
import pytest


@pytest.mark.thorough
def test_all_checks_hold(tmp_path):
  printed = helpers.run_python(
    "tools/gpu.py", "--steps=100", "--width=64", timeout=600
  )
  lines = [x for x in printed.splitlines() if x.startswith(("ok ", "FAILED"))]
  assert len(lines) == 5 and all(x.startswith("ok ") for x in lines), printed


if __name__ == "__main__":
  helpers.main()
