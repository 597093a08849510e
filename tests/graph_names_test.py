# SPDX-License-Identifier: Apache-2.0
"""Tests names of variables and ops, MetaGraphs, and the size of graphs."""

import itertools

import helpers
from helpers import GRAPH_MODES
from helpers import INNER
from helpers import OWN
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


def build(module, inner, loss_scale, use_resource):
  v = tf1.get_variable("v", [2], use_resource=use_resource)
  step = tf1.train.get_or_create_global_step()
  if loss_scale == "dynamic":
    loss_scale = module.DynamicLossScale(8, 2)
  opt = module.MixedPrecisionLossScaleOptimizer(INNER[inner](), loss_scale)
  return opt.minimize(tf.reduce_sum(v * v), global_step=step, name="train")


# Names ---------------------------------------------------------------------


def is_built_by_tensorflow(case):
  """Returns whether TensorFlow's own optimizer can build a case.

  TensorFlow's own fails on reference variables under v2 control flow. For their
  names, see `test_ref_variables_are_named_as_in_tensorflow_1_in_both_modes`.
  """
  mode, _, loss_scale, use_resource, *_ = case
  return mode == "graph_v1" or use_resource or loss_scale == 8


# Adam has all cases of a dynamic scale, because its variables are then made
# inside a cond.
_CASES = ([True, False], [None, "net"], [0, 2])
_SCALES = ["dynamic", 8]
_NAMED = {
  *helpers.pairs(
    GRAPH_MODES, INNER, _SCALES, *_CASES, allowed=is_built_by_tensorflow
  ),
  *filter(
    is_built_by_tensorflow,
    itertools.product(GRAPH_MODES, ["adam"], ["dynamic"], *_CASES),
  ),
}


@pytest.mark.parametrize(
  ("mode", "inner", "loss_scale", "use_resource", "scope", "conds_before"),
  helpers.Rows(sorted(_NAMED, key=str)),
)
def test_variables_are_named_as_tensorflow_names_them(
  mode, inner, loss_scale, use_resource, scope, conds_before
):
  names = []
  for module in (OWN, tfl):
    with helpers.mode_scope(mode):
      for _ in range(conds_before):
        tf.cond(tf1.placeholder(tf.bool), lambda: 1.0, lambda: 2.0)
      with tf1.variable_scope(scope or tf1.get_variable_scope()):
        train = build(module, inner, loss_scale, use_resource)
      names.append((helpers.variable_names(), train.name))
  assert names[0] == names[1]


def test_ref_variables_are_named_as_in_tensorflow_1_in_both_modes():
  names = []
  for mode in GRAPH_MODES:
    with helpers.mode_scope(mode):
      build(tfl, "adam", "dynamic", use_resource=False)
      names.append(helpers.variable_names())
  assert names[0] == names[1]
  assert "cond_1/beta1_power" in names[0]


def test_a_metagraph_has_the_branches_of_ref_variables():
  with helpers.mode_scope("graph_v2"):
    build(tfl, "adam", "dynamic", use_resource=False)
    meta = tf1.train.export_meta_graph()
  with tf.Graph().as_default() as graph:
    tf1.train.import_meta_graph(meta)
    contexts = tf1.get_collection(tf1.GraphKeys.COND_CONTEXT)
    assert [context.name for context in contexts] == [
      "cond_1/cond_text",
      "cond_1/cond_text_1",
    ]
    (apply,) = [op for op in graph.get_operations() if op.type == "ApplyAdam"]
    assert apply._get_control_flow_context() is contexts[0]


def test_a_name_that_users_fetch_by_stays_theirs():
  with tf.Graph().as_default() as graph:
    build(tfl, "adam", "dynamic", True)
    for name in ("loss_scale", "gradients_1", "all_finite", "unscale"):
      assert tf.constant(1.0, name=name).op.name == name
    assert graph.get_operation_by_name("train")


# MetaGraphs ----------------------------------------------------------------


@pytest.mark.parametrize(
  ("mode", "inner", "loss_scale", "use_resource"),
  helpers.pairs(
    GRAPH_MODES, ["sgd", "momentum", "adam"], ["dynamic", 8], [True, False]
  ),
)
def test_a_metagraph_trains_on(mode, inner, loss_scale, use_resource, tmp_path):
  path = str(tmp_path / "model")
  with helpers.mode_scope(mode), tf1.Session() as session:
    train = build(tfl, inner, loss_scale, use_resource)
    assert tf1.get_collection(tf1.GraphKeys.TRAIN_OP) == [train]
    session.run(tf1.global_variables_initializer())
    session.run(train)
    tf1.train.Saver().save(session, path)
    session.run([train] * 3)
    session.run(train)
    variables = tf1.global_variables()
    expected = dict(zip([v.name for v in variables], session.run(variables)))
  with tf.Graph().as_default(), tf1.Session() as session:
    saver = tf1.train.import_meta_graph(path + ".meta")
    saver.restore(session, path)
    (train,) = tf1.get_collection(tf1.GraphKeys.TRAIN_OP)
    assert train.name == "train"
    session.run([train] * 3)
    session.run(train)
    variables = tf1.global_variables()
    values = dict(zip([v.name for v in variables], session.run(variables)))
  assert sorted(values) == sorted(expected)
  for name, value in values.items():
    assert value.tobytes() == expected[name].tobytes()


@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_other_train_ops_stay_in_the_collection(mode):
  with helpers.mode_scope(mode):
    v = tf1.get_variable("v", initializer=[1.0])
    other = INNER["sgd"]().minimize(v)
    ours = build_on(v)
    theirs = INNER["sgd"]().minimize(v)
    assert tf1.get_collection(tf1.GraphKeys.TRAIN_OP) == [other, ours, theirs]


def build_on(v):
  opt = tfl.MixedPrecisionLossScaleOptimizer(INNER["sgd"](), "dynamic")
  return opt.minimize(v)


@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_graphs_are_no_larger_than_tensorflows_own(mode):
  sizes = []
  for module in (OWN, tfl):
    with helpers.mode_scope(mode) as graph:
      variables = [
        tf1.get_variable(f"v{i}", [2], use_resource=True) for i in range(8)
      ]
      opt = module.MixedPrecisionLossScaleOptimizer(
        INNER["adam"](), module.DynamicLossScale()
      )
      opt.minimize(tf.add_n([tf.reduce_sum(v) for v in variables]))
      proto = graph.as_graph_def()
      functions = sum(len(f.node_def) for f in proto.library.function)
      sizes.append(len(proto.node) + functions)
  assert sizes[1] <= sizes[0], np.array(sizes)


if __name__ == "__main__":
  helpers.main()
