# SPDX-License-Identifier: Apache-2.0
"""Tests `optimizer.loss_scale` as TensorFlow 2.0 to 2.3 and as 2.4 to 2.8."""

import copy
import pickle

import helpers
from keras_trainers import optimizer_of
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2

k2 = _keras2.keras
tf1 = tf.compat.v1
# Each item does the same with what is read as with a tensor.
_USES = {
  "python": lambda x: (x * 2, 2 / x, x - 1, -x, x**2, x < 9, np.ones(2) * x),
  "ops": lambda x: (tf.cast(x, "half"), tf.stack([x, 1.0]), tf.is_tensor(x)),
  "convert": lambda x: (tf.convert_to_tensor(x), tf.fill([*x.shape, 1], x)),
  "sums": lambda x: (tf.add_n([x, x]), tf.reduce_sum([x, 1.0]), tf.identity(x)),
  "cond": lambda x: tf.cond(x > 2, lambda: x * 1, lambda: 0.0),
  "branch": lambda x: tf.cond(x < 2, lambda: 0.0, lambda: x) + 0,
  "loop": lambda x: tf.while_loop(lambda i: i < 9, lambda i: [i + x], [x])[0],
  "array": lambda x: tf.TensorArray(x.dtype, 1).write(0, x).stack(),
  "nest": lambda x: tf.nest.map_structure(lambda y: y / 2, {"a": [x]})["a"],
  "mapped": lambda x: tf.map_fn(lambda y: y * x, tf.ones([2])),
  "called": lambda x: tf.py_function(lambda y: 2 * y.numpy(), [x], tf.float32),
  "argument": lambda x: tf.function(lambda y: y * x)(x),
  "compiled": lambda x: tf.function(lambda y: y * x, jit_compile=True)(x),
}
_EAGER_USES = {
  "numbers": lambda x: (float(x), int(x), bool(x), max(x, 9.0), abs(x)),
  "formats": lambda x: (f"{x}", f"{x:.2f}", f"{x!r}", str(x), len({x.ref()})),
  "numpy": lambda x: (x.numpy(), np.asarray(x), np.sqrt(x), np.array(x, "f8")),
  "copies": lambda x: (copy.deepcopy(x), pickle.loads(pickle.dumps(x))),
  "variable": lambda x: (tf.Variable(x) + 0, tf.Variable(1.0).assign(x) + 0),
  "data": lambda x: tf.data.Dataset.from_tensors(x).get_single_element(),
  "others": lambda x: (k2.metrics.Mean()(x), tf.constant(x), x == 8, x != 8),
}


@pytest.mark.parametrize("name", [*_USES, *_EAGER_USES])
@pytest.mark.parametrize("scale", [8, 8.0])  # Fixed, and dynamic.
def test_programs_of_2_4_use_a_tensor(name, scale):
  def show(results, value=lambda x: x.numpy()):
    leaves = tf.nest.flatten(results)
    return [str(value(x) if isinstance(x, tf.Tensor) else x) for x in leaves]

  use = {**_USES, **_EAGER_USES}[name]
  opt = optimizer_of("legacy", scale)
  read, expected = opt.loss_scale, show(use(tf.constant(8.0)))
  assert show(use(read)) == expected
  if name in _USES:
    assert show(tf.function(lambda: use(read))()) == expected
    assert show(tf.function(lambda: use(opt.loss_scale))()) == expected
    with tf.Graph().as_default(), tf1.Session() as session:
      results = use(optimizer_of("legacy", scale).loss_scale)
      session.run(tf1.global_variables_initializer())
      assert show(results, session.run) == expected


@pytest.mark.parametrize("replicated", [False, True])
@pytest.mark.parametrize("mode", helpers.MODES)
def test_programs_of_2_3_call_a_loss_scale(mode, replicated):
  """The calls are those of the tests of TensorFlow 2.0 to 2.3."""
  strategy = tf.distribute.get_strategy()
  strategy = helpers.two_replicas() if replicated else strategy
  with helpers.mode_scope(mode) as graph:
    factor = tf.Variable(1.0)
    with strategy.scope():
      var, inner = tf.Variable(5.0), k2.optimizers.legacy.SGD(1.0)
      opt = keras.LossScaleOptimizer(inner, tfl.DynamicLossScale(2, 1, 2))
    held = opt.loss_scale
    first, period = held.initial_loss_scale, held.increment_period
    assert (first, period, *held.get_config().values()) == (2, 1, 2, 1, 2)

    def step():
      run = strategy.run(lambda: opt.minimize(lambda: factor * var, [var]))
      return strategy.experimental_local_results(run) if graph else None

    def read():
      return opt.loss_scale(), held(), held._current_loss_scale + 0.0, held + 0

    run = tf.function if mode == "function" else lambda f: f
    if graph:
      session, op, values = tf1.Session(), step(), read()
      session.run(tf1.global_variables_initializer())
      step, read = (lambda x=x: session.run(x) for x in (op, values))
    step, read, results = run(step), run(read), []
    for value in (1.0, float("nan"), 1.0):
      factor.load(value, session) if graph else factor.assign(value)
      step()
      results.append(tuple(map(float, read())))
  held = session.run(var) if graph else var.numpy()
  assert held == 5 - 2 * strategy.num_replicas_in_sync  # A step was skipped.
  now = [4.0, 2.0, 4.0]
  was = now if graph else [2.0] * 3  # Eagerly, the value is read once.
  assert results == list(zip(now, now, now, was))


class Logging(k2.Sequential):
  def train_step(self, data):
    logs, opt = super().train_step(data), self.optimizer
    called = opt.loss_scale()
    return {**logs, "read": opt.loss_scale, "called": called, "is": called * 1}


@pytest.mark.parametrize("eagerly", [False, True])
def test_fit_logs_both(eagerly, tmp_path):
  model, opt = Logging([k2.layers.Dense(1)]), optimizer_of("new", 8.0)
  model.compile(opt, "mse", run_eagerly=eagerly)
  logs = k2.callbacks.CSVLogger(tmp_path / "log.csv")
  x = np.full((4, 2), np.inf)
  past = model.fit(x, x[:, 0], verbose=2, callbacks=[logs]).history
  assert past["is"] == list(map(float, past["read"])) == past["called"] == [4.0]


def test_what_it_is(tmp_path):
  scale = tfl.policies.GrowthBackoff(4, growth_interval=7)
  opt = keras.LossScaleOptimizer(k2.optimizers.legacy.SGD(1.0), scale)
  read = opt.loss_scale
  assert not read.update([tf.constant(np.inf)])[1] and read.growth_interval == 7
  assert (float(read), float(read())) == (4, 2)
  for name in ("increment_period", "graph", "T"):
    with pytest.raises(AttributeError, match=name):
      getattr(read, name)
  function = tf.function(lambda x: (isinstance(x, tf.Tensor), opt.loss_scale))
  is_tensor, returned = function(read)
  assert is_tensor and type(returned) is type(tf.constant(0.0))
  with tf.Graph().as_default():
    assert isinstance(optimizer_of("legacy", 8).loss_scale, tf.Tensor)
  with tf.summary.create_file_writer(str(tmp_path)).as_default(step=0):
    assert tf.summary.write("loss_scale", read)
  # In TensorFlow 2.0 to 2.3, constructors took it.
  assert keras.Policy("mixed_float16", read).loss_scale is scale
