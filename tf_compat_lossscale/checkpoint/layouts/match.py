# SPDX-License-Identifier: Apache-2.0
"""Holds the result of matching variables with a checkpoint, whole or partial.

`layouts/matching.py` holds the steps of matching.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Source
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.files.values import Stored
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import problems
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.names import ScaleNames
from tf_compat_lossscale.checkpoint.layouts.pairing import Pairing
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_scale

_CONVERTED = "of the loss scale of another API"


@dataclasses.dataclass(frozen=True)
class Wishes:
  """What the caller of a restore by name wants.

  Attributes:
    mapping: Variable -> its name in the checkpoint, or None to initialize it.
    missing: 'error', or 'initialize' for variables that the checkpoint lacks.
    learning_rate: The learning rate with which training goes on; None if the
      program or the checkpoint has it.
    what: 'all', 'weights' or 'all_but_optimizer', as `restore` takes it.
    excused: Variables that are not to be restored -> the reason.
  """

  mapping: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
  missing: str = "error"
  learning_rate: float | None = None
  what: str = "all"
  excused: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Match:
  """The source of each variable's value.

  Attributes:
    sources: Variable -> the source of its value.
    initialized: Variable -> why it starts from its initial value instead.
    proofs: Variable -> how its source was found, if not by the variable's name.
    unproven: The slots of several optimizers of one name for which nothing but
      equal names decided, since evidence is missing.
    unused: The tensors of the checkpoint that no variable gets, sorted.
    notes: What the user should know besides, in sentences.
  """

  sources: Sources = dataclasses.field(default_factory=dict)
  initialized: dict[str, str] = dataclasses.field(default_factory=dict)
  proofs: dict[str, str] = dataclasses.field(default_factory=dict)
  unproven: list[str] = dataclasses.field(default_factory=list)
  unused: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()

  @property
  def is_exact(self) -> bool:
    """Whether every variable gets the tensor of its own name, unchanged."""
    return not self.initialized and all(
      is_unchanged(name, source) for name, source in self.sources.items()
    )


class PartialMatch:
  """A match that the steps of matching fill.

  Every variable of the program starts in `wanted`. A step moves the variable to
  `match` or to one of the problems.

  Attributes:
    here: The variables of the program.
    there: The variables of the checkpoint.
    sources: The sources of the checkpoint: name -> tensor.
    scales: The loss scales of the program.
    scales_there: The loss scales of the checkpoint.
    match: The match so far.
    wanted: The variables without a source so far: name -> dtype and shape.
    given: The variables of the checkpoint that no variable has got so far.
    missing: The variables for which the checkpoint has nothing.
    misfits: Messages for sources of another dtype or shape.
    undecided: The variables with several candidates.
    has_mapped_scale: Whether the caller's mapping decided on a loss scale.
  """

  def __init__(
    self, here: Inventory, there: Inventory, sources: Sources
  ) -> None:
    """Starts with all variables wanted."""
    self.here, self.there = here, there
    self.scales, self.scales_there = here.scales, there.scales
    self.sources = sources
    self.match = Match()
    self.wanted = dict(here.tensors)
    self.given = dict.fromkeys(sources)
    self.missing: list[str] = []
    self.misfits: list[str] = []
    self.undecided: list[problems.Undecided] = []
    self.has_mapped_scale = False

  def set_source(
    self, name: str, source: Source | None, proof: str = ""
  ) -> None:
    """Decides on a variable's source.

    Args:
      name: The variable, which must be wanted.
      source: The source; None if the checkpoint has none.
      proof: How the source was found, if not by the variable's name.
    """
    if isinstance(source, Literal) and not source.origin and not proof:
      self.initialize({name: problems.PARTIAL})
      return
    tensor = self.wanted.pop(name)
    if source is None:
      self.missing.append(name)
      return
    self.given.pop(source.origin, None)
    if source.spec != tensor:
      self.misfits.append(f"{name} is {tensor} but {source.spec} in it")
      return
    self.match.sources[name] = source
    if proof:
      self.match.proofs[name] = proof

  def initialize(self, reasons: Mapping[str, str]) -> None:
    """Decides that variables start from their initial values: name -> why."""
    for name, why in reasons.items():
      self.wanted.pop(name, None)
      self.match.initialized[name] = why

  def set_scale(
    self,
    scale: ScaleNames,
    source: ScaleNames,
    proof: str,
    only: Collection[str] | None = None,
  ) -> None:
    """Decides on the source of a loss scale.

    Args:
      scale: The loss scale of the program.
      source: The loss scale of the checkpoint, perhaps of another API.
      proof: How the source was found, if not by names.
      only: The variables of the loss scale to decide on; by default all that
        are wanted.
    """
    found = convert_scale(self.sources, source, scale.api)
    for name in source.names:
      self.given.pop(name, None)
    for name, value in zip(scale.names, found):
      if name not in (self.wanted if only is None else only):
        continue
      if is_unchanged(name, value):
        self.set_source(name, value)
      elif value.origin:
        self.set_source(name, value, proof or _CONVERTED)
      elif scale.api == source.api:
        self.initialize({name: problems.PARTIAL})
      else:
        self.set_source(name, value, problems.NOT_COUNTED)

  def add_undecided(
    self,
    ours: list[str],
    theirs: list[str],
    likely: Iterable[tuple[str, str]] = (),
  ) -> None:
    """Notes variables whose sources the caller has to decide on.

    Args:
      ours: The variables of the program.
      theirs: The candidates in the checkpoint.
      likely: The pairs if both programs created the variables in one order.
    """
    for name in ours:
      self.wanted.pop(name, None)
    for name in theirs:
      self.given.pop(name, None)
    self.undecided.append(problems.Undecided(ours, theirs, dict(likely)))

  def add_undecided_items(self, found: Pairing) -> None:
    """Notes the variables of a pairing that stayed undecided."""
    if not found.undecided:
      return
    ours = names.sort_names(item.names[0] for item in found.undecided)
    theirs = names.sort_names(
      other.names[0] for other in found.list_candidates()
    )
    groups = {item.names[0]: item.names for item in found.undecided}
    others = {item.names[0]: item.names for item in found.left}
    likely = [
      pair for a, b in zip(ours, theirs) for pair in zip(groups[a], others[b])
    ]
    self.add_undecided(
      [name for a in ours for name in groups[a]],
      [name for b in theirs for name in others[b]],
      likely if len(ours) == len(theirs) else (),
    )


def is_unchanged(name: str, source: Source) -> bool:
  """Returns whether a variable gets the tensor of its own name, unchanged."""
  return isinstance(source, Stored) and source.name == name
