"""Describes the variables of a program or of a checkpoint, with evidence."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping

from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import pairing as _pairing
from tf_compat_lossscale.checkpoint.layouts.evidence import Evidence
from tf_compat_lossscale.checkpoint.layouts.evidence import Owners
from tf_compat_lossscale.checkpoint.layouts.pairing import Item

_SCALAR = TensorSpec("float32", ())  # A variable that is not to be restored.


class Side:
  """Variables by name, and what is known of them: of a graph or a checkpoint.

  Attributes:
    tensors: Name -> dtype and shape.
    has_evidence: Whether anything but names is known.
    trains_once: Whether a single optimizer applies gradients.
    renamed: Name -> the name on the other side, where the caller decided.
    has_new_scale: Whether a loss scale was added that no evidence knows of.
  """

  def __init__(
    self,
    tensors: Mapping[str, TensorSpec],
    find_evidence: Callable[[], Evidence | None],
    trains_once: bool = False,
  ) -> None:
    """Takes variables.

    Args:
      tensors: Name -> dtype and shape.
      find_evidence: Finds what proves whose the variables are. It is called
        when names do not decide.
      trains_once: Whether a single optimizer applies gradients.
    """
    self.trains_once = trains_once
    self.tensors = dict(tensors)
    self._find_evidence = find_evidence
    self._evidence: Evidence | None = None
    self._owners = Owners()
    self._slots: list[tuple[str, str]] = []
    self.renamed: dict[str, str] = {}
    self.has_new_scale = False
    self.has_evidence = False

  def look(self, bases: Collection[str] = ()) -> None:
    """Has evidence found for variables whose names depend on more than a model.

    Args:
      bases: Names, without scope and number, of further variables.
    """
    self._evidence = self._find_evidence()
    self.has_evidence = self._evidence is not None
    if self._evidence:
      known = dict.fromkeys([*self.tensors, *self._evidence.order])
      self._slots = list(names.slots(known))
      self._owners = self._evidence.owners(
        [
          name
          for name in known
          if names.is_special(name, self.tensors.get(name, _SCALAR))
          or names.innermost_cond(name) is not None
          or names.base(name) in bases
        ]
      )

  @property
  def known(self) -> frozenset[str]:
    """The names of all variables, those that are not restored included."""
    order = self._evidence.order if self._evidence else []
    return frozenset(self.renamed.get(n, n) for n in {*self.tensors, *order})

  @property
  def trained(self) -> frozenset[str]:
    """The weights that are known to be trained, and their slots."""
    slots = {slot for slot, _ in self._slots}
    found = self._owners.trained & {*self._owners.trainable, *slots}
    return self.trained_weights | {self.renamed.get(n, n) for n in found}

  @property
  def trained_weights(self) -> frozenset[str]:
    """The weights that are known to be trained."""
    primaries = {primary for _, primary in self._slots}
    found = self._owners.trained & {*self._owners.trainable, *primaries}
    return frozenset(self.renamed.get(n, n) for n in found)

  def is_in_cond(self, name: str) -> bool:
    """Returns whether a variable is known to be created in a cond."""
    return bool(self._evidence and self._evidence.is_in_cond(name))

  def is_alone(self, name: str) -> bool:
    """Returns whether every trained weight depends on this loss scale."""
    return name in self._owners.alone

  def is_users(self, name: str) -> bool:
    """Returns whether a variable is known to be none of an optimizer's own."""
    if not self.trained_weights:
      return False  # Nothing is trained, so that the graph proves nothing.
    return name in self._owners.trainable or self.serves(name) == frozenset()

  def is_own(self, name: str) -> bool:
    """Returns whether an optimizer is known to have created a variable."""
    return self.is_in_cond(name) and not self.is_users(name)

  def cond(self, name: str) -> str | None:
    """Returns the cond of TensorFlow 2 that a variable is updated in."""
    return self._owners.conds.get(name)

  @property
  def order(self) -> dict[str, int]:
    """Variable -> its place in the order of their creation, if known."""
    order = self._evidence.order if self._evidence else []
    return {name: i for i, name in enumerate(order)}

  def serves(self, name: str) -> frozenset[str] | None:
    """Returns what depends on a variable; None if that is not known."""
    return self._owners.serves.get(name)

  def item(self, found: tuple[str, ...], is_scale: bool = False) -> Item:
    """Returns a loss scale's variables, or one variable, to be paired."""
    name = found[0]
    scope: str | None = names.split_scope(names.without_conds(name))[0]
    cond = self.cond(name)
    if not is_scale and cond:
      # Variables that are made in a cond of TensorFlow 2 have no scope.
      scope = names.split_scope(cond)[0]
    elif not is_scale and not scope and not self.has_evidence:
      scope = "" if names.innermost_cond(name) is not None else None
    serves = self.serves(name) or frozenset()
    firm = frozenset(
      self.renamed.get(n, n)
      for n in serves
      if not names.is_special(n, self.tensors.get(n, _SCALAR))
      and self.tensors.get(n, _SCALAR).dtype not in names.INTEGERS
      and names.base(n) != "global_step"
    )
    return Item(found, scope, firm)

  @property
  def scales(self) -> names.Scales:
    """The loss scales, and what could be one's."""
    others = [n for n, serves in self._owners.serves.items() if not serves]
    if not self.trained_weights:
      others = []  # Nothing is trained, so that no loss scale serves anything.
    return names.loss_scales(self.tensors, self._owners.scales, others)

  def without_conds(self, name: str) -> str:
    """Returns a name without the conds that its variable was created in."""
    if self.has_evidence and not self.is_in_cond(name):
      return name
    return names.without_conds(name)


def look_at_both(here: Side, there: Side) -> None:
  """Has evidence found on both sides, if names alone do not decide."""
  if _do_names_decide(here, there):
    return
  bases = {
    names.base(name)
    for side in (here, there)
    for name in side.tensors
    if names.innermost_cond(name) is not None
  }
  here.look(bases)
  there.look(bases)


def _do_names_decide(here: Side, there: Side) -> bool:
  """Returns whether equal names are enough.

  They are if every name exists there, and if each power and each variable of a
  loss scale is the only one of its kind.
  """
  special, others = (
    [n for n, tensor in side.tensors.items() if names.is_special(n, tensor)]
    for side in (here, there)
  )
  bases = {names.base(name) for name in special}
  scales = [n for n in special if not names.is_power(n, here.tensors[n])]
  return (
    set(here.tensors) <= set(there.tensors)
    and set(special) == set(others)
    and len(bases) == len(special)
    and (here.trains_once or not scales)
  )


def pair(
  here: Side,
  there: Side,
  ours: list[Item],
  theirs: list[Item],
  keeps_scope: bool,
  are_scales: bool = False,
) -> _pairing.Pairing:
  """Finds the counterparts of items, by what is known on both sides.

  Args:
    here: The variables of the program.
    there: Those of the checkpoint.
    ours: The items here.
    theirs: The items there.
    keeps_scope: Whether items stay in their scope, whatever the control flow.
    are_scales: Whether they are loss scales. What a loss scale serves it serves
      with its slots; a sparse update of a slot does not depend on a power.
  """
  if not ours or not theirs:  # Most often so, and then there is nothing to ask.
    return _pairing.Pairing({}, list(ours), [], list(theirs))
  common = here.known & there.known

  def shared(items: list[Item]) -> list[Item]:
    return [item._replace(serves=item.serves & common) for item in items]

  def trained(one: Side) -> frozenset[str]:
    return (one.trained if are_scales else one.trained_weights) & common

  return _pairing.pair(
    shared(ours), shared(theirs), (trained(here), trained(there)), keeps_scope
  )
