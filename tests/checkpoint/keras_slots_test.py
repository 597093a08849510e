# SPDX-License-Identifier: Apache-2.0
"""Tests slots of TensorFlow 1 in Keras and back: training goes on as it did."""

from __future__ import annotations

import functools
import pathlib
import tempfile

import contrib_rules
import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.keras import _keras2

tf1 = tf.compat.v1
train = tf1.train
k2 = _keras2.keras
legacy = k2.optimizers.legacy
_RATE, _STEPS = 0.05, 5
if helpers.RELEASE >= (2, 16):
  import keras as k3
else:
  k3 = None
_TINY = 1e-30  # As epsilon it is nothing, inside of a root or outside.
_SHAPES = {"net/w": (3, 2), "net/embedding": (6, 2)}


def momentum(rate=_RATE, name="Momentum"):
  return train.MomentumOptimizer(rate, 0.9, name=name)


# TensorFlow 1's optimizers; KERAS has the same rules.
V1 = {
  "plain": lambda rate=_RATE: train.GradientDescentOptimizer(rate),
  "momentum": momentum,
  "nesterov": lambda: train.MomentumOptimizer(_RATE, 0.9, use_nesterov=True),
  "rmsprop": lambda: train.RMSPropOptimizer(_RATE, 0.8, epsilon=_TINY),
  "rmsprop_momentum": lambda rate=_RATE: train.RMSPropOptimizer(
    rate, 0.8, 0.7, 0.1
  ),
  "centered": lambda: train.RMSPropOptimizer(
    _RATE, 0.8, 0.0, _TINY, centered=True
  ),
  "centered_momentum": lambda: train.RMSPropOptimizer(
    _RATE, 0.8, 0.7, 0.1, centered=True
  ),
  "adagrad": lambda rate=_RATE: train.AdagradOptimizer(rate, 0.3),
  "adadelta": lambda: train.AdadeltaOptimizer(_RATE, 0.8, 1e-3),
  "ftrl": lambda: train.FtrlOptimizer(
    _RATE, -0.5, 0.2, 0.01, 0.02, l2_shrinkage_regularization_strength=0.1
  ),
  "adam": lambda rate=_RATE: train.AdamOptimizer(rate, 0.8, 0.99),
  "adamax": lambda: contrib_rules.AdaMaxOptimizer(_RATE, 0.8, 0.99),
}


def gradients(step: int) -> list[np.ndarray]:
  random = np.random.RandomState(step)
  return [random.normal(size=s).astype("f") for s in _SHAPES.values()]


def initial() -> list[np.ndarray]:
  random = np.random.RandomState(77)
  return [random.normal(size=s).astype("f") for s in _SHAPES.values()]


def compute_loss(weights, grads):
  """Returns a loss with some gradients."""
  return tf.add_n([tf.reduce_sum(g * w) for g, w in zip(grads, weights)])


class Program:
  """A program of TensorFlow 1."""

  def __init__(self, optimizer, steps=True):
    self.graph = tf.Graph()
    with self.graph.as_default():
      self.weights = [
        tf1.get_variable(name, initializer=value, use_resource=True)
        for name, value in zip(_SHAPES, initial())
      ]
      self.grads = [tf1.placeholder(tf.float32, s) for s in _SHAPES.values()]
      self.optimizer = optimizer()
      self.step = self.optimizer.minimize(
        compute_loss(self.weights, self.grads),
        train.get_or_create_global_step() if steps else None,
        self.weights,
      )
      self.session = tf1.Session()
      self.session.run(tf1.global_variables_initializer())

  def train(self, begin, end):
    for step in range(begin, end):
      self.session.run(self.step, dict(zip(self.grads, gradients(step))))
    return self.session.run(self.weights)

  def save(self, folder):
    with self.graph.as_default():
      return train.Saver().save(self.session, str(folder / "model"))


class Trained:
  """A program of TensorFlow 1 after `_STEPS` steps, and `_STEPS` steps later.

  Many tests save the same programs. So each is built and trained once.

  Attributes:
    program: The program. Tests may restore anything into it.
    saved: The weights that it saved.
    wanted: The weights that it had later.
  """

  def __init__(self, optimizer, steps):
    self.program = program = Program(optimizer, steps)
    self.saved = program.train(0, _STEPS)
    with tempfile.TemporaryDirectory() as folder:
      program.save(pathlib.Path(folder))
      files = pathlib.Path(folder).iterdir()
      self._files = {path.name: path.read_bytes() for path in files}
    self.wanted = program.train(_STEPS, 2 * _STEPS)

  def save(self, folder):
    """Writes its checkpoint; returns the path."""
    for name, data in self._files.items():
      (folder / name).write_bytes(data)
    return str(folder / "model")


@functools.cache
def trained(optimizer, steps=True):
  """Returns `Trained` for a function that makes an optimizer."""
  return Trained(optimizer, steps)


@functools.cache  # Or a program would be trained for each function.
def scaled(optimizer):
  """Returns a function that makes an optimizer with a loss scale."""
  return lambda: tfl.MixedPrecisionLossScaleOptimizer(optimizer(), "dynamic")


class KerasProgram:
  """A program of Keras 2, or of a later Keras."""

  def __init__(self, optimizer):
    self.weights = [
      tf.Variable(value, name=name) for name, value in zip(_SHAPES, initial())
    ]
    self.optimizer = optimizer()
    self.objects = {
      "optimizer": self.optimizer,
      "a": self.weights[0],
      "b": self.weights[1],
    }

  def train(self, begin, end):
    for step in range(begin, end):
      loss = functools.partial(compute_loss, self.weights, gradients(step))
      if hasattr(self.optimizer, "minimize"):
        self.optimizer.minimize(loss, self.weights)
      else:
        self.take_a_step(loss)
    return [weight.numpy() for weight in self.weights]

  def take_a_step(self, loss):
    """Takes a step of Keras 3, whose optimizers have no `minimize`."""
    with tf.GradientTape() as tape:
      scaled_loss = self.optimizer.scale_loss(loss())
    grads = tape.gradient(scaled_loss, self.weights)
    self.optimizer.apply_gradients(zip(grads, self.weights))

  def save(self, folder):
    saver = tf.train.Checkpoint(**self.objects)
    return saver.save(str(folder / "keras"))


def assert_near(got, wanted):
  for one, other in zip(got, wanted, strict=True):
    np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def assert_goes_on(new, old):
  """Checks that a program trains on as another, after the same steps."""
  wanted = getattr(old, "wanted", None) or old.train(_STEPS, 2 * _STEPS)
  assert_near(new.train(_STEPS, 2 * _STEPS), wanted)


KERAS = {
  "plain": lambda k, rate=_RATE: k.SGD(rate),
  "momentum": lambda k: k.SGD(_RATE, 0.9),
  "nesterov": lambda k: k.SGD(_RATE, 0.9, nesterov=True),
  "rmsprop": lambda k: k.RMSprop(_RATE, 0.8, epsilon=_TINY),
  "rmsprop_momentum": lambda k, rate=_RATE: k.RMSprop(rate, 0.8, 0.7, 0.1),
  "centered": lambda k: k.RMSprop(_RATE, 0.8, 0.0, _TINY, centered=True),
  "centered_momentum": lambda k: k.RMSprop(_RATE, 0.8, 0.7, 0.1, centered=True),
  "adagrad": lambda k, rate=_RATE: k.Adagrad(rate, 0.3, epsilon=_TINY),
  "adadelta": lambda k: k.Adadelta(_RATE, 0.8, 1e-3),
  "ftrl": lambda k: k.Ftrl(
    _RATE, -0.5, 0.2, 0.01, 0.02, l2_shrinkage_regularization_strength=0.1
  ),
  "adam": lambda k, rate=_RATE, **more: k.Adam(
    rate, 0.8, 0.99, epsilon=1e-8, **more
  ),
  "adamax": lambda k: k.Adamax(_RATE, 0.8, 0.99, epsilon=1e-8),
  "nadam": lambda k: k.Nadam(_RATE, 0.8, 0.99),
}


GENERATIONS = {
  "legacy": legacy,
  "newer": k2.optimizers,
  "keras3": k3 and k3.optimizers,
}
generations = pytest.mark.parametrize(
  "keras",
  [
    pytest.param(
      name,
      marks=pytest.mark.skipif(
        module is None, reason="Keras 3 comes with TensorFlow 2.16"
      ),
    )
    for name, module in GENERATIONS.items()
  ],
)


def make(keras, name, wrapped=False, **kwargs):
  """Returns a function that makes an optimizer of a Keras.

  Args:
    keras: The generation of Keras.
    name: The name in `KERAS`.
    wrapped: Whether the optimizer has its Keras's loss scale.
    **kwargs: More arguments of the function in `KERAS`.
  """

  def of_keras():
    made = KERAS[name](GENERATIONS[keras], **kwargs)
    return wrap(keras, made) if wrapped else made

  return of_keras


def wrap(keras, optimizer):
  """Returns an optimizer with its Keras's loss scale."""
  if keras == "keras3":
    return k3.optimizers.LossScaleOptimizer(optimizer)
  return k2.mixed_precision.LossScaleOptimizer(optimizer)


def schedules_of(keras):
  return (k3 if keras == "keras3" else k2).optimizers.schedules


def restore_into(old, make, folder, **kwargs):
  """Restores a program into one of Keras; returns the report and Keras's."""
  new = KerasProgram(make)
  new.train(90, 92)
  return checkpoint.restore(None, old.save(folder), new.objects, **kwargs), new


@generations
@pytest.mark.parametrize(
  ("name", "wrapped"),
  [(name, False) for name in V1] + [("momentum", True), ("adamax", True)],
)
def test_keras_goes_on(name, wrapped, keras, tmp_path):
  old = trained(scaled(V1[name]) if wrapped else V1[name])
  report, new = restore_into(old, make(keras, name, wrapped), tmp_path)
  assert {"a", "b"} <= set(report.restored)
  assert "global_step" in report.bridged.values()
  assert any("learning_rate" in path for path in report.kept)
  assert not report.notes
  # Keras 2's newer SGD has slots without momentum, too.
  is_zero = "the momentum is 0" in report.proofs.values()
  assert is_zero == ((name, keras) == ("plain", "newer"))
  assert ("-0.05" in str(report)) == (name in ("momentum", "nesterov"))
  assert_goes_on(new, old)


@generations
@pytest.mark.parametrize(
  ("name", "wrapped"),
  [(name, False) for name in V1] + [("momentum", True), ("adamax", True)],
)
def test_tensorflow_1_goes_on(name, wrapped, keras, tmp_path):
  old = KerasProgram(make(keras, name, wrapped))
  old.train(0, _STEPS)
  path = old.save(tmp_path)
  new = trained(scaled(V1[name]) if wrapped else V1[name]).program
  with new.graph.as_default():
    saver = checkpoint.Saver()
    saver.restore(new.session, path)
  assert_goes_on(new, old)
  assert new.session.run(tf1.train.get_global_step(new.graph)) == 2 * _STEPS
  report = saver.last_report
  assert report.bridged["global_step"].startswith("optimizer/")
  assert set(report.initialized) == (
    {f"{n}/RMSProp_{2 if name == 'centered' else 1}" for n in _SHAPES}
    if name in ("rmsprop", "centered")
    else set()
  )


SCHEDULED = ("plain", "adam", "rmsprop_momentum", "adagrad")


@functools.cache
def scheduled(name):
  """Returns a function that makes TensorFlow 1's optimizer with a schedule."""

  def make():
    step = train.get_or_create_global_step()
    return V1[name](train.exponential_decay(0.1, step, 3, 0.5))

  return make


def momentum_in_pieces():
  """Makes an optimizer whose learning rate has another value at first."""
  step = train.get_or_create_global_step()
  rate = train.piecewise_constant(step, [2], [1.0, _RATE])
  return momentum(rate)


class TestSchedules:
  """Tests optimizers of all kinds with a schedule of the learning rate."""

  @generations
  @pytest.mark.parametrize(
    ("name", "wrapped"),
    [*((name, False) for name in SCHEDULED), ("adam", True)],
  )
  def test_training_goes_on(self, name, wrapped, keras, tmp_path):
    v1 = scheduled(name)
    old = trained(scaled(v1) if wrapped else v1)
    rate = schedules_of(keras).ExponentialDecay(0.1, 3, 0.5)
    of_keras = make(keras, name, wrapped, rate=rate)
    _, new = restore_into(old, of_keras, tmp_path)
    assert_goes_on(new, old)

  @generations
  def test_the_sums_of_sgd(self, keras, tmp_path):
    """Checks that the caller must say what the rate of the next step is."""

    def of_keras():
      rate = schedules_of(keras).PiecewiseConstantDecay([2], [1.0, _RATE])
      return GENERATIONS[keras].SGD(rate, 0.9)

    old = trained(momentum_in_pieces)
    with pytest.raises(checkpoint.CheckpointError, match="give learning_rate"):
      restore_into(old, of_keras, tmp_path)
    report, new = restore_into(old, of_keras, tmp_path, learning_rate=_RATE)
    assert "-0.05" in str(report)
    assert_goes_on(new, old)


@generations
@pytest.mark.parametrize("wrapped", [False, True])
def test_nadam(wrapped, keras, tmp_path):
  """Checks that Nadam goes on as if Keras had done the steps before.

  `tf.contrib.opt.NadamOptimizer` saves what Adam saves, under Adam's names.
  """
  of_keras = make(keras, "nadam", wrapped)
  report, new = restore_into(trained(V1["adam"]), of_keras, tmp_path)
  (name,) = (
    n for n in report.bridged if n.endswith(("momentum_cache", "_u_product"))
  )
  assert report.bridged[name] == ""
  assert "computed" in report.proofs[name]
  same = KerasProgram(of_keras)
  same.train(0, _STEPS)
  for weight, value in zip(same.weights, new.weights):
    weight.assign(value)
  assert_goes_on(new, same)


@pytest.mark.skipif(k3 is None, reason="Keras 3 comes with TensorFlow 2.16")
def test_accumulation_is_refused(tmp_path):
  """Checks an optimizer that counts two steps for one of TensorFlow 1's."""
  of_keras = make("keras3", "adam", gradient_accumulation_steps=2)
  with pytest.raises(checkpoint.CheckpointError, match="accumulates gradients"):
    restore_into(trained(V1["adam"]), of_keras, tmp_path)


@generations
@pytest.mark.parametrize("name", ["amsgrad", "lion", "adafactor"])
def test_an_error_says_what_to_do(name, keras, tmp_path):
  module = GENERATIONS[keras]
  if name == "adafactor" and keras != "newer":
    pytest.skip("Keras 3's takes no variables with a scope; no legacy one is")
  if name == "lion" and (keras == "legacy" or not hasattr(module, "Lion")):
    pytest.skip("A later Keras has it")
  of_keras = {
    "amsgrad": make(keras, "adam", amsgrad=True),
    "lion": lambda: module.Lion(_RATE),
    "adafactor": lambda: module.Adafactor(_RATE),
  }[name]
  old = trained(momentum if name == "lion" else V1["adam"])
  with pytest.raises(checkpoint.CheckpointError) as caught:
    restore_into(old, of_keras, tmp_path)
  assert "missing='initialize'" in str(caught.value)
  report, new = restore_into(old, of_keras, tmp_path, missing="initialize")
  assert report.kept
  assert_near(new.weights, old.saved)


@generations
def test_a_loss_scale_starts_anew(keras, tmp_path):
  """Checks the initial value if the checkpoint has no loss scale."""
  old = trained(V1["adam"])

  def of_keras():
    made = make(keras, "adam")()
    if keras == "keras3":
      return k3.optimizers.LossScaleOptimizer(made, 2.0**9, 2)
    cls = k2.mixed_precision.LossScaleOptimizer
    return cls(made, initial_scale=2.0**9, dynamic_growth_steps=2)

  report, new = restore_into(old, of_keras, tmp_path)
  optimizer = new.optimizer
  scale = getattr(optimizer, "dynamic_scale", None)
  scale = optimizer.loss_scale if scale is None else scale
  assert float(np.asarray(scale)) == 2.0**9
  why = "the checkpoint has no loss scale for it"
  assert list(report.initialized.values()) == [why, why]
  assert_goes_on(new, old)


class Bert(train.Optimizer):
  """The rule of BERT's AdamWeightDecayOptimizer, without decay."""

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    updates = [] if global_step is None else [global_step.assign_add(1)]
    for grad, weight in grads_and_vars:
      grad = tf.convert_to_tensor(grad)
      name = weight.op.name
      m, v = (
        tf1.get_variable(
          f"{name}/adam_{part}",
          weight.shape,
          trainable=False,
          initializer=tf1.zeros_initializer(),
        )
        for part in "mv"
      )
      next_m = 0.9 * m + 0.1 * grad
      next_v = 0.999 * v + 0.001 * tf.square(grad)
      step = _RATE * next_m / (tf.sqrt(next_v) + 1e-6)
      updates += [
        weight.assign_sub(step),
        m.assign(next_m),
        v.assign(next_v),
      ]
    return tf.group(*updates)


def make_adam_w():
  kwargs = {"learning_rate": _RATE, "epsilon": 1e-6, "weight_decay": 0.0}
  return k2.optimizers.AdamW(**kwargs)


@pytest.mark.parametrize(
  "keras",
  [make_adam_w, lambda: legacy.Adam(_RATE, epsilon=1e-6, name="LAMB")],
  ids=["newer", "legacy"],
)
def test_bert(keras, tmp_path):
  old = Program(lambda: Bert(False, "Bert"))
  old.train(0, _STEPS)
  with old.graph.as_default():  # So that Keras's correction is over.
    step = tf1.train.get_global_step()
    old.session.run(step.assign(30000))
  report, new = restore_into(old, keras, tmp_path)
  assert "do not correct" in str(report)
  assert_goes_on(new, old)
  path = new.save(tmp_path / "back")
  back = Program(lambda: Bert(False, "Bert"))
  checkpoint.restore(back.session, path)
  assert_near(back.train(10, 15), old.train(10, 15))


def sgd(rate=_RATE, **kwargs):
  return legacy.SGD(rate, 0.9, **kwargs)


def test_a_name_of_the_users_is_mapped(tmp_path):
  """Checks that the slots of a mapping are converted."""
  old = Program(lambda: momentum(name="Mine"))
  old.train(0, _STEPS)
  with pytest.raises(checkpoint.CheckpointError, match="momentum"):
    restore_into(old, sgd, tmp_path)
  mapping = {f"SGD/{name}/momentum": f"{name}/Mine" for name in _SHAPES}
  _, new = restore_into(old, sgd, tmp_path, mapping=mapping)
  assert_goes_on(new, old)


@pytest.mark.parametrize(
  ("dtype", "rate", "wanted"),
  [
    ("float32", 1e-6, 4e-6),
    ("float16", 8.0, 32.0),
    ("float16", 6e4, 0),
  ],
)
def test_momentum_of_float16(dtype, rate, wanted, tmp_path):
  """Checks that a product is exact, and none that is too large is assigned."""
  half = {"w": [1.0], "w/Momentum": [4.0]}
  tensors = {n: tf.constant(v, tf.float16) for n, v in half.items()}
  tensors["global_step"] = tf.constant(3, tf.int64)
  tf.raw_ops.SaveV2(
    prefix=str(tmp_path / "old"),
    tensor_names=list(tensors),
    tensors=list(tensors.values()),
    shape_and_slices=[""] * 3,
  )
  w, optimizer = tf.Variable([0.0], dtype=dtype, name="w"), sgd(rate)
  optimizer.apply_gradients([(tf.zeros_like(w), w)])
  objects = {"w": w, "optimizer": optimizer}
  if wanted:
    checkpoint.restore(None, tmp_path / "old", objects, cast=True)
    assert optimizer.get_slot(w, "momentum").numpy() == np.float32(-wanted)
  else:
    with pytest.raises(checkpoint.CheckpointError, match="float16 cannot hold"):
      checkpoint.restore(None, tmp_path / "old", objects)
    assert w.numpy() == 0


@pytest.mark.parametrize(
  ("v1", "keras"),
  [
    ("adam", "adamax"),
    ("adamax", "adam"),
    ("adagrad", "ftrl"),
    ("momentum", "rmsprop"),
    ("rmsprop", "centered"),
  ],
)
def test_another_optimizer_is_refused(v1, keras, tmp_path):
  old, new = trained(V1[v1]), KerasProgram(make("legacy", keras))
  new.train(0, 1)
  before = [weight.numpy() for weight in new.weights]
  with pytest.raises(checkpoint.CheckpointError, match="OPTIMIZER_SLOT"):
    checkpoint.restore(None, old.save(tmp_path), new.objects)
  assert_near(new.weights, before)
  path = new.save(tmp_path)
  if keras == "centered":
    # The mean of gradients is not needed then.
    report = checkpoint.restore(old.program.session, path)
    assert "a/.OPTIMIZER_SLOT/optimizer/mg" in "".join(report.unused)
  else:
    with pytest.raises(checkpoint.CheckpointError, match="net/w"):
      checkpoint.restore(old.program.session, path)


def build(keras, optimizer, weights):
  """Makes an optimizer's slots, as the error about missing slots says."""
  if keras == "legacy":
    optimizer.apply_gradients([(tf.zeros_like(w), w) for w in weights])
  else:
    optimizer.build(weights)


class TestBeforeTheFirstStep:
  """Tests optimizers that have no slots when a checkpoint is restored."""

  @pytest.mark.parametrize("wrapped", [False, True])
  @pytest.mark.parametrize("name", ["momentum", "adam", "rmsprop_momentum"])
  @generations
  def test_variables(self, keras, name, wrapped, tmp_path):
    """Checks the error, and that training goes on after what the error says."""
    old = trained(V1[name])
    new = KerasProgram(make(keras, name, wrapped))
    # Keras's newer optimizers keep the list of variables that this asks for.
    tf.train.Checkpoint(**new.objects).write(str(tmp_path / "early"))
    path = old.save(tmp_path)
    with pytest.raises(checkpoint.CheckpointError, match="before its first"):
      checkpoint.restore(None, path, new.objects)
    assert_near(new.weights, initial())
    build(keras, new.optimizer, new.weights)
    report = checkpoint.restore(None, path, new.objects)
    assert "before its first" not in str(report)
    assert_goes_on(new, old)

  @pytest.mark.parametrize("given", ["both", "model"])
  @pytest.mark.parametrize("scaled", [False, True])
  @generations
  def test_a_compiled_model(self, keras, scaled, given, tmp_path):
    """Checks a model with a weight that its optimizer does not train."""
    x = np.random.RandomState(0).normal(size=(16, 4)).astype("f")
    y = x.sum(1, keepdims=True)

    with tf.Graph().as_default(), tf1.Session() as session:
      frozen = tf1.get_variable("frozen/kernel", [4, 8])
      last = tf1.get_variable("last/kernel", [8, 1])
      optimizer = momentum(0.01)
      if scaled:
        optimizer = tfl.MixedPrecisionLossScaleOptimizer(optimizer, "dynamic")
      step = train.get_or_create_global_step()
      loss = tf.reduce_mean((x @ frozen @ last - y) ** 2)
      update = optimizer.minimize(loss, step, [last])
      session.run(tf1.global_variables_initializer())
      for _ in range(_STEPS):
        session.run(update)
      path = train.Saver().save(session, str(tmp_path / "model"))
      for _ in range(_STEPS):
        session.run(update)
      wanted = session.run([last])
    module = k3 if keras == "keras3" else k2

    def dense(name, size, **kwargs):
      return module.layers.Dense(size, use_bias=False, name=name, **kwargs)

    model = module.Sequential(
      [
        module.layers.InputLayer((4,)),
        dense("frozen", 8, trainable=False),
        dense("last", 1),
      ],
      name="net",
    )
    optimizer = GENERATIONS[keras].SGD(0.01, 0.9)
    model.compile(wrap(keras, optimizer) if scaled else optimizer, "mse")
    build(keras, model.optimizer, model.trainable_variables)
    objects = {"model": model}
    if given == "both":
      objects["optimizer"] = model.optimizer
    names = ("frozen", "last")
    mapping = {f"net/{n}/kernel": f"{n}/kernel" for n in names}
    checkpoint.restore(
      None, path, objects, mapping=mapping if keras == "keras3" else None
    )
    for _ in range(_STEPS):
      model.train_on_batch(x, y)
    assert_near(map(np.asarray, model.trainable_variables), wanted)

  @generations
  def test_an_optimizer_without_slots(self, keras, tmp_path, caplog):
    old = trained(momentum)
    path = old.save(tmp_path)
    new = KerasProgram(make(keras, "momentum"))
    objects = new.objects | {"other": make(keras, "momentum")()}
    with pytest.raises(checkpoint.CheckpointError) as caught:
      checkpoint.restore(None, path, objects)
    assert "build(variables)" in str(caught.value)
    assert "missing='initialize'" in str(caught.value)
    assert_near(new.weights, initial())
    counter = "iter" if keras == "legacy" else "_iterations"
    mapping = {
      f"{name}/{counter}": "global_step" for name in ("optimizer", "other")
    }
    with caplog.at_level("WARNING", "absl"):
      report = checkpoint.restore(
        None, path, objects, missing="initialize", mapping=mapping
      )
    assert "has none before its first step" in str(report)
    assert "has none before its first step" in caplog.text
    assert_near(new.weights, old.saved)

  def test_replicas(self, tmp_path):
    """Checks that slots belong to the strategy of their variables."""
    old = trained(momentum)
    path = old.save(tmp_path)
    for keras in ("legacy", "newer"):
      strategy = tf.distribute.MirroredStrategy(["CPU:0"])
      with strategy.scope():
        new = KerasProgram(make(keras, "momentum"))
      with strategy.scope():
        if keras == "newer":
          new.optimizer.build(new.weights)
        else:
          strategy.run(new.train, (90, 91))
      checkpoint.restore(None, path, new.objects)
      with strategy.scope():
        strategy.run(new.train, (_STEPS, 2 * _STEPS))
      assert_near([w.numpy() for w in new.weights], old.wanted)


@pytest.mark.skipif(k3 is None, reason="Keras 3 comes with TensorFlow 2.16")
def test_loss_scale_of_keras_3(tmp_path):
  def make_v1():
    return tfl.MixedPrecisionLossScaleOptimizer(
      momentum(), tfl.DynamicLossScale(2.0**10, 4)
    )

  def make_keras():
    inner = k3.optimizers.SGD(_RATE, 0.9)
    return k3.optimizers.LossScaleOptimizer(inner, 2.0, 4)

  def scale_of(program):
    opt = program.optimizer
    if isinstance(program, KerasProgram):
      return float(opt.dynamic_scale.value), int(opt.step_counter.value)
    names = ["current_loss_scale:0", "good_steps:0"]
    found = {v.name: v for v in program.graph.get_collection("variables")}
    return tuple(program.session.run([found[name] for name in names]))

  old = Program(make_v1)
  old.train(0, _STEPS)
  _, new = restore_into(old, make_keras, tmp_path)
  assert scale_of(new) == scale_of(old) == (2.0**11, 1)
  assert_goes_on(new, old)
  back = Program(make_v1)
  checkpoint.restore(back.session, new.save(tmp_path))
  assert scale_of(back) == scale_of(old) == (2.0**12, 2)
  assert_near(back.train(10, 15), old.train(10, 15))


def test_weights_of_other_names(tmp_path):
  """Checks that slots go with the weights that a mapping names."""
  with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("tower/w", initializer=[1.0, 2.0], use_resource=True)
    step = train.get_or_create_global_step()
    update = momentum().minimize(tf.reduce_sum(w * w), step)
    session.run(tf1.global_variables_initializer())
    session.run(update)
    path = train.Saver().save(session, str(tmp_path / "model"))
    slot = session.run("tower/w/Momentum/Read/ReadVariableOp:0")
  weight = tf.Variable([0.0, 0.0], name="dense/kernel")
  optimizer = sgd()
  optimizer.apply_gradients([(tf.zeros([2]), weight)])
  objects = {"optimizer": optimizer, "w": weight}
  with pytest.raises(
    checkpoint.CheckpointError, match="it has other names for"
  ):
    checkpoint.restore(None, path, objects)
  checkpoint.restore(None, path, objects, mapping={"w": "tower/w"})
  got = optimizer.get_slot(weight, "momentum").numpy()
  assert_near([got], [-_RATE * slot])
  saved = tf.train.Checkpoint(**objects).save(str(tmp_path / "keras"))
  with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("tower/w", initializer=[1.0, 2.0], use_resource=True)
    step = train.get_or_create_global_step()
    optimizer = momentum()
    optimizer.minimize(tf.reduce_sum(w * w), step)
    for more in ({}, {"tower/w/Momentum": "SGD/dense/kernel/momentum"}):
      session.run(tf1.global_variables_initializer())
      mapping = {"tower/w": "dense/kernel"} | more
      checkpoint.restore(session, saved, mapping=mapping)
      got = session.run(optimizer.get_slot(w, "momentum"))
      assert_near([got], [slot])


class TestRates:
  """Tests which learning rate scales the slots of SGD."""

  def test_a_decay_in_keras(self, tmp_path):
    of_keras = functools.partial(sgd, 0.1, decay=1 / _STEPS)
    with pytest.raises(checkpoint.CheckpointError, match="give learning_rate"):
      restore_into(trained(momentum), of_keras, tmp_path)

  def test_a_schedule_is_not_saved(self, tmp_path):
    schedule = k2.optimizers.schedules.ExponentialDecay(_RATE, 100, 1.0)
    old = KerasProgram(lambda: sgd(schedule))
    old.train(0, _STEPS)
    new = trained(momentum).program
    path = old.save(tmp_path)
    with pytest.raises(checkpoint.CheckpointError, match="learning_rate"):
      checkpoint.restore(new.session, path)
    checkpoint.restore(new.session, path, learning_rate=_RATE)
    wanted = old.train(_STEPS, 2 * _STEPS)
    assert_near(new.train(_STEPS, 2 * _STEPS), wanted)

  @pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), 1e999, "1"])
  def test_mistakes(self, rate):
    with pytest.raises(ValueError, match="positive number"):
      checkpoint.restore(None, "x", learning_rate=rate)


def test_steps_that_nothing_tells(tmp_path):
  old = trained(V1["adam"], steps=False)
  adam = make("legacy", "adam")
  with pytest.raises(
    checkpoint.CheckpointError, match=r"optimizer/iter .*is not in it"
  ):
    restore_into(old, adam, tmp_path)
  mapping = {"optimizer/iter": None}
  _, new = restore_into(old, adam, tmp_path, mapping=mapping)
  new.optimizer.iterations.assign(_STEPS)
  assert_goes_on(new, old)


@generations
def test_other_names_are_listed_to_paste(keras, tmp_path):
  """Checks that the mapping of the message is right, and can be pasted."""
  old = trained(V1["adam"])
  path = old.save(tmp_path)
  weights = [
    tf.Variable(tf.zeros(shape), name=name.replace("net", "model/net"))
    for name, shape in _SHAPES.items()
  ]
  optimizer = make(keras, "adam")()
  build(keras, optimizer, weights)
  objects = {"optimizer": optimizer, "weights": weights}
  with pytest.raises(checkpoint.CheckpointError) as caught:
    checkpoint.restore(None, path, objects)
  _, *lines = str(caught.value).splitlines()
  assert lines == [
    "mapping={",
    "  'model/net/w': 'net/w',",
    "  'model/net/embedding': 'net/embedding',",
    "}",
  ]
  mapping = eval("dict(" + "\n".join(lines) + ")")["mapping"]
  checkpoint.restore(None, path, objects, mapping=mapping)
  assert_near(weights, old.saved)
