"""Which variable by name belongs where in a graph of objects: with a proof.

A value goes where a name or the user says that it belongs, or where nothing
else is and nothing else could go. Order proves nothing: objects are numbered
otherwise than variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

from tf_compat_lossscale.checkpoint.files import errors as _errors
from tf_compat_lossscale.checkpoint.files.bundle import Tensor
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.writer import Source
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.checkpoint.layouts import inventory
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.sources import convert_scale
from tf_compat_lossscale.checkpoint.layouts.sources import Sources

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# Slots of Keras 2's Adam -> those of `tf.compat.v1.train.AdamOptimizer`. Other
# optimizers' slots do not mean the same: Keras's SGD, for one, keeps what is
# added to a variable, not what is accumulated.
_ADAM = {"m": "Adam", "v": "Adam_1"}
_HYPERPARAMETERS = {"beta_1", "beta_2", "decay", "learning_rate", "epsilon"}


@dataclasses.dataclass(frozen=True)
class ObjectVariable:
  """A variable of a graph of objects.

  Attributes:
    number: Its node.
    path: Its path in the objects.
    name: Its own name, as a Saver would have it.
    key: Its key in the checkpoint.
    tensor: Its dtype and shape.
  """

  number: int
  path: str
  name: str
  key: str
  tensor: Tensor

  def __str__(self) -> str:
    return f"{self.path} ({self.name})"


@dataclasses.dataclass(frozen=True)
class _Scale:
  """A loss scale of a graph: its API, and its variables in order."""

  api: str
  members: tuple[ObjectVariable, ...]

  @property
  def names(self) -> tuple[str, ...]:
    return tuple(member.name for member in self.members)

  def __str__(self) -> str:
    path = self.members[0].path.rpartition("/")[0]
    return f"{path} ({', '.join(self.names)})"


class TemplateFiller:
  """Finds the value for each variable of a graph of objects.

  Attributes:
    sources: Key -> the value.
  """

  def __init__(
    self,
    graph: ObjectGraph,
    tensors: Mapping[str, Tensor],
    variables: Sources,
    there: Inventory,
    path: str,
  ) -> None:
    """Takes what there is.

    Args:
      graph: The graph of the objects.
      tensors: Key -> dtype and shape; others are no variables.
      variables: Saver's name -> the value.
      there: The same variables, with what is known of them.
      path: The template, for messages.
    """
    self._graph, self._variables, self._path = graph, variables, path
    self._members = [
      ObjectVariable(
        number,
        attribute.key.removesuffix(_SUFFIX),
        attribute.full_name,
        attribute.key,
        tensors[attribute.key],
      )
      for number, node in enumerate(graph.nodes)
      if (attribute := graph.value(number)) and attribute.key in tensors
    ]
    self._by_number = {member.number: member for member in self._members}
    self._paths = {n: p for n, p in graph.paths().items() if p}
    self._problems: list[str] = []
    self._chosen: set[str] = set()  # The keys that the user has decided on.
    self._missing: list[str] = []
    self._here = Inventory(
      {member.name: member.tensor for member in self._members if member.name},
      lambda: evidence.ObjectEvidence(graph),
    )
    self._there = there
    self._here.gather_evidence()
    there.gather_evidence()
    self._left = there.scales.known  # Loss scales for none so far.
    self.sources: dict[str, Source] = {}

  def fill(self, mapping: Mapping[str, str] | None = None) -> None:
    """Finds all values.

    Args:
      mapping: What the user says: a name or path here -> the name there.

    Raises:
      CheckpointError: It does not show what belongs where, or there is none.
    """
    scales = list(self._scales())
    self._map(mapping or {}, scales)
    self._find_scales(scales)
    kept = self._kept()
    rest = [
      member
      for member in self._members
      if member.key not in self.sources
      and member.number not in kept
      and member.path != "save_counter"
    ]
    left = {name for state in self._left for name in state.names}
    states = self._there.scales.known
    used = {name for state in states for name in state.names} - left
    self._find_others(rest, [n for n in self._variables if n not in used])
    self._check()

  def _scales(self) -> Iterable[_Scale]:
    """The loss scales of the graph, each once."""
    seen = set()
    for node in self._graph.nodes:
      number = node.children.get("loss_scale")
      if number is None or number in seen:
        continue
      seen.add(number)
      scale = self._graph.nodes[number]
      for api, layout in names.SCALE_TENSORS.items():
        numbers = [scale.children.get(base, -1) for base in layout]
        if all(n in self._by_number for n in numbers):
          yield _Scale(api, tuple(self._by_number[n] for n in numbers))
          break

  def _map(self, mapping: Mapping[str, str], scales: list[_Scale]) -> None:
    """Does what the user says; a loss scale goes as a whole."""
    by_scale = {p.key: scale for scale in scales for p in scale.members}
    by_name = {n: state for state in self._left for n in state.names}
    for here, there in mapping.items():
      member = self._named(here)
      name = self._given(there)
      self._chosen.add(member.key)
      scale, state = by_scale.get(member.key), by_name.get(name)
      if scale and state:
        self._left = [other for other in self._left if other != state]
        self._give_scale(scale, state)
        self._chosen.update(p.key for p in scale.members)
      else:
        self.sources[member.key] = self._variables[name]

  def _named(self, here: str) -> ObjectVariable:
    """The variable that the user means by a name or path."""
    found = [
      member
      for member in self._members
      if here in (member.path, member.key, self._paths.get(member.number))
    ] or [member for member in self._members if member.name == here]
    if len(found) == 1:
      return found[0]
    if found:
      raise CheckpointError(
        f"{self._path}: {here} is the name of several variables: give the path "
        f"of one, {' or '.join(p.path for p in found)}"
      )
    known = [p.path for p in self._members] + [p.name for p in self._members]
    raise CheckpointError(
      f"{self._path}: {here} is neither a variable's name nor its path there"
      f"{_errors.nearest(here, known)}"
    )

  def _given(self, there: str) -> str:
    """The Saver's name that the user means by a name or key."""
    if there in self._variables:
      return there
    for name, source in self._variables.items():
      if getattr(source, "name", None) == there:
        return name
    raise CheckpointError(
      f"{there} is not in the checkpoint that is converted"
      f"{_errors.nearest(there, self._variables)}"
    )

  def _give_scale(self, scale: _Scale, state: names.ScaleNames) -> None:
    values = convert_scale(self._variables, state, scale.api)
    for member, value in zip(scale.members, values):
      self.sources[member.key] = value

  def _find_scales(self, scales: list[_Scale]) -> None:
    """Gives loss scales their values."""
    left = [s for s in scales if s.members[0].key not in self.sources]
    states = {state.names: state for state in self._left}
    mine = {scale.names: scale for scale in left}
    if len(mine) < len(left):  # Two are called the same.
      if states:
        there = (" and ".join(found) for found in states)
        self._problems.append(_unclear("loss scales", left, there))
      return
    found = inventory.pair_items(
      self._here,
      self._there,
      [self._here.make_item(s.names, is_scale=True) for s in left],
      [self._there.make_item(s.names, is_scale=True) for s in states.values()],
      keeps_scope=not len(left) == len(states) == 1,
      are_scales=True,
    )
    for here, (item, _) in found.pairs.items():
      state = states.pop(item.names)
      self._give_scale(mine[here.names], state)
    self._left = list(states.values())
    unclear = [mine[item.names] for item in found.undecided]
    if unclear:
      there = (" and ".join(item.names) for item in found.left)
      self._problems.append(_unclear("loss scales", unclear, there))

  def _kept(self) -> set[int]:
    """The nodes of Keras's hyperparameters: no variables elsewhere."""
    return {
      number
      for node in self._graph.nodes
      if "iter" in node.children
      for name, number in node.children.items()
      if name in _HYPERPARAMETERS
    }

  def _find_others(
    self, members: list[ObjectVariable], given: list[str]
  ) -> None:
    """Finds what is no loss scale's."""
    known = set(given)
    powers = [member for member in members if names.is_power(member.name)]
    self._find_powers(powers, [n for n in given if names.is_power(n)])
    firm = [member for member in members if member not in powers]
    here = names.group_by_family(member.name for member in firm)
    there = names.group_by_family(given)
    keras = self._of_keras()
    for member in firm:
      family = names.get_family(member.name)
      if member.name in known:
        others = [member.name]
      elif member.number in keras:
        others = [name for name in keras[member.number] if name in known]
      else:
        alone = len(here[family]) == 1
        others = there.get(family, []) if alone else []
      if len(others) > 1:
        self._problems.append(_unclear("variables", [member], others))
      elif others:
        self.sources[member.key] = self._variables[others[0]]
      else:
        self._lack(member)

  def _find_powers(
    self, members: list[ObjectVariable], given: list[str]
  ) -> None:
    """Finds the powers of Adam, whose names depend on more than the model."""
    for base in sorted({names.get_base(member.name) for member in members}):
      mine = [
        member for member in members if names.get_base(member.name) == base
      ]
      theirs = [name for name in given if names.get_base(name) == base]
      by_name = {member.name: member for member in mine}
      if len(by_name) < len(mine):
        self._problems.append(_unclear("powers", mine, theirs))
        continue
      found = inventory.pair_items(
        self._here,
        self._there,
        [self._here.make_item((name,)) for name in by_name],
        [self._there.make_item((name,)) for name in theirs],
        keeps_scope=False,
      )
      for here, (there, _) in found.pairs.items():
        member = by_name[here.names[0]]
        self.sources[member.key] = self._variables[there.names[0]]
      for item in found.missing:
        self._lack(by_name[item.names[0]])
      if found.undecided:
        self._problems.append(
          _unclear(
            "powers",
            [by_name[item.names[0]] for item in found.undecided],
            [item.names[0] for item in found.left],
          )
        )

  def _of_keras(self) -> dict[int, list[str]]:
    """What Keras 2's own variables are elsewhere: node -> candidates."""
    steps = [
      name
      for name in self._variables
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
          result[slot.slot] = [f"{variable.name}/{_ADAM[slot.name]}"]
    return result

  def _lack(self, member: ObjectVariable) -> None:
    near = _errors.nearest(member.name, self._variables)
    self._missing.append(f"{member}{near}")

  def _check(self) -> None:
    """Raises for what is missing, unclear, given twice or another's."""
    by_key = {member.key: member for member in self._members}
    steps = set(self._of_keras()) & {
      node.children["iter"]
      for node in self._graph.nodes
      if "iter" in node.children
    }
    given: dict[str, list[ObjectVariable]] = {}
    for key, source in self.sources.items():
      member = by_key[key]
      if source.tensor != member.tensor:
        self._missing.append(
          f"{member} ({member.tensor} in the template, {source.tensor} here)"
        )
      name = getattr(source, "name", "")
      # Keras counts steps besides the global step.
      alone = len(steps) == 1 and member.number in steps
      if name and key not in self._chosen and not alone:
        given.setdefault(name, []).append(member)
    for name, members in given.items():
      if len(members) > 1:
        self._problems.append(_unclear("variables", members, [name]))
    listed = []
    if self._missing:
      listed.append(
        "the template has what there are no values for: "
        + "; ".join(sorted(self._missing))
      )
    if self._problems:
      listed.append(
        "it does not show which value is whose: "
        f"{'; '.join(sorted(self._problems))}; say it by a mapping from the "
        "template's paths to names (--map HERE=THERE)"
      )
    if listed:
      raise CheckpointError(f"{self._path}: {'; '.join(listed)}")


def _unclear(
  what: str, here: Iterable[ObjectVariable | _Scale], there: Iterable[str]
) -> str:
  """What does not show, with the names on both sides."""
  mine = ", ".join(sorted(map(str, here)))
  return f"the {what} {mine} here and {', '.join(sorted(there))} there"
