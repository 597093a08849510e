# SPDX-License-Identifier: Apache-2.0
"""Tests how savers find keys in graphs with unusual restore ops."""

import helpers
import pytest
from saved_graphs import read
from saved_graphs import variable
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import saver_keys

tf1 = tf.compat.v1


def test_a_saver_that_runs_after_something_else():
  """Checks that other ops before a restore op are not taken for restores."""
  with tf.Graph().as_default() as graph:
    w, count = variable("w", 1.0), variable("count", 0.0, resource=False)
    updates = [count.assign_add(1.0), count.assign(w * 2.0), w.assign(count)]
    with tf.control_dependencies(updates):
      saver = tf1.train.Saver({"key": w})
    found = saver_keys.find_saved(graph, saver.saver_def)
  assert found == ({"key": [w]}, [])


def saver_def_of(name, assigns):
  """Returns the SaverDef of a saver that runs given assignments."""
  return tf1.train.SaverDef(
    filename_tensor_name=f"{name}:0",
    save_tensor_name=f"{name}:0",
    restore_op_name=tf.group(*assigns).name,
    version=tf1.train.SaverDef.V2,
  )


def restored(name, key, part="", dtype=tf.float32):
  """Returns the tensor that a RestoreV2 op reads by a key."""
  (tensor,) = tf.raw_ops.RestoreV2(
    prefix=name, tensor_names=[key], shape_and_slices=[part], dtypes=[dtype]
  )
  return tensor


def test_values_that_are_cast_or_reshaped():
  with tf.Graph().as_default() as graph:
    name = tf1.placeholder_with_default("model", [], "name")
    variables = [variable(f"v{i}", 1.0, resource=False) for i in range(3)]
    values = [
      restored(name, "plain"),
      tf.reshape(restored(name, "reshaped"), []),
      tf.cast(restored(name, "cast", dtype=tf.float64), tf.float32),
    ]
    assigns = [tf1.assign(*pair) for pair in zip(variables, values)]
    found = saver_keys.find_saved(graph, saver_def_of("name", assigns))
  keys = ["plain", "reshaped", "cast"]
  assert found.variables == dict(zip(keys, map(list, zip(variables))))
  assert not found.others


def test_values_that_are_changed_on_their_way():
  with tf.Graph().as_default() as graph:
    name = tf1.placeholder_with_default("model", [], "name")
    v, w = variable("v", 1.0), variable("w", 1.0)
    assigns = [
      v.assign(restored(name, "half") / 2.0),
      w.assign(restored(name, "w")),
    ]
    found = saver_keys.find_saved(graph, saver_def_of("name", assigns))
  assert found == ({"w": [w]}, ["half"])


def test_slices_that_are_not_the_variables():
  with tf.Graph().as_default() as graph:
    name = tf1.placeholder_with_default("model", [], "name")
    v, w = variable("v", [1.0]), variable("w", [2.0])
    assigns = [
      v.assign(restored(name, "k", "2 0,1")),
      w.assign(restored(name, "w")),
    ]
    found = saver_keys.find_saved(graph, saver_def_of("name", assigns))
  assert found == ({"w": [w]}, ["k"])


@pytest.mark.parametrize("how", ["fed", "nothing", "missing", "call"])
def test_graphs_that_do_not_show_it(how, tmp_path):
  """Checks that keys are variables' names if the graph shows no keys."""
  with tf.Graph().as_default(), tf1.Session() as session:
    w = variable("w", 5.0)
    session.run(w.initializer)
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  with tf.Graph().as_default() as graph, tf1.Session() as session:
    name = tf1.placeholder_with_default("model", [], "name")
    w = variable("w", 1.0)
    tfl.DynamicLossScale(4.0)()
    if how == "fed":
      keys = tf1.placeholder_with_default(["w"], [1])
      (value,) = tf.raw_ops.RestoreV2(
        prefix=name,
        tensor_names=keys,
        shape_and_slices=[""],
        dtypes=[tf.float32],
      )
      ops = [w.assign(value)]
    elif how == "call":
      function = tf.function(lambda name: w.assign(restored(name, "w")))
      ops = [function(name)]
    else:
      ops = [w.assign(3.0)]
    saver_def = saver_def_of("name", ops)
    if how == "missing":
      saver_def.restore_op_name = "none"
    assert saver_keys.find_saved(graph, saver_def) is None
    saver = checkpoint.Saver(saver_def=saver_def)
    saver.restore(session, path)
    assert saver.last_report.initialized
    assert read("w") == 5


if __name__ == "__main__":
  helpers.main()
