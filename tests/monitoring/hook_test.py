# SPDX-License-Identifier: Apache-2.0
"""Tests which steps the hook counts, and which gradients it names."""

import logging
import math
import threading

import helpers
import monitored_runs
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import environment
from tf_compat_lossscale import gradients
from tf_compat_lossscale import monitoring
from tf_compat_lossscale import policies
from tf_compat_lossscale._core import step_records

tf1 = tf.compat.v1
Spec = helpers.Spec
_INF, _NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def logged(caplog):
  """Gives each test the logged lines."""
  caplog.set_level(logging.INFO, "absl")
  return caplog


def begin(opt, folder=None, **options):
  """Returns a hook that has begun in the current graph, and a session."""
  hook = monitoring.LossScaleHook(opt, folder, **options)
  hook.begin()
  session = tf1.Session()
  session.run(tf1.global_variables_initializer())
  return hook, session


def blame(name, inf, nan, size, largest):
  return {
    "name": name,
    "inf": inf,
    "nan": nan,
    "size": size,
    "largest": largest,
  }


# Which gradients are at fault ----

_DTYPES = [
  Spec((2, 3), "float32"),
  Spec((5,), "float64"),
  Spec((4,), "float16"),
  Spec((4,), "float32", "float16"),
  Spec((3,), "bfloat16"),
  Spec((6, 2), "float32", "sparse"),
  Spec((2,), "float32", "none"),
  Spec((), "float32"),
]


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("apply_only", [True, False])
def test_names_and_counts(tmp_path, mode, use_resource, apply_only):
  with monitored_runs.Program(
    mode,
    specs=tuple(_DTYPES),
    apply_only=apply_only,
    use_resource=use_resource,
    output_dir=tmp_path,
    every_n_steps=1,
  ) as program:
    fine = [np.full(spec.fed, 0.5) for spec in _DTYPES]
    for i in range(len(_DTYPES)):
      bad = [grad.copy() for grad in fine]
      flat = bad[i].reshape(-1)
      flat[: 1 + flat.size // 2] = _INF, *[_NAN] * (flat.size // 2)
      program.step(*bad)
    program.end()
  lines = monitored_runs.assert_same_series(tmp_path)
  assert len(lines) == len(_DTYPES)
  for i, (line, spec) in enumerate(zip(lines, _DTYPES)):
    size = math.prod(spec.fed)
    if spec.kind == "none":
      assert line["applied"] and "blame" not in line
      continue
    rest = size - 1 - size // 2
    contents = blame(f"v{i}", 1, size // 2, size, 0.5 if rest else 0.0)
    assert line["blame"] == [contents], i
    assert line["gradients"] == len(_DTYPES) - 1
    assert not line["applied"]


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_complex_gradients(tmp_path, mode):
  with helpers.mode_scope(mode):
    v = tf1.get_variable("v", initializer=np.ones(4, np.complex64))
    grad = tf1.placeholder(tf.complex64, [4])
    opt = monitored_runs.make_sgd()
    train = opt.apply_gradients([(grad, v)])
    hook, session = begin(opt, tmp_path)
    value = [1 + 2j, complex(_INF, _NAN), complex(0, _NAN), complex(0, -_INF)]
    hook.run(session, train, {grad: value})
    hook.end(session)
  (line,) = monitored_runs.read_lines(tmp_path)
  assert line["blame"] == [blame("v", 2, 1, 4, 2.0)]


def test_gradients_of_a_thread_that_ended():
  with tf.Graph().as_default() as graph:
    v = tf1.get_variable("v", [], use_resource=True)
    opt = monitored_runs.make_sgd()
    computed = []

    def run(function):
      def run_in_graph():
        with graph.as_default():
          ids.append(threading.get_ident())
          computed.append(function())

      thread = threading.Thread(target=run_in_graph)
      thread.start()
      thread.join()

    for _ in range(20):  # Until the second thread gets the id of the first.
      ids: list[int] = []
      run(lambda: opt.compute_gradients(v * v, [v]))
      run(lambda: step_records.find_computed(opt, [(None, v)]))
      assert computed[-1] == ((None, None),)
      if ids[0] == ids[1]:
        return
    pytest.fail("no thread got the id of one that had ended")


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_clipping_hides_no_culprit(tmp_path, mode, dtype):
  # An infinite norm turns all clipped gradients into NaN or 0.
  with helpers.mode_scope(mode):
    variables = [
      tf1.get_variable(f"v{i}", [3], dtype, tf1.ones_initializer())
      for i in range(6)
    ]
    factor = tf1.placeholder(dtype, [3])
    loss = tf.add_n([tf.reduce_sum(v) for v in variables])
    loss += tf.reduce_sum(variables[4] * factor)
    opt = monitored_runs.make_sgd()
    grads, _ = zip(*opt.compute_gradients(tf.cast(loss, tf.float32)))
    clipped, _ = tf.clip_by_global_norm(grads, 1.0)
    train = opt.apply_gradients(zip(clipped, variables))
    hook, session = begin(opt, tmp_path)
    hook.run(session, train, {factor: [1.0, _INF, 2.0]})
    hook.end(session)
  (line,) = monitored_runs.read_lines(tmp_path)
  assert line["blame"] == [blame("v4", 1, 0, 3, 3.0)]
  assert line["gradients"] == 6


def test_replaced_gradients():
  # The program computes gradients, but applies others that are at fault.
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    opt = monitored_runs.make_sgd()
    ((grad, _),) = opt.compute_gradients(tf.reduce_sum(v * v))
    unused = tf1.placeholder(tf.float32, [])  # Would fail if it ran.
    ((_, w),) = opt.compute_gradients(tf.reduce_sum(v * unused))
    train = opt.apply_gradients([(grad / [0.0, 1.0], w)])
    hook, session = begin(opt)
    seen = []
    hook._recorder.observe = lambda x, keep: seen.append(x)
    hook.run(session, train)
  (step,) = seen
  assert step.total == 1 and not step.applied
  (found,) = step.find_blame()
  assert found[:3] == ("v", 1, 0) and found.largest == 2.0


def test_variables_and_arrays_as_gradients(tmp_path, logged):
  for use_resource in True, False:
    with tf.Graph().as_default():
      v, w, total = (
        tf1.get_variable(
          name,
          [2],
          initializer=tf1.ones_initializer(),
          use_resource=use_resource,
        )
        for name in "vwt"
      )
      opt = monitored_runs.make_sgd()
      with tf.control_dependencies([tf1.assign(total, [1.0, _INF])]):
        array = np.ones(2, np.float32)
        train = opt.apply_gradients([(total, v), (array, w)])
      reset = []
      if use_resource:  # A reference variable has no value of an earlier time.
        with tf.control_dependencies([train]):
          reset = tf.group(tf1.assign(total, [0.0, 0.0]))
      hook, session = begin(opt, tmp_path / str(use_resource))
      for _ in range(20):
        hook.run(session, [train, reset])
      hook.end(session)
    first, *rest = monitored_runs.read_lines(tmp_path / str(use_resource))
    assert first["blame"] == [blame("v", 1, 0, 2, 1.0)]
    assert len(rest) == 19
    assert not any("blame" in line for line in rest)  # The same each time.


def test_partitioned_variables(tmp_path):
  with tf.Graph().as_default():
    whole = tf1.get_variable(
      "v",
      [6, 2],
      initializer=tf1.ones_initializer(),
      partitioner=tf1.fixed_size_partitioner(3),
    )
    factor = tf1.placeholder(tf.float32, [6, 2])
    opt = monitored_runs.make_sgd()
    train = opt.minimize(tf.reduce_sum(tf.convert_to_tensor(whole) * factor))
    hook, session = begin(opt, tmp_path)
    value = np.ones([6, 2])
    value[3, 1] = -_INF
    hook.run(session, train, {factor: value})
    hook.end(session)
  (line,) = monitored_runs.read_lines(tmp_path)
  assert line["blame"] == [blame("v/part_1", 1, 0, 4, 1.0)]
  assert line["gradients"] == 3


@pytest.mark.thorough
@pytest.mark.parametrize("mode, count", [("graph_v1", 60), ("graph_v2", 130)])
def test_hundreds_of_variables(tmp_path, mode, count, logged):
  specs = (Spec((3,)),) * count
  with monitored_runs.Program(
    mode, specs=specs, output_dir=tmp_path
  ) as program:
    bad = [1.0] * count
    bad[7] = bad[53] = _NAN
    program.step(*bad)
    program.step(*[_INF] * count)
    program.end()
  first, second = monitored_runs.read_lines(tmp_path)
  assert [x["name"] for x in first["blame"]] == ["v7", "v53"]
  assert first["gradients"] == second["gradients"] == count
  assert len(second["blame"]) == 50  # The longest list.
  texts = [record.getMessage() for record in logged.records]
  assert f"2 of {count} gradients: v7: 0 inf, 3 NaN of 3" in texts[1]
  assert f"{count} of {count} gradients" in texts[2]
  assert f"and {count - 3} more" in texts[2]


def test_gradients_on_several_devices(tmp_path):
  with tf.Graph().as_default():
    variables, grads = [], []
    for i in range(5):
      with tf.device(["/cpu:0", "", "/cpu:1", "/job:localhost", "cpu:0"][i]):
        variables.append(tf1.get_variable(f"v{i}", [i + 1]))
        grads.append(tf.identity(tf1.placeholder(tf.float32, [i + 1])))
    opt = monitored_runs.make_sgd()
    train = opt.apply_gradients(zip(grads, variables))
    hook, session = begin(opt, tmp_path)
    for i in range(5):
      feed = {x: np.ones(x.shape) for x in grads}
      feed[grads[i]] = np.full(i + 1, _INF)
      hook.run(session, train, feed)
    hook.run(session, train, {x: np.ones(x.shape) for x in grads})
    hook.end(session)
  *lines, last = monitored_runs.read_lines(tmp_path)
  assert [line["blame"] for line in lines] == [
    [blame(f"v{i}", i + 1, 0, i + 1, 0.0)] for i in range(5)
  ]
  assert last["applied"]


def test_accumulated_gradients(tmp_path):
  # Gradients of four batches are added up; only the fourth run is a step.
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    total = tf1.get_variable("t", [2], trainable=False)
    factor = tf1.placeholder(tf.float32, [2])
    opt = monitored_runs.make_sgd()
    ((grad, _),) = opt.compute_gradients(tf.reduce_sum(v * factor), [v])
    add = tf1.assign_add(total, grad)
    clear = tf1.assign(total, [0.0, 0.0])
    train = opt.apply_gradients([(total / 4, v)])
    hook, session = begin(opt, tmp_path)
    for i in range(8):
      value = [1.0, _INF if i == 6 else 1.0]
      hook.run(session, add, {factor: value})
      if i % 4 == 3:
        hook.run(session, train)
        hook.run(session, clear)
    hook.end(session)
  first, second = monitored_runs.read_lines(tmp_path)
  assert (first["step"], second["step"]) == (1, 2)
  assert first["applied"] and second["blame"] == [blame("v", 1, 0, 2, 1.0)]


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_underflow(tmp_path, mode):
  # In float16, unscaling rounds small gradients to 0, but scaled they are none.
  with helpers.mode_scope(mode):
    small = tf1.get_variable("s", [4], tf.float16, tf1.zeros_initializer())
    large = tf1.get_variable("l", [4], initializer=tf1.zeros_initializer())
    factors = tf.constant([2.0**-10, 0.0, 1.0, 2.0], tf.float16)
    loss = tf.reduce_sum(tf.cast(small * factors, tf.float32)) * 2.0**-20
    loss += tf.reduce_sum(large * [0.0, 0.0, 0.0, 4.0])
    opt = monitored_runs.make_sgd(2.0**10)
    train = opt.minimize(loss, tf1.train.get_or_create_global_step())
    hook, session = begin(opt, tmp_path, every_n_steps=2)
    hook.run(session, train)
    hook.run(session, train)
    hook.end(session)
  first, second = monitored_runs.read_lines(tmp_path)
  assert "underflow" not in first
  assert second["underflow"] == {
    "zeros": 4 / 8,
    "largest": 4096.0,
    "lost": 0.0,
    "unscaling": 1 / 4,
    "gradients": {"l": [0.75, 4096.0], "s": [0.25, 2.0**-9]},
  }


def test_no_blame(tmp_path):
  lines = monitored_runs.run_steps(
    tmp_path, [_INF, 1.0, 1.0], blame=False, every_n_steps=1
  )
  assert len(lines) == 3
  assert not {"blame", "gradients", "underflow"} & {k for x in lines for k in x}


# Optimizers and loss scales ----


class _Plain(tfl.LossScale):
  """A user's loss scale that knows no good steps and returns odd values."""

  def __init__(self, kind):
    super().__init__()
    self.kind = kind
    self._add_weight("good_steps", [1.0, 2.0], tf.float32)  # No count.

  def __call__(self):
    return {
      "number": 4.0,
      "array": np.float64(4),
      "vector": tf.constant([4.0]),
      "tensor": tf.constant(4.0, tf.float64),
    }[self.kind]

  def update(self, grads):
    finite = gradients.all_replicas_finite(grads)
    return tf.no_op(), finite

  def get_config(self):
    return {"kind": self.kind, "limit": _INF, "count": np.int64(3), "no": [1]}


@pytest.mark.parametrize("kind", ["number", "array", "vector", "tensor"])
def test_a_users_loss_scale(tmp_path, kind):
  lines = monitored_runs.run_steps(
    tmp_path,
    [1.0, _INF],
    make_optimizer=lambda: monitored_runs.make_sgd(_Plain(kind)),
    apply_only=True,
  )
  assert lines[0].pop("config") == {
    "class_name": "_Plain",
    "kind": kind,
    "limit": "inf",
    "count": 3,
    "minimum": None,
  }
  assert lines[0] == {
    "step": 1,
    "applied": True,
    "loss_scale/value": 4.0,
    "loss_scale/skipped_total": 0,
    "loss_scale/skipped_rate": 0.0,
    "global_step": 1,
  }
  assert not lines[1]["applied"] and lines[1]["global_step"] == 1


_SCALES = {
  "dynamic": lambda: tfl.DynamicLossScale(8.0, 3),
  "backoff": lambda: policies.GrowthBackoff(8.0, 3, hysteresis=2),
}


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("name", _SCALES)
def test_the_state_of_each_step(tmp_path, mode, name):
  grads = [1, 1, 1, 1, _INF, _INF, 1, _NAN, 1, 1, 1, 1]
  expected = []
  with monitored_runs.Program(
    mode,
    lambda: monitored_runs.make_sgd(_SCALES[name]()),
    output_dir=tmp_path,
    every_n_steps=1,
  ) as program:
    for grad in grads:
      program.step(grad)
      scale = program.trainer.loss_scale
      expected.append(
        (scale, int(program.trainer.value(program.trainer.global_step)))
      )
    program.end()
  lines = monitored_runs.assert_same_series(tmp_path)
  found = [(x["loss_scale/value"], x["global_step"]) for x in lines]
  assert found == expected
  skipped = np.cumsum([not math.isfinite(grad) for grad in grads])
  assert [x["loss_scale/skipped_total"] for x in lines] == skipped.tolist()
  assert [x["applied"] for x in lines] == list(map(math.isfinite, grads))
  if name == "dynamic":
    good = [x["loss_scale/good_steps"] for x in lines]
    assert good == [1, 2, 0, 1, 0, 0, 1, 0, 1, 2, 0, 1]


@pytest.mark.parametrize("use_resource", [True, False])
def test_global_step_is_read_after_the_step(tmp_path, use_resource):
  with monitored_runs.Program(
    use_resource=use_resource, output_dir=tmp_path, every_n_steps=1
  ) as program:
    for _ in range(50):
      program.step(1.0)
    program.end()
  lines = monitored_runs.read_lines(tmp_path)
  assert [x["global_step"] for x in lines] == list(range(1, 51))


def test_a_fixed_scale_applies_all(tmp_path, logged):
  lines = monitored_runs.run_steps(
    tmp_path,
    [1.0, _INF, _NAN],
    make_optimizer=lambda: monitored_runs.make_sgd(tfl.FixedLossScale(4.0)),
    every_n_steps=1,
  )
  assert [x["applied"] for x in lines] == [True] * 3
  assert [x["global_step"] for x in lines] == [1, 2, 3]
  assert lines[0]["config"]["class_name"] == "FixedLossScale"


def test_contrib(tmp_path):
  def make():
    manager = tfl.contrib.ExponentialUpdateLossScaleManager(8.0, 100, 2)
    sgd = tf1.train.GradientDescentOptimizer(0.5)
    return tfl.contrib.LossScaleOptimizer(sgd, manager)

  lines = monitored_runs.run_steps(
    tmp_path, [1.0, _INF, _INF], make_optimizer=make
  )
  values = [x["loss_scale/value"] for x in lines]
  assert values == pytest.approx([8.0, 8.0, 6.4])
  assert lines[0]["config"] == {
    "class_name": "ExponentialUpdateLossScaleManager",
    "minimum": 1.0,
  }
  assert lines[1]["blame"] == [blame("v0", 2, 0, 2, 0.0)]


@pytest.fixture
def nvidia(monkeypatch):
  monkeypatch.setenv("TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING", "1")
  environment.honor_environment(quiet=True)
  yield
  environment.ignore_environment()


def test_a_loss_scale_by_the_environment(tmp_path, nvidia):
  lines = monitored_runs.run_steps(
    tmp_path,
    [1.0, _INF],
    make_optimizer=lambda: tf1.train.GradientDescentOptimizer(0.5),
  )
  assert [x["loss_scale/value"] for x in lines] == [32768.0, 16384.0]
  assert lines[1]["blame"] == [blame("v0", 2, 0, 2, 0.0)]


def test_a_wrapper_around_the_optimizer(tmp_path):
  class Wrapper:
    def __init__(self, optimizer):
      self._optimizer = optimizer

  opt = monitored_runs.make_sgd()
  hook = monitoring.LossScaleHook(Wrapper(Wrapper(opt)))
  assert hook._optimizer is opt


def test_two_optimizers_with_a_hook_each(tmp_path):
  with tf.Graph().as_default():
    global_step = tf1.train.get_or_create_global_step()
    hooks, trains, factors = [], [], []
    for name, scale in ("gen", 8.0), ("dis", 64.0):
      with tf1.variable_scope(name):
        v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
        factors.append(tf1.placeholder_with_default(1.0, []))
        opt = monitored_runs.make_sgd(scale)
        trains.append(
          opt.minimize(tf.reduce_sum(v * factors[-1]), global_step, [v])
        )
        hooks.append(monitoring.LossScaleHook(opt, tmp_path / name))
    feed = {factors[1]: _INF}
    with tf1.train.MonitoredSession(hooks=hooks) as session:
      session.run(trains, feed)
      session.run(trains[0], feed)
      session.run(trains[1], feed)
  gen = monitored_runs.assert_same_series(tmp_path / "gen")
  dis = monitored_runs.assert_same_series(tmp_path / "dis")
  assert [(x["step"], x["applied"]) for x in gen] == [(1, True), (2, True)]
  assert [x["blame"][0]["name"] for x in dis[:1]] == ["dis/v"]
  assert [x["loss_scale/value"] for x in dis] == [32.0, 16.0]


def test_two_steps_of_one_optimizer(tmp_path):
  with tf.Graph().as_default():
    global_step = tf1.train.get_or_create_global_step()
    opt = monitored_runs.make_sgd()
    factor = tf1.placeholder_with_default(1.0, [])
    trains = []
    for name in "gen", "dis":
      v = tf1.get_variable(name, initializer=np.ones(2, np.float32))
      loss = tf.reduce_sum(v * factor)
      step = global_step if name == "gen" else None
      trains.append(opt.minimize(loss, step, [v]))
    hook, session = begin(opt, tmp_path, every_n_steps=1)
    hook.run(session, trains[0])
    hook.run(session, trains[1], {factor: _INF})
    hook.run(session, trains[0], {factor: _NAN})
    hook.run(session, [])
    hook.end(session)
  lines = monitored_runs.assert_same_series(tmp_path)
  assert [x["applied"] for x in lines] == [True, False, False]
  assert [x["blame"][0]["name"] for x in lines[1:]] == ["dis", "gen"]
  assert [x.get("global_step") for x in lines] == [1, None, 1]


def test_no_global_step(tmp_path):
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    opt = monitored_runs.make_sgd()
    train = opt.minimize(tf.reduce_sum(v))
    hook, session = begin(opt, tmp_path, every_n_steps=2)
    for _ in range(4):
      hook.run(session, train)
    hook.end(session)
  lines = monitored_runs.assert_same_series(tmp_path)
  assert [x["step"] for x in lines] == [1, 2, 4]
  assert not any("global_step" in x for x in lines)
  # Without a global step, the good steps say when to measure.
  assert all("underflow" in x for x in lines[1:])


# Which runs are steps ----


def test_only_runs_with_a_step_count(tmp_path):
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    loss = tf.reduce_sum(v * v)
    opt = monitored_runs.make_sgd()
    pairs = opt.compute_gradients(loss)
    train = opt.apply_gradients(pairs, name="train")
    applied = opt.last_step_applied
    with tf.control_dependencies([train]):
      after = tf.identity(loss, "after")
    middle = tf.identity(after)
    late = tf.identity(middle) + 1.0
    sparse = tf.SparseTensor([[0]], [late], [1])
    dense = tf.SparseTensor([[0]], [loss], [1])
    summary = tf1.summary.scalar("loss", loss)
    hook, session = begin(opt, tmp_path, every_n_steps=1)

    def count(fetches, feed=None):
      before = hook._recorder.step
      hook.run(session, fetches, feed)
      return hook._recorder.step - before

    none = [
      loss,
      [grad for grad, _ in pairs],
      [],
      {1: loss, "b": summary},
      applied,
      v,
      "v",
      opt.variables(),
      dense,
      loss.op,
    ]
    for fetches in none:
      assert count(fetches) == 0, fetches
    steps = [
      train,
      "train",
      [loss, [train]],
      {"a": loss, 2: {"b": (train,)}},
      after,
      "after:0",
      late,
      sparse,
      [train, train, after],
    ]
    for fetches in steps:
      assert count(fetches) == 1, fetches
    assert count(late, {middle: 1.0}) == 0
    assert count(late, {"after:0": 1.0}) == 0
    assert count(after, {after: 1.0}) == 0
    assert count([after, train], {after: 1.0}) == 1
    assert count(late, {loss: 1.0}) == 1
    assert count(train, {pairs[0][0]: [1.0, _INF]}) == 1
    hook.end(session)
  lines = monitored_runs.assert_same_series(tmp_path)
  assert len(lines) == len(steps) + 3
  assert lines[-1]["blame"] == [blame("v", 1, 0, 2, 1.0)]


def test_errors_are_the_sessions_own():
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    opt = monitored_runs.make_sgd()
    opt.minimize(tf.reduce_sum(v))
    hook, session = begin(opt)
    for fetches in None, 7, "no such", object(), {"a": None}:
      with pytest.raises((TypeError, ValueError)) as expected:
        session.run([fetches, []])
      with pytest.raises(type(expected.value)) as found:
        hook.run(session, fetches)
      assert str(found.value)[:60] == str(expected.value)[:60]


def test_a_session_that_goes_on_building(tmp_path):
  with monitored_runs.Program(output_dir=tmp_path) as program:
    runs = program.hook._runs
    for _ in range(5):
      fetches = [program.train_op, tf.constant(1.0)]
      program.hook.run(program.session, fetches, program.feed(1.0))
    with tf.control_dependencies([program.train_op]):
      late = tf.constant(2.0)
    others = [tf.constant(0.0) for _ in range(9)]
    program.hook.run(program.session, late, program.feed(1.0))
    assert len(runs._known) <= 2
    sizes = []
    for i in range(270):  # Each run fetches other tensors: its bits say which.
      chosen = [other for j, other in enumerate(others) if i >> j & 1]
      args = tf1.train.SessionRunArgs([late, *chosen], program.feed(1.0))
      assert list(runs.ask(args).fetches) == [0]
      sizes.append(len(runs._known))
    assert max(sizes) == 256 and sizes[-1] < 256
    program.hook.run(program.session, [late, *others], program.feed(1.0))
    program.end()
  assert monitored_runs.read_lines(tmp_path)[-1]["step"] == 7


@pytest.mark.thorough
def test_a_large_graph():
  # 20,000 ops in a chain; the walk must not recurse, and happens once.
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    opt = monitored_runs.make_sgd()
    train = opt.minimize(tf.reduce_sum(v))
    with tf.control_dependencies([train]):
      last = tf.constant(1.0)
    for _ in range(20_000):
      last = tf.raw_ops.Identity(input=last)
    hook = monitoring.LossScaleHook(opt)
    hook.begin()
    args = tf1.train.SessionRunArgs
    assert list(hook._runs.ask(args([last])).fetches) == [0]
    assert not hook._runs.ask(args([last], {last: 1.0}))


# What makes no sense ----


@pytest.mark.parametrize(
  "options, message",
  [
    ({"every_n_steps": 0}, r"every_n_steps must be .* at least 1, but got 0"),
    ({"every_n_steps": True}, "every_n_steps must be .* but got True"),
    ({"every_n_steps": 1.5}, "every_n_steps must be .* but got 1.5"),
    ({"patience": -3}, "patience must be .* but got -3"),
    ({"patience": "2"}, "patience must be .* but got '2'"),
    ({"on_stuck": "halt"}, "on_stuck must be 'warn', .* but got 'halt'"),
    ({"on_stuck": None}, "on_stuck must be 'warn', .* but got None"),
    ({"on_stuck": np.ones(2)}, "on_stuck must be 'warn', .* but got array"),
    ({"blame": "no"}, "blame must be True or False, but got 'no'"),
    ({"blame": None}, "blame must be True or False, but got None"),
    ({"output_dir": ""}, "output_dir must be .* local disk .* but got ''"),
    ({"output_dir": 3}, "output_dir must be .* local disk .* but got 3"),
    ({"output_dir": b"x"}, "output_dir must be .* but got b'x'"),
    ({"output_dir": "gs://b/x"}, "output_dir must be .* but got 'gs://b/x'"),
    ({"output_dir": "a\0b"}, r"output_dir must be .* but got 'a\\x00b'"),
  ],
)
def test_bad_arguments(options, message):
  with pytest.raises(ValueError, match=f"(?s)^{message}"):
    monitoring.LossScaleHook(monitored_runs.make_sgd(), **options)


def test_bad_optimizers():
  class Loop:
    @property
    def optimizer(self):
      return self

  for bad in None, 3, "sgd", tf1.train.AdamOptimizer(), Loop():
    with pytest.raises(ValueError, match=r"^optimizer must be") as error:
      monitoring.LossScaleHook(bad)
    assert repr(bad) in str(error.value)


def test_nothing_to_watch():
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=np.ones(2, np.float32))
    opt = monitored_runs.make_sgd()
    hook = monitoring.LossScaleHook(opt)
    with pytest.raises(RuntimeError, match=r"call minimize\(\) or apply"):
      hook.begin()
    with pytest.raises(RuntimeError, match=r"begin\(\) was not called"):
      hook.run(tf1.Session(), v)
    tf.cond(
      tf.equal(tf.reduce_sum(v), 0.0),
      lambda: tf.group(opt.minimize(tf.reduce_sum(v))),
      tf.no_op,
    )
    with pytest.raises(RuntimeError, match=r"outside of tf\.cond"):
      hook.begin()


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32])
@pytest.mark.parametrize("clips", [False, True])
def test_fed_gradients_compute_no_others(dtype, clips):
  with tf.Graph().as_default(), tf1.Session() as session:
    dataset = tf.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0])
    batch = tf1.data.make_one_shot_iterator(dataset).get_next()
    v = tf1.get_variable("v", initializer=tf.ones([], dtype))
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(1.0), tfl.DynamicLossScale(8)
    )
    ((grad, _),) = opt.compute_gradients(v * tf.cast(batch, dtype))
    given = tf1.placeholder_with_default(grad, []) if clips else grad
    train_op = opt.apply_gradients([(given, v)])
    hook = monitoring.LossScaleHook(opt, every_n_steps=1)
    hook.begin()
    session.run(tf1.global_variables_initializer())
    for expected in (1.0, 2.0, 3.0):
      assert session.run(grad) == expected
      hook.run(session, train_op, {given: expected})
    with pytest.raises(tf.errors.OutOfRangeError):
      session.run(grad)
    assert session.run(v) == -5
    # Of what is fed, the hook sees whether the step was applied.
    hook.run(session, train_op, {given: _NAN})
    assert session.run(opt.loss_scale()) == 4


def test_a_finalized_graph_is_refused():
  with tf.Graph().as_default() as graph:
    v = tf1.get_variable("v", initializer=1.0, use_resource=True)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(1.0), "dynamic"
    )
    opt.minimize(v * v)
    graph.finalize()
    with pytest.raises(RuntimeError, match=r"call begin\(\) before the graph"):
      monitoring.LossScaleHook(opt).begin()


def test_bad_gradients_that_are_applied(tmp_path, logged):
  with tf.Graph().as_default(), tf1.Session() as session:
    x = tf1.placeholder(tf.float32, [])
    v = tf1.get_variable("layer/kernel", initializer=1.0, use_resource=True)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(1.0), 8
    )
    train_op = opt.minimize(v * x, tf1.train.get_or_create_global_step())
    hook = monitoring.LossScaleHook(opt, tmp_path, every_n_steps=5)
    hook.begin()
    session.run(tf1.global_variables_initializer())
    for i in range(20):
      hook.run(session, train_op, {x: 1.0 if i < 7 else _NAN})
    hook.end(session)
  (warning,) = [x for x in logged.messages if "was applied" in x]
  assert warning.startswith("Step 10 was applied, with gradients that are not")
  assert "layer/kernel: 0 inf, 1 NaN of 1" in warning
  verdict = monitoring.judge(monitoring.read_run(str(tmp_path)))
  assert verdict.kind == "applied_not_finite"
  assert "first seen at step 10" in verdict.sentence
  assert "layer/kernel" in verdict.evidence[0]


if __name__ == "__main__":
  helpers.main()
