# SPDX-License-Identifier: Apache-2.0
"""Conds: `tf.cond`, and the v1 conds that TensorFlow has no public name for.

`GraphOrParentsInXlaContext` says whether XLA compiles what is built;
a public getter would replace it. Without it, XLA refuses ops that it cannot
compile, and names them.

`CondContext` is the class of v1 conds. `tf.cond(..., v1=True)` would replace
it. In a release without it, reference variables under control flow v2 get an
error that says what to do, and a predicate that is made of constants gets no
cond.
"""

from __future__ import annotations

from collections.abc import Callable
import re
from typing import Any

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import private_names

# Users fetch tensors by name. So every op that the package adds is in a name
# scope that no user's op has, and takes no name from the ops of the user.
NAME_SCOPE = "LossScaling"

_CondContext = private_names.find_private("ops.control_flow_ops", "CondContext")
_has_callbacks = private_names.find_private(
  "framework.op_callbacks", "should_invoke_op_callbacks"
)
_is_in_xla_context = private_names.find_private(
  "ops.control_flow_util", "GraphOrParentsInXlaContext"
)
# The private function finds more constants than the public one does, for the
# runtime evaluates the tensor. TensorFlow's own conds ask it. Without it, a few
# more conds are built, and a few variables get other names.
_constant_value = (
  private_names.find_private("framework.smart_cond", "smart_constant_value")
  or tf.get_static_value
)

# TensorFlow's fused optimizer kernels, from `ApplyAdam` to
# `ResourceSparseApplyProximalGradientDescent`, and the names of the scalar
# input that each of them has.
_FUSED_APPLY = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*")
_LEARNING_RATES = ("lr", "alpha")


def cond(
  predicate: Any,
  true_fn: Callable[[], Any],
  false_fn: Callable[[], Any],
  v1: bool = False,
  named: bool = True,
) -> Any:
  """Runs the ops of one of two functions, as `tf.cond` does.

  If the cond is a v1 cond, the fused optimizer ops of `true_fn` share their
  Switches (see `_share_switches`).

  A predicate that is made of constants and is True gets a cond, too: a session
  may feed one of those constants. The variables in that cond are named as if
  there were no cond, because TensorFlow's own builds none. If the predicate is
  made of constants and is False, there is no cond and no op of `true_fn`.

  Args:
    predicate: A bool scalar, or a Python bool, which gets no cond.
    true_fn: Creates the ops that run if the predicate is True.
    false_fn: Creates the ops that run if the predicate is False.
    v1: Whether a graph gets a v1 cond even if control flow v2 is enabled, as
      reference variables need: a branch of a v2 cond is a function, and a
      function cannot capture a reference. Both functions must return ops.
    named: Whether the variables in a v1 cond are named after the cond. If not,
      they are named as if there were no cond.

  Returns:
    The result of the function that ran; in graphs, a tensor for an op.

  Raises:
    RuntimeError: A v1 cond is needed and this release cannot build it.
    ValueError: A v1 cond was built and a function returned None.
  """
  if tf.executing_eagerly() or not isinstance(predicate, tf.Tensor):
    return true_fn() if predicate else false_fn()

  def run_true_fn() -> Any:
    # The v1 cond that is being built. A public getter would replace the method;
    # a release that drops v1 control flow has no use for it.
    graph = tf.compat.v1.get_default_graph()
    _share_switches(graph._get_control_flow_context())
    return true_fn()

  value = _constant_value(predicate)
  if value is not None and not value:
    return false_fn()
  known = value is not None
  graph = tf.compat.v1.get_default_graph()
  in_function = isinstance(graph, tf.__internal__.FuncGraph)
  if known and (in_function or _CondContext is None):
    return true_fn()  # No session can feed a constant of a function.
  if tf.compat.v1.control_flow_v2_enabled():
    v1 = v1 and not in_function
  else:
    v1 = not (named or in_function or _CondContext is None)
  if v1 or known:
    named = named and not known
    return _build_v1_cond(predicate, run_true_fn, false_fn, named)
  return tf.cond(predicate, run_true_fn, false_fn)


def is_known(tensor: tf.Tensor) -> bool:
  """Returns whether a graph's tensor is made of constants alone."""
  return not tf.executing_eagerly() and _constant_value(tensor) is not None


def is_for_xla() -> bool:
  """Returns whether XLA compiles the ops created now.

  XLA does so in a `tf.function(jit_compile=True)`, in functions that are traced
  within one, and in `tf.xla.experimental.compile`.
  """
  if tf.executing_eagerly() or _is_in_xla_context is None:
    return False
  return bool(_is_in_xla_context(tf.compat.v1.get_default_graph()))


def are_values_checked() -> bool:
  """Returns whether a debugger inspects the results of ops created now.

  `tf.debugging.enable_check_numerics` makes every op fail whose result is not
  finite. A public reader of a debugger's callbacks would replace the private
  one; without either, the debugger reports overflowing sums as errors.
  """
  return bool(_has_callbacks and _has_callbacks())


def _build_v1_cond(
  predicate: tf.Tensor,
  true_fn: Callable[[], tf.Operation],
  false_fn: Callable[[], tf.Operation],
  named: bool,
) -> tf.Tensor:
  """Builds a v1 cond, also if control flow v2 is enabled.

  `tf.compat.v1.disable_control_flow_v2` would make `tf.cond` build v1 conds,
  but in all threads of the process. The parameters are those of `cond`; the
  result is a tensor that depends on the op that runs.
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
      if context.outer_context is None:  # A MetaGraph holds outermost contexts.
        tf.compat.v1.add_to_collection(
          tf.compat.v1.GraphKeys.COND_CONTEXT, context
        )
    switch[0].graph.prevent_fetching(switch[0].op)
    return tf.raw_ops.Merge(inputs=results[::-1])[0]


def _share_switches(context: Any) -> None:
  """Gives the fused optimizer ops of a branch one Switch each at most.

  In a v1 cond, every op of a branch that has an effect must have a *data* input
  from a Switch by the cond's predicate. A control edge is not enough: graph
  optimizers drop control edges that seem to have no effect. TensorFlow adds a
  Switch for each tensor from outside the branch. If variables are many and
  small, these Switches are half of the cost of dynamic loss scaling.

  An op runs only if all its inputs are alive, so one Switch is enough, if
  TensorFlow's graph optimizers leave the Switch in place. They rewrite many
  kinds of ops, but no fused optimizer op. So each of these gets one Switch, on
  its learning rate: a scalar that nearly all ops of an optimizer share. All
  other ops get TensorFlow's Switches.

  `CondContext.AddOp`, which adds the Switches, and the tables `_values` and
  `_external_values` are private. In a release without these tables, or with
  another use of them, all ops get TensorFlow's Switches. A public cond that
  gates whole branches would replace this function.
  """
  # Of the branch's CondContext; a branch that is a function has none.
  known = getattr(context, "_values", None)
  switched = getattr(context, "_external_values", None)
  if known is None or switched is None:
    return
  # A loop or cond around the branch must gate the inputs, too, and gets to know
  # inputs by TensorFlow's `AddOp` alone.
  if context.outer_context is not None:
    return
  add_op = context.AddOp

  def add_fused_op(op: tf.Operation) -> None:
    rate = _find_learning_rate(op)
    if rate is not None:
      name = op.inputs[rate].name
      others = {x.name for x in op.inputs if x.name != name} - known
      # A rate that is computed in the branch depends on the branch by a control
      # edge at best, so the rate gets a Switch, too.
      if name not in switched:
        known.discard(name)
      known.update(others)
      add_op(op)
      known.difference_update(others)
      if op.inputs[rate].op.type == "Switch":
        return
    add_op(op)

  context.AddOp = add_fused_op


def _find_learning_rate(op: tf.Operation) -> int | None:
  if _FUSED_APPLY.fullmatch(op.type):
    for i, argument in enumerate(op.op_def.input_arg):
      if argument.name in _LEARNING_RATES:
        return i
  return None
