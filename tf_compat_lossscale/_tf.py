"""The one door to TensorFlow's private or version-dependent parts.

Every other module of the package uses TensorFlow's public names alone. What
has no public name stands here, once, each entry with the reason why it is
needed and the public name that would replace it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import sys
from typing import Any
import weakref

# Not plain `tensorflow`, which may stand for TensorFlow 1 (`tensorflow1.py`).
import tensorflow.compat.v2 as tf
from tensorflow.python.training.experimental import (
  mixed_precision_global_state as _rewrite_state,
)
from tensorflow.python.util import deprecation as _deprecation

# What `tf.train.Checkpoint` walks, and what Keras 2 itself builds on.
# `tf.Module` and `tf.Variable` are the public trackables; neither lets a class
# choose its children by graph.
Trackable = tf.__internal__.tracking.Trackable

# Ops of TF 1's control flow: what they let pass is theirs to decide.
_CONTROL_FLOW = frozenset(
  prefix + kind
  for prefix in ("", "Ref")
  for kind in ("Enter", "Exit", "Merge", "NextIteration", "Switch")
)

_STATE = "_tf_compat_lossscale_state"  # The attribute of graphs that holds it.


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
  predicate: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]
) -> Any:
  """`tf.cond`, left out where the predicate is known; cheaper in TF 1 graphs.

  There every input of an op in a branch goes through a Switch of its own: half
  of what dynamic loss scaling costs where variables are many and small. An op
  runs just as conditionally if it waits for the branch's pivot, which is dead
  in the branch that is not taken: one control edge, and no op more.

  `CondContext` is private, and so is `smart_cond`, which asks whether the
  predicate is known. A public cond that gates whole branches would replace
  this.

  Args:
    predicate: A bool scalar, or a Python bool.
    true_fn: Makes what is wanted when that is True.
    false_fn: The same for False.

  Returns:
    What the function that was chosen returns; in graphs, a tensor for an op.
  """
  smart_cond = tf.__internal__.smart_cond.smart_cond
  # Inside of another cond or a loop, which count on the Switches, they stay.
  if tf.executing_eagerly() or _control_flow_context():
    return smart_cond(predicate, true_fn, false_fn)

  def gated(fn: Callable[[], Any]) -> Callable[[], Any]:
    def branch() -> Any:
      context = _control_flow_context()
      if context:  # None in a branch that is a function, or that is left out.
        context.AddOp = _AddOp(context)
      return fn()

    return branch

  return smart_cond(predicate, gated(true_fn), gated(false_fn))


def runs_here(op: tf.Operation) -> bool:
  """Whether an op has a value whenever one does that is made here.

  In TF 1's graphs an op of a branch that is not taken has none, and which ops
  are in one is private.
  """
  return op._get_control_flow_context() is _control_flow_context()


def _control_flow_context() -> Any:
  """What TF 1's cond or loop is being built; None outside of any."""
  return tf.compat.v1.get_default_graph()._get_control_flow_context()


class _AddOp:
  """Takes an op into the branch of a v1 cond, without Switches."""

  def __init__(self, context: Any) -> None:
    self._context = context
    self._add_op = context.AddOp  # The one with a Switch for each input.

  def __call__(self, op: tf.Operation) -> None:
    if op.type in _CONTROL_FLOW or not op.inputs:
      self._add_op(op)
      return
    context = self._context
    if not any(x.op._get_control_flow_context() is context for x in op.inputs):
      op._add_control_input(context.pivot.op)
    context._values.update(output.name for output in op.outputs)
    op.graph.prevent_fetching(op)


@contextlib.contextmanager
def v1_control_flow(wanted: bool = True) -> Iterator[None]:
  """Builds conds the TF 1 way inside, as reference variables need it.

  A branch of a v2 cond is a function, and a function cannot capture a
  reference. The switch is public but process-wide, so it is turned for the
  construction of one cond alone. `tf.cond(..., v1=True)` would replace this.

  Args:
    wanted: False leaves the switch as it is.
  """
  if not wanted or not tf.compat.v1.control_flow_v2_enabled():
    yield
    return
  tf.compat.v1.disable_control_flow_v2()
  try:
    yield
  finally:
    tf.compat.v1.enable_control_flow_v2()


@contextlib.contextmanager
def train_ops_left_out() -> Iterator[None]:
  """Takes out of the TRAIN_OP collection what is put in meanwhile.

  `Optimizer.apply_gradients` adds its op from wherever it is called. From
  inside a cond that op cannot be run by itself; under v2 control flow it lives
  in another graph, and a MetaGraph with it cannot be imported. An argument of
  `apply_gradients` would replace this.
  """
  # A function's graph shares the collections of the graph around it.
  ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
  before = list(ops)
  yield
  ops[:] = before


def add_train_op(op: Any) -> None:
  """Adds an op to the TRAIN_OP collection, if a session can run it."""
  op = op.op if isinstance(op, tf.Tensor) else op
  graph = current_graph()
  if graph is None or not isinstance(op, tf.Operation) or op.graph is not graph:
    return
  if graph.is_fetchable(op):
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TRAIN_OP, op)


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
