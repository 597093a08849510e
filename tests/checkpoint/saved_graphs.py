# SPDX-License-Identifier: Apache-2.0
"""Builds small graphs with loss scales, and saves them by name."""

import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


def variable(name, value, resource=True):
  """Creates a float32 variable."""
  return tf1.get_variable(
    name, initializer=np.float32(value), use_resource=resource
  )


def save(folder, build, name="model"):
  """Saves the graph that `build` makes, by name; returns the path."""
  with tf.Graph().as_default(), tf1.Session() as session:
    build()
    session.run(tf1.global_variables_initializer())
    return tf1.train.Saver().save(session, str(folder / name))


def save_tensors(folder, values):
  """Saves tensors by their names; returns the checkpoint's prefix."""
  prefix = str(folder / "old")
  tf.raw_ops.SaveV2(
    prefix=prefix,
    tensor_names=list(values),
    tensors=list(map(tf.constant, values.values())),
    shape_and_slices=[""] * len(values),
  )
  return prefix


@pytest.fixture
def path(tmp_path):
  """Saves a kernel and a loss scale; returns the path."""
  return save(tmp_path, lambda: (variable("dense/kernel", [1, 2]), dynamic()))


def dynamic(value=64.0):
  """Creates a dynamic loss scale."""
  return tfl.DynamicLossScale(value)


def adam_on(scopes, resource=True, what=None):
  """Builds an Adam in each scope, wrapped by `what` or with a loss scale."""
  what = what or (
    lambda opt, i: tfl.MixedPrecisionLossScaleOptimizer(opt, dynamic(2.0**i))
  )
  for i, scope in enumerate(scopes, 3):
    with tf1.variable_scope(scope):
      w = tf1.get_variable("w", [2], use_resource=resource)
      opt = what(tf1.train.AdamOptimizer(0.1, beta1=0.5 + i / 100), i)
      opt.minimize(tf.reduce_sum(w), var_list=[w])


def read(name):
  """Returns the value of the default graph's variable with an op's name."""
  session = tf1.get_default_session()
  op = session.graph.get_operation_by_name(name)
  if op.type == "VarHandleOp":
    name = f"{name}/Read/ReadVariableOp"
  return session.run(f"{name}:0")
