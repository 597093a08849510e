# SPDX-License-Identifier: Apache-2.0
"""Tests that slots of TensorFlow 1 are restored by name, eagerly."""

from __future__ import annotations

import contrib_rules
import numpy as np
from object_models import WRAPPERS
import pytest
import tensorflow as tf

from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1
train = tf1.train
_STEPS = 4

OPTIMIZERS = {
  "momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
  "adam": lambda: train.AdamOptimizer(0.1),
  "rmsprop": lambda: train.RMSPropOptimizer(0.1, momentum=0.5),
  "centered": lambda: train.RMSPropOptimizer(0.1, momentum=0.5, centered=True),
  "adagrad": lambda: train.AdagradOptimizer(0.1, 0.3),
  "adadelta": lambda: train.AdadeltaOptimizer(1.0),
  "ftrl": lambda: train.FtrlOptimizer(0.1),
  "adamax": lambda: contrib_rules.AdaMaxOptimizer(0.1),
}


def loss_of(weights):
  return tf.add_n([tf.reduce_sum(w * w * w) for w in weights])


def run_old(make, folder, scope=None, several=False):
  """Trains in a session; returns the checkpoint, and weights after more steps.

  Args:
    make: Makes the optimizer; with `several`, a list of one for each weight.
    folder: The folder to save in.
    scope: The variable scope of the updates.
    several: Whether each weight has an optimizer of its own.
  """
  with tf.Graph().as_default(), tf1.Session() as session:
    weights = [
      tf1.get_variable(name, initializer=value, use_resource=True)
      for name, value in (("net/a", [1.0, 2.0]), ("net/b", [[0.5]]))
    ]
    made = make() if several else [make()]
    trained = [[w] for w in weights] if several else [weights]
    with tf1.variable_scope(scope or tf1.get_variable_scope()):
      step = tf.group(
        *(o.minimize(loss_of(v), None, v) for o, v in zip(made, trained))
      )
    session.run(tf1.global_variables_initializer())
    for _ in range(_STEPS):
      session.run(step)
    path = train.Saver().save(session, str(folder / "model"))
    for _ in range(_STEPS):
      session.run(step)
    return path, session.run(weights)


def make_weights():
  return [
    tf.Variable([0.0, 0.0], name="net/a"),
    tf.Variable([[0.0]], name="net/b"),
  ]


def take_steps(optimizer, weights):
  for _ in range(_STEPS):
    optimizer.minimize(lambda: loss_of(weights), var_list=weights)


def train_on(optimizer, weights):
  take_steps(optimizer, weights)
  return [weight.numpy() for weight in weights]


def assert_near(got, wanted):
  for one, other in zip(got, wanted, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def build(optimizer, weights):
  """Makes an optimizer's slots, as the error about missing slots says."""
  optimizer.apply_gradients([(tf.zeros_like(w), w) for w in weights])


def make_objects(weights, **optimizers):
  return {"a": weights[0], "b": weights[1], **optimizers}


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("there", ["plain", "dynamic"])
@pytest.mark.parametrize(
  ("name", "here"),
  [(name, "plain") for name in OPTIMIZERS]
  + [("momentum", here) for here in WRAPPERS if here != "plain"]
  + [("adam", "dynamic"), ("adam", "contrib")],
)
def test_training_goes_on(name, here, there, steps, tmp_path, caplog):
  """Checks all optimizers after steps, and after what the error says."""
  path, wanted = run_old(lambda: WRAPPERS[there](OPTIMIZERS[name]()), tmp_path)
  optimizer = WRAPPERS[here](OPTIMIZERS[name]())
  weights = make_weights()
  objects = make_objects(weights, optimizer=optimizer)
  if steps:
    train_on(optimizer, weights)
  else:
    with pytest.raises(checkpoint.CheckpointError, match="before its first"):
      checkpoint.restore(None, path, objects)
    assert_near(weights, make_weights())
    build(optimizer, weights)
  with caplog.at_level("WARNING", "absl"):
    report = checkpoint.restore(None, path, objects)
  assert not report.notes and "went to" not in caplog.text
  # The names are those of a process with this optimizer alone.
  slots = [n for n in report.restored if n.startswith("net/a/")]
  assert slots and all(report.restored[slot] == slot for slot in slots)
  assert_near(train_on(optimizer, weights), wanted)


def test_a_scope_of_the_updates(tmp_path):
  path, wanted = run_old(OPTIMIZERS["adam"], tmp_path, scope="train")
  assert any(
    name == "train/net/a/Adam_1" for name, _ in tf.train.list_variables(path)
  )
  optimizer, weights = OPTIMIZERS["adam"](), make_weights()
  build(optimizer, weights)
  mapping = {f"beta{i}_power": f"train/beta{i}_power" for i in (1, 2)}
  checkpoint.restore(
    None, path, make_objects(weights, optimizer=optimizer), mapping=mapping
  )
  assert_near(train_on(optimizer, weights), wanted)


def test_kinds_tell_optimizers_apart(tmp_path):
  """Checks optimizers of different names, each with weights of its own."""

  def make():
    return [OPTIMIZERS["momentum"](), OPTIMIZERS["adagrad"]()]

  path, wanted = run_old(make, tmp_path, several=True)
  (first, second), weights = make(), make_weights()
  first = WRAPPERS["fixed"](first)
  for optimizer, weight in zip((first, second), weights):
    build(optimizer, [weight])
  checkpoint.restore(
    None, path, make_objects(weights, first=first, second=second)
  )
  assert first.get_slot(weights[1], "momentum") is None
  got = [
    train_on(optimizer, [weight])[0]
    for optimizer, weight in zip((first, second), weights)
  ]
  assert_near(got, wanted)


def test_two_optimizers_of_one_kind(tmp_path):
  """Checks that each must have slots, and that nothing is assigned."""

  def make():
    return [OPTIMIZERS["momentum"](), OPTIMIZERS["momentum"]()]

  path, wanted = run_old(make, tmp_path, several=True)
  made, weights = make(), make_weights()
  build(made[0], weights[:1])
  objects = make_objects(weights, first=made[0], second=made[1])
  with pytest.raises(
    checkpoint.CheckpointError,
    match=r"slots net/b/Momentum.*MomentumOptimizer has none before",
  ):
    checkpoint.restore(None, path, objects)
  assert_near(weights, make_weights())
  build(made[1], weights[1:])
  report = checkpoint.restore(None, path, objects)
  assert not report.notes and len(report.restored) == 4
  got = [train_on(each, [w])[0] for each, w in zip(made, weights)]
  assert_near(got, wanted)


def test_several_optimizers_of_one_name_on_one_weight(tmp_path):
  """Checks that slots are not taken if there are more or fewer optimizers."""

  def make(count):
    return [train.AdamOptimizer(0.1) for _ in range(count)]

  def save(count):
    with tf.Graph().as_default(), tf1.Session() as session:
      w = tf1.get_variable("net/w", initializer=[1.0, 2.0], use_resource=True)
      steps = [each.minimize(loss_of([w]), None, [w]) for each in make(count)]
      session.run(tf1.global_variables_initializer())
      for i, step in enumerate(steps):
        for _ in range(i + 1):
          session.run(step)
      return train.Saver().save(session, str(tmp_path / f"model{count}"))

  def objects_of(count, name):
    weight = tf.Variable([0.0, 0.0], name=name)
    made = make(count)
    for optimizer in made:
      build(optimizer, [weight])
    return {"w": weight} | {f"o{i}": each for i, each in enumerate(made)}

  two = save(2)
  objects = objects_of(1, "net/w")
  with pytest.raises(checkpoint.CheckpointError) as error:
    checkpoint.restore(None, two, objects)
  for i in ("", "_1", "_2", "_3"):
    assert f"net/w/Adam{i}" in str(error.value)
  assert "'w/.OPTIMIZER_SLOT/o0/m': ..." in str(error.value)
  mapping = {
    "w/.OPTIMIZER_SLOT/o0/m": "net/w/Adam_2",
    "w/.OPTIMIZER_SLOT/o0/v": "net/w/Adam_3",
    "beta1_power": "beta1_power_1",
  }
  checkpoint.restore(None, two, objects, mapping=mapping)
  reader = tf.train.load_checkpoint(two)
  slot = objects["o0"].get_slot(objects["w"], "m").numpy()
  np.testing.assert_array_equal(slot, reader.get_tensor("net/w/Adam_2"))
  # As many slots are in one order; their powers' names are ambiguous.
  objects = objects_of(2, "other")
  mapping = {"other": "net/w"}
  with pytest.raises(checkpoint.CheckpointError) as error:
    checkpoint.restore(None, two, objects, mapping=mapping)
  for i in (0, 1):
    assert f"'o{i}/beta1_power': ..." in str(error.value)
    mapping[f"o{i}/beta1_power"] = "beta1_power" + "_1" * i
  with pytest.raises(ValueError, match="same_order is for a session"):
    checkpoint.restore(None, two, objects, same_order=True)
  checkpoint.restore(None, two, objects, mapping=mapping)
  slot = objects["o1"].get_slot(objects["w"], "m").numpy()
  np.testing.assert_array_equal(slot, reader.get_tensor("net/w/Adam_2"))


@pytest.mark.parametrize("wrapped", ["plain", "dynamic"])
def test_powers_of_other_betas(wrapped, tmp_path):
  """Checks powers by name, and by object."""

  def make(beta):
    return WRAPPERS[wrapped](train.AdamOptimizer(0.1, beta))

  path, _ = run_old(lambda: make(0.5), tmp_path)
  weights, optimizer = make_weights(), make(0.5)
  build(optimizer, weights)
  root = tf.train.Checkpoint(**make_objects(weights, optimizer=optimizer))
  paths = [path, root.save(str(tmp_path / "objects"))]
  for number, each in enumerate(paths):
    weights, optimizer = make_weights(), make(0.9)
    objects = make_objects(weights, optimizer=optimizer)
    build(optimizer, weights)
    with pytest.raises(
      checkpoint.CheckpointError, match="another optimizer's"
    ) as error:
      checkpoint.restore(None, each, objects)
    # By object, there is no mapping to paste.
    assert ("mapping=" in str(error.value)) == (number == 0)
    assert_near(weights, make_weights())


def test_slots_of_another_optimizer(tmp_path, caplog):
  """Checks that slots without an optimizer are refused, or noted."""
  path, _ = run_old(OPTIMIZERS["momentum"], tmp_path)
  optimizer, weights = OPTIMIZERS["momentum"](), make_weights()
  build(optimizer, weights[:1])
  objects = make_objects(weights, optimizer=optimizer)
  lost = "net/b/Momentum went to no optimizer"
  with pytest.raises(checkpoint.CheckpointError, match=lost):
    checkpoint.restore(None, path, objects)
  assert_near(weights, make_weights())
  with caplog.at_level("WARNING", "absl"):
    report = checkpoint.restore(None, path, objects, missing="initialize")
  for text in (str(report), report.summary, caplog.text):
    assert lost in text


def test_the_only_object(tmp_path):
  """Checks objects that are no dict: a variable alone, and a module."""
  path, wanted = run_old(OPTIMIZERS["momentum"], tmp_path)
  weight = make_weights()[0]
  report = checkpoint.restore(None, path, weight)
  assert set(report.restored) == {"net/a"} and not report.notes
  module = tf.train.Checkpoint()
  module.weights = make_weights()
  module.optimizer = OPTIMIZERS["momentum"]()
  build(module.optimizer, module.weights)
  checkpoint.restore(None, path, module)
  assert_near(train_on(module.optimizer, list(module.weights)), wanted)


def test_some_weights_have_slots(tmp_path):
  """Checks that a weight that was not trained gets no slot."""
  with tf.Graph().as_default(), tf1.Session() as session:
    a = tf1.get_variable("net/a", initializer=[1.0, 2.0], use_resource=True)
    tf1.get_variable("net/b", initializer=[[0.5]], use_resource=True)
    OPTIMIZERS["adam"]().minimize(loss_of([a]), None, [a])
    session.run(tf1.global_variables_initializer())
    path = train.Saver().save(session, str(tmp_path / "model"))
  optimizer, weights = OPTIMIZERS["adam"](), make_weights()
  build(optimizer, weights[:1])
  report = checkpoint.restore(
    None, path, make_objects(weights, optimizer=optimizer)
  )
  assert optimizer.get_slot(weights[1], "m") is None
  assert not report.notes


@pytest.mark.parametrize("what", ["weights", "all_but_optimizer"])
def test_some_objects(what, tmp_path):
  path, _ = run_old(OPTIMIZERS["momentum"], tmp_path)
  optimizer, weights = OPTIMIZERS["momentum"](), make_weights()
  objects = make_objects(weights, optimizer=optimizer)
  with pytest.raises(ValueError, match="give those alone"):
    checkpoint.restore(None, path, objects, what=what)
  report = checkpoint.restore(None, path, make_objects(weights))
  assert set(report.restored) == {"net/a", "net/b"} and not report.notes


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_slots_that_a_function_created_on_replicas(name, tmp_path):
  path, wanted = run_old(OPTIMIZERS[name], tmp_path)
  strategy = tf.distribute.MirroredStrategy(["CPU:0"])
  with strategy.scope():
    weights = make_weights()
    optimizer = WRAPPERS["fixed"](OPTIMIZERS[name]())
  step = tf.function(
    lambda: strategy.run(take_steps, (optimizer, weights)), autograph=False
  )
  step()
  assert len(optimizer.variables()) == {"momentum": 2, "adam": 6}[name]
  objects = make_objects(weights, optimizer=optimizer)
  report = checkpoint.restore(None, path, objects)
  assert not report.notes
  step()
  assert_near([weight.numpy() for weight in weights], wanted)
