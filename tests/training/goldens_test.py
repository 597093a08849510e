# SPDX-License-Identifier: Apache-2.0
"""Tests that checkpoints of old releases restore, and that training goes on.

Each release of TensorFlow itself wrote its folders `goldens/tf-RELEASE/CASE`,
by `goldens/make_goldens.py`. A file `expected.json` has the release's results
of the next steps, which training must repeat.
"""

import golden_runner
import helpers
import numpy as np
import processes
import pytest

_GOLDENS = helpers.list_goldens("session", "contrib")


def groups():
  """Yields (behavior, goldens, mark); one process restores each group.

  The quick tests restore the releases of each case under v1 and v2 by turns.
  """
  by_case = sorted(_GOLDENS, key=lambda golden: golden.split("/")[::-1])
  for behavior in ("v1", "v2"):
    first = ("v1", "v2").index(behavior)
    yield behavior, by_case[first::2], []
    yield behavior, by_case[1 - first :: 2], [pytest.mark.thorough]


@pytest.mark.parametrize(
  ("golden", "restore", "behavior", "goldens"),
  [
    pytest.param(
      golden,
      way.__name__,
      behavior,
      goldens,
      marks=marks,
      id=f"{golden}-{way.__name__}-{behavior}",
    )
    for behavior, goldens, marks in groups()
    for golden in goldens
    for way in golden_runner.ways(golden)
  ],
)
def test_trains_on_as_recorded(
  golden, restore, behavior, goldens, tmp_path_factory
):
  runner = str(helpers.HARNESS / "golden_runner.py")
  paths = [str(helpers.GOLDENS / golden) for golden in goldens]
  output = processes.run_once(tmp_path_factory, runner, behavior, *paths)
  rows = helpers.parse_json(output)[f"{helpers.GOLDENS / golden} {restore}"]
  assert not isinstance(rows, str), rows
  expected = helpers.expected_of(golden)
  expected_rows = expected["rows"][expected["steps_before"] :]
  assert len(rows) == len(expected_rows) == expected["steps_after"]
  for row, expected_row in zip(rows, expected_rows):
    for key in ("loss_scale", "global_step", "good_steps", "bad_steps"):
      assert row.get(key) == expected_row.get(key), (key, expected_row["i"])
    for key in ("w", "b"):
      # Processors round matrix products differently. Weights of about 1 differ
      # by units in the last place. The relative error of weights near 0 is
      # larger.
      np.testing.assert_allclose(
        row[key], expected_row[key], rtol=2e-5, atol=2e-7
      )


@pytest.mark.any_release
def test_there_are_goldens():
  releases = {golden.split("/")[0] for golden in _GOLDENS}
  assert len(releases) >= 6
  assert len(_GOLDENS) >= 24
