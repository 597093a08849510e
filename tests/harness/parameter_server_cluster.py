# SPDX-License-Identifier: Apache-2.0
"""A task of a cluster with parameter servers, in TensorFlow 1's way.

Usage: parameter_server_cluster.py JSON, with the keys that `main` reads. A
worker prints its state after each attempt of a step. A worker with the key
`halt`, a point of its program and a number, stops when it comes to that point
for the so-manieth time, and prints the key `at`. It goes on when the file
`POINT.go` is in its folder.
"""

import faulthandler
import json
import os
import pathlib
import signal
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale.distributed import sessions

tf1 = tf.compat.v1


def draw_factors(seed, steps):
  """Returns the factors of gradients, by global step."""
  rng = np.random.RandomState(seed)
  return (rng.randint(1, 9, steps) / 8).astype(np.float32)


def build(factors, sync_workers=0, module=tfl):
  """Builds a program whose gradients overflow at a high loss scale.

  What a step does depends on the variables alone. So after a restart from a
  checkpoint, training repeats the same steps.

  Returns:
    A list of tensors, which do a step and are the state after the step: global
    step, variable, slot, scale and good steps. And the optimizer.
  """
  with tf1.variable_scope("model", use_resource=True):
    v = tf1.get_variable("v", [3], initializer=tf1.ones_initializer())
  step = tf1.train.get_or_create_global_step()
  inner = tf1.train.MomentumOptimizer(0.01, 0.9)
  scale = module.DynamicLossScale(8, 4)
  opt = module.MixedPrecisionLossScaleOptimizer(inner, scale)
  if sync_workers:
    opt = tf1.train.SyncReplicasOptimizer(opt, sync_workers, sync_workers)
  factor = tf.gather(tf.constant(factors), tf.identity(step))
  factor = tf.where(scale() * factor > 32, np.float32(np.inf), factor)
  op = opt.minimize(tf.reduce_sum(v * v * factor), global_step=step)
  with tf.control_dependencies([op]):
    values = [step, v, inner.get_slot(v, "momentum")]
    values += [scale._current_loss_scale, scale._num_good_steps]
    return [x.read_value() for x in values], opt


def train_alone(seed, steps):
  """Returns the states of a run that nothing interrupts, by global step."""
  states = {}
  with tf.Graph().as_default(), tf1.Session() as session:
    state, _ = build(draw_factors(seed, steps + 1))
    session.run(tf1.global_variables_initializer())
    while len(states) < steps:
      values = [x.tolist() for x in session.run(state)]
      states.setdefault(values[0], []).append(values)
  return states


def write(row):
  """Prints a row of JSON."""
  print(json.dumps(row), flush=True)


class Halt:
  """The point where a program stops until a file is written."""

  def __init__(self, folder, point, count):
    self._folder, self._point, self._count = folder, point, count

  def reach(self, point):
    """Stops if `point` is reached for the last time."""
    self._count -= point == self._point
    if point == self._point and self._count == 0:
      write({"at": point})
      while not (pathlib.Path(self._folder) / f"{point}.go").exists():
        time.sleep(0.02)


class HaltSaver(tf1.train.Saver):
  """A Saver that stops before it writes, and after it has restored."""

  def __init__(self, halt):
    super().__init__(sharded=True)
    self._halt = halt

  def restore(self, *args):
    super().restore(*args)
    self._halt.reach("restore")

  def save(self, *args, **kwargs):
    self._halt.reach("save")
    return super().save(*args, **kwargs)


class HaltHook(tf1.train.SessionRunHook):
  """A hook that stops when it is called."""

  def __init__(self, halt):
    self._halt = halt

  def after_create_session(self, session, coord):
    self._halt.reach("ready")

  def before_run(self, run_context):
    self._halt.reach("step")

  def end(self, session):
    self._halt.reach("end")


def main():
  """Runs a task; a worker trains until `steps` attempts are made."""
  faulthandler.register(signal.SIGUSR1)  # Shows where a task waits.
  given = json.loads(sys.argv[1])
  job, index, cluster = given["job"], given["index"], given["cluster"]
  tf1.disable_eager_execution()
  if not given["v2"]:
    tf1.disable_control_flow_v2()
  module = tfl if given.get("module", "tfl") == "tfl" else tf1.mixed_precision
  server = tf1.train.Server(cluster, job_name=job, task_index=index)
  write({"ready": 1})
  if job == "ps":
    server.join()
  setter = tf1.train.replica_device_setter(
    worker_device=f"/job:worker/task:{index}", cluster=cluster
  )
  factors = draw_factors(given["seed"], given["steps"] + 1000)
  workers = len(cluster["worker"]) if given["sync"] else 0
  with tf.Graph().as_default(), tf1.device(setter):
    state, opt = build(factors, workers, module)
    is_chief = index == 0
    halt = Halt(given["folder"], *given.get("halt", ["nowhere", 0]))
    scaffold = tf1.train.Scaffold(
      init_fn=lambda scaffold, session: halt.reach("init"),
      saver=HaltSaver(halt),
    )
    hooks = [HaltHook(halt)]
    if workers:
      hooks.append(opt.make_session_run_hook(is_chief, num_tokens=0))
    try:
      with sessions.open_session(
        server,
        is_chief,
        given["folder"] if is_chief else None,
        save_steps=given["save_every"],
        hooks=hooks,
        scaffold=scaffold,
        limit=given["limit"],
      ) as session:
        values = [0]
        while values[0] < given["steps"]:
          values = [x.tolist() for x in session.run(state)]
          write({"state": values})
          time.sleep(given.get("pause", 0))
        write({"end": values})
        if workers:
          time.sleep(
            5
          )  # The chief's queue serves the other workers' last step.
    except tf.errors.OpError as error:
      write({"error": [type(error).__name__, error.message]})
      os._exit(3)
  os._exit(0)


if __name__ == "__main__":
  main()
