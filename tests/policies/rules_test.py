# SPDX-License-Identifier: Apache-2.0
"""Tests the rules of scaling policies in plain Python."""

import fractions
import math
import pickle
import sys

import helpers
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from tf_compat_lossscale import policies

_INF = float("inf")
_scales = st.floats(2.0**-126, float(np.finfo(np.float32).max), width=32)
_events = st.sets(st.sampled_from(["growth", "backoff", "finite"]))


def simulate(steps, **arguments):
  """Simulates steps: 1 is a finite step, 0 a step that is not finite."""
  rule = policies.GrowthBackoffRule(**arguments)
  return rule.simulate([step == "1" for step in steps])


def test_the_default_rule():
  rule = policies.GrowthBackoffRule()
  scales = rule.simulate([True] * 2000 + [False] * 17 + [True] * 2000)
  assert scales[1998:2001] == [2.0**15, 2.0**16, 2.0**15]
  assert scales[2015:2018] == [1, 1, 1]
  assert scales[-2:] == [1, 2]


@pytest.mark.parametrize(
  ("refill", "scales"),
  [
    # The steps are 0 0 1 0 0 0 1 1 0 0, with a growth interval of 2.
    (["growth"], [8, 4, 4, 2, 1, 0.5, 0.5, 1, 1, 0.5]),
    (["backoff"], [8, 4, 4, 4, 2, 2, 2, 4, 2, 2]),
    (["finite"], [8, 4, 4, 4, 2, 1, 1, 2, 2, 1]),
    (["growth", "backoff"], [8, 4, 4, 4, 2, 2, 2, 4, 4, 2]),
    ([], [8, 4, 4, 2, 1, 0.5, 0.5, 1, 0.5, 0.25]),
  ],
)
def test_hysteresis_and_its_refill(refill, scales):
  assert scales == simulate(
    "0010001100",
    initial_loss_scale=8,
    growth_interval=2,
    hysteresis=2,
    min_loss_scale=None,
    refill=refill,
  )


@pytest.mark.parametrize(
  ("tolerance", "reset", "scales"),
  [
    # The steps are 1 0 1 1 0 0 1 1 1 0, with a growth interval of 3.
    (0.0, ["growth", "backoff"], [8, 4, 4, 4, 2, 1, 1, 1, 2, 1]),
    # One of 2 is a share of 0.5; then 1 of 3 is less, and 2 of 4 is not.
    (0.5, ["growth", "backoff"], [8, 4, 4, 4, 4, 2, 2, 2, 4, 2]),
    (0.6, ["growth", "backoff"], [8, 8, 8, 8, 8, 8, 8, 8, 16, 8]),
    # The 3 steps before the growth count: 4 of 1.
    (0.6, ["backoff"], [8, 8, 8, 8, 8, 8, 8, 8, 16, 8]),
  ],
)
def test_tolerance(tolerance, reset, scales):
  assert scales == simulate(
    "1011001110",
    initial_loss_scale=8,
    growth_interval=3,
    min_loss_scale=None,
    overflow_tolerance=tolerance,
    overflow_reset=reset,
  )


def test_what_resets_the_overflows_of_the_tolerance():
  arguments = {
    "initial_loss_scale": 8,
    "growth_interval": 3,
    "overflow_tolerance": 0.5,
  }
  # The scale grows at the 6th step. At the last step, the share is 1 of 3; or 2
  # of 3, if the overflow before the growth counts.
  assert simulate("110111110", **arguments)[5:] == [16, 16, 16, 16]
  arguments["overflow_reset"] = "backoff"
  assert simulate("110111110", **arguments)[5:] == [16, 16, 16, 8]


def test_at_the_minimum():
  arguments = {"initial_loss_scale": 4, "min_loss_scale": 3}
  assert simulate("0001", **arguments) == [3, 3, 3, 3]
  with pytest.raises(
    policies.MinimumReachedError, match="minimum, 3"
  ) as caught:
    simulate("1001", **arguments, at_minimum="raise")
  assert caught.value.scales == [4, 3]
  assert isinstance(caught.value, FloatingPointError)
  copy = pickle.loads(pickle.dumps(caught.value))  # As process pools do.
  assert (str(copy), copy.scales) == (str(caught.value), [4, 3])


def test_no_bounds():
  scales = simulate(
    "1" * 3 + "0" * 300,
    growth_interval=1,
    initial_loss_scale=2.0**126,
    min_loss_scale=None,
  )
  assert scales[:3] == [2.0**127] * 3
  assert scales[-1] == 2.0**-126
  scales = simulate("0" * 300, backoff_factor=0.3, min_loss_scale=None)
  assert 2.0**-126 <= scales[-1] <= 2.0**-126 / 0.3


@settings(max_examples=400, deadline=None)
@given(
  bounds=st.lists(_scales, min_size=3, max_size=3).map(sorted),
  has_bounds=st.tuples(st.booleans(), st.booleans()),
  growth=st.floats(1.0000002, float(np.finfo(np.float32).max)),
  backoff=st.floats(2.0**-126, 0.9999998),
  interval=st.integers(1, 5),
  hysteresis=st.integers(1, 4),
  refill=_events,
  tolerance=st.floats(0, 1),
  reset=_events.map(lambda events: events - {"finite"}),
  steps=st.lists(st.booleans(), max_size=60),
)
def test_bounds_hold(
  bounds,
  has_bounds,
  growth,
  backoff,
  interval,
  hysteresis,
  refill,
  tolerance,
  reset,
  steps,
):
  lowest, initial, highest = bounds
  rule = policies.GrowthBackoffRule(
    initial_loss_scale=initial,
    growth_factor=growth,
    backoff_factor=backoff,
    growth_interval=interval,
    min_loss_scale=lowest if has_bounds[0] else None,
    max_loss_scale=highest if has_bounds[1] else None,
    hysteresis=hysteresis,
    refill=refill,
    overflow_tolerance=tolerance,
    overflow_reset=reset,
  )
  previous = rule.start().current_loss_scale
  for scale, finite in zip(rule.simulate(steps), steps):
    assert np.float32(scale) == scale and math.isfinite(scale)
    assert scale >= (lowest if has_bounds[0] else 2.0**-126)
    assert scale <= (highest if has_bounds[1] else np.finfo(np.float32).max)
    assert (scale >= previous) if finite else (scale <= previous)
    previous = scale
  assert policies.GrowthBackoffRule(**rule.get_config()) == rule


@settings(max_examples=200, deadline=None)
@given(
  bounds=st.lists(_scales, min_size=3, max_size=3).map(sorted),
  probability=st.floats(1e-6, 0.999),
  limit=_scales,
  decays=st.tuples(st.floats(0.001, 0.999), st.floats(0.001, 0.999)),
  warmup=st.integers(1, 4),
  backoff=st.floats(0.001, 0.999),
  interval=st.integers(1, 5),
  steps=st.lists(st.one_of(st.booleans(), st.floats()), max_size=40),
)
def test_bounds_of_log_normal_hold(
  bounds, probability, limit, decays, warmup, backoff, interval, steps
):
  lowest, initial, highest = bounds
  rule = policies.LogNormalRule(
    initial_loss_scale=initial,
    overflow_probability=probability,
    limit=limit,
    mean_decay=decays[0],
    variance_decay=decays[1],
    warmup_steps=warmup,
    backoff_factor=backoff,
    recovery_interval=interval,
    min_loss_scale=lowest,
    max_loss_scale=highest,
  )
  for scale in rule.simulate(steps):
    assert np.float32(scale) == scale
    assert lowest <= scale <= highest
  assert policies.LogNormalRule(**rule.get_config()) == rule


def test_log_normal_keeps_the_chance_of_an_overflow():
  rng = np.random.RandomState(0)
  largest = np.exp2(rng.normal(-3, 1.5, 20000))
  for probability in (0.1, 0.01):
    rule = policies.LogNormalRule(
      overflow_probability=probability, recovery_interval=1
    )
    state, overflows = rule.start(), 0
    for value in largest:
      finite = value * state.current_loss_scale <= 65504
      overflows += not finite
      state = rule.step(state, value if finite else _INF)
    # Powers of 2 lose up to half of the scale, so the chance is below that.
    assert probability / 6 < overflows / len(largest) < probability
    # Overflows are missing in the averages, which cuts off the highest values.
    assert abs(state.log2_mean - -3) < 0.7
    assert abs(math.sqrt(state.log2_variance) - 1.5) < 0.4


def test_an_overflow_does_not_spoil_the_averages():
  rule = policies.LogNormalRule(warmup_steps=1, recovery_interval=3)
  state = rule.start()
  for _ in range(50):
    state = rule.step(state, 2.0**-10)
  assert state.current_loss_scale == 2.0**24  # The maximum; 2**25 would do.
  after = rule.step(state, math.nan)
  assert after.log2_mean == state.log2_mean == -10
  assert after.current_loss_scale == after.ceiling == 2.0**23
  scales = rule.simulate([2.0**-10] * 5 + [False] + [2.0**-10] * 4)
  assert scales[4:] == [2.0**24] + [2.0**23] * 3 + [2.0**24] * 2


def test_a_higher_maximum_holds_at_once():
  low = policies.LogNormalRule(8.0, warmup_steps=1, max_loss_scale=16.0)
  state = low.start()
  for _ in range(3):
    state = low.step(state, 1.0)
  assert state.current_loss_scale == 16
  high = policies.LogNormalRule(8.0, warmup_steps=1)
  assert high.step(state, 1.0).current_loss_scale == 2.0**15


def test_steps_without_gradients_leave_the_averages():
  rule = policies.LogNormalRule(warmup_steps=2)
  for nothing in (0.0, True, np.True_):
    state = rule.start()
    for value in (1.0, nothing, nothing):
      value = None if value is True or value is np.True_ else value
      state = rule.step(state, value)
    assert (state.observations, state.log2_mean) == (1, 0)
    assert state.good_steps == 3
    assert rule.simulate([1.0, nothing]) == [2.0**15] * 2


@pytest.mark.parametrize(
  ("arguments", "what"),
  [
    ({"initial_loss_scale": 0}, r"initial_loss_scale must be above 0.* 0\."),
    ({"initial_loss_scale": 1e-40}, r"initial_loss_scale .*2\*\*-126.*1e-40"),
    ({"initial_loss_scale": math.nan}, "initial_loss_scale .*nan"),
    ({"initial_loss_scale": "8"}, "initial_loss_scale .*'8'"),
    ({"initial_loss_scale": 0.5}, "at least min_loss_scale=1, but got 0.5"),
    ({"max_loss_scale": 8}, "at most max_loss_scale=8, but got 32768"),
    (
      {"min_loss_scale": 9, "max_loss_scale": 8},
      "max_loss_scale, but got 9.0 and 8.0",
    ),
    (
      {"min_loss_scale": 2**24 + 1, "max_loss_scale": 2**24 + 1},
      "float32 must have a number .* 16777217.0 and 16777217.0",
    ),
    ({"min_loss_scale": 0}, "min_loss_scale .* 0"),
    ({"max_loss_scale": _INF}, "max_loss_scale .* inf"),
    ({"growth_factor": 1}, "growth_factor must be above 1 .* 1"),
    ({"backoff_factor": 1}, "backoff_factor must be between 0 and 1.* 1"),
    ({"growth_interval": 0}, "growth_interval .* at least 1.* 0"),
    ({"growth_interval": 2.5}, r"growth_interval .* 2\.5"),
    ({"hysteresis": 0}, "hysteresis .* 0"),
    ({"hysteresis": True}, "hysteresis .* True"),
    ({"refill": "grow"}, "refill must hold some of 'growth'.* got 'grow'"),
    ({"refill": None}, "refill .* None"),
    ({"refill": [["growth"]]}, "refill .* "),
    ({"overflow_tolerance": 1.5}, r"overflow_tolerance .* from 0 to 1.* 1\.5"),
    ({"overflow_tolerance": -1}, "overflow_tolerance .* -1"),
    ({"overflow_reset": "finite"}, "overflow_reset .* 'finite'"),
    ({"at_minimum": "fail"}, "at_minimum must be 'stay' or 'raise'.*'fail'"),
    ({"at_minimum": np.array(["stay", "x"])}, "at_minimum must be .*'x'"),
    ({"good_steps_after_growth": -1}, "good_steps_after_growth .* -1"),
    (
      {"good_steps_after_growth": 5, "growth_interval": 5},
      "good_steps_after_growth must be below growth_interval=5, but got 5",
    ),
  ],
)
def test_mistakes(arguments, what):
  with pytest.raises(ValueError, match=what):
    policies.GrowthBackoffRule(**arguments)
  with pytest.raises(ValueError, match=what):
    policies.GrowthBackoff(**arguments)


@pytest.mark.parametrize(
  ("arguments", "what"),
  [
    ({"overflow_probability": 0}, "overflow_probability .* 0"),
    ({"overflow_probability": 1}, "overflow_probability .* 1"),
    ({"mean_decay": 1}, "mean_decay .* 1"),
    ({"variance_decay": math.nan}, "variance_decay .* nan"),
    ({"limit": _INF}, "limit .* inf"),
    ({"warmup_steps": 0}, "warmup_steps .* 0"),
    ({"recovery_interval": -1}, "recovery_interval .* -1"),
    ({"min_loss_scale": None}, "min_loss_scale .* None"),
    ({"max_loss_scale": 1}, "at most max_loss_scale=1"),
    ({"backoff_factor": "half"}, "backoff_factor .* 'half'"),
  ],
)
def test_mistakes_of_log_normal(arguments, what):
  with pytest.raises(ValueError, match=what):
    policies.LogNormalRule(**arguments)


def test_steps_must_be_bools():
  rule = policies.GrowthBackoffRule(growth_interval=1, initial_loss_scale=4)
  assert rule.simulate([True, 1, np.True_, 0, np.int64(0)])[-1] == 8
  assert rule.simulate(np.array([True, False])) == [8, 4]
  assert rule.simulate(iter([])) == []
  for wrong in (math.nan, 0.5, 2, "0", None, [True]):
    with pytest.raises(ValueError, match="True or False"):
      rule.simulate([True, wrong])


def test_steps_of_log_normal_must_be_numbers_or_bools():
  rule = policies.LogNormalRule()
  for wrong in ("3", None, [1.0], np.array([True])):
    with pytest.raises(ValueError, match="largest gradient, or True or False"):
      rule.simulate([1.0, wrong])


def test_a_very_small_probability():
  rule = policies.LogNormalRule(overflow_probability=1e-17)
  assert 8.4 < rule.quantile < 8.6
  assert rule.simulate([1.0] * 30)[-1] == 2.0**15


def test_a_factor_next_to_1_takes_no_long_search():
  rule = policies.find_rule("fairseq", growth_factor=1.0000005)
  assert 1e-4 < rule.min_loss_scale < 1.001e-4


@pytest.mark.parametrize(
  "number", [1.7, np.float64(1.7), np.array(1.7), fractions.Fraction(17, 10)]
)
def test_factors_are_rounded_whatever_their_type(number):
  rule = policies.find_rule("flax", growth_factor=number)
  assert rule.growth_factor == float(np.float32(1.7))


def test_no_tensorflow_is_needed():
  code = """
import sys
sys.modules["tensorflow"] = None
from tf_compat_lossscale import policies
for name in policies.list_names():
  policies.find_rule(name).simulate([True, False])
policies.LogNormalRule().simulate([1.0, False])
print(policies.find_rule("torch", growth_interval=1).simulate([True]))
"""
  assert helpers.run_python("-c", code) == "[131072.0]\n"
  assert sys.modules["tensorflow"]


if __name__ == "__main__":
  helpers.main()
