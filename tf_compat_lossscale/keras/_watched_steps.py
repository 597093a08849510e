# SPDX-License-Identifier: Apache-2.0
"""Lets an optimizer of Keras 2 tell which of its steps were applied.

Keras decides within `apply_gradients`, where the loss scale answers whether the
gradients should be applied. A loss scale of a class derived from Keras's own
stands there for the time of a call, and takes note of the answer.
"""

from __future__ import annotations

import math
from typing import Any
import weakref

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale._core import agreements
from tf_compat_lossscale._core import eager_steps
from tf_compat_lossscale._core import horovod
from tf_compat_lossscale._core import step_records
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _scale_view


class Call:
  """A call of `apply_gradients`."""

  def __init__(
    self, optimizer: Any, pairs: list[Any], skipped_steps: Any
  ) -> None:
    """Begins a call, in a replica context.

    Args:
      optimizer: The loss-scale optimizer.
      pairs: The (gradient, variable) pairs that it got.
      skipped_steps: The SkippedSteps of the optimizer, or None.
    """
    self._optimizer = optimizer
    self._skipped_steps = skipped_steps
    self._view = _scale_view.LossScaleView(optimizer)
    self._pairs = [pair for pair in pairs if pair[0] is not None]
    self._computed = [(None, None)] * len(self._pairs)
    if self._is_observed:
      self._computed = _find_computed(optimizer, pairs)

  @property
  def _is_observed(self) -> bool:
    return eager_steps.find_observer(self._optimizer) is not None

  def make_state(self, state: Any) -> Any:
    """Returns a dynamic loss scale that takes note of what it decides.

    Args:
      state: The dynamic loss scale of Keras.
    """
    return _keras2.ObservedState(state, self._update)

  def _update(self, state: Any, grads: Any) -> tuple[Any, Any]:
    """Updates a dynamic loss scale, and takes note of the answer."""
    grads = list(grads)
    pairs = list(zip(grads, (var for _, var in self._pairs)))
    computed = self._computed
    if len(grads) != len(self._pairs):
      # The optimizer that is wrapped returns other gradients than it gets.
      pairs = [(grad, f"gradient {i}") for i, grad in enumerate(grads)]
      computed = [(None, None)] * len(grads)
    iterations = self._optimizer.iterations if self._is_observed else None
    step = step_records.Step(self._view, pairs, computed, iterations)
    with step_records.record(self._optimizer, step):
      step.op, step.applied = state.update(self._agree(grads))
      if iterations is not None:
        # Keras counts the step later.
        step.global_step = self._count(iterations, step.applied)
    return step.op, step.applied

  def _agree(self, grads: Any) -> Any:
    """Returns gradients that are finite if those of all workers are."""
    agreement = agreements.find(self._optimizer) or horovod.find_agreement(
      self._optimizer
    )
    if agreement is None:
      return grads
    finite = agreement.all_finite(gradients.all_replicas_finite(grads))
    return [tf.where(finite, 0.0, math.nan)]

  def end(self) -> None:
    """Ends a call, after the step."""
    if not eager_steps.is_outermost_eager():
      count = None
    else:
      count = self._optimizer.iterations
      eager_steps.find(self._optimizer).global_step = weakref.ref(count)
    if not self._optimizer.dynamic:
      # The step is always applied, and Keras does not ask.
      step = step_records.Step(self._view, self._pairs, self._computed, count)
      with step_records.record(self._optimizer, step, reads_before=False):
        pass

  def _count(self, iterations: Any, applied: Any) -> tf.Tensor:
    """Returns the value that `iterations` has after the step."""
    before = tf.convert_to_tensor(iterations)
    if self._skipped_steps is None:
      return before + 1
    increment = self._skipped_steps.read_increment()
    return before + tf.where(applied, tf.ones([], tf.int64), increment)


def keep_computed(optimizer: Any, grads: list[Any]) -> None:
  """Keeps unscaled gradients until the next step, if an observer looks on."""
  if eager_steps.find_observer(optimizer) is not None:
    eager_steps.find(optimizer).computed.unscaled = grads


def _find_computed(optimizer: Any, pairs: list[Any]) -> list[tuple[Any, Any]]:
  """Returns what Keras computed for the gradients that a step got.

  Args:
    optimizer: The optimizer.
    pairs: The (gradient, variable) pairs of the step.

  Returns:
    For each gradient that is not None, a pair as `step_records.find_computed`
    returns it. Keras does not say to which variable an unscaled gradient
    belongs, so the order tells.
  """
  kept = vars(eager_steps.find(optimizer).computed)
  unscaled = kept.pop("unscaled", [])
  if len(unscaled) != len(pairs):
    unscaled = [None] * len(pairs)
  return [
    (None if own is grad else own, None)
    for own, (grad, _) in zip(unscaled, pairs)
    if grad is not None
  ]
