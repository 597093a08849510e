# SPDX-License-Identifier: Apache-2.0
"""Tests that checkpoints keep the window of `accumulate`."""

import math

import helpers
from helpers import GRAPH_MODES
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


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


def test_a_sum_is_found_by_the_object_and_not_by_the_name(tmp_path):
  run = Heads(["a", "b", "c"])
  run.run((4.0, 8.0, 16.0))
  resumed = Heads(["c", "a", "kernel"])
  status = resumed.restore(run.save(tmp_path / "ckpt"))
  for _ in range(3):
    resumed.run((0.0, None, None))  # In the window to be resumed.
  assert resumed.values()[:3] == [-1.0, -2.0, -4.0]
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


if __name__ == "__main__":
  helpers.main()
