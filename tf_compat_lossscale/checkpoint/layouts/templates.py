# SPDX-License-Identifier: Apache-2.0
"""Fills the object graph of a template with variables by name.

A checkpoint by name has no object graph, and none can be made up. So converting
it to an object-based checkpoint needs a template: an object-based checkpoint of
the same model, whose values are replaced.

    template: path, name                        checkpoint by name
    opt/loss_scale/good_steps, good_steps_1     good_steps, good_steps_1
    opt/base_optimizer/beta1_power, ...         cond_1/beta1_power
    w, w                                        w

A variable of the template knows its own name. The steps:

1. The caller's mapping decides.
2. Loss scales, and
3. Adam's powers are paired as `layouts/pairing.py` describes.
4. Slots of several optimizers of one name are paired as `layouts/slots.py`
   describes. Other variables get the values of their own names, else of the
   only name that differs in its conds alone. Keras's own variables have other
   names: they get the global step and the slots of
   `tf.compat.v1.train.AdamOptimizer`.

The order of objects proves nothing, since objects are not numbered in the order
of creation. One error lists all variables that are missing or not proven.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import TypeVar

from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import problems
from tf_compat_lossscale.checkpoint.layouts import slots
from tf_compat_lossscale.checkpoint.layouts.evidence import ObjectEvidence
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.inventory import pair_items
from tf_compat_lossscale.checkpoint.layouts.names import ScaleNames
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_scale

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# Slots of Keras 2's Adam -> slots of `tf.compat.v1.train.AdamOptimizer`. Slots
# of other optimizers have other meanings: Keras's SGD, for instance, keeps the
# sum that is added to a variable, and MomentumOptimizer accumulated gradients.
_ADAM = {"m": "Adam", "v": "Adam_1"}
# Attributes of Keras's optimizers that other checkpoints have no variables for.
_HYPERPARAMETERS = {"beta_1", "beta_2", "decay", "learning_rate", "epsilon"}


@dataclasses.dataclass(frozen=True)
class _Variable:
  """A variable of an object graph.

  Attributes:
    number: The number of its node.
    path: Its path in the objects.
    name: Its name in a checkpoint of a Saver.
    key: Its key in the checkpoint.
    tensor: Its dtype and shape.
  """

  number: int
  path: str
  name: str
  key: str
  tensor: TensorSpec

  @property
  def names(self) -> tuple[str, ...]:
    """The name, in the form of `_Scale.names`."""
    return (self.name,)

  def __str__(self) -> str:
    return f"{self.path} ({self.name})"


@dataclasses.dataclass(frozen=True)
class _Scale:
  """A loss scale of an object graph.

  Attributes:
    api: COMPAT or CONTRIB.
    variables: The variables, in the order of `names.SCALE_TENSORS[api]`.
  """

  api: str
  variables: tuple[_Variable, ...]

  @property
  def names(self) -> tuple[str, ...]:
    """The names of the variables in a checkpoint of a Saver."""
    return tuple(variable.name for variable in self.variables)

  def __str__(self) -> str:
    path = self.variables[0].path.rpartition("/")[0]
    return f"{path} ({', '.join(self.names)})"


_Named = TypeVar("_Named", _Variable, _Scale)


class TemplateFiller:
  """Finds the value of each variable of a template.

  Attributes:
    sources: Key in the template -> the source of its value.
  """

  def __init__(
    self,
    graph: ObjectGraph,
    tensors: Mapping[str, TensorSpec],
    given: Sources,
    there: Inventory,
    path: str,
  ) -> None:
    """Reads the variables of the template.

    Args:
      graph: The template's object graph.
      tensors: Key in the template -> dtype and shape.
      given: Name -> tensor, of the checkpoint by name.
      there: The same variables, with the evidence about them.
      path: The template, for messages.
    """
    self._graph, self._given, self._path = graph, given, path
    self._variables = [
      _Variable(
        number,
        attribute.key.removesuffix(_SUFFIX),
        attribute.full_name,
        attribute.key,
        tensors[attribute.key],
      )
      for number, node in enumerate(graph.nodes)
      if (attribute := graph.find_value(number)) and attribute.key in tensors
    ]
    self._by_number = {v.number: v for v in self._variables}
    self._paths = graph.find_paths()
    self._here = Inventory(
      {v.name: v.tensor for v in self._variables if v.name},
      lambda: ObjectEvidence(graph),
    )
    self._there = there
    self._here.gather_evidence()
    there.gather_evidence()
    self._scales_left = there.scales.known
    self._chosen: set[str] = set()  # The keys that the mapping decides on.
    self._missing: list[str] = []
    self._unclear: list[str] = []
    self.sources: Sources = {}

  def fill(self, mapping: Mapping[str, str] | None = None) -> None:
    """Finds all values.

    Args:
      mapping: Name or path in the template -> name in the checkpoint by name.

    Raises:
      CheckpointError: A variable has no value, or nothing proves its value.
    """
    scales = list(self._find_scales())
    self._apply_mapping(mapping or {}, scales)
    self._pair_scales(scales)
    hyperparameters = self._find_hyperparameters()
    rest = [
      variable
      for variable in self._variables
      if variable.key not in self.sources
      and variable.number not in hyperparameters
      and variable.path != "save_counter"
    ]
    left = {name for scale in self._scales_left for name in scale.names}
    scales_there = self._there.scales.known
    used = {name for scale in scales_there for name in scale.names} - left
    self._fill_others(rest, [n for n in self._given if n not in used])
    self._check()

  def _find_scales(self) -> Iterable[_Scale]:
    """Yields each loss scale of the template once."""
    seen = set()
    for node in self._graph.nodes:
      number = node.children.get(names.LOSS_SCALE)
      if number is None or number in seen:
        continue
      seen.add(number)
      children = self._graph.nodes[number].children
      for api, tensors in names.SCALE_TENSORS.items():
        numbers = [children.get(base, -1) for base in tensors]
        if all(n in self._by_number for n in numbers):
          yield _Scale(api, tuple(self._by_number[n] for n in numbers))
          break

  def _apply_mapping(
    self, mapping: Mapping[str, str], scales: list[_Scale]
  ) -> None:
    """Fills the variables in the mapping; a loss scale is mapped as a whole."""
    by_key = {v.key: scale for scale in scales for v in scale.variables}
    by_name = {n: scale for scale in self._scales_left for n in scale.names}
    for here, there in mapping.items():
      variable = self._find_variable(here)
      name = self._find_name(there)
      self._chosen.add(variable.key)
      scale, scale_there = by_key.get(variable.key), by_name.get(name)
      if scale and scale_there:
        self._scales_left = [
          other for other in self._scales_left if other != scale_there
        ]
        self._fill_scale(scale, scale_there)
        self._chosen.update(v.key for v in scale.variables)
      else:
        self.sources[variable.key] = self._given[name]

  def _find_variable(self, here: str) -> _Variable:
    """Returns the variable of the template with a path, key or name."""
    numbers = self._paths.find(here)
    found = [
      variable
      for variable in self._variables
      if here in (variable.path, variable.key) or variable.number in numbers
    ] or [variable for variable in self._variables if variable.name == here]
    if len(found) == 1:
      return found[0]
    if found:
      raise CheckpointError(
        f"{self._path}: {here} is the name of several variables: give the path "
        f"of one, {' or '.join(v.path for v in found)}"
      )
    known = [v.path for v in self._variables] + [
      v.name for v in self._variables
    ]
    raise CheckpointError(
      f"{self._path}: {here} is neither a variable's name nor its path there"
      f"{problems.suggest_names(here, known)}"
    )

  def _find_name(self, there: str) -> str:
    """Returns the name in the checkpoint by name of a name or key."""
    if there in self._given:
      return there
    for name, source in self._given.items():
      if getattr(source, "name", None) == there:
        return name
    raise CheckpointError(
      f"{there} is not in the checkpoint that is converted"
      f"{problems.suggest_names(there, self._given)}"
    )

  def _fill_scale(self, scale: _Scale, there: ScaleNames) -> None:
    """Fills a loss scale, perhaps from one of another API."""
    sources = convert_scale(self._given, there, scale.api)
    for variable, source in zip(scale.variables, sources):
      self.sources[variable.key] = source

  def _pair_scales(self, scales: list[_Scale]) -> None:
    """Fills the loss scales that the mapping does not decide on."""
    wanted = [s for s in scales if s.variables[0].key not in self.sources]
    there = {scale.names: scale for scale in self._scales_left}
    pairs, _ = self._pair("loss scales", wanted, there, are_scales=True)
    for scale, found in pairs:
      self._fill_scale(scale, there.pop(found))
    self._scales_left = list(there.values())

  def _pair(
    self,
    what: str,
    wanted: Sequence[_Named],
    given: Collection[tuple[str, ...]],
    are_scales: bool = False,
  ) -> tuple[list[tuple[_Named, tuple[str, ...]]], list[_Named]]:
    """Pairs variables or loss scales as `layouts/pairing.py` describes.

    Args:
      what: The kind, for messages.
      wanted: The variables or loss scales of the template.
      given: The names of the candidates in the checkpoint.
      are_scales: Whether loss scales are paired.

    Returns:
      The pairs, and the items of the template that have no candidate.
    """
    by_names = {item.names: item for item in wanted}
    if len(by_names) < len(wanted) and given:  # Two have the same names.
      self._add_unclear(what, wanted, map(" and ".join, given))
      return [], []
    found = pair_items(
      self._here,
      self._there,
      [self._here.make_item(each, are_scales) for each in by_names],
      [self._there.make_item(each, are_scales) for each in given],
      keeps_scope=are_scales and not len(wanted) == len(given) == 1,
      are_scales=are_scales,
    )
    unclear = [by_names[item.names] for item in found.undecided]
    if unclear:
      candidates = (" and ".join(item.names) for item in found.left)
      self._add_unclear(what, unclear, candidates)
    pairs = [(by_names[a.names], b.names) for a, (b, _) in found.pairs.items()]
    missing = {item.names for item in found.missing}
    return pairs, [item for item in wanted if item.names in missing]

  def _add_unclear(
    self,
    what: str,
    here: Iterable[_Variable | _Scale],
    there: Iterable[str],
  ) -> None:
    """Notes variables or loss scales that have several candidates."""
    ours = ", ".join(sorted(map(str, here)))
    self._unclear.append(
      f"the {what} {ours} here and {', '.join(sorted(there))} there"
    )

  def _find_hyperparameters(self) -> set[int]:
    """Returns the nodes of Keras's hyperparameters, which keep their values."""
    return {
      number
      for node in self._graph.nodes
      if "iter" in node.children
      for name, number in node.children.items()
      if name in _HYPERPARAMETERS
    }

  def _fill_others(self, variables: list[_Variable], given: list[str]) -> None:
    """Fills variables that are no loss scale's.

    Args:
      variables: The variables of the template.
      given: The names of candidates in the checkpoint by name.
    """
    known = set(given)
    powers = [v for v in variables if names.is_power(v.name)]
    for base in sorted({names.get_base(v.name) for v in powers}):
      pairs, missing = self._pair(
        "powers",
        [v for v in powers if names.get_base(v.name) == base],
        [
          (name,)
          for name in given
          if names.is_power(name) and names.get_base(name) == base
        ],
      )
      for variable, (name,) in pairs:
        self.sources[variable.key] = self._given[name]
      for variable in missing:
        self._add_missing(variable)
    others = [v for v in variables if v not in powers]
    families = names.group_by_family(v.name for v in others)
    families_there = names.group_by_family(given)
    keras = self._find_keras_candidates()
    shared = slots.pair_slots(
      self._here,
      self._there,
      {
        v.name: self.sources[v.key].origin
        for v in self._variables
        if v.key in self.sources
      },
      all_equal=self._here.tensors.keys() - {"save_counter"}
      <= self._there.tensors.keys(),
    )
    unclear = {slot: found for ours, found in shared.undecided for slot in ours}
    for variable in others:
      if variable.name in unclear:
        candidates = unclear[variable.name]
        self._add_unclear("variables", [variable], candidates)
        continue
      if variable.name in shared.keys:
        candidates = [n for n in known if n == shared.keys[variable.name]]
      elif variable.name in known:
        candidates = [variable.name]
      elif variable.number in keras:
        candidates = [n for n in keras[variable.number] if n in known]
      else:
        family = names.get_family(variable.name)
        alone = len(families[family]) == 1
        candidates = families_there.get(family, []) if alone else []
      if len(candidates) > 1:
        self._add_unclear("variables", [variable], candidates)
      elif candidates:
        self.sources[variable.key] = self._given[candidates[0]]
      else:
        self._add_missing(variable)

  def _find_keras_candidates(self) -> dict[int, list[str]]:
    """Returns the node of each of Keras 2's own variables -> candidates."""
    steps = [
      name
      for name in self._given
      if names.split_scope(name)[1] == "global_step"
    ]
    result = {}
    for node in self._graph.nodes:
      if "iter" not in node.children:
        continue
      result[node.children["iter"]] = steps
      for slot in node.slots:
        variable = self._by_number.get(slot.variable)
        if variable and slot.name in _ADAM:
          family = slots.Family(variable.name, "Adam")
          found = self._there.families.get(family, [])
          if slots.count_owners(self._there, found, "Adam") == 1:
            found = [f"{variable.name}/{_ADAM[slot.name]}"]
          result[slot.slot] = found
    return result

  def _add_missing(self, variable: _Variable) -> None:
    near = ""
    if len(self._missing) < problems.MOST:  # Others are not listed.
      near = problems.suggest_names(variable.name, self._given)
    self._missing.append(f"{variable}{near}")

  def _check(self) -> None:
    """Raises an error for missing, unclear, unfit or twice used values."""
    self._check_sources()
    listed = []
    if self._missing:
      listed.append(
        "the template has variables without values: "
        + problems.join(self._missing)
      )
    if self._unclear:
      listed.append(
        "nothing proves which value each variable gets: "
        f"{problems.join(self._unclear)}; decide by a mapping from the "
        "template's paths to names (--map HERE=THERE)"
      )
    if listed:
      raise CheckpointError(f"{self._path}: {'; '.join(listed)}")

  def _check_sources(self) -> None:
    """Notes sources of another dtype or shape, and sources used twice."""
    by_key = {variable.key: variable for variable in self._variables}
    counters = {
      node.children["iter"]
      for node in self._graph.nodes
      if "iter" in node.children
    }
    uses: dict[str, list[_Variable]] = {}
    for key, source in self.sources.items():
      variable = by_key[key]
      if source.spec != variable.tensor:
        self._missing.append(
          f"{variable} ({variable.tensor} in the template, {source.spec} here)"
        )
      name = getattr(source, "name", "")
      # Keras's only step counter may get the global step a second time.
      is_only_counter = len(counters) == 1 and variable.number in counters
      if name and key not in self._chosen and not is_only_counter:
        uses.setdefault(name, []).append(variable)
    for name, variables in uses.items():
      if len(variables) > 1:
        self._add_unclear("variables", variables, [name])
