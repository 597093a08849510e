# SPDX-License-Identifier: Apache-2.0
"""The loss scale of an optimizer of Keras 2, as monitors see it."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import scale_uses


class LossScaleView:
  """The loss scale of an optimizer of Keras 2, in the form of a `LossScale`.

  Attributes:
    class_name: The class of this package that has the same rule.
    minimum: The lowest value; None for a fixed loss scale.
  """

  def __init__(self, optimizer: Any) -> None:
    """Looks at the loss scale of an optimizer.

    Args:
      optimizer: A loss-scale optimizer of Keras 2.
    """
    self._optimizer = optimizer
    is_dynamic = optimizer.dynamic
    self.class_name = "DynamicLossScale" if is_dynamic else "FixedLossScale"
    self.minimum = 1.0 if is_dynamic else None

  @property
  def _tracked_weights(self) -> dict[str, tf.Variable]:
    optimizer = self._optimizer
    return (
      {"good_steps": optimizer.dynamic_counter} if optimizer.dynamic else {}
    )

  def __call__(self) -> tf.Tensor:
    """Returns the loss scale as it is now, a float32 scalar tensor."""
    with scale_uses.ignore_reads():
      return tf.convert_to_tensor(self._optimizer.loss_scale)

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments of the class that has the same rule."""
    initial = float(self._optimizer.initial_scale)
    if not self._optimizer.dynamic:
      return {"loss_scale_value": initial}
    return {
      "initial_loss_scale": initial,
      "increment_period": int(self._optimizer.dynamic_growth_steps),
      "multiplier": 2.0,
    }
