# SPDX-License-Identifier: Apache-2.0
"""Tests that states are exchanged with the loss scales of other systems."""

import logging
import math
import random
import re
import sys
import types

import helpers
from helpers import GRAPH_MODES
from helpers import MODES
import numpy as np
import policy_runs
from policy_runs import INF
from policy_runs import Training
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import policies
from tf_compat_lossscale.policies import state_entries
from tf_compat_lossscale.policies import state_formats
from tf_compat_lossscale.policies.growth_backoff_rule import State

tf1 = tf.compat.v1
_TORCH = {
  "scale": 8.0,
  "growth_factor": 2.0,
  "backoff_factor": 0.5,
  "growth_interval": 3,
  "_growth_tracker": 2,
}
_MEGATRON = {"scale": 8.0, "growth_tracker": 2, "hysteresis_tracker": 1}
_DEEPSPEED = {
  "dynamic_loss_scale": True,
  "cur_scale": 8.0,
  "cur_iter": 104,
  "last_overflow_iter": 100,
  "scale_factor": 2.0,
  "scale_window": 3,
}
_KERAS3 = {"2": np.int64(2), "3": np.float32(8)}
_STATES = {
  "deepspeed": _DEEPSPEED,
  "keras3": _KERAS3,
  "megatron": _MEGATRON,
  "torch": _TORCH,
}


@pytest.fixture
def warnings(caplog, monkeypatch):
  """Returns the warnings that absl has logged."""
  monkeypatch.setattr(logging.getLogger("absl"), "propagate", True)
  with caplog.at_level(logging.WARNING, logger="absl"):
    yield lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def fake_torch(monkeypatch):
  """Stands in for PyTorch with what makes a tensor."""
  torch = types.ModuleType("torch")
  torch.from_numpy = FakeTensor
  monkeypatch.setitem(sys.modules, "torch", torch)


class FakeTensor:
  """A tensor on another device: NumPy cannot read it there."""

  def __init__(self, array, on_cpu=False):
    self._array, self._on_cpu = array, on_cpu
    self.shape, self.dtype = array.shape, array.dtype

  def detach(self):
    return self

  def cpu(self):
    return FakeTensor(self._array, on_cpu=True)

  def __array__(self, dtype=None, copy=None):
    assert self._on_cpu
    return np.asarray(self._array, dtype)


def rule_like(name, **changes):
  """Returns a rule with a growth interval of 3 and a hysteresis of 2."""
  changes = {"growth_interval": 3, "hysteresis": 2} | changes
  return policies.find_rule(name, **changes)


@pytest.mark.any_release
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", _STATES)
def test_training_goes_on_with_a_state(mode, name, fake_torch):
  def make():
    return policies.like(name, initial_loss_scale=64.0, **changes)

  changes = {"growth_interval": 3}
  if name == "deepspeed":
    changes |= {"hysteresis": 1, "at_minimum": "stay"}  # No state has these.
  rng = random.Random(name)
  gradients = policy_runs.draw_gradients(rng, 9)
  later = policy_runs.draw_gradients(rng, 9)
  with Training(make, mode) as training:
    training.steps(gradients)
    expected = training.read_state()
    state = policies.state_dict(training.loss_scale, name, training.session)
    plain = {key: state_entries.to_plain(each) for key, each in state.items()}
    assert plain == state_formats.encode(
      training.loss_scale.rule, State(**expected), name
    )
    scales = training.steps(later)
  with Training(make, mode) as training:
    training.steps([INF, INF, 0.0])  # The state is replaced.
    policies.load_state_dict(training.loss_scale, state, name, training.session)
    assert training.steps(later) == scales


@pytest.mark.any_release
@pytest.mark.parametrize("mode", MODES)
def test_replicas(mode):
  make = lambda: policies.GrowthBackoff(growth_interval=3)  # noqa: E731
  with Training(make, mode, helpers.two_replicas()) as training:
    loss_scale, session = training.loss_scale, training.session
    policies.load_state_dict(loss_scale, _TORCH, session=session)
    assert policies.state_dict(loss_scale, session=session) == _TORCH
    assert training.steps([0.0, 0.0]) == [16, 16]


@pytest.mark.any_release
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", _STATES)
def test_dynamic_loss_scales(mode, name):
  with Training(lambda: tfl.DynamicLossScale(1024, 3), mode) as training:
    loss_scale, session = training.loss_scale, training.session
    policies.load_state_dict(loss_scale, _STATES[name], name, session)
    assert training.read_state() == {"current_loss_scale": 8, "good_steps": 2}
    assert policies.state_dict(loss_scale, session=session) == _TORCH
    assert training.steps([0.0, INF]) == [16, 8]


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("state", "expected"),
  [
    (State(8.0), 2),
    (State(8.0, spent_hysteresis=1), 1),
    (State(8.0, spent_hysteresis=5), -3),
    (State(8.0, 1, 1), 1),
  ],
)
def test_spent_hysteresis(state, expected):
  rule = rule_like("megatron")
  entries = state_formats.encode(rule, state, "megatron")
  assert entries["hysteresis_tracker"] == expected
  assert state_formats.decode(rule, entries, "megatron") == state


@pytest.mark.any_release
def test_hysteresis_that_a_finite_step_has_filled():
  rule = rule_like("deepspeed", consecutive_hysteresis=True)
  state = State(8.0, good_steps=1, spent_hysteresis=1)
  entries = state_formats.encode(rule, state, "megatron")
  assert entries["hysteresis_tracker"] == 2
  state = State(8.0, good_steps=0, spent_hysteresis=1)
  entries = state_formats.encode(rule, state, "megatron")
  assert entries["hysteresis_tracker"] == 1


@pytest.mark.any_release
def test_hysteresis_that_is_not_counted():
  rule = rule_like("megatron", hysteresis=1)
  state = State(8.0, spent_hysteresis=4)  # Of a run with other arguments.
  entries = state_formats.encode(rule, state, "megatron")
  assert entries["hysteresis_tracker"] == 1
  entries["hysteresis_tracker"] = -2
  assert state_formats.decode(rule, entries, "megatron") == State(8.0)


@pytest.mark.any_release
def test_a_larger_hysteresis_is_cut(warnings):
  rule = rule_like("megatron")
  state = state_formats.decode(
    rule, _MEGATRON | {"hysteresis_tracker": 5}, "megatron"
  )
  assert state == State(8.0, 2, 0)
  (message,) = warnings()
  assert "hysteresis_tracker=5" in message and "hysteresis=2" in message


@pytest.mark.any_release
def test_scales_out_of_bounds():
  rule = rule_like("torch", initial_loss_scale=8.0, max_loss_scale=16.0)
  assert state_formats.encode(rule, State(64.0), "torch")["scale"] == 16
  with pytest.raises(ValueError, match=r"current_loss_scale.*inf"):
    state_formats.encode(rule, State(INF), "torch")


@pytest.mark.any_release
@pytest.mark.parametrize("name", _STATES)
def test_counts_of_longer_intervals(name):
  rule = rule_like("torch")  # The scale grows after 3 steps.
  expected = state_formats.encode(rule, State(8.0, 2), name)
  assert state_formats.encode(rule, State(8.0, 7), name) == expected


@pytest.mark.any_release
@pytest.mark.parametrize("name", _STATES)
@pytest.mark.parametrize(
  "convert",
  [
    np.asarray,
    lambda value: np.asarray([value]),
    lambda value: FakeTensor(np.asarray([value])),
    tf.constant,
  ],
)
def test_numbers_of_any_type(name, convert):
  values = {
    key: value if value is True else convert(value)
    for key, value in _STATES[name].items()
  }
  rule = rule_like("torch")
  expected = state_formats.decode(rule, _STATES[name], name)
  assert state_formats.decode(rule, values | {"more": "x"}, name) == expected
  assert expected[:2] == (8, 2)
  assert {type(value) for value in expected[1:]} == {int}


_MISTAKES = [
  *(
    (name, {key: bad}, rf"'{key}' must be .*{got}")
    for name, key in [
      ("torch", "scale"),
      ("megatron", "scale"),
      ("deepspeed", "cur_scale"),
      ("keras3", "3"),
    ]
    for bad, got in [
      (0.0, "got 0.0"),
      (-8.0, "got -8.0"),
      (math.nan, "got nan"),
      (INF, "got inf"),
      (1e39, "got 1e.39"),
      (2.0**-130, "2..-126.*got 7.3"),
      ("8", "got '8'"),
      (None, "got None"),
      (True, "got True"),
      (np.array([8.0, 8.0]), "got array"),
    ]
  ),
  *(
    (name, {key: bad}, rf"'{key}' must be .*whole.*{got}")
    for name, key in [
      ("torch", "_growth_tracker"),
      ("megatron", "growth_tracker"),
      ("deepspeed", "cur_iter"),
      ("keras3", "2"),
    ]
    for bad, got in [
      (-1, "got -1"),
      (1.5, "got 1.5"),
      (True, "got True"),
      ("1", "got '1'"),
    ]
  ),
  ("torch", {"growth_interval": 0}, "'growth_interval' .*at least 1, .*got 0"),
  ("torch", {"growth_factor": 1.0}, "'growth_factor' .*above 1 .*got 1.0"),
  ("torch", {"backoff_factor": 2.0}, "'backoff_factor' .*0 and 1, .*got 2.0"),
  ("megatron", {"hysteresis_tracker": 0.5}, "'hysteresis_tracker' .*got 0.5"),
  ("deepspeed", {"dynamic_loss_scale": False}, "fixed .*got False"),
  ("deepspeed", {"last_overflow_iter": -2}, "at least -1, .*got -2"),
  ("deepspeed", {"last_overflow_iter": 104}, "below 'cur_iter'=104.*got 104"),
  ("deepspeed", {"scale_window": 0}, "'scale_window' .*at least 1, .*got 0"),
  ("deepspeed", {"scale_factor": 0.5}, "'scale_factor' .*above 1 .*got 0.5"),
]


@pytest.mark.any_release
@pytest.mark.parametrize(("name", "change", "message"), _MISTAKES)
def test_wrong_entries_change_nothing(name, change, message):
  loss_scale = policies.like("torch")
  before = policies.state_dict(loss_scale)
  with pytest.raises(ValueError, match=message):
    policies.load_state_dict(loss_scale, _STATES[name] | change, name)
  assert policies.state_dict(loss_scale) == before


@pytest.mark.any_release
@pytest.mark.parametrize("name", _STATES)
def test_missing_entries(name):
  for key in _STATES[name]:
    values = {**_STATES[name]}
    del values[key]
    others = ", ".join(map(repr, values))
    message = f"like '{name}' must have '{key}', but has {others}"
    with pytest.raises(ValueError, match=re.escape(message)):
      policies.load_state_dict(policies.like("torch"), values, name)
  with pytest.raises(ValueError, match="but has nothing"):
    policies.load_state_dict(policies.like("torch"), {}, name)
  with pytest.raises(ValueError, match=r"must be a dict, but got 8\.0"):
    policies.load_state_dict(policies.like("torch"), 8.0, name)


@pytest.mark.any_release
def test_other_arguments_are_told_and_kept(warnings):
  loss_scale = policies.like("torch", growth_interval=3)
  policies.load_state_dict(loss_scale, _TORCH)
  assert not warnings()
  policies.load_state_dict(loss_scale, _TORCH | {"growth_interval": 9})
  (message,) = warnings()
  assert "growth_interval=9" in message and "growth_interval=3" in message
  assert loss_scale.rule.growth_interval == 3
  policies.load_state_dict(
    loss_scale, _DEEPSPEED | {"scale_factor": 4.0}, "deepspeed"
  )
  _, up, down = warnings()
  assert "growth_factor=4.0" in up and "growth_factor=2.0" in up
  assert "backoff_factor=0.25" in down and "backoff_factor=0.5" in down


@pytest.mark.any_release
def test_other_loss_scales_and_names():
  for call in (
    policies.state_dict,
    lambda scale: policies.load_state_dict(scale, _TORCH),
  ):
    for scale in (tfl.FixedLossScale(8), policies.LogNormal(), 8.0):
      with pytest.raises(TypeError, match="GrowthBackoff or a DynamicLossSc"):
        call(scale)
  for name in ("jmp", None, ["torch"]):
    with pytest.raises(ValueError, match="deepspeed, keras3, megatron, torch"):
      policies.state_dict(policies.like("torch"), name)
    with pytest.raises(ValueError, match=re.escape(f"no state like {name!r}")):
      policies.load_state_dict(policies.like("torch"), _TORCH, name)


@pytest.mark.any_release
def test_dynamic_loss_scales_are_at_least_1():
  loss_scale = tfl.DynamicLossScale()
  with pytest.raises(ValueError, match=r"at least 1.*has 0\.5"):
    policies.load_state_dict(loss_scale, _TORCH | {"scale": 0.5})
  assert loss_scale().numpy() == 2**15


@pytest.mark.any_release
@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_sessions(mode):
  with helpers.mode_scope(mode) as graph:
    loss_scale = policies.like("torch", growth_interval=3)
    with pytest.raises(ValueError, match="no default session"):
      policies.state_dict(loss_scale)
    with pytest.raises(ValueError, match="no default session"):
      policies.load_state_dict(loss_scale, _TORCH)
    graph.finalize()
    with tf1.Session() as session:
      policies.load_state_dict(loss_scale, _TORCH)  # Nothing is initialized.
      assert policies.state_dict(loss_scale) == _TORCH
    with tf1.Session(graph=tf.Graph()) as other:
      with pytest.raises(ValueError, match="has no variables in the graph of"):
        policies.state_dict(loss_scale, session=other)
      with pytest.raises(ValueError, match="has no variables in the graph of"):
        policies.load_state_dict(loss_scale, _TORCH, session=other)
      with (
        graph.as_default(),
        pytest.raises(ValueError, match="no default session"),
      ):
        policies.state_dict(loss_scale)
  with tf1.Session(graph=graph) as session:
    policies.load_state_dict(loss_scale, _TORCH, session=session)
    assert policies.state_dict(loss_scale, session=session) == _TORCH


@pytest.mark.any_release
def test_monitored_sessions(tmp_path):
  with helpers.mode_scope("graph_v1"):
    loss_scale = tfl.DynamicLossScale(increment_period=3)
    tf1.train.get_or_create_global_step()
    with tf1.train.MonitoredTrainingSession(
      checkpoint_dir=str(tmp_path)
    ) as session:
      policies.load_state_dict(loss_scale, _TORCH, session=session)
      assert policies.state_dict(loss_scale, session=session) == _TORCH


@pytest.mark.any_release
def test_a_count_next_to_the_end_of_int64():
  loss_scale = policies.GrowthBackoff(8.0, growth_interval=3)
  policies.load_state_dict(
    loss_scale, _TORCH | {"scale": 8.0, "_growth_tracker": 2**63 - 1}
  )
  loss_scale.update([tf.constant(1.0)])
  assert (loss_scale().numpy(), loss_scale.good_steps.numpy()) == (16, 0)


@pytest.mark.any_release
def test_megatrons_scale(fake_torch, monkeypatch):
  loss_scale = policies.like("megatron")
  scale = policies.state_dict(loss_scale, "megatron")["scale"]
  assert isinstance(scale, FakeTensor)
  assert (scale.dtype, scale.shape) == (np.float32, (1,))
  monkeypatch.setitem(sys.modules, "torch", None)  # Not installed.
  scale = policies.state_dict(loss_scale, "megatron")["scale"]
  assert (type(scale), scale.dtype) == (np.ndarray, np.float32)
  assert scale.tolist() == [2.0**32]


@pytest.mark.any_release
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("name", ["deepspeed", "torch"])
def test_deepspeed_grows_at_the_same_step(window, steps, name):
  rule = policies.find_rule(name, growth_interval=window)
  entries = _DEEPSPEED | {
    "last_overflow_iter": 41,
    "cur_iter": 42 + steps,
    "scale_window": window,
  }
  there = count_to_growth(entries)
  state = state_formats.decode(rule, entries, "deepspeed")
  here = rule.growth_interval - state.good_steps
  # Right after an overflow, PyTorch's rule cannot wait for so long.
  assert here == (there if name == "deepspeed" else min(there, window))
  encoded = state_formats.encode(rule, state, "deepspeed")
  assert count_to_growth(encoded) == here
  assert encoded["scale_window"] == window
  if name == "deepspeed":
    assert encoded["cur_iter"] == state.good_steps


def count_to_growth(entries):
  """Returns after how many finite steps DeepSpeed's scale grows."""
  iteration, count = entries["cur_iter"], 1
  while True:
    stable = iteration - entries["last_overflow_iter"] - 1
    if stable > 0 and stable % entries["scale_window"] == 0:
      return count
    iteration, count = iteration + 1, count + 1


@pytest.mark.any_release
def test_formats_need_no_tensorflow():
  helpers.run_python(
    "-c",
    "import sys\n"
    "from tf_compat_lossscale import policies\n"
    "from tf_compat_lossscale.policies import state_formats\n"
    "rule = policies.find_rule('torch')\n"
    "state_formats.encode(rule, rule.start(), 'torch')\n"
    "assert 'tensorflow' not in sys.modules\n",
  )


@helpers.NEEDS_KERAS_3
def test_keras_itself():
  import keras as k3

  weight = tf.Variable(1.0)
  opt = k3.optimizers.LossScaleOptimizer(
    k3.optimizers.SGD(0.1, momentum=0.9), 64.0, dynamic_growth_steps=3
  )
  opt.build([weight])
  apply = tf.function(lambda gradient: opt.apply([gradient], [weight]))

  def train(finite):
    """Returns the scales of Keras and of the policy."""
    scales = []
    for flag in finite:
      gradient = tf.constant(1.0 if flag else INF)
      apply(gradient)
      loss_scale.update([gradient])
      scales.append((float(opt.dynamic_scale), float(loss_scale())))
    return scales

  rng = random.Random(3)
  loss_scale = policies.like("keras3")
  store = {}
  train([True, False, True, True])
  opt.save_own_variables(store)
  loss_scale = policies.like("keras3", growth_interval=3)
  policies.load_state_dict(loss_scale, store, "keras3")
  scales = train([rng.random() < 0.8 for _ in range(30)])
  assert all(theirs == ours for theirs, ours in scales)
  assert len(set(scales)) > 3

  loss_scale.update([tf.constant(INF)])
  loss_scale.update([tf.constant(1.0)])
  state = policies.state_dict(loss_scale, "keras3")
  assert {key: value.dtype for key, value in state.items()} == {
    "2": np.int64,
    "3": np.float32,
  }
  opt.save_own_variables(store)
  before = {**store}
  store.update(state)
  opt.load_own_variables(store)
  assert int(opt.step_counter) == 1
  assert [key for key in store if not np.array_equal(store[key], before[key])]
  scales = train([rng.random() < 0.8 for _ in range(30)])
  assert all(theirs == ours for theirs, ours in scales)


if __name__ == "__main__":
  helpers.main()
