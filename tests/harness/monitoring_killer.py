# SPDX-License-Identifier: Apache-2.0
"""Trains with checkpoints and a hook; the test kills this program.

  python monitoring_killer.py FOLDER STEPS KIND [STEP_TO_DIE_AT [MOMENT]]

The gradient of a step depends only on the steps before, so a restarted run does
the same steps as one that was never killed. KIND is one of `KINDS`. The program
kills itself at a step: before the session runs the step, while the hook writes
the line, or after that.
"""

import os
import signal
import sys

import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import monitoring
from tf_compat_lossscale import policies

tf1 = tf.compat.v1

# Name -> the loss scale, the shares of bad steps, whether there is a global
# step.
KINDS = {
  "skips": (lambda: tfl.DynamicLossScale(2.0**40, 4), 0.25, True),
  "growth": (lambda: tfl.DynamicLossScale(8.0, 3), 0.05, True),
  "policy": (lambda: policies.GrowthBackoff(64.0, 4, hysteresis=3), 0.5, True),
  "plateau": (lambda: policies.GrowthBackoff(1.0, 50), 0.6, True),
  "fixed": (lambda: tfl.FixedLossScale(8.0), 0.0, True),
  "no global step": (lambda: tfl.DynamicLossScale(2.0**40, 4), 0.25, False),
}


def main(folder, steps, kind, dies_at=None, moment="before"):
  make, share, with_step = KINDS[kind]
  # Counts attempted steps; the hook does not know it.
  attempted = tf1.get_variable(
    "attempted", [], tf.int64, tf1.zeros_initializer(), trainable=False
  )
  v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
  factor = tf1.placeholder(tf.float32, [])
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.GradientDescentOptimizer(0.5), make()
  )
  global_step = tf1.train.get_or_create_global_step() if with_step else None
  train = opt.minimize(tf.reduce_sum(v * factor), global_step)
  with tf.control_dependencies([train]):
    train = tf1.assign_add(attempted, 1).op
  hook = monitoring.LossScaleHook(opt, f"{folder}/log", every_n_steps=7)
  hook.begin()
  saver = tf1.train.Saver()
  bad = np.random.default_rng(1).random(10_000) < share

  write = os.write

  def die():
    os.kill(os.getpid(), signal.SIGKILL)

  def write_half(file, data):
    write(file, data[: len(data) // 2])
    die()

  with tf1.Session() as session:
    session.run(tf1.global_variables_initializer())
    latest = tf1.train.latest_checkpoint(f"{folder}/checkpoints")
    if latest:
      saver.restore(session, latest)
    step = int(session.run(attempted))
    while step < steps:
      if dies_at is not None and step + 1 >= dies_at:
        if moment == "before":
          die()
        elif moment == "while":
          os.write = write_half
      hook.run(session, train, {factor: np.inf if bad[step] else 1.0})
      step += 1
      if dies_at is not None and step >= dies_at:
        if moment == "after":
          die()
        os.write = write  # The step had no line.
      if step % 10 == 0:
        os.makedirs(f"{folder}/checkpoints", exist_ok=True)
        saver.save(session, f"{folder}/checkpoints/model", step)
    hook.end(session)


if __name__ == "__main__":
  with tf.Graph().as_default():
    rest = sys.argv[4:]
    main(
      *sys.argv[1:2],
      int(sys.argv[2]),
      sys.argv[3],
      *map(int, rest[:1]),
      *rest[1:],
    )
