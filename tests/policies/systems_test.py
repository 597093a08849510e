# SPDX-License-Identifier: Apache-2.0
"""Tests that policies have the rules of other systems.

Two oracles say what a rule does: recordings of the systems' own code in
tests/goldens/scalers/, and the short transcriptions in scaler_rules.py.
"""

import functools

import helpers
import numpy as np
import pytest
import scaler_cases
import scaler_rules
import tensorflow as tf

from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

_RECORDED = ("deepspeed", "flax", "jmp", "keras3", "megatron", "torch")
_UNRECORDED = ("apex", "contrib", "fairseq")
_COUNT = 10_000
_LARGEST = np.finfo(np.float32).max


@functools.cache
def read(system):
  return scaler_cases.read(scaler_cases.FOLDER / f"{system}.npz")


def simulate(system, case):
  """Returns the scales of a policy's rule until it fails, if it does."""
  rule = policies.find_rule(system, **case.changes)
  try:
    scales = rule.simulate(case.finite)
  except policies.MinimumReachedError as error:
    scales = error.scales
  return np.array(scales, np.float32)


def transcribe(system, case):
  return scaler_rules.run(system, case.finite, **case.changes)


def is_usable(scales):
  """Returns for each scale whether float32 has it and has a larger one."""
  return (scales >= 2.0**-126) & (scales < _LARGEST)


def assert_same(case, ours, theirs, ulps=0):
  """Asserts that two oracles agree, or a policy and an oracle.

  Once a system's scale is 0, infinite, float32's largest number or no normal
  number, its further scales do not count.
  """
  if ours.tobytes() == theirs.tobytes():
    return
  inside = is_usable(theirs)
  usable = len(inside) if inside.all() else int(np.argmin(inside))
  assert len(ours) == len(theirs) or usable < len(theirs), case
  error = ours[:usable].view(np.int32) - theirs[:usable].view(np.int32)
  assert np.abs(error).max(initial=0) <= ulps, case


@pytest.mark.thorough
@pytest.mark.any_release
@pytest.mark.parametrize("system", _RECORDED)
def test_simulations_are_as_recorded(system):
  recordings = read(system)
  assert len(recordings) == _COUNT
  for case, scales in recordings:
    ours = simulate(system, case)
    assert_same(case, ours, scales)
    assert is_usable(ours).all(), case


@pytest.mark.any_release
@pytest.mark.parametrize("system", _RECORDED)
def test_transcriptions_are_as_recorded(system):
  for case, scales in read(system):
    assert_same(case, transcribe(system, case), scales)


@pytest.mark.any_release
@pytest.mark.parametrize("system", _RECORDED)
def test_recordings_have_what_matters(system):
  recordings = read(system)
  every = np.concatenate([r.scales for r in recordings])
  assert np.count_nonzero(every[1:] != every[:-1]) > 40_000
  # jmp alone keeps its scale within float32; DeepSpeed alone fails.
  assert is_usable(every).all() == (system == "jmp")
  lost = [len(r.scales) < len(r.case.overflows) for r in recordings]
  assert any(lost) == (system == "deepspeed")
  for name in scaler_cases.ARGUMENTS[system]:
    assert len({r.case.changes[name] for r in recordings}) > 1


@pytest.mark.thorough
@pytest.mark.any_release
@pytest.mark.parametrize("system", _UNRECORDED)
def test_simulations_are_as_transcribed(system):
  for case in scaler_cases.make_cases(system, _COUNT, seed=77):
    # fairseq computes in float64. So do Apex, whose factor is 2, and DeepSpeed.
    is_exact = case.changes.get("growth_factor") in (None, 2.0, 4.0)
    ulps = 16 if system == "fairseq" and not is_exact else 0
    ours = simulate(system, case)
    assert_same(case, ours, transcribe(system, case), ulps)
    assert is_usable(ours).all(), case


def test_contrib_is_as_the_manager():
  for case in scaler_cases.make_cases("contrib", 12, seed=5):
    changes = case.changes
    manager = contrib.ExponentialUpdateLossScaleManager(
      changes["initial_loss_scale"],
      changes["growth_interval"],
      changes["hysteresis"],
      changes["growth_factor"],
      changes["backoff_factor"],
    )
    scales = []
    for finite in case.finite:
      manager.update_loss_scale(tf.constant(finite))
      scales.append(float(manager.get_loss_scale()))
    assert simulate("contrib", case).tolist() == scales


@helpers.NEEDS_KERAS_3
@pytest.mark.parametrize("interval", [1, 2, 5])
def test_keras3_is_as_keras_itself(interval):
  import keras as k3

  weight = tf.Variable(1.0)
  opt = k3.optimizers.LossScaleOptimizer(
    k3.optimizers.SGD(0.0), 1024.0, dynamic_growth_steps=interval
  )
  opt.build([weight])
  apply = tf.function(lambda gradient: opt.apply([gradient], [weight]))
  finite = np.random.default_rng(interval).random(150) < 0.8
  scales = []
  for flag in finite:
    apply(tf.constant(1.0 if flag else float("nan")))
    scales.append(float(opt.dynamic_scale))
  rule = policies.find_rule(
    "keras3", initial_loss_scale=1024.0, growth_interval=interval
  )
  assert rule.simulate(finite) == scales


if __name__ == "__main__":
  helpers.main()
