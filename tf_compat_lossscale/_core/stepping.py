# SPDX-License-Identifier: Apache-2.0
"""The steps that rules of dynamic loss scaling have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import pair_checks
from tf_compat_lossscale._core.tf import control_flow

# The smallest float64 number that is an infinity once it is rounded to float32.
_FLOAT32_OVERFLOWS = float(2**128 - 2**103)


def choose(
  condition: tf.Tensor, if_true: Callable[[], Any], if_false: Callable[[], Any]
) -> Any:
  """Returns one of two nests of scalars, without a cond.

  To compute both nests is cheaper than a cond.

  Args:
    condition: A bool scalar.
    if_true: Returns the nest for True.
    if_false: Returns the nest for False. In graphs, both functions are called.

  Returns:
    The nest.
  """
  if tf.executing_eagerly():
    return if_true() if condition else if_false()
  return tf.nest.map_structure(
    lambda a, b: tf.where(condition, a, b), if_true(), if_false()
  )


def count_step(
  finite: tf.Tensor,
  good_steps: tf.Variable,
  period: int,
  scale: tf.Variable,
  end_run: Callable[[tf.Tensor], Any],
) -> Any:
  """Counts a good step, or ends the run of good steps.

  ```
  if finite and good_steps + 1 < period:
    good_steps += 1
  else:
    end_run(scale)
  ```

  The count is added to, because an assignment would lose the steps that other
  workers count meanwhile. Before the run ends, `scale` is read, then
  `good_steps` is looked at once more. `end_run` must set `good_steps` to 0
  before it writes `scale`. So a worker that reads a scale that has just grown
  reads the new count, too, and does not make the scale grow again. Workers that
  read the same old scale write the same new scale. This is no lock: a worker
  that is delayed between reading and writing may overwrite what another worker
  has written, as in TensorFlow's own loss scale.

  Args:
    finite: A bool scalar: whether the step is good.
    good_steps: An integer scalar variable: the consecutive good steps so far.
    period: The number of consecutive good steps that complete a run.
    scale: A float32 scalar variable: the loss scale.
    end_run: Called with the value of `scale` if the step is bad or completes
      the run; returns an op in graphs.

  Returns:
    A tensor that depends on the update; eagerly, nothing of use.
  """

  v1 = pair_checks.has_ref_variable([good_steps, scale])  # A program's own.

  def goes_on() -> tf.Tensor:
    return tf.logical_and(finite, tf.convert_to_tensor(good_steps) + 1 < period)

  def count() -> tf.Operation | None:
    return tf.group(good_steps.assign_add(1, read_value=False))

  def look_again() -> Any:
    # The identity is no read op. A v2 cond cannot take a read op from the
    # variable's device.
    seen = tf.identity(tf.convert_to_tensor(scale))
    with tf.control_dependencies([seen]):
      still = goes_on()
    return control_flow.cond(still, count, lambda: end_run(seen), v1)

  # With several workers, the step may take long. So the count is read after the
  # gradients are known.
  with tf.control_dependencies([finite]):
    first = goes_on()
  return control_flow.cond(first, count, look_again, v1)


def finish(update: Any, finite: tf.Tensor) -> tuple[Any, tf.Tensor]:
  """Returns what `LossScale.update` returns.

  Args:
    update: The op or tensor that does the update; not looked at eagerly.
    finite: A bool scalar: whether the gradients are finite.

  Returns:
    A pair: a tensor that depends on the update (None when eager), and `finite`.
  """
  if tf.executing_eagerly():
    return None, finite
  # A tensor, not an op, because programs pass the update to `tf.identity`.
  with tf.control_dependencies([update]):
    return tf.identity(finite, name="update"), finite


def grow(
  scale: tf.Tensor, factor: Any, dtype: tf.DType = tf.float32
) -> tf.Tensor:
  """Multiplies a loss scale by a factor, unless the product is not finite.

  No op computes an infinity on the way, because
  `tf.debugging.enable_check_numerics` makes such an op fail.

  Args:
    scale: A float32 scalar.
    factor: A number above 1, finite in float32; a program may have set a
      tensor instead.
    dtype: The dtype that the factor is rounded to: float32, or float64 for a
      factor that float32 does not have.

  Returns:
    The product or, if float32 has no such number, `scale`: a float32 scalar.
  """
  wide = tf.cast(scale, tf.float64)  # The product is exact in float64.
  is_number = isinstance(factor, (int, float))
  factor = tf.constant(factor, dtype) if is_number else tf.cast(factor, dtype)
  product = wide * tf.cast(factor, tf.float64)
  fits = product < _FLOAT32_OVERFLOWS
  return tf.cast(tf.where(fits, product, wide), tf.float32)
