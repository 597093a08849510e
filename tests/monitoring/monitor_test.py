# SPDX-License-Identifier: Apache-2.0
"""Tests `Monitor`: eager steps, functions, loops, replicas, restarts."""

import contextlib
import functools
import gc
import json
import math
import pathlib
import tempfile

from absl import logging
import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import gradients
from tf_compat_lossscale import monitoring
from tf_compat_lossscale import policies
from tf_compat_lossscale._core import step_records
from tf_compat_lossscale.cli import main
from tf_compat_lossscale.monitoring import device_state
from tf_compat_lossscale.monitoring.steps import State
from tf_compat_lossscale.monitoring.steps import Step

tf1 = tf.compat.v1
_INF = float("inf")
_SCHEDULE = [1.0, 1.0, 1.0, _INF, 1.0, _INF, _INF, 1.0, 1.0, 1.0]
KINDS = ("eager", "function", "jit", "loop")


def momentum():
  return tf1.train.MomentumOptimizer(0.125, 0.5)


MAKERS = {
  "dynamic": lambda: tfl.MixedPrecisionLossScaleOptimizer(
    momentum(), tfl.DynamicLossScale(8, 2)
  ),
  "contrib": lambda: contrib.LossScaleOptimizer(
    momentum(), contrib.ExponentialUpdateLossScaleManager(8, 2)
  ),
  "policy": lambda: tfl.MixedPrecisionLossScaleOptimizer(
    momentum(), policies.GrowthBackoff(8.0, growth_interval=2)
  ),
  "fixed": lambda: tfl.MixedPrecisionLossScaleOptimizer(momentum(), 8),
}


# Each kind of program, and each optimizer in a function.
_PROGRAMS = [
  *(("dynamic", kind) for kind in KINDS),
  *((name, "function") for name in ("contrib", "policy", "fixed")),
  ("contrib", "eager"),
]
programs = pytest.mark.parametrize("name, kind", _PROGRAMS)


class Own(tfl.LossScale):
  """A user's loss scale, without state that a monitor knows."""

  def __call__(self):
    return tf.constant(4.0)

  def update(self, grads):
    return tf.no_op(), tfl.gradients.all_replicas_finite(grads)

  def get_config(self):
    return {}


class Program:
  """A program with two variables, whose gradients it clips.

  Args:
    kind: One of KINDS.
    make: Returns the optimizer.
    strategy: The strategy.
  """

  def __init__(self, kind, make=MAKERS["dynamic"], strategy=None):
    self.kind = kind
    self.strategy = strategy or tf.distribute.get_strategy()
    with self.strategy.scope():
      self.a = tf.Variable([1.0, 2.0], name="a")
      self.b = tf.Variable([[1.0], [0.0], [3.0]], name="b")
      self.global_step = tf.Variable(
        0,
        dtype=tf.int64,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
      )
      self.opt = make()
    self.one = self._step
    if kind in ("function", "jit"):
      self.one = tf.function(
        self._step, jit_compile=kind == "jit", autograph=False
      )
    self.loop = tf.function(self._loop)

  def _on_replica(self, factor):
    def loss():
      return tf.reduce_sum(self.a * factor) + tf.reduce_sum(self.b * self.b)

    pairs = self.opt.compute_gradients(loss, [self.a, self.b])
    grads, _ = tf.clip_by_global_norm([grad for grad, _ in pairs], 1.0)
    self.opt.apply_gradients(zip(grads, [self.a, self.b]), self.global_step)

  def _step(self, factor):
    self.strategy.run(self._on_replica, (factor,))

  def _loop(self, factors):
    for factor in factors:
      self._step(factor)

  def run(self, factors, monitor=None):
    """Trains; returns what `step` returned."""
    if self.kind == "loop":
      self.loop(tf.constant(factors, tf.float32))
      return [monitor.step()] if monitor else []
    told = []
    for factor in factors:
      self.one(tf.constant(factor))
      if monitor:
        told.append(monitor.step())
    return told

  def state(self):
    """Returns the bytes of all variables."""
    own = [self.a, self.b, self.global_step, *self.opt.variables()]
    return [tf.convert_to_tensor(x).numpy().tobytes() for x in own]


def read(folder, *without):
  """Returns the lines of a folder's log, without times and configs."""
  return parse((folder / "loss_scale.jsonl").read_text("utf-8"), *without)


def parse(text, *without):
  """Returns the lines of a log's text, without times and configs."""
  lines = [json.loads(line) for line in text.splitlines()]
  left_out = {"time", "config", *without}
  return [
    {key: value for key, value in line.items() if key not in left_out}
    for line in lines
  ]


@functools.cache  # Programs of several kinds train alike.
def train_with_hook(name):
  """Trains as `Program` does, in a session with a hook; returns the log."""
  with tf.Graph().as_default(), tempfile.TemporaryDirectory() as folder:
    a = tf1.get_variable("a", initializer=[1.0, 2.0], use_resource=True)
    b = tf1.get_variable(
      "b", initializer=[[1.0], [0.0], [3.0]], use_resource=True
    )
    global_step = tf1.train.get_or_create_global_step()
    factor = tf1.placeholder(tf.float32, [])
    opt = MAKERS[name]()
    loss = tf.reduce_sum(a * factor) + tf.reduce_sum(b * b)
    pairs = opt.compute_gradients(loss, [a, b])
    grads, _ = tf.clip_by_global_norm([grad for grad, _ in pairs], 1.0)
    op = opt.apply_gradients(zip(grads, [a, b]), global_step)
    hook = monitoring.LossScaleHook(opt, folder, every_n_steps=3)
    with tf1.train.SingularMonitoredSession([hook]) as session:
      for value in _SCHEDULE:
        session.run(op, {factor: value})
    return (pathlib.Path(folder) / "loss_scale.jsonl").read_text("utf-8")


@programs
def test_lines_are_those_of_a_hook_and_results_stay(name, kind, tmp_path):
  program, alone = Program(kind, MAKERS[name]), Program(kind, MAKERS[name])
  with monitoring.Monitor(program.opt, tmp_path, every_n_steps=3) as monitor:
    told = program.run(_SCHEDULE, monitor)
  applied = [name == "fixed" or math.isfinite(x) for x in _SCHEDULE]
  assert told == (applied[-1:] if kind == "loop" else applied)
  if name == "dynamic":
    check_contents(read(tmp_path), kind)
  expected = parse(train_with_hook(name), "underflow")
  found = read(tmp_path, "underflow")
  if kind == "loop":
    # Of a loop, only the last skipped step was measured last.
    for lines in (expected, found):
      for line in lines[:-2]:
        line.pop("blame", None), line.pop("gradients", None)
  if name == "fixed":  # Of a good step, hook and monitor measure another one.
    for lines in (expected, found):
      for line in lines:
        line.pop("blame", None), line.pop("gradients", None)
  assert found == expected
  assert len(found) >= 4

  # A program that nobody watches trains to the same bits.
  random = np.random.default_rng(7)
  factors = random.choice([0.5, -1.5, 1e-3, _INF, float("nan")], 24)
  factors = np.where(random.random(24) < 0.8, random.normal(size=24), factors)
  factors = factors.astype(np.float32)
  if name == "fixed":
    factors = np.nan_to_num(factors, posinf=1.0)
  program.run(factors, monitor)
  alone.run(_SCHEDULE)
  alone.run(factors)
  assert program.state() == alone.state()


def check_contents(lines, kind):
  """Checks what the lines of the dynamic scale say about gradients."""
  blamed = next(line for line in lines if "blame" in line)
  assert blamed["step"] == (7 if kind == "loop" else 4)
  # The gradients before they were clipped, which made all of them NaN.
  assert blamed["gradients"] == 2
  assert blamed["blame"] == [
    {"name": "a", "inf": 2, "nan": 0, "size": 2, "largest": 0.0}
  ]
  *_, line = (line for line in lines if "underflow" in line)
  assert line["step"] == 9
  assert line["underflow"]["zeros"] == pytest.approx(1 / 5)
  assert line["underflow"]["gradients"]["b"][0] == pytest.approx(1 / 3)
  assert line["underflow"]["gradients"]["a"] == [0.0, 2.0]


@pytest.mark.parametrize("kind", ["eager", "function"])
def test_variables_that_share_a_name(kind, tmp_path, capsys, caplog):
  variables = [tf.Variable(tf.ones([6]), name="kernel") for _ in range(3)]
  variables += [tf.Variable(1.0, name="bias"), tf.Variable(1.0, name="bias_1")]
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    momentum(), policies.GrowthBackoff(2.0, growth_interval=100)
  )

  def step(x):
    def loss():
      factors = [x if i == 2 else 1.0 for i in range(len(variables))]
      return tf.add_n(
        [tf.reduce_sum(v * f) for v, f in zip(variables, factors)]
      )

    opt.minimize(loss, var_list=variables)

  run = step
  if kind != "eager":
    run = tf.function(step, autograph=False)
  with monitoring.Monitor(opt, tmp_path, every_n_steps=2) as monitor:
    for value in (1.0, 1.0, *[_INF] * 30):
      run(tf.constant(value))
      monitor.step()
  assert "; 1 of 5 gradients: kernel 2: 6 inf, 0 NaN of 6" in caplog.text
  rows = monitoring.read_run(tmp_path).rows
  assert [(b.name, b.inf, b.size) for b in rows[2].blame] == [
    ("kernel 2", 6, 6)
  ]
  names = {*(f"kernel {i}" for i in range(3)), "bias", "bias_1"}
  assert rows[1].underflow.gradients.keys() == names
  assert main.main(["doctor", str(tmp_path)]) == 1
  printed = capsys.readouterr().out
  assert "At fault: kernel 2 (in 29 of 29 steps, up to 6 inf of 6" in printed
  # The error of a policy has the same names.
  grads = [tf.constant(_INF if i == 2 else 1.0) for i in range(5)]
  named = step_records.name_variables(zip(grads, variables))
  policy = policies.GrowthBackoff(1.0, at_minimum="raise")
  with pytest.raises(tf.errors.InvalidArgumentError, match="fault: kernel 2"):
    policy.update(gradients.NamedGradients(grads, named))


@pytest.mark.parametrize(
  "kind",
  ["eager", "function", pytest.param("loop", marks=pytest.mark.thorough)],
)
def test_replicas_are_added_up(kind, tmp_path):
  strategy = helpers.two_replicas()
  program = Program(kind, strategy=strategy)
  with monitoring.Monitor(program.opt, tmp_path, every_n_steps=2) as monitor:
    program.run([1.0, 1.0, _INF, 1.0], monitor)
  lines = {line["step"]: line for line in read(tmp_path)}
  assert [*lines] == [1, 2, 3, 4]
  assert lines[3]["blame"][0]["inf"] == 4
  assert lines[3]["blame"][0]["size"] == 4
  assert lines[4]["global_step"] == 3
  assert lines[4]["loss_scale/skipped_total"] == 1


def test_jit_with_a_strategy_of_one_device(tmp_path):
  program = Program("jit", strategy=tf.distribute.OneDeviceStrategy("cpu:0"))
  with monitoring.Monitor(program.opt, tmp_path) as monitor:
    assert program.run([1.0, _INF], monitor) == [True, False]


@pytest.mark.parametrize("kind", ["eager", "function"])
def test_loss_scale_of_a_user(kind, tmp_path):
  program = Program(
    kind, lambda: tfl.MixedPrecisionLossScaleOptimizer(momentum(), Own())
  )
  with monitoring.Monitor(program.opt, tmp_path) as monitor:
    assert program.run([1.0, _INF, 1.0], monitor) == [True, False, True]
  lines = read(tmp_path)
  assert [line["loss_scale/value"] for line in lines] == [4.0] * 3
  assert "loss_scale/good_steps" not in lines[0]


@pytest.mark.parametrize("kind", ["function", "jit", "loop"])
def test_function_that_was_traced_before(kind, tmp_path, monkeypatch):
  warned = []
  monkeypatch.setattr(
    logging, "warning", lambda text, *args: warned.append(text % args)
  )
  program = Program(kind)
  program.run([1.0])
  with monitoring.Monitor(program.opt, tmp_path) as monitor:
    assert monitor.step() is None
    told = []
    for factor in [1.0, _INF, 1.0, _INF]:
      program.run([factor])
      told.append(monitor.step())
      assert monitor.step() is None
  assert told == [True, False, True, False]
  before = [text for text in warned if "traced before" in text]
  assert len(before) == 1
  lines = read(tmp_path)
  assert lines[-1]["step"] == 5
  assert lines[-1]["loss_scale/skipped_total"] == 2
  assert lines[-1]["global_step"] == 3
  assert not [line for line in lines if "blame" in line]


def test_fixed_loss_scale_traced_before(tmp_path):
  program = Program("function", MAKERS["fixed"])
  program.run([1.0])
  with monitoring.Monitor(program.opt, tmp_path) as monitor:
    assert program.run([1.0, 1.0], monitor) == [True, True]
  assert read(tmp_path)[-1]["global_step"] == 3


def test_retrace_and_other_functions_of_one_optimizer(tmp_path):
  program = Program("function")
  monitor = monitoring.Monitor(program.opt, tmp_path, blame=False)
  program.run([1.0], monitor)
  program.one(tf.constant([_INF]))  # Another trace.
  assert monitor.step() is False
  program.loop(tf.constant([1.0, 1.0, _INF]))
  assert monitor.step() is False
  program._step(tf.constant(_INF))  # Eagerly.
  program.loop(tf.constant([1.0]))
  assert monitor.step() is True
  monitor.close()
  lines = read(tmp_path)
  assert [line["step"] for line in lines][-1] == 7
  skipped = [line["step"] for line in lines if not line["applied"]]
  assert skipped == [2, 5, 6]


def test_many_steps_between_two_looks(tmp_path, monkeypatch):
  warned = []
  monkeypatch.setattr(
    logging, "warning", lambda text, *args: warned.append(text % args)
  )
  program = Program("loop")
  count = device_state.CAPACITY + 50
  factors = np.ones(count, np.float32)
  factors[[3, 20, count - 1]] = _INF
  with monitoring.Monitor(program.opt, tmp_path) as monitor:
    program.loop(tf.constant([1.0]))
    monitor.step()
    program.loop(tf.constant(factors))
    assert monitor.step() is False
  last = read(tmp_path)[-1]
  assert last["step"] == count + 1
  assert last["loss_scale/skipped_total"] == 3
  assert last["blame"][0]["name"] == "a"
  assert any(f"{count} steps were taken between" in text for text in warned)


def test_no_step_is_no_step():
  program = Program("function")
  monitor = monitoring.Monitor(program.opt, blame=False)
  assert monitor.step() is None
  program.run([1.0])
  program.run([_INF])
  assert monitor.step() is False
  assert monitor.step() is None


@pytest.mark.parametrize("kind", ["eager", "function"])
def test_restart_goes_on_in_the_log(kind, tmp_path):
  logs = tmp_path / "logs"
  program = Program(kind)

  def track(program):
    return tf.train.Checkpoint(
      a=program.a, b=program.b, opt=program.opt, step=program.global_step
    )

  options = {"every_n_steps": 3, "blame": False}
  first = monitoring.Monitor(program.opt, logs, **options)
  with contextlib.suppress(ValueError), first as monitor:
    program.run([1.0, _INF, 1.0, 1.0], monitor)
    checkpoint = track(program).save(tmp_path / "checkpoint")
    program.run([1.0, 1.0, _INF], monitor)
    raise ValueError("The run was killed.")
  again = Program(kind)
  monitor = monitoring.Monitor(again.opt, logs, **options)
  track(again).restore(checkpoint).assert_existing_objects_matched()
  with monitor:
    again.run([1.0, _INF, 1.0], monitor)
  lines = read(logs)
  steps = [line["step"] for line in lines]
  assert steps == sorted(set(steps)) and steps[-1] == 7
  assert lines[-1]["loss_scale/skipped_total"] == 2
  assert [line["step"] for line in lines if not line["applied"]] == [2, 6]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_stuck(kind, tmp_path, monkeypatch):
  warned = []
  monkeypatch.setattr(
    logging, "warning", lambda text, *args: warned.append(text % args)
  )
  program = Program(kind)
  with monitoring.Monitor(
    program.opt, tmp_path, on_stuck="stop", patience=4
  ) as monitor:
    program.run([1.0, _INF, _INF, _INF], monitor)
    assert not monitor.should_stop
    program.run([_INF])
    fed = {"x": tf.zeros([2, 3]), "y": np.zeros([4], np.int32), "z": "text"}
    assert monitor.step(inputs=fed) is False
    assert monitor.should_stop
  assert any("The loss scale is stuck" in text for text in warned)
  found = json.loads((tmp_path / "stuck-5" / "report.json").read_text("utf-8"))
  assert list(found["fed"].values()) == [
    {"shape": [2, 3], "dtype": "float32"},
    {"shape": [4], "dtype": "int32"},
    {"shape": [], "dtype": "string"},
  ]
  kept = tf.train.load_checkpoint(str(tmp_path / "stuck-5" / "state"))
  names = set(kept.get_variable_to_shape_map())
  assert {"a", "b"} <= names or {"a", "b"} <= {n.split("/")[0] for n in names}
  other = Program(kind)
  monitor = monitoring.Monitor(other.opt, on_stuck="raise", patience=3)
  with pytest.raises(monitoring.StuckError, match=r"(?s)steps were skipped"):
    other.run([_INF] * 3, monitor)


def test_function_outlives_its_monitor(tmp_path):
  program = Program("function")
  monitor = monitoring.Monitor(program.opt)
  program.run([1.0], monitor)
  del monitor
  gc.collect()
  program.run([_INF, 1.0])
  assert program.opt.last_step_applied
  # A new monitor finds what the function writes.
  with monitoring.Monitor(program.opt, tmp_path) as monitor:
    assert program.run([_INF], monitor) == [False]
  (line,) = read(tmp_path)
  assert line["blame"][0]["name"] == "a"


def test_two_monitors(tmp_path):
  program = Program("function")
  first = monitoring.Monitor(program.opt, tmp_path / "1", every_n_steps=2)
  program.run([1.0, 1.0], first)
  second = monitoring.Monitor(program.opt, tmp_path / "2", every_n_steps=5)
  program.run([_INF, 1.0], second)
  assert first.step() is True
  first.close(), second.close()
  assert [x["step"] for x in read(tmp_path / "1")] == [1, 2, 3, 4]
  assert read(tmp_path / "1")[2]["blame"] == read(tmp_path / "2")[0]["blame"]
  assert len(read(tmp_path / "2")) == 2


def test_monitor_that_is_closed_goes_on(tmp_path):
  program = Program("function")
  monitor = monitoring.Monitor(program.opt, tmp_path, blame=False)
  program.run([1.0, 1.0, 1.0], monitor)
  monitor.close()
  program.run([1.0, 1.0], monitor)
  monitor.close()
  assert [x["step"] for x in read(tmp_path)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["eager", "function"])
def test_threads(kind):
  program = Program(kind)
  monitor = monitoring.Monitor(program.opt)
  program.run([1.0], monitor)

  def train(_):
    for factor in [1.0, _INF] * 12:
      program.one(tf.constant(factor))
      monitor.step()

  helpers.in_threads(train, 4)
  monitor.step()
  own = monitor._recorder
  assert (own.step, own.skipped) == (97, 48)


def test_row_that_another_step_wrote(monkeypatch):
  program = Program("function")
  monitor = monitoring.Monitor(program.opt, blame=False)
  program.run([1.0], monitor)
  state = State(8.0, 0, 0, 0)
  # Number, what the row says of its step, and skipped steps so far. The flags
  # of the steps 2, 5 and 6 are of other steps; no row has the number 4.
  written = [(2, False, 0), (3, False, 1), (5, False, 1), (6, True, 2)]
  rows = [Step(x[1], state, state, x[0], x[2]) for x in written]
  monkeypatch.setattr(device_state.DeviceState, "take", lambda self: rows)
  assert monitor.step() is False
  own = monitor._recorder
  assert (own.step, own.skipped) == (6, 2)
  steps = [
    (x.number, x.applied, x.skipped) for x in monitor._watched.steps._log
  ]
  assert steps[1:] == [(2, True, 0), (3, False, 1), (5, True, 1), (6, False, 2)]


@pytest.mark.parametrize("kind", ["eager", "function"])
def test_without_blame(kind, tmp_path):
  program = Program(kind)
  with monitoring.Monitor(program.opt, tmp_path, 1, blame=False) as monitor:
    program.run([1.0, _INF], monitor)
  lines = read(tmp_path)
  assert [line["applied"] for line in lines] == [True, False]
  assert not {"blame", "underflow"} & {*lines[0], *lines[1]}


def test_global_step_as_an_argument(tmp_path):
  opt = MAKERS["dynamic"]()
  variable = tf.Variable(1.0)
  count = tf.Variable(7, dtype=tf.int64)

  @tf.function(autograph=False)
  def step():
    opt.minimize(lambda: variable * variable, var_list=[variable])
    count.assign_add(1)

  step()
  with monitoring.Monitor(opt, tmp_path, global_step=count) as monitor:
    step()
    monitor.step()
  assert read(tmp_path)[0]["global_step"] == 9


def make_exported_step(module):
  """Returns a function that a SavedModel may have."""

  @tf.function(input_signature=[tf.TensorSpec([])], autograph=False)
  def step(factor):
    module.opt.minimize(
      lambda: tf.reduce_sum(module.variable * factor),
      var_list=[module.variable],
    )
    return module.opt.last_step_applied

  return step


def test_checkpoints_and_saved_models(tmp_path):
  graphs = []
  for watched in (False, True):
    module = tf.Module()
    module.variable = tf.Variable([1.0, 2.0], name="v")
    module.opt = opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.25), tfl.DynamicLossScale(8, 2)
    )

    step = make_exported_step(module)
    monitor = monitoring.Monitor(opt) if watched else None
    step(tf.constant(1.0))
    path = tf.train.Checkpoint(module=module).save(tmp_path / f"{watched}")
    reader = tf.train.load_checkpoint(path)
    graphs.append(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    module.step = step
    tf.saved_model.save(module, tmp_path / f"model{watched}")
    loaded = tf.saved_model.load(tmp_path / f"model{watched}")
    assert not loaded.step(tf.constant(_INF))
    assert loaded.step(tf.constant(1.0))
    if monitor:
      assert monitor.step() is True
  assert graphs[0] == graphs[1]


def test_optimizer_keeps_no_gradient_and_no_monitor():
  program = Program("eager")
  monitor = monitoring.Monitor(program.opt)
  program.run([1.0, _INF], monitor)
  assert not vars(program.opt._eager_steps.computed)
  del monitor
  gc.collect()
  assert program.opt._eager_steps.observer is None
  program.run([1.0])


def test_errors(tmp_path):
  program = Program("eager")
  with pytest.raises(ValueError, match=r"optimizer must be a .*Momentum"):
    monitoring.Monitor(momentum())
  with pytest.raises(ValueError, match="on_stuck must be 'warn'"):
    monitoring.Monitor(program.opt, on_stuck="panic")
  with pytest.raises(ValueError, match="every_n_steps"):
    monitoring.Monitor(program.opt, every_n_steps=0)
  in_graph = pytest.raises(RuntimeError, match="use LossScaleHook")
  with tf.Graph().as_default(), in_graph:
    monitoring.Monitor(program.opt)
  monitor = monitoring.Monitor(program.opt)
  with pytest.raises(RuntimeError, match="not inside"):
    tf.function(monitor.step)()


def test_steps_in_a_graph_of_tensorflow_1_are_not_watched():
  opt = MAKERS["dynamic"]()
  monitor = monitoring.Monitor(opt)
  with tf.Graph().as_default(), tf1.Session() as session:
    variable = tf1.get_variable("v", [2], use_resource=True)

    @tf.function(autograph=False)
    def step():
      opt.minimize(lambda: tf.reduce_sum(variable), var_list=[variable])
      return opt.last_step_applied

    applied = step()
    session.run(tf1.global_variables_initializer())
    assert session.run(applied)
    names = [x.op.name for x in tf1.global_variables()]
  assert names and not [name for name in names if "monitor" in name]
  assert monitor.step() is None


def test_a_subclass_may_pass_the_pairs_in_another_order():
  class Reversed(tfl.MixedPrecisionLossScaleOptimizer):
    def _distributed_apply(self, distribution, grads_and_vars, *args):
      pairs = tuple(grads_and_vars)[:0:-1]
      return super()._distributed_apply(distribution, pairs, *args)

  with tf.Graph().as_default() as graph:
    sgd = tf1.train.GradientDescentOptimizer(0.5)
    opt = Reversed(sgd, "dynamic")
    variables = [tf1.get_variable(f"v{i}", shape=[i + 1]) for i in range(3)]
    loss = tf.add_n([tf.reduce_sum(x) for x in variables])
    pairs = opt.compute_gradients(loss, variables)
    opt.apply_gradients(pairs)

    (record,) = step_records.list_records(opt, graph)

  assert record.names == ("v2", "v1")
  for given, computed in zip(record.gradients, record.computed):
    assert computed[0] is given[0]


if __name__ == "__main__":
  helpers.main()
