# SPDX-License-Identifier: Apache-2.0
"""Tests that timed steps train and that their ratio is right."""

import gc

import helpers
import numpy as np
import processes
import pytest

pytest.importorskip("rich", reason="the extra [bench] is not installed")

from benchmarks import rivals
from benchmarks import steps
from benchmarks import timing

pytestmark = pytest.mark.any_release


def test_ratio_and_its_interval():
  random = np.random.default_rng(1)
  base = list(1 + 0.1 * random.random(200))
  middle, low, high = timing.ratio([2 * t for t in base], base)
  assert middle == pytest.approx(2)
  assert low <= 2 <= high < 2.1


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


def test_the_program_refuses_at_once():
  argument = "--json=no/such/folder/a.json"
  done = processes.complete_forked("-m", "benchmarks", argument)
  assert done.returncode == 2
  *others, error = done.stderr.splitlines()  # TensorFlow logs the others.
  assert error.startswith("benchmarks: ") and "no/such/folder" in error
  assert done.stdout == "" and "Traceback" not in others
