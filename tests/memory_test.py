# SPDX-License-Identifier: Apache-2.0
"""Tests that the memory of long training does not grow."""

import gc

import helpers
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

_WARM_UP = 300
_GROWTH = 275  # Bytes a step.


def optimizer():
  return tfl.MixedPrecisionLossScaleOptimizer(
    tf.compat.v1.train.AdamOptimizer(0.001),
    tfl.DynamicLossScale(2.0**15, increment_period=5),
  )


def long_training(mode, steps, resident=True):
  """Checks the memory of training in which every tenth step is not finite.

  Args:
    mode: The mode to train in.
    steps: The number of steps.
    resident: Whether to check resident memory besides Python objects.
  """
  specs = (helpers.Spec((64, 64)), helpers.Spec((64,)))
  with helpers.Trainer(mode, optimizer, specs) as trainer:
    for i in range(steps):
      trainer.step(float("inf") if i % 10 == 9 else 1e-3, 0.5)
      if i + 1 == _WARM_UP:
        before, objects_before = helpers.resident_memory(), count_objects()
    growth = helpers.resident_memory() - before
    objects = count_objects() - objects_before
    assert trainer.value(trainer.global_step) == steps * 9 // 10
  print(
    f"{mode}: {growth / 2**20:+.2f} MB and {objects:+d} objects over "
    f"{steps - _WARM_UP} steps"
  )
  assert objects < 50
  assert growth < _GROWTH * (steps - _WARM_UP) or not resident


def count_objects():
  gc.collect()
  return len(gc.get_objects())


def graph_v1():
  long_training("graph_v1", 1_500)


def graph_v2():
  long_training("graph_v2", 1_500)


def function():
  long_training("function", 2_000)


def eager():
  # TensorFlow 2.12 and 2.15 leak about 50 bytes for every eager tensor, also
  # with an optimizer that nothing wraps.
  long_training("eager", 900, resident=helpers.RELEASE >= (2, 16))


@pytest.mark.thorough
@pytest.mark.parametrize("body", [graph_v1, graph_v2, function, eager])
def test_resident_memory_does_not_grow(body):
  helpers.run_alone(body)


if __name__ == "__main__":
  helpers.main()
