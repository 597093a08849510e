# SPDX-License-Identifier: Apache-2.0
"""Tests users' variables that are named like a loss scale's variables."""

import functools

import helpers
import numpy as np
import pytest
import role_programs
from role_programs import build
from role_programs import find_started_anew
from role_programs import Program
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1

_folder_of_programs = role_programs.folder_of_programs


@functools.cache
def get_users_program(before, kind, after=(), v2=False):
  """Returns a program with an optimizer and variables of a user.

  Args:
    before: (name, dtype) of the variables to create before the optimizer.
    kind: The optimizer's wrapper, as `build` takes it.
    after: (name, dtype) of the variables to create after the optimizer.
    v2: Whether to build with TensorFlow 2's control flow.
  """

  def build_all():
    found = {}
    for names in (before, None, after):
      if names is None:
        found |= build(("", kind))
      for name, dtype in names or ():
        found["user", dtype, name] = tf1.Variable(
          np.zeros([], dtype), name=name, use_resource=True
        )
    return found

  return Program(build_all, v2)


_USERS = (
  ("good_steps", "int64"),
  ("loss_scale", "float32"),
  ("current_loss_scale", "float64"),
  ("good_steps", "int32"),
  ("beta1_power", "float32"),
)


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("there", ["dynamic", "none", "contrib"])
@pytest.mark.parametrize("here", ["dynamic", "none", "contrib"])
def test_variables_of_the_user_are_their_own(there, here, place, tmp_path):
  """Checks that users' variables and the optimizer's keep their values."""
  before = _USERS if place == "before" else ()
  after = _USERS if place == "after" else ()
  path, values = get_users_program(before, there, after).save(tmp_path)
  program = get_users_program(before, here, after, v2=True)
  try:
    found, report = program.restore(path)
  except checkpoint.CheckpointError as error:
    assert "mapping={" in str(error)
    return
  for role, value in found.items():
    if role in values:
      assert value == values[role], (role, report)
    else:
      name = program.variables[role].op.name
      assert name in find_started_anew(report)


def test_a_scale_is_set_in_loss_scales_alone(tmp_path):
  before = (("good_steps", "int64"), ("current_loss_scale", "float64"))
  path, _ = get_users_program(before, "dynamic").save(tmp_path)
  with pytest.raises(checkpoint.CheckpointError, match="names do not tell"):
    checkpoint.convert(path, tmp_path / "new", "saver", set_loss_scale=8)


@pytest.mark.parametrize("kind", ["compat", "contrib"])
@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_a_loss_scale_that_is_bypassed(mode, kind, tmp_path):
  with helpers.mode_scope(mode), tf1.Session() as session:
    w = tf1.get_variable("w", initializer=[1.0, 2.0])
    inner = tf1.train.AdamOptimizer(0.1)
    if kind == "compat":
      opt = tfl.MixedPrecisionLossScaleOptimizer(inner, "dynamic")
    else:
      manager = tfl.contrib.ExponentialUpdateLossScaleManager(8.0, 2)
      opt = tfl.contrib.LossScaleOptimizer(inner, manager)
    grads = tf1.gradients(tf.reduce_sum(w * w), [w])
    train = opt.apply_gradients(zip(grads, [w]))
    session.run(tf1.global_variables_initializer())
    session.run(train)
    prefix = tf1.train.Saver().save(session, str(tmp_path / "model"))
  (found,) = checkpoint.describe(prefix).loss_scales
  assert found.value == (2.0**15 if kind == "compat" else 8.0)
  assert found.good_steps == 1
  for to in ("saver-v2", "npz"):
    checkpoint.convert(prefix, tmp_path / to, to)
  (converted,) = checkpoint.describe(tmp_path / "saver-v2").loss_scales
  assert converted.good_steps == 1
  assert [*np.load(tmp_path / "npz")] == ["w"]
