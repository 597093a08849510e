# SPDX-License-Identifier: Apache-2.0
"""Tests that killed training resumes and gives the same states.

A child process trains under `MonitoredTrainingSession`. SIGKILL ends the child
at random moments: while the child builds, restores, trains or saves.
"""

import hashlib
import os
import random
import re
import signal
import time

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1

_KILLS = 8


def train(model_dir, log, until):
  """Trains until a number of runs, and logs the state after each.

  Args:
    model_dir: The folder to resume from and to save checkpoints to.
    log: The file to append a line to for each run.
    until: The number of runs, including those of earlier processes.
  """
  with tf.Graph().as_default(), open(log, "a", encoding="ascii") as lines:
    x = tf1.placeholder(tf.float32, [8, 4])
    poison = tf1.placeholder(tf.float32, [])
    w = tf1.get_variable("w", initializer=np.full([4, 3], 0.1, np.float32))
    step = tf1.train.get_or_create_global_step()
    runs = tf1.get_variable("runs", initializer=np.int64(0))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1)) * poison
    loss_scale = tfl.DynamicLossScale(2.0**10, increment_period=4)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.01), loss_scale
    )
    train_op = opt.minimize(loss, global_step=step)
    with tf.control_dependencies([train_op]):
      train_op = tf1.assign_add(runs, 1)
    state = [loss_scale(), loss_scale._num_good_steps, step]
    rest = [w, *opt.variables()]
    with tf1.train.MonitoredTrainingSession(
      checkpoint_dir=model_dir,
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
      lines.write(f"resumed {run}\n")
      while run < until:
        feeds = {
          x: np.random.RandomState(run).randn(8, 4),
          poison: np.inf if run % 7 in (3, 4) else 1.0,
        }
        run = session.run(train_op, feeds)
        scale, good_steps, steps = without_hooks(state)
        digest = hashlib.sha256()
        for value in without_hooks(rest):
          digest.update(value.tobytes())
        lines.write(
          f"{run} {scale} {good_steps} {steps} {digest.hexdigest()}\n"
        )
        lines.flush()


@pytest.mark.any_release
@pytest.mark.thorough
def test_resumes_after_sigkill(tmp_path):
  rng = random.Random(time.time_ns())
  model_dir, log = str(tmp_path / "model"), str(tmp_path / "log")
  printed = tmp_path / "printed"

  def start(*args):
    """Starts training in a forked process."""
    code = f"{helpers.import_line(__file__)}test.train(*{args})"
    with open(printed, "a") as file:
      return helpers.start_forked("-c", code, stdout=file, stderr=file)

  start(model_dir, log, 0).wait()  # So the fork server is up before timing.
  # The first child shows how long this machine takes to start training.
  os.remove(log)
  born = time.monotonic()
  with start(model_dir, log, 10**9) as child:
    while not os.path.exists(log) or os.path.getsize(log) < 100:
      assert child.poll() is None, printed.read_text()
      assert time.monotonic() - born < 120
      time.sleep(0.01)
    start_up = time.monotonic() - born
    child.kill()
  # One random moment in each of equal parts, so that some are late enough.
  parts = list(range(_KILLS - 1))
  rng.shuffle(parts)
  for part in parts:
    with start(model_dir, log, 10**9) as child:
      time.sleep((part + rng.random()) / len(parts) * 2.5 * start_up)
      assert child.poll() is None, printed.read_text()
      child.kill()
      assert child.wait() == -signal.SIGKILL
  with open(log, encoding="ascii") as f:
    # A kill may have cut a line short.
    lines = [line.split() for line in f.read().splitlines()]
  seen = max(int(line[0]) for line in lines if re.fullmatch(r"\d+", line[0]))
  resumed = [int(line[1]) for line in lines if line[0] == "resumed"]
  assert len(resumed) > _KILLS // 3, "Too few children lived to train."
  assert max(resumed) >= 5, "Training made no progress."

  whole = str(tmp_path / "whole")
  for args in ((model_dir, log), (str(tmp_path / "model2"), whole)):
    with start(*args, seen + 100) as last:
      assert last.wait(120) == 0, printed.read_text()

  with open(whole, encoding="ascii") as f:
    expected = dict(line.split(" ", 1) for line in f)
  assert len({line.split()[0] for line in expected.values()}) > 2  # Scales.
  with open(log, encoding="ascii") as f:
    lines = [line for line in f if len(line.split()) == 5]
  compared = 0
  for line in lines:
    run, state = line.split(" ", 1)
    assert state.endswith("\n") and state == expected[run], f"run {run}"
    compared += 1
  print(f"{_KILLS} kills, resumed at {resumed}, {compared} runs compared")
  assert compared > 100
  assert os.path.exists(os.path.join(model_dir, "checkpoint"))
