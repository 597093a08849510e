# SPDX-License-Identifier: Apache-2.0
"""A loss scale that grows and falls by factors of its own."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import TYPE_CHECKING

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale._core import stepping
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale.policies import base
from tf_compat_lossscale.policies import float32
from tf_compat_lossscale.policies import growth_backoff_rule as rules
from tf_compat_lossscale.policies import systems

if TYPE_CHECKING:
  from typing_extensions import Unpack

_NOT_FOR_XLA = "at_minimum_raise_was_traced_outside_of_jit_compile"


class GrowthBackoff(base.Policy):
  """A loss scale that grows by one factor and falls by another.

  `GrowthBackoffRule` has the whole rule. With the default arguments, it is the
  rule of `DynamicLossScale`.

  The state is six scalar variables in each graph: `current_loss_scale`
  (float32), and the counts `good_steps`, `spent_hysteresis`, `overflows`,
  `steps_to_overflow` and `skipped_steps` (int64). Checkpoints hold all of them
  whatever the arguments are, so that a run may go on with other arguments.
  """

  def __init__(
    self,
    initial_loss_scale: float = 2**15,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    min_loss_scale: float | None = 1.0,
    max_loss_scale: float | None = None,
    hysteresis: int = 1,
    refill: Iterable[rules.Event] | rules.Event = ("growth",),
    overflow_tolerance: float = 0.0,
    at_minimum: rules.AtMinimum = "stay",
    overflow_reset: Iterable[rules.Change] | rules.Change = (
      "growth",
      "backoff",
    ),
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
    self._has_warned = False
    super().__init__(
      rules.GrowthBackoffRule(
        initial_loss_scale,
        growth_factor,
        backoff_factor,
        growth_interval,
        min_loss_scale,
        max_loss_scale,
        hysteresis,
        refill,
        overflow_tolerance,
        at_minimum,
        overflow_reset,
        good_steps_after_growth,
      )
    )

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
    if self._rule.at_minimum == rules.RAISE:
      finite, name_faults = gradients.name_faults(grads)
    else:
      finite, name_faults = gradients.all_replicas_finite(grads), None
    # Name-based checkpoints depend on cond names: see DynamicLossScale.
    with self._lock_if_eager(), tf.name_scope("cond"):
      update = stepping.count_step(
        finite,
        self.good_steps,
        self._rule.growth_interval,
        self.current_loss_scale,
        lambda scale: self._end_run(finite, scale, name_faults),
      )
      return stepping.finish(update, finite)

  def _end_run(
    self,
    finite: tf.Tensor,
    scale: tf.Tensor,
    name_faults: Callable[[], tf.Tensor] | None,
  ) -> tf.Operation | None:
    """Sets the counts, then makes the scale grow or fall.

    Args:
      finite: A bool scalar: whether the step is finite.
      scale: The scale before, a float32 scalar.
      name_faults: Returns the names of the gradients at fault, if the step may
        fail.
    """
    clipped = self._clip(scale)
    due, counts = self._count(finite)
    lower, is_lowest = self._back_off(clipped)
    fallen = lower if due is None else tf.where(due, lower, scale)
    new_scale = tf.where(finite, self._grow(clipped), fallen)
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
      assigned = [
        self.good_steps.assign(self._count_good(finite)),
        self._count_skipped(tf.cast(~finite, tf.int64)),
      ]
      for name, value in counts.items():
        assigned.append(self._get_weight(name).assign(value))
    with tf.control_dependencies([tf.group(assigned)]):
      return tf.group(self.current_loss_scale.assign(new_scale))

  def _is_for_xla(self) -> bool:
    """Returns whether XLA compiles this update, and warns once if it does."""
    is_for_xla = control_flow.is_for_xla()
    if is_for_xla and not self._has_warned:
      self._has_warned = True
      logging.warning(
        '%s: at_minimum="raise" is "stay" in this function, because XLA '
        "compiles it (jit_compile=True), and code of XLA cannot raise errors. "
        "At its minimum, the loss scale stays there, and steps whose gradients "
        "are not finite are skipped. Look at the optimizer's "
        "last_step_applied, and end the run if it stays False.",
        self,
      )
    return is_for_xla

  def _count(
    self, finite: tf.Tensor
  ) -> tuple[tf.Tensor | None, dict[str, tf.Tensor]]:
    """Computes the counts that decide whether the scale falls.

    Args:
      finite: A bool scalar: whether the step is finite.

    Returns:
      A pair: whether the scale falls if the step is not finite (None if it
      always does), and the new values of the counts, by name.
    """
    rule = self._rule
    good = self._read("good_steps")
    due, counts = None, {}
    zero = tf.constant(0, tf.int64)

    def choose(name: str, counted: tf.Tensor, resets: Iterable[str]) -> None:
      """Chooses the value after growth, after a wait or after a fall."""
      old = self._read(name)
      grown = zero if {rules.GROWTH, rules.FINITE} & {*resets} else old
      fallen = counted
      if rules.BACKOFF in resets:
        fallen = tf.where(due, zero, counted)
      counts[name] = tf.where(finite, grown, fallen)

    if rule.counts_hysteresis:
      spent = self._read("spent_hysteresis")
      if rules.FINITE in rule.refill:
        spent = tf.where(good > 0, zero, spent)
      spent += 1
      due = spent >= rule.hysteresis
    if rule.counts_overflows:
      overflows = self._read("overflows") + 1
      steps = self._read("steps_to_overflow") + good + 1
      share = tf.cast(overflows, tf.float64) / tf.cast(steps, tf.float64)
      tolerated = share < rule.overflow_tolerance
      due = ~tolerated if due is None else due & ~tolerated
      choose("overflows", overflows, rule.overflow_reset)
      choose("steps_to_overflow", steps, (rules.GROWTH, rules.BACKOFF))
    if rule.counts_hysteresis:
      choose("spent_hysteresis", spent, rule.refill)
    return due, counts

  def _count_good(self, finite: tf.Tensor) -> tf.Tensor:
    """Returns the count of good steps with which a new interval starts."""
    count = tf.constant(self._rule.good_steps_after_growth, tf.int64)
    if not self._rule.good_steps_after_growth:
      return count
    return tf.where(finite, count, tf.zeros_like(count))

  def _grow(self, scale: tf.Tensor) -> tf.Tensor:
    """Returns the scale after growth."""
    return self._clip(
      stepping.grow(scale, self._rule.growth_factor, tf.float64)
    )

  def _back_off(self, scale: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the scale after a fall, and whether it cannot fall."""
    wide = tf.cast(scale, tf.float64)
    product = wide * self._rule.backoff_factor
    is_lowest = product < float32.SMALLEST
    lower = self._clip(tf.cast(tf.where(is_lowest, wide, product), tf.float32))
    if self._rule.lowest is not None:
      is_lowest |= scale <= self._rule.lowest
    return lower, is_lowest


def like(
  name: systems.System, /, **changes: Unpack[rules.Changes]
) -> GrowthBackoff:
  """Returns a loss scale with the rule of another system.

  Args:
    name: 'apex', 'contrib', 'deepspeed', 'fairseq', 'flax', 'jmp', 'keras3',
      'megatron' or 'torch'.
    **changes: Arguments of `GrowthBackoff` that replace the system's defaults,
      in the system's meaning; see `find_rule`.

  Returns:
    A new `GrowthBackoff`.

  Raises:
    ValueError: There is no such system, or an argument makes no sense.
    TypeError: There is no such argument.
  """
  return GrowthBackoff(**systems.find_rule(name, **changes).get_config())


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
