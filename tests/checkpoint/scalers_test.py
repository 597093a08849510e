# SPDX-License-Identifier: Apache-2.0
"""Tests that training goes on from checkpoints of other systems."""

import json

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
_GOLDENS = sorted(
  path.parent.name
  for path in helpers.GOLDENS.glob("others/[!v]*/expected.json")  # Not V1.
)


def read(name):
  """Returns what the system itself did."""
  path = helpers.GOLDENS / "others" / name / "expected.json"
  return json.loads(path.read_text())


def make_optimizer(parameters):
  """Returns the optimizer that the system trained with."""
  rate = parameters["learning_rate"]
  if parameters["name"] == "Momentum":
    nesterov = parameters.get("use_nesterov", False)
    return tf1.train.MomentumOptimizer(
      rate, parameters["momentum"], use_nesterov=nesterov
    )
  names = ("beta1", "beta2", "epsilon")
  return tf1.train.AdamOptimizer(rate, *(parameters[n] for n in names))


class Program:
  """A program of today that trains float32 variables of the same names."""

  def __init__(self, expected, loss_scale, scope=None):
    self.expected, self.loss_scale = expected, loss_scale
    step = tf1.train.get_or_create_global_step()
    self.weights, self.feeds = {}, {}
    for v in expected["variables"]:
      if v["role"] == "weight":
        name = v["name"]
        self.weights[name] = tf1.get_variable(name, v["shape"], tf.float32)
        self.feeds[name] = tf1.placeholder(tf.float32, v["shape"])
    self.inner = make_optimizer(expected["optimizer"])
    with tf1.variable_scope(scope or tf1.get_variable_scope()):
      optimizer = tfl.MixedPrecisionLossScaleOptimizer(self.inner, loss_scale)
      loss = tf.add_n(
        [tf.reduce_sum(w * self.feeds[n]) for n, w in self.weights.items()]
      )
      self.op = optimizer.minimize(loss, global_step=step)
    self.session = tf1.Session()

  def step(self, row):
    """Feeds a row's gradients."""
    factor = 1.0 if row["finite"] else np.inf
    gradients = row.get("gradients") or {}
    feed = {
      self.feeds[name]: np.full(v.shape, factor, np.float32)
      * np.float32(gradients.get(name) if gradients else 1.0)
      for name, v in self.weights.items()
    }
    if not row["finite"]:
      feed = {p: np.full(g.shape, np.inf) for p, g in feed.items()}
    self.session.run(self.op, feed)

  def get_scale(self):
    return float(self.session.run(self.loss_scale()))

  def check_variables(self, values):
    """Compares weights and slots with the system's: name -> value."""
    by_name = {v["name"]: v for v in self.expected["variables"]}
    masters = {
      v["master"]: v["name"]
      for v in by_name.values()
      if v["role"] == "weight" and v["master"]
    }
    for name, weight in self.weights.items():
      stored = by_name[name]["master"] or name
      np.testing.assert_allclose(
        self.session.run(weight), np.float32(values[stored]), 2e-5, 2e-7
      )
    slots = {"momentum": "momentum", "m": "m", "v": "v"}
    for name, v in by_name.items():
      if v["role"] == "slot":
        weight = self.weights[masters.get(v["of"], v["of"])]
        slot = self.inner.get_slot(weight, slots[v["slot"]])
        np.testing.assert_allclose(
          self.session.run(slot), np.float32(values[name]), 2e-5, 2e-7
        )


def make_scale(expected):
  nearest = expected["nearest_tensorflow_loss_scale"]
  return tfl.DynamicLossScale(
    increment_period=nearest["increment_period"],
    multiplier=nearest["multiplier"],
  )


def train(program, with_policy):
  """Trains on, and compares each step with the system's own."""
  expected = program.expected
  rows = expected["rows"]
  before = expected["steps_before"]
  program.check_variables(
    {v["name"]: v["value"] for v in expected["variables"]}
  )
  assert program.get_scale() == rows[before - 1]["loss_scale"]
  differs = expected["nearest_differs_first_in_step"]
  same_weights = True
  for i, row in enumerate(rows[before:], before):
    program.step(row)
    if with_policy or differs is None or i < differs:
      assert program.get_scale() == row["loss_scale"], i
    elif i == differs:
      assert program.get_scale() != row["loss_scale"], i
    # THUMT updates with zeros after an overflow.
    same_weights &= row["finite"] or expected["system"] != "THUMT"
    if same_weights:
      program.check_variables(row["variables"])


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("scope", [None, "train"])
@pytest.mark.parametrize("name", _GOLDENS)
def test_training_goes_on_with_the_nearest_loss_scale(name, scope, v2):
  expected = read(name)
  path = helpers.GOLDENS / "others" / name
  with helpers.control_flow(v2), tf.Graph().as_default():
    program = Program(expected, make_scale(expected), scope)
    report = checkpoint.restore(program.session, path)
    assert not report.initialized and not report.kept
    nearest = expected["nearest_tensorflow_loss_scale"]
    good = program.loss_scale._weights["good_steps"]
    assert program.session.run(good) == nearest["good_steps"]
    train(program, with_policy=False)


@pytest.mark.parametrize("name", _GOLDENS)
def test_the_policy_of_the_description_has_the_whole_rule(name):
  expected = read(name)
  path = helpers.GOLDENS / "others" / name
  (state,) = checkpoint.describe(path).loss_scales
  with helpers.control_flow(False), tf.Graph().as_default():
    loss_scale = eval(state.policy, {"policies": policies})
    program = Program(expected, loss_scale)
    report = checkpoint.restore(program.session, path)
    assert any(state.policy in note for note in report.notes)
    train(program, with_policy=True)


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("name", _GOLDENS)
def test_a_plain_saver_reads_what_convert_writes(name, v2, tmp_path):
  expected = read(name)
  path = helpers.GOLDENS / "others" / name
  to = "saver-v2" if v2 else "saver"
  converted = checkpoint.convert(path, tmp_path / "new", to)
  assert converted.notes
  with helpers.control_flow(v2), tf.Graph().as_default():
    program = Program(expected, make_scale(expected))
    tf1.train.Saver().restore(program.session, converted.path)
    train(program, with_policy=False)


@pytest.mark.parametrize("name", _GOLDENS)
def test_the_saver_of_this_package_restores_them(name):
  expected = read(name)
  path = helpers.GOLDENS / "others" / name
  with helpers.control_flow(False), tf.Graph().as_default():
    program = Program(expected, make_scale(expected))
    saver = checkpoint.Saver()
    saver.restore(program.session, str(path))
    assert saver.last_report.notes
    train(program, with_policy=False)
