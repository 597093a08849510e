# SPDX-License-Identifier: Apache-2.0
"""Tests that the state of a stuck run is kept."""

import json
import logging
import os

import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import monitoring
from tf_compat_lossscale.monitoring import keeping

tf1 = tf.compat.v1

pytestmark = pytest.mark.any_release


@pytest.fixture
def warnings(caplog, monkeypatch):
  """What absl logs."""
  monkeypatch.setattr(logging.getLogger("absl"), "propagate", True)
  with caplog.at_level(logging.WARNING, logger="absl"):
    yield caplog


def make_variables():
  """Returns a variable of each kind that `Saver` knows."""
  random = np.random.default_rng(0)
  return [
    tf1.get_variable("ref", initializer=random.random(3), use_resource=False),
    tf1.get_variable("resource", initializer=np.int64(7), use_resource=True),
    tf1.get_variable("text", initializer=[b"a", b"bc"], use_resource=True),
    *tf1.get_variable(
      "parts",
      [5, 2],
      partitioner=tf1.fixed_size_partitioner(3),
      initializer=tf1.random_uniform_initializer(),
    ),
  ]


def test_saver_restores_what_was_kept(tmp_path):
  folder = str(tmp_path / "stuck-7")
  with tf.Graph().as_default() as graph, tf1.Session() as session:
    make_variables()
    session.run(tf1.global_variables_initializer())
    expected = session.run(tf1.global_variables())
    late = tf1.get_variable("without_value", [2])
    graph.finalize()
    keeping.keep_session(session, folder, "stuck", None)
  assert (
    late.op.name
    not in tf.train.load_checkpoint(
      os.path.join(folder, "state")
    ).get_variable_to_shape_map()
  )
  with tf.Graph().as_default(), tf1.Session() as session:
    make_variables()
    tf1.train.Saver().restore(session, tf.train.latest_checkpoint(folder))
    for value, other in zip(session.run(tf1.global_variables()), expected):
      np.testing.assert_array_equal(value, other)


def test_report_tells_shapes_and_no_values(tmp_path):
  folder = tmp_path / "stuck-7"
  with tf.Graph().as_default(), tf1.Session() as session:
    tf1.get_variable("v", initializer=1.0).initializer.run()
    x = tf1.placeholder(tf.float32, [None, 2], "x")
    sparse = tf1.sparse_placeholder(tf.float32, name="sparse")
    feed = {
      x: np.full([3, 2], 4321.5, np.float32),
      "y:0": [4321.5],
      sparse: tf1.SparseTensorValue([[0, 1]], [4321.5], [2, 2]),
    }
    keeping.keep_session(session, str(folder), "It is stuck.", feed)
  text = (folder / "report.json").read_text("utf-8")
  report = json.loads(text)
  assert report["message"] == "It is stuck."
  assert report["fed"]["x:0"] == {"shape": [3, 2], "dtype": "float32"}
  assert report["fed"]["y:0"]["shape"] == [1]
  assert len(report["fed"]) == 3
  assert "4321" not in text


def test_eager_variables_are_kept_by_name(tmp_path):
  variables = [tf.Variable(float(i), name="v") for i in range(3)]
  inputs = {"a": tf.zeros([2, 3]), "b": 1}
  keeping.keep_variables(variables, str(tmp_path / "s"), "stuck", inputs)
  reader = tf.train.load_checkpoint(str(tmp_path / "s" / "state"))
  names = ("v", "v_1", "v_2")
  assert [reader.get_tensor(name) for name in names] == [0, 1, 2]
  report = json.loads((tmp_path / "s" / "report.json").read_text("utf-8"))
  assert [x["shape"] for x in report["fed"].values()] == [[2, 3], []]


def test_earlier_states_stay(tmp_path):
  for _ in range(3):
    keeping.keep_variables(
      [tf.Variable(1.0)], str(tmp_path / "s"), "stuck", None
    )
  assert sorted(os.listdir(tmp_path)) == ["s", "s-2", "s-3"]


def test_a_disk_error_is_a_warning(tmp_path, warnings):
  (tmp_path / "file").write_text("")
  keeping.keep_variables(
    [tf.Variable(1.0)], str(tmp_path / "file" / "s"), "stuck", None
  )
  assert "could not be kept" in warnings.text
  assert os.listdir(tmp_path) == ["file"]


def test_a_failed_checkpoint_leaves_nothing(tmp_path, monkeypatch, warnings):
  def fail(*args, **kwargs):
    raise tf.errors.ResourceExhaustedError(None, None, "No space left")

  monkeypatch.setattr(keeping, "_save", fail)
  keeping.keep_variables([tf.Variable(1.0)], str(tmp_path / "s"), "stuck", None)
  assert "No space left" in warnings.text
  assert not os.listdir(tmp_path)


@pytest.mark.parametrize("on_stuck", ["warn", "stop", "raise"])
def test_a_stuck_run_is_kept_once(tmp_path, on_stuck):
  with tf.Graph().as_default(), tf1.Session() as session:
    x = tf1.placeholder(tf.float32, [], "x")
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.MomentumOptimizer(0.1, 0.9), tfl.DynamicLossScale(4)
    )
    train_op = opt.minimize(v * x, tf1.train.get_or_create_global_step())
    hook = monitoring.LossScaleHook(
      opt, tmp_path, on_stuck=on_stuck, patience=5
    )
    hook.begin()
    session.run(tf1.global_variables_initializer())
    raised = False
    for value in [1.0, 1.0] + [np.inf] * 20:
      try:
        hook.run(session, train_op, {x: value})
      except monitoring.StuckError as error:
        assert "step 3 to step 7" in str(error)
        raised = True
        break
    hook.end(session)
    assert raised == (on_stuck == "raise")
  (folder,) = tmp_path.glob("stuck-*")
  assert folder.name == "stuck-7"
  described = checkpoint.describe(str(folder))
  assert described.step == 2
  assert [x.value for x in described.loss_scales] == [1]
  report = json.loads((folder / "report.json").read_text("utf-8"))
  assert report["fed"]["x:0"]["shape"] == []
  assert "1 of 1 gradients: v: 1 inf" in report["message"]
