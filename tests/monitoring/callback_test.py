# SPDX-License-Identifier: Apache-2.0
"""Tests monitoring of Keras 2: `last_step_applied`, monitors, a callback."""

import gc
import json

import helpers
import numpy as np
import pytest
import tensorflow as tf

from tf_compat_lossscale import keras
from tf_compat_lossscale import monitoring
from tf_compat_lossscale.keras import _keras2

tf1 = tf.compat.v1
k2 = _keras2.keras
_KINDS = {"legacy": k2.optimizers.legacy.SGD, "new": k2.optimizers.SGD}
kinds = pytest.mark.parametrize("kind", list(_KINDS))
_INF = float("inf")
_SCALE = {
  "initial_loss_scale": 8.0,
  "increment_period": 2,
  "multiplier": 2.0,
}


def make_optimizer(kind, loss_scale=_SCALE):
  inner = _KINDS[kind](0.125, momentum=0.5)
  return keras.LossScaleOptimizer(inner, loss_scale)


class Program:
  """A program that trains two variables, and clips their gradients."""

  def __init__(self, kind, mode, loss_scale=_SCALE, strategy=None):
    self.strategy = strategy or tf.distribute.get_strategy()
    with self.strategy.scope():
      self.a = tf.Variable([1.0, 2.0], name="a")
      self.b = tf.Variable([[1.0], [0.0]], name="b")
      self.opt = make_optimizer(kind, loss_scale)
    self.step = self._step
    if mode != "eager":
      self.step = tf.function(
        self._step, jit_compile=mode == "jit", autograph=False
      )

  def _on_replica(self, factor):
    with tf.GradientTape() as tape:
      loss = tf.reduce_sum(self.a * factor) + tf.reduce_sum(self.b * self.b)
      loss = self.opt.get_scaled_loss(loss)
    grads = tape.gradient(loss, [self.a, self.b])
    grads = self.opt.get_unscaled_gradients(grads)
    grads, _ = tf.clip_by_global_norm(grads, 1.0)
    self.opt.apply_gradients(zip(grads, [self.a, self.b]))

  def _step(self, factor):
    self.strategy.run(self._on_replica, (factor,))

  def save(self, path):
    """Saves the optimizer; returns the checkpoint's path."""
    return tf.train.Checkpoint(opt=self.opt).save(path)

  def state(self):
    variables = self.opt.variables
    variables = variables() if callable(variables) else variables
    scale = [self.opt.loss_scale, self.opt.iterations]
    values = [self.a, self.b, *variables, *scale]
    return [tf.convert_to_tensor(x).numpy().tobytes() for x in values]


def read(folder):
  """Returns the lines of a log by their steps."""
  text = (folder / "loss_scale.jsonl").read_text("utf-8")
  return {line["step"]: line for line in map(json.loads, text.splitlines())}


@kinds
@pytest.mark.parametrize("mode", ["eager", "function", "jit"])
def test_last_step_and_monitor(kind, mode, tmp_path):
  program = Program(kind, mode)
  with pytest.raises(RuntimeError, match="has taken no step"):
    _ = program.opt.last_step_applied
  with monitoring.Monitor(program.opt, tmp_path, every_n_steps=2) as monitor:
    for factor in [1.0, 1.0, _INF, 1.0, _INF]:
      program.step(tf.constant(factor))
      assert bool(program.opt.last_step_applied) == np.isfinite(factor)
      assert monitor.step() == np.isfinite(factor)
  lines = read(tmp_path)
  assert [*lines] == [1, 2, 3, 4, 5]
  assert [x["loss_scale/value"] for x in lines.values()] == [8, 16, 8, 8, 4]
  assert [x["global_step"] for x in lines.values()] == [1, 2, 3, 4, 5]
  assert lines[3]["gradients"] == 2
  # Before clipping, which made all gradients NaN.
  assert lines[3]["blame"] == [
    {"name": "a", "inf": 2, "nan": 0, "size": 2, "largest": 0.0}
  ]
  assert lines[4]["underflow"]["zeros"] == pytest.approx(0.25)
  assert lines[1]["config"]["increment_period"] == 2
  alone = Program(kind, "eager")
  alone.step(tf.constant(1.0))
  found, expected = (
    {name for name, _ in tf.train.list_variables(x.save(tmp_path / name))}
    for name, x in (("watched", program), ("alone", alone))
  )
  assert found == expected


@pytest.mark.parametrize(
  ("kind", "mode", "fixed"),
  helpers.pairs(_KINDS, ["eager", "function"], [False, True]),
)
def test_replicas(kind, mode, fixed, tmp_path):
  loss_scale = 8 if fixed else _SCALE
  program = Program(kind, mode, loss_scale, helpers.two_replicas())
  with monitoring.Monitor(program.opt, tmp_path, every_n_steps=1) as monitor:
    for factor in [1.0, _INF, 1.0]:
      program.step(tf.constant(factor))
      applied = fixed or np.isfinite(factor)
      assert bool(program.opt.last_step_applied) == applied
      assert monitor.step() == applied
  lines = read(tmp_path)
  assert [x["global_step"] for x in lines.values()] == [1, 2, 3]
  assert lines[2]["blame"][0]["name"] == "a"


def test_graph_of_tensorflow_1():
  with tf.Graph().as_default(), tf1.Session() as session:
    variable = tf.Variable([1.0, 2.0])
    factor = tf1.placeholder(tf.float32, [])
    opt = make_optimizer("legacy")
    with pytest.raises(RuntimeError, match="in this graph"):
      _ = opt.last_step_applied
    op = opt.apply_gradients([(tf.stack([factor, 1.0]), variable)])
    session.run(tf1.global_variables_initializer())
    for value in (1.0, _INF, 1.0):
      fetched = [op, opt.last_step_applied]
      _, applied = session.run(fetched, {factor: value})
      assert applied == np.isfinite(value)


@pytest.mark.thorough
@kinds
@pytest.mark.parametrize("mode", ["eager", "function", "jit"])
def test_results_are_the_same_bit_for_bit(kind, mode):
  random = np.random.default_rng(5)
  factors = random.normal(size=200)
  factors = np.where(random.random(200) < 0.1, _INF, factors)
  states = []
  for watched in (False, True):
    program = Program(kind, mode)
    monitor = monitoring.Monitor(program.opt, every_n_steps=3)
    if not watched:
      del monitor
      gc.collect()
    for factor in factors.astype(np.float32):
      program.step(tf.constant(factor))
      if watched:
        monitor.step()
    states.append(program.state())
  assert states[0] == states[1]


# The callback ---------------------------------------------------------------


_BAD = range(12, 16)


def make_data(bad=_BAD):
  x = np.ones([24, 2], np.float32)
  x[list(bad)] = _INF
  return x, np.ones([24, 1], np.float32)


def make_model(kind, strategy=None, **options):
  with (strategy or tf.distribute.get_strategy()).scope():
    layer = k2.layers.Dense(1, input_shape=(2,), name="dense")
    model = k2.Sequential([layer])
    model.compile(make_optimizer(kind), loss="mse", **options)
  return model


def fit(model, callback, data=None, **options):
  x, y = data or make_data()
  return model.fit(
    x,
    y,
    batch_size=4,
    shuffle=False,
    verbose=0,
    callbacks=[callback],
    **options,
  )


_OPTIONS = {
  "plain": {},
  "eager": {"run_eagerly": True},
  "steps_per_execution": {"steps_per_execution": 3},
  "jit": {"jit_compile": True},
  "replicas": {},
}


@kinds
@pytest.mark.parametrize("mode", _OPTIONS)
def test_fit(kind, mode, tmp_path):
  strategy = helpers.two_replicas() if mode == "replicas" else None
  model = make_model(kind, strategy, **_OPTIONS[mode])
  fit(model, monitoring.LossScaleCallback(tmp_path, every_n_steps=3))
  lines = read(tmp_path)
  assert [step for step, x in lines.items() if not x["applied"]] == [4]
  assert [*lines][-1] == 6
  names = {x["name"] for x in lines[4]["blame"]}
  assert names == {"dense/kernel", "dense/bias"}
  assert bool(model.optimizer.last_step_applied)
  # The next run goes on, and uses the function that Keras has kept.
  callback = monitoring.LossScaleCallback(tmp_path, every_n_steps=3)
  fit(model, callback)
  fit(model, callback)
  lines = read(tmp_path)
  assert [step for step, x in lines.items() if not x["applied"]] == [4, 10, 16]
  assert [*lines][-1] == 18
  # A line leaves out the blame that the line of the last skipped step had.
  assert "blame" in lines[10]


def test_stop(tmp_path):
  model = make_model("legacy")
  callback = monitoring.LossScaleCallback(tmp_path, on_stuck="stop", patience=3)
  fit(model, callback, make_data(range(4, 24)), epochs=3)
  assert model.stop_training
  assert [*read(tmp_path)][-1] == 4
  # The next run begins anew.
  fit(model, callback, make_data([]))
  assert not model.stop_training
  assert [*read(tmp_path)][-1] == 10


def test_raise(tmp_path):
  model = make_model("new")
  callback = monitoring.LossScaleCallback(
    tmp_path, on_stuck="raise", patience=3
  )
  with pytest.raises(monitoring.StuckError, match="The loss scale is stuck"):
    fit(model, callback, make_data(range(24)))
  assert [*read(tmp_path)] == [1, 2, 3]


def test_errors():
  model = k2.Sequential([k2.layers.Dense(1, input_shape=(2,))])
  callback = monitoring.LossScaleCallback()
  of_keras = k2.mixed_precision.LossScaleOptimizer(k2.optimizers.SGD())
  for optimizer in ("sgd", of_keras):
    model.compile(optimizer, loss="mse")
    with pytest.raises(ValueError, match=r"keras\.LossScaleOptimizer"):
      fit(model, callback)
  with pytest.raises(ValueError, match="on_stuck must be 'warn'"):
    monitoring.LossScaleCallback(on_stuck="panic")
  both = [make_optimizer("new"), make_optimizer("new")]
  callback.set_model(type("Model", (), {"optimizer": both})())
  with pytest.raises(ValueError, match="compiled with one optimizer"):
    callback.on_train_begin()


def test_monitoring_does_not_load_keras_2():
  code = """
import sys
from tf_compat_lossscale import monitoring
monitoring.Monitor, monitoring.LossScaleHook
print([name for name in sys.modules if "lossscale.keras" in name])
"""
  assert helpers.run_forked("-c", code).strip() == "[]"


if __name__ == "__main__":
  helpers.main()
