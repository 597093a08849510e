"""Long training does not grow."""

import gc

import helpers
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

_WARM_UP = 1_000
_GROWTH = 5 * 2**20 / 19_000  # Bytes a step: 5 MB over the longest training.


def optimizer():
  return tfl.MixedPrecisionLossScaleOptimizer(
    tf.compat.v1.train.AdamOptimizer(0.001),
    tfl.DynamicLossScale(2.0**15, increment_period=5),
  )


def long_training(mode, steps=20_000, resident=True):
  """Trains, with one step in ten not finite, and looks at what it holds.

  Args:
    mode: The mode to train in.
    steps: How many steps to train for.
    resident: Whether resident memory may not grow. Python objects never may.
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
  assert objects < 200
  assert growth < _GROWTH * (steps - _WARM_UP) or not resident


def count_objects():
  gc.collect()
  return len(gc.get_objects())


def graph_v1():
  long_training("graph_v1")


def graph_v2():
  long_training("graph_v2")


def function():
  long_training("function")


def eager():
  # TensorFlow 2.12 and 2.15 lose some 50 bytes with every eager tensor that
  # anything makes, the bare optimizer too.
  long_training("eager", 6_000, resident=helpers.RELEASE >= (2, 16))


@pytest.mark.parametrize("body", [graph_v1, graph_v2, function, eager])
def test_resident_memory_does_not_grow(body):
  helpers.run_alone(body)


if __name__ == "__main__":
  helpers.main()
