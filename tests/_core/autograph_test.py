# SPDX-License-Identifier: Apache-2.0
"""Tests which functions AutoGraph rewrites in a step of `tf.function`."""

import traceback

import helpers
import pytest
import tensorflow.compat.v2 as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib

tf1 = helpers.tf1
_REWRITTEN = "__autograph_generated_file"


class Program:
  """Functions of a program, each with a branch that needs AutoGraph.

  Attributes:
    seen: The functions that ran.
    frames: The names of rewritten functions that called them.
  """

  def __init__(self):
    self.seen, self.frames = set(), set()
    self.w = tf.Variable([1.0, 2.0])

  @tf.autograph.experimental.do_not_convert
  def branch(self, name, tensor):
    self.seen.add(name)
    self.frames |= {
      frame.name.removeprefix("tf__")
      for frame in traceback.extract_stack()
      if _REWRITTEN in frame.filename and frame.name.startswith("tf__")
    }
    return tf.reduce_sum(tensor) > 0

  def loss(self):
    total = tf.reduce_sum(self.w * self.w)
    if self.branch("loss", total):
      total = total * 2.0
    return total

  def transform(self, pairs):
    ((grad, var),) = pairs
    if self.branch("transform", grad):
      grad = grad / 2.0
    return [(grad, var)]


class Inner(tf1.train.GradientDescentOptimizer):
  def __init__(self, program):
    super().__init__(0.5)
    self.program = program

  def compute_gradients(self, loss, *args, **kwargs):
    ((grad, var),) = super().compute_gradients(loss, *args, **kwargs)
    if self.program.branch("compute_gradients", grad):
      grad = grad / 2.0
    return [(grad, var)]

  def apply_gradients(self, pairs, *args, **kwargs):
    ((grad, var),) = pairs
    if self.program.branch("apply_gradients", grad):
      grad = grad * 0.5
    return super().apply_gradients([(grad, var)], *args, **kwargs)


class Scale(tfl.LossScale):
  def __init__(self, program):
    super().__init__()
    self.program = program
    self.scale = self._add_weight("scale", 8.0)

  def __call__(self):
    scale = tf.convert_to_tensor(self.scale)
    if self.program.branch("__call__", scale):
      scale = scale * 2.0
    return scale

  def update(self, grads):
    good = tfl.gradients.all_replicas_finite(grads)
    if self.program.branch("update", tf.cast(good, tf.float32)):
      op = self.scale.assign(32.0)
    else:
      op = self.scale.assign(4.0)
    return tf.group(op), good

  def get_config(self):
    return {}


class Manager(contrib.FixedLossScaleManager):
  def __init__(self, program):
    super().__init__(8.0)
    self.program = program

  def get_loss_scale(self):
    scale = super().get_loss_scale()
    if self.program.branch("get_loss_scale", scale):
      scale = scale * 2.0
    return scale

  def update_loss_scale(self, finite_grads):
    if self.program.branch("update_loss_scale", tf.cast(finite_grads, "int32")):
      self.program.w.assign_add([0.0, 0.0])
    return tf.no_op()


_INNER = {"loss", "compute_gradients", "apply_gradients"}
_KINDS = {
  "optimizer": (
    lambda p: tfl.MixedPrecisionLossScaleOptimizer(Inner(p), Scale(p)),
    _INNER | {"__call__", "update"},
  ),
  "contrib": (
    lambda p: contrib.LossScaleOptimizer(Inner(p), Manager(p)),
    _INNER | {"get_loss_scale", "update_loss_scale"},
  ),
}


@pytest.mark.parametrize("calls", ["minimize", "two methods"])
@pytest.mark.parametrize("kind", [*_KINDS, "accumulate"])
def test_functions_of_the_program_are_rewritten(kind, calls):
  program = Program()
  if kind == "accumulate":
    make, functions = _KINDS["optimizer"]
    opt = tfl.accumulate(make(program), 2, transform=program.transform)
    functions = functions | {"transform"}
  else:
    make, functions = _KINDS[kind]
    opt = make(program)

  @tf.function
  def train():
    if calls == "minimize":
      opt.minimize(program.loss, var_list=[program.w])
    else:
      opt.apply_gradients(opt.compute_gradients(program.loss, [program.w]))

  train()
  assert program.seen == functions
  # Of the package itself, nothing is.
  assert program.frames == functions | {"train"}
