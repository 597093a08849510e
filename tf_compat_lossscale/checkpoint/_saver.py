# SPDX-License-Identifier: Apache-2.0
"""Holds a Saver that bridges generations, and sessions that restore with it."""

from __future__ import annotations

from collections.abc import Mapping
import functools
import inspect
import os
from typing import Any

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import private_names
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint import _restoring
from tf_compat_lossscale.checkpoint import pairs
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.checkpoint._report import Report
from tf_compat_lossscale.checkpoint._targets import Wishes
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError

tf1 = tf.compat.v1
_Keys = tf1.GraphKeys
_ASSIGNS = {"Assign", "AssignVariableOp"}
# Ops between the op that reads a tensor and the op that assigns the tensor.
_PASSES = {"Cast", "Identity", "Reshape"}
# The op that reads tensors. Its inputs are a prefix, names and slices.
_READER = "RestoreV2"
# Errors of the restoring op. Others are of the session, such as a lost worker.
_DAMAGES = (
  tf.errors.DataLossError,
  tf.errors.NotFoundError,
  tf.errors.OutOfRangeError,
)


class Saver(tf.compat.v1.train.Saver):
  """A `tf.compat.v1.train.Saver` whose `restore` bridges generations.

  The Saver saves as TensorFlow's does. It also restores variables whose names
  differ, the state of a loss scale of another API, and models that had no loss
  scale. It logs what it restored, and keeps the report as `last_report`. If
  another process overwrites a checkpoint meanwhile, the Saver starts again, so
  that all values are of one checkpoint.

  Attributes:
    last_report: The `Report` of the last `restore`; None if there was no
      `restore`, or every variable had its own name in the checkpoint.
  """

  last_report: Report | None = None

  def __init__(
    self,
    var_list: Any = None,
    *args: Any,
    mapping: Mapping[str, str | None] | None = None,
    **kwargs: Any,
  ) -> None:
    """Makes a Saver as TensorFlow does.

    Args:
      var_list: The variables, as TensorFlow's Saver takes them.
      *args: Further arguments of TensorFlow's Saver.
      mapping: What `restore` of this module's package takes: names and scopes
        that differ in the checkpoint.
      **kwargs: Further arguments of TensorFlow's Saver.
    """
    self._wishes = Wishes(pairs.check(mapping))
    super().__init__(var_list, *args, **kwargs)

  def restore(
    self, sess: tf.compat.v1.Session, save_path: str | os.PathLike[str]
  ) -> None:
    """Restores variables that were saved.

    Args:
      sess: The session.
      save_path: A checkpoint, as `describe` takes it.

    Raises:
      CheckpointError: The checkpoint is missing or damaged, or a variable is
        neither found in it nor bridged. No variable is assigned then. Or
        another process kept on overwriting the checkpoint; then variables may
        have values of several checkpoints.
    """
    self.last_report = None
    reading.find(save_path)  # That it is missing is the first error to report.
    saved, others = self._find_saved(sess.graph)

    def attempt(checkpoint: Checkpoint) -> Report | None:
      targets = _restoring.list_targets(saved)
      notes = _restoring.match_by_name(sess, checkpoint, targets, self._wishes)
      is_exact = all(each.source and not each.why for each in targets)
      if is_exact and checkpoint.object_graph is None:
        with reading.explain(checkpoint.prefix, _DAMAGES):
          super(Saver, self).restore(sess, checkpoint.prefix)
        return None
      if others:
        raise CheckpointError(
          f"{checkpoint.prefix}: names must be bridged, but only variables can "
          f"be, and the Saver has more ({', '.join(others)}): convert "
          "the checkpoint first (tf-lossscale convert)"
        )
      return _restoring.fill_by_name(sess, checkpoint, targets, notes)

    self.last_report = reading.read_consistently(save_path, attempt)
    if self.last_report is not None:
      logging.info("%s", self.last_report.summary)

  def _find_saved(self, graph: tf.Graph) -> tuple[Any, list[str]]:
    """Returns the variables that the Saver saves, as `list_targets` takes them.

    Besides, it returns the keys or names of other objects, such as tables, and
    of what the graph does not show to be one variable.
    """
    saved = private_names.find_saved_objects(self)
    if saved is None:
      return _find_by_ops(graph, self.saver_def)
    if isinstance(saved, dict):
      return saved, []
    others = [item for item in saved if not _is_variable(item)]
    names = [str(getattr(item, "name", item)) for item in others]
    return [item for item in saved if _is_variable(item)], names


def _is_variable(item: Any) -> bool:
  return hasattr(item, "initializer") or hasattr(item, "as_tensor")


class Scaffold(tf.compat.v1.train.Scaffold):
  """A `tf.compat.v1.train.Scaffold` whose default saver is the `Saver` above.

  Sessions restore with that saver if they get the scaffold:
  `MonitoredTrainingSession(scaffold=Scaffold(), …)`, or a session creator. If
  the graph has a saver already, such as that of an earlier session, the `Saver`
  runs its ops.
  """

  def __init__(
    self,
    *args: Any,
    mapping: Mapping[str, str | None] | None = None,
    **kwargs: Any,
  ) -> None:
    """Makes a Scaffold as TensorFlow does, and gives its Saver the mapping."""
    self._mapping = pairs.check(mapping)
    super().__init__(*args, **kwargs)

  def finalize(self) -> Scaffold:
    """Creates the missing parts as TensorFlow's does, except for the saver."""
    if self.saver is None:
      # TensorFlow's `finalize` takes the saver of this collection. Through the
      # reference, the collection of a finalized graph can be changed.
      savers = tf1.get_collection_ref(_Keys.SAVERS)
      if not savers:
        savers.append(
          Saver(sharded=True, allow_empty=True, mapping=self._mapping)
        )
      elif len(savers) == 1 and type(savers[0]) is tf1.train.Saver:
        if savers[0].saver_def is None:
          savers[0].build()
        # A saver of no variables has no ops.
        if savers[0].saver_def is not None:
          savers[0] = Saver(
            saver_def=savers[0].saver_def, mapping=self._mapping
          )
    super().finalize()
    return self


@functools.wraps(tf1.train.MonitoredTrainingSession, assigned=(), updated=())
def MonitoredTrainingSession(*args: Any, **kwargs: Any) -> Any:
  """Returns TensorFlow's `MonitoredTrainingSession` with the `Scaffold` above.

  The parameters are those of `tf.compat.v1.train.MonitoredTrainingSession`,
  which explains them. If `scaffold` is given, the session uses it.

  Returns:
    A monitored session.
  """
  create = tf1.train.MonitoredTrainingSession
  given = inspect.signature(create).bind(*args, **kwargs).arguments
  return create(**given | {"scaffold": given.get("scaffold") or Scaffold()})


def import_meta_graph(
  meta_graph_or_file: Any,
  clear_devices: bool = False,
  import_scope: str | None = None,
  **kwargs: Any,
) -> Saver | None:
  """Imports a MetaGraph, even if its collections name ops that are not there.

  Under TensorFlow 2's control flow, TensorFlow's own loss scale optimizer added
  an op of another graph to the TRAIN_OP collection. TensorFlow's own
  `import_meta_graph` fails with a KeyError for such a MetaGraph.

  Args:
    meta_graph_or_file: A `MetaGraphDef`, or the path of a '.meta' file.
    clear_devices: Whether to leave out the devices of ops.
    import_scope: The name scope to import into.
    **kwargs: Further arguments of `tf.compat.v1.train.import_meta_graph`.

  Returns:
    A `Saver` of the variables that the MetaGraph's Saver had, by the same keys;
    None if the MetaGraph had no Saver.

  Raises:
    CheckpointError: The file is missing or no MetaGraph.
  """
  meta_graph = tf1.MetaGraphDef()
  if isinstance(meta_graph_or_file, tf1.MetaGraphDef):
    meta_graph.CopyFrom(meta_graph_or_file)
  else:
    path = os.fspath(meta_graph_or_file)
    reading.read_message(path, meta_graph)
  nodes = {node.name for node in meta_graph.graph_def.node}
  for key, collection in meta_graph.collection_def.items():
    if collection.WhichOneof("kind") != "node_list":
      continue
    names = list(collection.node_list.value)
    kept = [name for name in names if name.split(":")[0].lstrip("^") in nodes]
    if kept != names:
      lost = ", ".join(name for name in names if name not in kept)
      logging.info("Not imported into collection %s: %s", key, lost)
      collection.node_list.value[:] = kept
  saver = tf1.train.import_meta_graph(
    meta_graph, clear_devices, import_scope, **kwargs
  )
  return None if saver is None else Saver(saver_def=saver.saver_def)


def _find_by_ops(
  graph: tf.Graph, saver_def: tf.compat.v1.train.SaverDef | None
) -> tuple[dict[str, list[Any]], list[str]]:
  """Finds the keys by which a Saver of a MetaGraph restores variables.

  A MetaGraph has a `SaverDef`, which names some of the Saver's ops. Only these
  ops show which key belongs to which variable: an op reads a tensor by its key,
  and another op assigns the tensor to the variable:

      RestoreV2(prefix, ["w/key"], [""]) -> Identity -> AssignVariableOp(w)

  Returns:
    Key -> the variable, or the parts of a partitioned one; and the other keys.
  """
  # An imported graph has a variable anew in each collection. Those of the last
  # collection here are the ones that restoring by name knows.
  known = {
    item.op.name: item
    for key in (*graph.get_all_collection_keys(), _Keys.GLOBAL_VARIABLES)
    for item in graph.get_collection(key)
    if hasattr(item, "initializer") and hasattr(item, "op")
  }
  list_reads = functools.cache(_list_reads)
  found: dict[str, list[Any]] = {}
  others: dict[str, None] = {}  # Keys, also of what is no variable.
  try:  # A Saver with defer_build has no `SaverDef` before `build`.
    name = getattr(saver_def, "restore_op_name", "")
    stack = [graph.get_operation_by_name(name)]
  except KeyError:
    raise CheckpointError(
      f"the session's graph has no op {name!r}, by which the Saver restores: "
      "make the Saver for that graph, and with defer_build call its build first"
    ) from None
  seen = set(stack)
  while stack:
    op = stack.pop()
    if op.type == _READER:
      others |= dict.fromkeys(key for key, _ in list_reads(op))
    elif op.type in _ASSIGNS:
      tensor = op.inputs[1]
      while tensor.op.type in _PASSES:
        tensor = tensor.op.inputs[0]
      variable = known.get(op.inputs[0].op.name)
      if tensor.op.type == _READER and variable is not None:
        key, part = list_reads(tensor.op)[tensor.value_index]
        info = tracking.find_slice(variable)
        is_fit = part == (info.spec if info else "")
        found.setdefault(key, []).append(variable if is_fit else None)
    before = [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
    fresh = [each for each in dict.fromkeys(before) if each not in seen]
    stack += fresh
    seen.update(fresh)
  for key, variables in found.items():
    are_parts = all(map(tracking.find_slice, variables))
    if None not in variables and (len(variables) == 1 or are_parts):
      del others[key]
  return {k: found[k] for k in sorted(found.keys() - others.keys())}, [*others]


def _list_reads(op: tf.Operation) -> list[tuple[str, str]]:
  """Returns key and slice of each output of an op that reads; "" is all."""
  keys, parts = (tf.get_static_value(tensor) for tensor in op.inputs[1:])
  return [(key.decode(), part.decode()) for key, part in zip(keys, parts)]
