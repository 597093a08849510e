# SPDX-License-Identifier: Apache-2.0
"""Tests `Saver`, `Scaffold`, monitored sessions and `import_meta_graph`."""

import inspect

import helpers
import numpy as np
import pytest
import saved_graphs
from saved_graphs import adam_on
from saved_graphs import dynamic
from saved_graphs import variable
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1

path = saved_graphs.path


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["function", "scaffold", "creator"])
def test_monitored_sessions(how, tmp_path):
  """Checks that a run goes on in v2 control flow if one name is changed."""

  def run(v2, steps, session_of, folder=str(tmp_path)):
    with helpers.control_flow(v2), tf.Graph().as_default():
      global_step = tf1.train.get_or_create_global_step()
      w = tf1.get_variable("w", initializer=[3.0, 4.0], use_resource=True)
      opt = tfl.MixedPrecisionLossScaleOptimizer(
        tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale(8.0, 2)
      )
      train = opt.minimize(tf.reduce_sum(w * w), global_step)
      fetches = [global_step, opt.loss_scale(), w]
      with session_of(folder) as session:
        for _ in range(steps):
          session.run(train)
        return session.run(fetches)

  def plainly(folder):
    return tf1.train.MonitoredTrainingSession(
      checkpoint_dir=folder, save_checkpoint_steps=1, save_checkpoint_secs=None
    )

  def bridging(folder):
    if how == "function":
      return checkpoint.MonitoredTrainingSession(checkpoint_dir=folder)
    scaffold = checkpoint.Scaffold()
    if how == "scaffold":
      return tf1.train.MonitoredTrainingSession(
        checkpoint_dir=folder, scaffold=scaffold
      )
    return tf1.train.MonitoredSession(
      tf1.train.ChiefSessionCreator(scaffold, checkpoint_dir=folder)
    )

  assert run(False, 3, plainly)[:2] == [3, 16.0]
  with pytest.raises(tf.errors.NotFoundError):
    run(True, 1, plainly)
  steps, scale, w = run(True, 3, bridging)
  assert (steps, scale) == (6, 64.0)
  _, _, expected = run(False, 6, plainly, str(tmp_path / "anew"))
  np.testing.assert_allclose(w, expected, rtol=1e-6)


@pytest.mark.parametrize("how", ["session", "saver", "deferred"])
def test_a_graph_that_has_a_saver(how, tmp_path):
  """Checks a graph that TensorFlow's own session failed in, as in a notebook.

  The same holds for a saver that the program added itself.
  """
  folder = str(tmp_path)
  with helpers.control_flow(False), tf.Graph().as_default():
    adam_on(["net"])
    tf1.train.get_or_create_global_step()
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      tf1.train.Saver().save(session, folder + "/model", 0)
  with helpers.control_flow(True), tf.Graph().as_default():
    adam_on(["net"])
    tf1.train.get_or_create_global_step()
    if how != "session":
      saver = tf1.train.Saver(defer_build=how == "deferred")
      tf1.add_to_collection(tf1.GraphKeys.SAVERS, saver)
    else:
      with pytest.raises(tf.errors.NotFoundError):
        tf1.train.MonitoredTrainingSession(checkpoint_dir=folder)
    for _ in range(2):  # The second time, the graph has our saver.
      with checkpoint.MonitoredTrainingSession(
        checkpoint_dir=folder,
        save_checkpoint_secs=None,
        save_summaries_steps=None,
        log_step_count_steps=None,
      ) as session:
        name = "beta1_power/Read/ReadVariableOp:0"
        assert session.run(name) == np.float32(0.53)


def test_a_saver_without_need_of_bridges_is_tensorflows(path):
  with tf.Graph().as_default(), tf1.Session() as session:
    kernel = variable("dense/kernel", [5, 5])
    scale = dynamic(2.0)
    saver = checkpoint.Saver()
    saver.restore(session, path)
    assert saver.last_report is None
    assert session.run(kernel).tolist() == [1, 2]
    assert session.run(scale()) == 64.0
    with pytest.raises(checkpoint.CheckpointError, match="no op ''"):
      checkpoint.Saver(defer_build=True).restore(session, path)


@pytest.mark.any_release
def test_data_that_is_cut_off(tmp_path):
  """Checks that a session says in one line what `restore` says."""

  def build():
    tf1.train.get_or_create_global_step()
    variable("w", np.ones(1000))

  path = saved_graphs.save(tmp_path, build)
  data = tmp_path / "model.data-00000-of-00001"
  data.write_bytes(data.read_bytes()[:100])
  with tf.Graph().as_default():
    build()
    with pytest.raises(checkpoint.CheckpointError, match="is damaged") as error:
      checkpoint.MonitoredTrainingSession(checkpoint_dir=str(tmp_path))
  assert path in str(error.value) and "\n" not in str(error.value)


def test_a_saver_of_some_variables(path):
  with tf.Graph().as_default(), tf1.Session() as session:
    kernel = variable("kernel", [5, 5])
    variable("unrelated", [0])
    saver = checkpoint.Saver({"dense/kernel": kernel})
    saver.restore(session, path)
    assert session.run(kernel).tolist() == [1, 2]
    scale = tfl.DynamicLossScale(2.0)
    checkpoint.Saver([*scale._weights.values()]).restore(session, path)
    assert session.run(scale()) == 64.0


def test_a_saver_of_more_than_variables(tmp_path):
  path = saved_graphs.save(tmp_path, lambda: variable("w", [1.0]))
  with tf.Graph().as_default(), tf1.Session() as session:
    variable("w", [5.0])
    dynamic()
    dataset = tf1.data.make_initializable_iterator(tf.data.Dataset.range(3))
    tf1.add_to_collection(
      tf1.GraphKeys.SAVEABLE_OBJECTS,
      tf.data.experimental.make_saveable_from_iterator(dataset),
    )
    with pytest.raises(checkpoint.CheckpointError, match="Iterator"):
      checkpoint.Saver().restore(session, path)
    session.run([tf1.global_variables_initializer(), dataset.initializer])
    path = tf1.train.Saver().save(session, str(tmp_path / "all"))
  specs = checkpoint.describe(path).keys
  assert checkpoint.convert(path, tmp_path / "new", "saver").written == specs


@pytest.mark.parametrize("scope", [None, "imported"])
def test_import_meta_graph(scope):
  """Checks a MetaGraph that TensorFlow itself cannot import."""
  golden = helpers.GOLDENS / "tf-2.4.4" / "session_v2_behavior_adam"
  path = str(golden / "model.ckpt-10")
  with tf.Graph().as_default(), pytest.raises(KeyError):
    tf1.train.import_meta_graph(path + ".meta")
  with tf.Graph().as_default(), tf1.Session() as session:
    saver = checkpoint.import_meta_graph(path + ".meta", import_scope=scope)
    saver.restore(session, path)
    name = f"{scope or ''}/current_loss_scale".lstrip("/")
    assert saved_graphs.read(name) == 16384.0


@pytest.mark.parametrize(
  ("content", "what"), [(None, "No such file"), (b"text", "no MetaGraph")]
)
def test_no_meta_graph(content, what, tmp_path):
  path = tmp_path / "x.meta"
  if content:
    path.write_bytes(content)
  with pytest.raises(checkpoint.CheckpointError, match=what):
    checkpoint.import_meta_graph(path)


def test_sessions_have_the_parameters_of_tensorflows():
  ours, theirs = (
    {
      name: parameter.default
      for name, parameter in inspect.signature(function).parameters.items()
    }
    for function in (
      checkpoint.MonitoredTrainingSession,
      helpers.tf1.train.MonitoredTrainingSession,
    )
  )
  assert list(ours.items()) == list(theirs.items())
