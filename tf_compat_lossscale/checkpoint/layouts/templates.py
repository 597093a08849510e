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
   names: they get the global step and slots, as `layouts/keras_slots.py` says.

The order of objects proves nothing, since objects are not numbered in the order
of creation. One error lists all variables that are missing or not proven.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import TypeVar

from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Scaled
from tf_compat_lossscale.checkpoint.files.values import Source
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.files.values import Stored
from tf_compat_lossscale.checkpoint.layouts import by_object
from tf_compat_lossscale.checkpoint.layouts import keras_slots
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import problems
from tf_compat_lossscale.checkpoint.layouts import slots
from tf_compat_lossscale.checkpoint.layouts.evidence import ObjectEvidence
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.inventory import pair_items
from tf_compat_lossscale.checkpoint.layouts.keras_slots import KerasOptimizer
from tf_compat_lossscale.checkpoint.layouts.keras_slots import KerasSlot
from tf_compat_lossscale.checkpoint.layouts.match import Match
from tf_compat_lossscale.checkpoint.layouts.names import ScaleNames
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_counter
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_scale

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


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


def fill_template(
  variables: Sources,
  there: Inventory,
  template: Bundle,
  mapping: Mapping[str, str],
  learning_rate: float | None = None,
  *,
  is_keras: bool = False,
  may_miss: bool = False,
  settings: Mapping[int, keras_slots.Settings] | None = None,
  initial: Mapping[int, float] | None = None,
) -> Match:
  """Fills the object graph of a checkpoint of the same model with variables.

  Args:
    variables: Name -> tensor, of the checkpoint by name.
    there: The same variables, with the evidence about them.
    template: The object-based checkpoint.
    mapping: A variable's name or path in the template -> the name in
      `variables`, as the caller decided.
    learning_rate: The learning rate with which training goes on; None if the
      template or the checkpoint has it.
    is_keras: Whether the template must be of Keras 2.
    may_miss: Whether variables without a value keep that of the template.
    settings: Number of a node -> what the optimizer there tells, if the
      template was saved from objects that are still there.
    initial: Number of a loss scale's variable -> its initial value, likewise.

  Returns:
    The sources by the keys of the template, which has them all.

  Raises:
    CheckpointError: A variable of the template has no value, or nothing proves
      its value.
  """
  if OBJECT_GRAPH not in template.specs:
    raise CheckpointError(
      f"{template.prefix}: a template must be an object-based checkpoint, of "
      "tf.train.Checkpoint; this one names variables"
    )
  if is_keras:
    graph, sources = by_object.flatten_keras(template)
  else:
    graph, sources = ObjectGraph.read(template), by_object.copy_all(template)
  filler = _Filler(
    graph,
    sources,
    variables,
    there,
    template.prefix,
    learning_rate,
    settings or {},
    initial or {},
  )
  filler.fill(mapping, may_miss)
  return Match(
    sources | filler.sources,
    proofs=filler.proofs,
    notes=tuple(filler.notes),
  )


class _Filler:
  """Finds the value of each variable of a template.

  Attributes:
    sources: Key in the template -> the source of its value.
    notes: What the user should know of the values, in order.
    proofs: Key -> how the value was found, if it is no variable's own; or why
      the variable starts anew.
  """

  def __init__(
    self,
    graph: ObjectGraph,
    template: Sources,
    given: Sources,
    there: Inventory,
    path: str,
    learning_rate: float | None,
    settings: Mapping[int, keras_slots.Settings],
    initial: Mapping[int, float],
  ) -> None:
    """Reads the variables of the template, whose path is for messages."""
    self._graph, self._given, self._path = graph, given, path
    self._template = template
    self._rate, self._settings, self._initial = learning_rate, settings, initial
    self._variables = [
      _Variable(
        number,
        attribute.key.removesuffix(_SUFFIX),
        attribute.full_name,
        attribute.key,
        template[attribute.key].spec,
      )
      for number, node in enumerate(graph.nodes)
      if (attribute := graph.find_value(number)) and attribute.key in template
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
    self._named = keras_slots.NamedSlots(there)
    self._optimizers = [
      optimizer
      if self._get_settings(optimizer).is_known
      else optimizer._replace(kind="")
      for optimizer in keras_slots.find_keras_optimizers(graph)
    ]
    # What a counter of Keras 3 is multiplied by, if it is not 1.
    self._factors = {
      optimizer.iterations: self._get_settings(optimizer).accumulated
      for optimizer in self._optimizers
      if self._get_settings(optimizer).accumulated > 1
    }
    # The slots of Keras's SGD, which are scaled.
    self._sums = {
      slot.number: (optimizer, slot)
      for optimizer in self._optimizers
      if optimizer.kind == "Momentum"
      for slot in optimizer.slots
    }
    self._powers = [
      name
      for name, source in given.items()
      if names.is_power(name, source.spec)
    ]
    self._scales_left = there.scales.known
    self._chosen: set[str] = set()  # The keys that the mapping decides on.
    self._missing: list[str] = []
    self._unclear: list[str] = []
    self._rateless: list[str] = []
    self._uncounted: list[str] = []
    self._copies: set[str] = set()  # The keys of averages with weights' values.
    self.sources: Sources = {}
    self.notes: dict[str, None] = {}
    self.proofs: dict[str, str] = {}

  def fill(self, mapping: Mapping[str, str], may_miss: bool) -> None:
    """Finds all values, as `fill_template` says."""
    scales = list(self._find_scales())
    self._apply_mapping(mapping, scales)
    self._pair_scales(scales)
    self._fill_scales_of_keras_3()
    self._fill_new_scales()
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
    self._fill_rates()
    self._check(may_miss)
    self._note_lost_slots()

  def _get_settings(self, optimizer: KerasOptimizer) -> keras_slots.Settings:
    """Returns what an optimizer tells, if the optimizer is there."""
    return self._settings.get(optimizer.number) or keras_slots.Settings()

  def _find_left(self, number: int | None) -> _Variable | None:
    """Returns the variable of a node, if it has no source so far."""
    variable = self._by_number.get(-1 if number is None else number)
    return variable if variable and variable.key not in self.sources else None

  def _get_source(self, number: int | None) -> Source | None:
    """Returns the source of a variable so far, by the number of its node."""
    variable = self._by_number.get(-1 if number is None else number)
    return self.sources.get(variable.key) if variable else None

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
        self.sources[variable.key] = self._convert(variable, name)

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

  def _fill_scales_of_keras_3(self) -> None:
    """Fills the only loss scale of Keras 3 from the only one that is left."""
    found = [
      [self._find_left(node.children.get(n)) for n in names.KERAS_3]
      for node in self._graph.nodes
      if names.KERAS_3_SCALE in node.children
    ]
    if len(found) != 1 or len(self._scales_left) != 1:
      return
    sources = convert_scale(self._given, self._scales_left[0], names.COMPAT)
    for variable, source in zip(found[0], sources):
      if variable:
        converted = convert_counter(source, variable.tensor)
        self.sources[variable.key] = converted
    self._scales_left = []

  def _fill_new_scales(self) -> None:
    """Starts loss scales anew if the checkpoint has none."""
    if self._there.scales.known or self._there.scales.incomplete:
      return
    for number, value in self._initial.items():
      variable = self._find_left(number)
      if variable:
        dtype = variable.tensor.dtype
        value = int(value) if dtype.startswith("int") else value
        self.sources[variable.key] = Literal(dtype, value)
        self.proofs[variable.key] = problems.NO_SCALE

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
      for optimizer in self._optimizers
      for name, number in optimizer.children.items()
      if name in keras_slots.HYPERPARAMETERS
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
    families = names.group((v.name for v in others), names.remove_conds)
    families_there = names.group(given, names.remove_conds)
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
    without: list[_Variable] = []
    for variable in sorted(others, key=lambda v: v.number in self._sums):
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
        family = names.remove_conds(variable.name)
        alone = len(families[family]) == 1
        candidates = families_there.get(family, []) if alone else []
      if len(candidates) > 1:
        self._add_unclear("variables", [variable], candidates)
      elif candidates:
        name = candidates[0]
        self.sources[variable.key] = self._convert(variable, name)
      else:
        without.append(variable)
    self._fill_counters(without)

  def _find_keras_candidates(self) -> dict[int, list[str]]:
    """Returns the node of each of Keras 2's own variables -> candidates."""
    steps = [
      name
      for name in self._given
      if names.split_scope(name)[1] == "global_step"
    ]
    result = {}
    for optimizer in self._optimizers:
      result[optimizer.iterations] = steps
      for slot in optimizer.slots:
        found = self._find_slots(optimizer, slot)
        name = found.roles.get(slot.role)
        result[slot.number] = [name] if name else found.candidates
      for slot in optimizer.averages:
        weight = self._find_name_of(slot.weight)
        name = f"{weight}/{names.AVERAGE}"
        result[slot.number] = [name] if name in self._given else []
      result.update((slot.number, []) for slot in optimizer.sums)
    return result

  def _find_name_of(self, number: int) -> str | None:
    """Returns the name that a weight has in the checkpoint, if it is there."""
    weight = self._by_number.get(number)
    if weight is None:
      return None
    source = (
      self.sources.get(weight.key) if weight.key in self._chosen else None
    )
    return source.origin if source else weight.name

  def _find_slots(
    self, optimizer: KerasOptimizer, slot: KerasSlot
  ) -> keras_slots.FoundSlots:
    """Finds the slots that the weight of a slot has in the checkpoint."""
    name = self._find_name_of(slot.weight)
    if name is None or not optimizer.kind:
      return keras_slots.FoundSlots()
    return self._named.find(name, optimizer.kind)

  def _convert(self, variable: _Variable, name: str) -> Source:
    """Returns the source of a variable that has another name there."""
    source = self._given[name]
    spec = source.spec
    base = names.get_base(name)
    if base in keras_slots.OWN_NAMES:
      self._add_note(
        f"{base} is of an optimizer that does not correct it for the first "
        "steps, as Keras does: the first steps differ unless iterations is "
        "large"
      )
    if any(variable.number == each.iterations for each in self._optimizers):
      return self._count(variable, convert_counter(source, variable.tensor))
    if variable.number not in self._sums or not isinstance(source, Stored):
      return source
    optimizer, slot = self._sums[variable.number]
    if name == variable.name:
      return source  # Of Keras's SGD, too.
    rate = self._find_rate(optimizer, self._find_slots(optimizer, slot).rates)
    if rate is None:
      self._rateless.append(str(variable))
      return source
    if spec.dtype not in ("float16", "float32", "float64"):
      raise CheckpointError(
        f"{name} is {spec}, which cannot be multiplied by a learning rate"
      )
    self._add_note(
      f"Keras's SGD has the sums of MomentumOptimizer times -{rate:g}, the "
      "negative learning rate"
    )
    return Scaled(source.bundle, source.name, -rate)

  def _count(self, variable: _Variable, steps: Source) -> Source:
    """Returns the value of a counter of Keras after some steps.

    A counter of Keras 3 counts each gradient that is accumulated.
    """
    factor = self._factors.get(variable.number)
    if factor is None or steps.spec.shape:
      return steps
    self._add_note(
      f"{variable.path} is {factor} times the steps, since the optimizer "
      f"accumulates {factor} gradients for each step"
    )
    count = int(steps.read_scalar()) * factor
    return Literal(variable.tensor.dtype, count, origin=steps.origin)

  def _find_rate(
    self, optimizer: KerasOptimizer, rates: Iterable[float | str | None]
  ) -> float | None:
    """Returns the learning rate with which an optimizer goes on, or None.

    Args:
      optimizer: The optimizer of the template.
      rates: Those of the program that was left, as `Owner` has them.
    """
    if self._rate is not None:
      return self._rate
    left = keras_slots.find_rate(rates, self._given)
    rate = self._read(optimizer.rate)
    if rate is None:
      rate = self._compute_rate(optimizer)
    if rate is None:
      return left
    decay = self._read(optimizer.children.get("decay"))
    if decay:
      steps = self._get_steps(optimizer)
      divisor = 0 if steps is None else 1 + decay * steps
      rate = rate / divisor if divisor > 0 else None
    elif left is not None and not math.isclose(left, rate, rel_tol=1e-6):
      self._add_note(
        f"the learning rate is {rate:g} in the template, but {left:g} in the "
        "MetaGraph: training goes on with that of the template"
      )
    return rate if rate is not None and 0 <= rate < math.inf else None

  def _compute_rate(self, optimizer: KerasOptimizer) -> float | None:
    """Returns what a schedule gives in the next step, if it is there."""
    settings = self._get_settings(optimizer)
    source = self._get_source(optimizer.iterations)
    if settings.find_rate is None or source is None:
      return None
    return settings.find_rate(
      int(source.read_scalar()) + settings.accumulated - 1
    )

  def _fill_rates(self) -> None:
    """Fills the variables that show what a schedule gave."""
    for optimizer in self._optimizers:
      number = optimizer.children.get(keras_slots.CURRENT_RATE)
      variable = self._find_left(number)
      rate = self._compute_rate(optimizer) if variable else None
      if variable and rate is not None:
        self._set_computed(variable, rate, optimizer)
        self.proofs[variable.key] = "what the schedule gives for that step"

  def _set_computed(
    self, variable: _Variable, value: float, optimizer: KerasOptimizer
  ) -> None:
    """Fills a scalar that was computed from the steps of an optimizer."""
    steps = self.sources[self._by_number[optimizer.iterations].key]
    literal = Literal(variable.tensor.dtype, value, origin=steps.origin)
    self.sources[variable.key] = literal

  def _read(self, number: int | None) -> float | None:
    """Returns the value that a scalar of the template has, or None."""
    variable = self._by_number.get(-1 if number is None else number)
    if variable is None or variable.tensor.shape:
      return None
    return self._template[variable.key].read_scalar()

  def _get_steps(self, optimizer: KerasOptimizer) -> int | None:
    """Returns the number of steps that an optimizer is to have, or None."""
    source = self._get_source(optimizer.iterations)
    factor = self._factors.get(optimizer.iterations, 1)
    return None if source is None else int(source.read_scalar()) // factor

  def _fill_counters(self, missing: list[_Variable]) -> None:
    """Fills what Keras's optimizers count, as far as it can be known.

    Args:
      missing: The variables of the template without a source.
    """
    for optimizer in self._optimizers:
      if not self._fill_steps(optimizer):
        continue
      self._fill_nadam_cache(optimizer)
      self._fill_averages(optimizer)
      self._fill_sums(optimizer)
      if optimizer.kind == "Momentum" and (
        self._get_settings(optimizer).momentum == 0
      ):
        self._empty(optimizer.slots, "the momentum is 0")
    counters = {each.number: each.iterations for each in self._optimizers}
    for optimizer in self._optimizers:  # Keras 3's wrapper counts, too.
      inner = optimizer.children.get("inner_optimizer", -1)
      steps = self._get_source(counters.get(inner))
      own = self._find_left(optimizer.iterations)
      if steps and own:
        self.sources[own.key] = steps
    for variable in missing:
      if variable.key not in self.sources:
        self._add_missing(variable)

  def _fill_steps(self, optimizer: KerasOptimizer) -> bool:
    """Fills an optimizer's counter of steps; returns whether it is known."""
    counted = self._count_steps(optimizer)
    variable = self._find_left(optimizer.iterations)
    if variable is None:
      known = self._get_steps(optimizer) or 0
      if counted and not keras_slots.are_steps_near(known, counted[1]):
        self._add_note(
          f"the optimizer's {counted[0]} has counted {counted[1]} steps, but "
          f"iterations is {known}: Keras goes by iterations alone, so its "
          "next steps have another size"
        )
      return True
    if counted:
      power, shown = counted
      self._add_note(f"{variable.path} is {shown}, as {power} shows")
      source = Literal(variable.tensor.dtype, shown, origin=power)
      self.sources[variable.key] = self._count(variable, source)
    elif optimizer.kind and optimizer.kind not in keras_slots.CORRECTED:
      self._add_note(
        f"{variable.path} starts from 0, since there is no global_step"
      )
      self.sources[variable.key] = Literal(variable.tensor.dtype, 0)
    else:
      return False
    return True

  def _fill_nadam_cache(self, optimizer: KerasOptimizer) -> None:
    """Computes Nadam's product of momentums, if its rule is known."""
    cache = self._find_left(optimizer.cache)
    steps = self._get_steps(optimizer)
    if cache is None or steps is None:
      return
    beta = self._find_beta(optimizer, steps)
    decay: float | None = 1.0
    if not optimizer.has_fixed_schedule:
      decay = self._read(optimizer.children.get("decay"))
    product = keras_slots.compute_nadam_cache(beta, decay, steps)
    if product is None:
      return
    self._set_computed(cache, product, optimizer)
    self._add_note(
      f"{cache.path} is what Keras's Nadam has after {steps} steps: the "
      "optimizer of TensorFlow 1 has no schedule of momentums"
    )

  def _fill_averages(self, optimizer: KerasOptimizer) -> None:
    """Starts averages that the checkpoint does not have from the weights."""
    for slot in optimizer.averages:
      average = self._find_left(slot.number)
      source = self._get_source(slot.weight)
      if average and source and source.spec == average.tensor:
        self.sources[average.key] = source
        self._copies.add(average.key)
        self.proofs[average.key] = "the weight, whose average starts from it"

  def _fill_sums(self, optimizer: KerasOptimizer) -> None:
    """Empties the sums of gradients that Keras 3 accumulates for a step."""
    has_some = any(self._find_left(slot.number) for slot in optimizer.sums)
    if has_some and optimizer.iterations not in self._factors:
      self._uncounted.append(self._paths[optimizer.number])
    self._empty(optimizer.sums, "no gradient is accumulated between two steps")

  def _empty(self, found: Iterable[KerasSlot], why: str) -> None:
    """Makes the slots without a source start from zeros."""
    for slot in found:
      variable = self._find_left(slot.number)
      if variable:
        source = self._template[variable.key]
        assert isinstance(source, Stored)
        self.sources[variable.key] = Scaled(source.bundle, source.name, 0.0)
        self.proofs[variable.key] = why

  def _find_beta(self, optimizer: KerasOptimizer, steps: int) -> float | None:
    """Returns the `beta_1` of Nadam, which newer optimizers do not save."""
    beta = self._read(optimizer.children.get("beta_1"))
    if beta is None:
      beta = self._get_settings(optimizer).beta_1
    product, count = map(self._read, (optimizer.cache, optimizer.iterations))
    if beta is None and product is not None and count is not None:
      beta = keras_slots.find_nadam_beta(product, int(count))
    found = self._find_powers(optimizer, "beta1_power")
    if beta is None and len(found) == 1:
      beta = self._there.find_initial(found[0])
      power = self._given[found[0]].read_scalar()
      if beta is None and 0 < power < 1:
        beta = power ** (1 / (steps + 1))
    return beta

  def _find_powers(self, optimizer: KerasOptimizer, base: str) -> list[str]:
    """Returns the powers in the checkpoint that may be an optimizer's."""
    weights = {
      self._by_number[slot.weight].name
      for slot in optimizer.slots
      if slot.weight in self._by_number
    }
    powers = [n for n in self._powers if names.get_base(n) == base]
    own = [n for n in powers if (self._there.get_served(n) or set()) & weights]
    return own or powers

  def _count_steps(self, optimizer: KerasOptimizer) -> tuple[str, int] | None:
    """Returns a power of an optimizer, and the number of steps it shows.

    Returns:
      None if nothing tells the optimizer's power, or the steps.
    """
    if optimizer.kind not in keras_slots.CORRECTED:
      return None
    for base, child in (("beta2_power", "beta_2"), ("beta1_power", "beta_1")):
      beta = self._read(optimizer.children.get(child))
      found = self._find_powers(optimizer, base)
      if beta is None and len(found) == 1:
        beta = self._there.find_initial(found[0])
      if beta is not None and len(found) == 1:
        power = self._given[found[0]].read_scalar()
        steps = keras_slots.count_steps(power, beta)
        if steps is not None:
          return found[0], steps
    return None

  def _add_note(self, note: str) -> None:
    self.notes[note] = None

  def _note_lost_slots(self) -> None:
    """Notes the slots of weights that no optimizer gets, with the reason."""
    used = {source.origin for source in self.sources.values()}
    lost = names.find_lost_slots(self._given, used)
    if lost:
      self._add_note(
        f"{problems.join(lost)} went to no optimizer: those in the "
        "template have no such slots, or have none before their first step"
      )

  def _add_missing(self, variable: _Variable) -> None:
    near = ""
    if len(self._missing) < problems.MOST:  # Others are not listed.
      near = problems.suggest_names(variable.name, self._given)
    self._missing.append(f"{variable}{near}")

  def _check(self, may_miss: bool) -> None:
    """Raises an error for missing, unclear, unfit or twice used values."""
    if may_miss:
      self._missing = []
    self._check_sources()
    listed = []
    if self._missing:
      listed.append(
        "the template has variables without values: "
        f"{problems.join(self._missing)}; name their values (--map HERE=THERE)"
        ", or save the template without them"
      )
    if self._uncounted:
      listed.append(
        "the template does not tell how many gradients are accumulated for a "
        f"step by {problems.join(self._uncounted)}, but checkpoint.restore "
        "into the objects knows"
      )
    if self._unclear:
      listed.append(
        "nothing proves which value each variable gets: "
        f"{problems.join(self._unclear)}; decide by a mapping from the "
        "template's paths to names (--map HERE=THERE)"
      )
    if self._rateless:
      listed.append(
        "nothing tells the learning rate, by which the slots of Keras's SGD "
        f"({problems.join(self._rateless)}) are those of MomentumOptimizer "
        "multiplied; give it (--learning-rate)"
      )
    if listed:
      raise CheckpointError(f"{self._path}: {'; '.join(listed)}")

  def _check_sources(self) -> None:
    """Notes sources of another dtype or shape, and sources used twice."""
    by_key = {variable.key: variable for variable in self._variables}
    counters = {
      optimizer.iterations
      for optimizer in self._optimizers
      if "inner_optimizer" not in optimizer.children
    }
    may_share = self._chosen | self._copies
    if len(counters) == 1:  # It may get the global step a second time.
      may_share |= {
        self._by_number[optimizer.iterations].key
        for optimizer in self._optimizers
        if optimizer.iterations in self._by_number
      }
    uses: dict[str, list[_Variable]] = {}
    for key, source in self.sources.items():
      variable = by_key[key]
      if source.spec != variable.tensor:
        self._missing.append(
          f"{variable} ({variable.tensor} in the template, {source.spec} here)"
        )
      name = getattr(source, "name", "")
      if name and key not in may_share:
        uses.setdefault(name, []).append(variable)
    for name, variables in uses.items():
      if len(variables) > 1:
        self._add_unclear("variables", variables, [name])
