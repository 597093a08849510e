# SPDX-License-Identifier: Apache-2.0
"""The rule of `GrowthBackoff` in plain Python, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import functools
from typing import Any
from typing import ClassVar
from typing import Final
from typing import Literal
from typing import NamedTuple
from typing import TypeAlias
from typing import TypedDict

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale.policies import checks
from tf_compat_lossscale.policies import float32

# What may set a count back to 0: the scale grows, falls, or a step is finite.
GROWTH: Final = "growth"
BACKOFF: Final = "backoff"
FINITE: Final = "finite"
STAY: Final = "stay"
RAISE: Final = "raise"
Change: TypeAlias = Literal["growth", "backoff"]
Event: TypeAlias = Literal["growth", "backoff", "finite"]
AtMinimum: TypeAlias = Literal["stay", "raise"]


class Changes(TypedDict, total=False):
  """Arguments of a system's rule, for type checkers; see `find_rule`."""

  initial_loss_scale: float
  growth_factor: float
  backoff_factor: float
  growth_interval: int
  min_loss_scale: float | None
  max_loss_scale: float | None
  hysteresis: int
  refill: Iterable[Event] | Event
  overflow_tolerance: float
  at_minimum: AtMinimum
  overflow_reset: Iterable[Change] | Change
  good_steps_after_growth: int
  consecutive_hysteresis: bool


class MinimumReachedError(FloatingPointError):
  """A step is not finite, and the loss scale is already at its minimum.

  Attributes:
    scales: The loss scales after each of the steps before.
  """

  def __init__(self, message: str, scales: Iterable[float] = ()) -> None:
    """Creates the error with the scales that the rule had so far."""
    super().__init__(message)
    self.scales = list(scales)


class State(NamedTuple):
  """The state of a `GrowthBackoff`: its weights, by their names.

  Attributes:
    current_loss_scale: The loss scale, a number of float32.
    good_steps: The consecutive finite steps since the last step that was not
      finite, or since the end of the last growth interval.
    spent_hysteresis: The steps that were not finite since the hysteresis was
      filled. If finite steps fill it, they do so at the next step that is not
      finite.
    overflows: The steps that were not finite since `overflow_reset`. They are
      counted if the rule has a tolerance.
    steps_to_overflow: The steps from the last change of the scale up to the
      last step that was not finite. They are counted if the rule has a
      tolerance.
    skipped_steps: All steps of the run that were not finite.
  """

  current_loss_scale: float
  good_steps: int = 0
  spent_hysteresis: int = 0
  overflows: int = 0
  steps_to_overflow: int = 0
  skipped_steps: int = 0


@dataclasses.dataclass(frozen=True)
class GrowthBackoffRule(checks.CheckedRule):
  """A loss scale that grows by one factor and falls by another.

  The rule, with the state's names shortened; `round` rounds to float32:

  ```
  if all gradients are finite:
    if good_steps + 1 >= growth_interval:
      if round(scale * growth_factor) is finite:
        scale = min(round(scale * growth_factor), max_loss_scale)
      good_steps = good_steps_after_growth
      steps_to_overflow = 0
      spent = 0 if "growth" or "finite" in refill
      overflows = 0 if "growth" in overflow_reset
    else:
      good_steps += 1
  else:
    if "finite" in refill and good_steps > 0:
      spent = 0
    spent += 1
    overflows += 1
    skipped_steps += 1
    steps_to_overflow += good_steps + 1
    good_steps = 0
    if spent >= hysteresis
        and overflows / steps_to_overflow >= overflow_tolerance:
      if scale is at its minimum and at_minimum == "raise":
        fail, and change nothing
      if round(scale * backoff_factor) is a normal number:
        scale = max(round(scale * backoff_factor), min_loss_scale)
      steps_to_overflow = 0
      spent = 0 if "backoff" in refill
      overflows = 0 if "backoff" in overflow_reset
  ```

  With a hysteresis of 1, `spent` is not counted; with a tolerance of 0,
  `overflows` and `steps_to_overflow` are not.

  `GrowthBackoff` documents the arguments.
  """

  initial_loss_scale: float = 2.0**15
  growth_factor: float = 2.0
  backoff_factor: float = 0.5
  growth_interval: int = 2000
  min_loss_scale: float | None = 1.0
  max_loss_scale: float | None = None
  hysteresis: int = 1
  refill: Iterable[Event] | Event = (GROWTH,)
  overflow_tolerance: float = 0.0
  at_minimum: AtMinimum = STAY
  overflow_reset: Iterable[Change] | Change = (GROWTH, BACKOFF)
  good_steps_after_growth: int = 0

  _CHECKS: ClassVar = {
    "initial_loss_scale": checks.check_scale,
    "growth_factor": arguments.check_growth,
    "backoff_factor": arguments.check_backoff,
    "growth_interval": arguments.check_steps,
    "hysteresis": arguments.check_steps,
    "refill": functools.partial(
      checks.check_events, allowed=(GROWTH, BACKOFF, FINITE)
    ),
    "overflow_tolerance": arguments.check_share,
    "overflow_reset": functools.partial(
      checks.check_events, allowed=(GROWTH, BACKOFF)
    ),
    "good_steps_after_growth": functools.partial(
      arguments.check_steps, at_least=0
    ),
    "min_loss_scale": checks.check_bound,
    "max_loss_scale": checks.check_bound,
    "at_minimum": functools.partial(
      arguments.check_word, allowed=(STAY, RAISE)
    ),
  }

  def __post_init__(self) -> None:
    """Checks the arguments.

    Raises:
      ValueError: An argument makes no sense; the message names the argument.
    """
    super().__post_init__()
    if self.good_steps_after_growth >= self.growth_interval:
      raise ValueError(
        "good_steps_after_growth must be below "
        f"growth_interval={self.growth_interval}, but got "
        f"{self.good_steps_after_growth}."
      )

  @property
  def counts_hysteresis(self) -> bool:
    """Whether one step that is not finite may leave the scale as it is."""
    return self.hysteresis > 1

  @property
  def counts_overflows(self) -> bool:
    """Whether the share of steps that are not finite matters."""
    return self.overflow_tolerance > 0

  def start(self) -> State:
    """Returns the state of a new run."""
    return State(self.clip(float32.round_nearest(self.initial_loss_scale)))

  def step(self, state: State, finite: bool) -> State:
    """Returns the state after a step.

    Args:
      state: The state before the step.
      finite: Whether all gradients of the step are finite.

    Raises:
      MinimumReachedError: The step is not finite, the scale would have to fall
        below its minimum, and `at_minimum` is "raise".
    """
    scale = self.clip(state.current_loss_scale)
    if finite:
      if state.good_steps + 1 < self.growth_interval:
        return state._replace(good_steps=state.good_steps + 1)
      grown = self._multiply(scale, self.growth_factor)
      events = {GROWTH, FINITE}
      return self._reset(state, events)._replace(
        current_loss_scale=grown, good_steps=self.good_steps_after_growth
      )
    state = self._count(state)
    if not self._is_due(state):
      return state
    if self.at_minimum == RAISE and self._is_at_minimum(scale):
      raise MinimumReachedError(
        f"The loss scale is at its minimum, {scale:g}, and the gradients of "
        f"this step are not finite. Steps skipped so far: "
        f"{state.skipped_steps}."
      )
    lower = self._multiply(scale, self.backoff_factor)
    return self._reset(state, {BACKOFF})._replace(current_loss_scale=lower)

  def simulate(self, finite: Iterable[bool]) -> list[float]:
    """Returns the loss scale after each step of a run.

    The run starts from the arguments of the policy.

    Args:
      finite: For each step, whether all of its gradients are finite: a bool, or
        0 or 1.

    Returns:
      The scales, numbers of float32.

    Raises:
      ValueError: An item of `finite` is neither.
      MinimumReachedError: The run would end there; its `scales` are those of
        the steps before.
    """
    state = self.start()
    scales: list[float] = []
    for flag in finite:
      try:
        state = self.step(state, checks.check_flag(flag))
      except MinimumReachedError as error:
        error.scales = scales
        raise
      scales.append(state.current_loss_scale)
    return scales

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments, as plain Python numbers, strings and lists."""
    config = dataclasses.asdict(self)
    return {
      name: list(value) if isinstance(value, tuple) else value
      for name, value in config.items()
    }

  def _multiply(self, scale: float, factor: float) -> float:
    """Returns the clipped product, or `scale` if float32 has no such number."""
    product = scale * factor
    if product >= float32.SMALLEST:
      rounded = float32.round_nearest(product)
      scale = rounded if rounded != float("inf") else scale
    return self.clip(scale)

  def _is_at_minimum(self, scale: float) -> bool:
    """Returns whether the scale cannot fall."""
    if self.lowest is not None and scale <= self.lowest:
      return True
    return scale * self.backoff_factor < float32.SMALLEST

  def _count(self, state: State) -> State:
    """Returns the state with one more step that is not finite."""
    spent, overflows, steps = (
      state.spent_hysteresis,
      state.overflows,
      state.steps_to_overflow,
    )
    if self.counts_hysteresis:
      filled = FINITE in self.refill and state.good_steps > 0
      spent = 1 if filled else spent + 1
    if self.counts_overflows:
      overflows, steps = overflows + 1, steps + state.good_steps + 1
    return State(
      state.current_loss_scale,
      good_steps=0,
      spent_hysteresis=spent,
      overflows=overflows,
      steps_to_overflow=steps,
      skipped_steps=state.skipped_steps + 1,
    )

  def _is_due(self, state: State) -> bool:
    """Returns whether the scale falls at a step that is not finite."""
    if self.counts_hysteresis and state.spent_hysteresis < self.hysteresis:
      return False
    if not self.counts_overflows:
      return True
    share = state.overflows / state.steps_to_overflow
    return share >= self.overflow_tolerance

  def _reset(self, state: State, events: set[str]) -> State:
    """Returns the state with the counts at 0 that events set back."""
    changes = {}
    if self.counts_hysteresis and not events.isdisjoint(self.refill):
      changes["spent_hysteresis"] = 0
    if self.counts_overflows:
      changes["steps_to_overflow"] = 0
      if not events.isdisjoint(self.overflow_reset):
        changes["overflows"] = 0
    return state._replace(**changes)
