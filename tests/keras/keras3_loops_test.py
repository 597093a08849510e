# SPDX-License-Identifier: Apache-2.0
"""Tests Keras 2's methods on Keras 3's LossScaleOptimizer, in own loops."""

import copy
import gc
import pickle
import threading

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

pytestmark = helpers.NEEDS_KERAS_3
if helpers.RELEASE >= (2, 16):
  import keras as k3
_X, _Y = np.ones((4, 2), "f"), np.full((4, 1), 3.0, "f")
_FACTORS = (1.0, 1.0, np.inf, 1.0, np.nan, 1.0)


def own(inner=None, scale=8.0, growth=2):
  inner = k3.optimizers.SGD(0.25, momentum=0.5) if inner is None else inner
  return tfl.keras.Keras3LossScaleOptimizer(inner, scale, growth)


def theirs():
  inner = k3.optimizers.SGD(0.25, momentum=0.5)
  return k3.optimizers.LossScaleOptimizer(inner, 8.0, 2)


def step_of(optimizer, variables, of_keras_2, way):
  """Returns a function that does a step, given the gradient's factor."""

  def compute(factor):
    with tf.GradientTape() as tape:
      values = [tf.convert_to_tensor(v) for v in variables]
      tape.watch(values)
      loss = tf.add_n([tf.reduce_sum(v * v) for v in values])
      if of_keras_2:
        scaled = optimizer.get_scaled_loss(loss)
      else:
        scaled = optimizer.scale_loss(loss)
    grads = [grad * factor for grad in tape.gradient(scaled, values)]
    if of_keras_2:
      grads = optimizer.get_unscaled_gradients(grads)
    return grads

  def apply(grads):
    optimizer.apply_gradients(zip(grads, variables))

  if way == "split":
    apply = tf.function(apply)
    compute = tf.function(compute)

  def step(factor):
    apply(compute(factor))

  return tf.function(step) if way == "function" else step


def run(optimizer, of_keras_2, way, factors=_FACTORS):
  variables = [k3.Variable([1.0, 2.0]), k3.Variable(3.0)]
  optimizer.build(variables)
  step = step_of(optimizer, variables, of_keras_2, way)
  rows = []
  for factor in factors:
    step(tf.constant(factor))
    state = (*variables, *optimizer.variables)
    rows.append([k3.ops.convert_to_numpy(v).tolist() for v in state])
  return rows


@pytest.mark.parametrize("way", ["eager", "function", "split"])
def test_the_steps_are_those_of_keras_3(way):
  wanted = run(theirs(), False, "function")
  assert wanted[0] != wanted[1] and wanted[1][:2] == wanted[2][:2]
  assert run(own(), True, way) == wanted
  assert run(own(), False, way) == wanted


def test_a_step_that_is_traced_again():
  optimizer = own()
  variables = [k3.Variable([1.0, 2.0])]
  step = step_of(optimizer, variables, True, "split")
  model = k3.Sequential([k3.Input((2,)), k3.layers.Dense(1)])
  other = own(k3.optimizers.SGD(0.0))
  model.compile(other, "mse")
  model.fit(_X, _Y, verbose=0)
  step(tf.constant(0.5))
  step(tf.constant([0.5, 1.0]))  # Another shape.
  assert variables[0].numpy().tolist() == [0.4375, 0.5]


def test_fit_and_an_own_loop_take_turns():
  model = k3.Sequential([k3.Input((2,)), k3.layers.Dense(1, use_bias=False)])
  model.set_weights([np.ones((2, 1), "f")])
  model.compile(own(k3.optimizers.SGD(0.125)), "mse")
  optimizer = model.optimizer
  kernel = model.trainable_variables

  def loop():
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean((model(_X, training=True) - _Y) ** 2)
      loss = optimizer.get_scaled_loss(loss)
    grads = tape.gradient(loss, [v.value for v in kernel])
    grads = optimizer.get_unscaled_gradients(grads)
    optimizer.apply_gradients(zip(grads, kernel))

  seen = []
  in_function = tf.function(loop)
  fit = lambda: model.fit(_X, _Y, batch_size=4, verbose=0)  # noqa: E731
  for act in (fit, loop, in_function, fit, in_function, loop):
    act()
    seen.append(float(kernel[0][0, 0]))
  # Half of the distance to 1.5 remains after each step.
  assert seen == [1.5 - 0.5 * 0.5 ** (i + 1) for i in range(6)]
  assert int(optimizer.iterations) == 6
  model.compile(own(k3.optimizers.SGD(0.125)), "mse", run_eagerly=True)
  fit()
  assert float(kernel[0][0, 0]) == 1.5 - 0.5**8


def parts(optimizer, variable, of_keras_2=True):
  """Returns functions that compute and that apply gradients of 2 and 4."""

  def compute():
    if of_keras_2:
      return optimizer.get_unscaled_gradients([tf.constant([16.0, 32.0])])
    return [optimizer.scale_loss(tf.constant([2.0, 4.0]))]

  def apply(grads):
    variable.assign([1.0, 2.0])
    optimizer.apply_gradients(zip(grads, [variable]))
    return tf.convert_to_tensor(variable)

  return compute, apply


def built():
  optimizer = own(k3.optimizers.SGD(0.25), growth=100)
  variable = k3.Variable([1.0, 2.0])
  optimizer.build([variable])
  return [
    parts(optimizer, variable, of_keras_2) for of_keras_2 in (True, False)
  ]


ambiguous = pytest.raises(
  RuntimeError,
  match=r"'loss_scale_optimizer\w*' cannot know [\s\S]* in one tf\.function",
)


@pytest.mark.parametrize("ours_first", [True, False])
def test_gradients_of_a_function_that_eager_code_applies(ours_first):
  both = built()
  (compute, apply), (other, _) = both if ours_first else both[::-1]
  compute = tf.function(compute)
  for _ in range(2):
    assert apply(compute()).numpy().tolist() == [0.5, 1.0]
  grads = other()
  gc.collect()
  with ambiguous:
    apply(grads)
  with ambiguous:
    apply(compute())


def test_a_function_that_applies_what_others_compute():
  (ours, apply), (theirs, _) = built()
  apply = tf.function(apply)
  assert apply(ours()).numpy().tolist() == [0.5, 1.0]
  assert apply(tf.function(ours)()).numpy().tolist() == [0.5, 1.0]
  gc.collect()
  for compute in (theirs, tf.function(theirs)):
    with ambiguous:
      compute()
  (ours, apply), _ = built()
  tf.function(apply).get_concrete_function([tf.TensorSpec([2])])
  apply = tf.function(apply)
  apply([tf.constant([8.0, 8.0])])
  with ambiguous:
    tf.function(ours)()


def test_both_ways_each_in_its_function():
  (ours, apply), (theirs, _) = built()

  @tf.function
  def in_loop():
    grads = [tf.zeros([2])]
    for i in tf.range(2):
      if i >= 0:
        grads = [grads[0] + ours()[0] / 2]
    return apply(grads) + 0 * apply(grads)

  nested = tf.function(ours)
  acts = [
    in_loop,
    tf.function(lambda: apply(theirs())),
    tf.function(lambda: apply(nested())),
    tf.function(lambda: apply(tf.function(theirs)())),
    tf.function(lambda: apply(ours())),
  ]
  for act in acts * 2:
    assert act().numpy().tolist() == [0.5, 1.0]


def test_both_ways_eagerly():
  (ours, apply), (theirs, _) = built()
  for compute in (ours, theirs) * 2:
    grads = compute()
    for _ in range(2):
      assert apply(grads).numpy().tolist() == [0.5, 1.0]
  grads = ours()
  thread = threading.Thread(target=theirs)
  thread.start()
  thread.join()
  with pytest.raises(RuntimeError, match="cannot know whether its gradients"):
    apply(grads)


def test_replicas():
  strategy = helpers.two_replicas()

  def run_steps(make, of_keras_2):
    with strategy.scope():
      optimizer = make()
      variable = k3.Variable([1.0, 2.0])
      optimizer.build([variable])

    def of_replica(factor):
      grads = [tf.constant([8.0, 16.0]) * factor]
      if of_keras_2:
        optimizer.get_scaled_loss(tf.constant(1.0))
        grads = optimizer.get_unscaled_gradients(grads)
      optimizer.apply(grads, [variable])

    step = tf.function(lambda factor: strategy.run(of_replica, (factor,)))
    for factor in _FACTORS:
      step(tf.constant(factor))
      state = (variable, optimizer.dynamic_scale, optimizer.step_counter)
      yield [k3.ops.convert_to_numpy(v).tolist() for v in state]

  rows = list(run_steps(theirs, False))
  assert rows == list(run_steps(own, True))
  assert rows[0] != rows[1]


def test_checkpoints_are_those_of_keras_3(tmp_path):
  first = own()
  variables = [k3.Variable([1.0])]
  first.build(variables)
  first.apply(first.get_unscaled_gradients([tf.constant([8.0])]), variables)
  first.apply([tf.constant([np.inf])], variables)
  path = tf.train.Checkpoint(optimizer=first).save(str(tmp_path / "c"))
  names = [name for name, _ in tf.train.list_variables(path)]
  for again in (own(), theirs()):
    again.build([k3.Variable([1.0])])
    checkpoint = tf.train.Checkpoint(optimizer=again)
    checkpoint.restore(path).assert_consumed()
    assert float(again.dynamic_scale) == 4.0
    assert int(again.iterations) == 1
    other = checkpoint.save(str(tmp_path / "d"))
    assert [name for name, _ in tf.train.list_variables(other)] == names


def test_configs_and_copies():
  optimizer = own(k3.optimizers.SGD(0.25))
  saved = k3.saving.serialize_keras_object(optimizer)
  place = saved["module"], saved["class_name"]
  assert place == ("keras.optimizers", "LossScaleOptimizer")
  assert type(k3.saving.deserialize_keras_object(saved)) is type(theirs())
  for again in (
    type(optimizer).from_config(optimizer.get_config()),
    copy.deepcopy(optimizer),
    pickle.loads(pickle.dumps(optimizer)),
  ):
    assert type(again) is type(optimizer) and again.initial_scale == 8.0
    assert again.dynamic_growth_steps == optimizer.dynamic_growth_steps
    variable = k3.Variable([1.0])
    again.build([variable])
    grads = again.get_unscaled_gradients([tf.constant([8.0])])
    again.apply(grads, [variable])
    assert variable.numpy().tolist() == [0.75]


def test_losses_and_gradients_of_all_kinds():
  optimizer = own(scale=4.0)
  assert float(optimizer.get_scaled_loss(lambda: tf.constant(2.0))()) == 8.0
  slices = tf.IndexedSlices(
    tf.constant([[4.0]]), tf.constant([1]), tf.constant([2, 1])
  )
  variable = k3.Variable([1.0, 1.0], dtype="float16")
  grads = optimizer.get_unscaled_gradients(
    [slices, None, tf.constant([2**-14, 2**-24], tf.float16)]
  )
  assert isinstance(grads[0], tf.IndexedSlices) and grads[1] is None
  assert grads[0].values.numpy().tolist() == [[1.0]]
  assert grads[2].numpy().tolist() == [2**-16, 2**-26]
  optimizer = own(k3.optimizers.SGD(0.5), 4.0)
  rows = k3.Variable([[1.0], [2.0]])
  grads = optimizer.get_unscaled_gradients([slices, tf.zeros([2], tf.float16)])
  optimizer.apply(grads, [rows, variable])
  assert rows.numpy().tolist() == [[1.0], [1.5]]


def test_attributes_of_the_inner_optimizer():
  inner = k3.optimizers.Adam(0.5, beta_1=0.75)
  optimizer = own(inner)
  assert optimizer.beta_1 == 0.75
  optimizer.learning_rate = 0.25
  assert float(inner.learning_rate) == 0.25
  assert float(optimizer.learning_rate) == 0.25
  text = "'LossScaleOptimizer' object has no attribute 'lr', and the Adam"
  with pytest.raises(AttributeError, match=text):
    optimizer.lr  # noqa: B018


def test_what_cannot_be_wrapped():
  sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1)
  for inner in ("sgd", k3.optimizers.SGD, sgd):
    with pytest.raises(TypeError, match="must be an optimizer of Keras 3"):
      own(inner)
  with pytest.raises(TypeError, match="cannot wrap another"):
    own(own())
