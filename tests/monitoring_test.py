# SPDX-License-Identifier: Apache-2.0
"""Tests the hook that watches the loss scale of sessions."""

import logging
import math
import re

import helpers
from helpers import read_scalars as read
import numpy as np
import processes
import pytest
import tensorflow as tf
import trainers
from trainers import Spec

import tf_compat_lossscale as tfl
from tf_compat_lossscale import _step_log
from tf_compat_lossscale import gradients
from tf_compat_lossscale import monitoring
from tf_compat_lossscale import policies

tf1 = tf.compat.v1
_INF, _NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def logged(caplog):
  """Gives each test the logged lines."""
  caplog.set_level(logging.DEBUG, "absl")
  return caplog


def make_sgd(scale=8.0, period=100):
  if isinstance(scale, float):
    scale = tfl.DynamicLossScale(scale, period)
  sgd = tf1.train.GradientDescentOptimizer(0.5)
  return tfl.MixedPrecisionLossScaleOptimizer(sgd, scale)


class Program:
  """A training program in a graph, with a hook, in a plain session."""

  def __init__(
    self, mode="graph_v1", make=make_sgd, specs=None, more=(), **options
  ) -> None:
    specs = specs or (Spec(),)
    self.trainer = trainers.Trainer(mode, make, specs, *more)
    self.hook = monitoring.LossScaleHook(self.trainer.opt, **options)

  def __enter__(self):
    return self

  def __exit__(self, *error):
    self.hook.end(self.trainer.session)
    self.trainer.__exit__(*error)

  def feed(self, *grads):
    grads *= len(self.trainer.feeds) if len(grads) == 1 else 1
    return {
      x: np.full(x.shape, grad, x.dtype.as_numpy_dtype)
      for x, grad in zip(self.trainer.feeds, grads)
    }

  def step(self, *grads):
    """Does a step with a gradient for each variable; one is for all."""
    train_op = self.trainer.train_op
    self.hook.run(self.trainer.session, train_op, self.feed(*grads))


# What is logged and written ----

_KINDS = {
  "resource": (False, True),
  "reference": (False, False),
  "apply alone": (True, True),
}


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("kind", _KINDS)
def test_a_run(tmp_path, logged, mode, kind):
  specs = (Spec(), Spec((3, 2), "float16"), Spec((3, 2), kind="sparse"))
  make = lambda: make_sgd(period=2)  # noqa: E731
  options = {"output_dir": tmp_path / "log", "every_n_steps": 3}
  with Program(mode, make, specs, _KINDS[kind], **options) as program:
    for grads in (
      *((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, _INF, _NAN)),
      *((1.0, 1.0, 1.0), (1.0, 1.0, -_INF)),
    ):
      program.step(*grads)
  assert [x for x in logged.messages if "tep" in x] == [
    "Step 2: loss scale 8 -> 16.",
    "Step 3 was skipped; loss scale 16 -> 8; not finite: v1, v2.",
    "Step 5 was skipped; loss scale 8 -> 4; not finite: v2.",
  ]
  assert read(tmp_path / "log") == {
    0: {"value": 8, "good_steps": 0, "skipped_total": 0, "skipped_rate": 0},
    2: {"value": 16, "good_steps": 0, "skipped_total": 0, "skipped_rate": 0},
    3: {
      "value": 8,
      "good_steps": 0,
      "skipped_total": 1,
      "skipped_rate": np.float32(1 / 3),
    },
    5: {
      "value": 4,
      "good_steps": 0,
      "skipped_total": 2,
      "skipped_rate": np.float32(0.4),
    },
  }


def test_many_skipped_steps_are_a_few_lines(logged):
  with Program(patience=1000) as program:
    for i in range(100):
      program.step(1.0 if i == 1 else _NAN)
  lines = [x for x in logged.messages if "skipped" in x]
  warnings = [x for x in logged.records if x.levelname == "WARNING"]
  assert len(lines) == 100 and len(warnings) == 10
  assert lines[4].endswith("; the next warning is at 10.")
  assert [re.search(r"makes (\d+)", x.message)[1] for x in warnings[4:9]] == [
    *("5", "10", "20", "40", "80")
  ]
  assert (
    lines[-1] == "99 of 100 steps were skipped (99.00%); the loss scale is 1."
  )


def test_steps_that_are_looked_at_together(tmp_path, logged):
  log = _step_log.StepLog(tmp_path, 10, "stop", 12)
  log.open(0, 8.0)
  for skipped, scale, names, stops in (
    *((0, 8.0, None, False), (2, 2.0, ("v",), False)),
    *((6, 1.0, (), False), (6, 1.0, None, True)),
  ):
    assert log.add(_step_log.Outcome(skipped, scale, 0, names, 6)) == stops
  log.close()
  assert logged.messages[0] == (
    "2 of steps 7 to 12 were skipped; loss scale 8 -> 2; not finite: v."
  )
  assert "the last 12 steps were skipped, up to step 24" in logged.messages[3]
  assert [*read(tmp_path)] == [0, 12, 18, 24]
  assert read(tmp_path)[24]["skipped_rate"] == np.float32(14 / 24)


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_clipping_hides_no_culprit(mode, logged):
  # An infinite norm turns all clipped gradients into NaN or 0.
  with helpers.mode_scope(mode), tf1.Session() as session:
    variables = [
      tf1.get_variable(f"v{i}", [3], tf.float32, tf1.ones_initializer())
      for i in range(20)
    ]
    factor = tf1.placeholder(tf.float32, [20, 3])
    loss = tf.add_n(
      [tf.reduce_sum(v * factor[i]) for i, v in enumerate(variables)]
    )
    opt = make_sgd()
    grads, _ = zip(*opt.compute_gradients(loss))
    unused = tf1.placeholder(tf.float32, [])  # Would fail if it ran.
    opt.compute_gradients(loss * unused)
    clipped, _ = tf.clip_by_global_norm(grads, 1.0)
    train = opt.apply_gradients(zip(clipped, variables))
    hook = monitoring.LossScaleHook(opt)
    session.run(tf1.global_variables_initializer())
    value = np.ones([20, 3])
    value[4, 1] = _INF
    hook.run(session, train, {factor: value})
    hook.run(session, train, {factor: np.full([20, 3], _NAN)})
  first, second = [x for x in logged.messages if "skipped" in x]
  assert first.endswith("not finite: v4.")
  assert second.endswith("v8, v9 and 10 more.")


def test_a_second_graph(tmp_path, logged):
  opt = make_sgd()
  hook = monitoring.LossScaleHook(opt, tmp_path)
  for value in (1.0, _INF):
    with tf.Graph().as_default(), tf1.Session() as session:
      v = tf1.get_variable("v", initializer=1.0)
      train = opt.minimize(v * tf1.placeholder_with_default(value, []))
      with pytest.raises(tf.errors.FailedPreconditionError):
        hook.run(session, train)
      session.run(tf1.global_variables_initializer())
      hook.run(session, train)
  hook.end(session)
  assert [x for x in logged.messages if "tep" in x] == [
    "Step 1 was skipped; loss scale 8 -> 4; not finite: v."
  ]
  assert read(tmp_path)[1]["skipped_total"] == 1


class _Plain(tfl.LossScale):
  """A user's loss scale, whose values are of several kinds."""

  def __init__(self, kind="number"):
    super().__init__()
    self.kind = kind
    self._add_weight("good_steps", [1.0, 2.0], tf.float32)  # No count.

  def __call__(self):
    return {"number": 4.0, "vector": tf.constant([4.0])}[self.kind]

  def update(self, grads):
    return tf.no_op(), gradients.all_replicas_finite(grads)

  def get_config(self):
    return {"kind": self.kind}


def make_contrib():
  manager = tfl.contrib.ExponentialUpdateLossScaleManager(8.0, 3, 1)
  sgd = tf1.train.GradientDescentOptimizer(0.5)
  return tfl.contrib.LossScaleOptimizer(sgd, manager)


_OPTIMIZERS = {
  "backoff": lambda: make_sgd(policies.GrowthBackoff(8.0, 3)),
  "contrib": make_contrib,
  "fixed": lambda: make_sgd(tfl.FixedLossScale(8)),
  "number": lambda: make_sgd(_Plain()),
  "vector": lambda: make_sgd(_Plain("vector")),
}


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_each_optimizer(tmp_path, logged, mode, name):
  more = (True,) if name == "vector" else ()
  options = {"output_dir": tmp_path / "log", "every_n_steps": 2}
  with Program(mode, _OPTIMIZERS[name], more=more, **options) as program:
    for grad in (1.0, _NAN, 1.0, 1.0):
      program.step(grad)
  rows = read(tmp_path / "log")
  is_fixed = name == "fixed"
  assert list(rows) == [0, 2, 4]
  assert rows[4]["skipped_total"] == (not is_fixed)
  assert ("good_steps" in rows[4]) == (name in ("backoff", "contrib"))
  skips = [x for x in logged.messages if "was skipped" in x]
  assert len(skips) == (not is_fixed)
  assert all(x.endswith("not finite: v0.") for x in skips)


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_windows_of_micro_batches(tmp_path, logged, mode):
  make = lambda: tfl.accumulate(make_sgd(), 2)  # noqa: E731
  options = {"output_dir": tmp_path / "log", "patience": 2}
  with Program(mode, make, **options) as program:
    for grad in (1.0, 1.0, 1.0, _INF, _INF, _INF, _INF, 1.0, 1.0, 1.0):
      program.step(grad)
  assert list(read(tmp_path / "log")) == [0, 2, 3, 4, 5]
  skips = [x for x in logged.messages if "was skipped;" in x]
  culprits = ["not finite: v0."] * 2 + ["another worker is at fault."]
  assert len(skips) == 3
  assert all(x.endswith(y) for x, y in zip(skips, culprits))
  assert len([x for x in logged.messages if "is stuck" in x]) == 1


def test_two_hooks_for_two_optimizers(logged):
  with tf.Graph().as_default(), tf1.Session() as session:
    x = tf1.placeholder(tf.float32, [2])
    steps, hooks = [], []
    for i in range(2):
      v = tf1.get_variable(f"v{i}", initializer=1.0, use_resource=True)
      opt = make_sgd()
      first = opt.minimize(v * x[i], var_list=[v])
      with tf.control_dependencies([first]):
        steps.append(opt.minimize(v * x[i], var_list=[v]))
      hooks.append(monitoring.LossScaleHook(opt))
    with tf1.train.MonitoredSession(hooks=hooks) as session:
      session.run(steps[0], {x: [_INF, 1.0]})
      session.run(steps, {x: [1.0, _INF]})
  assert [x[:30] for x in logged.messages if "was skipped" in x] == [
    "Step 1 was skipped; loss scale",
    "Step 2 was skipped; loss scale",
  ] * 2
  names = [x[-3:] for x in logged.messages if "was skipped" in x]
  assert names == ["v0.", "v0.", "v1.", "v1."]


# Which runs are steps ----


def test_only_runs_with_a_step_count():
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    loss = tf.reduce_sum(v * v)
    opt = make_sgd()
    pairs = opt.compute_gradients(loss)
    train = opt.apply_gradients(pairs, name="train")
    with tf.control_dependencies([train]):
      after = tf.identity(loss, "after")
    middle = tf.identity(after)
    late = tf.identity(middle) + 1.0
    sparse = tf.SparseTensor([[0]], [late], [1])
    hook = monitoring.LossScaleHook(opt)
    session.run(tf1.global_variables_initializer())

    def count(fetches, feed=None):
      before = hook._log._step if hook._log.is_open else 0
      hook.run(session, fetches, feed)
      return (hook._log._step if hook._log.is_open else 0) - before

    for fetches in (
      *(loss, [grad for grad, _ in pairs], [], {1: loss, "b": v}, "v"),
      *(opt.last_step_applied, opt.variables(), loss.op),
    ):
      assert count(fetches) == 0, fetches
    for fetches in (
      *(train, "train", [loss, [train]], {"a": loss, 2: {"b": (train,)}}),
      *(after, "after:0", late, sparse, [train, train, after]),
    ):
      assert count(fetches) == 1, fetches
    assert count(late, {middle: 1.0}) == 0
    assert count(late, {"after:0": 1.0}) == 0
    assert count(after, {after: 1.0}) == 0
    assert count([after, train], {after: 1.0}) == 1
    assert count(late, {loss: 1.0}) == 1
    assert count(train, {pairs[0][0]: [1.0, _INF]}) == 1
    for fetches in None, 7, "no such", object():
      with pytest.raises((TypeError, ValueError)):
        hook.run(session, fetches)


@pytest.mark.parametrize("clips", [False, True])
def test_fed_gradients_compute_no_others(clips, logged):
  with tf.Graph().as_default(), tf1.Session() as session:
    dataset = tf.data.Dataset.from_tensor_slices([1.0, 2.0])
    batch = tf1.data.make_one_shot_iterator(dataset).get_next()
    v = tf1.get_variable("v", initializer=1.0)
    opt = make_sgd()
    ((grad, _),) = opt.compute_gradients(v * batch)
    given = tf1.placeholder_with_default(grad, []) if clips else grad
    train_op = opt.apply_gradients([(given, v)])
    hook = monitoring.LossScaleHook(opt)
    session.run(tf1.global_variables_initializer())
    for expected in (1.0, 2.0):
      assert session.run(grad) == expected
      hook.run(session, train_op, {given: expected})
    with pytest.raises(tf.errors.OutOfRangeError):
      session.run(grad)
    hook.run(session, train_op, {given: _NAN})
  culprit = "at fault are not known" if clips else "not finite: v"
  assert logged.messages[-1].endswith(f"{culprit}.")


# Sessions ----


def test_monitored_training_session_and_restart(tmp_path):
  """The second session goes on from the checkpoint of the first."""
  for _ in range(2):
    with tf.Graph().as_default():
      v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
      factor = tf1.placeholder_with_default(1.0, [])
      loss = tf.reduce_sum(v * factor)
      opt = make_sgd()
      train = opt.minimize(loss, tf1.train.get_or_create_global_step())
      hook = monitoring.LossScaleHook(opt, tmp_path / "log", every_n_steps=4)
      with tf1.train.MonitoredTrainingSession(
        hooks=[hook],
        checkpoint_dir=str(tmp_path / "model"),
        log_step_count_steps=None,
      ) as session:
        for i in range(10):
          session.run([train, loss], {factor: [1, _INF][i == 5]})
          session.run(loss)
  assert list(read(tmp_path / "log")) == [0, 4, 6, 8, 10, 9, 12, 15, 16, 19]


@pytest.mark.parametrize("way", ["warn", "stop", "raise"])
def test_a_stuck_run(logged, way):
  done = 0
  with tf.Graph().as_default():
    x = tf1.placeholder(tf.float32, [])
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    opt = make_sgd(2.0)
    train = opt.minimize(v * x)
    hook = monitoring.LossScaleHook(opt, on_stuck=way, patience=6)
    try:
      with tf1.train.MonitoredSession(hooks=[hook]) as session:
        while not session.should_stop() and done < 20:
          session.run(train, {x: _INF if done > 2 else 1.0})
          done += 1
      assert way != "raise"
    except monitoring.StuckError as error:
      assert way == "raise"
      logged.messages.append(str(error))
      logging.getLogger("absl").warning("%s", error)
  assert done == {"warn": 20, "stop": 9, "raise": 8}[way]
  assert hook.stop_requested == (way == "stop")
  told = [x for x in logged.messages if "is stuck" in x]
  assert told[0].startswith(
    "The loss scale is stuck: the last 6 steps were skipped, up to step 9; "
    "loss scale 1; not finite: v."
  )
  assert [re.findall("step (12|15)", x) for x in told[1:]] == (
    [["15"]] if way == "warn" else []
  )


def test_threads_that_share_a_session(tmp_path):
  with tf.Graph().as_default():
    x = tf1.placeholder(tf.float32, [])
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    opt = make_sgd(period=10**6)
    train = opt.minimize(v * x)
    hook = monitoring.LossScaleHook(opt, tmp_path, every_n_steps=1)
    with tf1.train.MonitoredSession(hooks=[hook]) as session:

      def work(i):
        for j in range(25):
          session.run(train, {x: _INF if (i + j) % 9 == 0 else 1.0})

      processes.in_threads(work, 4)
  rows = read(tmp_path)
  assert list(rows) == list(range(101))
  skipped = sum((i + j) % 9 == 0 for i in range(4) for j in range(25))
  assert rows[100]["skipped_total"] == skipped


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("name", ["dynamic", "fixed", "contrib"])
def test_two_replicas(tmp_path, logged, mode, name):
  make = {
    "dynamic": make_sgd,
    "fixed": lambda: make_sgd(tfl.FixedLossScale(8)),
    "contrib": make_contrib,
  }[name]
  with helpers.mode_scope(mode):
    strategy = helpers.two_replicas()
    bad = tf1.placeholder_with_default(False, [])
    with strategy.scope():
      global_step = tf1.train.get_or_create_global_step()
      v, w = [
        tf1.get_variable(name, initializer=np.ones(2, np.float32))
        for name in "vw"
      ]
      opt = make()

      def step():
        context = tf.distribute.get_replica_context()
        is_first = tf.equal(context.replica_id_in_sync_group, 0)
        factor = tf.where(tf.logical_and(bad, is_first), _INF, 1.0)
        loss = tf.reduce_sum(tf.convert_to_tensor(v) * factor)
        loss += tf.reduce_sum(tf.convert_to_tensor(w))
        grads, variables = zip(*opt.compute_gradients(loss, [v, w]))
        clipped, _ = tf.clip_by_global_norm(grads, 10.0)
        return opt.apply_gradients(zip(clipped, variables), global_step)

      train = strategy.experimental_local_results(strategy.run(step))
      hook = monitoring.LossScaleHook(opt, tmp_path, every_n_steps=1)
      with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        for value in (False, True, False):
          hook.run(session, train, {bad: value})
        hook.end(session)
  rows = read(tmp_path)
  assert list(rows) == [0, 1, 2, 3]
  assert rows[3]["skipped_total"] == (name != "fixed")
  for line in (x for x in logged.messages if "was skipped" in x):
    assert line.endswith("not finite: v.")


# A hook changes nothing ----


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("kind", ["adam", "momentum"])
def test_the_same_bit_for_bit(tmp_path, mode, kind):
  specs = (Spec(), Spec((3, 2)), Spec((4,), "float16"))
  found = []
  for watched in False, True:
    rng = np.random.default_rng(0)

    def make():
      scale = tfl.DynamicLossScale(64.0, 3)
      return tfl.MixedPrecisionLossScaleOptimizer(helpers.INNER[kind](), scale)

    with Program(mode, make, specs, output_dir=tmp_path) as program:
      trainer = program.trainer
      with trainer.graph.as_default():
        saver = tf1.train.Saver()
        if watched:
          program.hook.begin()
      states = []
      for _ in range(40):
        grads = rng.normal(size=3)
        grads[rng.random(3) < 0.05] = _INF
        feed = program.feed(*grads)
        if watched:
          program.hook.run(trainer.session, trainer.train_op, feed)
        else:
          trainer.session.run(trainer.train_op, feed)
        states.append({k: v.tobytes() for k, v in trainer.state().items()})
      path = saver.save(trainer.session, str(tmp_path / "m"))
      keys = tf.train.list_variables(path)
      found.append((states, keys))
  assert found[0] == found[1]


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_a_debugger_finds_nothing(tmp_path, mode):
  """Checks that the hook makes no NaN and no infinity in a healthy step."""
  tf.debugging.enable_check_numerics()
  try:
    scales = {"dynamic": 8.0, "plain": _Plain(), "fixed": tfl.FixedLossScale(8)}
    for name, scale in scales.items():
      make = lambda: make_sgd(scale)  # noqa: B023, E731
      specs = (Spec(), Spec((0,)), Spec((3, 2), "float16"))
      options = {"output_dir": tmp_path / name, "every_n_steps": 1}
      with Program(mode, make, specs, **options) as program:
        for _ in range(3):
          program.step(1.0)
      assert len(read(tmp_path / name)) == 4
  finally:
    tf.debugging.disable_check_numerics()


# What makes no sense ----


@pytest.mark.parametrize(
  "options, message",
  [
    ({"every_n_steps": 0}, "every_n_steps must be .* at least 1, but got 0"),
    ({"every_n_steps": True}, "every_n_steps must be .* but got True"),
    ({"patience": "2"}, "patience must be .* but got '2'"),
    ({"on_stuck": "halt"}, "on_stuck must be 'warn', .* but got 'halt'"),
  ],
)
def test_bad_arguments(options, message):
  with pytest.raises(ValueError, match=f"(?s)^{message}"):
    monitoring.LossScaleHook(make_sgd(), **options)


def test_nothing_to_watch():
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    opt = make_sgd()
    hook = monitoring.LossScaleHook(opt)
    with pytest.raises(RuntimeError, match=r"call minimize\(\) or apply"):
      hook.begin()
    with pytest.raises(RuntimeError, match=r"call minimize\(\) or apply"):
      hook.run(tf1.Session(), v)
    tf.cond(
      tf.equal(tf.reduce_sum(v), 0.0),
      lambda: tf.group(opt.minimize(tf.reduce_sum(v))),
      tf.no_op,
    )
    with pytest.raises(RuntimeError, match=r"outside of tf\.cond"):
      hook.begin()
