# SPDX-License-Identifier: Apache-2.0
"""Tests the scaling policies in TensorFlow against their rules in Python."""

import concurrent.futures
import math
import random
import re

import helpers
from helpers import GRAPH_MODES
from helpers import MODES
import numpy as np
import policy_runs
from policy_runs import INF
from policy_runs import Training
import pytest
import random_optimizers
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import policies

tf1 = tf.compat.v1


def is_equal(state, other):
  """Returns whether two states are equal, averages but for rounding."""
  return state.keys() == other.keys() and all(
    math.isclose(value, other[name], rel_tol=1e-12, abs_tol=1e-12)
    if name.startswith("log2")
    else value == other[name]
    for name, value in state.items()
  )


@pytest.mark.any_release
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cls", policy_runs.CLASSES)
@pytest.mark.parametrize("seed", range(5))
def test_random_policies_follow_their_rules(mode, cls, seed):
  rng = random.Random(f"{mode} {seed}")
  arguments = policy_runs.CLASSES[cls](rng)
  gradients = policy_runs.draw_gradients(rng, 40)
  config = random_optimizers.session_config(rng)
  with Training(lambda: cls(**arguments), mode, config=config) as training:
    scales, states = policy_runs.find_states(training.loss_scale, gradients)
    for given, scale, state in zip(gradients, scales, states):
      assert training.step(given) == scale
      assert is_equal(training.read_state(), state)


@pytest.mark.any_release
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cls", policy_runs.CLASSES)
@pytest.mark.parametrize("seed", range(2))
def test_replicas_follow_the_rule_together(mode, cls, seed):
  rng = random.Random(f"replicas {mode} {seed}")
  arguments = policy_runs.CLASSES[cls](rng)
  gradients = policy_runs.draw_gradients(rng, 15)
  strategy = helpers.two_replicas()
  with Training(lambda: cls(**arguments), mode, strategy) as training:
    scales, states = policy_runs.find_states(training.loss_scale, gradients)
    assert training.steps(gradients) == scales
    assert is_equal(training.read_state(), states[-1])


def test_the_largest_gradient_of_all_replicas_counts():
  strategy = helpers.two_replicas()
  with Training(
    lambda: policies.LogNormal(warmup_steps=1), "eager", strategy
  ) as training:
    training.step(2.0**10)  # The second replica has 1.
    assert training.read_state()["log2_mean"] == 10
    training.step(2.0**-10)  # The second replica has the largest.
    assert training.read_state()["log2_mean"] == 5


@pytest.mark.any_release
@pytest.mark.parametrize("mode", MODES)
def test_the_default_is_the_rule_of_dynamic_loss_scale(mode):
  rng = random.Random(mode)
  gradients = policy_runs.draw_gradients(rng, 60)
  arguments = {"initial_loss_scale": 2.0**125}
  with Training(
    lambda: tfl.DynamicLossScale(increment_period=2, **arguments), mode
  ) as training:
    scales = training.steps(gradients)
    variables = training.read_variables()
  with Training(
    lambda: policies.GrowthBackoff(growth_interval=2, **arguments), mode
  ) as training:
    assert training.steps(gradients) == scales
    assert training.read_variables() == variables
    assert training.loss_scale.simulate(map(math.isfinite, gradients)) == scales


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
    assert training.steps([1.0, INF, INF]) == [4.0, 4.0, 2.0]
    before = training.read_state(), training.read_variables()
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
      training.step(math.nan)
    message = str(caught.value)
    assert re.search(r"at its minimum, 2(\.0)?,", message)
    assert "Steps skipped so far: 3" in message
    assert re.search(r"at fault: v(:0)?\.", message)
    assert (training.read_state(), training.read_variables()) == before
    assert training.step(1.0) == 2.0  # The run can go on.


def make_compiled(kind, step):
  """Returns a function that XLA compiles, and that takes steps."""
  inner = tf.function(step, autograph=False) if kind == "nested" else step

  def run(x):
    if kind == "loop":
      tf.while_loop(lambda i: i < 1, lambda i: take(i, x), [0])
    else:
      inner(x)

  def take(i, x):
    step(x)
    return [i + 1]

  return tf.function(run, jit_compile=True, autograph=False)


@pytest.mark.parametrize("kind", ["direct", "nested", "loop"])
@pytest.mark.parametrize("system", [None, "deepspeed", "fairseq"])
def test_xla_does_not_fail_at_the_minimum(kind, system, caplog):
  if system is None:
    policy = policies.GrowthBackoff(4.0, min_loss_scale=2.0, at_minimum="raise")
  else:
    policy = policies.like(system, growth_interval=100)
    policy.current_loss_scale.assign(policy.rule.lowest)
  w = tf.Variable([1.0, 2.0])
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    tf.compat.v1.train.MomentumOptimizer(0.5, 0.9), policy
  )

  def step(x):
    opt.minimize(lambda: tf.reduce_sum(w * x), var_list=[w])

  run = make_compiled(kind, step)
  run(tf.constant(1.0))
  np.testing.assert_array_equal(w, [0.5, 1.5])
  for _ in range(9):
    run(tf.constant(INF))
    assert not opt.last_step_applied
  np.testing.assert_array_equal(w, [0.5, 1.5])
  assert float(policy()) == policy.rule.lowest
  assert int(policy.skipped_steps) == 9
  run(tf.constant([1.0, 1.0]))  # Another trace of the function.
  (line,) = [x for x in caplog.messages if "XLA" in x]
  assert 'at_minimum="raise" is "stay"' in line and "last_step_applied" in line
  # Outside of what XLA compiles, the step fails as ever.
  policy.current_loss_scale.assign(policy.rule.lowest)
  with pytest.raises(tf.errors.InvalidArgumentError, match="at its minimum"):
    for _ in range(3):
      step(tf.constant(INF))


def test_xla_in_a_session():
  with tf.Graph().as_default():
    x = tf.compat.v1.placeholder(tf.float32, [])
    w = tf.compat.v1.get_variable("w", initializer=1.0, use_resource=True)
    policy = policies.GrowthBackoff(1.0, at_minimum="raise")
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf.compat.v1.train.GradientDescentOptimizer(0.5), policy
    )

    @tf.function(jit_compile=True, autograph=False)
    def step(x):
      opt.minimize(lambda: w * x, var_list=[w])
      return tf.identity(x)

    done = step(x)
    with tf.compat.v1.Session() as session:
      session.run(tf.compat.v1.global_variables_initializer())
      for value in (1.0, INF, INF):
        session.run(done, {x: value})
      assert session.run([w, policy.skipped_steps]) == [0.5, 2]


def test_a_function_that_xla_compiles_later():
  policy = policies.GrowthBackoff(1.0, at_minimum="raise")

  @tf.function(autograph=False)
  def inner(x):
    return policy.update([x])[1]

  inner(tf.constant(1.0))
  outer = tf.function(inner.python_function, jit_compile=True, autograph=False)
  assert not outer(tf.constant(INF))
  # TensorFlow takes the graph that it has of `inner`: the error says so.
  outer = tf.function(lambda x: inner(x), jit_compile=True, autograph=False)
  with pytest.raises(
    tf.errors.InvalidArgumentError, match="traced_outside_of_jit_compile"
  ):
    outer(tf.constant(1.0))


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
@pytest.mark.parametrize("mode", MODES)
def test_nests_of_gradients(mode):
  grads = [
    None,
    tf.constant([2.0, -8.0]),
    {"s": tf.IndexedSlices(tf.constant([[4.0]]), tf.constant([3]))},
    tf.constant(1.0, tf.float16),
    tf.zeros([0, 3]),
    tf.constant([7]),  # Whole numbers are no gradients.
    tf.constant(complex(0, -32.0), tf.complex64),
    tf.constant(-16.0, tf.float64),
  ]
  grads = [g.numpy() if isinstance(g, tf.Tensor) else g for g in grads]
  grads[2]["s"] = tf.IndexedSlices([[4.0]], [3])
  with helpers.mode_scope(mode) as graph:
    if graph:
      grads[2]["s"] = tf.IndexedSlices(tf.constant([[4.0]]), tf.constant([3]))
    policy = policies.LogNormal(warmup_steps=1)
    op, finite = policy.update(grads)
    if graph:
      with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        assert session.run(op)
        assert session.run(policy._get_weight("log2_mean")) == 5
    else:
      assert op is None and finite.numpy()
      assert policy._get_weight("log2_mean").numpy() == 5


@pytest.mark.any_release
@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_threads_of_a_session_count_all_skipped_steps(mode):
  make = lambda: policies.GrowthBackoff(hysteresis=1000)  # noqa: E731
  with Training(make, mode) as training:
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
      list(threads.map(training.step, [1.0, INF] * 200))
    assert training.read_state()["skipped_steps"] == 200


@pytest.mark.any_release
def test_float64_beyond_float32():
  policy = policies.LogNormal(warmup_steps=1, min_loss_scale=2.0**-126)
  policy.update([tf.constant(1e300, tf.float64)])
  assert policy().numpy() == policy.simulate([1e300])[0] == 2.0**-113


@pytest.mark.any_release
@pytest.mark.parametrize("policy", policy_runs.CLASSES)
def test_what_a_policy_is(policy):
  made = policy(64.0, backoff_factor=0.25)
  assert isinstance(made, tfl.LossScale)
  assert made().dtype == tf.float32 and made().shape == ()
  assert made.initial_loss_scale == 64
  assert made.good_steps.dtype == made.skipped_steps.dtype == tf.int64
  assert not made.current_loss_scale.trainable
  assert made.current_loss_scale.name == "current_loss_scale:0"
  config = made.get_config()
  assert policy.from_config(config).get_config() == config
  given = {"class_name": policy.__name__, "config": config}
  assert tfl.get(given).get_config() == config
  assert "current_loss_scale=64.0" in repr(made)
  assert "backoff_factor=0.25" in repr(made)
  assert made.simulate([False]) == [16]
  assert made().numpy() == 64  # A simulation changes nothing.


@pytest.mark.any_release
def test_like_takes_changes():
  policy = policies.like("megatron", growth_interval=7)
  assert policy.rule == policies.find_rule("megatron", growth_interval=7)
  assert policy.rule.hysteresis == 2
  with pytest.raises(ValueError, match=r"like 'megatrom': .*megatron"):
    policies.like("megatrom")
  with pytest.raises(TypeError, match=r"'growth': .*growth_factor"):
    policies.like("torch", growth=3)
  with pytest.raises(TypeError, match=r"consecutive_hysteresis"):
    policies.like("torch", consecutive_hysteresis=True)
  with pytest.raises(TypeError, match="no argument 'name'"):
    policies.like("torch", name="apex")
  with pytest.raises(ValueError, match="True or False, but got 'no'"):
    policies.like("deepspeed", consecutive_hysteresis="no")
  assert policies.like(
    "deepspeed", consecutive_hysteresis=True
  ).rule.refill == ("finite",)


@pytest.mark.any_release
def test_the_graph_rewrite_takes_a_policy():
  with tf.Graph().as_default():
    opt = tfl.enable_mixed_precision_graph_rewrite(
      tf1.train.GradientDescentOptimizer(0.1), policies.like("torch")
    )
    assert isinstance(opt.loss_scale, policies.GrowthBackoff)
  tfl.disable_mixed_precision_graph_rewrite()


if __name__ == "__main__":
  helpers.main()
