# SPDX-License-Identifier: Apache-2.0
"""Continues training of a Keras 2 optimizer with a Keras 3 optimizer."""

from __future__ import annotations

from collections.abc import Iterable
import contextlib
from typing import Any

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _keras2_state
from tf_compat_lossscale.keras import _like_keras3
from tf_compat_lossscale.keras import _slots_to_keras3


def to_keras3(
  optimizer_or_state: Any,
  optimizer: Any = None,
  variables: Iterable[Any] | None = None,
) -> Any:
  """Makes an optimizer of Keras 3 that goes on from the state of an older one.

  The new optimizer gets the loss scale, its counter and the number of steps.
  From then on it follows Keras 3's rules: a skipped step does not count in
  `iterations`, and the scale neither stops at 1 nor at the largest float32.

  Args:
    optimizer_or_state: A dynamic LossScaleOptimizer, of this module or of Keras
      2; a DynamicLossScale or an ExponentialUpdateLossScaleManager, or an
      optimizer that has a loss scale of these classes; or a dict of numbers
      that you read from a checkpoint: 'loss_scale', 'good_steps' and, unless
      they are 2000 and 0, 'growth_steps' and 'iterations'. In a graph, values
      are read in the default session.
    optimizer: The Keras 3 optimizer to wrap; by default an optimizer that does
      the same as the wrapped optimizer of Keras 2. It gets the number of steps
      done, unless it has done some.
    variables: The variables to train in Keras 3. If you pass variables, the new
      optimizer is built for them and gets the slots of the Keras 2 optimizer,
      such as momentums. For each variable, pass a pair: the variable of Keras 2
      and the variable of Keras 3. Or pass the variables of Keras 3 alone, in
      the order in which the Keras 2 optimizer was given its own variables. Pass
      a variable that both optimizers train as it is.

  Returns:
    A `keras.optimizers.LossScaleOptimizer` of Keras 3. Until it is built, it is
    of a subclass that keeps the counter.

  Raises:
    ImportError: Keras 3 is not installed.
    TypeError: An argument has another type.
    ValueError: The loss scale is fixed: set `loss_scale_factor` of a Keras 3
      optimizer to it, which does the same. Or Keras 3 has no optimizer that
      does the same, or a number is not allowed for a loss scale, or `variables`
      does not fit.
  """
  keras = which_keras.import_keras_3()
  with tf.init_scope():
    state = _keras2_state.read_state(optimizer_or_state)
    old = None
    if isinstance(optimizer_or_state, _keras2.BaseLossScaleOptimizer):
      old = optimizer_or_state.inner_optimizer
    if optimizer is None:
      if old is None:
        raise ValueError(
          "Name the Keras 3 optimizer to wrap: to_keras3(…, optimizer=…)."
        )
      make = _like_keras3.find_optimizer(keras, old)
      if variables is None and any(_keras2.find_exclusions(old)):
        raise ValueError(
          "The Keras 2 optimizer excludes variables from weight decay: pass "
          "variables=…, or an optimizer of your choice as optimizer=…."
        )
    else:
      _check_optimizer(keras, optimizer)
      make = lambda: optimizer  # noqa: E731
    slots = None
    if variables is not None:
      slots = _slots_to_keras3.read_slots(
        old, variables, with_exclusions=optimizer is None
      )
    with _enter_eager_mode():
      inner = make()
      _check_averages(inner, state, slots, starts_anew=optimizer is None)
      return _resume(inner, state, slots, old)


def _resume(
  inner: Any,
  state: _keras2_state.State,
  slots: _slots_to_keras3.Slots | None,
  old: Any,
) -> Any:
  """Makes the optimizer of Keras 3, and builds it if it gets slots."""
  # Imported here, because this import imports Keras 3.
  from tf_compat_lossscale.keras import keras3_optimizer

  is_new = keras3_optimizer.count_steps(inner) == 0
  resumed = keras3_optimizer.ResumedLossScaleOptimizer(
    inner,
    state.loss_scale,
    state.growth_steps,
    good_steps=state.good_steps,
    iterations=state.iterations,
  )
  lost: list[str] = []
  if slots is not None:
    if slots.excluded:
      inner.exclude_from_weight_decay(var_list=slots.excluded)
    resumed.build(slots.variables)
    if is_new:
      lost = _slots_to_keras3.write_slots(inner, slots)
  elif is_new and old is not None:
    lost = _slots_to_keras3.list_slot_names(old)
  if lost:
    logging.warning(
      "to_keras3: the slots of the Keras 2 optimizer %s (%s) are not copied, "
      "so %s starts with new slots after %d steps. %s",
      type(old).__name__,
      ", ".join(lost),
      type(inner).__name__,
      state.iterations,
      "Pass variables=… to copy the slots."
      if slots is None
      else "The optimizer that was passed has no such slots.",
    )
  return resumed


def _check_averages(
  inner: Any,
  state: _keras2_state.State,
  slots: _slots_to_keras3.Slots | None,
  starts_anew: bool,
) -> None:
  """Checks that Keras 3 averages variables as Keras 2 did.

  Keras 3 starts averages from zeros. It sets the averages to the variables in
  the first step if `iterations` is 0. Keras 2 starts averages from the
  variables.

  Raises:
    ValueError: Keras 3 would compute other averages.
  """
  if not getattr(inner, "use_ema", False):
    return
  if state.iterations and slots is None:
    raise ValueError(
      "The optimizer averages variables (use_ema), and Keras 3 would go on "
      f"from averages of 0 after {state.iterations} steps: pass variables=…."
    )
  if starts_anew and not state.iterations:
    raise ValueError(
      "Keras 3 starts averages (use_ema) otherwise than Keras 2, and this "
      "optimizer of Keras 2 has done no step: pass an optimizer of your choice "
      "as optimizer=…."
    )


def _check_optimizer(keras: Any, optimizer: Any) -> None:
  if not isinstance(optimizer, keras.optimizers.Optimizer) or isinstance(
    optimizer, keras.optimizers.LossScaleOptimizer
  ):
    raise TypeError(
      "optimizer must be an optimizer of Keras 3 (keras.optimizers.…) that is "
      f"not a LossScaleOptimizer, but got {wrong_values.show(optimizer)}."
    )


def _enter_eager_mode() -> contextlib.AbstractContextManager[Any]:
  """Returns a context manager in which Keras 3 can make variables.

  Raises:
    ValueError: TensorFlow 2's behavior is off.
  """
  if tf.executing_eagerly():
    return contextlib.nullcontext()
  if not tf.__internal__.tf2.enabled():
    raise ValueError(
      "Keras 3 does not work after tf.compat.v1.disable_v2_behavior(): read "
      "the numbers here, and pass them to to_keras3() in another program, as a "
      "dict of 'loss_scale', 'good_steps', 'growth_steps' and 'iterations'."
    )
  return tf.__internal__.eager_context.eager_mode()
