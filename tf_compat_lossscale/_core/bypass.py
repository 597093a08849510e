# SPDX-License-Identifier: Apache-2.0
"""Tells whether a step bypasses its loss scale: the loss was not scaled.

A program bypasses the loss scale of an optimizer if `apply_gradients` gets the
gradients of `tf.gradients`, of a `GradientTape`, or of the inner optimizer.
These questions are asked in order, and the first "no" ends them:

1. Is the loss scale other than a fixed 1?
2. Has nothing scaled a loss by it? In a graph of TensorFlow 1, that counts for
   each graph; elsewhere for the whole process.
3. In a graph of TensorFlow 1: do the gradients depend on the model, and on no
   loss scale? Elsewhere: has the program never read the loss scale, and do the
   gradients depend on the model, as far as a `tf.function` tells?

The rule never asks how gradients were changed on their way. So it misses a
program that scales another loss by the same loss scale, and, outside of
TensorFlow 1's graphs, a program that reads the loss scale just to log it.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import re
import threading
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import scale_uses
from tf_compat_lossscale._core import wrapped_optimizers
from tf_compat_lossscale._core.tf import graphs

_PACKAGE = __name__.partition(".")[0]
_LOCK = threading.Lock()  # Several threads may build one graph.
# A larger graph is not looked at as a whole, and then nothing is said.
_MOST_OPS = 200_000

# Variables that hold a loss scale, by the names of this package and TensorFlow.
_SCALES = re.compile(r"(^|/)(current_)?loss_scale(_\d+)?$")
# Ops of `tf.gradients`, and of a tape in a function.
_BACKPROP = re.compile(
  r"(^|/)gradients(_\d+)?/(.*_grad(_\d+)?/|grad_ys_)|(^|/)gradient_tape/"
)
# Attributes that a program may set, which then hold the loss scale.
_OWN = (
  "_current_loss_scale",
  "_loss_scale",
  "current_loss_scale",
  "loss_scale",
)
_VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
# Ops whose values do not depend on the values of their inputs.
_OF_SHAPE = frozenset(
  {
    *("OnesLike", "Rank", "Shape", "ShapeN", "Size"),
    *("TensorArraySizeV3", "VariableShape", "ZerosLike"),
  }
)


def find_bypass(
  optimizer: Any,
  loss_scale: Any,
  pairs: Iterable[tuple[Any, Any]],
  fixed: float | None,
) -> bool:
  """Returns whether a step is the first that bypasses a loss scale.

  Args:
    optimizer: The optimizer that the program sees.
    loss_scale: Its loss scale, or manager; or the optimizer, if it is both.
    pairs: The (gradient, variable) pairs that `apply_gradients` got.
    fixed: The value of a loss scale that never changes, or None.
  """
  uses = scale_uses.find(loss_scale)
  if uses is None or uses.is_bypassed or fixed == 1:
    return False
  if tf.executing_eagerly() and uses.is_judged:
    return False
  given = [(grad, var) for grad, var in pairs if grad is not None]
  if not given:
    return False
  may_be_read = uses.is_read or not _is_observed(loss_scale)
  in_graph = graphs.find_graph() is not None
  is_silent = not in_graph and may_be_read
  if is_silent or _is_used(optimizer, loss_scale):
    uses.is_judged |= tf.executing_eagerly()
    return False
  if tf.executing_eagerly():
    if all(_is_zero(grad) for grad, _ in given):
      return False  # Programs make slots so.
    uses.is_judged = True
  else:
    scales = list(_list_tensors(loss_scale))
    if not scales and fixed is None and not _is_observed(loss_scale):
      return False  # Nothing tells what the program's own class reads.
    if not _Walk(given, scales, fixed, may_be_read).shows_unscaled():
      return False
  with _LOCK:
    is_first = not uses.is_bypassed
    uses.is_bypassed = True
  return is_first


def describe_effect(fixed: float | None) -> str:
  """Returns what a loss scale does if it is bypassed, in a clause.

  Args:
    fixed: The value of a loss scale that never changes, or None.
  """
  if fixed is None:
    return "the loss scale changes for nothing"
  return f"the loss scale {fixed:g} has no effect"


def _is_used(optimizer: Any, loss_scale: Any) -> bool:
  """Returns whether the loss was scaled by a loss scale or in an optimizer."""
  owners = [loss_scale, *wrapped_optimizers.walk(optimizer)]
  found = [scale_uses.find(owner) for owner in owners]
  return any(uses.find_state().is_used for uses in found if uses is not None)


def _is_observed(loss_scale: Any) -> bool:
  """Returns whether this package sees the reads of a loss scale.

  A program's own class, or value, may be read in any way.
  """
  cls = type(loss_scale)
  if optimizer_kinds.is_keras_with_scale(loss_scale):
    return True  # The property is this package's.
  if any(name in vars(loss_scale) for name in _OWN):
    return False
  method = getattr(cls, "get_loss_scale", cls.__call__)
  module = getattr(method, "__module__", None) or ""
  return module.partition(".")[0] == _PACKAGE


def _list_tensors(loss_scale: Any) -> Iterator[Any]:
  """Yields the variables and tensors of a loss scale."""
  if isinstance(loss_scale, graph_weights.GraphWeights):
    yield from graph_weights.list_weights(loss_scale).values()
  for value in vars(loss_scale).values():
    if isinstance(value, (tf.Variable, tf.Tensor)):
      yield value


def _is_zero(grad: Any) -> bool:
  """Returns whether an eager gradient is 0, or of whole numbers."""
  values = grad.values if isinstance(grad, tf.IndexedSlices) else grad
  dtype = tf.as_dtype(values.dtype)
  if not dtype.is_floating and not dtype.is_complex:
    return True
  return not bool(tf.reduce_any(tf.not_equal(values, 0)))


class _Walk:
  """A walk through a graph, from gradients back to what they depend on."""

  def __init__(
    self,
    pairs: list[tuple[Any, Any]],
    scales: Iterable[Any],
    fixed: float | None,
    is_read: bool,
  ) -> None:
    """Prepares a walk.

    Args:
      pairs: The (gradient, variable) pairs, none of the gradients None.
      scales: Variables and tensors of the loss scale.
      fixed: The value of a loss scale that never changes, or None.
      is_read: Whether the program read the loss scale, and may feed it.
    """
    self._fixed = fixed
    self._is_read = is_read
    self._shapes = {_find_shape(var) for _, var in pairs}
    self._trained = dict(map(_identify, (var for _, var in pairs)))
    self._scales = dict(map(_identify, scales))
    self._waiting = [x for grad, _ in pairs for x in _list_parts(grad)]
    self._captured: dict[int, dict[int, Any]] = {}
    self._is_of_model = False

  def shows_unscaled(self) -> bool:
    """Returns whether the gradients are for sure those of an unscaled loss."""
    seen: dict[int, Any] = {}
    waiting = self._waiting
    for tensor in waiting:  # The list grows meanwhile.
      key, place = _identify(tensor)
      if key in seen:
        continue
      seen[key] = place
      if len(seen) > _MOST_OPS or self._is_scaled(tensor, key):
        return False
    return self._is_of_model

  def _is_scaled(self, tensor: Any, key: int) -> bool:
    """Looks at a tensor, and makes the walk go on with what it depends on.

    Returns:
      Whether the tensor is a loss scale, or may be one.
    """
    if key in self._scales:
      return True
    if key in self._trained:
      self._is_of_model = True
      return False
    op = _find_op(tensor)
    if op is None:
      return False
    if op.type in _VARIABLES:
      return self._is_scaled_in(op)
    if op.type.startswith("Placeholder"):
      return self._may_be_fed(op)
    if self._fixed is not None and self._may_have_fixed(op):
      return True
    if _BACKPROP.search(op.name):
      self._is_of_model = True
    if op.type not in _OF_SHAPE:
      self._waiting += op.inputs
    return False

  def _is_scaled_in(self, op: tf.Operation) -> bool:
    """Looks at a variable that is not trained here.

    A variable of the shape of one that is trained may hold gradients: the walk
    goes on with what is written to it.
    """
    if _SCALES.search(op.name):
      return True
    shape = op.get_attr("shape")
    dims = tuple(d.size for d in shape.dim)
    if shape.unknown_rank or dims not in self._shapes:
      return False
    users = [use for x in op.outputs for use in x.consumers()]
    writers = [use for use in users if "Assign" in use.type]
    for writer in writers:
      self._waiting += list(writer.inputs)[1:]
    trained = op.graph.get_collection(
      tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES
    )
    if any(_identify(var)[0] == id(op) for var in trained):
      return False
    return len(writers) < 2  # The writers of gradients are made later.

  def _may_be_fed(self, op: tf.Operation) -> bool:
    """Looks at a placeholder, or at what a function has captured there."""
    graph = op.graph
    if id(graph) not in self._captured:
      captures = getattr(graph, "captures", ())
      self._captured[id(graph)] = {id(x.op): y for y, x in captures}
    outer = self._captured[id(graph)].get(id(op))
    if outer is not None:
      self._waiting.append(outer)
      return False
    value = op.outputs[0]
    # A program may read the scale, and feed it.
    is_scalar = value.shape.rank in (None, 0)
    return self._is_read and value.dtype.is_floating and is_scalar

  def _may_have_fixed(self, op: tf.Operation) -> bool:
    """Returns whether an op may be a constant by which the loss is scaled."""
    if "Call" in op.type or op.type in ("If", "While", "StatelessWhile"):
      return True  # The constant may be in the function.
    if op.type != "Const":
      return False
    value = op.outputs[0]
    if not value.dtype.is_floating or value.shape.rank != 0:
      return False
    number = float(tf.get_static_value(value))
    assert self._fixed is not None
    wanted = (self._fixed, 1 / self._fixed)
    return any(abs(number - x) <= 1e-6 * x for x in wanted)


def _find_shape(var: Any) -> tuple[int, ...] | None:
  """Returns the shape of a variable; None if it is not known."""
  shape = tf.TensorShape(getattr(var, "shape", None))
  return tuple(shape.as_list()) if shape.is_fully_defined() else None


def _list_parts(grad: Any) -> list[Any]:
  """Returns the tensors of a gradient."""
  if isinstance(grad, tf.IndexedSlices):
    return [grad.values]
  return [grad]


def _identify(value: Any) -> tuple[int, Any]:
  """Returns the key of a variable or tensor, and the object of that key."""
  tensor = value
  if isinstance(value, tf.Variable):
    # A reference variable has no handle.
    tensor = getattr(value, "handle", None)
    if tensor is None:
      return id(value.op), value.op
  op = _find_op(tensor)
  place = tensor if op is None else op
  return id(place), place


def _find_op(tensor: Any) -> Any:
  """Returns the op of a tensor; None for an eager tensor."""
  try:
    return tensor.op
  except AttributeError:
    return None
