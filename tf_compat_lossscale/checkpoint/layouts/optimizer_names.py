# SPDX-License-Identifier: Apache-2.0
"""Guesses which optimizer wrote slots, for people: nothing depends on it."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import itertools

from tf_compat_lossscale.checkpoint.files.object_graph import Node
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import slots

# All variables of an optimizer are in one scope, so some of them tell its name.
# Several optimizers may share variables, so to read all might take very long.
_MOST = 32
_LONG = 1000  # Characters of a name that is not a scope of an optimizer.
# The last part of a slot's name -> the optimizer in `tf.compat.v1.train`.
_BY_NAME = {name: name for name in slots.ROLES} | {
  # In Google's BERT AdamWeightDecay, in NVIDIA's also LAMB.
  "adam_m": "AdamWeightDecay or LAMB",
  "lamb_m": "LAMB",
}
# Slots in an object graph that only TensorFlow 1's optimizers call so.
_OWN_SLOTS: dict[tuple[str, ...], str] = {
  ("accum", "accum_update"): "Adadelta",
  ("accum", "linear"): "Ftrl",
}
# The optimizers whose slots are those of Adam, with the names in lower case.
_LIKE_ADAM = {
  name.lower(): name
  for name in (
    "AdaBelief",
    "AdaMax",
    "AdamW",
    "AdamWeightDecay",
    "LAMB",
    "LazyAdam",
    "NAdam",
    "NovoGrad",
    "RAdam",
    "RectifiedAdam",
    "Yogi",
  )
}


def guess_by_names(all_names: Iterable[str]) -> str | None:
  """Returns the optimizers that slots show, or None.

  Args:
    all_names: The names of all variables of a checkpoint by name.

  Returns:
    The names of the optimizers, sorted and separated by commas.
  """
  given = set(all_names)
  found: set[str] = set()
  for slot, variable in names.find_slots(given):
    last = slot.rpartition("/")[2]
    base = names.split_number(last)[0]
    # Keras names a slot `Adam/w/m`.
    prefix = slot.removesuffix(f"/{variable}/{last}") + "/"
    optimizer = (
      _BY_NAME.get(last)
      or _BY_NAME.get(base)
      or _find_like_adam([base, prefix])
    )
    if optimizer:
      found.add(optimizer)
  return ", ".join(sorted(found)) or None


def _find_like_adam(all_names: Iterable[str]) -> str | None:
  """Returns the optimizer after which a scope in names is called, or None."""
  for name in all_names:
    for part in name.split("/"):
      word = names.split_number(part)[0].lower().replace("_", "")
      optimizer = _LIKE_ADAM.get(word.removesuffix("optimizer"))
      if optimizer:
        return optimizer
  return None


def guess_by_object(graph: ObjectGraph, node: Node) -> str | None:
  """Returns an optimizer's name, if slots and hyperparameters show it."""
  found = _guess_family(node)
  if found == "Adam":
    return _find_like_adam(_list_full_names(graph, node)) or found
  return found


def _guess_family(node: Node) -> str | None:
  """Returns the best-known optimizer that has the same children and slots."""
  found = {slot.name for slot in node.slots}
  keras = "iter" in node.children or "_iterations" in node.children
  if "_velocities" in node.children or "beta_1" in node.children:
    return "Adam"
  if keras and ("momentum" in node.children and "rho" not in node.children):
    return "SGD"
  if "_momentums" in node.children or (keras and "momentums" in node.children):
    return "SGD"
  if "rho" in node.children and "rms" in found:
    return "RMSProp"
  kind = slots.find_kind(found - {"vhat"}) or _OWN_SLOTS.get((*sorted(found),))
  return "SGD" if keras and kind == "Momentum" else kind


def _list_full_names(graph: ObjectGraph, node: Node) -> Iterator[str]:
  """Yields names of an optimizer's variables, without the models' parts.

  The name of a slot for `w` is `w/LAMB` in compat.v1, `LAMB/w/m` in Keras 2 and
  `lamb/w_momentum` in Keras 3.
  """
  nodes = [node]
  if "_variables" in node.children:
    nodes.append(graph.nodes[node.children["_variables"]])
  for parent in nodes:
    for number in itertools.islice(parent.children.values(), _MOST):
      variable = graph.find_value(number)
      if variable and len(variable.full_name) <= _LONG:
        scope, slash, _ = variable.full_name.partition("/")
        yield scope + slash
  for slot in node.slots[:_MOST]:
    variable, value = map(graph.find_value, (slot.variable, slot.slot))
    if variable and value and len(value.full_name) <= _LONG:
      yield value.full_name.replace(variable.full_name, "")
