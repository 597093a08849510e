# SPDX-License-Identifier: Apache-2.0
"""Tests conds and loops, the caller's own and the inner optimizer's."""

import math

import helpers
from helpers import GRAPH_MODES
from helpers import INNER
from helpers import OWN
import numpy as np
import pytest
from scaled_optimizers import dynamic
from scaled_optimizers import wrap
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


def assert_importable(graph):
  """Asserts that a graph's MetaGraph can be imported with all variables."""
  with graph.as_default():
    names = helpers.variable_names()
  meta = tf1.train.export_meta_graph(graph=graph)
  with tf.Graph().as_default():
    tf1.train.import_meta_graph(meta)
    assert helpers.variable_names() == names


# The caller's own conds and loops ------------------------------------------


@pytest.mark.parametrize("mode", GRAPH_MODES)
@pytest.mark.parametrize("inner", ["sgd", "adam"])
@pytest.mark.parametrize("fixed", [False, True])
def test_accumulation_applies_in_a_cond(mode, inner, fixed):
  with helpers.mode_scope(mode) as graph, tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[2.0, 3.0], use_resource=True)
    total = tf1.get_variable(
      "total", [2], initializer=tf1.zeros_initializer(), use_resource=True
    )
    step = tf1.train.get_or_create_global_step()
    opt = wrap(16.0 if fixed else dynamic(8, 2), INNER[inner])()
    g = tf1.placeholder(tf.float32, [2])
    ((grad, _),) = opt.compute_gradients(tf.reduce_sum(v * g), [v])
    accumulate = total.assign_add(grad)
    last = tf1.placeholder(tf.bool)

    def apply():
      mean = total / 2
      with tf.control_dependencies(
        [opt.apply_gradients([(mean, v)], global_step=step)]
      ):
        return tf.identity(total.assign(tf.zeros([2])))

    with tf.control_dependencies([accumulate]):
      train = tf.cond(last, apply, lambda: tf.identity(total))
    session.run(tf1.global_variables_initializer())
    session.run(train, {g: [1, 2], last: False})
    assert session.run(v).tolist() == [2, 3]
    session.run(train, {g: [3, 2], last: True})
    assert session.run([step, *opt.variables()][0]) == 1
    if inner == "sgd":
      assert session.run(v).tolist() == [1, 2]
    assert session.run(total).tolist() == [0, 0]
    if not fixed:
      before = session.run(v)
      session.run(train, {g: [math.nan, 2], last: True})
      assert session.run(v).tobytes() == before.tobytes()
      assert session.run([step, opt.loss_scale()]) == [1, 4]
    assert_importable(graph)


@pytest.mark.parametrize("mode", GRAPH_MODES)
@pytest.mark.parametrize("inner", ["sgd", "adam"])
def test_steps_in_a_while_loop(mode, inner):
  with helpers.mode_scope(mode) as graph, tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[0.0], use_resource=True)
    opt = wrap(dynamic(8, 2), INNER[inner])()
    fed = tf1.placeholder(tf.float32, [None])

    def body(i):
      loss = tf.reduce_sum(v * fed[i])
      with tf.control_dependencies([opt.minimize(loss, var_list=[v])]):
        return i + 1

    loop = tf.while_loop(
      lambda i: i < tf.size(fed), body, [0], parallel_iterations=1
    )
    session.run(tf1.global_variables_initializer())
    session.run(loop, {fed: [1, 1, math.inf, 1, 1, 1]})
    if inner == "sgd":
      assert session.run(v) == [-2.5]
    scale, good_steps = opt.loss_scale._weights.values()
    assert session.run([scale, good_steps]) == [16, 1]
    assert_importable(graph)


class _Winding(tf1.train.GradientDescentOptimizer):
  """An optimizer with control flow of its own, which counts its steps."""

  def __init__(self, calls):
    super().__init__(1.0)
    self.calls = calls

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    grads_and_vars = list(grads_and_vars)
    seen = tf.numpy_function(self._seen, [tf.constant(1)], tf.int32)

    def half(i, grad):
      return i + 1, grad / 2

    wound = []
    for grad, var in grads_and_vars:
      _, grad = tf.while_loop(lambda i, _: i < 2, half, [seen * 0, grad])
      _, grad = tf.while_loop(lambda i, _: i < 1, half, [0, grad])
      grad = tf.cond(
        tf.reduce_sum(var) > 100, lambda g=grad: g * 0, lambda g=grad: g
      )
      wound.append((grad, var))
    return super().apply_gradients(wound, global_step, name)

  def _seen(self, value):
    self.calls.append(1)
    return np.int32(value)


@pytest.mark.parametrize("mode", GRAPH_MODES)
@pytest.mark.parametrize("use_resource", [True, False])
def test_what_is_left_out_does_not_happen(mode, use_resource):
  calls = []
  with helpers.mode_scope(mode) as graph, tf1.Session() as session:
    v = tf1.get_variable("v", initializer=[80.0], use_resource=use_resource)
    g = tf1.placeholder(tf.float32, [1])
    step = tf1.train.get_or_create_global_step()
    opt = wrap(dynamic(8, 2), lambda: _Winding(calls))()
    train = opt.minimize(v * g, global_step=step)
    session.run(tf1.global_variables_initializer())
    for grad, value, steps in (
      (8, 79, 1),
      (math.nan, 79, 1),
      (math.inf, 79, 1),
      (-320, 119, 2),
      (8, 119, 3),  # The optimizer's cond zeroes the gradient.
      (-math.inf, 119, 3),
    ):
      session.run(train, {g: [grad]})
      assert session.run([v, step]) == [[value], steps]
      assert len(calls) == steps
    assert_importable(graph)


@pytest.mark.parametrize("mode", GRAPH_MODES)
@pytest.mark.parametrize("api", ["core", "contrib"])
def test_a_loss_scale_on_another_device_than_the_step(mode, api):
  config = tf1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=False)
  with helpers.mode_scope(mode), tf1.Session(config=config) as session:
    with tf.device("/cpu:1"):
      v = tf1.get_variable("v", initializer=[2.0, 3.0], use_resource=True)
      if api == "core":
        wrap = tfl.MixedPrecisionLossScaleOptimizer
        scale = tfl.DynamicLossScale(8, 2)
      else:
        wrap = tfl.contrib.LossScaleOptimizer
        scale = tfl.contrib.ExponentialUpdateLossScaleManager(8.0, 2)
    with tf.device("/cpu:0"):
      g = tf1.placeholder(tf.float32, [])
      opt = wrap(INNER["momentum"](), scale)
      train = opt.minimize(tf.reduce_sum(v * v) * g, var_list=[v])
    session.run(tf1.global_variables_initializer())
    for grad in (1.0, 1.0, math.nan, 1.0, math.inf, math.inf):
      before = session.run(v)
      session.run(train, {g: grad})
      assert (session.run(v) != before).all() == math.isfinite(grad)


@pytest.mark.parametrize(
  ("mode", "value", "size", "use_resource", "around"),
  helpers.pairs(
    GRAPH_MODES,
    [1.0, math.inf],
    [2, 100_000],
    [True, False],
    ["nothing", "scope", "loop"],
    # A v2 loop cannot capture a reference variable.
    allowed=lambda case: case[3] or case[4] != "loop",
  ),
)
def test_known_gradients_leave_names_as_tensorflow_has_them(
  mode, value, size, use_resource, around
):
  results = []
  for module in (OWN, tfl):
    # TensorFlow's own takes reference variables in v1 graphs alone.
    references = module is OWN and not use_resource
    with (
      helpers.mode_scope("graph_v1" if references else mode),
      tf1.Session() as session,
    ):
      v = tf1.get_variable("v", [size], use_resource=use_resource)
      opt = module.MixedPrecisionLossScaleOptimizer(
        INNER["adam"](), module.DynamicLossScale(8, 2)
      )

      def apply(i=0, v=v, opt=opt):
        step = opt.apply_gradients([(tf.fill([size], value), v)])
        with tf.control_dependencies([step]):
          return tf.identity(i) + 1

      if around == "scope":
        with tf.name_scope("outer"):
          train = apply()
      elif around == "loop":
        train = tf.while_loop(
          lambda i: i < 3, apply, [0], parallel_iterations=1
        )
      else:
        train = apply()
      session.run(tf1.global_variables_initializer())
      session.run(train)
      results.append((helpers.variable_names(), session.run(opt._loss_scale())))
  assert results[0] == results[1]
