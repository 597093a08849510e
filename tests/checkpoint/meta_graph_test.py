# SPDX-License-Identifier: Apache-2.0
"""Tests that imported savers restore variables by the keys in their graph."""

import contextlib
import random

import numpy as np
import pytest
from saved_graphs import read
from saved_graphs import variable
import tensorflow as tf
from tensorflow.python.training import saver as tf_saver

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1
_kinds = pytest.mark.parametrize("resource", [False, True])


def part_of(value):
  """Returns an initializer that gives each partition its part of a value."""

  def initialize(shape, dtype=None, partition_info=None):
    begin = partition_info.var_offset[0]
    return tf.constant(value[begin : begin + shape[0]], dtype)

  return initialize


def averaged(resource, scale):
  """Builds a weight that changes and its moving average.

  Args:
    resource: Whether variables are resource variables.
    scale: Whether to build a loss scale as well.

  Returns:
    A dict of key -> variable for a saver, the op that updates the weight and
    the average, the weight, and the average.
  """
  w = variable("w", [1.0, 2.0], resource)
  average = tf1.train.ExponentialMovingAverage(0.5)
  with tf.control_dependencies([w.assign_add([4.0, 8.0])]):
    update = average.apply([w])
  if scale:
    tfl.DynamicLossScale(8.0)()
  variable("b", 3.0, resource)
  return average.variables_to_restore([w]), update, w, average.average(w)


@contextlib.contextmanager
def imported(meta_graph, path, scope=None):
  """Imports a MetaGraph and restores it; yields the saver."""
  with tf.Graph().as_default(), tf1.Session():
    saver = checkpoint.import_meta_graph(meta_graph, import_scope=scope)
    saver.restore(tf1.get_default_session(), path)
    yield saver


def save_all(folder, resource=True):
  """Saves a model without loss scale; returns path, (weight, average)."""
  with tf.Graph().as_default(), tf1.Session() as session:
    _, update, w, average = averaged(resource, scale=False)
    for (
      v
    ) in tf1.global_variables():  # The average's initializer reads the weight.
      session.run(v.initializer)
    session.run(update)
    path = tf1.train.Saver().save(session, str(folder / "all"))
    return path, session.run([w, average])


@_kinds
@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("scope", [None, "a/b"])
def test_moving_averages_as_weights(resource, sharded, scope, tmp_path):
  path, (w, average) = save_all(tmp_path, resource)
  assert w.tolist() != average.tolist()
  with tf.Graph().as_default():
    mapping, *_ = averaged(resource, scale=True)
    saver = tf1.train.Saver(mapping, sharded=sharded)
    meta_graph = saver.export_meta_graph()
  with imported(meta_graph, path, scope) as saver:
    prefix = f"{scope}/" if scope else ""
    assert set(saver.last_report.initialized) == {
      "current_loss_scale",
      "good_steps",
    }
    assert read(f"{prefix}w").tolist() == average.tolist()
    assert read(f"{prefix}b") == 3
    assert read(f"{prefix}current_loss_scale") == 8


def devices(rng):
  return tf.device(rng.choice([None, "/cpu:0", "/cpu:1"]))


def random_model(rng, offset, scale):
  """Builds variables; returns a saver's `var_list` and other arguments."""
  mapping = {}
  for i in range(rng.randrange(1, 8)):
    resource = rng.random() < 0.5
    rows = rng.randrange(2, 7)
    value = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2) + i + offset
    with devices(rng):
      if rng.random() < 0.4:
        with tf1.variable_scope(
          f"scope{i}",
          partitioner=tf1.fixed_size_partitioner(rng.randrange(1, 3)),
        ):
          v = tf1.get_variable(
            "v",
            [rows, 2],
            initializer=part_of(value),
            use_resource=resource,
          )
      else:
        v = variable(f"scope{i}/v", value, resource)
    if rng.random() < 0.8 or not mapping:
      mapping[f"key{rng.randrange(1000)}/{i}"] = v
  options = {
    "sharded": rng.random() < 0.5,
    "reshape": rng.random() < 0.3,
    "restore_sequentially": rng.random() < 0.3,
  }
  if rng.random() < 0.3:  # The graph has a restore op for each tensor.
    options["builder"] = tf_saver.BaseSaverBuilder()
  if scale:
    for weight in tfl.DynamicLossScale(4.0)._weights.values():
      mapping[weight.op.name] = weight
  if rng.random() < 0.3:
    mapping = list(mapping.values())  # The keys are names.
  return mapping, options


@pytest.mark.parametrize("case", range(24))
def test_random_savers(case, tmp_path):
  """Checks savers that bridge a missing loss scale, by keys of their own."""
  with tf.Graph().as_default(), tf1.Session() as session:
    mapping, options = random_model(random.Random(case), 0, False)
    saver = tf1.train.Saver(mapping, **options)
    session.run(tf1.global_variables_initializer())
    path = saver.save(session, str(tmp_path / "model"))
    wanted = session.run(tf1.global_variables())
  with tf.Graph().as_default():
    mapping, options = random_model(random.Random(case), 1000, True)
    tf1.train.Saver(name="unrelated")
    saver = tf1.train.Saver(mapping, **options)
    meta_graph = saver.export_meta_graph()
    listed = mapping if isinstance(mapping, list) else mapping.values()
    saved = [
      part.op.name
      for v in listed
      for part in (list(v) if hasattr(v, "as_tensor") else [v])
    ]
  scope = [None, "x"][case % 2]
  with tf.Graph().as_default(), tf1.Session() as session:
    saver = checkpoint.import_meta_graph(meta_graph, import_scope=scope)
    variables = tf1.global_variables()
    session.run([v.initializer for v in variables])
    before = session.run(variables)
    saver.restore(session, path)
    assert len(saver.last_report.initialized) == 2
    values = session.run(variables[:-2])  # The last are the loss scale's.
    names = [v.op.name.removeprefix(f"{scope}/") for v in variables]
  assert len(values) == len(wanted)
  for name, value, new, old in zip(names, values, wanted, before):
    np.testing.assert_array_equal(value, new if name in saved else old)


@_kinds
def test_parts_by_keys(resource, tmp_path):
  """Checks a partitioned variable with a key unlike its name, with a bridge."""

  def build(value, scale):
    with tf1.variable_scope("p", partitioner=tf1.fixed_size_partitioner(2)):
      v = tf1.get_variable(
        "v",
        [3, 2],
        initializer=part_of(value),
        use_resource=resource,
      )
    mapping = {"other/key": v}
    if scale:
      loss_scale = tfl.DynamicLossScale(4.0)
      mapping["current_loss_scale"] = loss_scale._weights["current_loss_scale"]
      mapping["good_steps"] = loss_scale._weights["good_steps"]
    return tf1.train.Saver(mapping)

  value = np.arange(6.0).reshape(3, 2)
  with tf.Graph().as_default(), tf1.Session() as session:
    saver = build(value, scale=False)
    session.run(tf1.global_variables_initializer())
    path = saver.save(session, str(tmp_path / "model"))
  with tf.Graph().as_default():
    meta_graph = build(-value, scale=True).export_meta_graph()
  with imported(meta_graph, path, "s") as saver:
    assert saver.last_report.initialized
    parts = [read(f"s/p/v/part_{i}") for i in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts), value)


def test_several_savers_in_a_graph(tmp_path):
  with tf.Graph().as_default(), tf1.Session() as session:
    variables = {"x": variable("k", 1.0), "y": variable("l", 2.0)}
    session.run(tf1.global_variables_initializer())
    path = tf1.train.Saver(variables).save(session, str(tmp_path / "model"))
  with tf.Graph().as_default():
    a, b = variable("a", 0.0), variable("b", 0.0)
    scale = [*tfl.DynamicLossScale(4.0)._weights.values()]
    mappings = {"x": a, "y": b}, {"x": b, "y": a}, {"x": b}
    savers = [
      tf1.train.Saver({**mapping, **{v.op.name: v for v in scale}})
      for mapping in mappings
    ]
    meta_graphs = [saver.export_meta_graph() for saver in savers]
  for meta_graph, expected in zip(meta_graphs, ([1, 2], [2, 1], [-1, 1])):
    with tf.Graph().as_default(), tf1.Session() as session:
      saver = checkpoint.import_meta_graph(meta_graph)
      session.run([v.assign(-1.0) for v in tf1.global_variables()[:2]])
      saver.restore(session, path)
      assert saver.last_report.initialized
      assert [read("a"), read("b")] == expected


def test_what_is_no_variable(tmp_path):
  def build(scale):
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    insert = table.insert(["a"], tf.constant([5], tf.int64))
    variable("w", 2.0)
    if scale:
      tfl.DynamicLossScale(4.0)()
    found = table.lookup(tf.constant(["a"]))
    tf.identity(found, "found")
    return insert, tf1.train.Saver()

  paths = {}
  for scale in (False, True):
    with tf.Graph().as_default(), tf1.Session() as session:
      insert, saver = build(scale)
      session.run(tf1.global_variables_initializer())
      session.run(insert)
      paths[scale] = saver.save(session, str(tmp_path / str(scale)))
  with tf.Graph().as_default(), tf1.Session() as session:
    saver = checkpoint.import_meta_graph(f"{paths[True]}.meta")
    with pytest.raises(
      checkpoint.CheckpointError, match=r"only variables can .*-keys"
    ):
      saver.restore(session, paths[False])
    saver.restore(session, paths[True])
    assert session.run("found:0") == 5
    assert read("w") == 2


def test_a_variable_on_several_replicas(tmp_path):
  strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
  with tf.Graph().as_default(), tf1.Session() as session:
    with strategy.scope():
      tf.Variable(1.0, name="v")
    session.run(tf1.global_variables_initializer())
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  with imported(f"{path}.meta", path) as saver:
    assert saver.last_report is None
    assert read("v") == read("v/replica_1") == 1


def test_keys_that_the_graph_does_not_show(tmp_path):
  """Checks that keys are then taken to be the variables' names."""
  with tf.Graph().as_default(), tf1.Session() as session:
    w = variable("w", 5.0)
    session.run(w.initializer)
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  with tf.Graph().as_default(), tf1.Session() as session:
    w = variable("w", 1.0)
    tfl.DynamicLossScale(4.0)()
    (value,) = tf.raw_ops.RestoreV2(
      prefix=tf1.placeholder_with_default("model", [], "name"),
      tensor_names=tf1.placeholder_with_default(["w"], [1]),
      shape_and_slices=[""],
      dtypes=[tf.float32],
    )
    saver_def = tf1.train.SaverDef(
      filename_tensor_name="name:0",
      save_tensor_name="name:0",
      restore_op_name=tf.group(w.assign(value)).name,
      version=tf1.train.SaverDef.V2,
    )
    saver = checkpoint.Saver(saver_def=saver_def)
    saver.restore(session, path)
    assert saver.last_report.initialized
    assert read("w") == 5
