# SPDX-License-Identifier: Apache-2.0
"""Tests slots of TensorFlow 1 in Keras and back: training goes on as it did."""

from __future__ import annotations

import helpers
import numpy as np
import pytest
from saved_graphs import save_tensors
from slot_programs import assert_goes_on
from slot_programs import assert_near
from slot_programs import build
from slot_programs import EagerProgram
from slot_programs import initial
from slot_programs import momentum
from slot_programs import Program
from slot_programs import RATE
from slot_programs import scaled
from slot_programs import SHAPES
from slot_programs import STEPS
from slot_programs import TINY
from slot_programs import trained
from slot_programs import V1
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.keras import _keras2

tf1 = tf.compat.v1
train = tf1.train
k2 = _keras2.keras
legacy = k2.optimizers.legacy
if helpers.RELEASE >= (2, 16):
  import keras as k3
else:
  k3 = None


# Keras's optimizers, with the rules of `V1`.
KERAS = {
  "plain": lambda k: k.SGD(RATE),
  "momentum": lambda k, rate=RATE: k.SGD(rate, 0.9),
  "nesterov": lambda k: k.SGD(RATE, 0.9, nesterov=True),
  "rmsprop": lambda k: k.RMSprop(RATE, 0.8, epsilon=TINY),
  "rmsprop_momentum": lambda k: k.RMSprop(RATE, 0.8, 0.7, 0.1),
  "centered": lambda k: k.RMSprop(RATE, 0.8, 0.0, TINY, centered=True),
  "centered_momentum": lambda k: k.RMSprop(RATE, 0.8, 0.7, 0.1, centered=True),
  "adagrad": lambda k: k.Adagrad(RATE, 0.3, epsilon=TINY),
  "adadelta": lambda k: k.Adadelta(RATE, 0.8, 1e-3),
  "ftrl": lambda k: k.Ftrl(
    RATE, -0.5, 0.2, 0.01, 0.02, l2_shrinkage_regularization_strength=0.1
  ),
  "adam": lambda k, rate=RATE, **more: k.Adam(
    rate, 0.8, 0.99, epsilon=1e-8, **more
  ),
  "adamax": lambda k: k.Adamax(RATE, 0.8, 0.99, epsilon=1e-8),
  "nadam": lambda k: k.Nadam(RATE, 0.8, 0.99),
}


GENERATIONS = {
  "legacy": legacy,
  "newer": k2.optimizers,
  "keras3": k3 and k3.optimizers,
}
needs_keras_3 = pytest.mark.skipif(
  k3 is None, reason="Keras 3 comes with TensorFlow 2.16"
)
generations = pytest.mark.parametrize(
  "keras",
  [
    pytest.param(name, marks=[needs_keras_3] * (name == "keras3"))
    for name in GENERATIONS
  ],
)


def make(keras, name, wrapped=False, **kwargs):
  """Returns a function that makes an optimizer of `KERAS`, for a generation."""

  def of_keras():
    made = KERAS[name](GENERATIONS[keras], **kwargs)
    return wrap(keras, made) if wrapped else made

  return of_keras


def wrap(keras, optimizer):
  """Returns an optimizer with its Keras's loss scale."""
  if keras == "keras3":
    return k3.optimizers.LossScaleOptimizer(optimizer)
  return k2.mixed_precision.LossScaleOptimizer(optimizer)


def restore_into(old, make, folder, **kwargs):
  """Restores a program into one of Keras; returns the report and Keras's."""
  new = EagerProgram(make)
  new.train(90, 92)
  return checkpoint.restore(None, old.save(folder), new.objects, **kwargs), new


def get_scale(optimizer):
  """Returns Keras's loss scale, and the good steps that it counts."""
  if isinstance(optimizer, k2.mixed_precision.LossScaleOptimizer):
    return float(optimizer.loss_scale), int(optimizer.dynamic_counter)
  return float(optimizer.dynamic_scale), int(optimizer.step_counter)


kinds = pytest.mark.parametrize(
  ("name", "wrapped"),
  [(name, False) for name in V1] + [("momentum", True), ("adamax", True)],
)


@generations
@kinds
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
  if wrapped:
    assert get_scale(new.optimizer) == (2.0**11, 1)
  assert_goes_on(new, old)


@generations
@kinds
def test_tensorflow_1_goes_on(name, wrapped, keras, tmp_path):
  old = EagerProgram(make(keras, name, wrapped))
  old.train(0, STEPS)
  path = old.save(tmp_path)
  new = trained(scaled(V1[name]) if wrapped else V1[name]).program
  with new.graph.as_default():
    saver = checkpoint.Saver()
    saver.restore(new.session, path)
    if wrapped:
      state = [v.read_value() for v in new.optimizer.variables()[-2:]]
      assert new.session.run(state) == [2.0**15, STEPS]
  assert_goes_on(new, old)
  assert new.session.run(tf1.train.get_global_step(new.graph)) == 2 * STEPS
  report = saver.last_report
  assert report.bridged["global_step"].startswith("optimizer/")
  assert set(report.initialized) == (
    {f"{n}/RMSProp_{2 if name == 'centered' else 1}" for n in SHAPES}
    if name in ("rmsprop", "centered")
    else set()
  )


def adam_with_a_schedule():
  step = train.get_or_create_global_step()
  return V1["adam"](train.exponential_decay(0.1, step, 3, 0.5))


def momentum_in_pieces():
  """Makes an optimizer whose learning rate has another value at first."""
  step = train.get_or_create_global_step()
  return momentum(train.piecewise_constant(step, [2], [1.0, RATE]))


@generations
def test_a_schedule(keras, tmp_path):
  """Checks that the caller must say what the next rate of SGD is."""
  schedules = (k3 if keras == "keras3" else k2).optimizers.schedules
  rate = schedules.ExponentialDecay(0.1, 3, 0.5)
  old = trained(adam_with_a_schedule)
  _, new = restore_into(old, make(keras, "adam", rate=rate), tmp_path)
  assert_goes_on(new, old)
  rate = schedules.PiecewiseConstantDecay([2], [1.0, RATE])
  old, of_keras = (
    trained(momentum_in_pieces),
    make(keras, "momentum", rate=rate),
  )
  with pytest.raises(checkpoint.CheckpointError, match="give learning_rate"):
    restore_into(old, of_keras, tmp_path)
  report, new = restore_into(old, of_keras, tmp_path, learning_rate=RATE)
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
  same = EagerProgram(of_keras)
  same.train(0, STEPS)
  for weight, value in zip(same.weights, new.weights):
    weight.assign(value)
  assert_goes_on(new, same)


@needs_keras_3
def test_accumulation_is_refused(tmp_path):
  """Checks an optimizer that counts two steps for one of TensorFlow 1's."""
  of_keras = make("keras3", "adam", gradient_accumulation_steps=2)
  with pytest.raises(checkpoint.CheckpointError, match="accumulates gradients"):
    restore_into(trained(V1["adam"]), of_keras, tmp_path)


@generations
@pytest.mark.parametrize("name", ["amsgrad", "adagrad"])
def test_an_error_says_what_to_do(name, keras, tmp_path):
  """Checks a slot that TensorFlow 1 lacks, and another optimizer's."""
  old, of_keras = trained(momentum), make(keras, "adagrad")
  if name == "amsgrad":
    old, of_keras = trained(V1["adam"]), make(keras, "adam", amsgrad=True)
  with pytest.raises(checkpoint.CheckpointError, match="missing='initialize'"):
    restore_into(old, of_keras, tmp_path)
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
  assert get_scale(new.optimizer) == (2.0**9, 0)
  why = "the checkpoint has no loss scale for it"
  assert list(report.initialized.values()) == [why, why]
  assert_goes_on(new, old)


@needs_keras_3
def test_two_loss_scales_are_candidates(tmp_path):
  scale = {"current_loss_scale": np.float32(8), "good_steps": np.int64(1)}
  values = {f"{s}/{name}": v for s in "gh" for name, v in scale.items()}
  more = {"global_step": np.int64(3)} | dict(zip(SHAPES, initial()))
  path = save_tensors(tmp_path, values | more)
  new = EagerProgram(make("keras3", "plain", True))
  new.build()
  with pytest.raises(checkpoint.CheckpointError, match=r"h/good.*: \.\.\."):
    checkpoint.restore(None, path, new.objects)
  here = ["optimizer/dynamic_scale", "optimizer/step_counter"]
  checkpoint.restore(None, path, new.objects, mapping=dict(zip(here, values)))
  assert get_scale(new.optimizer) == (8, 1)


@needs_keras_3
def test_the_wrappers_own_counter(tmp_path):
  """Checks that the optimizer inside gets its own steps, by name, too."""
  new = EagerProgram(make("keras3", "adam", True))
  new.build()
  inner = new.optimizer.inner_optimizer
  inner.iterations.assign(3)
  values = {v.path: v.numpy() for v in new.optimizer.variables}
  path = save_tensors(tmp_path, values | dict(zip(SHAPES, initial())))
  inner.iterations.assign(0)
  checkpoint.restore(None, path, new.objects)
  assert int(inner.iterations) == 3


class Bert(train.Optimizer):
  """The rule of BERT's AdamWeightDecayOptimizer, without decay."""

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    updates = [] if global_step is None else [global_step.assign_add(1)]
    for grad, weight in grads_and_vars:
      grad, zeros = tf.convert_to_tensor(grad), tf.zeros(weight.shape)
      m, v = (
        tf1.get_variable(
          f"{weight.op.name}/adam_{part}", initializer=zeros, trainable=False
        )
        for part in "mv"
      )
      next_m = 0.9 * m + 0.1 * grad
      next_v = 0.999 * v + 0.001 * tf.square(grad)
      step = RATE * next_m / (tf.sqrt(next_v) + 1e-6)
      updates += [m.assign(next_m), v.assign(next_v), weight.assign_sub(step)]
    return tf.group(*updates)


@pytest.mark.parametrize(
  "keras",
  [
    lambda: k2.optimizers.AdamW(RATE, epsilon=1e-6, weight_decay=0.0),
    lambda: legacy.Adam(RATE, epsilon=1e-6, name="LAMB"),
  ],
  ids=["newer", "legacy"],
)
def test_bert(keras, tmp_path):
  old = Program(lambda: Bert(False, "Bert"))
  old.train(0, STEPS)
  with old.graph.as_default():  # So that Keras's correction is over.
    step = tf1.train.get_global_step()
    old.session.run(step.assign(30000))
  _, new = restore_into(old, keras, tmp_path)
  assert_goes_on(new, old)
  path = new.save(tmp_path / "back")
  back = Program(lambda: Bert(False, "Bert"))
  checkpoint.restore(back.session, path)
  assert_near(back.train(10, 15), old.train(10, 15))


def sgd(rate=RATE, **kwargs):
  return legacy.SGD(rate, 0.9, **kwargs)


def test_a_name_of_the_users_is_mapped(tmp_path):
  """Checks that the slots of a mapping are converted."""
  old = Program(lambda: momentum(name="Mine"))
  old.train(0, STEPS)
  with pytest.raises(checkpoint.CheckpointError, match="momentum"):
    restore_into(old, sgd, tmp_path)
  mapping = {f"SGD/{name}/momentum": f"{name}/Mine" for name in SHAPES}
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
  values = {"w": np.float16([1.0]), "w/Momentum": np.float16([4.0])}
  path = save_tensors(tmp_path, values | {"global_step": np.int64(3)})
  w, optimizer = tf.Variable([0.0], dtype=dtype, name="w"), sgd(rate)
  optimizer.apply_gradients([(tf.zeros_like(w), w)])
  objects = {"w": w, "optimizer": optimizer}
  if wanted:
    checkpoint.restore(None, path, objects, cast=True)
    assert optimizer.get_slot(w, "momentum").numpy() == np.float32(-wanted)
  else:
    with pytest.raises(checkpoint.CheckpointError, match="float16 cannot hold"):
      checkpoint.restore(None, path, objects)
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
  old, new = trained(V1[v1]), EagerProgram(make("legacy", keras))
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


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", ["momentum", "adam", "rmsprop_momentum"])
@generations
def test_before_the_first_step(keras, name, wrapped, tmp_path):
  """Checks the error, and that training goes on after what the error says."""
  old = trained(V1[name])
  new = EagerProgram(make(keras, name, wrapped))
  # Keras's newer optimizers keep the list of variables that this asks for.
  tf.train.Checkpoint(**new.objects).write(str(tmp_path / "early"))
  path = old.save(tmp_path)
  with pytest.raises(checkpoint.CheckpointError, match="before its first"):
    checkpoint.restore(None, path, new.objects)
  assert_near(new.weights, initial())
  report = checkpoint.restore(None, path, new.objects, missing="initialize")
  assert "went to no optimizer" in str(report)
  assert_near(new.weights, old.saved)
  new.build()
  report = checkpoint.restore(None, path, new.objects)
  assert not report.notes
  assert_goes_on(new, old)


@pytest.mark.parametrize("wrapped", [False, True])
@generations
def test_a_compiled_model(keras, wrapped, tmp_path):
  """Checks a model with a weight that its optimizer does not train."""
  x = np.random.RandomState(0).normal(size=(16, 4)).astype("f")
  y = x.sum(1, keepdims=True)
  with tf.Graph().as_default(), tf1.Session() as session:
    frozen = tf1.get_variable("frozen/kernel", [4, 8])
    last = tf1.get_variable("last/kernel", [8, 1])
    step = train.get_or_create_global_step()
    loss = tf.reduce_mean((x @ frozen @ last - y) ** 2)
    optimizer = scaled(momentum) if wrapped else momentum
    update = optimizer().minimize(loss, step, [last])
    session.run(tf1.global_variables_initializer())
    for _ in range(STEPS):
      session.run(update)
    path = train.Saver().save(session, str(tmp_path / "model"))
    for _ in range(STEPS):
      session.run(update)
    wanted = session.run([last])
  module, kwargs = (k3 if keras == "keras3" else k2), {"use_bias": False}
  layers = module.layers
  model = module.Sequential(
    [
      layers.InputLayer((4,)),
      layers.Dense(8, name="frozen", trainable=False, **kwargs),
      layers.Dense(1, name="last", **kwargs),
    ],
    name="net",
  )
  model.compile(make(keras, "momentum", wrapped)(), "mse")
  build(model.optimizer, model.trainable_variables)
  mapping = {f"net/{n}/kernel": f"{n}/kernel" for n in ("frozen", "last")}
  checkpoint.restore(
    None,
    path,
    {"model": model},
    mapping=mapping if keras == "keras3" else None,
  )
  for _ in range(STEPS):
    model.train_on_batch(x, y)
  assert_near(map(np.asarray, model.trainable_variables), wanted)


@pytest.mark.parametrize(
  ("name", "keras"),
  [
    ("momentum", "v1"),
    ("adam", "v1"),
    ("momentum", "legacy"),
    ("momentum", "newer"),
  ],
)
def test_replicas(name, keras, tmp_path):
  """Checks slots that a function made on replicas, or `build`."""
  old = trained(V1[name])
  strategy = tf.distribute.MirroredStrategy(["CPU:0"])
  with strategy.scope():
    new = EagerProgram(scaled(V1[name]) if keras == "v1" else make(keras, name))
    if keras == "newer":
      new.build()
  take_steps = tf.function(
    lambda *args: strategy.run(new.take_steps, args), autograph=False
  )
  if keras != "newer":
    take_steps(90, 91)
  report = checkpoint.restore(None, old.save(tmp_path), new.objects)
  assert not report.notes
  take_steps(STEPS, 2 * STEPS)
  assert_near([weight.numpy() for weight in new.weights], old.wanted)


def test_a_rate_that_is_not_saved(tmp_path):
  """Checks a decay and a schedule: the caller must say what the rate is."""
  old = trained(momentum)
  with pytest.raises(checkpoint.CheckpointError, match="give learning_rate"):
    restore_into(old, lambda: sgd(0.1, decay=1 / STEPS), tmp_path)
  schedule = k2.optimizers.schedules.ExponentialDecay(RATE, 100, 1.0)
  keras = EagerProgram(lambda: sgd(schedule))
  keras.train(0, STEPS)
  path, new = keras.save(tmp_path), old.program
  with pytest.raises(checkpoint.CheckpointError, match="learning_rate"):
    checkpoint.restore(new.session, path)
  checkpoint.restore(new.session, path, learning_rate=RATE)
  assert_goes_on(new, keras)
  for rate in (0.0, -1.0, float("nan"), 1e999, "1"):
    with pytest.raises(ValueError, match="positive number"):
      checkpoint.restore(None, "x", learning_rate=rate)


def test_steps_that_nothing_tells(tmp_path):
  old = trained(V1["adam"], False)
  adam = make("legacy", "adam")
  with pytest.raises(
    checkpoint.CheckpointError, match=r"optimizer/iter .*is not in it"
  ):
    restore_into(old, adam, tmp_path)
  mapping = {"optimizer/iter": None}
  _, new = restore_into(old, adam, tmp_path, mapping=mapping)
  new.optimizer.iterations.assign(STEPS)
  assert_goes_on(new, old)


@generations
def test_weights_of_other_names(keras, tmp_path):
  """Checks that the error has a mapping to paste, and slots go with weights."""
  old = trained(momentum)
  path = old.save(tmp_path)
  new = EagerProgram(make(keras, "momentum"), scope="model/")
  new.build()
  with pytest.raises(
    checkpoint.CheckpointError, match="it has other names for"
  ) as caught:
    checkpoint.restore(None, path, new.objects)
  _, *lines = str(caught.value).splitlines()
  assert lines == [
    "mapping={",
    "  'model/net/w': 'net/w',",
    "  'model/net/embedding': 'net/embedding',",
    "}",
  ]
  mapping = eval("dict(" + "\n".join(lines) + ")")["mapping"]
  checkpoint.restore(None, path, new.objects, mapping=mapping)
  saved = new.save(tmp_path)
  assert_goes_on(new, old)
  back = {there: here for here, there in mapping.items()}
  checkpoint.restore(old.program.session, saved, mapping=back)
  assert_goes_on(old.program, old)
