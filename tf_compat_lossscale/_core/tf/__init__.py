"""The one door to TensorFlow's private or version-dependent parts.

Every other module of the package uses TensorFlow's public names alone. What
has no public name stands here, once, each entry with the reason why it is
needed and the public name that would replace it.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import copy
import importlib
import re
import sys
import threading
from typing import Any
import weakref

# Not plain `tensorflow`, which may stand for TensorFlow 1 (`tensorflow1.py`).
import tensorflow.compat.v2 as tf
from tensorflow.python.training.experimental import (
  mixed_precision_global_state as _rewrite_state,
)
from tensorflow.python.util import deprecation as _deprecation


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
# It finds more than the public function: the runtime evaluates the tensor.
_constant_value = (
  _private("framework.smart_cond", "smart_constant_value")
  or tf.get_static_value
)

# What `tf.train.Checkpoint` walks, and what Keras 2 itself builds on.
# `tf.Module` and `tf.Variable` are the public trackables; neither lets a class
# choose its children by graph.
Trackable = tf.__internal__.tracking.Trackable

# TensorFlow's fused optimizer kernels, from `ApplyAdam` to
# `ResourceSparseApplyProximalGradientDescent`, and the scalar that each takes.
_FUSED_APPLY = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*")
_LEARNING_RATES = ("lr", "alpha")

# Op names are no contract, but users fetch tensors by name: everything made
# here sits under one name that nobody gives to an op of their own.
NAME_SCOPE = "LossScaling"

_STATE = "_tf_compat_lossscale_state"  # The attribute of graphs that holds it.
_GRAPH_LOCK = threading.Lock()  # Several threads may build one graph.


def current_graph() -> tf.Graph | None:
  """The graph that holds the variables made here; None when eager.

  Inside a `tf.function`, a tf.data function or a branch of a v2 cond the
  default graph is that function's own, which holds no variables: `init_scope`
  leaves it. It is public; that the graph so found is the key by which state is
  kept is TensorFlow's private rule (`Graph._graph_key`).
  """
  if tf.executing_eagerly():
    return None
  with tf.init_scope():
    if tf.executing_eagerly():
      return None
    return tf.compat.v1.get_default_graph()


def state_on_graph(
  graph: tf.Graph, owner: Any, default: Callable[[], Any]
) -> Any:
  """What `owner` keeps for `graph`, made by `default` when there is none.

  Variables refer to their graph. Kept on their owner, they would keep every
  graph alive that it ever served; kept on the graph, they go with it. Graph
  collections would be the public place, but `export_meta_graph` writes those.

  Args:
    graph: The graph that is to hold the state.
    owner: A hashable object; the state is dropped when it goes.
    default: Makes the state of an owner that this graph does not know yet.

  Returns:
    The state.
  """
  with _GRAPH_LOCK:
    owners = getattr(graph, _STATE, None)
    if owners is None:
      owners = weakref.WeakKeyDictionary()
      setattr(graph, _STATE, owners)
    if owner not in owners:
      owners[owner] = default()
    return owners[owner]


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


def is_checkpointing() -> bool:
  """Whether the caller's caller is TensorFlow's writer of checkpoints.

  It asks every optimizer that it finds for its slots and refuses to save when
  two claim the same one. An optimizer that speaks for the one it wraps, which
  is tracked too, must therefore be silent to it, and to it alone. A tracking
  hook that names the owner of a slot would replace this.
  """
  caller = sys._getframe(2).f_globals.get("__name__", "")
  return caller.startswith("tensorflow.python.checkpoint.")


def slice_info(variable: Any) -> Any:
  """Which part of a partitioned variable this one is; None if it is whole.

  `Saver` reads the same attribute. A public reader would replace this.

  Returns:
    An object with `full_name`, `full_shape`, `var_offset` and `var_shape`.
  """
  get = getattr(variable, "_get_save_slice_info", None)
  return get() if get else None


def children(trackable: Any) -> dict[str, Any]:
  """What a trackable's checkpoint holds under it: name -> trackable.

  `tf.train.Checkpoint` walks these. A public walker would replace this.
  """
  get = getattr(trackable, "_trackable_children", None)
  return dict(get("checkpoint")) if get else {}


def initial_state(
  optimizer: Any, variables: list[tf.Variable]
) -> list[tuple[tf.Variable, tf.Tensor]]:
  """The own variables of a `compat.v1` optimizer, and what each starts from.

  A copy of it makes them anew, eagerly. A public reset would replace this.
  """
  twin = copy.copy(optimizer)
  for table in ("_slots", "_non_slot_dict", "_deferred_slot_restorations"):
    setattr(twin, table, {})
  twin._self_unconditional_deferred_dependencies = {}
  twin._create_slots(variables)
  old, new = optimizer._slots, twin._slots | {"": twin._non_slot_dict}
  return [
    (mine[key], tf.identity(new[name][key]))
    for name, mine in (old | {"": optimizer._non_slot_dict}).items()
    for key in mine.keys() & new.get(name, {}).keys()
  ]


def quiet_deprecations() -> contextlib.AbstractContextManager[None]:
  """Silences TensorFlow's deprecation warnings while it is entered.

  `tf.get_logger().setLevel` would silence all others too.
  """
  return _deprecation.silence()


def is_rewrite_enabled() -> bool:
  """Whether sessions made now apply auto mixed precision.

  `Session` reads this flag. The getter has a name in `tf.__internal__`, the
  setter has none.
  """
  return _rewrite_state.is_mixed_precision_graph_rewrite_enabled()


def set_rewrite_enabled(enabled: bool) -> None:
  """Sets the flag that `is_rewrite_enabled` reads."""
  _rewrite_state.set_mixed_precision_graph_rewrite_enabled(enabled)


def has_plain_session() -> bool:
  """Whether a session was made while the rewrite was off.

  `Session` notes it where only the private state module can read it.
  """
  return _rewrite_state.non_mixed_precision_session_created()


def is_mixed_policy_set() -> bool:
  """Whether the global Keras policy is a mixed one.

  Keras 2 notes it through `tf.__internal__.train`; the getter has no name
  there.
  """
  return _rewrite_state.is_using_mixed_precision_policy()


def foreign_wrappers() -> dict[type, tuple[Callable[..., Any], type]]:
  """What others registered with TensorFlow for the graph rewrite.

  Keras 2 registers its optimizers by `register_loss_scale_wrapper` of
  `tf.__internal__.mixed_precision`. There is no public reader of that table.

  Returns:
    Base class of optimizers -> (function that wraps one, class that it gives).
  """
  register = tf.__internal__.mixed_precision.register_loss_scale_wrapper
  table = register.__globals__.get("_REGISTERED_WRAPPER_OPTIMIZER_CLS", {})
  return dict(table)
