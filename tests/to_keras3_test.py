"""`to_keras3`: Keras 3 goes on as Keras 2 would have, or says why it cannot."""

import copy
import functools
import pickle

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2

k2 = _keras2.keras
_INF = float("inf")
_HAS_KERAS_3 = helpers.RELEASE >= (2, 16)
_KINDS = {"legacy": k2.optimizers.legacy, "new": k2.optimizers}
kinds = pytest.mark.parametrize("kind", list(_KINDS))
needs_keras_3 = pytest.mark.skipif(
  not _HAS_KERAS_3, reason="Keras 3 comes with 2.16"
)
if _HAS_KERAS_3:
  import keras as k3

_SHAPES = ((3, 4), (4,), ())
_GROWTH = 5


def wrapped(optimizer, scale=64.0, growth=_GROWTH):
  return keras.LossScaleOptimizer(
    optimizer, tfl.DynamicLossScale(scale, growth)
  )


def gradients_of(step):
  random = np.random.RandomState(step)
  return [tf.constant(random.normal(size=s), tf.float32) for s in _SHAPES]


def variables(make=tf.Variable):
  random = np.random.RandomState(0)
  return [make(random.normal(size=s).astype("f")) for s in _SHAPES]


def train2(opt, ws, steps):
  """Trains by gradients that are unscaled, as Keras 2 takes them."""
  for step in steps:
    opt.apply_gradients(zip(gradients_of(step), ws))


def train3(opt, vs, steps):
  """Trains by scaled gradients, as Keras 3 takes them."""
  for step in steps:
    opt.apply([g * opt.dynamic_scale for g in gradients_of(step)], vs)


def state_of(opt):
  """The scale, its counter and the steps, of either Keras."""
  if isinstance(opt, _keras2.BaseLossScaleOptimizer):
    own = (opt.loss_scale, opt.dynamic_counter)
  else:
    own = (opt.dynamic_scale, opt.step_counter)
  scale, counter, steps = (
    tf.convert_to_tensor(value).numpy() for value in (*own, opt.iterations)
  )
  return float(scale), int(counter), int(steps)


def assert_close(ones, others, atol=1e-6):
  for one, other in zip(ones, others, strict=True):
    np.testing.assert_allclose(np.array(one), np.array(other), 1e-5, atol)


def goes_on(opt2, ws, atol=1e-6):
  """Asserts that both agree for 30 steps from where `opt2` is."""
  vs = [k3.Variable(np.array(w)) for w in ws]
  pairs = list(zip(ws, vs))
  opt3 = keras.to_keras3(opt2, variables=pairs)
  assert type(opt3) is k3.optimizers.LossScaleOptimizer
  assert state_of(opt3) == state_of(opt2)
  first = int(opt2.iterations)
  for step in range(first, first + 30):
    train2(opt2, ws, [step])
    train3(opt3, vs, [step])
    assert state_of(opt3) == state_of(opt2)
  assert_close(vs, ws, atol)
  assert float(opt3.dynamic_scale) > 64.0
  return opt3


_LIKE = [
  *(
    (kind, name, arguments)
    for kind in _KINDS
    for name, arguments in (
      ("SGD", {"learning_rate": 0.1}),
      ("SGD", {"learning_rate": 0.1, "momentum": 0.9}),
      ("SGD", {"learning_rate": 1, "momentum": 0.5, "nesterov": True}),
      ("Adam", {"learning_rate": 0.1}),
      ("Adam", {"learning_rate": 0.1, "amsgrad": True, "epsilon": 1e-3}),
      ("Adam", {"learning_rate": 0.1, "clipnorm": 0.5}),
      ("Adam", {"learning_rate": 0.1, "clipvalue": 0.5}),
      ("SGD", {"learning_rate": 0.1, "global_clipnorm": 0.5}),
      ("Adamax", {"learning_rate": 0.1}),
      ("Adagrad", {"learning_rate": 0.1}),
      ("Adadelta", {"learning_rate": 1.0}),
      ("RMSprop", {"learning_rate": 0.01, "momentum": 0.5}),
      ("RMSprop", {"learning_rate": 0.01, "momentum": 0.5, "centered": True}),
      ("Ftrl", {"learning_rate": 0.1}),
      (
        "Ftrl",
        {
          "learning_rate": 0.1,
          "l1_regularization_strength": 0.01,
          "l2_regularization_strength": 0.01,
          "l2_shrinkage_regularization_strength": 0.01,
          "beta": 0.1,
        },
      ),
    )
  ),
  ("legacy", "Nadam", {"learning_rate": 0.1, "schedule_decay": 1.0}),
  ("new", "Nadam", {"learning_rate": 0.1}),
  ("new", "RMSprop", {"learning_rate": 0.01}),
  ("new", "RMSprop", {"learning_rate": 0.01, "centered": True}),
  ("new", "Adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0.0}),
  ("new", "AdamW", {"learning_rate": 0.1}),
  ("new", "SGD", {"learning_rate": 0.1, "weight_decay": 0.1}),
  ("new", "Adafactor", {"learning_rate": 0.1}),
  ("new", "Adafactor", {"learning_rate": 0.1, "relative_step": False}),
  ("new", "Lion", {"learning_rate": 0.01}),
  (
    "new",
    "Adam",
    {
      "learning_rate": 0.1,
      "use_ema": True,
      "ema_momentum": 0.9,
      "ema_overwrite_frequency": 8,
    },
  ),
]


@pytest.mark.any_release  # Every one has the same Keras 3.
@needs_keras_3
@pytest.mark.parametrize(("kind", "name", "arguments"), _LIKE)
def test_goes_on_with_slots(kind, name, arguments):
  opt2, ws = wrapped(getattr(_KINDS[kind], name)(**arguments)), variables()
  train2(opt2, ws, range(12))
  opt3 = goes_on(opt2, ws)
  assert type(opt3.inner_optimizer) is getattr(k3.optimizers, name)


@pytest.mark.any_release  # Every one has the same Keras 3.
@needs_keras_3
@pytest.mark.parametrize(
  ("kind", "name", "arguments"),
  [case for case in _LIKE if "use_ema" not in case[2]],
)
def test_goes_on_from_the_start(kind, name, arguments):
  opt2, ws = wrapped(getattr(_KINDS[kind], name)(**arguments)), variables()
  # float32 rounds 1 - beta ** step coarsely in the first steps, either way.
  goes_on(opt2, ws, atol=1e-4)


@needs_keras_3
@pytest.mark.parametrize(
  ("kind", "name", "arguments", "why"),
  [
    ("legacy", "RMSprop", {}, r"sqrt\(mean square\) \+ epsilon"),
    ("legacy", "RMSprop", {"centered": True}, r"sqrt\(mean square\)"),
    ("legacy", "Adagrad", {"initial_accumulator_value": 1e-4}, "accumulator"),
    ("legacy", "Adagrad", {"initial_accumulator_value": 0.0}, "accumulator"),
    ("legacy", "Nadam", {}, "schedule of momentum"),
    ("legacy", "SGD", {"decay": 0.5}, "decay"),
    ("legacy", "SGD", {"clipnorm": 1.0, "clipvalue": 1.0}, "clipvalue"),
    ("legacy", "SGD", {"learning_rate": lambda: 0.1}, "function"),
    ("legacy", "Adam", {"beta_1": lambda: 0.1}, "beta_1 is a function"),
    ("new", "SGD", {"clipnorm": 1.0, "clipvalue": 1.0}, "clipvalue"),
    ("new", "Adam", {"use_ema": True}, "use_ema"),
  ],
)
def test_what_keras_3_cannot_do(kind, name, arguments, why):
  opt2 = wrapped(getattr(_KINDS[kind], name)(**arguments))
  with pytest.raises(ValueError, match=why) as error:
    keras.to_keras3(opt2)
  assert "optimizer=…" in str(error.value)
  mine = k3.optimizers.SGD(0.25)
  assert keras.to_keras3(opt2, optimizer=mine).inner_optimizer is mine


class MySchedule(k2.optimizers.schedules.LearningRateSchedule):
  def __call__(self, step):
    return 0.1

  def get_config(self):
    raise NotImplementedError


class MyAdam(k2.optimizers.legacy.Adam):
  pass


Adam = type("Adam", (MyAdam,), {})


@needs_keras_3
@pytest.mark.parametrize(
  ("make", "why"),
  [
    (lambda: k2.optimizers.legacy.SGD(MySchedule()), "schedule"),
    (lambda: k2.optimizers.SGD(MySchedule()), "schedule"),
    (MyAdam, "MyAdam"),
    (Adam, "no counterpart"),
  ],
)
def test_what_is_the_users_own(make, why):
  opt2 = wrapped(make())
  with pytest.raises(ValueError, match=why):
    keras.to_keras3(opt2)
  keras.to_keras3(opt2, optimizer=k3.optimizers.SGD(0.25))


def schedules():
  s = k2.optimizers.schedules
  for name in (None, "mine"):
    for staircase in (False, True):
      yield s.ExponentialDecay(0.5, 3, 0.5, staircase, name=name)
      yield s.InverseTimeDecay(0.5, 3, 0.5, staircase, name=name)
    yield s.PiecewiseConstantDecay([3, 8], [0.5, 0.25, 0.125], name=name)
    for cycle in (False, True):
      yield s.PolynomialDecay(0.5, 7, 0.1, 2.0, cycle, name=name)
    yield s.CosineDecay(0.5, 9, 0.1, name=name)
    yield s.CosineDecayRestarts(0.5, 4, 2.0, 0.5, 0.1, name=name)
  if "warmup_steps" in s.CosineDecay(0.5, 9).get_config():
    yield s.CosineDecay(0.0, 9, 0.1, warmup_target=0.5, warmup_steps=4)


@pytest.mark.any_release  # Every one has the same Keras 3.
@needs_keras_3
@kinds
@pytest.mark.parametrize("index", range(len(list(schedules()))))
def test_schedules(kind, index):
  rate = list(schedules())[index]
  opt2, ws = wrapped(_KINDS[kind].SGD(rate)), variables()
  train2(opt2, ws, range(6))
  opt3 = goes_on(opt2, ws)
  assert_close([opt3.learning_rate], [rate(36)])


# Models: every way to train, of every copy of the optimizer.

_X = np.random.RandomState(1).normal(size=(8, 3)).astype("f")
_Y = np.random.RandomState(2).normal(size=(8, 2)).astype("f")
_WAYS = ("fit", "train_on_batch", "function", "apply", "run_eagerly")
_IN_MEMORY = ("deepcopy", "pickle")
_COPIES = ("as it is", *_IN_MEMORY, "saved", "saved trained")


def model_of(keras_, dtype=None):
  layer = keras_.layers.Dense(2, dtype=dtype)
  out = keras_.layers.Activation("linear", dtype="float32")
  return keras_.Sequential([keras_.layers.Input((3,)), layer, out])


def trained_model(make, steps=7):
  model = model_of(k2)
  model.set_weights([np.ones((3, 2), "f"), np.zeros(2, "f")])
  model.compile(wrapped(make()), "mse")
  model.fit(_X, _Y, batch_size=8, epochs=steps, verbose=0)
  return model


def train_model3(model, way, steps):
  opt = model.optimizer
  variables = model.trainable_variables
  if way in ("fit", "run_eagerly"):
    model.run_eagerly = way == "run_eagerly"
    model.fit(_X, _Y, batch_size=8, epochs=steps, verbose=0)
  elif way == "train_on_batch":
    for _ in range(steps):
      model.train_on_batch(_X, _Y)
  else:

    def step():
      with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(_X, training=True) - _Y) ** 2)
        loss = opt.scale_loss(loss)
      grads = tape.gradient(loss, [v.value for v in variables])
      if way == "function":
        opt.apply_gradients(zip(grads, variables))
      else:
        opt.apply(grads, variables)

    step = tf.function(step) if way == "function" else step
    for _ in range(steps):
      step()


@functools.cache
def reference(with_slots):
  """Keras 2's model after 7 steps; its weights and state after 37."""

  def make():
    rate = k2.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    if with_slots:
      return k2.optimizers.Adam(rate)
    return k2.optimizers.legacy.SGD(rate)

  later = trained_model(make, 37)
  return trained_model(make), later.get_weights(), state_of(later.optimizer)


@needs_keras_3
@pytest.mark.parametrize(
  ("way", "copied", "with_slots"),
  [
    *((way, copied, False) for way in _WAYS for copied in _COPIES),
    # Keras 3 copies a built optimizer without its state: only files keep it.
    *(
      (way, copied, True)
      for way in ("fit", "function")
      for copied in _COPIES
      if copied not in _IN_MEMORY
    ),
  ],
)
def test_models(way, copied, with_slots, tmp_path):
  old, weights, state = reference(with_slots)
  assert state_of(old.optimizer) == (128.0, 2, 7)
  new = model_of(k3)
  new.set_weights(old.get_weights())
  opt = keras.to_keras3(
    old.optimizer, variables=new.trainable_variables if with_slots else None
  )
  assert isinstance(opt, k3.optimizers.LossScaleOptimizer)
  if copied == "deepcopy":
    opt = copy.deepcopy(opt)
  elif copied == "pickle":
    opt = pickle.loads(pickle.dumps(opt))
  new.compile(opt, "mse", auto_scale_loss=False)
  path, done = str(tmp_path / "model.keras"), 0
  if copied == "saved trained":
    done = 4
    train_model3(new, way, done)
  if copied.startswith("saved"):
    new.save(path)
    new = k3.models.load_model(path)
  train_model3(new, way, 30 - done)
  assert type(new.optimizer) is k3.optimizers.LossScaleOptimizer
  assert state_of(new.optimizer) == state == (8192.0, 2, 37)
  assert_close(new.get_weights(), weights)


@needs_keras_3
def test_files_name_what_to_import(tmp_path):
  old = trained_model(lambda: k2.optimizers.legacy.SGD(0.1))
  new = model_of(k3)
  new.set_weights(old.get_weights())
  opt = keras.to_keras3(old.optimizer)
  new.compile(opt, "mse")
  path = str(tmp_path / "model.keras")
  new.save(path)
  load = f"""
import keras
model = keras.models.load_model({path!r})
opt = model.optimizer
print(float(opt.dynamic_scale), int(opt.step_counter), int(opt.iterations))
"""
  module = "tf_compat_lossscale.keras.keras3_optimizer"
  printed = helpers.run_python("-c", f"import {module}\n" + load)
  assert printed.splitlines()[-1] == "128.0 2 7"
  code = f"try:\n  import keras; keras.models.load_model({path!r})\n"
  code += "except Exception as e:\n  print(str(e).replace('\\n', ' '))"
  message = helpers.run_python("-c", code).splitlines()[-1]
  assert module in message and "import" in message
  # A trained one needs nothing of this package.
  train_model3(new, "fit", 4)
  new.save(path)
  printed = helpers.run_python("-c", "import sys\n" + load)
  assert printed.splitlines()[-1] == "256.0 1 11"


@needs_keras_3
@kinds
def test_keras_2_optimizers_of_a_saved_model(kind, tmp_path):
  old = trained_model(lambda: _KINDS[kind].SGD(0.1, momentum=0.9))
  path = str(tmp_path / "saved")
  old.save(path, save_format="tf")
  # Keras 2 itself brings neither steps nor slots of such an optimizer back.
  old = keras.load_model(path)
  opt2 = old.optimizer
  new = model_of(k3)
  new.set_weights(old.get_weights())
  opt3 = keras.to_keras3(opt2, variables=new.trainable_variables)
  new.compile(opt3, "mse", auto_scale_loss=False)
  train_model3(new, "fit", 10)
  old.fit(_X, _Y, batch_size=8, epochs=10, verbose=0)
  assert state_of(opt3) == state_of(old.optimizer)
  assert_close(new.get_weights(), old.get_weights())


@needs_keras_3
def test_mixed_float16():
  old = trained_model(lambda: k2.optimizers.Adam(0.1))
  new = model_of(k3, dtype="mixed_float16")
  new.set_weights(old.get_weights())
  opt3 = keras.to_keras3(old.optimizer, variables=new.trainable_variables)
  new.compile(opt3, "mse")
  assert new.optimizer is opt3
  train_model3(new, "fit", 3)
  assert state_of(opt3) == (256.0, 0, 10)
  unbuilt = keras.to_keras3(old.optimizer)
  new.compile(unbuilt, "mse")
  train_model3(new, "fit", 3)
  assert state_of(unbuilt) == (256.0, 0, 10)


@needs_keras_3
@pytest.mark.parametrize("with_variables", [False, True])
def test_replicas(with_variables):
  old = trained_model(lambda: k2.optimizers.SGD(0.01, momentum=0.9))
  with helpers.two_replicas().scope():
    model = model_of(k3)
    model.set_weights(old.get_weights())
    opt3 = keras.to_keras3(
      old.optimizer,
      variables=model.trainable_variables if with_variables else None,
    )
    model.compile(opt3, "mse")
  model.fit(_X, _Y, batch_size=8, epochs=3, verbose=0)
  assert state_of(model.optimizer) == (256.0, 0, 10)
  if with_variables:
    old.fit(_X, _Y, batch_size=8, epochs=3, verbose=0)
    assert_close(model.get_weights(), old.get_weights())


# State that is given in numbers.


def apply_of(opt, v):
  return lambda gradient: opt.apply([gradient], [v])


@needs_keras_3
@pytest.mark.parametrize(
  ("counter", "growth", "expected"),
  [
    (0, 5, 0),
    (4, 5, 4),
    (5, 5, 4),
    (7, 5, 4),
    (0, 1, 0),
    (2**24 + 1, 2**25, 2**24 + 1),
    (2**40 + 1, 2**41, 2**40 + 1),
    (np.int64(3), np.float32(5), 3),
  ],
)
def test_counters(counter, growth, expected):
  given = {"loss_scale": 8, "good_steps": counter, "growth_steps": growth}
  for built_by in ("apply", "function"):
    opt = keras.to_keras3(
      {**given, "iterations": 2**31 + 1}, optimizer=k3.optimizers.SGD(0.25)
    )
    v = k3.Variable([1.0])
    apply = apply_of(opt, v)
    apply = tf.function(apply) if built_by == "function" else apply
    opt.build([v])
    assert int(opt.step_counter) == expected
    apply(tf.constant([8.0]))
    grows = expected == int(growth) - 1
    assert state_of(opt) == (
      (16.0, 0, 2**31 + 2) if grows else (8.0, expected + 1, 2**31 + 2)
    )


@needs_keras_3
@pytest.mark.parametrize(
  ("change", "what"),
  [
    *(
      ({"loss_scale": bad}, "loss_scale must be above 0")
      for bad in (0, -1, _INF, float("nan"), True, "8", None, 1e60)
    ),
    *(
      ({"good_steps": bad}, "good_steps must be")
      for bad in (-1, 0.5, float("nan"), True, "2", 2**64, tf.constant(True))
    ),
    *(({"growth_steps": bad}, "growth_steps must") for bad in (0, -1, 1.5)),
    *(({"iterations": bad}, "iterations must be") for bad in (-1, 0.5, True)),
    ({"goodsteps": 1}, "'goodsteps' too many"),
  ],
)
def test_dicts_that_are_wrong(change, what):
  sgd = k3.optimizers.SGD(0.25)
  with pytest.raises(ValueError, match=what):
    keras.to_keras3({"loss_scale": 8, "good_steps": 1} | change, optimizer=sgd)


@needs_keras_3
def test_dicts_of_scalars():
  with pytest.raises(ValueError, match="'good_steps' too few"):
    keras.to_keras3({"loss_scale": 8}, optimizer=k3.optimizers.SGD(0.25))
  for make in (np.float32, np.array, tf.constant, tf.Variable):
    opt = keras.to_keras3(
      {
        "loss_scale": make(8.0),
        "good_steps": make(3.0),
        "iterations": make(4.0),
      },
      optimizer=k3.optimizers.SGD(0.25),
    )
    opt.build([k3.Variable([1.0])])
    assert state_of(opt) == (8.0, 3, 4)


@needs_keras_3
def test_an_optimizer_that_has_trained_keeps_its_own():
  sgd, v = k3.optimizers.SGD(0.25), k3.Variable([1.0])
  for _ in range(3):
    sgd.apply([tf.constant([1.0])], [v])
  given = {"loss_scale": 8, "good_steps": 1, "iterations": 9}
  opt = keras.to_keras3(given, optimizer=sgd)
  opt.apply([tf.constant([8.0])], [v])
  assert state_of(opt) == (8.0, 2, 4) and float(v[0]) == 0.0


@needs_keras_3
def test_accumulated_gradients():
  sgd = k3.optimizers.SGD(0.25, gradient_accumulation_steps=2)
  given = {"loss_scale": 8, "good_steps": 1, "iterations": 9}
  assert int(keras.to_keras3(given, optimizer=sgd).iterations) == 9


# Which variable was which.


def trained(make, steps=7):
  opt2, ws = wrapped(make()), variables()
  train2(opt2, ws, range(steps))
  return opt2, ws


@needs_keras_3
@kinds
def test_variables(kind):
  def make():
    return _KINDS[kind].SGD(0.1, momentum=0.9)

  opt2, ws = trained(make)
  new = [k3.Variable(w.numpy()) for w in ws]
  kept = (
    [opt2.inner_optimizer.get_slot(w, "momentum") for w in ws]
    if kind == "legacy"
    else opt2.inner_optimizer.momentums
  )
  for given, order in (
    (new, (0, 1, 2)),
    (list(zip(ws, new))[::-1], (2, 1, 0)),
    (list(zip(ws, new))[1:], (1, 2)),
    (zip(ws, new), (0, 1, 2)),
    (ws[::-1], (2, 1, 0)),  # The same variables go on.
  ):
    opt3 = keras.to_keras3(opt2, variables=given)
    assert_close(opt3.inner_optimizer.momentums, [kept[i] for i in order])
    assert type(opt3) is k3.optimizers.LossScaleOptimizer
  for given, what in (
    ([], "variables is empty"),
    (new[:2], "slots for 3 variables"),
    (new[::-1], "shape"),
    ([new[0], new[0], new[1]], "twice"),
    ([(ws[1], new[1]), (ws[1], new[0])], "twice"),
    ([(tf.Variable(1.0), new[2]), *zip(ws[:2], new)], "not for"),
    ([ws[0], *new[1:]], "not for"),
  ):
    with pytest.raises(ValueError, match=what):
      keras.to_keras3(opt2, variables=given)
  for given in ("abc", ["abc"], 1, [(1, new[0])]):
    with pytest.raises(TypeError, match="variables must be"):
      keras.to_keras3(opt2, variables=given)
  with pytest.raises(TypeError, match="first of a pair must be Keras 2's"):
    keras.to_keras3(opt2, variables=list(zip(new, ws)))


@needs_keras_3
@kinds
def test_what_stays_behind_is_said(kind, caplog, monkeypatch):
  import absl.logging

  monkeypatch.setattr(absl.logging.get_absl_logger(), "propagate", True)

  def warnings_of(*args, **kwargs):
    caplog.clear()
    opt = keras.to_keras3(*args, **kwargs)
    return opt, [r.getMessage() for r in caplog.records if "to_keras3" in r.msg]

  def make():
    return _KINDS[kind].Adam(0.1)

  opt2, ws = trained(make)
  new = [k3.Variable(w.numpy()) for w in ws]
  opt3, said = warnings_of(opt2)
  assert len(said) == 1 and "variables=" in said[0] and "7 steps" in said[0]
  assert int(opt3.iterations) == 7
  assert warnings_of(opt2, variables=new)[1] == []
  assert len(warnings_of(opt2, variables=list(zip(ws, new))[1:])[1]) == 1
  sgd = k3.optimizers.SGD(0.1)
  said = warnings_of(opt2, optimizer=sgd, variables=new)[1]
  assert len(said) == 1 and "_velocities" in said[0]
  assert warnings_of(wrapped(make()))[1] == []
  plain, _ = trained(lambda: _KINDS[kind].SGD(0.1))
  assert warnings_of(plain)[1] == []
  adam = k3.optimizers.Adam(0.1)
  opt3, said = warnings_of(opt2, optimizer=adam, variables=new)
  assert said == [] and float(adam._momentums[0][0, 0]) != 0.0


@needs_keras_3
def test_exclusions_from_weight_decay():
  def excluding(**kwargs):
    opt = k2.optimizers.AdamW(0.1, weight_decay=0.5)
    opt.exclude_from_weight_decay(**kwargs)
    return wrapped(opt)

  def named():
    return [tf.Variable(w, name=n) for w, n in zip(variables(), "abc")]

  for by_name in (False, True):
    for steps in (0, 7):
      ws = named()
      how = {"var_names": ["^b"]} if by_name else {"var_list": [ws[1]]}
      opt2 = excluding(**how)
      train2(opt2, ws, range(steps))
      with pytest.raises(ValueError, match="variables="):
        keras.to_keras3(opt2)
      if by_name or not steps:
        with pytest.raises(ValueError, match="pairs"):
          keras.to_keras3(opt2, variables=[k3.Variable(w.numpy()) for w in ws])
      goes_on(opt2, ws)
  ws = named()
  opt2 = excluding(var_list=[ws[1]])
  train2(opt2, ws, range(3))
  by_order = [k3.Variable(w.numpy()) for w in ws]
  opt3 = keras.to_keras3(opt2, variables=by_order)
  train2(opt2, ws, range(3, 9))
  train3(opt3, by_order, range(3, 9))
  assert_close(by_order, ws)


@needs_keras_3
def test_averages():
  opt2, ws = trained(lambda: k2.optimizers.SGD(0.1, use_ema=True))
  with pytest.raises(ValueError, match="averages of 0"):
    keras.to_keras3(opt2)
  averaging = k3.optimizers.SGD(0.1, use_ema=True)
  plain, ws = trained(lambda: k2.optimizers.SGD(0.1))
  with pytest.raises(ValueError, match="averages of 0"):
    keras.to_keras3(plain, optimizer=averaging)
  new = [k3.Variable(w.numpy()) for w in ws]
  opt3 = keras.to_keras3(plain, optimizer=averaging, variables=new)
  opt3.finalize_variable_values(new)
  assert_close(new, ws)


# What else has a loss scale.


@needs_keras_3
def test_what_else_has_a_loss_scale():
  def v1():
    return tf.compat.v1.train.GradientDescentOptimizer(0.1)

  managers = [
    contrib.ExponentialUpdateLossScaleManager(8, 4, 1, 2, 0.5) for _ in "ab"
  ]
  scales = [tfl.DynamicLossScale(8, 4) for _ in "ab"]
  for manager in managers:
    manager.update_loss_scale(True)
  for scale in scales:
    scale.update([tf.constant(1.0)])
  for given in (
    managers[0],
    contrib.LossScaleOptimizer(v1(), managers[1]),
    scales[0],
    tfl.MixedPrecisionLossScaleOptimizer(v1(), scales[1]),
  ):
    with pytest.raises(ValueError, match="optimizer="):
      keras.to_keras3(given)
    opt = keras.to_keras3(given, optimizer=k3.optimizers.SGD(0.25))
    opt.build([k3.Variable([1.0])])
    assert state_of(opt) == (8.0, 1, 0) and opt.dynamic_growth_steps == 4


@needs_keras_3
@pytest.mark.parametrize(
  ("make", "error", "what"),
  [
    *(
      (
        lambda a=arguments: contrib.ExponentialUpdateLossScaleManager(8, 4, *a),
        ValueError,
        "incr_ratio=2, decr_ratio=0.5",
      )
      for arguments in ((), (2, 2, 0.5), (1, 2, 0.8), (1, 4, 0.25))
    ),
    (lambda: contrib.FixedLossScaleManager(8), ValueError, "loss_scale_factor"),
    (lambda: tfl.FixedLossScale(8), ValueError, r"loss_scale_factor=8\.0"),
    (
      lambda: keras.LossScaleOptimizer(k2.optimizers.legacy.SGD(), 8),
      ValueError,
      r"loss_scale_factor=8\.0",
    ),
    (lambda: tfl.DynamicLossScale(8, 4, 4), ValueError, "doubles and halves"),
    (lambda: "x", TypeError, "'x'"),
    (lambda: k2.optimizers.SGD(), TypeError, "SGD"),
  ],
)
def test_what_has_no_counterpart(make, error, what):
  with pytest.raises(error, match=what):
    keras.to_keras3(make(), optimizer=k3.optimizers.SGD(0.25))


@needs_keras_3
def test_optimizers_that_are_none():
  scale = tfl.DynamicLossScale()
  wrapping = k3.optimizers.LossScaleOptimizer(k3.optimizers.SGD(0.25))
  for wrong in (k2.optimizers.legacy.SGD(), "sgd", wrapping):
    with pytest.raises(TypeError, match="of Keras 3"):
      keras.to_keras3(scale, optimizer=wrong)


@needs_keras_3
def test_graphs():
  with tf.Graph().as_default():
    manager = contrib.ExponentialUpdateLossScaleManager(8, 4, 1, 2, 0.5)
    w = tf.compat.v1.get_variable("w", [], use_resource=True)
    opt2 = wrapped(k2.optimizers.legacy.SGD(0.5, momentum=0.5), 8.0, 4)
    op = opt2.apply_gradients([(tf.constant(1.0), w)])
    update = manager.update_loss_scale(tf.constant(True))
    for given in (manager, opt2):
      with pytest.raises(ValueError, match=r"session\.as_default"):
        keras.to_keras3(given)
    with tf.compat.v1.Session() as session:
      session.run(tf.compat.v1.global_variables_initializer())
      session.run([op, update])
      with tf.init_scope(), tf.__internal__.eager_context.eager_mode():
        sgd, v = k3.optimizers.SGD(0.5), k3.Variable(0.0)
      one = keras.to_keras3(manager, optimizer=sgd)
      two = keras.to_keras3(opt2, variables=[(w, v)])
  one.build([v])
  assert state_of(one) == (8.0, 1, 0) and state_of(two) == (8.0, 1, 1)
  assert float(two.inner_optimizer.momentums[0]) == -0.5


def without_v2_behavior():
  tf.compat.v1.disable_v2_behavior()
  opt = wrapped(k2.optimizers.legacy.SGD())
  opt.loss_scale, opt.iterations  # noqa: B018  # Makes these variables.
  with tf.compat.v1.Session() as session:
    session.run(tf.compat.v1.global_variables_initializer())
    with pytest.raises(ValueError, match="'iterations'"):
      keras.to_keras3(opt)


@needs_keras_3
def test_without_v2_behavior():
  helpers.run_alone(without_v2_behavior)


@needs_keras_3
def test_a_keras_that_counts_elsewhere(monkeypatch):
  base = k3.optimizers.LossScaleOptimizer
  monkeypatch.setattr(base, "build", lambda self, variables: None)
  opt = keras.to_keras3(
    {"loss_scale": 8, "good_steps": 1}, optimizer=k3.optimizers.SGD(0.25)
  )
  with pytest.raises(RuntimeError, match="step_counter"):
    opt.build([k3.Variable([1.0])])


@pytest.mark.skipif(_HAS_KERAS_3, reason="Keras 3 comes with 2.16")
def test_keras_3_is_not_there():
  with pytest.raises(ImportError, match=r"TensorFlow 2\.16"):
    keras.to_keras3(wrapped(k2.optimizers.SGD()))


if __name__ == "__main__":
  helpers.main()
