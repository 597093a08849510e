# SPDX-License-Identifier: Apache-2.0
"""Tests that training goes on from a golden as an old release went on."""

import checkpoint_runner
import helpers
import numpy as np
import processes
import pytest

_GOLDENS = helpers.list_goldens("session", "contrib")
_IN_BOTH = {
  "tf-1.15.5/contrib_exponential",
  "tf-1.15.5/session_dynamic_adam",
  "tf-2.8.4/session_v2_behavior_adam",
}
_RUNNER = str(helpers.TESTS / "checkpoint" / "checkpoint_runner.py")
_STATE = {
  "compat.v1": {"current_loss_scale", "good_steps"},
  "contrib": {"loss_scale", "good_steps", "bad_steps"},
}


def last_parts(names):
  """Returns names without their scopes."""
  return {name.split("/")[-1] for name in names}


def check_rows(way, rows, expected):
  """Checks the values after a restore and after each further step."""
  has_state = expected["kind"] != "fixed"
  expected_rows = expected["rows"][expected["steps_before"] - 1 :]
  expected_rows = expected_rows[: checkpoint_runner.STEPS + 1]
  assert len(rows) == len(expected_rows) == checkpoint_runner.STEPS + 1
  if "other_kind" in way or ("other_api" in way and not has_state):
    # The two APIs treat gradients that are not finite in different ways.
    ends = [i for i, row in enumerate(expected_rows) if row["poisoned"]]
    if not np.isfinite(expected_rows[0]["w"]).all():
      ends.insert(0, 1)
    expected_rows = expected_rows[: ends[0]]
  has_scale = not has_state or not way.startswith(("as_other", "from_fp32"))
  for row, expected_row in zip(rows, expected_rows):
    if has_scale and "as_other" not in way:
      for key in ("loss_scale", "good_steps", "bad_steps"):
        assert row.get(key) == expected_row.get(key), (key, expected_row["i"])
    assert row["global_step"] == expected_row["global_step"]
    for key in ("w", "b"):
      np.testing.assert_allclose(
        row[key], expected_row[key], rtol=2e-5, atol=2e-7
      )
  if "from_fp32" in way and has_state:
    assert rows[0]["loss_scale"] == 3.0 and rows[0]["good_steps"] == 0
  if way.startswith("as_other_api") and has_state:
    for key in ("loss_scale", "good_steps"):
      assert rows[0][key] == expected_rows[0][key]


def check_report(way, report, expected):
  """Checks which variables were bridged and initialized."""
  compat = expected["api"].startswith("compat")
  has_state = expected["kind"] != "fixed"
  state = _STATE["compat.v1" if compat else "contrib"]
  is_new = "from_fp32" in way if has_state else "other_kind" in way
  assert last_parts(report["initialized"]) == (state if is_new else set())
  assert {"w", "b", "global_step"} <= last_parts(report["restored"])
  if way.startswith("as_other_api") and has_state:
    other = _STATE["contrib" if compat else "compat.v1"]
    assert other <= last_parts(report["bridged"])


def groups():
  """Returns (behavior, is_main) -> goldens; one process restores each group.

  A golden is restored under the behavior under which it was not saved, and a
  few goldens are restored under both. Goldens of the releases between the
  oldest and the newest differ in nothing but their writer, so only the newest
  TensorFlow must read them: they are not main.
  """
  found = {}
  for golden in _GOLDENS:
    own = "v2" if helpers.expected_of(golden).get("v2_behavior") else "v1"
    behaviors = {"v1", "v2"} if golden in _IN_BOTH else {"v1", "v2"} - {own}
    is_main = golden in checkpoint_runner.IN_EVERY_WAY | _IN_BOTH
    for behavior in sorted(behaviors):  # All workers need one order.
      found.setdefault((behavior, is_main), []).append(golden)
  return found


def cases():
  """Returns (golden, behavior, goldens of the same process) parameters."""
  return [
    pytest.param(
      golden,
      behavior,
      goldens,
      marks=[] if is_main else [pytest.mark.any_release, pytest.mark.thorough],
      id=f"{golden}-{behavior}",
    )
    for (behavior, is_main), goldens in groups().items()
    for golden in goldens
  ]


@pytest.mark.thorough
@pytest.mark.parametrize(("golden", "behavior", "goldens"), cases())
def test_trains_on_as_recorded(golden, behavior, goldens, tmp_path_factory):
  paths = [str(helpers.GOLDENS / name) for name in goldens]
  output = processes.run_once(
    tmp_path_factory, _RUNNER, behavior, *paths, timeout=600
  )
  results = helpers.parse_json(output)[str(helpers.GOLDENS / golden)]
  expected = helpers.expected_of(golden)
  is_full = golden in checkpoint_runner.IN_EVERY_WAY
  assert len(results) >= (9 if is_full else 4), list(results)
  for way, result in results.items():
    assert not isinstance(result, str), f"{way}: {result}"
    rows, report = result
    try:
      check_rows(way, rows, expected)
      if report:  # A Saver has no report if all names are the same.
        check_report(way, report, expected)
      else:
        assert way in ("by_saver", "by_meta_graph")
    except AssertionError as error:
      raise AssertionError(f"{way}: {error}") from error
