# SPDX-License-Identifier: Apache-2.0
"""Gives slots of Keras's optimizers the names of TensorFlow 1's.

A checkpoint of Keras is restored by name, into a program of TensorFlow 1:

    program         checkpoint           value
    w/Momentum      SGD/w/momentum       times -1 / learning rate
    w/Adam          Adam/w/m
    beta1_power     Adam/beta_1, iter    beta_1 ** (iter + 1)
    global_step     Adam/iter

The program's graph shows which optimizers it has, and `layouts/keras_slots.py`
knows the names and the values of their slots. The new names are added to those
of the checkpoint; the matching of names then goes on as always.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import math

from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Scaled
from tf_compat_lossscale.checkpoint.files.values import Source
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.files.values import Stored
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.checkpoint.layouts import keras_slots
from tf_compat_lossscale.checkpoint.layouts import matching
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.match import Match
from tf_compat_lossscale.checkpoint.layouts.match import Wishes
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_counter
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_scale

_SAME = "the slot that Keras's optimizer calls {}"
_SUM = "Keras's sum of steps, divided by the learning rate {:g} and negated"
_POWER = "computed from the steps and {} of Keras's optimizer"
_STEPS = "the steps of Keras's optimizer"
_SCALE = "of Keras 3's loss scale"
_NO_MOMENTUM = "Keras's optimizer has no momentum"


def match_names(
  here: Inventory,
  sources: Sources,
  bundle: Bundle,
  wishes: Wishes,
) -> Match:
  """Finds the source of every variable's value in any checkpoint.

  Args:
    here: The variables to restore.
    sources: Name -> tensor, of the checkpoint. Names are added.
    bundle: The checkpoint.
    wishes: What the caller decided.

  Returns:
    The sources, and the variables to initialize.

  Raises:
    CheckpointError, ValueError: As `matching.match_variables` does; or a slot
      depends on the learning rate, which nothing tells.
  """
  proofs: dict[str, str] = {}
  if OBJECT_GRAPH in bundle.specs:
    naming = _Naming(sources, bundle, here, wishes)
    naming.add_all()
    proofs = naming.proofs
    wishes = dataclasses.replace(
      wishes,
      excused={**naming.initial, **wishes.excused},
      # The caller may have mapped a slot to the name that it has in Keras,
      # whose value is another.
      mapping={n: n if n in proofs else k for n, k in wishes.mapping.items()},
    )
  there = Inventory(
    {name: source.spec for name, source in sources.items()},
    lambda: evidence.find_evidence(bundle),
  )
  match = matching.match_variables(here, there, sources, bundle.prefix, wishes)
  match.proofs.update({n: p for n, p in proofs.items() if n in match.sources})
  return match


class _Naming:
  """The naming of the slots that Keras's optimizers have in one checkpoint.

  Attributes:
    proofs: Name that was added -> how its value was found.
    initial: Variable of the program -> why it starts from its initial value.
  """

  def __init__(
    self, sources: Sources, bundle: Bundle, here: Inventory, wishes: Wishes
  ) -> None:
    """Takes the arguments of `match_names`."""
    self._sources, self._bundle, self._here = sources, bundle, here
    self._rate = wishes.learning_rate
    self._graph = ObjectGraph.read(bundle)
    self._optimizers = list(keras_slots.find_keras_optimizers(self._graph))
    if self._optimizers and not here.has_evidence:
      here.gather_evidence()
    self._wanted = {
      name: tensor
      for name, tensor in here.tensors.items()
      if name not in wishes.excused
      and wishes.mapping.get(name, name) is not None
    }
    self._named = keras_slots.NamedSlots(here)
    self._powers = [n for n, t in self._wanted.items() if names.is_power(n, t)]
    # Name there -> names here. Slots of a variable go with it.
    self._by_key = names.group(
      here.tensors, lambda name: wishes.mapping.get(name, name)
    )
    self.proofs: dict[str, str] = {}
    self.initial: dict[str, str] = {}

  def add_all(self) -> None:
    """Adds the names that a program of TensorFlow 1 has for Keras's slots."""
    # A wrapper has the slots of the optimizer that it wraps.
    found = {
      optimizer.slots[0].number: optimizer
      for optimizer in self._optimizers
      if optimizer.kind and optimizer.slots
    }
    for optimizer in found.values():
      self._add_optimizer(optimizer, is_only=len(found) == 1)
    counters = {
      optimizer.iterations
      for optimizer in self._optimizers
      if "inner_optimizer" not in optimizer.children
    }
    if len(counters) == 1:
      self._add_global_step(*counters)
    if self._optimizers:
      self._add_scale_of_keras_3()

  def _add_optimizer(
    self, optimizer: keras_slots.KerasOptimizer, is_only: bool
  ) -> None:
    """Adds the names of an optimizer's slots and powers.

    Args:
      optimizer: The optimizer.
      is_only: Whether the checkpoint has no other.
    """
    weights: dict[str, keras_slots.FoundSlots] = {}
    for slot in optimizer.slots:
      source = self._get(slot.number)
      weight = self._graph.find_value(slot.weight)
      if source is None or weight is None:
        continue
      for name in self._by_key.get(weight.full_name, ()):
        roles = weights.setdefault(name, self._named.find(name, optimizer.kind))
        new = roles.roles.get(slot.role)
        if new is not None:
          self._add_slot(new, source, slot.role, optimizer, roles)
    for found in weights.values():
      momentum = found.roles.get("momentum")
      if momentum in self._wanted and momentum not in self._sources:
        self.initial[str(momentum)] = _NO_MOMENTUM
    if any(found.roles for found in weights.values()):
      self._add_powers(optimizer, weights, is_only)

  def _add_global_step(self, counter: int) -> None:
    """Adds the global step: the steps of the only optimizer."""
    steps = self._get(counter)
    for name, tensor in self._wanted.items():
      is_step = names.split_scope(name)[1] == "global_step"
      if steps is not None and is_step and not steps.spec.shape:
        self._add(name, convert_counter(steps, tensor), _STEPS)

  def _add_scale_of_keras_3(self) -> None:
    """Adds the names of the program's only loss scale, if Keras 3 has one."""
    found = [
      [self._get(node.children.get(name)) for name in names.KERAS_3]
      for node in self._graph.nodes
      if names.KERAS_3_SCALE in node.children
    ]
    scales = self._here.scales.known
    if len(found) != 1 or len(scales) != 1 or None in found[0]:
      return
    tensors = names.SCALE_TENSORS[names.COMPAT]
    given = {
      name: convert_counter(source, tensor)
      for (name, tensor), source in zip(tensors.items(), found[0])
      if source is not None
    }
    scale = names.ScaleNames(names.COMPAT, "", tuple(tensors))
    sources = convert_scale(given, scale, scales[0].api)
    for name, new in zip(scales[0].names, sources):
      self._add(name, new, _SCALE)

  def _get(self, number: int | None) -> Stored | None:
    """Returns the tensor of a variable of the object graph, or None."""
    value = None if number is None else self._graph.find_value(number)
    if value is None or value.key not in self._bundle.specs:
      return None
    return Stored(self._bundle, value.key)

  def _add(self, name: str, source: Source, proof: str) -> None:
    """Adds a name, if the program wants it and the checkpoint lacks it."""
    if name in self._wanted and name not in self._sources:
      self._sources[name] = source
      self.proofs[name] = proof

  def _add_slot(
    self,
    name: str,
    source: Stored,
    role: str,
    optimizer: keras_slots.KerasOptimizer,
    found: keras_slots.FoundSlots,
  ) -> None:
    """Adds the name of a slot."""
    if optimizer.kind != "Momentum":
      self._add(name, source, _SAME.format(role))
      return
    if name not in self._wanted or name in self._sources:
      return
    rate = self._find_rate(optimizer, found)
    if rate is None:
      raise CheckpointError(
        f"{self._bundle.prefix}: nothing tells the learning rate, by which "
        f"{name} ({source.name} in it) must be divided: give learning_rate to "
        "checkpoint.restore, or --learning-rate to tf-lossscale convert"
      )
    if source.spec.dtype not in ("float16", "float32", "float64"):
      raise CheckpointError(
        f"{self._bundle.prefix}: {source.name} is {source.spec}, which cannot "
        "be divided by a learning rate"
      )
    scaled = Scaled(source.bundle, source.name, -1 / rate)
    self._add(name, scaled, _SUM.format(rate))

  def _find_rate(
    self,
    optimizer: keras_slots.KerasOptimizer,
    found: keras_slots.FoundSlots,
  ) -> float | None:
    """Returns the positive rate with which training goes on, or None."""
    if self._rate is not None:
      return self._rate
    rate = keras_slots.find_rate(found.rates, self._sources)
    if rate is None and (source := self._get(optimizer.last_rate)):
      rate = source.read_scalar()
      decay = self._get(optimizer.children.get("decay"))
      steps = self._get(optimizer.iterations)
      if decay and steps:
        divisor = 1 + decay.read_scalar() * steps.read_scalar()
        rate = rate / divisor if divisor > 0 else None
    return rate if rate and 0 < rate < math.inf else None

  def _add_powers(
    self,
    optimizer: keras_slots.KerasOptimizer,
    weights: Mapping[str, keras_slots.FoundSlots],
    is_only: bool,
  ) -> None:
    """Adds the powers of an optimizer."""
    steps = self._get(optimizer.iterations)
    if steps is None or steps.spec.shape:
      return
    for name in self._find_powers(weights, is_only):
      child = f"beta_{names.get_base(name)[4]}"
      found = self._get(optimizer.children.get(child))
      if found is not None and not found.spec.shape:
        beta: float | None = found.read_scalar()
      else:  # Newer optimizers do not save it.
        beta = self._here.find_initial(name)
      count = steps.read_scalar()
      if beta is not None and 0 < beta < 1 and count >= 0:
        tensor = self._wanted[name]
        value = beta ** (int(count) + 1)
        source = Literal(tensor.dtype, value, origin=steps.name)
        self._add(name, source, _POWER.format(child))

  def _find_powers(
    self, weights: Mapping[str, keras_slots.FoundSlots], is_only: bool
  ) -> Iterator[str]:
    """Yields the powers of the program that update weights."""
    for name in self._powers:
      served = self._here.get_served(name)
      if served & weights.keys() if served else is_only:
        yield name
