# SPDX-License-Identifier: Apache-2.0
"""Tests `MultiWorkerMirroredStrategy` and `ParameterServerStrategy`."""

import json

import clusters
import helpers
import numpy as np
import pytest
import strategy_cluster

pytestmark = pytest.mark.machines

_TASK = str(helpers.TESTS / "distributed" / "strategy_cluster.py")


def train(folder, counts, **given):
  """Returns the states after each step in each process that prints them.

  Args:
    folder: The folder of the processes' output, and of checkpoints.
    counts: The number of processes by job. With the job `ps`, a coordinator is
      started, too, which alone prints states.
    **given: Keys of the program: the steps' number, and what is not usual.
  """
  folder.mkdir(exist_ok=True)
  tasks = [(job, i) for job, count in counts.items() for i in range(count)]
  tasks += [("chief", 0)] if "ps" in counts else []
  given = {"seed": 1, "rate": 0.1, "own": False, "stop": None, **given}
  given |= {"jobs": clusters.find_addresses(counts)}
  given |= {"folder": str(folder / "checkpoints")}
  given.setdefault("at_once", False)
  with clusters.Cluster(folder) as cluster:
    for job, i in tasks:
      arguments = json.dumps({**given, "job": job, "index": i})
      cluster.start(f"{job}{i}", _TASK, arguments)
    names = ["chief0"] if "ps" in counts else list(cluster.tasks)
    printing = [cluster.tasks[name] for name in names]
    ends = [cluster.wait(task, "end", 150) for task in printing]
    states = [task.find("state") for task in printing]
    return [[*found, *end] for found, end in zip(states, ends)]


@pytest.mark.parametrize(
  "counts", [{"worker": 3}, {"ps": 2, "worker": 1}], ids=str
)
def test_the_states_are_those_of_tensorflows_own(tmp_path, counts):
  """Checks a whole run, and one that goes on from a checkpoint."""
  states, *others = train(tmp_path / "tfl", counts, steps=80)
  assert len(states) == 81 and others == [states] * len(others)
  assert train(tmp_path / "own", counts, steps=80, own=True)[0] == states
  workers = 1 if "ps" in counts else 3
  factors = strategy_cluster.draw_factors(1, 80, workers, 0.1)
  applied = np.isfinite(factors).all(1).sum()
  assert states[-1][:2] == [80, applied] and 40 < applied < 80
  first = train(tmp_path / "parts", counts, steps=80, stop=30)[0]
  for then in train(tmp_path / "parts", counts, steps=80):
    assert first[:-1] + then == states


def test_no_step_of_two_workers_goes_uncounted(tmp_path):
  """Checks the counts of steps that two workers run at once."""
  counts = {"ps": 2, "worker": 2}
  ((end,),) = train(tmp_path, counts, steps=300, at_once=True)
  factors = strategy_cluster.draw_factors(1, 300, 1, 0.1)
  assert end[:2] == [300, np.isfinite(factors).sum()]
