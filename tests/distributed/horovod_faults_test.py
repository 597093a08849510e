# SPDX-License-Identifier: Apache-2.0
"""Tests that faults of ranks neither hang nor change the result.

`python tests/distributed/horovod_faults.py 20` runs more schedules.
"""

import helpers
import horovod_faults
import horovod_runs
import pytest

pytestmark = horovod_runs.MARKS


@pytest.mark.parametrize("seed", range(len(horovod_faults.KINDS)))
def test_faults(tmp_path, seed):
  result = horovod_faults.run_schedule(seed, tmp_path)
  assert result.faults[0].kind == horovod_faults.KINDS[seed]
  assert not result.differing


if __name__ == "__main__":
  helpers.main()
