# SPDX-License-Identifier: Apache-2.0
"""A loss scale with another rule than that of `DynamicLossScale`."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import functools
from typing import Any
from typing import Literal
from typing import TypeAlias

from absl import logging
import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale._core.tf import control_flow

__all__ = ["GrowthBackoff"]
__dir__ = functools.partial(sorted, __all__)


# What may set a count back to 0: the scale grows, falls, or a step is finite.
Change: TypeAlias = Literal["growth", "backoff"]
Event: TypeAlias = Literal["growth", "backoff", "finite"]
AtMinimum: TypeAlias = Literal["stay", "raise"]

_CHANGES = ("growth", "backoff")
_EVENTS = (*_CHANGES, "finite")
# Float32's smallest normal number. Processors may round smaller numbers to 0.
_SMALLEST = 2.0**-126
_NOT_FOR_XLA = "at_minimum_raise_was_traced_outside_of_jit_compile"


class GrowthBackoff(loss_scale_lib.LossScale):
  """A loss scale that grows by one factor and falls by another.

  With the default arguments, the rule is that of `DynamicLossScale`. The whole
  rule, with the state's names shortened; `round` rounds to float32:

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

  The state is six scalar variables in each graph: `current_loss_scale`
  (float32), and the counts `good_steps`, `spent_hysteresis`, `overflows`,
  `steps_to_overflow` and `skipped_steps` (int64). Checkpoints hold all of them
  whatever the arguments are, so that a run may go on with other arguments.
  """

  _is_unread = True

  def __init__(
    self,
    initial_loss_scale: float = 2**15,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    min_loss_scale: float | None = 1.0,
    max_loss_scale: float | None = None,
    hysteresis: int = 1,
    refill: Iterable[Event] | Event = ("growth",),
    overflow_tolerance: float = 0.0,
    at_minimum: AtMinimum = "stay",
    overflow_reset: Iterable[Change] | Change = ("growth", "backoff"),
    good_steps_after_growth: int = 0,
  ) -> None:
    """Creates a loss scale, and its variables in the current graph.

    Args:
      initial_loss_scale: The first scale, within the bounds below.
      growth_factor: The factor by which the scale grows; above 1.
      backoff_factor: The factor by which the scale falls; between 0 and 1.
      growth_interval: The number of consecutive finite steps after which the
        scale grows; whole, at least 1.
      min_loss_scale: The scale never falls below this number, at least 2**-126.
        None is no minimum: the scale falls as long as it is a normal number of
        float32.
      max_loss_scale: The scale never grows above this number. None is no
        maximum: the scale grows as long as it is finite in float32.
      hysteresis: The number of steps that are not finite before the scale
        falls; whole, at least 1.
      refill: What fills the hysteresis again: "growth" (the end of a growth
        interval), "backoff" (a fall of the scale), "finite" (any finite step).
      overflow_tolerance: The scale falls only if the share of steps that are
        not finite, since the scale last changed, is at least this number; from
        0 to 1.
      at_minimum: "stay" or "raise": what happens if the scale would fall below
        its minimum. "raise" makes the step fail with an `InvalidArgumentError`
        that names the scale, the number of skipped steps and the gradients
        that are not finite. The state stays as it was. Grappler's
        `debug_stripper` removes the check, as all checks of a graph. Code that
        XLA compiles cannot raise errors: there, "raise" is "stay", and a
        warning says so when the function is traced.
      overflow_reset: What sets the number of steps that are not finite back to
        0, for `overflow_tolerance`: "growth", "backoff".
      good_steps_after_growth: The number of good steps that are counted already
        when the scale has grown; whole, below `growth_interval`. So the first
        interval after a fall is longer than the next ones.

    Raises:
      ValueError: An argument is none of these; the message names it.
    """
    self._initial = _check_scale("initial_loss_scale", initial_loss_scale)
    self._growth = arguments.check_growth("growth_factor", growth_factor)
    self._backoff = arguments.check_backoff("backoff_factor", backoff_factor)
    self._interval = arguments.check_steps("growth_interval", growth_interval)
    self._hysteresis = arguments.check_steps("hysteresis", hysteresis)
    self._refill = _check_events("refill", refill, _EVENTS)
    self._tolerance = arguments.check_share(
      "overflow_tolerance", overflow_tolerance
    )
    self._reset = _check_events("overflow_reset", overflow_reset, _CHANGES)
    self._good_after = arguments.check_steps(
      "good_steps_after_growth", good_steps_after_growth, at_least=0
    )
    self._min = self._max = None
    if min_loss_scale is not None:
      self._min = _check_scale("min_loss_scale", min_loss_scale)
    if max_loss_scale is not None:
      self._max = _check_scale("max_loss_scale", max_loss_scale)
    self._at_minimum = arguments.check_word(
      "at_minimum", at_minimum, ("stay", "raise")
    )
    # The bounds, as the nearest numbers of float32 that are within them.
    self._lowest = _round(self._min, np.inf)
    self._highest = _round(self._max, -np.inf)
    self._check_bounds()
    if self._good_after >= self._interval:
      raise ValueError(
        f"good_steps_after_growth must be below growth_interval="
        f"{self._interval}, but got {self._good_after}."
      )
    self._has_warned = False
    super().__init__()
    first = max(float(np.float32(self._initial)), self._lowest or 0.0)
    first = min(first, self._highest or first)
    self._add_weight("current_loss_scale", first, tf.float32)
    self._add_weight("good_steps", 0, tf.int64)
    self._add_weight("spent_hysteresis", 0, tf.int64)
    self._add_weight("overflows", 0, tf.int64)
    self._add_weight("steps_to_overflow", 0, tf.int64)
    self._add_weight("skipped_steps", 0, tf.int64)

  def _check_bounds(self) -> None:
    """Checks that the first scale is within bounds that float32 can tell."""
    first, least, most = self._initial, self._min, self._max
    if (self._lowest or 0.0) > (self._highest or np.inf):
      raise ValueError(
        "float32 must have a number from min_loss_scale to max_loss_scale, but "
        f"got {least!r} and {most!r}."
      )
    if least is not None and first < least:
      raise ValueError(
        f"initial_loss_scale must be at least min_loss_scale={least:g}, but "
        f"got {first:g}."
      )
    if most is not None and first > most:
      raise ValueError(
        f"initial_loss_scale must be at most max_loss_scale={most:g}, but got "
        f"{first:g}."
      )

  @property
  def initial_loss_scale(self) -> float:
    """The scale from which a new graph starts."""
    return self._initial

  @property
  def growth_interval(self) -> int:
    """The number of consecutive finite steps after which the scale grows."""
    return self._interval

  @property
  def current_loss_scale(self) -> tf.Variable:
    """The current graph's loss scale, a float32 scalar variable."""
    return self._get_weight("current_loss_scale")

  @property
  def good_steps(self) -> tf.Variable:
    """The current graph's count of good steps, an int64 scalar variable."""
    return self._get_weight("good_steps")

  @property
  def skipped_steps(self) -> tf.Variable:
    """The steps that were not finite so far, an int64 scalar variable."""
    return self._get_weight("skipped_steps")

  def __call__(self) -> tf.Tensor:
    """Returns the current loss scale, a float32 scalar tensor.

    A scale that other arguments left outside of the bounds counts as the
    nearest bound.
    """
    return self._clip(self._read("current_loss_scale"))

  def update(self, grads: Any) -> tuple[tf.Tensor | None, tf.Tensor]:
    """Applies the rule, once for all replicas.

    Args:
      grads: A nest of unscaled gradients. If a gradient of any replica is not
        finite, the step is not finite for every replica.

    Returns:
      A pair: a tensor that depends on the update (None when eager), and a bool
      scalar, True if all gradients are finite.

    Raises:
      InvalidArgumentError: As `at_minimum` says; in graphs, when they run.
      ValueError: In a replica context of a `tf.distribute` strategy.
    """
    if self._at_minimum == "raise":
      finite, name_faults = gradients.name_faults(grads)
    else:
      finite, name_faults = gradients.all_replicas_finite(grads), None
    update = loss_scale_lib.count_step(
      finite,
      self.good_steps,
      self._interval,
      self.current_loss_scale,
      functools.partial(self._end_run, name_faults),
    )
    return update, finite

  def _end_run(
    self,
    name_faults: Callable[[], tf.Tensor] | None,
    finite: tf.Tensor,
    scale: tf.Tensor,
  ) -> tf.Operation | None:
    """Sets the counts, then makes the scale grow or fall.

    `name_faults` is None if the step may not fail.
    """
    clipped = self._clip(scale)
    due, counts = self._count(finite)
    grown = self._clip(loss_scale_lib.grow(clipped, self._growth, tf.float64))
    lower, is_lowest = self._back_off(clipped)
    fallen = lower if due is None else tf.where(due, lower, scale)
    new_scale = tf.where(finite, grown, fallen)
    before = [new_scale, *counts.values()]
    if name_faults is not None and not self._is_for_xla():
      fails = ~finite & is_lowest
      fails = fails if due is None else fails & due
      before.append(
        control_flow.cond(
          fails,
          lambda: _fail(clipped, self._read("skipped_steps") + 1, name_faults),
          tf.no_op,
        )
      )
    with tf.control_dependencies([x for x in before if x is not None]):
      good = tf.constant(self._good_after, tf.int64)
      if self._good_after:
        good = tf.where(finite, good, tf.zeros_like(good))
      skipped = tf.cast(~finite, tf.int64)
      assigned = [
        self.good_steps.assign(good),
        # An assignment would lose the steps that other threads count meanwhile.
        self.skipped_steps.assign_add(skipped, read_value=False),
        *(self._get_weight(name).assign(x) for name, x in counts.items()),
      ]
    with tf.control_dependencies([tf.group(assigned)]):
      return tf.group(self.current_loss_scale.assign(new_scale))

  def _count(
    self, finite: tf.Tensor
  ) -> tuple[tf.Tensor | None, dict[str, tf.Tensor]]:
    """Returns whether the scale falls if `finite` is False, and new counts.

    The first item is None if the scale always falls.
    """
    good = self._read("good_steps")
    due, counts = None, {}
    zero = tf.constant(0, tf.int64)

    def choose(name: str, counted: tf.Tensor, resets: Iterable[str]) -> None:
      """Chooses the value after growth, after a wait or after a fall."""
      old = self._read(name)
      grown = zero if {"growth", "finite"} & {*resets} else old
      fallen = tf.where(due, zero, counted) if "backoff" in resets else counted
      counts[name] = tf.where(finite, grown, fallen)

    if self._hysteresis > 1:
      spent = self._read("spent_hysteresis")
      if "finite" in self._refill:
        spent = tf.where(good > 0, zero, spent)
      spent += 1
      due = spent >= self._hysteresis
    if self._tolerance > 0:
      overflows = self._read("overflows") + 1
      steps = self._read("steps_to_overflow") + good + 1
      share = tf.cast(overflows, tf.float64) / tf.cast(steps, tf.float64)
      tolerated = share < self._tolerance
      due = ~tolerated if due is None else due & ~tolerated
      choose("overflows", overflows, self._reset)
      choose("steps_to_overflow", steps, ("growth", "backoff"))
    if self._hysteresis > 1:
      choose("spent_hysteresis", spent, self._refill)
    return due, counts

  def _back_off(self, scale: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the scale after a fall, and whether it cannot fall."""
    wide = tf.cast(scale, tf.float64)
    product = wide * self._backoff
    is_lowest = product < _SMALLEST
    lower = self._clip(tf.cast(tf.where(is_lowest, wide, product), tf.float32))
    if self._lowest is not None:
      is_lowest |= scale <= self._lowest
    return lower, is_lowest

  def _read(self, name: str) -> tf.Tensor:
    return tf.convert_to_tensor(self._get_weight(name))

  def _clip(self, scale: tf.Tensor) -> tf.Tensor:
    """Returns a scale within the bounds.

    In float32, the graph rewrite may compute this in float16, where 65536 is an
    infinity.
    """
    wide = tf.cast(scale, tf.float64)
    if self._lowest is not None:
      wide = tf.maximum(wide, self._lowest)
    if self._highest is not None:
      wide = tf.minimum(wide, self._highest)
    return tf.cast(wide, tf.float32)

  def _is_for_xla(self) -> bool:
    """Returns whether XLA compiles this update, and warns once if it does."""
    is_for_xla = control_flow.is_for_xla()
    if is_for_xla and not self._has_warned:
      self._has_warned = True
      logging.warning(
        '%s: at_minimum="raise" is "stay" in this function, because XLA '
        "compiles it (jit_compile=True), and code of XLA cannot raise errors. "
        "At its minimum, the loss scale stays there, and steps whose gradients "
        "are not finite are skipped: look at skipped_steps.",
        self,
      )
    return is_for_xla

  def get_config(self) -> dict[str, Any]:
    return {
      "initial_loss_scale": self._initial,
      "growth_factor": self._growth,
      "backoff_factor": self._backoff,
      "growth_interval": self._interval,
      "min_loss_scale": self._min,
      "max_loss_scale": self._max,
      "hysteresis": self._hysteresis,
      "refill": [*self._refill],
      "overflow_tolerance": self._tolerance,
      "at_minimum": self._at_minimum,
      "overflow_reset": [*self._reset],
      "good_steps_after_growth": self._good_after,
    }

  def __repr__(self) -> str:
    now = ""
    if tf.executing_eagerly() and self._tracked_weights:
      now = f"current_loss_scale={self.current_loss_scale.numpy()}, "
    given = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
    return f"{type(self).__name__}({now}{given})"


def _fail(
  scale: tf.Tensor, skipped: tf.Tensor, name_faults: Callable[[], tf.Tensor]
) -> Any:
  """Makes the step fail with an error that names the gradients at fault.

  XLA cannot compile the message. The function may be called by another one that
  XLA compiles, and then XLA's error has the name of this scope.
  """
  with tf.name_scope(f"{control_flow.NAME_SCOPE}/{_NOT_FOR_XLA}"):
    message = tf.strings.join(
      [
        "The loss scale is at its minimum, ",
        tf.strings.as_string(scale, shortest=True),
        ", and the gradients of this step are not finite. Steps skipped so "
        "far: ",
        tf.strings.as_string(skipped),
        ". Gradients at fault: ",
        tf.strings.reduce_join(name_faults(), separator=", "),
        ". Lower the learning rate, clip the gradients, or choose a lower "
        "min_loss_scale.",
      ]
    )
    return tf.debugging.Assert(tf.constant(False), [message])


def _check_scale(name: str, value: Any) -> float:
  """Checks a loss scale: at least 2**-126, and finite in float32."""
  number = arguments.check_scale(name, value, at_least_1=False)
  if np.float32(number) < _SMALLEST:
    raise ValueError(
      f"{name} must be at least 2**-126, float32's smallest normal number, but "
      f"got {value!r}."
    )
  return number


def _check_events(
  name: str, value: Any, allowed: tuple[str, ...]
) -> tuple[str, ...]:
  """Checks names of events, in any collection; one name may stand alone."""
  try:
    given = {value} if isinstance(value, str) else set(value)
  except TypeError:
    given = {None}
  if not given <= {*allowed}:
    wrong = (wrong_values.suggest(x, allowed) for x in given - {*allowed})
    raise ValueError(
      f"{name} must hold some of {', '.join(map(repr, allowed))}, but got "
      f"{value!r}{next(filter(None, wrong), '')}."
    )
  return tuple(event for event in allowed if event in given)


def _round(bound: float | None, toward: float) -> float | None:
  """Returns a bound's nearest number of float32 on the side of `toward`."""
  if bound is None:
    return None
  nearest = np.float32(bound)
  if (float(nearest) - bound) * toward < 0:
    nearest = np.nextafter(nearest, np.float32(toward))
  return float(nearest)
