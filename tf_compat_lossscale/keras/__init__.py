# SPDX-License-Identifier: Apache-2.0
"""Holds the names of `tf.keras.mixed_precision.experimental`, for Keras 2.

The names behave as in TensorFlow 2.4 to 2.8. Keras 2 is `tf.keras` up to
TensorFlow 2.15, else the package tf_keras. `Keras3LossScaleOptimizer` is of
Keras 3, and `LossScaleCallback` watches both.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tf_compat_lossscale.keras._callback import LossScaleCallback
  from tf_compat_lossscale.keras._keras3_optimizer import (
    Keras3LossScaleOptimizer,
  )
  from tf_compat_lossscale.keras._models import load_model
  from tf_compat_lossscale.keras._policy import get_layer_policy
  from tf_compat_lossscale.keras._policy import global_policy
  from tf_compat_lossscale.keras._policy import Policy
  from tf_compat_lossscale.keras._policy import set_policy
  from tf_compat_lossscale.keras.optimizer import LossScaleOptimizer

__all__ = [
  "Keras3LossScaleOptimizer",
  "LossScaleCallback",
  "LossScaleOptimizer",
  "Policy",
  "get_layer_policy",
  "global_policy",
  "load_model",
  "set_policy",
]

# The module for Keras 3 is in this package, too, and must not load Keras 2.
if not TYPE_CHECKING:  # Checkers see the names above, and no others.
  from tf_compat_lossscale._lazy import load_lazily

  __getattr__, __dir__ = load_lazily(
    __name__,
    {
      "Keras3LossScaleOptimizer": "_keras3_optimizer",
      "LossScaleCallback": "_callback",
      "LossScaleOptimizer": "optimizer",
      "Policy": "_policy",
      "get_layer_policy": "_policy",
      "global_policy": "_policy",
      "load_model": "_models",
      "set_policy": "_policy",
    },
  )
