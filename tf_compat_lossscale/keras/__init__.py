"""`tf.keras.mixed_precision.experimental`, as TensorFlow 2.4 to 2.8 had it.

For Keras 2: `tf.keras` up to TensorFlow 2.15, and the package tf_keras.
"""

from tf_compat_lossscale.keras._to_keras3 import to_keras3
from tf_compat_lossscale.keras.models import load_model
from tf_compat_lossscale.keras.optimizer import LossScaleOptimizer
from tf_compat_lossscale.keras.policy import get_layer_policy
from tf_compat_lossscale.keras.policy import global_policy
from tf_compat_lossscale.keras.policy import Policy
from tf_compat_lossscale.keras.policy import set_policy

__all__ = [
  "LossScaleOptimizer",
  "Policy",
  "get_layer_policy",
  "global_policy",
  "load_model",
  "set_policy",
  "to_keras3",
]
