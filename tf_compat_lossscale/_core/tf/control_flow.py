"""Conds: `tf.cond`, and the v1 conds that TensorFlow has no public name for.

`CondContext` is the class of v1 conds. If a release lacks it, reference
variables under control flow v2 get an error that says what to do, and a
predicate that is made of constants gets no cond. `tf.cond(..., v1=True)` would
replace it.
"""

from __future__ import annotations

from collections.abc import Callable
import importlib
import re
from typing import Any

# Not plain `tensorflow`, which may stand for TensorFlow 1 (`tensorflow1.py`).
import tensorflow.compat.v2 as tf


def _private(module: str, name: str) -> Any:
  """Returns what a private module has by that name; None in other releases."""
  try:
    return getattr(importlib.import_module(f"tensorflow.python.{module}"), name)
  except (AttributeError, ImportError):
    return None


_CondContext = _private("ops.control_flow_ops", "CondContext")
_has_callbacks = _private(
  "framework.op_callbacks", "should_invoke_op_callbacks"
)
# The private function finds more constants than the public one: the runtime
# evaluates the tensor.
_constant_value = (
  _private("framework.smart_cond", "smart_constant_value")
  or tf.get_static_value
)

# TensorFlow's fused optimizer kernels, from `ApplyAdam` to
# `ResourceSparseApplyProximalGradientDescent`, and the scalar that each takes.
_FUSED_APPLY = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*")
_LEARNING_RATES = ("lr", "alpha")

# Op names are no contract, but users fetch tensors by name: everything made
# here sits under one name that nobody gives to an op of their own.
NAME_SCOPE = "LossScaling"


def is_ref_variable(variable: Any) -> bool:
  """Whether `variable` is a TF 1 reference variable, not a resource.

  `DType.is_ref` was never public; that the base dtype differs is.
  """
  dtype = getattr(variable, "dtype", None)
  return isinstance(dtype, tf.DType) and dtype.base_dtype != dtype


def cond(
  predicate: Any,
  true_fn: Callable[[], Any],
  false_fn: Callable[[], Any],
  v1: bool = False,
) -> Any:
  """Runs the ops of one function or of the other, as `tf.cond` does.

  In the branch that `true_fn` makes of a v1 cond, fused optimizer ops get one
  Switch each at most, shared by all that have the same learning rate (see
  `_gate`).

  A predicate that is known to be True, since it is made of constants, gets a
  cond, too: a session may be fed another value for one of these. But variables
  are named as if there were none, since TensorFlow's own builds none then. If
  the predicate is known to be False, there is no cond and no op of `true_fn`.

  Args:
    predicate: A bool scalar, or a Python bool, which gets no cond.
    true_fn: Makes the ops that run if the predicate is True.
    false_fn: Makes those that run if it is False.
    v1: Whether a graph gets a v1 cond even if control flow v2 is enabled, as
      reference variables need it: a branch of a v2 cond is a function, and a
      function cannot capture a reference. Both functions must return ops.

  Returns:
    What the chosen function returns; in graphs, a tensor for an op.
  """
  if tf.executing_eagerly() or not isinstance(predicate, tf.Tensor):
    return true_fn() if predicate else false_fn()

  def gated() -> Any:
    _gate(_control_flow_context())
    return true_fn()

  value = _constant_value(predicate)
  if value is not None and not value:
    return false_fn()
  known = value is not None
  graph = tf.compat.v1.get_default_graph()
  in_function = isinstance(graph, tf.__internal__.FuncGraph)
  if known and (in_function or _CondContext is None):
    return true_fn()  # Nothing in a function can be fed.
  v1 = v1 and not in_function and tf.compat.v1.control_flow_v2_enabled()
  if v1 or known:
    return _v1_cond(predicate, gated, false_fn, named=not known)
  return tf.cond(predicate, gated, false_fn)


def is_known(tensor: tf.Tensor) -> bool:
  """Returns whether a tensor of a graph is made of constants alone."""
  return not tf.executing_eagerly() and _constant_value(tensor) is not None


def _v1_cond(
  predicate: tf.Tensor,
  true_fn: Callable[[], tf.Operation],
  false_fn: Callable[[], tf.Operation],
  named: bool,
) -> tf.Tensor:
  """Builds a v1 cond; if `named`, what is in it is named for it.

  `tf.compat.v1.disable_control_flow_v2` would make `tf.cond` do this, but for
  all threads of the process. `CondContext` is private; `tf.cond(..., v1=True)`
  would replace this function.
  """
  if _CondContext is None:
    raise RuntimeError(
      f"TensorFlow {tf.__version__} cannot build a v1 cond while control flow "
      "v2 is enabled, and reference variables need one: make the variables "
      "with use_resource=True, or call tf.compat.v1.disable_control_flow_v2()."
    )
  around = tf.compat.v1.get_default_graph().get_name_scope()
  with tf.name_scope("cond" if named else NAME_SCOPE) as scope:
    inside = scope if named else f"{around}/" if around else None
    switch = tf.raw_ops.Switch(data=predicate, pred=predicate)
    predicate = tf.identity(predicate, "pred_id")
    results = []
    for branch, fn in ((1, true_fn), (0, false_fn)):
      pivot = tf.identity(switch[branch], f"switch_{'ft'[branch]}")
      context = _CondContext(predicate, pivot, branch)
      context.Enter()
      try:
        with tf.compat.v1.name_scope(inside):
          done, result = context.BuildCondBranch(fn)
        if done is None:
          raise ValueError(
            "apply_gradients() of the wrapped optimizer must return an op in "
            "a graph, but returned None: return the op that applies gradients."
          )
        context.ExitResult(result)
      finally:
        context.Exit()
      results += result
      pivot.graph.prevent_fetching(pivot.op)
      if context.outer_context is None:  # A MetaGraph holds the outermost.
        tf.compat.v1.add_to_collection(
          tf.compat.v1.GraphKeys.COND_CONTEXT, context
        )
    switch[0].graph.prevent_fetching(switch[0].op)
    return tf.raw_ops.Merge(inputs=results[::-1])[0]


def _control_flow_context() -> Any:
  """Returns the v1 cond or loop that is being built; None outside of any."""
  return tf.compat.v1.get_default_graph()._get_control_flow_context()


def _gate(context: Any) -> None:
  """Spares the fused optimizer ops of a v1 cond's branch most Switches.

  The invariant of a v1 cond: every op of a branch that has an effect has a
  *data* input that comes from a Switch by the cond's predicate. A control edge
  does not do: graph optimizers drop those of which they think that nothing
  hangs on them. TensorFlow holds the invariant by a Switch for each tensor that
  a branch takes from outside: for each gradient, variable, slot and constant.
  That is half of what dynamic loss scaling costs if variables are many and
  small.

  An op runs only if all its inputs are alive, so one Switch is enough, if
  TensorFlow's graph optimizers leave it in place. They rewrite many kinds of
  ops, but not a fused optimizer op, which takes nearly all of its inputs from
  outside the branch. So each of these gets one Switch, on its learning rate: a
  scalar that mostly all of an optimizer's ops share. All other ops get
  TensorFlow's.

  `CondContext.AddOp`, which makes the Switches, is private, and so are the
  tables that it keeps. If a release does not have them, or if its `AddOp` makes
  something else of them, then ops get the Switches that TensorFlow makes. A
  public cond that gates whole branches would replace this.

  Args:
    context: The branch's CondContext; None in a branch that is a function.
  """
  known = getattr(context, "_values", None)
  switched = getattr(context, "_external_values", None)
  if known is None or switched is None:
    return
  # A loop or cond around this one must gate the op's inputs, too. It learns of
  # them by TensorFlow's `AddOp` alone.
  if context.outer_context is not None:
    return
  add_op = context.AddOp

  def add_fused_op(op: tf.Operation) -> None:
    rate = _learning_rate(op)
    if rate is not None:
      name = op.inputs[rate].name
      others = {x.name for x in op.inputs if x.name != name} - known
      # A tensor that is made in the branch depends on it by a control edge at
      # best, so it gets a Switch, too.
      if name not in switched:
        known.discard(name)
      known.update(others)
      add_op(op)
      known.difference_update(others)
      if op.inputs[rate].op.type == "Switch":
        return
    add_op(op)

  context.AddOp = add_fused_op


def _learning_rate(op: tf.Operation) -> int | None:
  """Returns which input of a fused optimizer op is its learning rate."""
  if _FUSED_APPLY.fullmatch(op.type):
    for i, argument in enumerate(op.op_def.input_arg):
      if argument.name in _LEARNING_RATES:
        return i
  return None


def are_values_checked() -> bool:
  """Returns whether a debugger inspects the ops that are made now.

  `tf.debugging.enable_check_numerics` makes every op fail whose result is not
  finite. A public reader of a debugger's callbacks would replace this function.
  """
  return bool(_has_callbacks and _has_callbacks())
