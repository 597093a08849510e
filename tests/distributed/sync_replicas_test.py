# SPDX-License-Identifier: Apache-2.0
"""Tests `SyncReplicasOptimizer` around an optimizer with a loss scale."""

import json

import clusters
import helpers
import numpy as np
import pytest
import sync_replicas_cluster
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1

_TASK = str(helpers.TESTS / "distributed" / "sync_replicas_cluster.py")
_KINDS = ("plain", "contrib", "policy", "clip")


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize(
  ("mode", "kind", "use_resource"),
  helpers.pairs(helpers.GRAPH_MODES, _KINDS, [True, False]),
)
def test_skipped_steps_of_one_worker(mode, kind, use_resource, window):
  """Checks the state after each micro-batch, also after skips in a row."""
  bad = sync_replicas_cluster.draw_bad(1, 0, 40, 0.5 if window == 1 else 0.3)
  with helpers.mode_scope(mode):
    factor, op, state, opt = sync_replicas_cluster.build(
      kind, 1, 1, use_resource, window if window > 1 else None
    )
    with start_session(opt) as session:
      both = [op, *opt.get_chief_queue_runner().enqueue_ops]
      for i, value in enumerate(bad):
        session.run(both, {factor: np.inf if value else 1.0})
        got = [x.tolist() for x in session.run(state)]
        want = sync_replicas_cluster.model_windows(bad[: i + 1], window)
        assert got == want, i


def start_session(sync):
  """Returns a session that runs the chief's queue only if a test does so."""
  config = tf1.ConfigProto(operation_timeout_in_ms=20_000)
  session = tf1.Session(config=config)
  session.run(tf1.global_variables_initializer())
  session.run(tf1.local_variables_initializer())
  session.run(sync.chief_init_op)
  return session


def start(folder, **given):
  """Returns a cluster of a parameter server and two workers."""
  given["cluster"] = clusters.find_addresses({"ps": 1, "worker": 2})
  cluster = clusters.Cluster(folder)
  for job, index in (("ps", 0), ("worker", 0), ("worker", 1)):
    arguments = json.dumps({**given, "job": job, "index": index})
    cluster.start(f"{job}{index}", _TASK, arguments)
  return cluster


@pytest.mark.machines
@pytest.mark.parametrize(
  ("kind", "v2", "use_resource", "window"),
  [
    ("plain", False, False, 1),
    ("clip", True, True, 4),
  ],
)
def test_two_workers_in_lockstep(tmp_path, kind, v2, use_resource, window):
  """Checks that infinities of each worker make the step of both skipped."""
  given = {"kind": kind, "v2": v2, "use_resource": use_resource, "seed": 3}
  given |= {"steps": 200, "bad": 0.1, "aggregated": 2, "tokens": 0}
  given |= {"lockstep": True, "window": window if window > 1 else None}
  with start(tmp_path, **given) as cluster:
    states = [
      cluster.wait(cluster.tasks[f"worker{i}"], "state", 120) for i in range(2)
    ]
  bad = [sync_replicas_cluster.draw_bad(3, i, 200, 0.1) for i in range(2)]
  want = sync_replicas_cluster.model_windows(bad[0] | bad[1], window)
  assert states == [[want], [want]]
  assert 10 < want[0] < 200 // window


@pytest.mark.machines
@pytest.mark.parametrize("aggregated", [1, 3])
def test_workers_that_do_not_wait_for_each_other(tmp_path, aggregated):
  """Checks fewer and more gradients in a step than there are workers."""
  given = {"kind": "plain", "v2": True, "use_resource": True, "seed": 5}
  given |= {"steps": 200, "bad": 0.2, "lockstep": False}
  given |= {"aggregated": aggregated, "tokens": -1}
  with start(tmp_path, **given) as cluster:
    for i in range(2):
      task = cluster.tasks[f"worker{i}"]
      ((step, dense, sparse, scale, good),) = cluster.wait(task, "state", 120)
      assert step > 20
      # The other worker may take a step while this worker reads its state.
      for weight in (*dense, sparse[2][0]):
        assert abs((1 - weight) / 0.125 - step) <= 10
      assert np.log2(scale) == int(np.log2(scale))
      assert 0 <= good <= 3


@pytest.mark.any_release
@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("kind", ["dynamic", "policy", "manager"])
def test_the_wrong_order_is_an_error(between, kind):
  with tf.Graph().as_default():
    opt = tf1.train.GradientDescentOptimizer(0.5)
    opt = tf1.train.SyncReplicasOptimizer(opt, 2, 2)
    if between:
      opt = sync_replicas_cluster.Clipping(opt)
    with pytest.raises(ValueError, match=r"SyncReplicasOptimizer\(MixedPre"):
      if kind == "manager":
        manager = contrib.ExponentialUpdateLossScaleManager(8, 2)
        contrib.LossScaleOptimizer(opt, manager)
      else:
        scale = "dynamic" if kind == "dynamic" else policies.GrowthBackoff()
        tfl.MixedPrecisionLossScaleOptimizer(opt, scale)


@pytest.mark.any_release
@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("kind", ["outermost", "fixed"])
def test_accumulation_outside_is_an_error(between, kind):
  with tf.Graph().as_default():
    opt = tf1.train.GradientDescentOptimizer(0.5)
    if kind == "outermost":
      opt = tfl.MixedPrecisionLossScaleOptimizer(opt, "dynamic")
    opt = tf1.train.SyncReplicasOptimizer(opt, 2, 2)
    if between:
      opt = sync_replicas_cluster.Clipping(opt)
    if kind == "fixed":
      opt = tfl.MixedPrecisionLossScaleOptimizer(opt, 8)
    with pytest.raises(ValueError, match="with accumulate"):
      tfl.accumulate(opt, 2)


@pytest.mark.any_release
def test_a_fixed_scale_may_be_outside():
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    step = tf1.train.get_or_create_global_step()
    opt = tf1.train.GradientDescentOptimizer(0.5)
    opt = sync = tf1.train.SyncReplicasOptimizer(opt, 1, 1)
    opt = tfl.MixedPrecisionLossScaleOptimizer(opt, 4)
    op = opt.minimize(v * 1.0, step)
    with start_session(sync) as session:
      for _ in range(3):
        session.run([op, *sync.get_chief_queue_runner().enqueue_ops])
      assert session.run([v, step]) == [-0.5, 3]
