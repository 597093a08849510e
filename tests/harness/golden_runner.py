# SPDX-License-Identifier: Apache-2.0
"""Restores checkpoints of old releases, trains on, and prints the results.

The module is a program of its own, because TensorFlow 2's behaviour is switched
for a whole process:

  python golden_runner.py (v1|v2) GOLDEN_DIR... > results.json

The result of each golden and each way to restore is a list of rows, as in the
golden's expected.json, or a traceback.
"""

import json
import os
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1

_INNER = {
  "adam": lambda: tf1.train.AdamOptimizer(0.01),
  "momentum": lambda: tf1.train.MomentumOptimizer(0.01, 0.9),
  "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.01),
  "sgd": lambda: tf1.train.GradientDescentOptimizer(0.01),
}


def batch(seed):
  """Returns the data of a step, as drawn by the program that made goldens."""
  rng = np.random.RandomState(seed)
  x = rng.randn(8, 4).astype(np.float32)
  y = x.dot(np.arange(12).reshape(4, 3).astype(np.float32) / 10.0) + 0.5
  return x, y.astype(np.float32)


def wrap(expected):
  """Returns the golden's optimizer, with a loss scale unlike the golden's."""
  inner, kind = _INNER[expected["inner"]](), expected["kind"]
  if expected["api"].startswith("contrib"):
    manager = (
      tfl.contrib.FixedLossScaleManager(512.0)
      if kind == "fixed"
      else tfl.contrib.ExponentialUpdateLossScaleManager(3.0, 4, 2, 2.0, 0.5)
    )
    return tfl.contrib.LossScaleOptimizer(inner, manager)
  if kind == "fixed":  # Checkpoints have no state of a fixed scale.
    return tfl.MixedPrecisionLossScaleOptimizer(inner, 128.0)
  loss_scale = tfl.DynamicLossScale(
    initial_loss_scale=3.0,
    increment_period=expected["increment_period"],
    multiplier=4.0 if kind == "dynamic_x4" else 2.0,
  )
  if kind == "rewrite":
    return tfl.enable_mixed_precision_graph_rewrite(inner, loss_scale)
  return tfl.MixedPrecisionLossScaleOptimizer(inner, loss_scale)


class Model:
  """The linear model of the goldens in the current graph."""

  def __init__(self, expected):
    scope = expected.get("scope") or tf1.get_variable_scope()
    resource = expected.get("use_resource", False)
    with tf1.variable_scope(scope):
      self.x = tf1.placeholder(tf.float32, [None, 4], "x")
      self.y = tf1.placeholder(tf.float32, [None, 3], "y")
      self.poison = tf1.placeholder(tf.float32, [], "poison")
      self.w = tf1.get_variable("w", [4, 3], use_resource=resource)
      self.b = tf1.get_variable("b", [3], use_resource=resource)
      self.step = tf1.train.get_or_create_global_step()
      prediction = tf.matmul(self.x, self.w) + self.b
      loss = tf.reduce_mean(tf.square(prediction - self.y)) * self.poison
      self.opt = wrap(expected)
      self.train = self.opt.minimize(
        loss, global_step=self.step, name="train_op"
      )
      self.loss_scale = self.opt._loss_scale()
    weights = {v.op.name.split("/")[-1]: v for v in self.opt.variables()}
    self.counters = {k: v for k, v in weights.items() if k.endswith("_steps")}

  def checkpoint(self):
    return tf.train.Checkpoint(
      optimizer=self.opt, w=self.w, b=self.b, global_step=self.step
    )


class ImportedModel:
  """The fetches of `Model`, from a MetaGraph that the old release wrote."""

  def __init__(self, path, expected, import_meta_graph):
    self.saver = import_meta_graph(path)
    get = tf1.get_default_graph().get_tensor_by_name
    scope = expected["scope"] + "/" if expected["scope"] else ""
    self.x, self.y = get(scope + "x:0"), get(scope + "y:0")
    self.poison = get(scope + "poison:0")
    self.train = tf1.get_default_graph().get_operation_by_name(
      scope + "train_op"
    )
    self.loss_scale = get(scope + "loss_scale_value:0")
    variables = {v.op.name: v for v in tf1.global_variables()}
    self.w, self.b = variables[scope + "w"], variables[scope + "b"]
    self.step = tf1.train.get_global_step()
    good_steps = variables.get(scope + "good_steps")
    self.counters = {} if good_steps is None else {"good_steps": good_steps}


def values_of(model, session):
  """Returns the values in the form of a row of expected.json."""
  values = {
    "loss_scale": model.loss_scale,
    "global_step": model.step,
    "w": model.w,
    "b": model.b,
  }
  values = session.run({**values, **model.counters})
  return {k: np.asarray(v).tolist() for k, v in values.items()}


def train_on(model, session, expected):
  """Trains as the old release did after its checkpoint; returns rows."""
  rows = []
  for row in expected["rows"][expected["steps_before"] :]:
    x, y = batch(expected["seed"] + row["i"])
    poison = np.inf if row["poisoned"] else 1.0
    session.run(model.train, {model.x: x, model.y: y, model.poison: poison})
    rows.append(values_of(model, session))
  return rows


def by_saver(golden, expected):
  model = Model(expected)
  path = tf1.train.latest_checkpoint(golden)
  names = {v.op.name: v for v in tf1.global_variables()}
  if expected.get("use_resource"):
    # Adam's powers are named after the cond in which they were made. With
    # resource variables, there is such a cond in v1 control flow alone. So a
    # checkpoint saved under the other control flow needs a map of names.
    saved = {name for name, _ in tf1.train.list_variables(path)}
    for name in sorted(saved ^ set(names)):
      assert name.endswith(("beta1_power", "beta2_power")), name
    names = {
      name if name in saved else other_power_name(name): v
      for name, v in names.items()
    }
  with tf1.Session() as session:
    tf1.train.Saver(names).restore(session, path)
    return train_on(model, session, expected)


def other_power_name(name):
  return name[len("cond_1/") :] if "cond_1/" in name else f"cond_1/{name}"


def by_checkpoint(golden, expected):
  model = Model(expected)
  with tf1.Session() as session:
    session.run(tf1.global_variables_initializer())
    path = os.path.join(golden, expected["object_path"])
    status = model.checkpoint().restore(path)
    status.assert_consumed()
    status.initialize_or_restore(session)
    return train_on(model, session, expected)


def ways(golden):
  """Returns the ways to restore a golden, given by its path."""
  # Old releases wrote no object graph of a manager.
  is_contrib = os.path.basename(golden).startswith("contrib")
  return (by_saver,) if is_contrib else (by_saver, by_checkpoint)


def main():
  behavior, goldens = sys.argv[1], sys.argv[2:]
  if behavior == "v1":
    tf1.disable_v2_behavior()
  results = {}
  for golden in goldens:
    with open(os.path.join(golden, "expected.json")) as f:
      expected = json.load(f)
    for restore in ways(golden):
      try:
        with tf.Graph().as_default():
          result = restore(golden, expected)
      except Exception:  # The test that reads the traceback fails.
        result = traceback.format_exc()
      finally:
        if expected["kind"] == "rewrite":
          tfl.disable_mixed_precision_graph_rewrite()
      results[f"{golden} {restore.__name__}"] = result
  json.dump(results, sys.stdout)


if __name__ == "__main__":
  main()
