# SPDX-License-Identifier: Apache-2.0
"""Tells whether a step bypasses its loss scale: the loss was not scaled.

A program bypasses the loss scale of an optimizer if `apply_gradients` gets the
gradients of `tf.gradients`, of a `GradientTape`, or of the inner optimizer.
There is no false alarm, so these questions are asked in order, and the first
"no" ends them:

1. Is the loss scale other than a fixed 1, and of a class of this package?
2. Has nothing scaled a loss, by the loss scale of any optimizer? In a graph of
   TensorFlow 1, that counts for each graph; elsewhere for the whole process.
3. In a graph of TensorFlow 1: do the gradients come from the model by ops alone
   that cannot unscale them? Elsewhere: does the loss scale change, has the
   program read none, and do the gradients come so, as far as a `tf.function`
   tells?

So some bypasses are missed: docs/training.md says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import math
import re
import sys
import threading
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import scale_uses
from tf_compat_lossscale._core import wrapped_optimizers
from tf_compat_lossscale._core.tf import autograph
from tf_compat_lossscale._core.tf import graphs

_PACKAGE = __name__.partition(".")[0]
_LOCK = threading.Lock()  # Several threads may build one graph.
# A larger graph is not looked at as a whole, and then nothing is said.
_MOST_OPS = 200_000
# Programs make slots by gradients of 0, or nearly.
_TINY = 1e-6

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
# Ops that may hold any code, or get any value.
_OPAQUE = re.compile("Call|Case|If|PyFunc|Placeholder|While")
# Ops whose values do not depend on the values of their inputs.
_OF_SHAPE = frozenset(
  {
    *("OnesLike", "Rank", "Shape", "ShapeN", "Size"),
    *("TensorArraySizeV3", "VariableShape", "ZerosLike"),
  }
)
# The packages whose optimizers scale no loss of their own accord.
_KNOWN = frozenset({_PACKAGE, "horovod", "keras", "tensorflow", "tf_keras"})
# The packages whose frames lie between a program's line and this module.
_BETWEEN = frozenset({_PACKAGE, "keras", "tensorflow", "tf_keras"})


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
  if uses is None or uses.is_bypassed or fixed == 1 or scale_uses.is_used():
    return False
  is_read = scale_uses.process.is_read
  in_graph = graphs.find_graph() is not None
  if not in_graph and (is_read or fixed is not None):
    return False
  is_eager = tf.executing_eagerly()
  if is_eager and uses.is_judged:
    return False  # The first eager step has decided.
  if not _is_observed(loss_scale):
    return False  # Nothing tells what the program's own class reads.
  given = [(grad, var) for grad, var in pairs if grad is not None]
  if not given or _may_scale_itself(optimizer):
    return False
  if is_eager:
    if all(_is_tiny(grad) for grad, _ in given):
      return False
    uses.is_judged = True
  elif not _Walk(
    given, _list_tensors(loss_scale), fixed, is_read
  ).shows_unscaled():
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


def describe_place() -> str:
  """Returns which line of the program is running, in a sentence."""
  frame: Any = sys._getframe(1)
  while frame.f_back is not None:
    module = frame.f_globals.get("__name__", "").partition(".")[0]
    if module not in _BETWEEN and not autograph.has_written(frame):
      break
    frame = frame.f_back
  return (
    f"The call is at {frame.f_code.co_filename}:{frame.f_lineno}; tf-lossscale "
    "scan finds such calls, too."
  )


def note_read_by_program() -> None:
  """Takes note of a read of the property that calls this, if not by Keras."""
  reader: Any = sys._getframe(2)
  while reader.f_code.co_name == "__getattribute__":  # Keras's own.
    reader = reader.f_back
  module = reader.f_globals.get("__name__", "")
  if module.partition(".")[0] not in _BETWEEN:
    scale_uses.note_read()


def _may_scale_itself(optimizer: Any) -> bool:
  """Returns whether an optimizer's class computes gradients as it likes."""
  for each in wrapped_optimizers.walk(optimizer):
    method = getattr(type(each), "compute_gradients", None)
    module = getattr(method, "__module__", None) or _PACKAGE
    if module.partition(".")[0] not in _KNOWN:
      return True
  return False


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


def _is_tiny(grad: Any) -> bool:
  """Returns whether an eager gradient is about 0, or no tensor of floats."""
  values = grad.values if isinstance(grad, tf.IndexedSlices) else grad
  if not isinstance(values, (tf.Tensor, tf.Variable)):
    return True  # TensorFlow takes numbers, and what it can convert.
  if values.dtype.is_complex:
    values = tf.abs(values)
  elif not values.dtype.is_floating:
    return True
  return not bool(tf.reduce_any(tf.abs(tf.cast(values, tf.float32)) > _TINY))


class _Walk:
  """A walk through a graph, from gradients back to what they depend on.

  It first walks to the ops that differentiate, for on that way a program would
  unscale; then to what those depend on, which are the ops of the model. The ops
  of a `GradientTape` have no names to know them by in graphs with v1 control
  flow: there the first walk goes on through the model.
  """

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
      is_read: Whether the program read a loss scale, and may feed it.
    """
    self._fixed = fixed
    self._is_read = is_read
    self._trained = dict(map(_identify, (var for _, var in pairs)))
    self._scales = dict(map(_identify, scales))
    self._grads = [
      grad.values if isinstance(grad, tf.IndexedSlices) else grad
      for grad, _ in pairs
    ]
    self._captured: dict[int, dict[int, Any]] = {}
    self._seen: dict[int, Any] = {}
    self._is_of_model = False

  def shows_unscaled(self) -> bool:
    """Returns whether the gradients are for sure those of an unscaled loss."""
    model: list[Any] = []
    return (
      not self._finds_scale(self._grads, model)
      and not self._finds_scale(model, None)
      and self._is_of_model
    )

  def _finds_scale(self, waiting: list[Any], model: list[Any] | None) -> bool:
    """Returns whether tensors depend on what is, or may be, a loss scale.

    Args:
      waiting: The tensors. What they depend on is appended.
      model: Gets the inputs of the ops that differentiate, where the walk ends;
        None to walk through the model.
    """
    for tensor in waiting:  # The list grows meanwhile.
      key, place = _identify(tensor)
      if key in self._seen:
        continue
      self._seen[key] = place
      if len(self._seen) > _MOST_OPS or key in self._scales:
        return True
      if key in self._trained:
        self._is_of_model = True
        continue
      op = _find_op(tensor)
      is_suspect = (
        self._may_unscale if model is not None else self._may_be_scale
      )
      outer = self._find_outer(op)
      if outer is not None:
        waiting.append(outer)
      elif model is not None and op is not None and _BACKPROP.search(op.name):
        self._is_of_model = True
        model += op.inputs
      elif is_suspect(op):
        return True
      elif op is not None and op.type not in _OF_SHAPE:
        waiting += op.inputs
    return False

  def _may_unscale(self, op: Any) -> bool:
    """Returns whether an op after backpropagation may unscale, or hide that."""
    if op is None or _OPAQUE.search(op.type):
      return True
    if op.inputs:
      return False
    if op.type != "Const":  # A variable, a queue, an iterator.
      return True
    numbers = _list_numbers(op)
    return any(self._is_fixed(x) or _is_like_scale(x) for x in numbers)

  def _may_be_scale(self, op: Any) -> bool:
    """Returns whether an op of the model may be a loss scale."""
    if op is None:
      return False
    if op.type in _VARIABLES:
      return bool(_SCALES.search(op.name))
    if op.type.startswith("Placeholder"):
      # A program may read the scale, and feed it.
      value = op.outputs[0]
      is_scalar = value.shape.rank in (None, 0)
      return self._is_read and value.dtype.is_floating and is_scalar
    if self._fixed is None:
      return False
    if "Call" in op.type or op.type in ("If", "While", "StatelessWhile"):
      return True  # The constant may be in the function.
    if op.type != "Const":
      return False
    return any(map(self._is_fixed, _list_numbers(op)))

  def _is_fixed(self, number: float) -> bool:
    """Returns whether a number is a fixed loss scale, or divides by it."""
    if self._fixed is None:
      return False
    wanted = (self._fixed, 1 / self._fixed)
    return any(abs(number - x) <= 1e-6 * x for x in wanted)

  def _find_outer(self, op: Any) -> Any:
    """Returns what a function has captured there, if the op is for that."""
    if op is None or not op.type.startswith("Placeholder"):
      return None
    graph = op.graph
    if id(graph) not in self._captured:
      captures = getattr(graph, "captures", ())
      self._captured[id(graph)] = {id(x.op): y for y, x in captures}
    return self._captured[id(graph)].get(id(op))


def _list_numbers(constant: Any) -> list[float]:
  """Returns the number of a constant that has but one: a scalar, or alike.

  `tf.get_static_value` would forbid to feed the constant.

  Args:
    constant: A Const op.
  """
  value = constant.outputs[0]
  dtype = value.dtype
  if not dtype.is_floating and not (dtype.is_integer and value.shape.rank == 0):
    return []
  numbers = tf.make_ndarray(constant.get_attr("value"))
  numbers = numbers.astype(np.float64).ravel()
  if not numbers.size or (numbers != numbers[0]).any():
    return []
  return [float(numbers[0])]


def _is_like_scale(number: float) -> bool:
  """Returns whether a number is a power of two, as a factor of scales is.

  Norms and means have 1, 2 and 1/2.
  """
  return math.frexp(number)[0] == 0.5 and number not in (0.5, 1, 2)


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
