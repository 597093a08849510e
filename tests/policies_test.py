# SPDX-License-Identifier: Apache-2.0
"""Tests GrowthBackoff against an oracle, and docs/policies.md against both.

Its checkpoints are exchanged with other loss scales.
"""

from __future__ import annotations

import inspect
import itertools
import math
import random
import re

import checkpoint_contents
import growth_backoff_oracle as oracle
import helpers
from helpers import GRAPH_MODES
from helpers import MODES
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
import random_optimizers
from scaled_optimizers import wrap
import tensorflow as tf
import trainers

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
INF = math.inf
_PAGE = (helpers.ROOT / "docs" / "policies.md").read_text("utf-8")
_scales = st.floats(2.0**-126, float(np.finfo(np.float32).max), width=32)


class Training(trainers.Trainer):
  """Training of two variables by given gradients, with a loss scale.

  The gradients of `v0` are the given number and, in the other elements, 1;
  those of `v1` are 1.
  """

  def __init__(self, make, mode, strategy=None, config=None):
    make_optimizer = wrap(make, lambda: tf1.train.MomentumOptimizer(0.001, 0.9))
    specs = (trainers.Spec((3,)), trainers.Spec(()))
    super().__init__(
      mode, make_optimizer, specs, True, strategy=strategy, config=config
    )

  def step(self, given):
    """Runs a step with a gradient; returns the scale."""
    super().step([given, 1.0, 1.0], 1.0)
    return self.loss_scale

  def read_state(self):
    """Returns the values of the loss scale's weights."""
    state = self.state()
    return {name: state[name].item() for name in oracle.State._fields}

  def read_variables(self):
    """Returns the values of the variables and of Momentum's slots."""
    return {
      name: value.tolist()
      for name, value in self.state().items()
      if name not in oracle.State._fields
    }


@pytest.mark.any_release
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_random_arguments_follow_the_rule(mode, replicas, seed):
  rng = random.Random(f"{mode} {replicas} {seed}")
  arguments = oracle.draw_arguments(rng)
  gradients = oracle.draw_gradients(rng, 40 if replicas == 1 else 15)
  make = lambda: policies.GrowthBackoff(**arguments)  # noqa: E731
  config, strategy = random_optimizers.session_config(rng), None
  if replicas == 2:  # The session must have both devices.
    config, strategy = None, helpers.two_replicas()
  states = oracle.Rule(**arguments).run(map(math.isfinite, gradients))
  with Training(make, mode, strategy, config) as training:
    for gradient, state in zip(gradients, states):
      assert training.step(gradient) == state.current_loss_scale
      assert training.read_state() == state._asdict()


@settings(max_examples=40, deadline=None)
@given(
  bounds=st.lists(_scales, min_size=3, max_size=3).map(sorted),
  has_bounds=st.tuples(st.booleans(), st.booleans()),
  growth=st.floats(1.0000002, float(np.finfo(np.float32).max)),
  backoff=st.floats(2.0**-126, 0.9999998),
  steps=st.lists(st.booleans(), max_size=30),
  seed=st.integers(0, 1000),
)
def test_bounds_hold(bounds, has_bounds, growth, backoff, steps, seed):
  lowest, initial, highest = bounds
  arguments = oracle.draw_arguments(random.Random(seed)) | {
    "initial_loss_scale": initial,
    "growth_factor": growth,
    "backoff_factor": backoff,
    "min_loss_scale": lowest if has_bounds[0] else None,
    "max_loss_scale": highest if has_bounds[1] else None,
  }
  policy = policies.GrowthBackoff(**arguments)
  previous = initial
  for finite, state in zip(steps, oracle.Rule(**arguments).run(steps)):
    policy.update([tf.constant(1.0 if finite else INF)])
    scale = float(policy())
    assert scale == state.current_loss_scale
    assert scale >= (lowest if has_bounds[0] else 2.0**-126)
    assert scale <= (highest if has_bounds[1] else np.finfo(np.float32).max)
    assert (scale >= previous) if finite else (scale <= previous)
    previous = scale


@pytest.mark.any_release
def test_bounds_that_float32_does_not_have():
  policy = policies.GrowthBackoff(0.3, min_loss_scale=0.3, growth_interval=1)
  assert float(policy()) > 0.3  # The nearest number of float32 is below.
  policy = policies.GrowthBackoff(0.1, min_loss_scale=None, max_loss_scale=0.1)
  assert float(policy()) < 0.1


@pytest.mark.any_release
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("replicas", [1, 2])
def test_failing_at_the_minimum(mode, replicas):
  strategy = helpers.two_replicas() if replicas == 2 else None
  with Training(
    lambda: policies.GrowthBackoff(
      4.0, min_loss_scale=2.0, hysteresis=2, at_minimum="raise"
    ),
    mode,
    strategy,
  ) as training:
    scales = [training.step(each) for each in (1.0, INF, INF)]
    assert scales == [4.0, 4.0, 2.0]
    before = training.read_state(), training.read_variables()
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
      training.step(math.nan)
    message = str(caught.value)
    assert re.search(r"at its minimum, 2(\.0)?,", message)
    assert "Steps skipped so far: 3" in message
    assert re.search(r"at fault: v0(:0)?\.", message)
    assert (training.read_state(), training.read_variables()) == before
    assert training.step(1.0) == 2.0  # The run can go on.


@pytest.mark.parametrize("kind", ["direct", "nested", "loop"])
@pytest.mark.parametrize("hysteresis", [1, 2])
def test_xla_does_not_fail_at_the_minimum(kind, hysteresis, caplog):
  policy = policies.GrowthBackoff(
    4.0, min_loss_scale=2.0, at_minimum="raise", hysteresis=hysteresis
  )
  w = tf.Variable([1.0, 2.0])
  opt = wrap(policy, lambda: tf1.train.MomentumOptimizer(0.5, 0.9))()

  def step(x):
    opt.minimize(lambda: tf.reduce_sum(w * x), var_list=[w])

  def take(i, x):
    step(x)
    return [i + 1]

  body = {
    "direct": step,
    "nested": tf.function(step, autograph=False),
    "loop": lambda x: tf.while_loop(lambda i: i < 1, lambda i: take(i, x), [0]),
  }[kind]
  run = tf.function(
    lambda x: body(x) and None, jit_compile=True, autograph=False
  )
  run(tf.constant(1.0))
  for _ in range(9):
    run(tf.constant(INF))
  np.testing.assert_array_equal(w, [0.5, 1.5])
  assert float(policy()) == 2
  assert int(policy.skipped_steps) == 9
  run(tf.constant([1.0, 1.0]))  # Another trace of the function.
  (line,) = [x for x in caplog.messages if "XLA" in x]
  assert 'at_minimum="raise" is "stay"' in line and "skipped_steps" in line
  # Outside of what XLA compiles, the step fails as ever.
  with pytest.raises(tf.errors.InvalidArgumentError, match="at its minimum"):
    step(tf.constant(INF))


def test_xla_in_a_session():
  with tf.Graph().as_default():
    x = tf1.placeholder(tf.float32, [])
    w = tf1.get_variable("w", initializer=1.0, use_resource=True)
    policy = policies.GrowthBackoff(1.0, at_minimum="raise")
    opt = wrap(policy)()

    @tf.function(jit_compile=True, autograph=False)
    def step(x):
      opt.minimize(lambda: w * x, var_list=[w])
      return tf.identity(x)

    done = step(x)
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      for value in (1.0, INF, INF):
        session.run(done, {x: value})
      assert session.run([w, policy.skipped_steps]) == [0.5, 2]


@pytest.mark.any_release
def test_gradients_at_fault_without_names():
  policy = policies.GrowthBackoff(1.0, at_minimum="raise")
  grads = {"a": [tf.constant(1.0), tf.constant(INF)], "b": None}
  with pytest.raises(tf.errors.InvalidArgumentError, match="gradient 1"):
    policy.update(grads)
  slices = tf.IndexedSlices(tf.constant([math.nan]), tf.constant([0]))
  with pytest.raises(tf.errors.InvalidArgumentError, match="at fault: grad"):
    policy.update([slices])
  assert policy.skipped_steps.numpy() == 0


@pytest.mark.any_release
def test_what_a_policy_is():
  made = policies.GrowthBackoff(64.0, backoff_factor=0.25)
  assert isinstance(made, tfl.LossScale)
  assert made().dtype == tf.float32 and made().shape == ()
  assert made.initial_loss_scale == 64
  assert made.good_steps.dtype == made.skipped_steps.dtype == tf.int64
  assert not made.current_loss_scale.trainable
  assert made.current_loss_scale.name == "current_loss_scale:0"
  config = made.get_config()
  assert policies.GrowthBackoff.from_config(config).get_config() == config
  given = {"class_name": "GrowthBackoff", "config": config}
  assert tfl.get(given).get_config() == config
  assert "current_loss_scale=64.0" in repr(made)
  assert "backoff_factor=0.25" in repr(made)


@pytest.mark.parametrize(
  ("arguments", "what"),
  [
    ({"initial_loss_scale": 0}, r"initial_loss_scale must be above 0.* 0\."),
    ({"initial_loss_scale": 1e-40}, r"initial_loss_scale .*2\*\*-126.*1e-40"),
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
    ({"max_loss_scale": INF}, "max_loss_scale .* inf"),
    ({"growth_factor": 1}, "growth_factor must be above 1 .* 1"),
    ({"backoff_factor": 1}, "backoff_factor must be between 0 and 1.* 1"),
    ({"growth_interval": 0}, "growth_interval .* at least 1.* 0"),
    ({"hysteresis": 0}, "hysteresis .* 0"),
    ({"refill": "grow"}, "refill must hold some of 'growth'.* got 'grow'"),
    ({"overflow_tolerance": 1.5}, r"overflow_tolerance .* from 0 to 1.* 1\.5"),
    ({"overflow_reset": "finite"}, "overflow_reset .* 'finite'"),
    ({"at_minimum": "fail"}, "at_minimum must be 'stay' or 'raise'.*'fail'"),
    ({"good_steps_after_growth": -1}, "good_steps_after_growth .* -1"),
    (
      {"good_steps_after_growth": 5, "growth_interval": 5},
      "good_steps_after_growth must be below growth_interval=5, but got 5",
    ),
  ],
)
def test_mistakes(arguments, what):
  with pytest.raises(ValueError, match=what):
    policies.GrowthBackoff(**arguments)


def rows_after(heading):
  """Returns the cells of each row of the first table after a heading."""
  lines = _PAGE[_PAGE.index(f"\n## {heading}\n") :].splitlines()
  start = next(i for i, line in enumerate(lines) if line.startswith("|---"))
  return [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in itertools.takewhile(
      lambda line: line.startswith("|"), lines[start + 1 :]
    )
  ]


@pytest.mark.any_release
def test_the_page_has_each_argument_with_its_default():
  parameters = inspect.signature(policies.GrowthBackoff).parameters
  rows = rows_after("Arguments")
  assert [name.strip("`") for name, *_ in rows] == list(parameters)
  for (_, cell, _), parameter in zip(rows, parameters.values()):
    value = eval(cell.strip("`").replace("^", "**"))
    assert value == parameter.default


# For each system, by its own source: "x" for a step that is not finite or a
# number of finite steps, each with log2 of the scale after it.
_TORCH = [("x", 15), (1999, 15), (1, 16), (1999, 16), (1, 17), ("x", 16)]
_APEX = [*_TORCH, ("x", 15), (2000, 16), *[(2000, n) for n in range(17, 25)]]
_APEX += [(2000, 24), *[("x", n) for n in range(23, -3, -1)]]
# The first interval after an overflow, and the first of all, have 1,001 steps.
_FUSED = [(1000, 16), (1, 17), (999, 17), (1, 18), ("x", 17), (1000, 17)]
_FUSED += [(1, 18), ("x", 17), ("x", 16), (500, 16), ("x", 15), (1000, 15)]
_ZERO = [(1000, 16), (1, 17), (999, 17), (1, 18), ("x", 18), ("x", 17)]
_ZERO += [("x", 16), (1000, 16), ("x", 15), (1000, 15), (1, 16), ("x", 16)]
_ZERO += [*[("x", n) for n in range(15, -1, -1)], ("x", "fails")]
_FAIRSEQ = [("x", 14), (1999, 14), (1, 15), (2000, 16), ("x", 15), (1999, 15)]
_FAIRSEQ += [*[("x", n) for n in range(14, -14, -1)], ("x", "fails")]
_SCHEDULES = {
  "PyTorch 2": [*_TORCH, *[("x", n) for n in range(15, -127, -1)]],
  "Apex": _APEX,
  "DeepSpeed, ZeRO": _ZERO,
  "DeepSpeed, no ZeRO": [*_FUSED, *[("x", n) for n in range(14, -1, -1)]],
  "DeepSpeed, profile `FUSED`": [
    *[(step, n + 16) for step, n in _FUSED],
    *[("x", n) for n in range(30, -1, -1)],
    ("x", 0),
  ],
  "DeepSpeed, profile `UNFUSED`": [
    *_FUSED,
    *[("x", n) for n in range(14, -3, -1)],
    ("x", -2),
  ],
  "Megatron-LM": [
    *[("x", 32), ("x", 31), (999, 31), ("x", 30), (999, 30), (1, 31)],
    *[("x", 31), (1000, 32), ("x", 32), *[("x", n) for n in range(31, -1, -1)]],
    ("x", 0),
  ],
  "fairseq": _FAIRSEQ,
  "`fairseq-train`": [
    *[("x", 6), (2**14 - 1, 6), (1, 7), (2**14, 8), (2**14 - 1, 8)],
    *[("x", n) for n in range(7, -14, -1)],
    ("x", "fails"),
  ],
  "MXNet AMP": _APEX,
  "TensorFlow, Keras 2": [
    *[("x", 14), (1999, 14), (1, 15), (2000, 16)],
    *[("x", n) for n in range(15, -1, -1)],
    ("x", 0),
  ],
  "Flax": [("x", 15), (2000, 15), (1, 16), (2000, 16), (1, 17)],
  "jmp": [
    (1999, 15),
    (1, 16),
    *[("x", n) for n in range(15, -1, -1)],
    ("x", 0),
  ],
}


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("system", "code"), [row[:2] for row in rows_after("Rules of other systems")]
)
def test_the_page_has_the_rules_of_other_systems(system, code):
  policy = eval(code.strip("`"), {"GrowthBackoff": policies.GrowthBackoff})
  if system in ("tf.contrib", "Keras 3"):  # Others compare with these.
    return
  for i, (step, power) in enumerate(_SCHEDULES[system]):
    if power == "fails":
      with pytest.raises(tf.errors.InvalidArgumentError, match="its minimum"):
        policy.update([tf.constant(INF)])
      continue
    if step != "x":  # All but the last are only counted, which is faster.
      policy.good_steps.assign_add(step - 1)
    policy.update([tf.constant(INF if step == "x" else 1.0)])
    assert float(policy()) == 2.0**power, (i, step)


@pytest.mark.skipif(helpers.RELEASE < (2, 16), reason="Keras 3 comes with 2.16")
@pytest.mark.parametrize("interval", [1, 2, 5])
def test_the_rule_of_keras_3_is_that_of_keras_itself(interval):
  import keras

  weight = tf.Variable(1.0)
  opt = keras.optimizers.LossScaleOptimizer(
    keras.optimizers.SGD(0.0), 1024.0, dynamic_growth_steps=interval
  )
  opt.build([weight])
  apply = tf.function(lambda gradient: opt.apply([gradient], [weight]))
  policy = policies.GrowthBackoff(
    1024.0, growth_interval=interval, min_loss_scale=None
  )
  for flag in np.random.default_rng(interval).random(150) < 0.8:
    gradient = tf.constant(1.0 if flag else math.nan)
    apply(gradient)
    policy.update([gradient])
    assert float(opt.dynamic_scale) == float(policy())


# Checkpoints, and exchanges with other loss scales -------------------------


_COUNTS = ("spent_hysteresis", "overflows", "steps_to_overflow")


class Program(trainers.Trainer):
  """A Session program with a loss scale or a manager, and with a saver."""

  def __init__(self, make, mode="graph_v1"):
    def make_optimizer():
      self.scale, adam = make(), tf1.train.AdamOptimizer(0.1)
      if isinstance(self.scale, contrib.LossScaleManager):
        return contrib.LossScaleOptimizer(adam, self.scale)
      return tfl.MixedPrecisionLossScaleOptimizer(adam, self.scale)

    super().__init__(mode, make_optimizer, (trainers.Spec(()),))
    self.saver = checkpoint.Saver()
    self._stack.close()

  def run(self, *given):
    for each in given:
      self.step(each)
    return self

  def save_names(self, path):
    with self.graph.as_default():
      return self.saver.save(self.session, str(path / "model"))

  def restore_names(self, path):
    with self.graph.as_default():
      self.saver.restore(self.session, path)
    return self

  def read(self, *names):
    state = self.state()
    return [state[name].item() for name in names]


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("old", "new"), [("graph_v1", "graph_v2"), ("graph_v2", "graph_v1")]
)
def test_from_dynamic_loss_scale_and_back(tmp_path, old, new):
  dynamic = Program(lambda: tfl.DynamicLossScale(64, 3), old)
  path = dynamic.run(1.0, INF, 1.0, 1.0).save_names(tmp_path)
  policy = Program(lambda: policies.GrowthBackoff(8, growth_interval=3), new)
  policy.restore_names(path)
  report = policy.saver.last_report
  assert set(report.initialized) == {*_COUNTS, "skipped_steps"}
  assert "no such variable" in report.initialized["skipped_steps"]
  names = ("current_loss_scale", "good_steps", "global_step")
  assert policy.read(*names) == [32, 2, 3]
  path = policy.run(1.0, 1.0).save_names(tmp_path)
  back = Program(lambda: tfl.DynamicLossScale(8, 3), old).restore_names(path)
  trainers.assert_same_state(back.state(), dynamic.run(1.0, 1.0).state())


@pytest.mark.any_release
@pytest.mark.parametrize("by_object", [False, True])
def test_from_contrib(tmp_path, by_object):
  def make():
    return contrib.ExponentialUpdateLossScaleManager(64.0, 3, 3, 2, 0.5)

  old = Program(make).run(1.0, INF, 1.0, INF, 1.0)
  policy = Program(old.scale.to_loss_scale)
  if by_object:
    objects = {"opt": policy.opt, "v0": policy.variables[0]}
    path = old.save(tmp_path / "objects")
    checkpoint.restore(policy.session, path, objects)
  else:
    policy.restore_names(old.save_names(tmp_path))
  names = ("current_loss_scale", "spent_hysteresis")
  assert policy.read("spent_hysteresis") == [2]
  for each in ([INF], [1.0, 1.0, 1.0], [INF, INF]):
    found = old.run(*each).read("loss_scale", "bad_steps")
    assert policy.run(*each).read(*names) == found


@pytest.mark.any_release
@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_another_policy_goes_on(tmp_path, mode):
  make = lambda: policies.GrowthBackoff(2.0**16, growth_interval=100)  # noqa: E731
  old = Program(make, mode).run(*[1.0] * 5, INF, INF, 1.0, 1.0, 1.0)
  new = Program(
    lambda: policies.GrowthBackoff(
      2.0**20, growth_interval=3, hysteresis=2, min_loss_scale=2.0**18
    ),
    mode,
  )
  with new.graph.as_default():
    scale = new.scale()
  new.restore_names(old.save_names(tmp_path))
  assert new.saver.last_report is None
  names = ("current_loss_scale", "good_steps", "skipped_steps")
  assert new.read(*names) == [2.0**14, 3, 2]
  assert new.value(scale) == 2.0**18  # The new floor holds at once.
  new.run(1.0)  # The interval is over, since it is shorter now.
  assert new.value(scale) == 2.0**19
  new.run(INF)
  assert new.value(scale) == 2.0**19  # The new hysteresis.
  new.run(INF)
  assert new.value(scale) == 2.0**18


@pytest.mark.any_release
@pytest.mark.parametrize("by_object", [False, True])
def test_described(tmp_path, by_object):
  policy = Program(lambda: policies.GrowthBackoff(64.0, hysteresis=3))
  policy.run(1.0, INF, INF, 1.0)
  save = policy.save if by_object else policy.save_names
  (state,) = checkpoint.describe(save(tmp_path)).loss_scales
  assert (state.value, state.good_steps) == (64, 1)
  assert (state.bad_steps, state.skipped_steps) == (2, 2)
  assert len(state.names) == 6


@pytest.mark.any_release
def test_converted(tmp_path):
  policy = Program(lambda: policies.GrowthBackoff(64.0))
  path = policy.run(1.0, INF, 1.0).save_names(tmp_path)
  new = str(tmp_path / "reset")
  checkpoint.convert(path, new, to="saver", set_loss_scale=2.0**10)
  state = Program(policies.GrowthBackoff).restore_names(new).state()
  assert state["current_loss_scale"] == 2.0**10
  assert not any(
    state[name] for name in ("good_steps", "skipped_steps", *_COUNTS)
  )
  for to in ("fp32", "contrib"):  # These have no policies.
    new = str(tmp_path / to)
    done = checkpoint.convert(path, new, to=to)
    # tf.contrib's bad steps are the overflows since the scale last moved.
    kept = {"spent_hysteresis"} & {*_COUNTS} if to == "contrib" else set()
    dropped = {"skipped_steps", *_COUNTS}
    assert dropped & set(done.dropped) == dropped - kept
    names = set(checkpoint_contents.contents(new))
    assert names.isdisjoint(["skipped_steps", *_COUNTS])
  manager = contrib.ExponentialUpdateLossScaleManager
  old = Program(lambda: manager(8.0, 10)).restore_names(new)
  assert old.read("loss_scale") == [32]


@pytest.mark.any_release
def test_a_users_variables_of_such_names(tmp_path):
  def make():
    for name in ("skipped_steps", "overflows"):
      tf1.get_variable(name, initializer=np.int64(7), use_resource=True)
    return tfl.DynamicLossScale(8.0)

  path = Program(make).run(1.0).save_names(tmp_path)
  new = Program(make)
  users = [
    v for v in new.graph.get_collection("variables") if v.name[0] in "so"
  ]
  with new.graph.as_default():
    new.session.run([v.assign(0) for v in users])
  new.restore_names(path)
  assert new.session.run(users) == [7, 7]
  (state,) = checkpoint.describe(path).loss_scales
  assert state.skipped_steps is None
