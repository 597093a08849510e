"""Long training does not grow."""

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


def long_training(mode, steps=20_000):
  specs = (helpers.Spec((64, 64)), helpers.Spec((64,)))
  with helpers.Trainer(mode, optimizer, specs) as trainer:
    for i in range(steps):
      trainer.step(float("inf") if i % 10 == 9 else 1e-3, 0.5)
      if i + 1 == _WARM_UP:
        before = helpers.resident_memory()
    growth = helpers.resident_memory() - before
    assert trainer.value(trainer.global_step) == steps * 9 // 10
  print(f"{mode}: {growth / 2**20:+.2f} MB over {steps - _WARM_UP} steps")
  assert growth < _GROWTH * (steps - _WARM_UP)


def graph_v1():
  long_training("graph_v1")


def graph_v2():
  long_training("graph_v2")


def function():
  long_training("function")


def eager():
  long_training("eager", 6_000)  # Slower, a step at a time.


@pytest.mark.parametrize("body", [graph_v1, graph_v2, function, eager])
def test_resident_memory_does_not_grow(body):
  helpers.run_alone(body)


if __name__ == "__main__":
  helpers.main()
