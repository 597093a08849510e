# SPDX-License-Identifier: Apache-2.0
"""Tests `accumulate` against one step with the mean, and against NumPy.

Its windows are kept by checkpoints; on replicas it does what one large batch
does, in random set-ups.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import tempfile

import helpers
from helpers import GRAPH_MODES
from helpers import MODES
from helpers import Spec
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale import policies

tf1 = tf.compat.v1

_WINDOWS = int(os.environ.get("ACCUMULATION_WINDOWS", "15"))

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

_BAD = (math.inf, -math.inf, math.nan)


def dynamic(inner):
  """Returns an optimizer with a dynamic loss scale."""
  scale = tfl.DynamicLossScale(8, 2)
  return tfl.MixedPrecisionLossScaleOptimizer(inner, scale)


def random_micro_batches(rng, steps, specs):
  """Returns gradients, whose sums are exact, for each micro-batch."""
  bad_share = rng.choice([0.0, 0.3, 0.9], p=[0.6, 0.3, 0.1])
  batches = []
  for _ in range(steps):
    grads = [rng.integers(-8, 9, spec.fed) / 8.0 for spec in specs]
    if rng.random() < bad_share:
      grad = grads[rng.integers(len([x for x in specs if x.kind != "none"]))]
      grad.flat[rng.integers(grad.size)] = rng.choice(_BAD)
    batches.append(grads)
  return batches


def comparable(trainer):
  """Returns the state of training without loss scale and window."""
  return {
    name.split("/")[-1] if "power" in name else name: value
    for name, value in trainer.state().items()
    if "accumul" not in name
    and name not in ("current_loss_scale", "good_steps")
  }


def is_finite(grads):
  return all(np.isfinite(grad).all() for grad in grads)


@pytest.mark.parametrize(
  ("mode", "steps", "use_resource"),
  helpers.pairs(
    MODES,
    [1, 3, 4],
    [True, False],
    allowed=lambda row: row[2] or row[0] in GRAPH_MODES,
  ),
)
def test_as_one_step_with_the_mean(mode, steps, use_resource):
  rng = np.random.default_rng(steps)
  windows = [random_micro_batches(rng, steps, _SPECS) for _ in range(_WINDOWS)]
  inner = helpers.INNER["adam"]
  make = lambda: tfl.accumulate(dynamic(inner()), steps)  # noqa: E731
  plain = lambda: tfl.MixedPrecisionLossScaleOptimizer(inner(), 1)  # noqa: E731
  states, scales, scale = [], [8.0], tfl.DynamicLossScale(8, 2)
  for batches in windows:
    is_good = all(map(is_finite, batches))
    scale.update([tf.constant(0.0 if is_good else math.nan)])
    scales.append(float(scale()))
  with helpers.Trainer(mode, make, _SPECS, use_resource=use_resource) as ours:
    for batches, (scale, next_scale) in zip(
      windows, itertools.pairwise(scales)
    ):
      before = ours.state()
      for grads in batches:
        assert ours.state()["v0"].tobytes() == before["v0"].tobytes()
        assert ours.loss_scale == scale
        ours.step(*grads)
      assert ours.loss_scale == next_scale
      states.append(comparable(ours))
  applied = 0
  with helpers.Trainer(mode, plain, _DENSE, use_resource=use_resource) as other:
    for batches, state in zip(windows, states):
      if all(map(is_finite, batches)):
        applied += 1
        other.step(*mean(batches))
      if applied:
        expected = comparable(other)
        if steps == 3:  # TensorFlow may multiply by the reciprocal.
          assert sorted(state) == sorted(expected)
          for name in state:
            np.testing.assert_allclose(state[name], expected[name], rtol=1e-3)
        else:
          helpers.assert_same_state(state, expected)
    assert 0 < applied < _WINDOWS
    assert state["global_step"] == applied


def mean(batches):
  """Returns the mean of gradients, divided as the optimizer does."""
  means = []
  for spec, grads in zip(_SPECS, zip(*batches)):
    dtype = np.float64 if spec.dtype == "float64" else np.float32
    total = np.sum(grads, axis=0, dtype=dtype)
    if spec.kind == "sparse":
      rows = np.zeros(spec.shape, dtype)
      rows[0] = total.sum(axis=0)
      total = rows
    means.append((total / dtype(len(batches))).astype(spec.dtype))
  return means


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


# Loss scales that do not look at gradients.
_BLIND = {
  "one": lambda: 1,
  "fixed": lambda: tfl.FixedLossScale(8),
  "python": lambda: Careless(is_tensor=False),
  "tensor": lambda: Careless(is_tensor=True),
}


@pytest.mark.parametrize("scale", _BLIND)
@pytest.mark.parametrize("mode", MODES)
def test_a_scale_that_does_not_look_at_gradients(mode, scale):
  make = lambda: tfl.accumulate(  # noqa: E731
    tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.MomentumOptimizer(0.5, 0.5), _BLIND[scale]()
    ),
    2,
    mean=False,
  )
  with helpers.Trainer(mode, make) as trainer:
    for grad in (1.0, 2.0):
      trainer.step(grad)
    state = trainer.state()
    np.testing.assert_array_equal(state["v0"], [-0.5, -0.5])
    # An infinity, and finite gradients whose sum is none.
    for grads in ((math.inf, math.nan), (3e38, 3e38), (1.0, -math.inf)):
      for grad in grads:
        trainer.step(grad)
      helpers.assert_same_state(trainer.state(), state)
    assert state["global_step"] == 1


@pytest.mark.parametrize("mode", GRAPH_MODES)
@pytest.mark.parametrize("use_resource", [True, False])
def test_names_with_a_fixed_scale_and_a_window(mode, use_resource):
  """Checks that the cond of the window names no variable."""
  inner = helpers.INNER["adam"]
  wrap = tfl.MixedPrecisionLossScaleOptimizer
  make = lambda: tfl.accumulate(wrap(inner(), 8), 2)  # noqa: E731
  with helpers.Trainer(mode, make, use_resource=use_resource) as trainer:
    names = [v.op.name for v in trainer.opt.variables() if "power" in v.name]
  scope = "" if mode == "graph_v2" and use_resource else "cond/"
  assert names == [f"{scope}beta1_power", f"{scope}beta2_power"]


class Tiny(helpers.Trainer):
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
  make = lambda: tfl.accumulate(  # noqa: E731
    tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(2.0**13), 2.0**10
    ),
    64,
    mean=False,
  )
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

  make = lambda: tfl.accumulate(  # noqa: E731
    dynamic(tf1.train.GradientDescentOptimizer(1.0)), 2, transform=clip
  )
  with helpers.Trainer(mode, make, (Spec(), Spec((1,)))) as trainer:
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
  opt = tfl.accumulate(dynamic(tf1.train.GradientDescentOptimizer(1.0)), 2)

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
  opt = tfl.accumulate(dynamic(tf1.train.GradientDescentOptimizer(1.0)), 2)

  @tf.function
  def step(both):
    grad = tf.constant(1.0)
    opt.apply_gradients([(grad, a), (grad if both else None, b)])

  step(False)
  with pytest.raises(ValueError, match="b:0 has a gradient for the first time"):
    step(True)
  with pytest.raises(ValueError, match="no variable has a gradient"):
    tfl.accumulate(dynamic(opt._optimizer), 2).apply_gradients([(None, a)])


@pytest.mark.parametrize("mode", GRAPH_MODES)
@pytest.mark.parametrize("use_resource", [True, False])
def test_in_a_cond_of_the_program(mode, use_resource):
  with helpers.mode_scope(mode):
    if mode == "graph_v2" and not use_resource:
      pytest.skip("a branch of a v2 cond cannot use reference variables")
    v = tf1.Variable([1.0], use_resource=use_resource, name="v")
    wanted = tf1.placeholder(tf.bool, [])
    grad = tf1.placeholder(tf.float32, [1])
    opt = tfl.accumulate(dynamic(tf1.train.MomentumOptimizer(1.0, 0.5)), 2)

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
  opt = tfl.accumulate(dynamic(tf1.train.AdamOptimizer(0.5)), 2)

  def step(grad):
    opt.minimize(lambda: v * grad, var_list=[v])

  @tf.function(jit_compile=jit)
  def train(grads):
    for i in tf.range(5):
      step(grads[i])

  train(tf.constant([1.0, 3.0, math.inf, 1.0, 2.0]))
  assert int(opt.micro_batches) == 1
  assert float(opt.loss_scale()) == 4
  np.testing.assert_allclose(v, [0.5], rtol=1e-5)


def test_threads():
  weight = tf.Variable(0.0)
  scaled = tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.GradientDescentOptimizer(1.0), tfl.DynamicLossScale(8, 1000)
  )
  opt = tfl.accumulate(scaled, 4)
  step = tf.Variable(0, dtype=tf.int64)

  def train(_):
    for _ in range(60):
      opt.apply_gradients([(tf.constant(1.0), weight)], step)

  helpers.in_threads(train, 6)
  assert (step.numpy(), weight.numpy()) == (90, -90)
  assert int(opt.micro_batches) == 0
  assert int(scaled.loss_scale.good_steps) == 90


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_last_step_applied_belongs_to_windows(mode):
  v = tf.Variable([1.0])
  opt = tfl.accumulate(dynamic(tf1.train.GradientDescentOptimizer(0.5)), 2)
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
  sgd = tf1.train.GradientDescentOptimizer(0.5)
  make = lambda: tfl.accumulate(dynamic(sgd), 2)  # noqa: E731
  with helpers.Trainer(mode, make) as trainer:
    with trainer.graph.as_default():
      applied = trainer.opt.last_step_applied
    feed = trainer.feeds[0]
    seen = [
      trainer.session.run([applied, trainer.train_op], {feed: [grad] * 2})[0]
      for grad in (1.0, math.inf, 1.0, 1.0)
    ]
    assert seen == [True, False, True, True]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"steps": 0}, "steps"),
    ({"steps": 1.5}, "steps"),
    ({"transform": 3}, "transform must be a function"),
    (
      {"optimizer": tf1.train.AdamOptimizer()},
      r"accumulate\(MixedPrecisionLossScaleOptimizer\(opt, scale\), steps\)",
    ),
  ],
)
def test_errors(change, message):
  sgd = tf1.train.GradientDescentOptimizer(0.5)
  arguments = {
    "optimizer": tfl.MixedPrecisionLossScaleOptimizer(sgd, 8),
    "steps": 2,
    **change,
  }
  with pytest.raises(ValueError, match=message):
    tfl.accumulate(**arguments)


def test_wrappers_that_do_not_accumulate():
  class Own(tfl.MixedPrecisionLossScaleOptimizer):
    def apply_gradients(self, *args, **kwargs):
      return super().apply_gradients(*args, **kwargs)

  sgd = tf1.train.GradientDescentOptimizer(0.5)
  once = tfl.accumulate(tfl.MixedPrecisionLossScaleOptimizer(sgd, 8), 2)
  for opt, message in [
    (once, "accumulates already"),
    (Own(sgd, 8), r"Own has a apply_gradients\(\) of its own"),
  ]:
    with pytest.raises(ValueError, match=message):
      tfl.accumulate(opt, 2)


def test_a_graph_lists_the_optimizer_that_takes_its_steps():
  with tf.Graph().as_default() as graph:
    weights = tf1.get_variable("w", [2])
    opt = tfl.accumulate(
      tfl.MixedPrecisionLossScaleOptimizer(
        tf1.train.AdamOptimizer(), "dynamic"
      ),
      steps=2,
    )
    opt.minimize(tf.reduce_sum(weights))
    assert loss_scale_optimizer.list_optimizers(graph) == [opt]


# Checkpoints keep the window -----------------------------------------------


class Heads:
  """Training of scalars that may share a name, without a strategy.

  Args:
    names: The name of each variable.
    mode: One of `helpers.MODES`.
    steps: The number of micro-batches in a window.
    mean: Whether the mean of the gradients is applied.
  """

  def __init__(self, names, mode="eager", steps=4, mean=True):
    self.mode = mode
    with helpers.mode_scope(mode) as self.graph:
      self.heads = [
        tf1.Variable(0.0, name=name, use_resource=True) for name in names
      ]
      self.opt = tfl.accumulate(
        tfl.MixedPrecisionLossScaleOptimizer(
          tf1.train.GradientDescentOptimizer(1.0), tfl.DynamicLossScale(8, 1000)
        ),
        steps,
        mean,
      )
      self.checkpoint = tf1.train.Checkpoint(opt=self.opt, heads=self.heads)
      self.session = None
      self.functions = {}
      if self.graph:
        self.feeds = [tf1.placeholder(tf.float32, []) for _ in names]
        self.op = self.opt.apply_gradients(zip(self.feeds, self.heads))
        self.state = [*self.heads, self.opt.loss_scale()]
        self.session = tf1.Session(graph=self.graph)
        self.session.run(tf1.global_variables_initializer())

  def run(self, grads, order=None):
    """Runs a micro-batch; None stands for no gradient."""
    if self.graph:
      self.session.run(self.op, dict(zip(self.feeds, grads)))
      return
    order = tuple(range(len(self.heads)) if order is None else order)

    def apply(grads):
      self.opt.apply_gradients([(grads[i], self.heads[i]) for i in order])

    if self.mode == "function":
      apply = self.functions.setdefault(
        order, tf.function(apply, autograph=False)
      )
    apply([None if x is None else tf.constant(float(x)) for x in grads])

  def save(self, path):
    """Writes a checkpoint; returns its path."""
    if not self.graph:
      return self.checkpoint.save(str(path))
    with self.graph.as_default():
      return self.checkpoint.save(str(path), session=self.session)

  def restore(self, path):
    """Restores a checkpoint; returns the status."""
    if not self.graph:
      status = self.checkpoint.restore(path)
      return status.assert_existing_objects_matched()
    with self.graph.as_default():
      status = self.checkpoint.restore(path).assert_consumed()
      status.initialize_or_restore(self.session)
    return status

  def values(self):
    """Returns the values of the heads, and the loss scale."""
    if self.graph:
      return [x.tolist() for x in self.session.run(self.state)]
    return [float(x) for x in (*self.heads, self.opt.loss_scale())]


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("mode", helpers.MODES)
def test_sums_of_variables_that_share_a_name(mode, existing, tmp_path):
  """Checks that an object gets its sum, whatever the order of gradients."""
  batches = [(1.0, 100.0), (3.0, 320.0), (0.0, 0.0), (0.0, 0.0)]
  run = Heads(["kernel", "kernel"], mode)
  for grads in batches[:2]:
    run.run(grads)
  path = run.save(tmp_path / "ckpt")
  resumed = Heads(["kernel", "kernel"], mode)
  if existing:
    resumed.run((5.0, 7.0), order=(1, 0))
  status = resumed.restore(path)
  for each in (run, resumed):
    for grads in batches[2:]:
      each.run(grads, order=(1, 0))
    assert each.values() == [-1.0, -105.0, 8.0]
  status.assert_consumed()


@pytest.mark.parametrize("mode", helpers.MODES)
@pytest.mark.parametrize(
  ("saved", "before", "after", "mean"),
  [(7, 8, 2, True), (7, 8, 2, False), (3, 4, 8, True), (5, 8, 3, True)],
)
def test_other_steps_in_a_resumed_window(
  mode, saved, before, after, mean, tmp_path
):
  """Checks that the divisor is what was added, in this window and the next."""
  rng = np.random.default_rng(saved)
  grads = rng.integers(-8, 8, [saved + 16, 1]).astype(float)
  run = Heads(["v"], mode, before, mean)
  for grad in grads[:saved]:
    run.run(grad)
  resumed = Heads(["v"], mode, after, mean)
  resumed.restore(run.save(tmp_path / "ckpt"))
  first = max(saved + 1, after)
  value, begin = 0.0, 0
  for end in (first, first + after):
    window = grads[begin:end]
    value -= window.mean() if mean else window.sum()
    for grad in grads[max(begin, saved) : end]:
      resumed.run(grad)
    begin = end
    np.testing.assert_allclose(resumed.values(), [value, 8.0], rtol=1e-6)


@pytest.mark.parametrize("mode", GRAPH_MODES)
@pytest.mark.parametrize("use_resource", [True, False])
def test_a_saver_within_a_window(mode, use_resource, tmp_path):
  make = lambda: tfl.accumulate(  # noqa: E731
    tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale(8, 2)
    ),
    3,
  )
  schedule = [1.0, 0.3, 0.7, -0.2, math.inf, 0.9, 0.1, 0.2, 0.3]
  path, states = str(tmp_path / "ckpt"), []
  for resumed in (False, True):
    with helpers.Trainer(mode, make, use_resource=use_resource) as trainer:
      with trainer.graph.as_default():
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
  helpers.assert_same_state(*states)
  names = dict(tf.train.list_variables(path))
  assert names["v0/accumulated_gradient"] == [2]
  assert names["accumulation/micro_batches"] == []


# Replicas against one large batch ------------------------------------------


_SETUPS = int(os.environ.get("ACCUMULATION_SETUPS", "6"))

_REPLICAS, _EXAMPLES, _WIDTH, _ROWS = 2, 3, 2, 4

_REDUCTIONS = {
  "default": lambda: None,
  "one device": tf.distribute.ReductionToOneDevice,
  "hierarchical": tf.distribute.HierarchicalCopyAllReduce,
}

# Loss scales, each with its period; None for one that never changes.
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
    batches: For each micro-batch the examples, the rows that they look up, and
      the factors of their losses, each by replica.
    resumed: Before which micro-batch a new program goes on from a checkpoint;
      None for never.
  """

  def __init__(self, seed):
    rng = np.random.default_rng(seed)
    choose = lambda items: items[rng.integers(len(items))]  # noqa: E731
    self.mode = choose(helpers.MODES)
    self.steps = int(rng.integers(1, 6))
    self.mean = bool(rng.random() < 0.7)
    self.inner = choose(sorted(helpers.INNER))
    self.scale = choose(sorted(_SCALES))
    self.reduction = choose(sorted(_REDUCTIONS))
    self.dtype = choose([tf.float32, tf.float64])
    self.is_sparse = bool(rng.random() < 0.5)
    count = self.steps * int(rng.integers(3, 7))
    bad_rate = choose([0.0, 0.1, 0.4])
    self.batches = []
    for _ in range(count):
      x = rng.standard_normal([_REPLICAS, _EXAMPLES, _WIDTH])
      rows = rng.integers(0, _ROWS, [_REPLICAS, _EXAMPLES])
      factors = np.ones([_REPLICAS, _EXAMPLES])
      if rng.random() < bad_rate:
        bad = choose([math.inf, -math.inf, math.nan])
        factors.flat[rng.integers(factors.size)] = bad
      self.batches.append((x, rows, factors))
    self.resumed = int(rng.integers(count)) if rng.random() < 0.5 else None

  def __repr__(self):
    return str({k: v for k, v in vars(self).items() if k != "batches"})


class Model:
  """Three variables with dense gradients, or with sparse ones too."""

  def __init__(self, setup):
    rng = np.random.default_rng(7)
    self._is_sparse = setup.is_sparse
    self.matrix, self.bias, self.table = self.variables = [
      tf1.Variable(
        rng.standard_normal(shape),
        dtype=setup.dtype,
        name=name,
        use_resource=True,
      )
      for shape, name in (
        ([_WIDTH, 2], "kernel"),
        ([2], "bias"),
        ([_ROWS, 2], "kernel"),
      )
    ]

  def loss(self, x, rows, factors):
    """Returns the mean of the examples' losses."""
    table = self.table if self._is_sparse else tf.identity(self.table)
    out = tf.tanh(tf.matmul(x, tf.identity(self.matrix)) + self.bias)
    each = tf.reduce_sum(tf.square(out - tf.gather(table, rows)), axis=1)
    return tf.reduce_mean(each * factors)


class Program:
  """Training on two replicas."""

  def __init__(self, setup, strategy):
    self._mode, self._strategy = setup.mode, strategy
    self.session = None
    with contextlib.ExitStack() as stack:
      graph = stack.enter_context(helpers.mode_scope(setup.mode))
      stack.enter_context(strategy.scope())
      self._build(setup, graph)
      self.close = stack.pop_all().close

  def _build(self, setup, graph):
    self._model = Model(setup)
    self._step = tf1.Variable(
      0,
      dtype=tf.int64,
      use_resource=True,
      aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
    inner = helpers.INNER[setup.inner]()
    scale = _SCALES[setup.scale][0]()
    wrap = tfl.MixedPrecisionLossScaleOptimizer
    if setup.scale == "contrib":
      wrap = contrib.LossScaleOptimizer
    self._opt = tfl.accumulate(wrap(inner, scale), setup.steps, setup.mean)
    dtypes = [setup.dtype, tf.int64, setup.dtype]
    if graph is None:
      run = self._run
      if setup.mode == "function":
        run = tf.function(run, autograph=False)
      self.run = lambda batch: run(*map(tf.constant, batch, dtypes))
    else:
      feeds = [
        tf1.placeholder(dtype, part.shape)
        for dtype, part in zip(dtypes, setup.batches[0])
      ]
      ops = self._strategy.experimental_local_results(self._run(*feeds))
      self.session = tf1.Session()
      self.session.run(tf1.global_variables_initializer())
      self.run = lambda batch: self.session.run(ops, dict(zip(feeds, batch)))
    tensors = [v for x in self._model.variables for v in x.values]
    self._tensors = [*tensors, self._step]
    self._checkpoint = tf1.train.Checkpoint(
      opt=self._opt, step=self._step, variables=self._model.variables
    )

  def _run(self, *batch):
    def replica_fn():
      context = tf.distribute.get_replica_context()
      own = [a[context.replica_id_in_sync_group] for a in batch]
      op = self._opt.minimize(
        lambda: self._model.loss(*own), self._step, self._model.variables
      )
      return op if self._mode in helpers.GRAPH_MODES else None

    return self._strategy.run(replica_fn)

  def save(self, path):
    """Writes a checkpoint; returns its path."""
    return self._checkpoint.write(path, session=self.session)

  def restore(self, path):
    """Restores a checkpoint."""
    status = self._checkpoint.restore(path)
    if self.session:
      status.initialize_or_restore(self.session)

  def values(self):
    """Returns the variables on each replica, the step and the loss scale."""
    tensors = [*self._tensors, self._opt.loss_scale()]
    if self.session:
      return self.session.run(tensors)
    return [tf.convert_to_tensor(x).numpy() for x in tensors]


class Large:
  """Training without a strategy, whose batches are whole windows."""

  def __init__(self, setup):
    self._setup = setup
    self.model = Model(setup)
    self._opt = helpers.INNER[setup.inner]()
    self._period = _SCALES[setup.scale][1]
    self.step, self.scale, self._good = 0, 8.0, 0

  def run(self, batches):
    """Trains on a window's micro-batches."""
    setup, variables = self._setup, self.model.variables
    x, rows, factors = (
      np.concatenate([part for parts in each for part in parts])
      for each in zip(*batches)
    )
    is_finite = np.isfinite(factors).all()
    if self._period:
      self._good = self._good + 1 if is_finite else 0
      if not is_finite:
        self.scale = max(self.scale / 2, 1.0)
      elif self._good == self._period:
        self.scale, self._good = self.scale * 2, 0
    if not is_finite:
      return
    self.step += 1
    # The gradients of replicas add up.
    factor = _REPLICAS * (1 if setup.mean else setup.steps)
    x, factors = (tf.constant(a, setup.dtype) for a in (x, factors))
    with tf.GradientTape() as tape:
      loss = factor * self.model.loss(x, tf.constant(rows), factors)
    grads = tape.gradient(loss, variables)
    # The sums of `accumulate` are dense.
    pairs = list(zip(map(tf.convert_to_tensor, grads), variables))
    self._opt.apply_gradients(pairs)


def train(setup):
  """Trains on replicas; yields what `Program.values` returns per window."""
  strategy = tf.distribute.MirroredStrategy(
    [f"cpu:{i}" for i in range(_REPLICAS)], _REDUCTIONS[setup.reduction]()
  )
  with tempfile.TemporaryDirectory() as folder:
    program = Program(setup, strategy)
    for i, batch in enumerate(setup.batches):
      if i == setup.resumed:
        path = program.save(f"{folder}/ckpt")
        program.close()
        program = Program(setup, strategy)
        program.restore(path)
      program.run(batch)
      if (i + 1) % setup.steps == 0:
        yield program.values()
    program.close()


def check(seed):
  """Trains both ways, and compares after each window."""
  setup = Setup(seed)
  # Errors of rounding grow in optimizers that divide by small numbers.
  tolerance = 1e-6 if setup.dtype == tf.float64 else 5e-3
  states = list(train(setup))
  large = Large(setup)
  for i, (*values, step, scale) in enumerate(states):
    large.run(setup.batches[i * setup.steps : (i + 1) * setup.steps])
    where = f"seed {seed}, window {i}: {setup}"
    assert (step, scale) == (large.step, large.scale), where
    for j, variable in enumerate(large.model.variables):
      first, second = values[2 * j : 2 * j + 2]
      assert first.tobytes() == second.tobytes(), where
      np.testing.assert_allclose(
        first, variable.numpy(), tolerance, tolerance, err_msg=where
      )
  print(f"done: {seed}: {large.step} of {len(states)} applied: {setup}")


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(_SETUPS))
def test_as_one_large_batch(seed):
  """Runs each set-up in a process of its own.

  All strategies of a process share the keys of collective ops.
  """
  code = helpers.import_line(__file__) + f"test.check({seed})"
  assert f"done: {seed}:" in helpers.run_forked("-c", code, timeout=120)


if __name__ == "__main__":
  helpers.main()
