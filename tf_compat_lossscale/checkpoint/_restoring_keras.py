# SPDX-License-Identifier: Apache-2.0
"""Restores checkpoints by name into objects with optimizers of Keras."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import os
import tempfile
from typing import Any

from absl import logging

from tf_compat_lossscale.checkpoint import _restoring_objects
from tf_compat_lossscale.checkpoint._object_walk import is_variable
from tf_compat_lossscale.checkpoint.files import writer
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Scaled
from tf_compat_lossscale.checkpoint.files.values import Source
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.files.values import Stored
from tf_compat_lossscale.checkpoint.layouts import by_object
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.checkpoint.layouts import keras_slots
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import problems
from tf_compat_lossscale.checkpoint.layouts import templates
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.match import Match
from tf_compat_lossscale.checkpoint.layouts.match import Wishes
from tf_compat_lossscale.checkpoint.report import Report
from tf_compat_lossscale.keras import optimizer_states

# The words of errors about templates -> those about objects.
_WORDS = {
  "the template has variables without values": "it has no value for",
  "in the template": "among the objects",
  "that of the template": "that of the objects",
  "the template's paths to names (--map HERE=THERE)": "paths to names",
  "(--learning-rate)": "as learning_rate",
  "name their values (--map HERE=THERE), or save the template without them": (
    "name their values by mapping, or let them keep the values that they have "
    "by missing='initialize'"
  ),
}
_NOT_THERE = "the checkpoint does not have it"
_OTHER_NAME = "what TensorFlow 1 has for the same"
_COMPUTED = "computed from that"


def restore_names(bundle: Bundle, objects: Any, wishes: Wishes) -> Report:
  """Restores a checkpoint by name into objects, eagerly.

  The objects are saved as a template, which is filled and restored.

  Args:
    bundle: The checkpoint.
    objects: A trackable, or a dict of trackables.
    wishes: What the caller decided. The mapping may have paths of variables. If
      variables may be missing, they keep their values, since their initial
      values are not known.

  Returns:
    The source of each variable's value.

  Raises:
    CheckpointError: A variable has no value, or nothing proves its value. No
      variable was assigned.
  """
  given = wishes.mapping
  chosen = {name: key for name, key in given.items() if key is not None}
  if len(chosen) < len(given):
    raise ValueError(
      "mapping has None, but variables of Keras's optimizers are not "
      "initialized: leave the names out, or leave out the optimizer."
    )
  variables = by_object.list_by_name(bundle)
  there = Inventory(
    {name: source.spec for name, source in variables.items()},
    lambda: evidence.find_evidence(bundle),
  )
  notes = _check_built(
    objects, variables, chosen, bundle.prefix, wishes.missing
  )
  with tempfile.TemporaryDirectory() as folder:
    saved = _restoring_objects.make_checkpoint(objects)
    template = Bundle(saved.write(os.path.join(folder, "template")))
    graph = ObjectGraph.read(template)
    found = _restoring_objects.pair_nodes(saved, graph)
    scales = {
      child: float(value)
      for number, item in found.items()
      for name, child in graph.nodes[number].children.items()
      if (value := _restoring_objects.find_initial_scale(item, name))
      is not None
    }
    optimizers = {
      number: item
      for number, item in found.items()
      if _restoring_objects.is_keras_optimizer(item)
    }
    try:
      filled = templates.fill_template(
        variables,
        there,
        template,
        chosen,
        wishes.learning_rate,
        may_miss=wishes.missing == "initialize",
        settings={n: _read_settings(item) for n, item in optimizers.items()},
        initial=scales,
      )
    except CheckpointError as error:  # The message names a temporary file.
      message = str(error).replace(template.prefix, bundle.prefix)
      raise CheckpointError(_speak_of_objects(message)) from None
    with writer.reserve(os.path.join(folder, "filled")) as new:
      new.write(filled.sources)
      new.publish()
    report = _restoring_objects.restore_objects(
      None, Bundle(new.prefix), objects
    )
    report = _translate(report, filled, template, graph, bundle)
  for optimizer in optimizers.values():
    optimizer_states.count_products(optimizer)
  notes += [_speak_of_objects(note) for note in filled.notes]
  for note in notes:
    if "slots" in note:
      logging.warning("%s: %s", bundle.prefix, note)
  return dataclasses.replace(report, notes=tuple(notes))


def _check_built(
  objects: Any,
  variables: Sources,
  mapping: Mapping[str, str],
  path: str,
  missing: str,
) -> list[str]:
  """Checks that the optimizers have made their slots.

  Args:
    objects: A trackable, or a dict of trackables.
    variables: Name -> tensor, of the checkpoint.
    mapping: A variable's name or path -> its name in the checkpoint.
    path: The checkpoint, for messages.
    missing: 'error', or 'initialize' to go on without slots.

  Returns:
    What the user should know of it.

  Raises:
    CheckpointError: The checkpoint has slots, but an optimizer has made none.
  """
  items = list(_restoring_objects.walk_paths(objects))
  optimizers = {
    path: item
    for path, item in items
    if _restoring_objects.is_keras_optimizer(item)
  }
  inner = [
    getattr(each, "inner_optimizer", None) for each in optimizers.values()
  ]
  optimizers = {
    path: item
    for path, item in optimizers.items()
    if all(item is not other for other in inner)
  }
  with_slots = {weight for _, weight in names.find_slots(variables)}
  weights = [
    _find_name(path, item, mapping)
    for path, item in items
    if is_variable(item) and getattr(item, "trainable", False)
  ]
  has_use = with_slots.intersection(weights) if weights else with_slots
  new = []
  for name, optimizer in optimizers.items():
    optimizer_states.forget_children(optimizer)
    if has_use and not optimizer_states.is_built(optimizer):
      new.append(name or type(optimizer).__name__)
  if not new:
    return []
  message = (
    f"it has slots, but {problems.join(new)} has none before its first step: "
    "call optimizer.build(variables) first, or of a legacy optimizer "
    "optimizer.apply_gradients([(tf.zeros_like(w), w) for w in variables])"
  )
  if not weights:
    message += "; the objects have no variables yet: build the model first"
  if missing == "error":
    raise CheckpointError(
      f"{path}: {message}; missing='initialize' restores without slots"
    )
  return [message]


def _find_name(path: str, variable: Any, mapping: Mapping[str, str]) -> str:
  """Returns the name that a variable has in the checkpoint."""
  own = str(getattr(variable, "path", "") or variable.name.split(":")[0])
  return mapping.get(path) or mapping.get(own) or own


def _read_settings(optimizer: Any) -> keras_slots.Settings:
  """Returns what one of Keras's optimizers tells."""
  inner = getattr(optimizer, "inner_optimizer", optimizer)
  return keras_slots.Settings(
    tuple(cls.__name__ for cls in type(inner).__mro__),
    _get_number(inner, "beta_1"),
    _get_number(inner, "momentum"),
    vars(inner).get("gradient_accumulation_steps") or 1,
    optimizer_states.find_rate(inner),
  )


def _get_number(optimizer: Any, name: str) -> float | None:
  """Returns an attribute if it is a number; else a checkpoint has it.

  `getattr` makes legacy optimizers create variables.
  """
  value = vars(optimizer).get(name)
  return float(value) if isinstance(value, (int, float)) else None


def _speak_of_objects(text: str) -> str:
  """Returns a sentence about a template as one about objects."""
  for old, new in _WORDS.items():
    text = text.replace(old, new)
  return text


def _translate(
  report: Report,
  filled: Match,
  template: Bundle,
  graph: ObjectGraph,
  bundle: Bundle,
) -> Report:
  """Returns a report of a filled template as one of the checkpoint by name."""
  full_names = {
    attribute.key: attribute.full_name
    for _, attribute in graph.list_attributes()
  }
  result = Report(bundle.prefix)
  for path, key in (report.restored | report.bridged).items():
    source = filled.sources[key]
    if isinstance(source, Scaled) and not source.factor:
      result.initialized[path] = filled.proofs[key]
    elif getattr(source, "bundle", None) is template:
      result.kept[path] = _NOT_THERE
    elif not source.origin:
      result.initialized[path] = filled.proofs.get(key, _NOT_THERE)
    elif isinstance(source, Stored) and source.name == full_names[key]:
      result.restored[path] = source.origin
    else:
      result.bridged[path] = source.origin
      result.proofs[path] = filled.proofs.get(key) or _describe(source)
  used = {*result.restored.values(), *result.bridged.values()}
  return dataclasses.replace(
    result, unused=tuple(sorted(bundle.specs.keys() - used))
  )


def _describe(source: Source) -> str:
  """Returns how a value was found."""
  if isinstance(source, Scaled):
    return f"multiplied by {source.factor:g}, the negative learning rate"
  return _COMPUTED if isinstance(source, Literal) else _OTHER_NAME
