"""A Saver that bridges generations, and sessions that restore with it."""

from __future__ import annotations

import inspect
import os
from typing import Any

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale.checkpoint import _saver_keys
from tf_compat_lossscale.checkpoint import paths
from tf_compat_lossscale.checkpoint import restoring
from tf_compat_lossscale.checkpoint.files import consistency as _consistency
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError
from tf_compat_lossscale.checkpoint.report import Report
from tf_compat_lossscale.checkpoint.targets import Targets

tf1 = tf.compat.v1
_Keys = tf1.GraphKeys


class Saver(tf.compat.v1.train.Saver):
  """A `tf.compat.v1.train.Saver` whose `restore` bridges generations.

  It saves as that one does. It restores what differs in names alone, the state
  of loss scales across APIs, and models that had no loss scale; what it did is
  logged, and kept as `last_report`. If another process overwrites a checkpoint
  meanwhile, it starts again, so that all values are of one.

  Attributes:
    last_report: The `Report` of the last `restore`; None if there was none, or
      every variable had its own name in the checkpoint.
  """

  last_report: Report | None = None
  _import_scope: str | None = None

  def restore(self, sess: tf.compat.v1.Session, save_path: str) -> None:
    """Restores variables that were saved.

    Args:
      sess: The session.
      save_path: A checkpoint, as `describe` takes it.

    Raises:
      CheckpointError: It is missing or damaged, or a variable is neither found
        in it nor bridged. Nothing is assigned then. Or another process kept on
        overwriting it; what was assigned may then be of several checkpoints.
      ValueError: `save_path` is None.
    """
    self.last_report = None
    if save_path is None:
      raise ValueError("save_path must be a checkpoint, but got None.")
    if "://" in os.fspath(save_path):
      # Not a local file: TensorFlow alone can read it, by exact names.
      super().restore(sess, save_path)
      return
    prefix = paths.find(os.fspath(save_path)).path
    variables, others = self._saved(sess.graph)
    targets = Targets(variables)

    def attempt(bundle: Bundle) -> Report | None:
      planned = found, _ = restoring.plan(sess, bundle, targets)
      if found.is_exact:
        super(Saver, self).restore(sess, bundle.prefix)
        return None
      if others:
        raise CheckpointError(
          f"{bundle.prefix}: names must be bridged, which cannot be done for "
          f"what is no variable ({', '.join(others)}): convert the checkpoint "
          "first (tf-lossscale convert)"
        )
      return restoring.carry_out(sess, bundle, targets, *planned)

    self.last_report = _consistency.read_consistently(prefix, attempt)
    if self.last_report is not None:
      logging.info("%s", self.last_report.summary)

  def _saved(self, graph: tf.Graph) -> tuple[Any, list[str]]:
    """What it saves: the variables, and the names of what is none."""
    saved = self._var_list
    if saved is None and self.saver_def is not None:
      decoded = _saver_keys.of(graph, self.saver_def)
      if decoded is not None:
        return decoded
    others = []
    if saved is None:
      scope = self._import_scope and self._import_scope + "/"
      saved = graph.get_collection(_Keys.GLOBAL_VARIABLES, scope)
      others = graph.get_collection(_Keys.SAVEABLE_OBJECTS, scope)
      if scope:  # Which the checkpoint does not know.
        targets = Targets(saved).parts
        saved = {name[len(scope) :]: parts for name, parts in targets.items()}
    elif not isinstance(saved, dict):
      saved = list(saved)
      others = [s for s in saved if not _is_variable(s)]
      saved = [s for s in saved if _is_variable(s)]
    return saved, [str(getattr(item, "name", item)) for item in others]


def _is_variable(item: Any) -> bool:
  return hasattr(item, "initializer") or hasattr(item, "as_tensor")


class Scaffold(tf.compat.v1.train.Scaffold):
  """A `tf.compat.v1.train.Scaffold` whose default saver is the `Saver` above.

  `MonitoredTrainingSession(scaffold=Scaffold(), …)` and session creators that
  are given one restore accordingly.
  """

  _saver: Any

  def finalize(self) -> Scaffold:
    """Makes what is missing, as TensorFlow's does, but for the saver."""
    if self._saver is None and not tf1.get_collection(_Keys.SAVERS):
      self._saver = Saver(sharded=True, allow_empty=True)
      tf1.add_to_collection(_Keys.SAVERS, self._saver)
    super().finalize()
    return self


def MonitoredTrainingSession(*args: Any, **kwargs: Any) -> Any:
  """`tf.compat.v1.train.MonitoredTrainingSession`, with the `Scaffold` above.

  Args:
    *args: What that one takes.
    **kwargs: What that one takes. A scaffold that is given stays.

  Returns:
    A monitored session.
  """
  make = tf1.train.MonitoredTrainingSession
  arguments = inspect.signature(make).bind(*args, **kwargs).arguments
  if arguments.get("scaffold") is None:
    arguments["scaffold"] = Scaffold()
  return make(**arguments)


def import_meta_graph(
  meta_graph_or_file: Any,
  clear_devices: bool = False,
  import_scope: str | None = None,
  **kwargs: Any,
) -> Saver | None:
  """Imports a MetaGraph, even if its collections name ops that are not there.

  TensorFlow's own loss scale optimizer put into the TRAIN_OP collection, under
  TensorFlow 2's control flow, an op of another graph; its own
  `import_meta_graph` then fails with a KeyError.

  Args:
    meta_graph_or_file: A `MetaGraphDef`, or the path of a '.meta' file.
    clear_devices: Whether to forget on which devices ops were.
    import_scope: The name scope to import into.
    **kwargs: What `tf.compat.v1.train.import_meta_graph` takes besides.

  Returns:
    A `Saver` of the variables that it had, each by the key that it had for it;
    None if it had none.

  Raises:
    CheckpointError: The file is missing or no MetaGraph.
  """
  meta_graph = _read_meta_graph(meta_graph_or_file)
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
  if saver is None:
    return None
  saver = Saver(saver_def=saver.saver_def)
  saver._import_scope = import_scope
  return saver


def _read_meta_graph(meta_graph_or_file: Any) -> tf.compat.v1.MetaGraphDef:
  meta_graph = tf1.MetaGraphDef()
  if isinstance(meta_graph_or_file, tf1.MetaGraphDef):
    meta_graph.CopyFrom(meta_graph_or_file)
    return meta_graph
  path = os.fspath(meta_graph_or_file)
  try:
    with open(path, "rb") as file:
      meta_graph.ParseFromString(file.read())
  except OSError as error:
    raise CheckpointError(f"{path}: {error.strerror}") from None
  except Exception as error:
    # protobuf's DecodeError, without a dependency on that package's name.
    if type(error).__name__ != "DecodeError":
      raise
    raise CheckpointError(f"{path}: no MetaGraph: {error}") from None
  return meta_graph
