# SPDX-License-Identifier: Apache-2.0
"""Tests that the memory of long training does not grow."""

import gc

import helpers
import processes
import pytest
from scaled_optimizers import dynamic
from scaled_optimizers import wrap
import tensorflow as tf
import trainers

tf1 = tf.compat.v1

_WARM_UP = 300
_GROWTH = 275  # Bytes a step.


def long_training(mode, steps, resident=True):
  """Checks the memory of training in which every tenth step is not finite."""
  specs = (trainers.Spec((64, 64)), trainers.Spec((64,)))
  make = wrap(dynamic(2.0**15, 5), lambda: tf1.train.AdamOptimizer(0.001))
  with trainers.Trainer(mode, make, specs) as trainer:
    for i in range(steps):
      trainer.step(float("inf") if i % 10 == 9 else 1e-3, 0.5)
      if i + 1 == _WARM_UP:
        before, objects_before = processes.resident_memory(), count_objects()
    growth = processes.resident_memory() - before
    objects = count_objects() - objects_before
    assert trainer.value(trainer.global_step) == steps * 9 // 10
  print(f"{mode}: {growth:+d} bytes and {objects:+d} objects")
  assert objects < 50
  assert growth < _GROWTH * (steps - _WARM_UP) or not resident


def count_objects():
  gc.collect()
  return len(gc.get_objects())


# TensorFlow 2.12 and 2.15 leak about 50 bytes for every eager tensor, also with
# an optimizer that nothing wraps.
_CASES = {
  "graph_v1": (1_000, True),
  "graph_v2": (1_000, True),
  "function": (1_500, True),
  "eager": (700, helpers.RELEASE >= (2, 16)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("mode", _CASES)
def test_resident_memory_does_not_grow(mode):
  code = f"{processes.import_line(__file__)}test.long_training({mode!r}, *"
  processes.run_forked("-c", f"{code}{_CASES[mode]})")
