# SPDX-License-Identifier: Apache-2.0
"""Tests `accumulate`: random windows against one step, and checkpoints."""

import contextlib
import copy
import dataclasses
import functools
import math
import os

import growth_backoff_oracle as oracle
import helpers
from helpers import GRAPH_MODES
from helpers import MODES
import numpy as np
import processes
import pytest
from scaled_optimizers import dynamic
from scaled_optimizers import wrap
import tensorflow as tf
import trainers
from trainers import Spec

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import contrib
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale import policies

tf1 = tf.compat.v1

_SETUPS = int(os.environ.get("ACCUMULATION_SETUPS", "3"))


def sgd(rate=1.0):
  return lambda: tf1.train.GradientDescentOptimizer(rate)


_DYNAMIC, _SGD = dynamic(), sgd()


def accumulated(scale=_DYNAMIC, inner=_SGD, steps=2, **kwargs):
  """Returns a function that returns an accumulating optimizer."""
  return lambda: tfl.accumulate(wrap(scale, inner)(), steps, **kwargs)


# Random windows against one step --------------------------------------------


_SPECS = (
  Spec(),
  Spec((3, 2), kind="sparse"),
  Spec(kind="float16"),
  Spec(dtype="float16"),
  Spec(dtype="float64"),
  Spec(kind="none"),
)
# Sums are dense, and no sum is of float16.
_DENSE = tuple(
  dataclasses.replace(spec, kind="none" if spec.kind == "none" else "dense")
  for spec in _SPECS
)
_WINDOWS = 6

# Loss scales that start at 8, each with its period; None if it never changes.
_SCALES = {
  "dynamic": (lambda: tfl.DynamicLossScale(8, 2), 2),
  "policy": (lambda: policies.GrowthBackoff(8, growth_interval=3), 3),
  "contrib": (
    lambda: contrib.ExponentialUpdateLossScaleManager(8, 2, 1, 2, 0.5),
    2,
  ),
  "fixed": (lambda: tfl.FixedLossScale(8), None),
}


class Setup:
  """What a seed draws.

  Attributes:
    windows: The gradients, whose sums are exact, of each micro-batch of each
      window.
    resumed: Before which micro-batch of the third window a new program goes on
      from a checkpoint.
  """

  def __init__(self, seed):
    rng = np.random.default_rng(seed)
    self.steps = int(rng.integers(1, 5))
    self.mean = bool(rng.random() < 0.7)
    self.inner = helpers.INNER[rng.choice(sorted(helpers.INNER))]
    self.make_scale, self.period = _SCALES[rng.choice(sorted(_SCALES))]
    self.use_resource = bool(rng.random() < 0.5)
    self.resumed = int(rng.integers(self.steps))
    self.windows = [
      [
        [rng.integers(-8, 9, spec.fed) / 8.0 for spec in _SPECS]
        for _ in range(self.steps)
      ]
      for _ in range(_WINDOWS)
    ]
    for window in self.windows[1::2]:
      grad = window[rng.integers(self.steps)][rng.integers(len(_SPECS) - 1)]
      bad = rng.choice([math.inf, -math.inf, math.nan])
      grad.flat[rng.integers(grad.size)] = bad if rng.random() < 0.7 else 0.5

  def make(self):
    """Returns the optimizer."""
    scale = self.make_scale()
    cls = tfl.MixedPrecisionLossScaleOptimizer
    if isinstance(scale, contrib.LossScaleManager):
      cls = contrib.LossScaleOptimizer
    return tfl.accumulate(cls(self.inner(), scale), self.steps, self.mean)

  def reduce(self, window, replicas):
    """Returns what a window applies, divided as the optimizer does.

    The gradients of all replicas but the first are 1.
    """
    reduced = []
    for spec, grads in zip(_SPECS, zip(*window)):
      dtype = np.float64 if spec.dtype == "float64" else np.float32
      total = np.sum(grads, axis=0, dtype=dtype)
      total += dtype(len(window) * (replicas - 1))
      if spec.kind == "sparse":
        rows = np.zeros(spec.shape, dtype)
        rows[0] = total.sum(axis=0)
        total = rows
      divisor = dtype(len(window) if self.mean else 1)
      reduced.append((total / divisor).astype(spec.dtype))
    return reduced


def is_finite(window):
  return all(np.isfinite(grad).all() for grads in window for grad in grads)


def comparable(trainer):
  """Returns the state of training without loss scale and window."""
  return {
    name.split("/")[-1] if "power" in name else name: value
    for name, value in trainer.state().items()
    if "accumul" not in name
    and name not in oracle.State._fields
    and name not in ("loss_scale", "bad_steps")
  }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("seed", range(_SETUPS))
def test_as_one_step(mode, replicas, seed, tmp_path):
  setup = Setup([MODES.index(mode), replicas, seed])
  use_resource = setup.use_resource or replicas == 2 or mode not in GRAPH_MODES
  scale, good, states = 8.0, 0, []
  with contextlib.ExitStack() as stack:

    def start():
      strategy = helpers.two_replicas() if replicas == 2 else None
      return stack.enter_context(
        trainers.Trainer(
          mode,
          setup.make,
          _SPECS,
          use_resource=use_resource,
          strategy=strategy,
        )
      )

    ours = start()
    for i, window in enumerate(setup.windows):
      before = ours.state()
      for j, grads in enumerate(window):
        if (i, j) == (2, setup.resumed):
          path = ours.save(tmp_path / "model")
          stack.close()
          ours = start()
          ours.restore(path)
        else:
          assert ours.state()["v0"].tobytes() == before["v0"].tobytes()
        assert ours.loss_scale == scale
        ours.step(*grads)
      if setup.period:
        good = good + 1 if is_finite(window) else 0
        if good == setup.period:
          scale, good = scale * 2, 0
        elif not is_finite(window):
          scale = max(scale / 2, 1.0)
      assert ours.loss_scale == scale
      states.append(comparable(ours))
  applied = 0
  plain = wrap(1, setup.inner)
  with trainers.Trainer(
    mode, plain, _DENSE, use_resource=use_resource
  ) as other:
    for window, state in zip(setup.windows, states):
      if is_finite(window):
        applied += 1
        other.step(*setup.reduce(window, replicas))
      assert state["global_step"] == applied
      expected = comparable(other)
      if setup.steps != 3 or not setup.mean:
        trainers.assert_same_state(state, expected)
        continue
      assert sorted(state) == sorted(expected)
      for name, value in state.items():  # TensorFlow may multiply by 1/3.
        tolerance = 1e-6 if value.dtype == np.float64 else 5e-3
        np.testing.assert_allclose(value, expected[name], tolerance, tolerance)


# Loss scales that do not look at gradients -----------------------------------


class Careless(tfl.LossScale):
  """A user's loss scale that always says that gradients are good.

  The answer is a tensor, or a Python bool.
  """

  def __init__(self, is_tensor):
    super().__init__()
    self._is_tensor = is_tensor

  def __call__(self):
    return tf.constant(8.0)

  def update(self, grads):
    tf.nest.flatten(grads)
    answer = tf.constant(True) if self._is_tensor else True
    return None if tf.executing_eagerly() else tf.no_op(), answer

  def get_config(self):
    return {"is_tensor": self._is_tensor}


_BLIND = {
  "python": lambda: Careless(is_tensor=False),
  "tensor": lambda: Careless(is_tensor=True),
}


@pytest.mark.parametrize("scale", _BLIND)
@pytest.mark.parametrize("mode", MODES)
def test_a_scale_that_does_not_look_at_gradients(mode, scale):
  inner = lambda: tf1.train.MomentumOptimizer(0.5, 0.5)  # noqa: E731
  make = accumulated(_BLIND[scale], inner, mean=False)
  with trainers.Trainer(mode, make) as trainer:
    for grad in (1.0, 2.0):
      trainer.step(grad)
    state = trainer.state()
    np.testing.assert_array_equal(state["v0"], [-0.5, -0.5])
    # An infinity, and finite gradients whose sum is none.
    for grads in ((math.inf, math.nan), (3e38, 3e38), (1.0, -math.inf)):
      for grad in grads:
        trainer.step(grad)
      trainers.assert_same_state(trainer.state(), state)
    assert state["global_step"] == 1


@pytest.mark.parametrize("mode", GRAPH_MODES)
@pytest.mark.parametrize("use_resource", [True, False])
def test_names_with_a_fixed_scale_and_a_window(mode, use_resource):
  """Checks that the cond of the window names no variable."""
  make = accumulated(8, helpers.INNER["adam"])
  with trainers.Trainer(mode, make, use_resource=use_resource) as trainer:
    names = [v.op.name for v in trainer.opt.variables() if "power" in v.name]
  scope = "" if mode == "graph_v2" and use_resource else "cond/"
  assert names == [f"{scope}beta1_power", f"{scope}beta2_power"]


# Gradients -------------------------------------------------------------------


class Tiny(trainers.Trainer):
  """A trainer of a float16 variable with the gradient 2**-25."""

  def _build(self, fed):
    loss = lambda: tf.reduce_sum(  # noqa: E731
      tf.cast(self.variables[0], tf.float32) * 2.0**-25
    )
    op = self.opt.minimize(
      loss if self.graph is None else loss(), var_list=self.variables
    )
    return None if self.mode == "function" else op


@pytest.mark.parametrize("mode", MODES)
def test_small_half_gradients_add_up(mode):
  """Checks gradients that are 0 in float16."""
  make = accumulated(2.0**10, sgd(2.0**13), 64, mean=False)
  with Tiny(mode, make, (Spec(dtype="float16"),)) as trainer:
    for _ in range(64):
      trainer.step(0.0)
    assert trainer.state()["v0"].tolist() == [1 - 64 * 2.0**-12] * 2


@pytest.mark.parametrize("mode", MODES)
def test_transform(mode):
  seen = []

  def clip(pairs):
    grads, variables = zip(*pairs)
    seen.append([v.name for v in variables])
    grads, _ = tf.clip_by_global_norm(grads, 1.0)
    return list(zip(grads, variables))

  make = accumulated(transform=clip)
  with trainers.Trainer(mode, make, (Spec(), Spec((1,)))) as trainer:
    trainer.step([3.0, 0.0], [1.0])
    trainer.step([3.0, 0.0], [7.0])
    state = trainer.state()
    np.testing.assert_allclose(state["v0"], [0.4, 1.0], rtol=1e-6)
    np.testing.assert_allclose(state["v1"], [0.2], rtol=1e-6)
    trainer.step([3.0, 0.0], [1.0])
    trainer.step([math.inf, 0.0], [1.0])
    assert trainer.state()["v0"].tobytes() == state["v0"].tobytes()
  assert seen[0] == ["v0:0", "v1:0"]


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_gradients_that_are_sometimes_none(mode):
  a, b, c = (tf.Variable(1.0, name=name) for name in "abc")
  opt = accumulated()()

  def step(both):
    grads = [tf.constant(2.0), tf.constant(4.0) if both else None, None]
    opt.apply_gradients(zip(grads, (a, b, c)))

  if mode == "function":
    step = tf.function(step, autograph=False)
  for both in (True, False, False, False):
    step(both)
  assert (float(a), float(b), float(c)) == (-3.0, -1.0, 1.0)


def test_a_variable_that_comes_late_is_an_error_in_functions():
  a, b = (tf.Variable(1.0, name=name) for name in "ab")
  opt = accumulated()()

  @tf.function
  def step(both):
    grad = tf.constant(1.0)
    opt.apply_gradients([(grad, a), (grad if both else None, b)])

  step(False)
  with pytest.raises(ValueError, match="b:0 has a gradient for the first time"):
    step(True)
  with pytest.raises(ValueError, match="no variable has a gradient"):
    accumulated()().apply_gradients([(None, a)])


# Control flow and threads ----------------------------------------------------


@pytest.mark.parametrize(
  ("mode", "use_resource"),
  # A branch of a v2 cond cannot use reference variables.
  [("graph_v1", True), ("graph_v1", False), ("graph_v2", True)],
)
def test_in_a_cond_of_the_program(mode, use_resource):
  with helpers.mode_scope(mode):
    v = tf1.Variable([1.0], use_resource=use_resource, name="v")
    wanted = tf1.placeholder(tf.bool, [])
    grad = tf1.placeholder(tf.float32, [1])
    opt = accumulated(inner=lambda: tf1.train.MomentumOptimizer(1.0, 0.5))()

    def step():
      return tf.group(opt.apply_gradients([(grad, v)]))

    op = tf.cond(wanted, step, tf.no_op)
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      for answer, fed in [(1, 1), (0, 9), (1, 2), (1, math.inf), (1, 4)]:
        session.run(op, {wanted: bool(answer), grad: [float(fed)]})
      assert session.run(v).tolist() == [-0.5]
      assert session.run(opt.loss_scale()) == 4


@pytest.mark.parametrize("jit", [False, True])
def test_loop_in_a_function(jit):
  v = tf.Variable([1.0])
  opt = accumulated(inner=lambda: tf1.train.AdamOptimizer(0.5))()
  step = lambda x: opt.minimize(lambda: v * x, var_list=[v])  # noqa: E731

  @tf.function(jit_compile=jit)
  def train(grads):
    for i in tf.range(5):
      step(grads[i])

  train(tf.constant([1.0, 3.0, math.inf, 1.0, 2.0]))
  assert (int(opt.micro_batches), float(opt.loss_scale())) == (1, 4)
  np.testing.assert_allclose(v, [0.5], rtol=1e-5)


def test_threads():
  weight = tf.Variable(0.0)
  opt = accumulated(dynamic(8, 1000), steps=4)()
  step = tf.Variable(0, dtype=tf.int64)

  def train(_):
    for _ in range(60):
      opt.apply_gradients([(tf.constant(1.0), weight)], step)

  processes.in_threads(train, 6)
  assert (step.numpy(), weight.numpy()) == (90, -90)
  assert int(opt.micro_batches) == 0
  assert int(opt.loss_scale.good_steps) == 90


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_last_step_applied_belongs_to_windows(mode):
  v = tf.Variable([1.0])
  opt = accumulated()()
  with pytest.raises(RuntimeError, match="taken no eager step"):
    print(opt.last_step_applied)

  def step(grad):
    opt.minimize(lambda: v * grad, var_list=[v])
    return None if tf.executing_eagerly() else opt.last_step_applied

  if mode == "function":
    step = tf.function(step, autograph=False)
  step(tf.constant(1.0))
  seen = []
  for grad in (1.0, math.inf, 1.0, 1.0, 1.0):
    answer = step(tf.constant(grad))
    seen.append(bool(opt.last_step_applied if answer is None else answer))
  # Eagerly, a micro-batch within a window does not change the answer.
  assert seen == [True, True, False, mode == "function", True]


@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_last_step_applied_in_graphs(mode):
  with trainers.Trainer(mode, accumulated()) as trainer:
    (own,) = loss_scale_optimizer.list_optimizers(trainer.graph)
    assert own is trainer.opt
    applied = own.last_step_applied
    feed = trainer.feeds[0]
    seen = [
      trainer.session.run([applied, trainer.train_op], {feed: [grad] * 2})[0]
      for grad in (1.0, math.inf, 1.0, 1.0)
    ]
    assert seen == [True, False, True, True]


# Errors ----------------------------------------------------------------------


class OwnApply(tfl.MixedPrecisionLossScaleOptimizer):
  def apply_gradients(self, *args, **kwargs):
    return super().apply_gradients(*args, **kwargs)


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (accumulated(steps=0), "steps"),
    (accumulated(transform=3), "transform must be a function"),
    (
      lambda: tfl.accumulate(tf1.train.AdamOptimizer(), 2),
      r"accumulate\(MixedPrecisionLossScaleOptimizer\(opt, scale\), steps\)",
    ),
    (lambda: tfl.accumulate(accumulated()(), 2), "accumulates already"),
    (
      lambda: tfl.accumulate(OwnApply(sgd()(), 8), 2),
      r"OwnApply has a apply_gradients\(\) of its own",
    ),
  ],
)
def test_errors(make, message):
  with pytest.raises(ValueError, match=message):
    make()


# Checkpoints keep the window -------------------------------------------------


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("mode", ["eager", "function"])
def test_sums_of_variables_that_share_a_name(mode, existing, tmp_path):
  """Checks that an object gets its sum, whatever the order of gradients."""

  def run(program, grads, order):
    heads, opt, _ = program

    def apply(grads):
      opt.apply_gradients([(grads[i], heads[i]) for i in order])

    if mode == "function":
      apply = tf.function(apply, autograph=False)
    apply(list(map(tf.constant, grads)))

  whole, resumed = start_heads(steps=4), start_heads(steps=4)
  for grads in ((1.0, 100.0), (3.0, 320.0)):
    run(whole, grads, (0, 1))
  if existing:
    run(resumed, (5.0, 7.0), (1, 0))
  path = whole[-1].save(str(tmp_path / "ckpt"))
  status = resumed[-1].restore(path).assert_existing_objects_matched()
  for program in (whole, resumed):
    for _ in range(2):
      run(program, (0.0, 0.0), (1, 0))
    assert [float(v) for v in program[0]] == [-1.0, -105.0]
  status.assert_consumed()


def start_heads(strategy=None, steps=2):
  """Returns two heads of a model, and an optimizer that adds up gradients."""
  with strategy.scope() if strategy else contextlib.nullcontext():
    heads = [tf.Variable(0.0, name="kernel") for _ in range(2)]
    opt = accumulated(dynamic(8, 1000), steps=steps)()
    return heads, opt, tf.train.Checkpoint(opt=opt, heads=heads)


def train_heads(program, indices, mode="eager", strategy=None):
  heads, opt, _ = program

  def step():
    opt.minimize(lambda: tf.add_n([2.0 * heads[i] for i in indices]))

  run = functools.partial(strategy.run, step) if strategy else step
  (tf.function(run, autograph=False) if mode == "function" else run)()


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("restored", ["at first", "with a sum less"])
def test_a_restored_sum_is_applied(mode, replicas, restored, tmp_path):
  """Checks that a head without a gradient since then moves by its sum."""
  strategy = helpers.two_replicas() if replicas == 2 else None
  whole, resumed = start_heads(strategy), start_heads(strategy)
  train_heads(whole, (0, 1), mode, strategy)
  path = whole[-1].save(str(tmp_path / "ckpt"))
  if restored != "at first":
    train_heads(resumed, (0,), "eager", strategy)
  resumed[-1].restore(path)
  for program in (whole, resumed):
    train_heads(program, (0,), mode, strategy)
    expected = [-2.0 * replicas, -1.0 * replicas]
    assert [float(v.numpy()) for v in program[0]] == expected


def test_a_sum_that_would_be_lost_is_an_error(tmp_path):
  whole, resumed = start_heads(), start_heads()
  train_heads(whole, (0, 1))
  path = whole[-1].save(str(tmp_path / "ckpt"))
  with pytest.raises(ValueError, match="cannot be copied within a window"):
    copy.deepcopy(whole[:2])
  train_heads(resumed, (0,))
  with pytest.raises(checkpoint.CheckpointError, match="window is not built"):
    checkpoint.restore(None, path, resumed[-1])
  train_heads(resumed, (0,), "function")
  with pytest.raises(ValueError, match="restore checkpoints before it"):
    resumed[-1].restore(path)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
  ("saved", "before", "after", "mean"),
  [(7, 8, 2, True), (7, 8, 2, False), (3, 4, 8, True), (5, 8, 3, True)],
)
def test_other_steps_in_a_resumed_window(
  mode, saved, before, after, mean, tmp_path
):
  """Checks that the divisor is what was added, in this window and the next."""
  rng = np.random.default_rng(saved)
  grads = rng.integers(-8, 8, saved + 16).astype(float)

  def start(steps):
    make = accumulated(dynamic(8, 1000), steps=steps, mean=mean)
    return trainers.Trainer(mode, make, (Spec(()),))

  with start(before) as run:
    for grad in grads[:saved]:
      run.step(grad)
    path = run.save(tmp_path / "ckpt")
  first = max(saved + 1, after)
  value, begin = 1.0, 0
  with start(after) as resumed:
    resumed.restore(path)
    for end in (first, first + after):
      window = grads[begin:end]
      value -= window.mean() if mean else window.sum()
      for grad in grads[max(begin, saved) : end]:
        resumed.step(grad)
      begin = end
      np.testing.assert_allclose(resumed.state()["v0"], value, rtol=1e-6)


@pytest.mark.parametrize("mode", GRAPH_MODES)
@pytest.mark.parametrize("use_resource", [True, False])
def test_a_saver_within_a_window(mode, use_resource, tmp_path):
  make = accumulated(inner=lambda: tf1.train.AdamOptimizer(0.1), steps=3)
  schedule = [1.0, 0.3, 0.7, -0.2, math.inf, 0.9, 0.1, 0.2, 0.3]
  path, states = str(tmp_path / "ckpt"), []
  for resumed in (False, True):
    with trainers.Trainer(mode, make, use_resource=use_resource) as trainer:
      saver = tf1.train.Saver()
      if resumed:
        saver.restore(trainer.session, path)
      else:
        for grad in schedule[:5]:
          trainer.step(grad)
        saver.save(trainer.session, path)
      for grad in schedule[5:]:
        trainer.step(grad)
      states.append(trainer.state())
  trainers.assert_same_state(*states)
  names = dict(tf.train.list_variables(path))
  assert names["v0/accumulated_gradient"] == [2]
  assert names["accumulation/micro_batches"] == []
