# SPDX-License-Identifier: Apache-2.0
"""A task of a cluster that trains by `SyncReplicasOptimizer`.

Usage: sync_replicas_cluster.py JSON, with the keys that `main` reads.
"""

import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import growth_backoff_oracle
import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1


class Clipping(tf1.train.Optimizer):
  """An optimizer that clips gradients for the optimizer that it wraps."""

  def __init__(self, opt):
    super().__init__(False, "clipping")
    self._opt = opt

  def compute_gradients(self, *args, **kwargs):
    return self._opt.compute_gradients(*args, **kwargs)

  def apply_gradients(self, grads_and_vars, *args, **kwargs):
    grads, variables = zip(*grads_and_vars)
    grads, _ = tf.clip_by_global_norm(grads, 100.0)
    pairs = list(zip(grads, variables))
    return self._opt.apply_gradients(pairs, *args, **kwargs)


def scale_by_name(kind, opt, window):
  """Returns an optimizer with a loss scale, and its state's tensors."""
  accumulate = lambda opt: tfl.accumulate(opt, window) if window else opt  # noqa: E731
  if kind == "contrib":
    manager = contrib.ExponentialUpdateLossScaleManager(8, 3, 1, 2.0, 0.5)
    wrapped = contrib.LossScaleOptimizer(opt, manager)
    return accumulate(wrapped), [manager.get_loss_scale(), manager.good_steps]
  if kind == "policy":
    scale = policies.GrowthBackoff(
      8, growth_interval=3, growth_factor=2.0, backoff_factor=0.5
    )
  else:
    scale = tfl.DynamicLossScale(8, 3)
  wrapped = tfl.MixedPrecisionLossScaleOptimizer(opt, scale)
  wrapped = accumulate(wrapped)
  state = [scale(), *list(scale._weights.values())[1:2]]
  return Clipping(wrapped) if kind == "clip" else wrapped, state


def build(kind, aggregated, total, use_resource=True, window=None):
  """Builds a program with a dense and a sparse gradient.

  Returns:
    The factor of the gradients to feed, the op of a step, the state's tensors
    (global step, dense, sparse, scale, good steps), the optimizer.
  """
  with tf1.variable_scope("model", use_resource=use_resource):
    ones = tf1.ones_initializer()
    dense = tf1.get_variable("dense", [2], initializer=ones)
    sparse = tf1.get_variable("sparse", [3, 2], initializer=ones)
  step = tf1.train.get_or_create_global_step()
  opt = tf1.train.GradientDescentOptimizer(0.125)
  opt, state = scale_by_name(kind, opt, window)
  opt = tf1.train.SyncReplicasOptimizer(opt, aggregated, total)
  factor = tf1.placeholder(tf.float32, [])
  loss = tf.reduce_sum(dense * factor)
  loss += tf.reduce_sum(tf.gather(sparse, [0, 0, 2]) * factor)
  op = opt.minimize(loss, global_step=step)
  read = [step, dense, sparse, *state]
  return factor, op, [tf.identity(x) for x in read], opt


def build_barrier(index, total):
  """Returns ops that tell the other workers, and wait until they have told.

  The token that lets a worker go on says nothing of its owner: a worker that is
  fast may take its own and that of a slow one, and give two gradients to one
  step. Workers that meet after each step cannot.
  """
  with tf1.device("/job:ps/task:0"):
    queues = [
      tf1.FIFOQueue(100, [tf.int32], [[]], shared_name=f"barrier{i}")
      for i in range(total)
    ]
  others = [queue for i, queue in enumerate(queues) if i != index]
  return [queue.enqueue(0) for queue in others], [
    queues[index].dequeue_many(len(others))
  ]


def draw_bad(seed, worker, steps, rate):
  """Returns for each step of a worker whether its gradients are infinite."""
  return np.random.RandomState(seed + worker).rand(steps) < rate


def model(applied):
  """Returns the state after attempts of steps, applied or not, by NumPy."""
  rule, step = growth_backoff_oracle.Rule(8.0, growth_interval=3), sum(applied)
  scale, good, *_ = [rule.start(), *rule.run(applied)][-1]
  dense = np.full([2], 1 - 0.125 * step, np.float32)
  sparse = np.ones([3, 2], np.float32)
  sparse[0] -= 0.25 * step
  sparse[2] -= 0.125 * step
  return [step, dense.tolist(), sparse.tolist(), scale, good]


def model_windows(bad, steps):
  """Returns what `model` does, for windows of micro-batches, bad or not."""
  windows = np.reshape(bad[: len(bad) // steps * steps], [-1, steps])
  return model(~windows.any(axis=1))


def main():
  """Runs a task; a worker prints the state at its end as JSON."""
  given = json.loads(sys.argv[1])
  job, index, cluster = given["job"], given["index"], given["cluster"]
  (tf1.enable_control_flow_v2 if given["v2"] else tf1.disable_control_flow_v2)()
  tf1.disable_eager_execution()
  server = tf1.train.Server(cluster, job_name=job, task_index=index)
  if job == "ps":
    server.join()
  total = len(cluster["worker"])
  setter = tf1.train.replica_device_setter(
    worker_device=f"/job:worker/task:{index}", cluster=cluster
  )
  with tf.Graph().as_default(), tf1.device(setter):
    factor, op, state, opt = build(
      given["kind"],
      given["aggregated"],
      total,
      given["use_resource"],
      given.get("window"),
    )
    tell, wait = build_barrier(index, total)
    hook = opt.make_session_run_hook(index == 0, num_tokens=given["tokens"])
    config = tf1.ConfigProto(operation_timeout_in_ms=60_000)
    steps, seed = given["steps"], given["seed"]
    with tf1.train.MonitoredTrainingSession(
      server.target,
      is_chief=index == 0,
      hooks=[hook],
      config=config,
      stop_grace_period_secs=1,
    ) as session:
      for bad in draw_bad(seed, index, steps, given["bad"]):
        session.run(op, {factor: np.inf if bad else 1.0})
        if given["lockstep"]:
          session.run(tell)
          session.run(wait)
      values = session.run(state)
      print(json.dumps({"state": [x.tolist() for x in values]}), flush=True)
      while True:  # Other workers need this worker until they are killed.
        time.sleep(0.05)  # The loss scale doubles with each third step.
        session.run(op, {factor: 1.0})


if __name__ == "__main__":
  main()
