# SPDX-License-Identifier: Apache-2.0
"""Loads models of Keras 2 with the state of their optimizers.

Keras makes new optimizers when it loads a SavedModel, although the file has all
variables of the saved optimizers. The file's checkpoint describes a graph of
objects. The loaded model has most of these objects, by the same paths:

  pairs = each node of the file, and the live object with the same path
  for node in the nodes that are optimizers:
    if the live object is an optimizer that can train:
      make the slots that the file has
      assign the file's values to all variables of the optimizer
    else:
      log a warning
"""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import json
import os
from typing import Any
import zipfile

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.object_graph import AGAIN
from tf_compat_lossscale._core.object_graph import ObjectGraph
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _skipped_steps
from tf_compat_lossscale.keras.optimizer import LossScaleOptimizer

_Model = _keras2.keras.Model
_ADVICE = (
  "To keep all of it, save a SavedModel: model.save(path, save_format='tf')."
)


def load_model(
  path: Any, custom_objects: Any = None, compile: bool = True, **kwargs: Any
) -> Any:
  """Loads a model as Keras does, with its optimizers as they were saved.

  `tf.keras.models.load_model` starts with the initial loss scale; if it loads a
  SavedModel, also with new slots and from iteration 0. This function restores
  the loss scale, the slots and the iterations from a SavedModel, for the model
  and the models within it. Other files have no loss scale, and a warning says
  so.

  With `compile=False` no optimizer is loaded. To restore the optimizers later,
  compile the model as it was, then call
  `tf_compat_lossscale.checkpoint.restore(None, path, model)`. Do the same if
  the model's `compile` takes optimizers by other names than Keras's.

  Args:
    path: A SavedModel's folder, an `.h5` or `.keras` file, or an `h5py.File`.
    custom_objects: More classes and functions for Keras to find, by name.
    compile: Whether to compile the model, if it was compiled.
    **kwargs: Other arguments of `tf.keras.models.load_model`.

  Returns:
    The model.

  Raises:
    ImportError: `path` is an HDF5 file, and h5py is not installed.
    OSError: There is no file at `path` that Keras loads.
    ValueError: Keras 3 saved the file.
  """
  _check_generation(path)
  model = _keras2.keras.models.load_model(
    path, custom_objects=custom_objects, compile=compile, **kwargs
  )
  if not compile or not isinstance(model, _Model):
    return model
  checkpoint = _find_checkpoint(path)
  if checkpoint is not None:
    restore_optimizers(model, checkpoint, custom_objects)
  else:
    _set_weights(path, model)
    _warn_of_new_state(path, model)
  return model


def _check_generation(path: Any) -> None:
  """Raises a ValueError if a path is a `.keras` file that Keras 3 wrote."""
  if not isinstance(path, (str, os.PathLike)) or not zipfile.is_zipfile(path):
    return
  with zipfile.ZipFile(path) as file:
    if "metadata.json" not in file.namelist():
      return
    version = str(json.loads(file.read("metadata.json")).get("keras_version"))
  if int(version.split(".")[0]) >= 3:
    raise ValueError(
      f"{os.fspath(path)}: Keras {version} saved this model, and Keras 2 does "
      "not load it. Load it with keras.models.load_model of Keras 3, whose "
      "files have the loss scale, too."
    )


def _set_weights(path: Any, model: Any) -> None:
  """Sets a newer optimizer's weights from an HDF5 file.

  Keras sets the weights of other optimizers, but takes a LossScaleOptimizer for
  an optimizer that is not built.
  """
  optimizer = getattr(model, "optimizer", None)
  if not isinstance(optimizer, _keras2.LossScaleOptimizerOfNew):
    return
  inner = optimizer.inner_optimizer
  import h5py  # Keras imported h5py when it loaded such a file.

  with contextlib.ExitStack() as stack:
    file = path
    if isinstance(path, (str, os.PathLike)):
      data = stack.enter_context(tf.io.gfile.GFile(os.fspath(path), "rb"))
      try:
        file = stack.enter_context(h5py.File(data, "r"))
      except OSError:  # Keras itself sets the weights of a zip file.
        return
    group = file.get("optimizer_weights")
    names = [] if group is None else group.attrs["weight_names"]
    values = [group[name][()] for name in names]
  shapes = [tuple(variable.shape) for variable in inner.variables]
  if shapes == [value.shape for value in values]:
    inner.set_weights(values)


def _warn_of_new_state(path: Any, model: Any) -> None:
  """Logs that a file has no loss scale, if its model has optimizers."""
  name = getattr(path, "filename", path)  # `path` may be an `h5py.File`.
  optimizers = [
    each.optimizer
    for each in (model, *model.submodules)
    if isinstance(each, _Model)
    and _keras2.can_train(getattr(each, "optimizer", None))
  ]
  kind = _keras2.BaseLossScaleOptimizer
  scaled = [each for each in optimizers if isinstance(each, kind)]
  lost = []
  if any(each.dynamic for each in scaled):
    lost.append("dynamic loss scales and their counters")
  if zipfile.is_zipfile(name):
    if any(isinstance(each, _keras2.LegacyOptimizer) for each in optimizers):
      lost.append("iterations and slots of legacy optimizers")
    dtypes = {getattr(each, "compute_dtype", None) for each in model.submodules}
    if optimizers and not scaled and "float16" in dtypes:
      logging.warning(
        "%s: the loaded optimizer scales no loss, although layers compute in "
        "float16: the file does not say what compile made of the optimizer. "
        "Set the policy that the model was made with before you load it.",
        name,
      )
    with zipfile.ZipFile(name) as file:
      config = json.loads(file.read("config.json"))
    if _is_compiled(config.get("config")):
      logging.warning(
        "%s: models within this one were compiled. Keras does not compile them "
        "for a .keras file, so their optimizers are not loaded. %s",
        name,
        _ADVICE,
      )
  if lost:
    logging.warning(
      "%s: the file has no %s, which start from their initial values. %s",
      name,
      " and no ".join(lost),
      _ADVICE,
    )


def _is_compiled(config: Any) -> bool:
  """Returns whether a model in this part of a config was compiled."""
  if isinstance(config, dict):
    if config.get("compile_config"):
      return True
    config = list(config.values())
  return isinstance(config, list) and any(map(_is_compiled, config))


def _find_checkpoint(path: Any) -> str | None:
  """Returns the prefix of a SavedModel's checkpoint; None if there is none."""
  if not isinstance(path, (str, os.PathLike)):
    return None
  prefix = os.path.join(os.fspath(path), "variables", "variables")
  return prefix if tf.io.gfile.exists(prefix + ".index") else None


def restore_optimizers(
  model: Any, prefix: str, custom_objects: Mapping[str, Any] | None = None
) -> None:
  """Restores the optimizers of a loaded model and of the models within it.

  Logs a warning for each optimizer that cannot be restored. `prefix` is that of
  the SavedModel's checkpoint.
  """
  saved = _Saved(prefix)
  with _keras2.keras.utils.custom_object_scope(dict(custom_objects or {})):
    users = _compile_parts(saved, model)
  saved.live = saved.find_live_objects(model)
  restored = []
  for node, owner in saved.list_optimizers():
    owner = model if users.get(node, 0) > 1 else owner
    values, problem = saved.collect(node, owner)
    restored += values
    if problem:
      logging.warning(
        "%s: the optimizer %r does not go on as it was saved: %s",
        prefix,
        saved.find_paths()[node].replace("/", "."),  # As 'd.optimizer'.
        problem,
      )
  _keras2.keras.backend.batch_set_value(restored)


def _compile_parts(saved: _Saved, model: Any) -> dict[int, int]:
  """Compiles the models within a loaded model.

  Models that shared an optimizer share the loaded optimizer.

  Returns:
    For each optimizer's node, the number of models that train with it.
  """
  optimizers: dict[int, Any] = {}
  users: dict[int, int] = {}
  for node, live in saved.find_live_objects(model).items():
    optimizer = saved.children[node].get("optimizer")
    if optimizer is None or not isinstance(live, _Model):
      continue
    if live is not model:
      _keras2.compile_as_saved(live)
    if _keras2.can_train(getattr(live, "optimizer", None)):
      live.optimizer = optimizers.setdefault(optimizer, live.optimizer)
      users[optimizer] = users.get(optimizer, 0) + 1
  return users


_Values = list[tuple[Any, Any]]  # Variables, and what to assign to them.


class _Saved(ObjectGraph):
  """A SavedModel's graph of objects, with the values of the variables.

  Attributes:
    live: The object of the loaded model for each node that has one.
  """

  def __init__(self, prefix: str) -> None:
    self._reader = tf.train.load_checkpoint(prefix)
    super().__init__(
      _keras2.read_object_graph(self._reader),
      self._reader.get_variable_to_shape_map(),
    )
    self.live: dict[int, Any] = {}

  def read_value(self, node: int) -> Any:
    """Returns the value of a variable; None for other nodes."""
    key = self.get_key(node)
    return None if key is None else self._reader.get_tensor(key)

  def find_live_objects(self, root: Any, node: int = 0) -> dict[int, Any]:
    """Returns the live object of each node below `node`, that of `root`."""
    pairs = {node: root}
    queue = [node]
    for node in queue:
      live = tf.train.TrackableView.children(pairs[node])
      for name, child in self.children[node].items():
        if child not in pairs and name in live:
          pairs[child] = live[name]
          queue.append(child)
    return pairs

  def list_optimizers(self) -> list[tuple[int, Any]]:
    """Returns each optimizer's node, and the innermost model around it."""
    owners = {0: self.live[0]}
    for node in (queue := [0]):
      for child in self.children[node].values():
        if child not in owners:
          live = self.live.get(child)
          owners[child] = live if isinstance(live, _Model) else owners[node]
          queue.append(child)
    found = self.find_optimizers()
    return [(node, owners[node]) for node in queue if node in found]

  def collect(self, node: int, owner: Any) -> tuple[_Values, str]:
    """Makes an optimizer's variables, and finds the values to assign to them.

    Returns:
      Variables with their values; and the reason why some cannot be restored,
      or ''.
    """
    live = self.live.get(node)
    if not _keras2.can_train(live):
      return [], (
        "Keras did not load it. Compile the model as it was, then call "
        "tf_compat_lossscale.checkpoint.restore(None, path, model)."
      )
    inner = getattr(live, "inner_optimizer", live)
    # Later releases have the node `base_optimizer`, too, but without slots.
    base = self.children[node].get(_skipped_steps.BASE, node)
    is_legacy = isinstance(inner, _keras2.LegacyOptimizer)
    problem = ""
    left_out: set[int] = set()
    values: _Values = []
    if is_legacy != (AGAIN not in self.children[node]):
      problem = (
        "it was of the other kind (legacy or newer), so its slots start anew."
      )
    elif is_legacy:
      slots = self.get_slots(node) or self.get_slots(base)
      values, problem = self._collect_legacy_slots(slots, inner, owner)
    else:
      left_out, problem = self._build_newer(node, inner, owner)
    if (
      isinstance(live, _keras2.LossScaleOptimizerOfLegacy)
      and live.dynamic
      and _skipped_steps.leave_skips_uncounted(self.nodes, self.children[node])
    ):
      values += LossScaleOptimizer.stop_counting_skips(live)
    below = self.find_live_objects(live, node)
    below |= self.find_live_objects(inner, base)
    for each, variable in below.items():
      value = None if each in left_out else self.read_value(each)
      if value is not None and isinstance(variable, tf.Variable):
        values.append((variable, value))
    return values, problem

  def _collect_legacy_slots(
    self, slots: list[tuple[int, str, int]], optimizer: Any, owner: Any
  ) -> tuple[_Values, str]:
    slotted = {id(self.live.get(primary)) for primary, _, _ in slots}
    # An `.h5` file lists slots in the order of the model's variables.
    _keras2.create_weights(
      optimizer, [v for v in owner.variables if id(v) in slotted]
    )
    values = []
    for primary, name, slot in slots:
      variable = self.live.get(primary)
      made = {} if variable is None else _keras2.find_slots(optimizer, variable)
      if name in made:
        values.append((made[name], self.read_value(slot)))
    lost = len(slots) - len(values)
    if not lost:
      return values, ""
    return values, (
      f"{lost} of its {len(slots)} slots have no variable in the loaded model."
    )

  def _build_newer(
    self, node: int, optimizer: Any, owner: Any
  ) -> tuple[set[int], str]:
    """Makes those variables of a newer optimizer that the file has.

    Returns:
      The nodes of variables that do not fit the optimizer, and why; or ''.
    """
    listed = self.children[self.children[node][AGAIN]]
    # Key 0 is the number of iterations, which every optimizer has.
    nodes = [listed[key] for key in sorted(listed, key=int) if key != "0"]
    if not nodes:
      return set(), ""
    optimizer.build(self._find_trained_variables(nodes, owner))
    shapes = [tuple(v.shape) for v in optimizer.variables[1:]]
    if shapes == [tuple(self.read_value(each).shape) for each in nodes]:
      return set(), ""
    return set(nodes), (
      "its slots belong to other variables than the loaded model trains, so "
      "they start anew."
    )

  def _find_trained_variables(self, slots: list[int], owner: Any) -> list[Any]:
    """Returns the model's variables that a newer optimizer's slots belong to.

    The optimizer was built for a list of variables. Other variables may be
    trainable now. A slot's name ends with the name of its variable. Names are
    compared as they are in the file: Keras may rename variables that it loads.
    """
    known = {id(v) for v in owner.variables}
    by_name = {
      self.get_name(node): variable
      for node, variable in self.live.items()
      if id(variable) in known
    }
    trained = owner.trainable_variables
    if len(by_name) < len(known):  # Names are missing or not unique.
      return trained
    found: dict[str, Any] = {}
    for slot in map(self.get_name, slots):
      matches = [name for name in by_name if slot.endswith(f"/{name}")]
      if matches:
        name = max(matches, key=len)
        found[name] = by_name[name]
    # Keras's own step trains all trainable variables; a user's may train fewer.
    is_own = type(owner).train_step is _Model.train_step
    needed = trained if is_own else []
    are_found = {id(v) for v in found.values()} >= {id(v) for v in needed}
    return list(found.values()) if found and are_found else trained
