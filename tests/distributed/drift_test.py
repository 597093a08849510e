# SPDX-License-Identifier: Apache-2.0
"""Tests the check for drift, with workers that the test plays."""

import helpers
from helpers import tf1
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import distributed


def wrap(loss_scale):
  opt = tf1.train.GradientDescentOptimizer(0.5)
  if isinstance(loss_scale, contrib.LossScaleManager):
    return contrib.LossScaleOptimizer(opt, loss_scale)
  return tfl.MixedPrecisionLossScaleOptimizer(opt, loss_scale)


def gather_with(change, workers=3):
  """Returns an all-gather whose last worker's row is changed."""

  def all_gather(row):
    return tf.stack([*[row] * (workers - 1), row + change(row)])

  return all_gather


def no_change(row):
  return tf.zeros_like(row)


def scale_of_last(row):
  return tf.one_hot(0, row.shape[0], dtype=row.dtype)


def test_equal_states_pass():
  opt = wrap(tfl.DynamicLossScale(8))
  distributed.check_drift(opt, gather_with(no_change))


def test_the_error_names_values_and_workers():
  opt = wrap(tfl.DynamicLossScale(8))
  with pytest.raises(distributed.DriftError) as caught:
    distributed.check_drift(opt, gather_with(scale_of_last))
  assert (
    "3 workers differ: the loss scale is 8 on workers 0, 1 and 9 on worker 2."
  ) in str(caught.value)
  assert caught.value.values == {"the loss scale": [8, 8, 9]}

  def good(row):
    return tf.one_hot(1, row.shape[0], dtype=row.dtype)

  with pytest.raises(distributed.DriftError, match="good_steps is 0 on worker"):
    distributed.check_drift(opt, gather_with(good, 2))


def test_each_kind_of_loss_scale():
  manager = contrib.ExponentialUpdateLossScaleManager(8, 2)
  for opt in (wrap(tfl.FixedLossScale(8)), wrap(manager)):
    distributed.check_drift(opt, gather_with(no_change))
    with pytest.raises(distributed.DriftError, match="the loss scale is 8"):
      distributed.check_drift(opt, gather_with(scale_of_last))


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_hook(mode):
  """The hook counts steps, skipped ones too, and no other runs."""
  calls = []
  with helpers.mode_scope(mode):
    x = tf1.placeholder(tf.float32, [])
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    opt = wrap(tfl.DynamicLossScale(8))
    step = tf1.train.get_or_create_global_step()
    op = opt.minimize(v * x, step)
    drifted = tf1.get_variable("drifted", initializer=0.0, use_resource=True)
    drift = drifted.assign(1.0)

    def count():
      calls.append(1)
      return np.int64(0)

    def all_gather(row):
      counted = tf1.py_func(count, [], tf.int64)
      with tf.control_dependencies([counted]):
        change = tf.cast(drifted, tf.float64)
      return tf.stack([row, row + change])

    hook = distributed.DriftHook(opt, 3, all_gather)
    with tf1.train.MonitoredTrainingSession(hooks=[hook]) as session:
      for i in range(7):
        session.run([op, v], {x: np.inf if i % 2 else 1.0})
        session.run(v)
      assert len(calls) == 2
      session.run(drift)
      session.run(op, {x: 1.0})
      with pytest.raises(distributed.DriftError, match="after 9 steps"):
        session.run(op, {x: 1.0})


def test_a_run_that_feeds_what_it_fetches_does_no_step():
  calls = []
  with helpers.mode_scope("graph_v1"):
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    opt = wrap(tfl.DynamicLossScale(8))
    with tf.control_dependencies([opt.minimize(v * 1.0)]):
      after = tf.identity(v)

    def all_gather(row):
      counted = tf1.py_func(lambda: calls.append(1) or np.int64(0), [], "int64")
      with tf.control_dependencies([counted]):
        return row[None] + 0.0

    hook = distributed.DriftHook(opt, 1, all_gather)
    with tf1.train.MonitoredSession(hooks=[hook]) as session:
      session.run(after)
      assert len(calls) == 1
      assert session.run(after, {after: 5.0}) == 5.0
      assert len(calls) == 1


def test_a_finalized_graph_that_the_hook_knows():
  with helpers.mode_scope("graph_v1"):
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    opt = wrap(tfl.DynamicLossScale(8))
    op = opt.minimize(v * 1.0)
    gathered = []

    def all_gather(row):
      gathered.append(row)
      return row[None]

    hook = distributed.DriftHook(opt, 1, all_gather)
    for _ in range(2):
      with tf1.train.MonitoredSession(hooks=[hook]) as session:
        session.run(op)
        assert session.run(v) == 0.5
  assert len(gathered) == 1


def test_arguments_are_checked():
  opt = wrap(tfl.DynamicLossScale(8))
  for make in (distributed.check_drift, distributed.DriftHook):
    with pytest.raises(ValueError, match="all_gather must be 'horovod'"):
      make(opt, all_gather="mpi")
    with pytest.raises(ValueError, match="optimizer must be"):
      make(tf1.train.GradientDescentOptimizer(1.0), all_gather=lambda x: x)
  with pytest.raises(ValueError, match="every_n_steps"):
    distributed.DriftHook(opt, 0, lambda x: x)
  with pytest.raises(ValueError, match="a matrix with 2 columns"):
    distributed.check_drift(opt, lambda row: row)
  with tf.Graph().as_default(), pytest.raises(RuntimeError, match="in a graph"):
    distributed.check_drift(opt, lambda row: row[None])


if __name__ == "__main__":
  helpers.main()
