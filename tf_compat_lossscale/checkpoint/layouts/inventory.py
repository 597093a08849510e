# SPDX-License-Identifier: Apache-2.0
"""Combines names and evidence: all that is known of a set of variables.

Two inventories meet in a restore: the program's (`here`) and the checkpoint's
(`there`). Names are read first. If names do not decide which variable is which,
both inventories gather evidence, which is slower: the program's graph is read,
and the checkpoint's MetaGraph or object graph.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import dataclasses

from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import pairing
from tf_compat_lossscale.checkpoint.layouts.evidence import Evidence
from tf_compat_lossscale.checkpoint.layouts.evidence import Owner
from tf_compat_lossscale.checkpoint.layouts.evidence import Usage
from tf_compat_lossscale.checkpoint.layouts.pairing import Item
from tf_compat_lossscale.checkpoint.layouts.pairing import Pairing

# The dtype and shape of a variable that is not to be restored: unknown, so that
# its name alone decides.
_SCALAR = TensorSpec("float32", ())


class Inventory:
  """The variables of a program or of a checkpoint, and the evidence about them.

  Attributes:
    tensors: Name -> dtype and shape.
    has_evidence: Whether a graph was read besides the names.
    trains_once: Whether exactly one optimizer applies gradients.
    renamed: Name -> the name in the other inventory, as the caller decided.
    has_new_scale: Whether a loss scale was added that no evidence knows.
  """

  def __init__(
    self,
    tensors: Mapping[str, TensorSpec],
    find_evidence: Callable[[], Evidence | None],
    trains_once: bool = False,
  ) -> None:
    """Stores the variables.

    Args:
      tensors: Name -> dtype and shape.
      find_evidence: Reads the evidence; called when names do not decide.
      trains_once: Whether exactly one optimizer applies gradients.
    """
    self.trains_once = trains_once
    self.tensors = dict(tensors)
    self._find_evidence = find_evidence
    self._evidence: Evidence | None = None
    self._usage = Usage()
    self._slots: dict[str, str] = {}  # Slot -> its weight.
    self._owners: dict[str, Owner] | None = None
    self._families: dict[names.Family, list[str]] | None = None
    self.renamed: dict[str, str] = {}
    self.has_new_scale = False
    self.has_evidence = False

  def gather_evidence(self, bases: Collection[str] = ()) -> None:
    """Reads the evidence of all variables whose names may not decide.

    Args:
      bases: Names without scope and number; variables with these names are
        asked for as well.
    """
    self._evidence = self._find_evidence()
    self._owners = self._families = None
    self.has_evidence = self._evidence is not None
    if self._evidence:
      known = dict.fromkeys([*self.tensors, *self._evidence.order])
      self._slots = dict(names.find_slots(known))
      self._usage = self._evidence.find_usage(
        [
          name
          for name in known
          if names.is_ambiguous(name, self._get_tensor(name))
          or names.get_cond_number(name) is not None
          or names.get_base(name) in bases
        ]
      )
      self._forget_bypassed_scales()

  def _forget_bypassed_scales(self) -> None:
    """Lets names decide on loss scales that a program updates but bypasses.

    Its gradients were those of the loss itself, so that the members of such a
    loss scale serve each other, and no weight.
    """
    serves = dict(self._usage.serves)
    updated = {
      name: self.tensors[name]
      for name in serves
      if name in self._usage.trained and name in self.tensors
    }
    for scale in names.find_scales(updated).known:
      if all(serves[name] <= {*scale.names} for name in scale.names):
        for name in scale.names:
          del serves[name]
    self._usage = dataclasses.replace(self._usage, serves=serves)

  def _get_tensor(self, name: str) -> TensorSpec:
    return self.tensors.get(name, _SCALAR)

  def _translate(self, found: Collection[str]) -> frozenset[str]:
    """Returns the names in the other inventory."""
    return frozenset(self.renamed.get(name, name) for name in found)

  @property
  def order(self) -> dict[str, int]:
    """Variable -> its position in the order of creation; empty if unknown."""
    order = self._evidence.order if self._evidence else []
    return {name: i for i, name in enumerate(order)}

  @property
  def families(self) -> dict[names.Family, list[str]]:
    """The slots of each variable, including those not to be restored."""
    if self._families is None:
      self._families = names.find_families({*self.tensors, *self.order})
    return self._families

  def find_owners(self, asked: Collection[str]) -> dict[str, Owner]:
    """Returns the optimizers of slots, for slots whose optimizer is known."""
    if self._owners is None:
      every = [slot for members in self.families.values() for slot in members]
      self._owners = self._evidence.find_owners(every) if self._evidence else {}
    return {slot: self._owners[slot] for slot in asked if slot in self._owners}

  def find_initial(self, name: str) -> float | None:
    """Returns the constant from which a scalar starts, if evidence shows it."""
    return self._evidence.find_initial(name) if self._evidence else None

  @property
  def known(self) -> frozenset[str]:
    """The names of all variables, including variables not to be restored."""
    return self._translate({*self.tensors, *self.order})

  @property
  def weights(self) -> frozenset[str]:
    """The variables that the evidence shows to be weights of the model."""
    weights = {*self._usage.trainable, *self._slots.values()}
    return self._translate(weights - self._slots.keys())

  @property
  def updated(self) -> frozenset[str]:
    """The variables that are updated from the values of variables."""
    return self._translate(self._usage.trained)

  @property
  def trained_weights(self) -> frozenset[str]:
    """The weights that the evidence shows to be trained."""
    weights = {*self._usage.trainable, *self._slots.values()}
    return self._translate(self._usage.trained & weights)

  @property
  def trained(self) -> frozenset[str]:
    """The weights that the evidence shows to be trained, and their slots."""
    slots = self._usage.trained & self._slots.keys()
    return self.trained_weights | self._translate(slots)

  @property
  def scales(self) -> names.FoundScales:
    """The loss scales, and the variables that could belong to one."""
    others = [name for name, served in self._usage.serves.items() if not served]
    if not self.trained_weights:
      others = []  # Nothing is trained, so no loss scale serves anything.
    return names.find_scales(self.tensors, self._usage.scales, others)

  def complete_scales(self, sources: Sources, are_known: bool = False) -> None:
    """Adds the missing counters of incomplete loss scales, which start from 0.

    Args:
      sources: The same variables: name -> tensor. Counters are added.
      are_known: Whether incomplete loss scales are taken for such even if no
        evidence proves that a weight depends on them.
    """
    for scale in self.scales.incomplete:
      is_known = are_known and self.is_likely_scale(scale)
      is_proven = self.get_served(scale.names[0]) and (
        self.is_likely_scale(scale) or not self.is_constant(scale.names[0])
      )
      if is_known or is_proven:
        for name, spec in zip(
          scale.names, names.SCALE_TENSORS[scale.api].values()
        ):
          if name not in self.tensors:
            self.tensors[name] = spec
            sources[name] = Literal(spec.dtype, 0)

  def is_likely_scale(self, scale: names.ScaleNames) -> bool:
    """Returns whether an incomplete loss scale is probably one.

    The name `loss_scale` alone is too common.
    """
    counters = self.tensors.keys() & set(scale.names[1:])
    return scale.api == names.COMPAT or bool(counters)

  def is_trainable(self, name: str) -> bool:
    """Returns whether the evidence shows that a variable is for training."""
    return name in self._usage.trainable

  def is_constant(self, name: str) -> bool:
    """Returns whether the evidence shows that nothing changes a variable."""
    return self.has_evidence and name not in self._usage.trained

  def is_in_cond(self, name: str) -> bool:
    """Returns whether a variable is known to be created in a cond."""
    return bool(self._evidence and self._evidence.is_in_cond(name))

  def serves_every_weight(self, name: str) -> bool:
    """Returns whether every update of all trained weights depends on `name`."""
    return name in self._usage.serves_all

  def belongs_to_user(self, name: str) -> bool:
    """Returns whether a variable is known to belong to no optimizer."""
    if not self.trained_weights:
      return False  # Nothing is trained, so the graph proves nothing.
    return name in self._usage.trainable or self.get_served(name) == frozenset()

  def belongs_to_optimizer(self, name: str) -> bool:
    """Returns whether an optimizer is known to have created a variable."""
    return self.is_in_cond(name) and not self.belongs_to_user(name)

  def get_cond(self, name: str) -> str | None:
    """Returns the cond of TensorFlow 2 in which a variable is updated."""
    return self._usage.conds.get(name)

  def get_served(self, name: str) -> frozenset[str] | None:
    """Returns the variables whose updates depend on `name`; None if unknown."""
    return self._usage.serves.get(name)

  def remove_conds(self, name: str) -> str:
    """Returns a name without the conds in which the variable was created.

    Without evidence, every scope called like a cond counts as a cond.
    """
    if self.has_evidence and not self.is_in_cond(name):
      return name
    return names.remove_conds(name)

  def make_item(self, found: tuple[str, ...], is_scale: bool = False) -> Item:
    """Returns the item to pair: one variable, or a loss scale's variables.

    Args:
      found: The names of the variables.
      is_scale: Whether the variables are a loss scale's.
    """
    name = found[0]
    scope: str | None = names.split_scope(names.remove_conds(name))[0]
    cond = self.get_cond(name)
    if not is_scale and cond:
      # In a cond of TensorFlow 2, a new variable's name gets no scope.
      scope = names.split_scope(cond)[0]
    elif not is_scale and not scope and not self.has_evidence:
      scope = "" if names.get_cond_number(name) is not None else None
    served = self.get_served(name) or frozenset()
    # Only names that are the same in every layout can be compared. Counters of
    # steps are left out, since several optimizers may share one.
    comparable = {
      n
      for n in served
      if not names.is_ambiguous(n, self._get_tensor(n))
      and self._get_tensor(n).dtype not in names.INTEGERS
      and names.get_base(n) != "global_step"
    }
    return Item(found, scope, self._translate(comparable))


def pair_items(
  here: Inventory,
  there: Inventory,
  ours: list[Item],
  theirs: list[Item],
  keeps_scope: bool,
  are_scales: bool = False,
) -> Pairing:
  """Pairs items of the program with items of the checkpoint.

  Args:
    here: The variables of the program.
    there: The variables of the checkpoint.
    ours: The items of the program.
    theirs: The items of the checkpoint.
    keeps_scope: Whether the scope of an item is the same in every layout.
    are_scales: Whether the items are loss scales. The update of a weight's slot
      depends on the loss scale too, but a sparse update of a slot does not
      depend on Adam's powers.

  Returns:
    The pairs, with their proofs, and the items without a pair.
  """
  if not ours or not theirs:
    return Pairing({}, list(ours), [], list(theirs))
  common = here.known & there.known

  def restrict(items: list[Item]) -> list[Item]:
    return [item._replace(serves=item.serves & common) for item in items]

  def get_trained(inventory: Inventory) -> frozenset[str]:
    if are_scales:
      return inventory.trained & common
    return inventory.trained_weights & common

  return pairing.find_pairs(
    restrict(ours),
    restrict(theirs),
    (get_trained(here), get_trained(there)),
    keeps_scope,
  )
