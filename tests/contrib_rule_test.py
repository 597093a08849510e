# SPDX-License-Identifier: Apache-2.0
"""Tests the rule of `tf.contrib.mixed_precision`'s exponential manager."""

import helpers
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from tf_compat_lossscale import contrib

tf1 = tf.compat.v1
_INF = float("inf")


class Model:
  """The rule of TensorFlow 1.15's ExponentialUpdateLossScaleManager."""

  def __init__(self, scale, n, m, up, down):
    self.scale, self.n, self.m = np.float32(scale), n, m
    self.up, self.down = np.float32(up), np.float32(down)
    self.good = self.bad = 0

  def update(self, finite):
    if finite and self.good + 1 >= self.n:
      with np.errstate(over="ignore"):
        grown = self.scale * self.up
      self.scale = grown if np.isfinite(grown) else self.scale
      self.good = self.bad = 0
    elif finite:
      self.good += 1
    elif self.bad + 1 >= self.m:
      self.scale = max(np.float32(1), self.scale * self.down)
      self.good = self.bad = 0
    else:
      self.good, self.bad = 0, self.bad + 1

  @property
  def state(self):
    return float(self.scale), self.good, self.bad


def state(manager):
  return tuple(
    float(np.asarray(v.numpy())) if i == 0 else int(v.numpy())
    for i, v in enumerate(
      (manager.loss_scale, manager.good_steps, manager.bad_steps)
    )
  )


@pytest.mark.any_release
@settings(deadline=None, max_examples=50)
@given(
  scale=st.floats(1, 2.0**127, width=32),
  n=st.integers(1, 4),
  m=st.integers(1, 3),
  up=st.floats(1.015625, 1024, width=32),
  down=st.floats(0.001953125, 0.984375, width=32),
  steps=st.lists(st.booleans(), max_size=25),
)
def test_the_rule_eagerly(scale, n, m, up, down, steps):
  model = Model(scale, n, m, up, down)
  manager = contrib.ExponentialUpdateLossScaleManager(scale, n, m, up, down)
  for finite in steps:
    assert manager.update_loss_scale(tf.constant(finite)) is None
    model.update(finite)
    assert state(manager) == model.state


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_the_rule_in_a_graph(mode):
  rng = np.random.RandomState(0)
  with helpers.mode_scope(mode), tf1.Session() as session:
    finite = tf1.placeholder(tf.bool, [])
    manager = contrib.ExponentialUpdateLossScaleManager(2.0**120, 2, 3, 7, 0.3)
    model = Model(2.0**120, 2, 3, 7, 0.3)
    op = manager.update_loss_scale(finite)
    session.run(tf1.global_variables_initializer())
    for value in rng.rand(200) < 0.7:
      session.run(op, {finite: value})
      model.update(bool(value))
      assert session.run(manager.get_loss_scale()) == model.scale
      assert session.run(manager.good_steps) == model.good
      assert session.run(manager.bad_steps) == model.bad


@pytest.mark.any_release
def test_python_bools_do():
  manager = contrib.ExponentialUpdateLossScaleManager(8, 1, 1, 2, 0.5)
  manager.update_loss_scale(True)
  assert state(manager) == (16.0, 0, 0)
  manager.update_loss_scale(False)
  assert state(manager) == (8.0, 0, 0)


if __name__ == "__main__":
  helpers.main()
