# SPDX-License-Identifier: Apache-2.0
"""Tests that random programs have TensorFlow's own state, bit for bit.

40 programs by default, always the same ones. For more, and other ones:

  DIFFERENTIAL_EXAMPLES=10000 make test
"""

import dataclasses
import math
import os

import helpers
from helpers import INNER
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf
import trainers

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1

_DEFAULT = 40
_EXAMPLES = int(os.environ.get("DIFFERENTIAL_EXAMPLES", _DEFAULT))

_POISONS = [math.inf, -math.inf, math.nan]
_GRADIENTS = st.one_of(
  st.floats(-8, 8, width=16),
  st.sampled_from([0.0, -0.0, 65504.0, 3e38, -3e38, *_POISONS]),
)
_SCALES = st.one_of(
  st.integers(0, 127).map(lambda k: 2.0**k),
  st.floats(1, 2.0**127, width=32),
)


@dataclasses.dataclass(frozen=True)
class Program:
  """A training program that runs on both implementations."""

  mode: str
  inner: str
  scale: float
  period: int | None  # None for a fixed scale.
  multiplier: float
  specs: tuple[trainers.Spec, ...]
  apply_only: bool
  use_resource: bool
  steps: list[list[float]]

  def optimizer(self, module):
    """Returns the wrapped optimizer of an implementation."""
    scale = self.scale
    if self.period is not None:
      scale = module.DynamicLossScale(scale, self.period, self.multiplier)
    return module.MixedPrecisionLossScaleOptimizer(INNER[self.inner](), scale)

  def run(self, module):
    """Returns the state after every step."""
    with trainers.Trainer(
      self.mode,
      lambda: self.optimizer(module),
      self.specs,
      self.apply_only,
      self.use_resource,
    ) as trainer:
      states = []
      for grads in self.steps:
        trainer.step(*grads)
        states.append(trainer.state())
      return states


@st.composite
def programs(draw, mode):
  apply_only = draw(st.booleans())
  specs = [draw(specs_of(apply_only, ["dense", "sparse", "float16"]))]
  others = specs_of(apply_only, ["dense", "sparse", "float16", "none"])
  specs += draw(st.lists(others, max_size=3))
  grads = st.tuples(*[_GRADIENTS] * len(specs)).map(list)
  return Program(
    mode=mode,
    inner=draw(st.sampled_from(sorted(INNER))),
    scale=draw(_SCALES),
    period=draw(st.none() | st.integers(1, 4) | st.integers(1, 50)),
    multiplier=draw(st.sampled_from([2.0]) | st.floats(1.1, 16)),
    specs=tuple(specs),
    apply_only=apply_only,
    # TensorFlow's runs with reference variables in graph_v1 alone.
    use_resource=mode != "graph_v1" or draw(st.booleans()),
    steps=draw(st.lists(grads, min_size=1, max_size=10)),
  )


@st.composite
def specs_of(draw, apply_only, kinds):
  """Draws a variable whose gradient TensorFlow's own can take."""
  kind = draw(st.sampled_from(kinds))
  shape = (3, 2)
  if kind == "dense":
    shape = draw(st.sampled_from([(), (2,), (3, 2), (0, 3)]))
  if not apply_only:  # TensorFlow unscales float32 alone.
    return trainers.Spec(shape, "float32", kind)
  dtype = draw(st.sampled_from(["float16", "float32", "float64"]))
  return trainers.Spec(shape, dtype, "dense" if kind == "float16" else kind)


# A program in a function costs as much as four in graphs.
_SHARES = {"graph_v1": 0.3, "graph_v2": 0.3, "eager": 0.25, "function": 0.15}


# Each mode has a test, so that pytest's workers share the modes.
@pytest.mark.parametrize("mode", helpers.MODES)
def test_state_is_tensorflows_own(mode):
  @hypothesis.settings(
    deadline=None,
    derandomize=_EXAMPLES == _DEFAULT,
    max_examples=math.ceil(_EXAMPLES * _SHARES[mode]),
    print_blob=True,
    suppress_health_check=list(hypothesis.HealthCheck),
  )
  @hypothesis.given(programs(mode))
  def run(program):
    check_as_tensorflows_own(program)

  run()


def check_as_tensorflows_own(program):
  """Checks that both implementations have the same state after each step."""
  if helpers.RELEASE < (2, 15):
    # These releases check sparse gradients in dense form, which adds rows that
    # are named twice. Later releases check the values, as this package does.
    hypothesis.assume(not overflows_when_dense(program))
  with np.errstate(over="ignore"):
    expected = program.run(helpers.OWN)
    # The reciprocal of a greater scale is 0 in TensorFlow's own.
    scales = [x.get("current_loss_scale", 0) for x in expected[:-1]]
    hypothesis.assume(
      program.apply_only or max(program.scale, *scales, 0) <= 2**126
    )
    states = program.run(tfl)
  for state, expected_state in zip(states, expected, strict=True):
    trainers.assert_same_state(state, expected_state)


def overflows_when_dense(program):
  """Returns whether a finite sparse row is not finite when doubled."""
  for grads in program.steps:
    for grad, spec in zip(grads, program.specs):
      with np.errstate(over="ignore"):
        row = np.asarray(grad, spec.dtype)
        if spec.kind == "sparse" and np.isfinite(row) != np.isfinite(row + row):
          return True
  return False


@pytest.mark.parametrize("mode", helpers.MODES)
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_beyond_tensorflows_own_a_scale_of_a_power_of_two_changes_nothing(
  mode, dtype
):
  """Checks that a scale of a power of two changes no result of training."""

  class Unscaled(tfl.FixedLossScale):
    def __call__(self):
      return tf.constant(1.0)

  specs = tuple(
    trainers.Spec(shape, dtype, kind)
    for shape, kind in [((2,), "dense"), ((3, 2), "sparse"), ((0, 3), "dense")]
  )
  states = []
  for scale in (tfl.FixedLossScale(2**10), Unscaled(1)):
    with trainers.Trainer(
      mode,
      lambda scale=scale: tfl.MixedPrecisionLossScaleOptimizer(
        INNER["momentum"](), scale
      ),
      specs,
    ) as trainer:
      for grads in ([1.5, -0.25, 0], [2.0**-10, 0.5, 0], [-3.0, 1.0, 0]):
        trainer.step(*grads)
      states.append(trainer.state())
  trainers.assert_same_state(*states)
