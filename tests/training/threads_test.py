# SPDX-License-Identifier: Apache-2.0
"""Tests threads and sessions that count steps or build graphs at once."""

import helpers
from helpers import GRAPH_MODES
import numpy as np
from processes import in_threads
import pytest
from scaled_optimizers import wrap
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1


# Counting steps ------------------------------------------------------------


def dynamic(period=10**6):
  loss_scale = tfl.DynamicLossScale(8, period)
  return loss_scale, lambda grads: loss_scale.update(grads)[0]


def managed(period=10**6):
  manager = contrib.ExponentialUpdateLossScaleManager(8, period, 10**6)
  return manager, lambda grads: manager.update_loss_scale(
    tf.reduce_all(tf.math.is_finite(grads[0]))
  )


def policy():
  loss_scale = policies.GrowthBackoff(hysteresis=1000)
  return loss_scale, lambda grads: loss_scale.update(grads)[0]


COUNTERS = [(dynamic, "good_steps", 1.0), (managed, "good_steps", 1.0)]
COUNTERS += [(managed, "bad_steps", np.inf), (policy, "skipped_steps", np.inf)]


@pytest.mark.parametrize(
  ("mode", "counter"), helpers.pairs(GRAPH_MODES, range(len(COUNTERS)))
)
def test_no_step_goes_uncounted_on_a_server(mode, counter):
  """Checks workers of a parameter server, each with its own session."""
  server = tf1.train.Server.create_local_server()
  with helpers.mode_scope(mode) as graph:
    make, name, grad = COUNTERS[counter]
    loss_scale, update = make()
    step = update([tf1.placeholder_with_default([grad, 2.0], [2])])
    initialize = tf1.global_variables_initializer()
    with tf1.Session(server.target, graph=graph) as session:
      session.run(initialize)

    def work(_):
      with tf1.Session(server.target, graph=graph) as session:
        for _ in range(200):
          session.run(step)

    in_threads(work, 2)
    with tf1.Session(server.target, graph=graph) as session:
      assert session.run(loss_scale._weights[name]) == 400


@pytest.mark.parametrize(("make", "name", "grad"), COUNTERS)
def test_no_step_goes_uncounted_eagerly(make, name, grad):
  loss_scale, update = make()
  grads = [tf.constant([grad, grad])]
  in_threads(lambda _: [update(grads) for _ in range(60)], 4)
  assert int(loss_scale._weights[name]) == 240


def weights_of(loss_scale):
  """Returns the variables of the good steps and of the scale."""
  weights = dict(loss_scale._weights)
  good_steps = weights.pop("good_steps")
  weights.pop("bad_steps", None)
  (scale,) = weights.values()
  return good_steps, scale


class Watched:
  """A variable that calls a function before it is read or assigned."""

  def __init__(self, variable, call):
    self.variable, self.call = variable, call

  def __getattr__(self, name):
    self.call()
    return getattr(self.variable, name)


def read(watched, dtype=None, name=None, as_ref=False):
  del dtype, as_ref
  watched.call()
  return tf.convert_to_tensor(watched.variable, name=name)


tf.register_tensor_conversion_function(Watched, read)


@pytest.mark.any_release
@pytest.mark.parametrize("make", [dynamic, managed])
def test_a_run_ends_once(make):
  """Checks that a run of good steps that two workers end grows the scale once.

  The other worker's step comes before the read or assignment number `when`.
  """
  for when in range(30):
    loss_scale, update = make(10)
    good_steps, scale = weights_of(loss_scale)
    good_steps.assign(9)
    calls = []

    def call(when=when, calls=calls, update=update):
      calls.append(1)
      if len(calls) == when + 1:
        update([tf.constant([1.0])])

    for name, weight in loss_scale._weights.items():
      loss_scale._weights[name] = Watched(weight, call)
    update([tf.constant([1.0])])
    assert float(scale) == 16, when
    assert int(good_steps) in (0, 1), when
  assert len(calls) < when  # The other step came at every possible moment.


def test_eager_threads_end_every_run():
  loss_scale = tfl.DynamicLossScale(1, 50)
  grads = [tf.constant([1.0, 1.0])]
  in_threads(lambda _: [loss_scale.update(grads) for _ in range(250)], 4)
  good_steps, scale = weights_of(loss_scale)
  assert (int(good_steps), float(scale)) == (0, 2.0**20)


# Building graphs -----------------------------------------------------------


def test_threads_that_build_graphs_do_not_disturb_one_another():
  assert tf1.control_flow_v2_enabled()
  built = []

  def build(i):
    kinds = set()
    # Odd threads build conds as long as others build optimizers.
    while i % 2 and not {0, 2, 4} <= {*built}:
      with tf.Graph().as_default() as graph:
        tf.cond(tf1.placeholder(tf.bool), lambda: 1.0, lambda: 2.0)
        kinds |= {op.type for op in graph.get_operations()}
    try:
      for _ in range(0 if i % 2 else 2):
        with tf.Graph().as_default():
          v = tf1.get_variable("v", [2], use_resource=False)
          adam = lambda: tf1.train.AdamOptimizer(0.1)  # noqa: E731
          wrap("dynamic", adam)().minimize(tf.reduce_sum(v * v))
          assert "cond_1/beta1_power" in helpers.variable_names()
    finally:
      built.append(i)
    return kinds

  for kinds in in_threads(build, 6)[1::2]:
    assert "Switch" not in kinds
    assert kinds & {"If", "StatelessIf"}


def test_threads_that_build_one_graph_share_its_weights():
  loss_scale = tfl.DynamicLossScale(8)
  for _ in range(5):
    with tf.Graph().as_default() as graph:

      def build(_, graph=graph):
        with graph.as_default():
          return loss_scale(), loss_scale._weights

      weights = [w for _, w in in_threads(build, 8)]
      assert all(w is weights[0] for w in weights)
      assert helpers.variable_names() == ["current_loss_scale", "good_steps"]


def test_train_ops_of_other_threads_stay():
  with tf.Graph().as_default():
    train_ops = tf1.get_collection_ref(tf1.GraphKeys.TRAIN_OP)
    v = tf1.get_variable("v", [2], use_resource=True)

    class Slow(tf1.train.GradientDescentOptimizer):
      """An optimizer during whose apply another thread adds a train op."""

      def apply_gradients(self, *args, **kwargs):
        train_ops.append(other)
        return super().apply_gradients(*args, **kwargs)

    other = tf.no_op("other")
    opt = tfl.MixedPrecisionLossScaleOptimizer(Slow(0.1), "dynamic")
    train = opt.minimize(tf.reduce_sum(v))
    assert train_ops == [other, train]
