# SPDX-License-Identifier: Apache-2.0
"""Tests kinds of skipped steps one by one, and the switches that gate them."""

import math

import helpers
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function as defun

import tf_compat_lossscale as tfl
from tf_compat_lossscale._core.tf import control_flow

tf1 = tf.compat.v1


class Accumulating(tf1.train.GradientDescentOptimizer):
  """Adds up something made of each gradient, beside applying it."""

  def __init__(self, accumulate):
    super().__init__(0.5)
    self._accumulate = accumulate
    self.sum = tf1.get_variable(
      "sum", [2], initializer=tf1.zeros_initializer(), use_resource=True
    )

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    ((grad, var),) = grads_and_vars
    done = self._accumulate(self.sum, grad)
    apply = super().apply_gradients([(grad, var)], global_step)
    return tf.group(apply, done, name=name)


def defun_of(total, grad):
  @defun.Defun(tf.float32)
  def add(value):
    with tf.control_dependencies(
      [tf.raw_ops.AssignAddVariableOp(resource=total.handle, value=value)]
    ):
      return value * 2.0

  return add(grad)


ACCUMULATE = {
  "broadcast": lambda total, g: total.assign_add(tf.broadcast_to(g, [2])),
  "reshape": lambda total, g: total.assign_add(
    tf.reshape(tf.reshape(g, [1, 2]), [2])
  ),
  "transpose": lambda total, g: total.assign_add(tf.transpose(tf.transpose(g))),
  "constant": lambda total, g: total.assign_add([1.0, 1.0]),
  "function": lambda total, g: tf.function(total.assign_add)(g),
  "function of broadcast": lambda total, g: tf.function(total.assign_add)(
    tf.broadcast_to(g, [2])
  ),
  "defun": defun_of,
  "defun of broadcast": lambda total, g: defun_of(
    total, tf.broadcast_to(g, [2])
  ),
}


def inlining(kind):
  """Returns the configuration of a session that inlines functions, or not."""
  config = tf1.ConfigProto()
  options = config.graph_options
  if kind == "common runtime":
    options.optimizer_options.do_function_inlining = True
  elif kind == "grappler":
    rewrites = options.rewrite_options
    rewrites.function_optimization = rewrites.AGGRESSIVE
    rewrites.min_graph_nodes = -1
  return config


@pytest.mark.parametrize(
  ("mode", "kind", "accumulate"),
  helpers.pairs(
    helpers.GRAPH_MODES, ["default", "common runtime", "grappler"], ACCUMULATE
  ),
)
def test_nothing_is_accumulated(mode, kind, accumulate):
  with helpers.mode_scope(mode) as graph:
    v = tf1.get_variable("v", [2], use_resource=True)
    g = tf1.placeholder(tf.float32, [2])
    inner = Accumulating(ACCUMULATE[accumulate])
    opt = tfl.MixedPrecisionLossScaleOptimizer(inner, "dynamic")
    train = opt.apply_gradients([(g, v)])
    initialize = tf1.global_variables_initializer()
  with tf1.Session(graph=graph, config=inlining(kind)) as session:
    session.run(initialize)
    for bad in (math.inf, math.nan):
      session.run(train, {g: [bad, 1.0]})
      assert session.run(inner.sum).tolist() == [0, 0]
    session.run(train, {g: [1.0, 1.0]})
    assert session.run(inner.sum).tolist() == [1, 1]


@pytest.mark.parametrize(
  ("mode", "size", "through", "use_resource"),
  helpers.pairs(
    helpers.GRAPH_MODES,
    [2, 20_000],
    ["clip", "product", "norm", "constant"],
    [True, False],
  ),
)
def test_a_gradient_that_is_fed_is_looked_at(mode, size, through, use_resource):
  """Programs that accumulate gradients outside of TensorFlow feed them."""
  with helpers.mode_scope(mode) as graph:
    v = tf1.get_variable("v", [size], use_resource=use_resource)
    x = tf.random.uniform([size])
    if through == "clip":
      (grad,), _ = tf.clip_by_global_norm([x], 1.0)
    elif through == "constant":
      grad = tf.zeros([size])
    elif through == "product":
      grad = x * tf.random.uniform([])
      tf.nn.l2_loss(x)
    else:
      grad = tf.identity(x)
      tf.linalg.global_norm([grad])
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(1.0), tfl.DynamicLossScale(8, 1)
    )
    train = opt.apply_gradients([(grad, v)])
    initialize = tf1.global_variables_initializer()
    scale = opt.loss_scale()
  with tf1.Session(graph=graph) as session:
    session.run(initialize)
    fed = np.zeros([size], np.float32)
    for bad, expected in ((math.nan, 4), (math.inf, 2), (1.0, 4)):
      before = session.run(v)
      fed[1] = bad
      session.run(train, {grad: fed})
      assert session.run(scale) == expected
      assert (session.run(v)[1] == before[1]) == (not math.isfinite(bad))


# Gates ---------------------------------------------------------------------


def test_without_private_parts_references_need_v1_control_flow(monkeypatch):
  monkeypatch.setattr(control_flow, "_CondContext", None)
  for mode in helpers.GRAPH_MODES:
    with helpers.mode_scope(mode):
      v = tf1.get_variable("v", [2], use_resource=False)
      opt = tfl.MixedPrecisionLossScaleOptimizer(
        tf1.train.AdamOptimizer(0.1), "dynamic"
      )
      if mode == "graph_v1":
        opt.minimize(tf.reduce_sum(v))
        opt.apply_gradients([(tf.ones([2]), v)])  # Its predicate is known.
      else:
        with pytest.raises(RuntimeError, match="use_resource=True"):
          opt.minimize(tf.reduce_sum(v))


if __name__ == "__main__":
  helpers.main()
