# SPDX-License-Identifier: Apache-2.0
"""Tests Keras 2's LossScaleOptimizer: steps, subclasses, configs, errors."""

import copy
import json
import random

import helpers
from keras_trainers import KINDS as _KINDS
from keras_trainers import kinds
from keras_trainers import state_of_optimizer
from keras_trainers import take_step
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2

k2 = _keras2.keras
own = k2.mixed_precision
_LEGACY, _NEW = k2.optimizers.legacy, k2.optimizers
_SGD_2_3 = {
  "class_name": "SGD",
  "config": {
    "name": "SGD",
    "learning_rate": 0.5,
    "decay": 0.125,
    "momentum": 0.75,
    "nesterov": False,
  },
}


@kinds
def test_what_it_has(kind):
  sgd = _KINDS[kind].SGD(0.25)
  opt = keras.LossScaleOptimizer(
    optimizer=sgd, loss_scale=tfl.DynamicLossScale(64, 5)
  )
  other = _KINDS[kind].SGD(0.25)
  theirs = own.LossScaleOptimizer(
    other, initial_scale=64, dynamic_growth_steps=5
  )
  assert opt.get_config() == theirs.get_config()
  for cls in (own.LossScaleOptimizer, _KINDS[kind].Optimizer):
    assert isinstance(opt, cls)
  assert isinstance(opt, keras.LossScaleOptimizer)
  assert not isinstance(theirs, keras.LossScaleOptimizer)
  assert issubclass(keras.LossScaleOptimizer, own.LossScaleOptimizer)
  assert opt.inner_optimizer is sgd and opt.dynamic
  assert float(opt.loss_scale) == 64.0 and int(opt.dynamic_counter) == 0
  assert float(opt.get_scaled_loss(tf.constant(2.0))) == 128.0
  grads = opt.get_unscaled_gradients([tf.constant(128.0), None])
  assert float(grads[0]) == 2.0 and grads[1] is None
  assert float(opt.learning_rate) == 0.25


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


def trajectory(optimizer, compiled, schedule):
  """Returns the state after each step, also of the inner optimizer."""
  w = tf.Variable([1.0, 2.0])

  def step(factor):
    take_step(optimizer, lambda: tf.reduce_sum(w * w) * factor, [w])

  step = tf.function(step, autograph=False) if compiled else step
  rows = []
  for factor in schedule:
    step(tf.constant(factor))
    state = state_of_optimizer(optimizer)
    rows.append([np.asarray(v).tobytes() for v in (w.numpy(), *state)])
  return rows


@pytest.mark.parametrize("seed", range(8))
@kinds
def test_does_what_keras_own_does(kind, seed):
  rng = random.Random(seed)
  scale, growth = 2.0 ** rng.randrange(0, 20), rng.randrange(1, 4)
  factors = [1, -1, 2, np.inf, np.nan, 1e38]
  # Keras's own class makes no slots in a first step that is skipped.
  schedule = np.array([1, *(rng.choice(factors) for _ in range(12))], "f")
  make = getattr(_KINDS[kind], rng.choice(["Adam", "SGD", "RMSprop"]))
  rate = rng.choice([0.125, 0.01])
  ours = keras.LossScaleOptimizer(
    make(rate), tfl.DynamicLossScale(scale, growth)
  )
  theirs = own.LossScaleOptimizer(
    make(rate), initial_scale=scale, dynamic_growth_steps=growth
  )
  rows = trajectory(ours, seed % 2 == 0, schedule)
  assert rows == trajectory(theirs, seed % 2 == 0, schedule)
  assert rows[0] != rows[-1]


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


@pytest.mark.filterwarnings("ignore:.*Gradients do not exist")
@pytest.mark.parametrize("mode", ["eager", "function"])
@kinds
def test_zeros_where_a_replica_has_none(kind, mode):
  strategy = helpers.two_replicas()
  with strategy.scope():
    shared, own = (tf.Variable([1.0, 1.0]) for _ in range(2))
    opt = keras.LossScaleOptimizer(_KINDS[kind].SGD(0.25), "dynamic")

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


def config_of(loss_scale):
  """Returns an optimizer's config in the form of TensorFlow 2.0 to 2.3."""
  config = {"class_name": type(loss_scale).__name__}
  return {
    "optimizer": _SGD_2_3,
    "loss_scale": {**config, "config": loss_scale.get_config()},
  }


@pytest.mark.parametrize(
  "config",
  [
    config_of(tfl.DynamicLossScale(4, 3)),
    {
      "inner_optimizer": _SGD_2_3,
      "dynamic": True,
      "initial_scale": 4.0,
      "dynamic_growth_steps": 3,
    },
  ],
)
def test_from_config_of_both_generations(config):
  before = json.dumps(config)
  opt = keras.LossScaleOptimizer.from_config(config)
  assert json.dumps(config) == before
  assert isinstance(opt, keras.LossScaleOptimizer)
  assert isinstance(opt.inner_optimizer, k2.optimizers.legacy.SGD)
  assert opt.inner_optimizer.get_config()["decay"] == 0.125
  assert (opt.initial_scale, opt.dynamic_growth_steps) == (4.0, 3)


class WithDefault(keras.LossScaleOptimizer):
  def __init__(self, optimizer, loss_scale="dynamic"):
    super().__init__(optimizer, loss_scale)


class OtherNames(keras.LossScaleOptimizer):
  def __init__(self, inner=None, *, scale=4, note="none"):
    self.note = note  # A subclass may set attributes before `super().__init__`.
    super().__init__(optimizer=inner, loss_scale=scale)

  def get_config(self):
    config = super().get_config()
    return {"inner": config["inner_optimizer"], "note": self.note}

  @classmethod
  def from_config(cls, config, custom_objects=None):
    inner = k2.optimizers.deserialize(
      config["inner"], use_legacy_optimizer=True
    )
    return cls(inner, note=config["note"])


class WithMore(WithDefault):
  """A subclass of a subclass, whose config has one more entry."""

  def __init__(self, optimizer, loss_scale, factor=1.0):
    super().__init__(optimizer, loss_scale)
    self.factor = factor

  def get_scaled_loss(self, loss):
    return super().get_scaled_loss(loss) * self.factor

  def get_config(self):
    return {**super().get_config(), "factor": self.factor}


@kinds
def test_what_a_subclass_sets_in_a_step_stays(kind):
  class Counting(keras.LossScaleOptimizer):
    count = 0

    def _apply_gradients(self, *args, **kwargs):
      self.count += 1
      return super()._apply_gradients(*args, **kwargs)

  opt = Counting(_KINDS[kind].SGD(0.25), "dynamic")
  weight = tf.Variable(1.0)
  for i in range(3):
    opt.apply_gradients([(tf.constant(1.0), weight)])
    assert opt.count == i + 1
  assert weight.numpy() == 0.25 and opt.loss_scale() == 2.0**15


def making_its_own(kind):
  class Own(keras.LossScaleOptimizer):
    def __init__(self, lr):
      super().__init__(_KINDS[kind].SGD(lr), 8)

    def get_config(self):
      return {"lr": float(self.learning_rate)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
      return cls(**config)

  return Own


@kinds
@pytest.mark.parametrize(
  ("make", "scale"),
  [
    (lambda kind, sgd: WithDefault(sgd), 2.0**15),
    (lambda kind, sgd: WithDefault(loss_scale=16, optimizer=sgd), 16.0),
    (lambda kind, sgd: OtherNames(sgd), 4.0),
    (lambda kind, sgd: OtherNames(inner=sgd, scale=2, note="x"), 2.0),
    (lambda kind, sgd: WithMore(sgd, 2, factor=4.0), 2.0),
    (lambda kind, sgd: making_its_own(kind)(lr=0.25), 8.0),
  ],
)
def test_subclasses_are_made_and_train(kind, make, scale):
  opt = make(kind, _KINDS[kind].SGD(0.25))
  for cls in (keras, own):
    assert isinstance(opt, cls.LossScaleOptimizer)
  assert isinstance(opt, _KINDS[kind].Optimizer)
  assert float(opt.loss_scale) == scale
  v = tf.Variable(1.0)
  take_step(opt, lambda: v * v, [v])
  assert float(v) == 1.0 - 0.5 * getattr(opt, "factor", 1.0)
  if isinstance(opt, OtherNames):
    assert opt.note == ("x" if scale == 2 else "none")


def test_the_kind_is_of_what_is_wrapped_each_time():
  for cls in (keras.LossScaleOptimizer, WithDefault):
    legacy, new = (cls(kind.SGD(), 8) for kind in (_LEGACY, _NEW))
    assert isinstance(legacy, cls) and isinstance(new, cls)
    assert type(legacy) is not type(new)
    assert type(type(legacy)(_NEW.SGD(), 8)) is type(new)
    assert type(type(new)(_LEGACY.SGD(), 8)) is type(legacy)
    assert type(cls(_LEGACY.SGD(), 8)) is type(legacy)


def test_subclasses_that_cannot_be():
  class Forgets(keras.LossScaleOptimizer):
    def __init__(self, optimizer):
      pass

  with pytest.raises(TypeError, match=r"Forgets.__init__ must call super\(\)"):
    Forgets(_LEGACY.SGD())

  class OfLegacyAlone(type(keras.LossScaleOptimizer(_LEGACY.SGD(), 8))):
    pass

  assert OfLegacyAlone(_LEGACY.SGD(), 8).initial_scale == 8
  with pytest.raises(TypeError, match="OfLegacyAlone is based on"):
    OfLegacyAlone(_NEW.SGD(), 8)
  with pytest.raises(TypeError, match="loss_scale"):
    keras.LossScaleOptimizer(_LEGACY.SGD())


@kinds
@pytest.mark.parametrize("name", ["WithDefault", "WithMore"])
def test_subclasses_come_back_from_their_configs(kind, name):
  cls = globals()[name]
  for scale in (16, tfl.DynamicLossScale(4, 3)):
    opt = cls(_KINDS[kind].SGD(0.5), scale)
    if name == "WithMore":
      opt.factor = 4.0
    before = copy.deepcopy(opt.get_config())
    again = cls.from_config(before)
    assert before == opt.get_config() == again.get_config()
    assert type(again) is type(opt) and vars(again).get("factor") in (None, 4.0)
    assert type(type(opt).from_config(before)) is type(opt)
    restored = k2.optimizers.deserialize(
      k2.optimizers.serialize(opt),
      custom_objects={name: cls},
      **({"use_legacy_optimizer": True} if kind == "legacy" else {}),
    )
    assert type(restored) is type(opt)
    assert restored.get_config() == before


def test_configs_that_a_subclass_does_not_take():
  class Own(keras.LossScaleOptimizer):
    def __init__(self, lr):
      super().__init__(_LEGACY.SGD(lr), 8)

  class OwnOfTwo(keras.LossScaleOptimizer):
    def __init__(self, lr, scale):
      super().__init__(_LEGACY.SGD(0.5), 8)

  for opt in (Own(0.5), OwnOfTwo(0.5, 8)):
    with pytest.raises(
      TypeError, match=r"Give .* a get_config.. and a from_con"
    ):
      type(opt).from_config(opt.get_config())
  config = {**WithDefault(_LEGACY.SGD()).get_config(), "factor": 2}
  with pytest.raises(TypeError, match="'loss_scale', 'factor'"):
    WithDefault.from_config(config)
  with pytest.raises(ValueError, match="must have a from_config"):
    WithDefault.from_config({"lr": 0.5})
  with pytest.raises(ValueError, match="inner_optimizer"):
    keras.LossScaleOptimizer.from_config({"name": "x"})


@kinds
def test_from_config_of_the_other_kind(kind):
  other = {"legacy": _NEW, "new": _LEGACY}[kind]
  for cls in (keras.LossScaleOptimizer, WithDefault):
    opt = cls(_KINDS[kind].SGD(0.5, momentum=0.75), 8)
    others = cls(other.SGD(0.5, momentum=0.75), tfl.DynamicLossScale(4, 3))
    made = type(opt).from_config(others.get_config())
    assert type(made) is type(others)
    assert made.get_config() == others.get_config()


@pytest.mark.parametrize(
  ("kind", "form", "registered"),
  [("legacy", "tf", False), ("new", "tf", True), ("legacy", "h5", True)],
)
def test_a_model_is_saved_with_a_subclass(kind, form, registered, tmp_path):
  class Mine(WithMore):
    pass

  if registered:
    package = f"{kind}_{form}"
    k2.utils.register_keras_serializable(package)(Mine)
  model = k2.Sequential([k2.layers.Dense(3, input_shape=(4,))])
  scale = tfl.DynamicLossScale(64, 3)
  model.compile(
    Mine(_KINDS[kind].SGD(0.01), scale, factor=1.0), "mse", run_eagerly=True
  )
  model.fit(np.ones((8, 4)), np.ones((8, 3)), epochs=2, verbose=0)
  path = str(tmp_path / {"tf": "saved", "h5": "model.h5"}[form])
  traces = {"save_traces": False} if form == "tf" else {}
  model.save(path, save_format=form, **traces)
  custom = None if registered else {"Mine": Mine}
  loaded = keras.load_model(path, custom_objects=custom)
  assert type(loaded.optimizer) is type(model.optimizer)
  assert loaded.optimizer.factor == 1.0
  assert loaded.optimizer.initial_scale == 64.0
  # Tracing takes seconds: one traced step of each kind is enough.
  loaded.run_eagerly = form == "h5"
  loaded.fit(np.ones((8, 4)), np.ones((8, 3)), verbose=0)


class OtherOfTensorFlow(helpers.OWN.LossScale):
  """A loss scale of TensorFlow's own base class, which is not taken."""

  def __call__(self):
    return tf.constant(1.0)

  def update(self, grads):
    return tf.no_op(), True

  def get_config(self):
    return {}


# TensorFlow's own tests, in releases 2.0 to 2.8, matched some of these words.
@pytest.mark.parametrize(
  ("loss_scale", "error", "words"),
  [
    (OtherOfTensorFlow(), TypeError, "<.*OtherOfTensorFlow .*LossScale"),
    (None, ValueError, "loss_scale cannot be None"),
    (True, ValueError, "True"),
    (0.5, ValueError, r"0\.5"),
    (float("nan"), ValueError, "nan"),
    ("fixed", ValueError, r"Invalid value passed to loss_scale\. .*'fixed'"),
  ],
)
def test_words_about_loss_scales(loss_scale, error, words):
  for kind in (_LEGACY, _NEW):
    with pytest.raises(error, match=words):
      keras.LossScaleOptimizer(kind.SGD(), loss_scale)


def test_words_about_configs():
  def of(name, **config):
    loss_scale = {"class_name": name, "config": config}
    return {"optimizer": _SGD_2_3, "loss_scale": loss_scale}

  for cls in (keras.LossScaleOptimizer, WithDefault):
    for config, words in (
      (of("Other"), "'Other'.* custom_objects={'Other': "),
      (of("DynamicLossScale", multiplier=1), "multiplier"),
      ({"optimizer": "sgd", "loss_scale": "dynamic"}, "'sgd'"),
    ):
      with pytest.raises(ValueError, match=words):
        cls.from_config(config)


@pytest.mark.parametrize("scale", ["dynamic", tfl.DynamicLossScale(4, 3)])
def test_configs_leave_no_variables_in_a_graph(scale):
  """Checks that a graph has only the variables that Keras's own class adds."""
  config = config_of(scale if scale != "dynamic" else tfl.DynamicLossScale())
  names = []
  for make in (
    lambda: own.LossScaleOptimizer(_LEGACY.SGD()),
    lambda: keras.LossScaleOptimizer(_LEGACY.SGD(), scale),
    lambda: keras.LossScaleOptimizer(_LEGACY.SGD(), config["loss_scale"]),
    lambda: keras.LossScaleOptimizer.from_config(config),
  ):
    with tf.Graph().as_default():
      opt = make()
      names.append([v.name for v in tf.compat.v1.global_variables()])
      assert opt.dynamic
  assert names[1:] == names[:1] * 3
  with tf.Graph().as_default():
    policy = keras.Policy("mixed_float16", scale)
    assert not tf.compat.v1.global_variables()
    float_scale = policy.loss_scale()
    with tf.compat.v1.Session() as session:
      session.run(tf.compat.v1.global_variables_initializer())
      initial = policy.loss_scale.initial_loss_scale
      assert session.run(float_scale) == initial


def _by_hand(opt, v):
  scale = opt.loss_scale
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(v * v) * scale
  return tape.gradient(loss, v) / scale


def _scaled(opt, v):
  with tf.GradientTape() as tape:
    loss = opt.get_scaled_loss(tf.reduce_sum(v * v))
  return opt.get_unscaled_gradients(tape.gradient(loss, [v]))[0]


def _bypass(opt, v):
  del opt
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(v * v)
  return tape.gradient(loss, v)


@kinds
@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize(
  ("scale", "compute", "warns"),
  [
    ("dynamic", _bypass, True),
    (128, _bypass, False),
    ("dynamic", _by_hand, False),
    ("dynamic", _scaled, False),
    ("dynamic", lambda _, v: tf.zeros_like(v), False),
  ],
)
def test_keras_warns_once_if_nothing_scaled_the_loss(
  kind, mode, scale, compute, warns, caplog
):
  v = tf.Variable([1.0, 2.0])
  opt = keras.LossScaleOptimizer(_KINDS[kind].SGD(0.1), scale)
  if kind == "new":
    opt.build([v])
  wrap = tf.function if mode == "function" else lambda step: step
  for _ in range(2):
    wrap(lambda: opt.apply_gradients([(compute(opt, v), v)]) and None)()
  assert caplog.text.count("You forgot to call") == warns


def test_a_schedule_of_applied_steps():
  """Checks the way that docs/keras.md describes."""

  class Model(k2.Sequential):
    def train_step(self, data):
      logs = super().train_step(data)
      return {**logs, "applied": self.optimizer.last_step_applied}

  class Schedule(k2.callbacks.Callback):
    applied = 0

    def on_train_batch_end(self, batch, logs=None):
      self.applied += int(logs["applied"])
      self.model.optimizer.lr = 0.5**self.applied

  model = Model([k2.layers.Dense(1, input_shape=(2,))])
  model.compile(keras.LossScaleOptimizer(_LEGACY.Adam(), "dynamic"), "mse")
  x = np.array([[1, 1], [np.inf, 1], [1, 1]], "f")
  schedule = Schedule()
  options = {"batch_size": 1, "shuffle": False, "verbose": 0}
  model.fit(x, np.ones((3, 1)), callbacks=[schedule], **options)
  assert schedule.applied == 2 and int(model.optimizer.iterations) == 3
  assert float(model.optimizer.lr) == 0.25
