# SPDX-License-Identifier: Apache-2.0
"""Tests that training under `MonitoredTrainingSession` resumes where it was."""

import helpers
import numpy as np
import pytest
from scaled_optimizers import dynamic
from scaled_optimizers import wrap
import tensorflow as tf
import trainers

tf1 = tf.compat.v1


def train(mode, folder, until):
  """Trains until a number of runs, and yields the state after each run.

  Runs of earlier sessions count.
  """
  with helpers.mode_scope(mode):
    x = tf1.placeholder(tf.float32, [8, 4])
    poison = tf1.placeholder(tf.float32, [])
    w = tf1.get_variable("w", initializer=np.full([4, 3], 0.1, np.float32))
    step = tf1.train.get_or_create_global_step()
    runs = tf1.get_variable("runs", initializer=np.int64(0))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1)) * poison
    opt = wrap(dynamic(2.0**10, 4), lambda: tf1.train.AdamOptimizer(0.01))()
    with tf.control_dependencies([opt.minimize(loss, global_step=step)]):
      train_op = tf1.assign_add(runs, 1)
    state = {v.op.name: v for v in tf1.global_variables()}
    with tf1.train.MonitoredTrainingSession(
      checkpoint_dir=str(folder),
      save_checkpoint_steps=5,
      save_summaries_steps=None,
      save_summaries_secs=None,
      log_step_count_steps=None,
    ) as session:

      def without_hooks(fetches):
        return session.run_step_fn(
          lambda step_context: step_context.session.run(fetches)
        )

      run = without_hooks(runs)
      while run < until:
        feeds = {
          x: np.random.RandomState(run).randn(8, 4),
          poison: np.inf if run % 7 in (3, 4) else 1.0,
        }
        run = session.run(train_op, feeds)
        yield run, without_hooks(state)
        if until == 20 and run == 13:
          raise InterruptedError  # The session closes without saving.


@pytest.mark.any_release
@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_resumes(mode, tmp_path):
  whole = dict(train(mode, tmp_path / "whole", 40))
  states = []
  with pytest.raises(InterruptedError):
    states.extend(train(mode, tmp_path / "parts", 20))
  states.extend(train(mode, tmp_path / "parts", 40))
  assert [run for run, _ in states[:13]] == list(range(1, 14))
  assert 5 < states[13][0] <= 13  # It goes on from the last checkpoint.
  assert states[-1][0] == 40
  for run, state in states:
    trainers.assert_same_state(state, whole[run])
  scales = {float(state["current_loss_scale"]) for state in whole.values()}
  assert len(scales) > 2
