# SPDX-License-Identifier: Apache-2.0
"""Tests a loss scale in many graphs: names, values, checkpoints, memory."""

import gc
import os
import weakref

import helpers
import processes
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


def train_once(loss_scale, use_resource=True):
  """Builds a model in the current graph and trains it for one step."""
  w = tf1.get_variable("w", [2], use_resource=use_resource)
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.MomentumOptimizer(0.1, 0.9), loss_scale
  )
  train_op = opt.minimize(tf.reduce_sum(w * w))
  with tf1.Session() as session:
    session.run(tf1.global_variables_initializer())
    session.run(train_op)
    return session.run(loss_scale())


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("made", ["eagerly", "in a graph"])
def test_serves_another_graph(mode, made):
  if made == "eagerly":
    loss_scale = tfl.DynamicLossScale(8, 1)
  else:
    with tf.Graph().as_default():
      loss_scale = tfl.DynamicLossScale(8, 1)
      assert train_once(loss_scale) == 16
  with helpers.mode_scope(mode):
    assert train_once(loss_scale) == 16  # A new graph has the initial value.
    assert helpers.variable_names() == [
      "current_loss_scale",
      "good_steps",
      "w",
      "w/Momentum",
    ]
  if made == "eagerly":
    assert float(loss_scale()) == 8


def test_names_go_with_where_it_was_first_made():
  with tf.Graph().as_default(), tf1.variable_scope("tower/training"):
    loss_scale = tfl.DynamicLossScale()
    assert loss_scale.current_loss_scale.op.name == (
      "tower/training/current_loss_scale"
    )
  with tf.Graph().as_default(), tf1.name_scope("elsewhere"):
    loss_scale()
    loss_scale.update([1.0])
    assert helpers.variable_names() == [
      "tower/training/current_loss_scale",
      "tower/training/good_steps",
    ]


def test_two_scales_keep_apart_under_the_same_names():
  with tf.Graph().as_default():
    generator, discriminator = tfl.DynamicLossScale(4), tfl.DynamicLossScale(8)
    names = helpers.variable_names()
    assert "current_loss_scale_1" in names
  with tf.Graph().as_default(), tf1.Session() as session:
    discriminator(), generator()  # In the other order.
    assert helpers.variable_names() == names
    assert discriminator._current_loss_scale.op.name == "current_loss_scale_1"
    session.run(tf1.global_variables_initializer())
    assert session.run([generator(), discriminator()]) == [4, 8]


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_first_use_inside_a_cond(mode):
  loss_scale = tfl.DynamicLossScale(8, 1)
  with helpers.mode_scope(mode), tf1.Session() as session:
    flag = tf1.placeholder(tf.bool)
    value = tf.cond(flag, lambda: loss_scale() * 2, lambda: tf.constant(0.0))
    session.run(tf1.global_variables_initializer())
    assert session.run(value, {flag: True}) == 16
    assert helpers.variable_names() == ["current_loss_scale", "good_steps"]


def test_made_and_used_inside_a_function():
  made = []

  @tf.function(autograph=False)
  def step():
    if not made:
      made.append(tfl.DynamicLossScale(8, 1))
    made[0].update([1.0])
    return made[0]()

  assert [float(step()) for _ in range(3)] == [16, 32, 64]
  assert float(made[0]()) == 64


def test_optimizer_lists_the_weights_of_the_current_graph_alone():
  loss_scale = tfl.DynamicLossScale()
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.GradientDescentOptimizer(0.1), loss_scale
  )
  eager = opt.variables()
  with tf.Graph().as_default() as graph:
    assert opt.variables() == []
    loss_scale()
    assert [v.graph for v in opt.variables()] == [graph] * 2
  assert [v is w for v, w in zip(opt.variables(), eager)] == [True, True]


@pytest.mark.thorough
def test_graphs_are_collected_and_memory_does_not_grow():
  processes.run_alone(many_graphs)


def many_graphs():
  """Checks the memory that many graphs need, in a process of its own."""
  loss_scale = tfl.DynamicLossScale(8, 2)
  graphs, resident = [], []
  gc.collect()
  gc.freeze()  # Otherwise each collection visits all objects of the imports.
  for i in range(40):
    with helpers.mode_scope(helpers.GRAPH_MODES[i % 2]) as graph:
      train_once(loss_scale)
      graphs.append(weakref.ref(graph))
    del graph
    if i % 10 == 9:
      gc.collect()
    resident.append(processes.resident_memory())
  assert sum(graph() is not None for graph in graphs) == 0
  growth = resident[-1] - resident[19]
  print(f"20 graphs: resident memory grew by {growth / 2**20:.1f} MB")
  assert growth < 20 * 80 * 2**10  # 80 KiB a graph.
  # The loss scale itself holds no weights of the graphs.
  assert list(loss_scale._weights) == ["current_loss_scale", "good_steps"]


# Object-based checkpoints --------------------------------------------------


def save_one(tmp_path, scale, steps):
  loss_scale = tfl.DynamicLossScale(scale, 100)
  loss_scale.good_steps.assign(steps)
  return tf.train.Checkpoint(ls=loss_scale).save(str(tmp_path / "ckpt"))


@pytest.mark.parametrize("mode", ["eager", *helpers.GRAPH_MODES])
def test_restored_before_the_weights_exist(mode, tmp_path):
  path = save_one(tmp_path, 32, 7)
  with tf.Graph().as_default():
    loss_scale = tfl.DynamicLossScale(2)
  with helpers.mode_scope(mode) as graph:
    status = tf.train.Checkpoint(ls=loss_scale).restore(path)
    with pytest.raises(AssertionError):
      status.assert_consumed()
    values = [loss_scale(), loss_scale.good_steps]
    status.assert_consumed()
    if graph is None:
      assert [float(x) for x in values] == [32, 7]
      return
    with tf1.Session() as session:
      status.initialize_or_restore(session)
      assert session.run(values) == [32, 7]
  assert float(loss_scale()) == 2  # The restore was for that graph alone.


def test_a_restore_waits_for_its_own_graph(tmp_path):
  path = save_one(tmp_path, 32, 7)
  loss_scale = tfl.DynamicLossScale(2)
  with tf.Graph().as_default() as first:
    status = tf.train.Checkpoint(ls=loss_scale).restore(path)
  with tf.Graph().as_default(), tf1.Session() as session:
    value = loss_scale()
    session.run(tf1.global_variables_initializer())
    assert session.run(value) == 2
  with first.as_default(), tf1.Session() as session:
    value = loss_scale()
    status.initialize_or_restore(session)
    assert session.run(value) == 32


def test_each_graph_saves_its_own_weights(tmp_path):
  loss_scale = tfl.DynamicLossScale(4, 1)
  with tf.Graph().as_default(), tf1.Session() as session:
    update, _ = loss_scale.update([1.0])
    session.run(tf1.global_variables_initializer())
    session.run(update)
    path = tf1.train.Checkpoint(ls=loss_scale).save(
      os.path.join(tmp_path, "graph"), session=session
    )
  tf.train.Checkpoint(ls=loss_scale).restore(path).assert_consumed()
  assert float(loss_scale()) == 8
