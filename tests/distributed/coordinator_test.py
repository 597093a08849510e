# SPDX-License-Identifier: Apache-2.0
"""Tests training by a `ClusterCoordinator` with parameter servers."""

import json

import clusters
import coordinator_cluster
import helpers
import numpy as np
import pytest

_TASK = str(helpers.TESTS / "distributed" / "coordinator_cluster.py")


def start(folder, servers, workers, **given):
  """Returns a cluster; the coordinator is the task `chief0`."""
  ports = clusters.find_ports(servers + workers)
  addresses = [f"127.0.0.1:{port}" for port in ports]
  jobs = {"ps": addresses[:servers], "worker": addresses[servers:]}
  cluster = clusters.Cluster(folder)
  tasks = [(job, i) for job in jobs for i in range(len(jobs[job]))]
  for job, index in [*tasks, ("chief", 0)]:
    row = {**given, "cluster": jobs, "job": job, "index": index}
    row["folder"] = str(folder / "checkpoints")
    cluster.start(f"{job}{index}", _TASK, json.dumps(row))
  return cluster


def train(folder, servers=1, workers=1, **given):
  """Returns the states after each step, and at the end."""
  folder.mkdir(exist_ok=True)
  with start(folder, servers, workers, **given) as cluster:
    chief = cluster.tasks["chief0"]
    (end,) = cluster.wait(chief, "end", 120)
    return chief.find("state"), end


@pytest.mark.machines
@pytest.mark.parametrize("servers", [1, 2])
def test_one_worker_as_tensorflows_own(tmp_path, servers):
  given = {"steps": 100, "seed": 1, "rate": 0.2}
  given |= {"servers": servers, "one_by_one": True}
  states, end = train(tmp_path / "tfl", **given)
  assert len(states) == 100
  assert states[-1] == end
  own, _ = train(tmp_path / "own", module="own", **given)
  assert [row[:6] for row in states] == [row[:6] for row in own]


@pytest.mark.machines
def test_training_goes_on_from_a_checkpoint(tmp_path):
  given = {"steps": 60, "seed": 3, "rate": 0.2, "one_by_one": True}
  whole, _ = train(tmp_path / "whole", **given)
  first, _ = train(tmp_path / "parts", stop=25, **given)
  then, _ = train(tmp_path / "parts", **given)
  assert first + then == whole


@pytest.mark.machines
def test_no_step_of_two_workers_goes_uncounted(tmp_path):
  """Checks the counts of steps that two workers run at once."""
  given = {"steps": 300, "seed": 2, "rate": 0.1}
  _, end = train(tmp_path, 2, 2, one_by_one=False, **given)
  factors = coordinator_cluster.draw_factors(2, 300, 0.1)
  attempts, _, _, applied = end[:4]
  assert (attempts, applied) == (300, np.isfinite(factors).sum())


if __name__ == "__main__":
  helpers.main()
