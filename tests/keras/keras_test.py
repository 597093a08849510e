# SPDX-License-Identifier: Apache-2.0
"""Tests the names of `tf.keras.mixed_precision.experimental` on Keras 2."""

import json

import helpers
from keras_trainers import KINDS as _KINDS
from keras_trainers import kinds
from keras_trainers import take_step
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2

k2 = _keras2.keras
own = k2.mixed_precision
_INF = float("inf")
_HAS_KERAS_3 = helpers.RELEASE >= (2, 16)


@pytest.fixture(autouse=True)
def _policy_restored():
  yield
  keras.set_policy(None)


def model_of(how="sequential", **kwargs):
  """Returns a linear model: sequential, functional or of a subclass."""
  layers = k2.layers
  if how == "sequential":
    return k2.Sequential(
      [layers.InputLayer((4,)), layers.Dense(3), out_layer()], **kwargs
    )
  if how == "functional":
    x = k2.Input((4,))
    return k2.Model(x, out_layer()(layers.Dense(3)(x)), **kwargs)

  class Mine(k2.Model):
    def __init__(self, **kwargs):
      super().__init__(**kwargs)
      self.dense, self.out = layers.Dense(3), out_layer()

    def call(self, x):
      return self.out(self.dense(x))

  return Mine(**kwargs)


def out_layer():
  return k2.layers.Activation("linear", dtype="float32")


@kinds
def test_the_conversions_that_were_documented(kind):
  sgd, convert = _KINDS[kind].SGD, own.LossScaleOptimizer
  for loss_scale, arguments in (
    ("dynamic", {}),
    (123, {"dynamic": False, "initial_scale": 123}),
    (
      tfl.DynamicLossScale(initial_loss_scale=2048, increment_period=500),
      {"initial_scale": 2048, "dynamic_growth_steps": 500},
    ),
  ):
    opt1 = keras.LossScaleOptimizer(sgd(), loss_scale)
    opt2 = convert(sgd(), **arguments)
    assert opt1.get_config() == opt2.get_config()
    assert isinstance(opt1, own.LossScaleOptimizer)
    assert isinstance(opt1, keras.LossScaleOptimizer)
    assert not isinstance(opt2, keras.LossScaleOptimizer)
    assert isinstance(opt1, _KINDS[kind].Optimizer)
  assert issubclass(keras.LossScaleOptimizer, own.LossScaleOptimizer)


@kinds
def test_what_it_has(kind):
  sgd = _KINDS[kind].SGD(0.25)
  opt = keras.LossScaleOptimizer(
    optimizer=sgd, loss_scale=tfl.DynamicLossScale(64, 5)
  )
  assert opt.inner_optimizer is sgd and opt.dynamic
  assert (opt.initial_scale, opt.dynamic_growth_steps) == (64, 5)
  assert float(opt.loss_scale) == 64.0 and int(opt.dynamic_counter) == 0
  assert float(opt.get_scaled_loss(tf.constant(2.0))) == 128.0
  grads = opt.get_unscaled_gradients([tf.constant(128.0), None])
  assert float(grads[0]) == 2.0 and grads[1] is None
  assert float(opt.learning_rate) == 0.25


@pytest.mark.parametrize(
  ("loss_scale", "expected"),
  [
    ("dynamic", (True, 2**15, 2000)),
    (8, (False, 8, None)),
    (8.5, (False, 8.5, None)),
    (np.float32(8), (False, 8, None)),
    (tfl.FixedLossScale(16), (False, 16, None)),
    (tfl.DynamicLossScale(4, 3), (True, 4, 3)),
    (helpers.OWN.FixedLossScale(16), (False, 16, None)),
    (helpers.OWN.DynamicLossScale(4, 3), (True, 4, 3)),
    (
      {"class_name": "FixedLossScale", "config": {"loss_scale_value": 4}},
      (False, 4, None),
    ),
    (tfl.DynamicLossScale(32, 7).get_config(), (True, 32, 7)),
  ],
)
def test_loss_scales(loss_scale, expected):
  opt = keras.LossScaleOptimizer(k2.optimizers.legacy.SGD(), loss_scale)
  assert (
    opt.dynamic,
    opt.initial_scale,
    opt.dynamic_growth_steps,
  ) == expected


def test_optimizers_that_are_none():
  sgd = k2.optimizers.legacy.SGD
  for wrong in (
    1,
    None,
    tf.compat.v1.train.AdamOptimizer(),
    own.LossScaleOptimizer(sgd()),
    keras.LossScaleOptimizer(sgd(), 8),
  ):
    with pytest.raises(TypeError):
      keras.LossScaleOptimizer(wrong, "dynamic")


def test_a_subclass_of_ones_own():
  class Mine(keras.LossScaleOptimizer):
    def get_scaled_loss(self, loss):
      return -super().get_scaled_loss(loss)

  for kind in _KINDS.values():
    opt = Mine(kind.SGD(), 8)
    assert isinstance(opt, Mine) and type(opt).__name__ == "Mine"
    assert float(opt.get_scaled_loss(tf.constant(1.0))) == -8.0


@pytest.mark.parametrize("form", ["old", "new"])
def test_from_config_of_both_generations(form):
  inner = {
    "class_name": "SGD",
    "config": {
      "name": "SGD",
      "learning_rate": 0.5,
      "decay": 0.125,
      "momentum": 0.75,
      "nesterov": False,
    },
  }
  config = {
    "old": {
      "optimizer": inner,
      "loss_scale": {
        "class_name": "DynamicLossScale",
        "config": {
          "initial_loss_scale": 4.0,
          "increment_period": 3,
          "multiplier": 2.0,
        },
      },
    },
    "new": {
      "inner_optimizer": inner,
      "dynamic": True,
      "initial_scale": 4.0,
      "dynamic_growth_steps": 3,
    },
  }[form]
  before = json.dumps(config)
  opt = keras.LossScaleOptimizer.from_config(config)
  assert json.dumps(config) == before
  assert isinstance(opt, keras.LossScaleOptimizer)
  assert isinstance(opt.inner_optimizer, k2.optimizers.legacy.SGD)
  assert opt.inner_optimizer.get_config()["decay"] == 0.125
  assert (opt.initial_scale, opt.dynamic_growth_steps) == (4.0, 3)


def test_configs_that_are_none():
  with pytest.raises(ValueError, match="multiplier"):
    keras.LossScaleOptimizer.from_config(
      {
        "optimizer": {"class_name": "SGD", "config": {}},
        "loss_scale": {**tfl.DynamicLossScale().get_config(), "multiplier": 1},
      }
    )


def trajectory(optimizer, compiled, schedule):
  w = tf.Variable([1.0, 2.0])

  def step(factor):
    take_step(optimizer, lambda: tf.reduce_sum(w * w) * factor, [w])

  step = tf.function(step, autograph=False) if compiled else step
  rows = []
  for factor in schedule:
    step(tf.constant(factor))
    rows.append(
      (
        w.numpy().tobytes(),
        float(optimizer.loss_scale),
        int(optimizer.dynamic_counter),
        int(optimizer.iterations),
      )
    )
  return rows


@pytest.mark.parametrize(
  ("kind", "compiled", "inner"),
  [
    ("legacy", False, "Adam"),
    ("legacy", True, "SGD"),
    ("new", False, "SGD"),
    ("new", True, "Adam"),
  ],
)
def test_does_what_keras_own_does(kind, compiled, inner):
  # The loss scale grows, shrinks and grows again.
  bad = [_INF, float("nan"), 1e38]
  schedule = np.array([1.0, 2.0, -1.0, 2.0, *bad, 1.0, 2.0, 1.0, -1.0])
  make = getattr(_KINDS[kind], inner)
  ours = keras.LossScaleOptimizer(make(0.01), tfl.DynamicLossScale(4096, 3))
  theirs = own.LossScaleOptimizer(
    make(0.01), initial_scale=4096, dynamic_growth_steps=3
  )
  assert trajectory(ours, compiled, schedule.astype("f")) == trajectory(
    theirs, compiled, schedule.astype("f")
  )


def test_policy():
  auto = keras.Policy("mixed_float16")
  assert isinstance(auto.loss_scale, tfl.DynamicLossScale)
  assert auto.get_config() == {"name": "mixed_float16"}
  assert keras.Policy("float32").loss_scale is None
  assert keras.Policy("mixed_bfloat16").loss_scale is None
  none = keras.Policy("mixed_float16", loss_scale=None)
  assert none.loss_scale is None
  assert none.get_config() == {"name": "mixed_float16", "loss_scale": None}
  fixed = keras.Policy("mixed_float16", 8)
  assert isinstance(fixed.loss_scale, tfl.FixedLossScale)
  assert (fixed.compute_dtype, fixed.variable_dtype) == ("float16", "float32")
  for policy in (auto, none, fixed):
    again = keras.Policy.from_config(policy.get_config())
    assert again.get_config() == policy.get_config()
    assert repr(again) == repr(policy)
  with pytest.raises(ValueError, match="'often'"):
    keras.Policy("mixed_float16", "often")


def test_a_policy_that_keras_deserializes_is_keras_own():
  policy = keras.Policy("mixed_float16", 8)
  layer = k2.layers.Dense(2, dtype=policy)
  assert keras.get_layer_policy(layer) is policy
  again = k2.layers.Dense.from_config(layer.get_config())
  assert type(keras.get_layer_policy(again)) is own.Policy
  assert keras.get_layer_policy(again).name == "mixed_float16"
  keras.set_policy(policy)
  model = model_of()
  loaded = k2.models.model_from_json(model.to_json())
  assert type(loaded.layers[0].dtype_policy) is own.Policy


_DYNAMIC = tfl.DynamicLossScale(512, 3)


@pytest.mark.parametrize(
  ("how", "kind", "scale", "expected"),
  [
    ("sequential", "legacy", "auto", (True, 2**15, 2000)),
    ("sequential", "new", _DYNAMIC, (True, 512, 3)),
    ("sequential", "legacy", 16, (False, 16, None)),
    ("sequential", "new", None, None),
    ("functional", "legacy", _DYNAMIC, (True, 512, 3)),
    ("functional", "new", 16, (False, 16, None)),
    ("subclass", "new", "auto", (True, 2**15, 2000)),
    ("subclass", "legacy", None, None),
  ],
)
def test_compile_uses_the_policys_scale(how, scale, expected, kind):
  keras.set_policy(keras.Policy("mixed_float16", scale))
  model = model_of(how)
  keras.set_policy(None)
  inner = _KINDS[kind].SGD(0.01)
  # Tracing takes seconds: one traced step is enough.
  traced = how == "sequential" and scale is _DYNAMIC
  model.compile(inner, "mse", run_eagerly=not traced)
  opt = model.optimizer
  if expected is None:
    assert opt is inner
  else:
    assert isinstance(opt, keras.LossScaleOptimizer)
    found = (opt.dynamic, opt.initial_scale, opt.dynamic_growth_steps)
    assert found == expected
  model.fit(np.ones((8, 4)), np.ones((8, 3)), verbose=0)
  assert int(opt.iterations) == 1


def test_compile_leaves_the_rest_alone():
  keras.set_policy(keras.Policy("mixed_float16", 16))
  model = model_of()
  wrapped = own.LossScaleOptimizer(k2.optimizers.SGD())
  model.compile(wrapped, "mse")
  assert model.optimizer is wrapped
  model.compile("sgd", "mse")
  assert model.optimizer.initial_scale == 16
  keras.set_policy("mixed_float16")
  model = model_of()
  model.compile("sgd", "mse")
  assert isinstance(model.optimizer, keras.LossScaleOptimizer)
  assert isinstance(keras.global_policy().loss_scale, tfl.DynamicLossScale)
  own.set_global_policy("mixed_float16")  # This one is Keras's own.
  model = model_of()
  model.compile("sgd", "mse")
  assert isinstance(model.optimizer, own.LossScaleOptimizer)
  assert not isinstance(model.optimizer, keras.LossScaleOptimizer)
  keras.set_policy(None)
  model = model_of()
  model.compile("sgd", "mse")
  assert not isinstance(model.optimizer, own.LossScaleOptimizer)
  model = model_of("subclass", dtype=keras.Policy("mixed_float16", 32))
  model.compile("sgd", "mse")
  assert model.optimizer.initial_scale == 32


def test_policy_functions():
  policy = keras.Policy("mixed_float16", 8)
  keras.set_policy(policy)
  assert keras.global_policy() is policy
  keras.set_policy("float32")
  assert keras.global_policy().name == "float32"
  keras.set_policy("mixed_float16")
  opt = tf.compat.v1.train.GradientDescentOptimizer(0.1)
  with pytest.raises(ValueError, match="mixed"):
    tfl.enable_mixed_precision_graph_rewrite(opt)


@kinds
def test_graph_rewrite_wraps_keras_optimizers(kind):
  try:
    opt = tfl.enable_mixed_precision_graph_rewrite(_KINDS[kind].SGD(), 8)
    assert isinstance(opt, keras.LossScaleOptimizer)
    assert float(opt.loss_scale) == 8.0
    with pytest.raises(ValueError, match="must not already be"):
      tfl.enable_mixed_precision_graph_rewrite(opt)
  finally:
    tfl.disable_mixed_precision_graph_rewrite()


@kinds
def test_replicas_skip_together(kind):
  strategy = helpers.two_replicas()
  with strategy.scope():
    w = tf.Variable(1.0)
    opt = keras.LossScaleOptimizer(
      _KINDS[kind].SGD(0.25), tfl.DynamicLossScale(8, 100)
    )

  @tf.function(autograph=False)
  def step(bad):
    def replica():
      factor = helpers.factor_of_replica(bad)
      take_step(opt, lambda: w * factor, [w])

    strategy.run(replica)

  step(tf.constant(False))
  after = w.numpy()
  assert after != 1.0 and float(opt.loss_scale) == 8.0
  step(tf.constant(True))
  assert w.numpy() == after and float(opt.loss_scale) == 4.0


@pytest.mark.filterwarnings("ignore:.*Gradients do not exist")
@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("loss_scale", ["dynamic", 8])
@kinds
def test_zeros_where_a_replica_has_none(kind, loss_scale, mode):
  strategy = helpers.two_replicas()
  with strategy.scope():
    shared, own = (tf.Variable([1.0, 1.0]) for _ in range(2))
    opt = keras.LossScaleOptimizer(_KINDS[kind].SGD(0.25), loss_scale)

  def replica_fn():
    context = tf.distribute.get_replica_context()
    second = int(tf.get_static_value(context.replica_id_in_sync_group)) == 1
    grad = tf.ones([2])
    opt.apply_gradients([(grad, shared), (None if second else 2 * grad, own)])

  def run():
    strategy.run(replica_fn)

  run = tf.function(run) if mode == "function" else run
  run()
  for variable in (shared, own):
    np.testing.assert_array_equal(variable.values[0], [0.5, 0.5])
    np.testing.assert_array_equal(variable.values[1], [0.5, 0.5])


def sessions():
  """Checks Keras 2 in TensorFlow 1's style: graphs, sessions and `fit`."""
  tf1 = tf.compat.v1
  tf1.disable_v2_behavior()
  layers = k2.__dict__.get("layers")
  tf1.keras.layers.enable_v2_dtype_behavior()
  with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable(
      "w", [2], initializer=tf1.ones_initializer(), use_resource=True
    )
    factor = tf1.placeholder(tf.float32, [])
    opt = keras.LossScaleOptimizer(
      k2.optimizers.legacy.SGD(0.5), tfl.DynamicLossScale(8, 2)
    )
    loss = lambda: tf.reduce_sum(w) * factor  # noqa: E731
    op = opt.minimize(loss, [w])
    session.run(tf1.global_variables_initializer())
    scales = []
    for value in (1.0, 1.0, _INF, 1.0):
      session.run(op, {factor: value})
      scales.append(float(session.run(opt.loss_scale)))
    assert scales == [8.0, 16.0, 8.0, 8.0], scales
    assert session.run(w).tolist() == [-0.5, -0.5]
  k2.backend.clear_session()
  policy = keras.Policy("mixed_float16", tfl.DynamicLossScale(64, 2))
  keras.set_policy(policy)
  model = k2.Sequential([layers.Dense(3, input_shape=(4,)), out_layer()])
  model.compile(k2.optimizers.legacy.SGD(0.01), "mse")
  assert isinstance(model.optimizer, keras.LossScaleOptimizer)
  model.fit(np.ones((8, 4)), np.ones((8, 3)), epochs=3, verbose=0)
  session = tf1.keras.backend.get_session()
  assert session.run(model.optimizer.loss_scale) == 128.0


def test_sessions():
  helpers.run_alone(sessions, **helpers.KERAS_2)


def test_brings_no_keras_3():
  code = """
import sys
import tensorflow
before = set(sys.modules)
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2
new = set(sys.modules) - before
print([m for m in new if m == "keras" or m.startswith("keras.")][:3])
"""
  printed = helpers.run_forked("-c", code).splitlines()[-1]
  assert printed == "[]" or not _HAS_KERAS_3


def test_without_keras_2_it_says_what_to_install():
  code = """
import sys
sys.modules["tf_keras"] = None
import tf_compat_lossscale as tfl
tfl.install()
import tensorflow as tf
from tensorflow.keras.mixed_precision import experimental as mp
for use in (lambda: mp.Policy, lambda: tfl.keras.Policy):
  try:
    use()
  except ImportError as error:
    print(error)
"""
  lines = helpers.run_forked("-c", code).splitlines()
  release = ".".join(map(str, helpers.RELEASE))
  command = f"pip install 'tf_keras=={release}.*'"
  assert [command in line for line in lines] == [True, True] * _HAS_KERAS_3


@helpers.NEEDS_KERAS_3
def test_on_keras_3_the_names_say_what_to_do():
  code = """
import tf_compat_lossscale as tfl
tfl.install()
import tensorflow as tf
import keras
import tf_keras
from tensorflow.python.keras.mixed_precision.experimental import policy
for name in ("LossScaleOptimizer", "Policy", "global_policy", "set_policy",
             "get_layer_policy"):
  for place in (tf.keras, tf.compat.v1.keras, keras):
    try:
      getattr(place.mixed_precision.experimental, name)
    except ImportError as error:
      print(error)
  found = getattr(tf_keras.mixed_precision.experimental, name)
  assert found is getattr(tfl.keras, name)
try:
  policy.Policy
except ImportError as error:
  print(error)
try:
  from tensorflow.keras.mixed_precision.experimental import Policy
except ImportError as error:
  print(error)
"""
  lines = helpers.run_forked("-c", code, **helpers.KERAS_3).splitlines()
  lines = [line for line in lines if "is of Keras 2, and" in line]
  assert len(lines) == 17
  for line in lines:
    assert "set TF_USE_LEGACY_KERAS=1 and install tf_keras (pip" in line
    assert "tf_compat_lossscale.keras.Keras3LossScaleOptimizer" in line


def test_legacy_places():
  code = """
import tf_compat_lossscale as tfl
tfl.install()
import tensorflow as tf
import tensorflow.compat.v1 as tf1
from tensorflow.keras.mixed_precision import experimental as mp
from tensorflow.python.keras.mixed_precision.experimental import policy
import tensorflow.keras.mixed_precision.experimental as again
from tensorflow.python.keras.mixed_precision.experimental.loss_scale_optimizer \
  import LossScaleOptimizer
for place in (tf.keras, tf1.keras):
  found = place.mixed_precision.experimental
  for name in ("LossScaleOptimizer", "Policy", "global_policy", "set_policy",
               "get_layer_policy"):
    assert getattr(found, name) is getattr(tfl.keras, name), (place, name)
assert again is mp and mp.Policy is tfl.keras.Policy is policy.Policy
assert LossScaleOptimizer is tfl.keras.LossScaleOptimizer
opt = mp.LossScaleOptimizer(tf.keras.optimizers.SGD(), "dynamic")
assert isinstance(opt, tf.keras.mixed_precision.LossScaleOptimizer)
assert isinstance(mp.Policy("mixed_float16").loss_scale,
                  tf.mixed_precision.experimental.DynamicLossScale)
"""
  helpers.run_forked("-c", code, **helpers.KERAS_2)


if __name__ == "__main__":
  helpers.main()
