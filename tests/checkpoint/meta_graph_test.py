# SPDX-License-Identifier: Apache-2.0
"""Tests that imported savers restore variables by the keys in their graph."""

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


def part_of(value):
  """Returns an initializer that gives each partition its part of a value."""

  def initialize(shape, dtype=None, partition_info=None):
    begin = partition_info.var_offset[0]
    return tf.constant(value[begin : begin + shape[0]], dtype)

  return initialize


def devices(rng):
  return tf.device(rng.choice([None, "/cpu:0", "/cpu:1"]))


def random_model(rng, offset, scale):
  """Builds variables; returns a saver's `var_list` and other arguments."""
  mapping, count = {}, rng.randrange(1, 8)
  for i in range(count):
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
      other = f"scope{(i + 1) % count}/v"  # As an average has a weight's name.
      mapping[rng.choice([f"key{i}", other])] = v
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
  """Checks savers that bridge a missing loss scale, by keys of their own.

  A key may be the name of another variable, and the graph has two savers.
  """
  with tf.Graph().as_default(), tf1.Session() as session:
    mapping, options = random_model(random.Random(case), 0, False)
    saver = tf1.train.Saver(mapping, **options)
    session.run(tf1.global_variables_initializer())
    path = saver.save(session, str(tmp_path / "model"))
    wanted = session.run(tf1.global_variables())
  with tf.Graph().as_default():
    mapping, options = random_model(random.Random(case), 1000, True)
    tf1.train.Saver()
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
  with tf.Graph().as_default(), tf1.Session() as session:
    saver = checkpoint.import_meta_graph(f"{path}.meta")
    saver.restore(session, path)
    assert saver.last_report is None
    assert read("v") == read("v/replica_1") == 1
