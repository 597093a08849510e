# SPDX-License-Identifier: Apache-2.0
"""Tests the verdicts on simulated runs."""

import itertools
import json
import math
import random

import growth_backoff_oracle as oracle
import helpers
import monitoring_logs as logs
import numpy as np
import pytest
import tensorflow as tf

from tf_compat_lossscale import monitoring
from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring import rows
from tf_compat_lossscale.monitoring import state_verdicts
from tf_compat_lossscale.monitoring import step_gradients
from tf_compat_lossscale.monitoring import steps
from tf_compat_lossscale.monitoring import stuck

pytestmark = pytest.mark.any_release

_QUICK = oracle.Rule(growth_interval=10)
_SHORT = oracle.Rule(growth_interval=200)
_TORCH = oracle.Rule(2.0**16, min_loss_scale=None)
_MEGATRON = oracle.Rule(2.0**32, growth_interval=1000, hysteresis=2)
_DEEPSPEED = oracle.Rule(
  2.0**16, growth_interval=1001, hysteresis=2, good_steps_after_growth=1
)
_KERAS_3 = oracle.Rule(min_loss_scale=None)


@pytest.fixture
def judge(tmp_path):
  """Returns a function that writes a log, reads it and judges it."""

  folders = map(str, itertools.count())

  def judge_records(records):
    folder = logs.write(tmp_path / next(folders), records)
    return monitoring.judge(monitoring.read_run(folder))

  return judge_records


def noisy(mean, spread, count, rule, seed=0):
  """Returns a run with limits of the scale that differ from step to step."""
  generator = random.Random(seed)
  limits = [2 ** generator.gauss(mean, spread) for _ in range(count)]
  return logs.make_records(logs.overflow_above(limits, rule), rule)


def capped(limit, count, rule):
  return logs.make_records(logs.overflow_above([limit] * count, rule), rule)


def flags(count, *skipped, rule=None, **kwargs):
  return logs.make_records(logs.make_flags(count, *skipped), rule, **kwargs)


def underflow(zeros, scaled, count=1000, *skipped, lost=0.0):
  return flags(
    count,
    *skipped,
    underflow=lambda step, scale: logs.make_underflow(zeros, scaled, lost),
  )


def set_scale(records, scale):
  records[-1]["loss_scale/value"] = scale
  return records


def with_minimum(records, minimum):
  records[0]["config"] = logs.CONFIG | {"minimum": minimum}
  return records


_EVERY_2000 = range(2000, 40001, 2000)
_CASES = {
  # Healthy.
  "default rule": ("healthy", logs.make_healthy),
  "no overflow in a short run": ("healthy", lambda: flags(1000)),
  "a skip in each 2000": ("healthy", lambda: flags(40000, *_EVERY_2000)),
  "a skip in each 100": ("healthy", lambda: flags(5000, *range(50, 5000, 100))),
  "limit 2^15": ("healthy", lambda: capped(2**15, 30000, None)),
  "limit 2^10": ("healthy", lambda: capped(2**10, 3000, None)),
  "limit 2^3, quick rule": ("healthy", lambda: capped(8, 4000, _SHORT)),
  "limit 1, rarely over": ("healthy", lambda: capped(1, 4000, _SHORT)),
  "a fall in the beginning": ("healthy", lambda: flags(200, range(1, 16))),
  "from 2^120": (
    "healthy",
    lambda: capped(2**10, 1000, oracle.Rule(2.0**120)),
  ),
  "falling from 2^120": (
    "too_short",
    lambda: capped(2**10, 60, oracle.Rule(2.0**120)),
  ),
  "recovered": (
    "healthy",
    lambda: logs.make_records(
      logs.overflow_above([2**15] * 300 + [0] * 100 + [2**15] * 8000, _SHORT),
      _SHORT,
    ),
  ),
  "torch": ("healthy", lambda: noisy(17, 0.3, 20000, _TORCH)),
  "megatron": ("healthy", lambda: noisy(17, 0.3, 20000, _MEGATRON)),
  "deepspeed": ("healthy", lambda: noisy(16, 0.3, 9000, _DEEPSPEED)),
  "keras3": ("healthy", lambda: noisy(16, 0.3, 20000, _KERAS_3)),
  "seven growths": ("healthy", lambda: flags(1550, rule=_SHORT)),
  "at its maximum": (
    "healthy",
    lambda: flags(
      8000,
      rule=oracle.Rule(growth_interval=200, max_loss_scale=2**24),
    ),
  ),
  "few zeros": ("healthy", lambda: underflow(0.3, 1.0)),
  "many zeros": ("healthy", lambda: underflow(0.9, 1.0)),
  "zeros and a log without what is lost": (
    "healthy",
    lambda: underflow(0.9, 1.0, lost=None),
  ),
  "zeros near the limit": ("healthy", lambda: underflow(0.9, 4e3, lost=0.9)),
  "zeros and overflows": (
    "healthy",
    lambda: underflow(0.9, 1.0, 1000, 700, lost=0.9),
  ),
  "2 of 350 at the minimum": (
    "healthy",
    lambda: flags(365, range(1, 18), 365),
  ),
  # Too short.
  "one step": ("too_short", lambda: flags(1)),
  "99 steps": ("too_short", lambda: flags(99, 3, 50)),
  # Wrong.
  "stuck": ("stuck", logs.make_stuck),
  "stuck, no blame": ("stuck", lambda: flags(1000, range(500, 1001))),
  "stuck soon": ("stuck", lambda: flags(30, range(1, 31))),
  "stuck, some steps pass": (
    "stuck",
    lambda: flags(1000, range(300, 320), *range(320, 1001, 9)),
  ),
  "stuck at 64": (
    "stuck",
    lambda: with_minimum(
      flags(
        1000,
        range(300, 1001),
        rule=oracle.Rule(min_loss_scale=64.0),
      ),
      64.0,
    ),
  ),
  "nan": ("nan_gradients", logs.make_nan),
  "nan above 1": (
    "stuck",
    lambda: with_minimum(
      flags(
        600,
        range(300, 601),
        rule=oracle.Rule(min_loss_scale=64.0),
        blame=logs.blame_of("a", nan=3),
      ),
      64.0,
    ),
  ),
  "a scale that does not fall": (
    "all_skipped",
    lambda: flags(500, range(450, 501), rule=oracle.Rule(hysteresis=1000)),
  ),
  "a scale that falls for ever": (
    "all_skipped",
    lambda: flags(
      500,
      range(440, 501),
      rule=oracle.Rule(backoff_factor=0.9, min_loss_scale=None),
    ),
  ),
  "noisy": ("skips_often", logs.make_noisy),
  "6 % at the end": (
    "skips_often",
    lambda: flags(5000, *range(4001, 5001, 16), rule=_QUICK),
  ),
  "4 % at the end": (
    "healthy",
    lambda: flags(5000, *range(4001, 5001, 25), rule=_QUICK),
  ),
  "6 % long ago": (
    "healthy",
    lambda: flags(
      5000, *range(1001, 2001, 16), *range(2100, 5000, 100), rule=_QUICK
    ),
  ),
  "underflow": ("underflow", logs.make_underflowing),
  "only zeros": ("underflow", lambda: underflow(1.0, 0.0, lost=1.0)),
  "tiny numbers, and a log without what is lost": (
    "underflow",
    lambda: underflow(0.6, 2.0**-15, lost=None),
  ),
  "climbing": ("grows_slowly", logs.make_climbing),
  "climbing after a fall": (
    "grows_slowly",
    lambda: flags(3000, range(100, 116), rule=_SHORT),
  ),
  "a scale of nan": (
    "invalid_scale",
    lambda: set_scale(flags(500), "nan"),
  ),
  "a scale of inf": ("invalid_scale", lambda: set_scale(flags(5), "inf")),
  "a scale of 0": ("invalid_scale", lambda: set_scale(flags(500), 0.0)),
  "a scale below 0": ("invalid_scale", lambda: set_scale(flags(500), -2.0)),
}


@pytest.mark.parametrize("name", _CASES)
def test_kinds(judge, name):
  kind, make = _CASES[name]
  verdict = judge(make())
  assert verdict.kind == kind, verdict
  assert verdict.is_healthy == (kind in ("healthy", "too_short"))
  assert bool(verdict.advice) != verdict.is_healthy
  for sentence in (verdict.sentence, *verdict.evidence, *verdict.advice):
    assert sentence.endswith((".", "since step 797")), sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("seed", range(20))
def test_runs_of_the_default_rule_are_healthy(judge, seed):
  generator = random.Random(seed)
  mean, spread = generator.uniform(10, 21), generator.uniform(0, 0.5)
  count = generator.randint(100, 40000)
  verdict = judge(noisy(mean, spread, count, None, seed))
  assert verdict.kind == "healthy", (mean, spread, count, verdict)


def test_what_is_said_of_a_stuck_run(judge):
  verdict = judge(logs.make_stuck())
  assert verdict.sentence == "The loss scale is stuck at 1 since step 811."
  skipped, fall, fault, said = verdict.evidence
  assert skipped == "Of the 590 steps since then, 590 were skipped (100%)."
  assert fall == "The scale fell 16384 -> 1 between steps 797 and 810."
  assert "softmax_tensor/dense/kernel (in 590 of 590 steps, up to" in fault
  assert "2048000 inf of 2048000 elements)" in fault
  assert said == "The run said: 200 steps were skipped since step 797"
  assert "before step 797" in verdict.advice[-1]


def test_the_first_step_that_the_minimum_loses(judge):
  verdict = judge(flags(1000, range(797, 1001)))
  assert verdict.sentence.endswith("stuck at 1 since step 812.")
  assert verdict.evidence[1].endswith("32768 -> 1 between steps 797 and 811.")


def test_numbers_of_the_advice(judge):
  verdict = judge(logs.make_underflowing())
  assert "could be 2^19 times as high" in verdict.sentence
  assert "initial_loss_scale=2^35" in verdict.advice[0]


def test_what_a_log_of_an_older_release_cannot_tell(judge):
  (*_, said) = judge(underflow(0.9, 1.0, lost=None)).evidence
  assert said.startswith("90% of the gradients' elements are 0. This log, of")
  assert "older" not in " ".join(judge(underflow(0.9, 1.0)).evidence)
  assert "older" not in " ".join(judge(underflow(0.2, 1, lost=None)).evidence)


@pytest.mark.parametrize("seed", range(100))
def test_hooks_and_the_doctor_agree_on_stuck_runs(judge, seed):
  generator = random.Random(seed)
  patience = generator.choice([12, 40, 200])
  rule = oracle.Rule(
    generator.choice([1.0, 8.0, 2.0**15]),
    growth_interval=generator.choice([20, 200, 2000]),
  )
  # Stretches with rates of steps that are lost.
  rates = generator.choices([0, 0.002, 0.02, 0.04, 0.1, 0.5, 1], k=6)
  finite = [
    generator.random() >= rate
    for rate in rates
    for _ in range(generator.randint(20, 600))
  ]
  records = logs.make_records(finite, rule)
  watched = stuck.Rule(patience, 1.0)
  watched.start(0, rule.initial_loss_scale)
  state = rule.start()
  for step, flag in enumerate(finite, 1):
    state = rule.step(state, flag)
    message = watched.count(rows.Row(step, flag, state.current_loss_scale))
    if message is not None:
      told = [dict(r) for r in records if r["step"] <= step]
      in_a_row = not any(finite[step - patience : step])
      if in_a_row:  # Only the run knows its patience.
        told[-1]["stuck"] = message
      verdict = judge(told)
      assert verdict.kind == "stuck" or (
        in_a_row and verdict.kind == "all_skipped"
      ), (step, verdict)
  # The other direction: an end that the doctor calls stuck goes on.
  if judge(records).kind == "stuck":
    told = False
    for step in range(len(finite) + 1, len(finite) + 1 + 2 * patience):
      told |= watched.count(rows.Row(step, False, 1.0)) is not None
    assert told or watched._due > patience


@pytest.mark.parametrize("count", [9, 10, 11])
@pytest.mark.parametrize("hysteresis", [1, 1000])
def test_an_end_is_stuck_if_ten_skipped_steps_leave_the_scale(
  judge, count, hysteresis
):
  rule = oracle.Rule(hysteresis=hysteresis)
  records = flags(500, range(501 - count, 501), rule=rule)
  is_stuck = count >= 10 and hysteresis == 1000
  assert (judge(records).kind == "all_skipped") == is_stuck
  # Pictures shade the same steps.
  end = stuck.find_end([rows.decode(record) for record in records])
  assert len(end) == (count if is_stuck else 0)


def test_a_run_that_said_it_is_stuck_is_not_healthy(judge):
  records = flags(300, range(298, 301))
  assert judge(records).is_healthy
  records[-1]["stuck"] = "The loss scale is stuck: the last 3 steps"
  assert judge(records).kind == "all_skipped"


def measure_run(judge, make, scale, wide=False):
  """Returns the verdict on a run with gradients as a hook measures them.

  Args:
    judge: The fixture.
    make: Returns the gradients of a step, unscaled, by name.
    scale: The loss scale.
    wide: Whether the gradients are computed in float32.
  """
  dtype = np.float32 if wide else np.float16
  records = logs.make_records([True] * 1000, oracle.Rule(scale))
  for record in records:
    if record["step"] % 100:
      continue
    grads = {
      name: (grad * scale).astype(dtype).astype(np.float32) / np.float32(scale)
      for name, grad in make().items()
    }
    numbers = step_gradients.measure(
      [tf.constant(x) for x in grads.values()]
    ).numpy()
    labels = [("given", name) for name in grads]
    measured = step_gradients.decode(labels, numbers)
    step = steps.Step(True, steps.State(scale), **measured)
    row = rows.Row(
      1, True, scale, underflow=steps.summarize_underflow(step, scale)
    )
    record["underflow"] = json.loads(json.dumps(rows.encode(row)["underflow"]))
  return judge(records)


def make_gradients(seed, size):
  """Returns a function that returns gradients of a network with many zeros.

  Args:
    seed: The seed.
    size: The magnitude of the gradients' elements, before scaling.
  """
  generator = np.random.default_rng(seed)
  share = generator.uniform(0.55, 0.9)
  shapes = {"embedding": (500, 16), "dense": (64, 128), "bias": (128,)}
  spread = generator.uniform(0.5, 2.0)
  sizes = {name: generator.lognormal(0, 1) for name in shapes}

  def make():
    found = {}
    for name, shape in shapes.items():
      grad = generator.normal(0, 1, shape)
      grad *= generator.lognormal(0, spread, shape) * size * sizes[name]
      # Rows of absent words, and columns of units that are off.
      is_off = generator.random(shape[0] if name == "embedding" else shape[-1])
      is_off = is_off < (share if name != "bias" else share / 2)
      grad[is_off if name == "embedding" else (..., is_off)] = 0
      found[name] = grad.astype(np.float32)
    return found

  return make


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_structural_zeros_are_no_underflow(judge, seed, wide):
  generator = random.Random(seed)
  size, scale = 10 ** generator.uniform(-6, -3), 2.0 ** generator.randint(6, 15)
  verdict = measure_run(judge, make_gradients(seed, size), scale, wide)
  assert verdict.kind == "healthy", (size, scale, verdict)


@pytest.mark.parametrize("seed", range(15))
def test_true_underflow_is_found(judge, seed):
  generator = random.Random(seed)
  scale = 2.0 ** generator.randint(0, 8)
  size = 2.0 ** generator.uniform(-30, -25.5) / scale
  verdict = measure_run(judge, make_gradients(seed, size), scale)
  assert verdict.kind == "underflow", (size, scale, verdict)
  # In float32, the same numbers are not lost.
  wide = measure_run(judge, make_gradients(seed, size), scale, wide=True)
  assert wide.kind == "healthy", (size, scale, wide)


def test_unscaling_that_loses_gradients(judge):
  records = flags(1000)
  for record in records:
    record["underflow"] = {
      **logs.make_underflow(0.1, 100.0),
      "unscaling": 0.8,
    }
  verdict = judge(records)
  assert verdict.kind == "underflow"
  assert "Unscaling turns 80% of the gradients' elements to 0" in (
    verdict.sentence
  )
  assert "float32" in verdict.advice[0]


def test_an_interval_that_fits(judge):
  verdict = judge(logs.make_climbing())
  assert "from 32768 to 2^25" in verdict.sentence
  assert "initial_loss_scale=2^25" in verdict.advice[0]
  assert "increment_period=200 would" in verdict.advice[1]
  rule = oracle.Rule(growth_interval=200)
  assert rule.run([True] * 2000)[-1].current_loss_scale == 2.0**25


def test_a_log_without_rows():
  verdict = monitoring.judge(monitoring.RunLog("x", ()))
  assert (verdict.kind, verdict.is_healthy) == ("too_short", True)


@pytest.mark.parametrize(
  "arguments,kind",
  [
    ((None,), "too_short"),
    ((32768.0, 3), "healthy"),
    ((32768.0, 0, 0, 0), "healthy"),
    ((1.0, 5), "healthy"),
    ((1.0, None), "healthy"),
    ((1.0, 0), "stuck"),
    ((0.5, 0), "stuck"),
    ((math.nan,), "invalid_scale"),
    ((math.inf, 5), "invalid_scale"),
    ((0.0,), "invalid_scale"),
    ((-1.0,), "invalid_scale"),
    ((8.0, 3, 9, 10), "healthy"),
    ((8.0, 3, 10, 100), "skips_often"),
    ((8.0, 3, 10, 1000), "healthy"),
    ((8.0, 3, 100, None), "healthy"),
  ],
)
def test_states(arguments, kind):
  verdict = state_verdicts.judge_state(*arguments)
  assert verdict.kind == kind
  assert bool(verdict.advice) != verdict.is_healthy


def test_nan_is_no_change_of_nan():
  scales = [2.0, math.nan, math.nan, 2.0, 2.0, 4.0]
  found = facts.list_changes(
    [rows.Row(step, True, scale) for step, scale in enumerate(scales)]
  )
  assert [step for step, _ in found] == [1, 3, 5]


@pytest.mark.parametrize(
  "scale,text",
  [
    (1.0, "1"),
    (32768.0, "32768"),
    (2.0**24, "2^24"),
    (2.0**-3, "2^-3"),
    (3.0 * 2**30, "3.22123e+09"),
    (0.3, "0.3"),
    (math.inf, "inf"),
    (math.nan, "nan"),
  ],
)
def test_scales_in_words(scale, text):
  assert facts.show_scale(scale) == text


if __name__ == "__main__":
  helpers.main()
