# SPDX-License-Identifier: Apache-2.0
"""Tests the hook in each kind of session, and under strategies."""

import logging
import os

import helpers
import monitored_runs
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale import monitoring

tf1 = tf.compat.v1
_INF = float("inf")


@pytest.fixture(autouse=True)
def logged(caplog):
  """Gives each test the logged lines."""
  caplog.set_level(logging.INFO, "absl")
  return caplog


class Model:
  """A program of one variable in the current graph, fed by `factor`."""

  def __init__(self, scale=8.0, period=100) -> None:
    self.global_step = tf1.train.get_or_create_global_step()
    self.v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    self.factor = tf1.placeholder_with_default(1.0, [])
    self.loss = tf.reduce_sum(self.v * self.factor)
    self.opt = monitored_runs.make_sgd(scale, period)
    self.train = self.opt.minimize(self.loss, self.global_step)

  def feed(self, value):
    return {self.factor: value}


def steps_of(folder):
  return [x["step"] for x in monitored_runs.assert_same_series(folder)]


# Sessions ----


class _Builder(tf1.train.SessionRunHook):
  """A hook that builds ops in `begin` and runs the step itself."""

  def __init__(self, model):
    self._model = model

  def begin(self):
    self.late = tf.identity(self._model.loss) * 2.0

  def before_run(self, run_context):
    return tf1.train.SessionRunArgs(self.late)


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("first", [True, False])
def test_monitored_training_session(tmp_path, mode, first):
  with helpers.mode_scope(mode):
    model = Model()
    hook = monitoring.LossScaleHook(
      model.opt, tmp_path / "log", every_n_steps=4
    )
    hooks = [hook, _Builder(model)] if first else [_Builder(model), hook]
    with tf1.train.MonitoredTrainingSession(
      hooks=hooks,
      chief_only_hooks=[
        tf1.train.StepCounterHook(2, output_dir=tmp_path / "s")
      ],
      checkpoint_dir=str(tmp_path / "checkpoints"),
      save_checkpoint_steps=3,
      log_step_count_steps=None,
    ) as session:
      for i in range(10):
        session.run([model.train, model.loss], model.feed([1, _INF][i == 5]))
        session.run(model.loss)
  lines = monitored_runs.assert_same_series(tmp_path / "log")
  assert [x["step"] for x in lines] == [1, 4, 6, 8, 10]
  assert [x["global_step"] for x in lines] == [1, 4, 5, 7, 9]


def test_a_worker_that_is_not_the_chief(tmp_path):
  with tf.Graph().as_default() as graph:
    model = Model()
    hook = monitoring.LossScaleHook(model.opt, tmp_path, every_n_steps=2)
    server = tf1.train.Server.create_local_server()
    with tf1.Session(server.target, graph=tf.Graph()):
      pass
    # The chief initializes the variables, which the server keeps.
    with tf1.Session(server.target) as chief:
      chief.run(tf1.global_variables_initializer())
    with tf1.train.MonitoredTrainingSession(
      server.target, is_chief=False, hooks=[hook]
    ) as session:
      for _ in range(4):
        session.run(model.train)
    del graph
  assert steps_of(tmp_path) == [1, 2, 4]


def test_run_step_fn(tmp_path):
  with tf.Graph().as_default():
    model = Model()
    hook = monitoring.LossScaleHook(model.opt, tmp_path, every_n_steps=1)

    def step(step_context):
      step_context.session.run(model.global_step)  # Passes by all hooks.
      return step_context.run_with_hooks(model.train, model.feed(_INF))

    with tf1.train.MonitoredSession(hooks=[hook]) as session:
      for _ in range(3):
        session.run_step_fn(step)
  assert steps_of(tmp_path) == [1, 2, 3]


def test_the_end_of_the_data(tmp_path):
  with tf.Graph().as_default():
    data = tf1.data.make_one_shot_iterator(tf.data.Dataset.range(5))
    value = tf.cast(data.get_next(), tf.float32)
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    opt = monitored_runs.make_sgd()
    train = opt.minimize(tf.reduce_sum(v * value))
    hook = monitoring.LossScaleHook(opt, tmp_path)
    with tf1.train.MonitoredSession(hooks=[hook]) as session:
      while not session.should_stop():
        session.run(train)
  assert steps_of(tmp_path) == [1, 5]


def test_an_evaluation_alone(tmp_path):
  with tf.Graph().as_default():
    model = Model()
    hook = monitoring.LossScaleHook(model.opt, tmp_path / "log")
    with tf1.train.MonitoredSession(hooks=[hook]) as session:
      for _ in range(3):
        session.run(model.loss)
  assert not (tmp_path / "log").exists()


def test_a_session_that_is_created_again(tmp_path):
  """A worker is preempted: the session starts anew from a checkpoint."""
  with tf.Graph().as_default():
    model = Model()
    hook = monitoring.LossScaleHook(
      model.opt, tmp_path / "log", every_n_steps=1
    )

    class Preempted(tf1.train.SessionRunHook):
      count = 0

      def before_run(self, run_context):
        self.count += 1
        if self.count in (8, 13):
          raise tf.errors.AbortedError(None, None, "Preempted.")

    with tf1.train.MonitoredTrainingSession(
      hooks=[hook, Preempted()],
      checkpoint_dir=str(tmp_path / "checkpoints"),
      save_checkpoint_steps=5,
    ) as session:
      while True:
        step = session.run([model.global_step, model.train])[0]
        if step >= 14:
          break
  lines = monitored_runs.assert_same_series(tmp_path / "log")
  assert [x["step"] for x in lines] == [x["global_step"] for x in lines]
  assert [x["step"] for x in lines] == list(range(1, lines[-1]["step"] + 1))
  assert lines[-1]["step"] >= 14
  # Both later sessions go on from step 5: the log has the last one's lines.
  assert [x["step"] for x in lines if "config" in x] == [1, 6]


def test_a_second_session_of_a_graph(tmp_path):
  counts = set()
  with tf.Graph().as_default() as graph:
    model = Model()
    hook = monitoring.LossScaleHook(model.opt, tmp_path / "log")
    for _ in range(3):
      with tf1.train.MonitoredTrainingSession(
        hooks=[hook], checkpoint_dir=str(tmp_path / "checkpoints")
      ) as session:
        for _ in range(4):
          session.run(model.train)
      names = [op.name for op in graph.get_operations()]
      counts.add(sum(x.startswith("LossScaling/monitoring/") for x in names))
  assert len(counts) == 1
  assert steps_of(tmp_path / "log") == [1, 4, 5, 8, 9, 12]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_supervisor(tmp_path):
  with tf.Graph().as_default():
    model = Model()
    hook = monitoring.LossScaleHook(
      model.opt, tmp_path / "log", every_n_steps=1, on_stuck="stop", patience=3
    )
    hook.begin()
    # With a folder, Supervisor reads the global step in an eager thread.
    supervisor = tf1.train.Supervisor(logdir=None)
    with supervisor.managed_session() as session:
      hook.run(session, model.train)
      for _ in range(5):
        hook.run(session, model.train, model.feed(_INF))
        if hook.stop_requested:
          break
      hook.end(session)
  assert steps_of(tmp_path / "log") == [1, 2, 3, 4]


def test_the_hooks_methods_by_hand(tmp_path):
  with tf.Graph().as_default():
    model = Model()
    hook = monitoring.LossScaleHook(model.opt, tmp_path)
    hook.begin()
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      for _ in range(3):
        context = tf1.train.SessionRunContext(
          tf1.train.SessionRunArgs(model.train), session
        )
        own = hook.before_run(context)
        _, seen = session.run([model.train, own.fetches])
        hook.after_run(context, tf1.train.SessionRunValues(seen, None, None))
      hook.end(session)
  assert steps_of(tmp_path) == [1, 3]


def test_options_and_metadata_of_a_run():
  with monitored_runs.Program() as program:
    metadata = tf1.RunMetadata()
    result = program.hook.run(
      program.session,
      {"a": program.train_op, "b": (program.trainer.global_step,)},
      program.feed(1.0),
      tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE),
      metadata,
    )
    assert result["a"] is None and len(result["b"]) == 1
    assert metadata.step_stats.dev_stats


def test_threads_that_share_a_session(tmp_path):
  with tf.Graph().as_default():
    model = Model(period=10**6)
    hook = monitoring.LossScaleHook(model.opt, tmp_path, every_n_steps=1)
    with tf1.train.MonitoredSession(hooks=[hook]) as session:

      def work(i):
        for j in range(25):
          session.run(model.train, model.feed(_INF if (i + j) % 9 == 0 else 1))

      helpers.in_threads(work, 8)
  lines = monitored_runs.assert_same_series(tmp_path)
  assert [x["step"] for x in lines] == list(range(1, 201))
  skipped = sum((i + j) % 9 == 0 for i in range(8) for j in range(25))
  assert lines[-1]["loss_scale/skipped_total"] == skipped
  assert sum("config" in x for x in lines) == 1


@pytest.mark.parametrize("way", ["warn", "stop", "raise"])
def test_a_stuck_run(tmp_path, logged, way):
  done = 0
  with tf.Graph().as_default():
    model = Model(scale=2.0)
    hook = monitoring.LossScaleHook(
      model.opt, tmp_path, on_stuck=way, patience=6
    )
    try:
      with tf1.train.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop() and done < 20:
          session.run(model.train, model.feed(_INF if done > 2 else 1.0))
          done += 1
      assert way != "raise"
    except monitoring.StuckError as error:
      assert way == "raise"
      assert str(error).startswith("The loss scale is stuck: the last 6 steps")
  assert done == {"warn": 20, "stop": 9, "raise": 8}[way]
  assert hook.stop_requested == (way == "stop")
  lines = monitored_runs.read_lines(tmp_path)
  told = {x["step"]: x["stuck"] for x in lines if "stuck" in x}
  assert list(told) == [9] + [15] * (way == "warn")
  assert told[9] in logged.text
  assert "The first bad step was step 4" in told[9]
  assert "v: 2 inf, 0 NaN of 2" in told[9]
  assert "the global step is 3" in told[9]


# Strategies and the graph rewrite ----


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("name", ["dynamic", "fixed", "contrib"])
def test_two_replicas(tmp_path, mode, name):
  with helpers.mode_scope(mode):
    strategy = helpers.two_replicas()
    bad = tf1.placeholder_with_default(False, [])
    with strategy.scope():
      global_step = tf1.train.get_or_create_global_step()
      v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
      inner = tf1.train.GradientDescentOptimizer(0.5)
      if name == "contrib":
        manager = tfl.contrib.ExponentialUpdateLossScaleManager(8.0, 100, 1)
        opt = tfl.contrib.LossScaleOptimizer(inner, manager)
      else:
        scale = tfl.DynamicLossScale(8.0) if name == "dynamic" else 8.0
        opt = tfl.MixedPrecisionLossScaleOptimizer(inner, scale)

      def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        at_fault = tf.logical_and(bad, tf.equal(replica, 0))
        factor = tf.where(at_fault, _INF, 1.0)
        loss = tf.reduce_sum(tf.convert_to_tensor(v) * factor * [1.0, 2.0])
        grads, variables = zip(*opt.compute_gradients(loss, [v]))
        clipped, _ = tf.clip_by_global_norm(grads, 10.0)
        return opt.apply_gradients(zip(clipped, variables), global_step)

      train = strategy.experimental_local_results(strategy.run(step))
      hook = monitoring.LossScaleHook(opt, tmp_path, every_n_steps=1)
      hook.begin()
      with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        hook.run(session, train)
        hook.run(session, train, {bad: True})
        hook.run(session, train)
        hook.end(session)
  lines = monitored_runs.assert_same_series(tmp_path)
  assert [x["step"] for x in lines] == [1, 2, 3]
  applied = [True, name == "fixed", True]
  assert [x["applied"] for x in lines] == applied
  assert [x["global_step"] for x in lines] == np.cumsum(applied).tolist()
  if name == "fixed":
    return
  (blame,) = lines[1]["blame"]
  # The first replica's gradient is infinite; both count.
  assert blame == {"name": "v", "inf": 2, "nan": 0, "size": 4, "largest": 2.0}
  assert lines[1]["gradients"] == 1


def test_the_graph_rewrite(tmp_path):
  with tf.Graph().as_default():
    try:
      opt = graph_rewrite.enable_mixed_precision_graph_rewrite(
        tf1.train.GradientDescentOptimizer(0.5), tfl.DynamicLossScale(8.0)
      )
      v = tf1.get_variable("v", initializer=np.ones([4, 4], np.float32))
      x = tf1.placeholder(tf.float32, [4, 4])
      train = opt.minimize(tf.reduce_sum(tf.matmul(x, v)))
      hook = monitoring.LossScaleHook(opt, tmp_path, every_n_steps=1)
      with tf1.train.MonitoredSession(hooks=[hook]) as session:
        session.run(train, {x: np.ones([4, 4])})
        session.run(train, {x: np.full([4, 4], _INF)})
    finally:
      graph_rewrite.disable_mixed_precision_graph_rewrite()
  lines = monitored_runs.assert_same_series(tmp_path)
  assert [x["applied"] for x in lines] == [True, False]
  assert lines[1]["blame"][0]["name"] == "v"


_ESTIMATOR = """
import sys
import numpy as np
import tf_compat_lossscale as tfl
tfl.install()
import tensorflow as tf
from tf_compat_lossscale import monitoring
tf1 = tf.compat.v1

@tf.custom_gradient
def multiply(x, factor):
  return x, lambda dy: (dy * factor, None)

def model_fn(features, labels, mode):
  v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
  factor = tf.reduce_mean(features)
  loss = tf.reduce_sum(multiply(tf.convert_to_tensor(v), factor))
  if mode != tf1.estimator.ModeKeys.TRAIN:
    return tf1.estimator.EstimatorSpec(mode, loss=loss)
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.GradientDescentOptimizer(0.5), tfl.DynamicLossScale(8.0))
  train = opt.minimize(loss, tf1.train.get_global_step())
  hook = monitoring.LossScaleHook(opt, sys.argv[1] + "/log", every_n_steps=3)
  return tf1.estimator.EstimatorSpec(
    mode, loss=loss, train_op=train, training_hooks=[hook])

def input_fn():
  values = np.ones([4, 1], np.float32)
  values[2] = np.inf
  return tf1.data.Dataset.from_tensor_slices((values, values)).repeat().batch(1)

strategy = None
if sys.argv[2] == "two":
  tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2)
  strategy = tf.distribute.MirroredStrategy(
    ["cpu:0", "cpu:1"], tf.distribute.ReductionToOneDevice())
config = tf1.estimator.RunConfig(
  sys.argv[1] + "/model", save_checkpoints_steps=4, train_distribute=strategy)
for steps in 8, 6:
  estimator = tf1.estimator.Estimator(model_fn, config=config)
  estimator.train(input_fn, steps=steps)
  estimator.evaluate(input_fn, steps=1)
"""


@pytest.mark.parametrize(
  "replicas", ["one", pytest.param("two", marks=pytest.mark.thorough)]
)
def test_estimator(tmp_path, replicas):
  helpers.run_forked(
    "-c", _ESTIMATOR, str(tmp_path), replicas, **helpers.KERAS_2
  )
  lines = monitored_runs.assert_same_series(tmp_path / "log")
  last = lines[-1]
  assert last["global_step"] == 14
  assert last["step"] == 14 + last["loss_scale/skipped_total"]
  assert last["loss_scale/skipped_total"] >= 4
  assert sum("config" in x for x in lines) == 2
  assert {x["name"] for y in lines for x in y.get("blame", [])} == {"v"}
  assert "log" in os.listdir(tmp_path)


if __name__ == "__main__":
  helpers.main()
