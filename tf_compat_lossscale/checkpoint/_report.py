# SPDX-License-Identifier: Apache-2.0
"""Reports the results of restoring and of converting."""

from __future__ import annotations

import dataclasses

from tf_compat_lossscale.checkpoint.reading import escape
from tf_compat_lossscale.checkpoint.reading import shorten
from tf_compat_lossscale.checkpoint.reading import TensorSpec


@dataclasses.dataclass(frozen=True)
class Report:
  """The source of each variable's value.

  Every variable is in exactly one of `restored`, `bridged`, `initialized` and
  `kept`.

  Attributes:
    path: The checkpoint.
    restored: Variable -> the key of the checkpoint that it was restored from,
      found by the variable's own name or object path.
    bridged: Variable -> the key that it was restored from, found otherwise; ""
      if the value is computed.
    initialized: Variable -> why it has its initial value.
    kept: Variable -> why it has the value that it had before.
    unused: The keys of the checkpoint that no variable was restored from.
    proofs: Variable in `bridged` -> how its key was found.
    notes: What could not be taken over as it was, what was computed, and what
      follows, in sentences.
  """

  path: str
  restored: dict[str, str] = dataclasses.field(default_factory=dict)
  bridged: dict[str, str] = dataclasses.field(default_factory=dict)
  initialized: dict[str, str] = dataclasses.field(default_factory=dict)
  kept: dict[str, str] = dataclasses.field(default_factory=dict)
  unused: tuple[str, ...] = ()
  proofs: dict[str, str] = dataclasses.field(default_factory=dict)
  notes: tuple[str, ...] = ()

  def __str__(self) -> str:
    lines = [self._describe_counts()]
    lines += [
      f"  {name} from {key or 'nothing'} ({self.proofs.get(name, 'bridged')})"
      for name, key in self.bridged.items()
    ]
    for what in ("initialized", "kept"):
      lines += [
        f"  {name} {what}: {why}" for name, why in getattr(self, what).items()
      ]
    lines += [f"  {key} unused" for key in self.unused]
    lines += [f"  note: {note}" for note in self.notes]
    return "\n".join(map(escape, lines))

  @property
  def summary(self) -> str:
    """One line: the variables that were not restored by their own name."""
    details = [
      f"{name} from {key}" if key else f"{name} computed"
      for name, key in self.bridged.items()
    ]
    details += [f"{name} initialized" for name in self.initialized]
    details += [f"{name} kept" for name in self.kept]
    listed = f": {', '.join(shorten(details))}" * bool(details)
    noted = "".join(f"; {note}" for note in self.notes)
    return escape(self._describe_counts() + listed + noted)

  def _describe_counts(self) -> str:
    """Returns the path, and the number of variables of each kind."""
    counts = [
      f"{len(getattr(self, what))} {what}"
      for what in ("bridged", "initialized", "kept", "unused")
      if getattr(self, what)
    ]
    return ", ".join([f"{self.path}: {len(self.restored)} restored", *counts])


@dataclasses.dataclass(frozen=True)
class Conversion:
  """The result of a conversion.

  Attributes:
    path: The new checkpoint's prefix.
    renamed: New name -> name in the source, if they differ.
    dropped: The tensors of the source that the layout does not have.
    added: The tensors that the source does not have, with initial values.
    changed: The loss scales and counters that were set.
    notes: What was computed, or could not be known, and what follows.
    reasons: What each dropped tensor is, if only the model's are written.
    unproven: The tensors that were kept, though they may be no model's.
    sizes: The number of bytes of each tensor of the source.
    written: Name of each tensor of the destination -> its dtype and shape.
  """

  path: str
  renamed: dict[str, str]
  dropped: tuple[str, ...]
  added: tuple[str, ...]
  changed: tuple[str, ...]
  notes: tuple[str, ...] = ()
  reasons: dict[str, str] = dataclasses.field(default_factory=dict)
  unproven: tuple[str, ...] = ()
  sizes: dict[str, int] = dataclasses.field(default_factory=dict)
  written: dict[str, TensorSpec] = dataclasses.field(default_factory=dict)

  @property
  def size(self) -> int:
    """The number of bytes of all tensors of the destination."""
    return sum(spec.size for spec in self.written.values())
