# SPDX-License-Identifier: Apache-2.0
"""What a training step did: the state of training, and what gradients held."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.monitoring.rows import Blame
from tf_compat_lossscale.monitoring.rows import Underflow

# The most gradients that a line of a log lists for underflow.
_MOST_GRADIENTS = 20
# The smallest number that float16 holds with all its bits.
SMALLEST_NORMAL = 2.0**-14
# Below this number, float16 has at most five bits.
_FADING = 2.0**-19
# Averages of float16 gradients may be below 2**-24, but not below this.
_WIDER = 2.0**-30


class State(NamedTuple):
  """The state of training: tensors in a graph, else numbers.

  Attributes:
    scale: The loss scale.
    good_steps: The good steps, or None.
    global_step: The global step, or None.
    skipped_steps: The steps skipped so far, which policies count, or None.
  """

  scale: Any
  good_steps: Any = None
  global_step: Any = None
  skipped_steps: Any = None

  @classmethod
  def decode(cls, values: Iterable[float]) -> State:
    """Returns the state of float64 numbers; NaN stands for no count."""
    scale, *counts = values
    return cls(scale, *[None if math.isnan(x) else int(x) for x in counts])


class Contents(NamedTuple):
  """What a gradient held, over all replicas.

  Attributes:
    name: The name of the gradient's variable.
    inf: The number of infinite elements.
    nan: The number of elements that are NaN.
    zeros: The number of elements that are 0.
    size: The number of elements. Of a `tf.IndexedSlices`, its values count.
    largest: The largest finite magnitude; 0 if there is no finite element.
    typical: The geometric mean of the finite magnitudes that are not 0; 0 if
      there is none.
    smallest: The smallest of these magnitudes; 0 if there is none.
  """

  name: str
  inf: int
  nan: int
  zeros: int
  size: int
  largest: float
  typical: float = 0.0
  smallest: float = 0.0


class Step(NamedTuple):
  """What is known of an attempted step.

  Attributes:
    applied: Whether the gradients were applied.
    after: The state of training after the step.
    before: The state before the step; None if it is not known.
    number: The number of the step among those of its optimizer, or 0.
    skipped: How many of these were skipped so far, this step included, or 0.
    given: The contents of each gradient as `apply_gradients` got it; none if
      they were not looked at.
    computed: The contents of each gradient as `compute_gradients` returned it,
      for those that the program changed since; none if they were not looked at.
    scaled: The contents of each gradient of the scaled loss, for those in half
      precision; none if they were not looked at.
  """

  applied: bool
  after: State
  before: State | None = None
  number: int = 0
  skipped: int = 0
  given: Sequence[Contents] = ()
  computed: Sequence[Contents] = ()
  scaled: Sequence[Contents] = ()

  @property
  def total(self) -> int:
    """The number of variables whose gradients were looked at."""
    every = (*self.given, *self.computed, *self.scaled)
    return len({x.name for x in every})

  def find_blame(self) -> tuple[Blame, ...]:
    """Returns the gradients that were not finite.

    A program that clips by the global norm turns all gradients into NaN if one
    is infinite. So the gradients before the program changed them come first.
    """
    for gradients in (self.computed, self.given):
      blame = tuple(
        Blame(x.name, x.inf, x.nan, x.size, x.largest)
        for x in gradients
        if x.inf or x.nan
      )
      if blame:
        return blame
    return ()

  def measure_unscaling(self) -> float:
    """Returns which share of the elements unscaling turns to 0.

    Only gradients in half precision were measured before they were unscaled.

    Returns:
      A share of the elements that are not 0 before.
    """
    after = {x.name: x for x in (*self.given, *self.computed)}
    left = sum(x.size - x.zeros for x in after.values())
    turned = sum(
      max(0, after[x.name].zeros - x.zeros)
      for x in self.scaled
      if x.name in after
    )
    return turned / max(left + turned, 1)

  def find_scaled(self, scale: float) -> list[Contents]:
    """Returns the contents of the gradients of the scaled loss.

    A gradient in half precision was measured before it was unscaled. Of all
    other gradients, the magnitudes are multiplied by the scale.

    Args:
      scale: The loss scale of the step.
    """
    found = {x.name: x for x in self.given}
    found.update((x.name, x) for x in self.computed)
    scaled = {
      name: x._replace(
        largest=x.largest * scale,
        typical=x.typical * scale,
        smallest=x.smallest * scale,
      )
      for name, x in found.items()
    }
    scaled.update((x.name, x) for x in self.scaled)
    return list(scaled.values())


def add_replicas(contents: Iterable[Contents]) -> list[Contents]:
  """Returns the contents of gradients, added up by name over replicas."""
  found: dict[str, Contents] = {}
  for new in contents:
    old = found.get(new.name)
    if old is not None:
      new = Contents(
        new.name,
        old.inf + new.inf,
        old.nan + new.nan,
        old.zeros + new.zeros,
        old.size + new.size,
        max(old.largest, new.largest),
        _mix(old, new),
        min(filter(None, (old.smallest, new.smallest)), default=0.0),
      )
    found[new.name] = new
  return list(found.values())


def _mix(old: Contents, new: Contents) -> float:
  """Returns the geometric mean of the magnitudes of two gradients."""
  pairs = [(x.typical, x.size - x.zeros) for x in (old, new) if x.typical]
  if not pairs:
    return 0.0
  logs = sum(math.log2(typical) * count for typical, count in pairs)
  return 2.0 ** (logs / max(sum(count for _, count in pairs), 1))


def find_lost(scaled: Sequence[Contents]) -> float:
  """Returns the share of elements that became 0 by a scale that is too low.

  The smallest number of float16 is 2**-24. If the scale is too low, the
  elements of a gradient that are not 0 are near that number. So the zeros of
  such a gradient count, but not those of units that are off and of words that
  are absent. The zeros of a gradient that has nothing else count if all other
  gradients are near that number.

  Args:
    scaled: The contents of the gradients of the scaled loss.
  """
  others = [x for x in scaled if x.largest]
  # Smaller numbers than `_WIDER` show that a gradient has a wider format.
  fading = [x for x in others if x.typical < _FADING and x.smallest >= _WIDER]
  lost = sum(x.zeros for x in fading)
  if all(x in fading and x.largest < SMALLEST_NORMAL for x in others):
    lost += sum(x.zeros for x in scaled if not x.largest)
  return lost / max(sum(x.size for x in scaled), 1)


def summarize_underflow(step: Step, scale: float) -> Underflow:
  """Returns how small the scaled gradients of a step were.

  Args:
    step: The step, whose gradients were measured.
    scale: The loss scale of the step.
  """
  scaled = step.find_scaled(scale)
  size = sum(x.size for x in scaled)
  shares = {x.name: (x.zeros / max(x.size, 1), x.largest) for x in scaled}
  ordered = sorted(shares.items(), key=lambda item: -item[1][0])
  return Underflow(
    sum(x.zeros for x in scaled) / max(size, 1),
    max((x.largest for x in scaled), default=0.0),
    dict(ordered[:_MOST_GRADIENTS]),
    find_lost(scaled),
    step.measure_unscaling(),
  )
