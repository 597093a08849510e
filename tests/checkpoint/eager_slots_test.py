# SPDX-License-Identifier: Apache-2.0
"""Tests that slots of TensorFlow 1 are restored by name, eagerly."""

from __future__ import annotations

import numpy as np
from object_models import WRAPPERS
import pytest
from slot_programs import assert_goes_on
from slot_programs import assert_near
from slot_programs import build
from slot_programs import EagerProgram
from slot_programs import initial
from slot_programs import momentum
from slot_programs import Program
from slot_programs import scaled
from slot_programs import trained
from slot_programs import V1
import tensorflow as tf

from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1
train = tf1.train
_WITHOUT = ("plain", "nesterov", "rmsprop", "centered")
_SLOTS = [name for name in V1 if name not in _WITHOUT]


class Several:
  """An optimizer for each weight."""

  def __init__(self, *optimizers):
    self.optimizers = optimizers

  def minimize(self, loss, global_step=None, var_list=()):
    del global_step
    pairs = zip(self.optimizers, var_list)
    return tf.group(*(opt.minimize(loss, None, [w]) for opt, w in pairs))


def make_momentum_and_adagrad():
  return Several(WRAPPERS["fixed"](momentum()), V1["adagrad"]())


def make_two_of_a_kind():
  return Several(momentum(), momentum())


def objects_of(program):
  """Returns the objects of a program with `Several`."""
  first, second = program.optimizer.optimizers
  a, b = program.weights
  return {"a": a, "b": b, "first": first, "second": second}


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("there", ["plain", "dynamic"])
@pytest.mark.parametrize(
  ("name", "here"),
  [(name, "plain") for name in _SLOTS]
  + [("momentum", here) for here in WRAPPERS if here != "plain"]
  + [("adam", "dynamic"), ("adam", "contrib")],
)
def test_training_goes_on(name, here, there, steps, tmp_path, caplog):
  """Checks all optimizers after steps, and after what the error says."""
  old = trained(V1[name] if there == "plain" else scaled(V1[name]))
  path = old.save(tmp_path)
  new = EagerProgram(lambda: WRAPPERS[here](V1[name]()))
  if steps:
    new.train(90, 92)
  else:
    with pytest.raises(checkpoint.CheckpointError, match="before its first"):
      checkpoint.restore(None, path, new.objects)
    assert_near(new.weights, initial())
    new.build()
  with caplog.at_level("WARNING", "absl"):
    report = checkpoint.restore(None, path, new.objects)
  assert not report.notes and "went to" not in caplog.text
  # The names are those of a process with this optimizer alone.
  slots = [n for n in report.restored if n.startswith("net/w/")]
  assert slots and all(report.restored[slot] == slot for slot in slots)
  assert_goes_on(new, old)


def test_a_scope_of_the_updates(tmp_path):
  old = trained(V1["adam"], True, "train")
  path = old.save(tmp_path)
  assert tf.train.load_checkpoint(path).has_tensor("train/net/w/Adam_1")
  new = EagerProgram(V1["adam"])
  new.build()
  mapping = {f"beta{i}_power": f"train/beta{i}_power" for i in (1, 2)}
  checkpoint.restore(None, path, new.objects, mapping=mapping)
  assert_goes_on(new, old)


def test_kinds_tell_optimizers_apart(tmp_path):
  """Checks optimizers of different names, each with weights of its own."""
  old = trained(make_momentum_and_adagrad)
  new = EagerProgram(make_momentum_and_adagrad)
  new.train(90, 91)
  objects = objects_of(new)
  checkpoint.restore(None, old.save(tmp_path), objects)
  assert objects["first"].get_slot(objects["b"], "momentum") is None
  assert_goes_on(new, old)


def test_two_optimizers_of_one_kind(tmp_path):
  """Checks that each must have slots, and that nothing is assigned."""
  old, new = trained(make_two_of_a_kind), EagerProgram(make_two_of_a_kind)
  path, objects = old.save(tmp_path), objects_of(new)
  build(objects["first"], [objects["a"]])
  with pytest.raises(
    checkpoint.CheckpointError,
    match=r"slots net/embedding/Momentum.* no slots before its first step",
  ):
    checkpoint.restore(None, path, objects)
  assert_near(new.weights, initial())
  build(objects["second"], [objects["b"]])
  report = checkpoint.restore(None, path, objects)
  assert not report.notes and len(report.restored) == 4
  assert_goes_on(new, old)


def test_several_optimizers_of_one_name_on_one_weight(tmp_path):
  """Checks that slots are not taken if there are more or fewer optimizers."""
  with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("net/w", initializer=[1.0, 2.0], use_resource=True)
    adams = [V1["adam"]() for _ in range(2)]
    steps = [adam.minimize(w * w * w, None, [w]) for adam in adams]
    session.run(tf1.global_variables_initializer())
    for step in (steps[0], *steps):
      session.run(step)
    two = train.Saver().save(session, str(tmp_path / "model"))

  def objects_of(count, name):
    weight = tf.Variable([0.0, 0.0], name=name)
    made = {f"o{i}": V1["adam"]() for i in range(count)}
    for optimizer in made.values():
      build(optimizer, [weight])
    return {"w": weight} | made

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
  wanted = tf.train.load_checkpoint(two).get_tensor("net/w/Adam_2")
  slot = objects["o0"].get_slot(objects["w"], "m").numpy()
  np.testing.assert_array_equal(slot, wanted)
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
  np.testing.assert_array_equal(slot, wanted)


@pytest.mark.parametrize("wrapped", ["plain", "dynamic"])
def test_powers_of_other_betas(wrapped, tmp_path):
  """Checks powers by name, and by object."""

  def make(beta):
    return lambda: WRAPPERS[wrapped](train.AdamOptimizer(0.1, beta))

  same = EagerProgram(make(0.5))
  same.build()
  paths = [Program(make(0.5)).save(tmp_path), same.save(tmp_path)]
  for number, each in enumerate(paths):
    new = EagerProgram(make(0.9))
    new.build()
    with pytest.raises(
      checkpoint.CheckpointError, match="another optimizer's"
    ) as error:
      checkpoint.restore(None, each, new.objects)
    # By object, there is no mapping to paste.
    assert ("mapping=" in str(error.value)) == (number == 0)
    assert_near(new.weights, initial())


def test_slots_of_another_optimizer(tmp_path, caplog):
  """Checks that slots without an optimizer are refused, or noted."""
  path, new = trained(momentum).save(tmp_path), EagerProgram(momentum)
  build(new.optimizer, new.weights[:1])
  lost = "net/embedding/Momentum went to no optimizer"
  with pytest.raises(checkpoint.CheckpointError, match=lost):
    checkpoint.restore(None, path, new.objects)
  assert_near(new.weights, initial())
  with caplog.at_level("WARNING", "absl"):
    report = checkpoint.restore(None, path, new.objects, missing="initialize")
  for text in (str(report), report.summary, caplog.text):
    assert lost in text


def test_the_only_object(tmp_path):
  """Checks objects that are no dict: a variable alone, and a module."""
  old, new = trained(momentum), EagerProgram(momentum)
  path = old.save(tmp_path)
  report = checkpoint.restore(None, path, new.weights[0])
  assert set(report.restored) == {"net/w"} and not report.notes
  new.build()
  module = tf.train.Checkpoint()
  module.weights, module.optimizer = new.weights, new.optimizer
  checkpoint.restore(None, path, module)
  assert_goes_on(new, old)


def test_some_weights_have_slots(tmp_path):
  """Checks that a weight that was not trained gets no slot."""
  old, new = Program(lambda: Several(V1["adam"]())), EagerProgram(V1["adam"])
  build(new.optimizer, new.weights[:1])
  report = checkpoint.restore(None, old.save(tmp_path), new.objects)
  assert new.optimizer.get_slot(new.weights[1], "m") is None
  assert not report.notes


@pytest.mark.parametrize("what", ["weights", "all_but_optimizer"])
def test_some_objects(what, tmp_path):
  path, new = trained(momentum).save(tmp_path), EagerProgram(momentum)
  with pytest.raises(ValueError, match="give those alone"):
    checkpoint.restore(None, path, new.objects, what=what)
  weights = dict(zip("ab", new.weights))
  report = checkpoint.restore(None, path, weights)
  assert len(report.restored) == 2 and not report.notes
