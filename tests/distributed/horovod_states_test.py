# SPDX-License-Identifier: Apache-2.0
"""Tests that ranks of Horovod have the same state after every step."""

import dataclasses
import functools
import json

import helpers
import horovod_programs as programs
import horovod_runs
import pytest

pytestmark = horovod_runs.MARKS

# Few functions: to trace one takes as long as 500 steps of a graph.
_CASES = [
  programs.Case("graph_v1", "outside"),
  programs.Case("graph_v1", "inside"),
  programs.Case("eager", "outside", steps=100),
  programs.Case("eager", "inside", "growth", "sgd", steps=100),
  programs.Case("graph_v2", "outside", steps=100),
  programs.Case("graph_v2", "inside", "growth", "adam", steps=100),
  programs.Case("function", "outside", "contrib", steps=100),
  programs.Case("function", "inside", "growth", "adam", steps=100),
  programs.Case("graph_v1", "outside", "growth", "sgd", steps=100),
  programs.Case("graph_v1", "inside", "contrib", "adam", steps=100),
]
_OF_FOUR = [
  programs.Case("graph_v1", "outside", steps=100, seed=1),
  programs.Case("eager", "inside", steps=50, seed=1),
]


def run(folder, ranks, cases):
  folder.mkdir()
  text = json.dumps([dataclasses.asdict(case) for case in cases])
  (folder / "cases.json").write_text(text, "utf-8")
  return horovod_runs.run_task(folder, ranks, "run_cases")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
  """Returns the states by number of ranks: of each rank, case and step."""
  folder = tmp_path_factory.mktemp("states")
  return {
    2: run(folder / "two", 2, _CASES),
    4: run(folder / "four", 4, _OF_FOUR),
  }


@functools.cache
def compute_states(scale, inner, steps, seed, ranks):
  """Returns the states of one process: modes and orders make no difference."""
  case = programs.Case("eager", "outside", scale, inner, steps, seed)
  return programs.compute_states(case, ranks)


_BOTH = [(2, case) for case in _CASES] + [(4, case) for case in _OF_FOUR]


@pytest.mark.parametrize(
  ("ranks", "case"), _BOTH, ids=[f"{n}-{case.name}" for n, case in _BOTH]
)
def test_states_are_those_of_one_process(results, ranks, case):
  """Compares the states after each step, bit for bit."""
  expected = compute_states(
    case.scale, case.inner, case.steps, case.seed, ranks
  )
  assert len(expected) == case.steps
  for rank in range(ranks):
    found = results[ranks][rank][case.name]
    assert found.shape == expected.shape
    assert found.tobytes() == results[ranks][0][case.name].tobytes(), rank
    assert found.tobytes() == expected.tobytes(), rank
  # The schedule skips steps, and the scale goes up and down.
  applied = expected[-1, 5 + 18 + 3]
  assert 0.4 < applied / case.steps < 0.9


if __name__ == "__main__":
  helpers.main()
