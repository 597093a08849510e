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
from tf_compat_lossscale import monitoring

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
      run = tf.function(run) if mode == "function" else run
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
def test_monitor_counts_windows(kind):
  v = tf.Variable([1.0])
  opt = tfl.accumulate(
    tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.5), tfl.DynamicLossScale(8, 2)
    ),
    2,
  )
  monitor = monitoring.Monitor(opt, every_n_steps=1)
  with pytest.raises(RuntimeError, match="taken no step"):
    print(opt.last_step_applied)

  def step(grad):
    opt.minimize(lambda: v * grad, var_list=[v])

  step = tf.function(step) if kind == "function" else step
  seen = []
  for grad in (1.0, 1.0, math.inf, 1.0, 1.0, 1.0):
    step(tf.constant(grad))
    seen.append(monitor.step())
  assert seen == [None, True, None, False, None, True]
  assert opt.last_step_applied


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
    with pytest.raises(ValueError, match=r"LossScaleHook.*accumulat"):
      monitoring.LossScaleHook(trainer.opt)


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
