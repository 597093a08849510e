# SPDX-License-Identifier: Apache-2.0
"""Tests that the logs of a run that is killed and restarted are one series."""

import random
import signal

import helpers
import monitored_runs
import monitoring_killer
import pytest

pytestmark = pytest.mark.any_release

_PROGRAM = str(helpers.HARNESS / "monitoring_killer.py")
_STEPS = 60


def run(folder, kind, *dies_at):
  done = helpers.complete_forked(
    _PROGRAM, str(folder), str(_STEPS), kind, *map(str, dies_at)
  )
  expected = -signal.SIGKILL if dies_at else 0
  assert done.returncode in (0, expected), done.stderr
  return done


def read(folder):
  """Returns step -> what the log says of the step, but for where a run began.

  Each session writes its first step, and one that ends writes its last.
  """
  lines = monitored_runs.assert_same_series(folder / "log")
  for line in lines:
    line.pop("config", None)
    line.pop("underflow", None)  # Measured before the session began.
    line.pop("blame", None)  # The first line of a session repeats the blame.
    line.pop("gradients", None)
  return {line["step"]: line for line in lines}


def check(tmp_path, kind, rng, kills):
  run(tmp_path / "whole", kind)
  expected = read(tmp_path / "whole")
  step = 10
  for _ in range(kills):
    # Not before the first checkpoint: from there, a run would begin anew.
    step = rng.randint(max(11, step - 8), min(step + 25, _STEPS))
    moment = rng.choice(["before", "while", "after"])
    run(tmp_path / "killed", kind, step, moment)
  run(tmp_path / "killed", kind)
  found = read(tmp_path / "killed")
  assert set(expected) <= set(found), sorted(set(expected) - set(found))
  assert {k: v for k, v in found.items() if k in expected} == expected
  # The other lines are the first ones of sessions, after a checkpoint.
  others = set(found) - set(expected)
  assert all(step % 10 == 1 for step in others), others


@pytest.mark.thorough
@pytest.mark.parametrize("kind", monitoring_killer.KINDS)
def test_killed_twice(tmp_path, kind):
  check(tmp_path, kind, random.Random(kind), 2)


@pytest.mark.thorough
# Without a global step, a later line may fit the state of a checkpoint, too.
@pytest.mark.parametrize(
  "kind", [kind for kind in monitoring_killer.KINDS if kind != "no global step"]
)
@pytest.mark.parametrize("seed", range(1))  # Any number by hand.
def test_killed_often(tmp_path, kind, seed):
  check(tmp_path, kind, random.Random(f"{kind} {seed}"), 6)


def test_killed_before_the_first_checkpoint(tmp_path):
  run(tmp_path, "skips", 7, "after")
  assert max(read(tmp_path)) < 8
  run(tmp_path, "skips")
  assert sorted(read(tmp_path))[-1] == _STEPS
  # For all that the hook knows, this is another run.
  assert (tmp_path / "log" / "loss_scale.1.jsonl").exists()


if __name__ == "__main__":
  helpers.main()
