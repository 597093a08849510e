# SPDX-License-Identifier: Apache-2.0
"""Tests training under `MultiWorkerMirroredStrategy`, on 127.0.0.1."""

import json

import clusters
import helpers
import multi_worker_cluster
import numpy as np
import pytest

_TASK = str(helpers.TESTS / "distributed" / "multi_worker_cluster.py")


def start(folder, count, **given):
  """Returns a cluster of `count` workers that train."""
  ports = clusters.find_ports(count)
  given["workers"] = [f"127.0.0.1:{port}" for port in ports]
  given["folder"] = str(folder / "checkpoints")
  cluster = clusters.Cluster(folder)
  for index in range(count):
    arguments = json.dumps({**given, "index": index})
    cluster.start(f"worker{index}", _TASK, arguments)
  return cluster


def train(folder, count, **given):
  """Returns the states of each worker after each attempt of a step."""
  folder.mkdir(exist_ok=True)
  with start(folder, count, **given) as cluster:
    for task in cluster.tasks.values():
      cluster.wait(task, "end", 150)
    return [task.find("state") for task in cluster.tasks.values()]


@pytest.mark.machines
@pytest.mark.parametrize(("count", "steps"), [(2, 500), (4, 200)])
def test_all_workers_have_the_same_state_as_with_tensorflows_own(
  tmp_path, count, steps
):
  given = {"seed": count, "steps": steps, "rate": 0.3 / count}
  states = {}
  for module in ("tfl", "own"):
    first, *others = train(tmp_path / module, count, module=module, **given)
    assert len(first) == steps
    assert others == [first] * (count - 1)
    states[module] = first
  assert states["tfl"] == states["own"]
  factors = multi_worker_cluster.draw_factors(
    count, count, steps, given["rate"]
  )
  applied = np.isfinite(factors).all(1).sum()
  last = np.frombuffer(bytes.fromhex(first[-1][1]["step"]), np.int64)
  assert last == applied
  assert 0.5 * steps < applied < 0.9 * steps


@pytest.mark.machines
def test_training_goes_on_from_a_checkpoint(tmp_path):
  given = {"seed": 5, "steps": 60, "rate": 0.1, "module": "tfl"}
  whole, _ = train(tmp_path / "whole", 2, **given)
  first, _ = train(tmp_path / "parts", 2, stop=25, **given)
  for then in train(tmp_path / "parts", 2, **given):
    assert first + then == whole


if __name__ == "__main__":
  helpers.main()
