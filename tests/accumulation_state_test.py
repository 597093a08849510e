# SPDX-License-Identifier: Apache-2.0
"""Tests accumulation on replicas, in checkpoints and under monitors."""

import contextlib
import math

import helpers
from helpers import GRAPH_MODES
from helpers import MODES
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


class Program:
  """Training on two replicas, whose gradients the test chooses."""

  def __init__(self, mode, stack, steps=4, drop="window", inner=None):
    self.mode = mode
    self.strategy = helpers.two_replicas()
    self.graph = stack.enter_context(helpers.mode_scope(mode))
    stack.enter_context(self.strategy.scope())
    self.v = tf1.Variable([1.0, 2.0], use_resource=True, name="v")
    self.step = tf1.Variable(
      0,
      dtype=tf.int64,
      use_resource=True,
      name="step",
      aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
    inner = inner or tf1.train.GradientDescentOptimizer(0.5)
    self.opt = tfl.accumulate(
      tfl.MixedPrecisionLossScaleOptimizer(inner, tfl.DynamicLossScale(8, 2)),
      steps,
      drop,
    )
    if self.graph is None:
      run = self._run
      if mode == "function":
        run = tf.function(run, autograph=False)
      self.run = lambda grads: run(tf.constant(grads, tf.float32))
    else:
      self._feed = tf1.placeholder(tf.float32, [2])
      ops = self.strategy.experimental_local_results(self._run(self._feed))
      self.session = stack.enter_context(tf1.Session())
      self.session.run(tf1.global_variables_initializer())
      self.run = lambda grads: self.session.run(ops, {self._feed: grads})
    self.checkpoint = tf1.train.Checkpoint(opt=self.opt, v=self.v, s=self.step)

  def _run(self, grads):
    def replica_fn():
      context = tf.distribute.get_replica_context()
      grad = grads[context.replica_id_in_sync_group]
      op = self.opt.minimize(
        lambda: tf.reduce_sum(self.v * grad), self.step, [self.v]
      )
      return op if self.mode in GRAPH_MODES else None

    return self.strategy.run(replica_fn)

  def save(self, path):
    """Saves a checkpoint by object; returns its path."""
    if self.graph is None:
      return self.checkpoint.write(path)
    return self.checkpoint.write(path, session=self.session)

  def values(self):
    """Returns the trained variable's replicas, the step and the loss scale."""
    tensors = [*self.v.values, self.step, self.opt.loss_scale()]
    if self.graph is not None:
      return [x.tolist() for x in self.session.run(tensors)]
    return [tf.convert_to_tensor(x).numpy().tolist() for x in tensors]

  def whole(self):
    """Returns the values of all variables."""
    variables = [*self.v.values, self.step, *self.opt.variables()]
    if self.graph is not None:
      return [x.tolist() for x in self.session.run(variables)]
    return [tf.convert_to_tensor(x).numpy().tolist() for x in variables]


@pytest.mark.parametrize("drop", ["window", "micro_batch"])
@pytest.mark.parametrize("mode", MODES)
def test_replicas(mode, drop):
  rng = np.random.default_rng(0)
  with contextlib.ExitStack() as stack:
    program = Program(mode, stack, drop=drop)
    value, step, scale, good = np.float32([1, 2]), 0, 8.0, 0
    for _ in range(12):
      grads = rng.integers(-8, 8, [4, 2]) / np.float32(8)
      if rng.random() < 0.4:
        grads[rng.integers(4), rng.integers(2)] = math.inf
      if rng.random() < 0.2:
        grads[:] = math.nan
      for row in grads:
        program.run(row)
      kept = grads[np.isfinite(grads)]
      good += 1
      if kept.size < 8:
        scale, good = max(scale / 2, 1), 0
      elif good == 2:
        scale, good = scale * 2, 0
      if kept.size == 8 or (drop == "micro_batch" and kept.size):
        # Replicas add up: each has half of the micro-batches.
        value = value - np.float32(0.5) * (
          kept.sum() / np.float32(kept.size / 2)
        )
        step += 1
      seen = program.values()
      np.testing.assert_allclose(seen[0], value, rtol=1e-6)
      assert seen[1:] == [seen[0], step, scale]
      value = np.float32(seen[0])


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_checkpoint_within_a_window(mode, early, tmp_path):
  schedule = np.random.default_rng(1).standard_normal([9, 2]).astype("float32")
  schedule[5, 1] = math.inf
  momentum = lambda: tf1.train.MomentumOptimizer(0.3, 0.9)  # noqa: E731
  with contextlib.ExitStack() as stack:
    program = Program(mode, stack, 3, "micro_batch", momentum())
    for row in schedule[:5]:
      program.run(row)
    path = program.save(str(tmp_path / "ckpt"))
    for row in schedule[5:]:
      program.run(row)
    expected = program.whole()
  with contextlib.ExitStack() as stack:
    program = Program(mode, stack, 3, "micro_batch", momentum())
    if not early and program.graph is None:
      for row in schedule[:4]:
        program.run(row)
    status = program.checkpoint.restore(path)
    if program.graph is not None:
      status.initialize_or_restore(program.session)
    for row in schedule[5:]:
      program.run(row)
    assert program.whole() == expected


class Heads:
  """Training of variables that may share a name, in one process.

  Args:
    names: The name of each variable.
    mode: "eager", "function" or "graph_v1".
    drop: What an infinity makes void.
    steps: The number of micro-batches in a window.
    mean: Whether the mean of the gradients is applied.
    inner: The optimizer.
  """

  def __init__(
    self, names, mode="eager", drop="window", steps=4, mean=True, inner=None
  ):
    self.graph = tf.Graph() if mode == "graph_v1" else None
    self.mode = mode
    with contextlib.ExitStack() as stack:
      if self.graph:
        stack.enter_context(helpers.control_flow(v2=False))
        stack.enter_context(self.graph.as_default())
      self.heads = [
        tf1.Variable(0.0, name=name, use_resource=True) for name in names
      ]
      self.opt = tfl.accumulate(
        tfl.MixedPrecisionLossScaleOptimizer(
          inner or tf1.train.GradientDescentOptimizer(1.0),
          tfl.DynamicLossScale(8, 1000),
        ),
        steps,
        drop,
        mean,
      )
      self.checkpoint = tf1.train.Checkpoint(opt=self.opt, heads=self.heads)
      self.status = None
      if self.graph:
        self.feeds = [tf1.placeholder(tf.float32, []) for _ in names]
        self.op = self.apply(range(len(names)), self.feeds)
        self.session = tf1.Session(graph=self.graph)
        self.session.run(tf1.global_variables_initializer())
      self.functions = {}

  def apply(self, order, grads):
    """Applies gradients in an order; None stands for no gradient."""
    return self.opt.apply_gradients([(grads[i], self.heads[i]) for i in order])

  def run(self, grads, order=None):
    """Runs a micro-batch."""
    order = tuple(range(len(self.heads)) if order is None else order)
    if self.graph:
      self.session.run(self.op, dict(zip(self.feeds, grads)))
      return
    tensors = [None if x is None else tf.constant(float(x)) for x in grads]
    if self.mode == "eager":
      self.apply(order, tensors)
      return
    if order not in self.functions:

      def apply(tensors):
        self.apply(order, tensors)

      self.functions[order] = tf.function(apply, autograph=False)
    self.functions[order](tensors)

  def save(self, path):
    if not self.graph:
      return self.checkpoint.save(str(path))
    with self.graph.as_default():
      return self.checkpoint.save(str(path), session=self.session)

  def restore(self, path):
    if not self.graph:
      self.status = self.checkpoint.restore(path)
      self.status.assert_existing_objects_matched()
      return
    with self.graph.as_default():
      self.status = self.checkpoint.restore(path)
      self.status.assert_consumed().initialize_or_restore(self.session)

  def values(self):
    """Returns the values of the heads, and the loss scale."""
    if not self.graph:
      return [float(x) for x in (*self.heads, self.opt.loss_scale())]
    with self.graph.as_default():
      values = [*self.heads, self.opt.loss_scale()]
    return [x.tolist() for x in self.session.run(values)]


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("mode", ["eager", "function", "graph_v1"])
def test_sums_of_variables_that_share_a_name(mode, existing, tmp_path):
  """Checks that an object gets its sum, whatever the order of gradients."""
  batches = [(1.0, 100.0), (3.0, 320.0), (0.0, 0.0), (0.0, 0.0)]
  run = Heads(["kernel", "kernel"], mode)
  for grads in batches[:2]:
    run.run(grads)
  path = run.save(tmp_path / "ckpt")
  for grads in batches[2:]:
    run.run(grads)
  assert run.values() == [-1.0, -105.0, 8.0]
  resumed = Heads(["kernel", "kernel"], mode)
  if existing:
    resumed.run((5.0, 7.0), order=(1, 0))
  resumed.restore(path)
  for grads in batches[2:]:
    resumed.run(grads, order=(1, 0))
  resumed.status.assert_consumed()
  assert resumed.values() == [-1.0, -105.0, 8.0]


def test_a_sum_is_found_by_the_object_and_not_by_the_name(tmp_path):
  run = Heads(["a", "b", "c"])
  run.run((4.0, 8.0, 16.0))
  path = run.save(tmp_path / "ckpt")
  resumed = Heads(["c", "a", "kernel"])
  resumed.restore(path)
  for _ in range(3):
    # In the window to be resumed, some gradients are None or left out.
    resumed.run((0.0, None, 0.0), order=(0, 1))
  assert resumed.values()[:3] == [-1.0, -2.0, -4.0]
  resumed.status.assert_consumed()


def test_a_window_is_restored_again_and_again(tmp_path):
  run, paths = Heads(["v", "v"]), []
  for i in range(3):
    run.run((4.0, 8.0 * i))
    paths.append(run.save(tmp_path / str(i)))
  for chosen in (2, 0, 1, 1):
    run.restore(paths[0])
    run.restore(paths[chosen])
    for _ in range(3 - chosen):
      run.run((0.0, 0.0))
    assert run.values() == [
      -(chosen + 1.0),
      -2.0 * sum(range(chosen + 1)),
      8.0,
    ]
    resumed = Heads(["v", "v"])
    resumed.restore(paths[0])
    resumed.restore(paths[chosen])  # Both restores wait.
    for _ in range(3 - chosen):
      resumed.run((0.0, 0.0), order=(1, 0))
    assert resumed.values() == run.values()


@pytest.mark.parametrize("mode", ["eager", "graph_v1"])
def test_a_window_without_its_variables_is_not_saved(mode, tmp_path):
  run = Heads(["v", "w"], mode)
  run.run((1.0, 2.0))
  run.checkpoint = tf1.train.Checkpoint(opt=run.opt, v=run.heads[0])
  with pytest.raises(ValueError, match=r"but w:0 cannot be found .* track the"):
    run.save(tmp_path / "ckpt")
  if mode == "eager":
    for _ in range(3):
      run.run((1.0, 2.0))
    run.save(tmp_path / "ckpt")  # The window is empty.


_WINDOW, _MICRO = "window", "micro_batch"


@pytest.mark.parametrize("mode", ["eager", "function", "graph_v1"])
@pytest.mark.parametrize(
  ("saved", "before", "after", "mean"),
  [
    (7, (8, _WINDOW), (2, _WINDOW), True),
    (7, (8, _WINDOW), (2, _WINDOW), False),
    (7, (8, _MICRO), (2, _MICRO), True),
    (3, (4, _WINDOW), (8, _WINDOW), True),
    (3, (4, _MICRO), (4, _WINDOW), True),
    (3, (4, _MICRO), (4, _WINDOW), False),
    (3, (4, _WINDOW), (4, _MICRO), True),
    (5, (8, _MICRO), (3, _WINDOW), True),
  ],
)
def test_other_arguments_in_a_resumed_window(
  mode, saved, before, after, mean, tmp_path
):
  """Checks that the divisor is what was added, in this window and the next."""
  rng = np.random.default_rng(saved)
  grads = rng.integers(-8, 8, [saved + 16, 1]).astype(float)
  if before[1] == _MICRO:
    grads[1] = math.inf
  run = Heads(["v"], mode, before[1], before[0], mean)
  for grad in grads[:saved]:
    run.run(grad)
  path = run.save(tmp_path / "ckpt")
  resumed = Heads(["v"], mode, after[1], after[0], mean)
  resumed.restore(path)
  first = max(saved + 1, after[0])
  value, scale, begin = 0.0, 8.0, 0
  for end in (first, first + after[0]):
    window = grads[begin:end]
    kept = window[np.isfinite(window)]
    value -= kept.mean() if mean else kept.sum()
    scale /= 1 if kept.size == window.size else 2
    for grad in grads[max(begin, saved) : end]:
      resumed.run(grad)
    begin = end
    np.testing.assert_allclose(resumed.values(), [value, scale], rtol=1e-6)


@pytest.mark.parametrize(
  "mode",
  [
    *("eager", "graph_v2"),
    pytest.param("graph_v1", marks=pytest.mark.thorough),
    pytest.param("function", marks=pytest.mark.thorough),
  ],
)
def test_other_steps_in_a_resumed_window_of_replicas(mode, tmp_path):
  schedule = np.random.default_rng(4).integers(-8, 8, [5, 2]).astype("float32")
  schedule[1, 0] = math.nan  # Left out by the first replica.
  with contextlib.ExitStack() as stack:
    program = Program(mode, stack, 8, "micro_batch")
    for row in schedule[:4]:
      program.run(row)
    path = program.save(str(tmp_path / "ckpt"))
  with contextlib.ExitStack() as stack:
    program = Program(mode, stack, 2, "window")
    status = program.checkpoint.restore(path)
    if program.graph is not None:
      status.initialize_or_restore(program.session)
    program.run(schedule[4])
    kept = schedule[np.isfinite(schedule)]
    expected = np.float32([1, 2]) - np.float32(0.5) * kept.sum() / (
      np.float32(kept.size / 2)
    )
    seen = program.values()
    np.testing.assert_allclose(seen[0], expected, rtol=1e-6)
    assert seen[1:] == [seen[0], 1, 4.0]


@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_a_saver_within_a_window(mode, tmp_path):
  make = lambda: tfl.accumulate(  # noqa: E731
    tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale(8, 2)
    ),
    3,
  )
  schedule = [1.0, 0.3, 0.7, -0.2, 0.1, 0.9]
  with helpers.Trainer(mode, make) as trainer:
    for grad in schedule[:4]:
      trainer.step(grad)
    with trainer.graph.as_default():
      saver = tf1.train.Saver()
    path = saver.save(trainer.session, str(tmp_path / "ckpt"))
    names = dict(tf.train.list_variables(path))
    for grad in schedule[4:]:
      trainer.step(grad)
    expected = trainer.state()
  assert names["v0/accumulated_gradient"] == [2]
  assert names["accumulation/micro_batches"] == []
  assert names["accumulation/kept"] == []
  with helpers.Trainer(mode, make) as trainer:
    with trainer.graph.as_default():
      tf1.train.Saver().restore(trainer.session, path)
    for grad in schedule[4:]:
      trainer.step(grad)
    helpers.assert_same_state(trainer.state(), expected)


@pytest.mark.parametrize("kind", ["eager", "function"])
def test_last_step_applied_belongs_to_windows(kind):
  v = tf.Variable([1.0])
  opt = tfl.accumulate(
    tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.5), tfl.DynamicLossScale(8, 2)
    ),
    2,
  )
  with pytest.raises(RuntimeError, match="taken no step"):
    print(opt.last_step_applied)

  def step(grad):
    opt.minimize(lambda: v * grad, var_list=[v])

  if kind == "function":
    step = tf.function(step, autograph=False)
  step(tf.constant(1.0))
  seen = []
  for grad in (1.0, math.inf, 1.0, 1.0, 1.0):
    step(tf.constant(grad))
    seen.append(bool(opt.last_step_applied))
  assert seen == [True, True, False, False, True]


@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_last_step_applied_in_graphs(mode):
  make = lambda: tfl.accumulate(  # noqa: E731
    tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.5), tfl.DynamicLossScale(8, 2)
    ),
    2,
  )
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
    ({"drop": "none"}, "drop must be 'window' or 'micro_batch'"),
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

  class Scales(tfl.MixedPrecisionLossScaleOptimizer):
    def _scale_loss(self, loss):
      return loss

  sgd = tf1.train.GradientDescentOptimizer(0.5)
  once = tfl.accumulate(tfl.MixedPrecisionLossScaleOptimizer(sgd, 8), 2)
  for opt, message in [
    (once, "accumulates already"),
    (Own(sgd, 8), r"Own has a apply_gradients\(\) of its own"),
    (Scales(sgd, 8), r"Scales has a _scale_loss\(\) of its own"),
  ]:
    with pytest.raises(ValueError, match=message):
      tfl.accumulate(opt, 2)


if __name__ == "__main__":
  helpers.main()
