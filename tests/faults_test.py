# SPDX-License-Identifier: Apache-2.0
"""Tests that training comes to its end although tasks are killed or stopped."""

import fault_schedules
import helpers
import pytest


@pytest.mark.machines
@pytest.mark.parametrize("engine", fault_schedules.ENGINES)
def test_random_faults(tmp_path, engine):
  alone = tmp_path / "alone"
  alone.mkdir()
  want = fault_schedules.run_alone(engine, alone)
  own = tmp_path / "faults"
  own.mkdir()
  state, schedule, _, _ = fault_schedules.run(engine, 2, own)
  if fault_schedules.is_exact(engine, schedule):
    assert state == want, schedule


if __name__ == "__main__":
  helpers.main()
