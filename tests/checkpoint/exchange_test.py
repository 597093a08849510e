# SPDX-License-Identifier: Apache-2.0
"""Tests that this package and TensorFlow restore each other's checkpoints."""

import contextlib

import helpers
from helpers import INNER
from helpers import OWN
import pytest
import tensorflow as tf
import trainers
from trainers import Spec
from trainers import Trainer

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1

_SPECS = (Spec((3,)), Spec((4, 2), kind="sparse"))


def make_trainer(module, mode, inner="adam", loss_scale="dynamic", **kwargs):
  """Returns a trainer whose optimizer is wrapped by the class of `module`."""

  def make():
    scale = 64.0
    if loss_scale == "dynamic":
      scale = module.DynamicLossScale(8.0, 3)
    return module.MixedPrecisionLossScaleOptimizer(INNER[inner](), scale)

  return Trainer(mode, make, _SPECS, **kwargs)


def objects_of(t):
  """Returns a trainer's trackables, by names that programs usually give."""
  return {
    "optimizer": t.opt,
    "global_step": t.global_step,
    **{f"v{i}": v for i, v in enumerate(t.variables)},
  }


def run(t, *grads):
  """Runs a step for each gradient; the gradients are the first variable's."""
  for grad in grads:
    t.step(grad, -0.25)


class Program:
  """A training program with its checkpoints, and its states then and later.

  Attributes:
    paths: The way of saving -> the path of the checkpoint.
    saved: The state that was saved.
    later: The state after `_train_on`.
  """

  def __init__(self, t, folder):
    self._t = t
    self._savers = {"by_object": tf1.train.Checkpoint(**objects_of(t))}
    self.paths = {}
    session = getattr(t, "session", None)
    # The NaN halves a dynamic loss scale, and then two good steps are counted.
    # A fixed loss scale would apply the NaN, and all weights would be NaN.
    has_state = "good_steps" in " ".join(t.state())
    run(t, 0.125, float("nan") if has_state else 0.25, 0.5, 0.75)
    self.saved = t.state()
    checkpoint = self._savers["by_object"]
    path = str(folder / "objects")
    self.paths["by_object"] = checkpoint.save(path, session=session)
    if session is not None:
      saver = self._savers["by_name"] = tf1.train.Saver()
      self.paths["by_name"] = saver.save(session, str(folder / "names"))
    self._train_on()
    self.later = t.state()
    for name, value in self.later.items():
      assert value.tobytes() != self.saved[name].tobytes(), name

  def _train_on(self):
    run(self._t, 0.25, 0.5, 0.75, 1.0)  # The loss scale grows twice.

  def check_restore(self, way, other):
    """Checks that restoring and training on gives the states of `other`."""
    saver, path = self._savers[way], other.paths[way]
    if way == "by_name":
      saver.restore(self._t.session, path)
    else:
      status = saver.restore(path)
      status.assert_consumed()
      if self._t.graph is not None:
        status.run_restore_ops(self._t.session)
    trainers.assert_same_state(self._t.state(), other.saved)
    self._train_on()
    trainers.assert_same_state(self._t.state(), other.later)


def check_exchange(mode, inner, loss_scale, folder, **kwargs):
  """Checks that programs restore each other's checkpoints, and we our own.

  One program uses this package and the other uses TensorFlow's classes.
  """
  arguments = (mode, inner, loss_scale)
  with contextlib.ExitStack() as stack:
    programs, scopes = [], []
    for i, module in enumerate((tfl, OWN)):
      t = stack.enter_context(make_trainer(module, *arguments, **kwargs))
      scopes.append(t.graph.as_default if t.graph else contextlib.nullcontext)
      (folder / str(i)).mkdir()
      programs.append(Program(t, folder / str(i)))
    ours, theirs = programs
    for way in ours.paths:
      with scopes[1]():
        theirs.check_restore(way, ours)
      with scopes[0]():
        ours.check_restore(way, theirs)
    with scopes[0]():
      ours.check_restore("by_object", ours)


@pytest.mark.thorough
@pytest.mark.parametrize(
  ("mode", "inner", "loss_scale"),
  helpers.pairs(helpers.MODES, ["adam", "momentum"], ["dynamic", "fixed"]),
)
def test_exchange(mode, inner, loss_scale, tmp_path):
  check_exchange(mode, inner, loss_scale, tmp_path)


def test_ref_variables(tmp_path):
  check_exchange("graph_v1", "adam", "dynamic", tmp_path, use_resource=False)


def test_deferred_slots_and_weights(tmp_path):
  """Checks a restore before the first step, which creates the variables."""
  with make_trainer(tfl, "eager", "momentum") as t:
    program = Program(t, tmp_path)
  with make_trainer(tfl, "eager", "momentum") as t:
    checkpoint = tf.train.Checkpoint(**objects_of(t))
    status = checkpoint.restore(program.paths["by_object"])
    run(t, 0.25, 0.5, 0.75, 1.0)
    status.assert_consumed()
    trainers.assert_same_state(t.state(), program.later)
