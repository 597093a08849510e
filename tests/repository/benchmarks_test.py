# SPDX-License-Identifier: Apache-2.0
"""Tests that timed steps train and that the statistics are right."""

import gc

import helpers
import numpy as np
import pytest

pytest.importorskip("rich", reason="the extra [bench] is not installed")

from benchmarks import monitoring
from benchmarks import policy_steps
from benchmarks import rivals
from benchmarks import shapes
from benchmarks import steps
from benchmarks import summary
from benchmarks import timing

pytestmark = pytest.mark.any_release


def test_ratio_and_its_interval():
  random = np.random.default_rng(1)
  base = list(1 + 0.1 * random.random(200))
  middle, low, high = timing.ratio([2 * t for t in base], base)
  assert middle == pytest.approx(2)
  assert low <= 2 <= high < 2.1


def test_ratio_of_builds_and_its_interval():
  random = np.random.default_rng(1)
  base = [list(1 + 0.1 * random.random(200)) for _ in range(3)]
  factors = (1.0, 2.0, 4.0)
  times = [[f * t for t in build] for f, build in zip(factors, base)]
  middle, low, high = timing.ratio_of_builds(times, base)
  assert middle == pytest.approx(2)
  assert (low, high) == pytest.approx((1, 4), rel=0.3)  # Builds differ.
  same = timing.ratio_of_builds([[2 * t for t in b] for b in base], base)
  assert same[0] == pytest.approx(2) and same[2] - same[1] < 0.1


def test_turns_are_taken():
  order = []
  calls = {name: lambda name=name: order.append(name) for name in "ab"}
  times = timing.take_turns(calls, 0, 4, "")
  assert [len(t) for t in times.values()] == [4, 4]
  rounds = {"".join(order[i : i + 2]) for i in range(6, 14, 2)}
  assert rounds == {"ab", "ba"}


def test_sets_are_of_the_size_that_they_claim():
  resnet = shapes.SHAPES["ResNet-50"]
  assert len(resnet) == 161
  assert round(sum(map(np.prod, resnet)) / 1e6, 1) == 25.6


@pytest.fixture(scope="module", name="frozen")
def _frozen():
  """Keeps the objects of TensorFlow's modules from the garbage collector.

  A `Step` begins with a full collection.
  """
  gc.freeze()
  yield
  gc.unfreeze()


_ALL = {**rivals.RIVALS, **rivals.POLICIES}


@pytest.mark.parametrize(
  ("mode", "rival"),
  [
    # The rivals have the modes by turns.
    (steps.MODES[i % 4], rival)
    for i, rival in enumerate(_ALL)
  ],
)
def test_steps_train(mode, rival, frozen):
  seen = []

  def loss(variables):
    seen[:] = variables
    return steps.filled(variables)

  with helpers.control_flow(mode != "graph v1"):
    step = steps.Step(_ALL[rival], [(3, 2), (4,)], "sgd", mode, loss)
    step()
    step()
    if step._session:
      with step._session.graph.as_default():
        values = step._session.run([v.value() for v in seen])
    else:
      values = [v.numpy() for v in seen]
    step.close()
  for value in values:
    assert value == pytest.approx(np.full(value.shape, -2e-6))


_MEASURES = {
  "policies": (policy_steps, "over DynamicLossScale", [*rivals.POLICIES]),
  "monitoring": (monitoring, "over no hook", ["hook"]),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", _MEASURES)
def test_policies_and_hooks_are_timed(name, frozen):
  module, key, others = _MEASURES[name]
  with helpers.control_flow(False):
    found = module.measure([(2,)], steps.filled, steps.MODES[0], 0, 8, builds=2)
  assert found["mode"] == steps.MODES[0] and found["seconds"] > 0
  assert {*found[key]} == {*others, "again"} - {rivals.RULE}
  for middle, low, high in found[key].values():
    assert 0 < low <= middle * 1.5 and middle / 1.5 <= high


def test_the_worst_ratio_is_the_first():
  step = {"optimizer": "sgd", "mode": "eager", "gradients": "filled"}
  row = {
    "shape": "some",
    "over TensorFlow": (0.9, 0.8, 1.0),
    "fixed over TensorFlow": (1.0, 0.95, 1.1),
  }
  results = {
    "steps": [{**step, "rows": [row]}],
    "plane": [
      {"cell": "1x64", "mode": "eager", "over TensorFlow": (0.9, 0.85, 1)}
    ],
    "policies": [
      {
        "shape": "some",
        "mode": "eager",
        "over DynamicLossScale": {"again": (1.0, 0.99, 1.01)},
      }
    ],
    "monitoring": [
      {"shape": "some", "mode": "eager", "over no hook": {"hook": (2, 1.5, 3)}}
    ],
  }
  assert [each[0] for each in summary.list_ratios(results)] == [
    "some, eager, hook",
    "some, eager, again",
    "some, sgd, eager, filled, fixed scale",
    "1x64, eager",
    "some, sgd, eager, filled",
  ]


def test_the_program_refuses_at_once():
  argument = "--json=no/such/folder/a.json"
  done = helpers.complete_forked("-m", "benchmarks", argument)
  assert done.returncode == 2
  *others, error = done.stderr.splitlines()  # TensorFlow logs the others.
  assert error.startswith("benchmarks: ") and "no/such/folder" in error
  assert done.stdout == "" and "Traceback" not in others


if __name__ == "__main__":
  helpers.main()
