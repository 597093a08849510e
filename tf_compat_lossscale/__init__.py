# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's deprecated loss-scaling API, standing on its own.

The names are those of `tf.compat.v1.mixed_precision`:

```
import tf_compat_lossscale as tfl

opt = tfl.MixedPrecisionLossScaleOptimizer(
  tf.compat.v1.train.AdamOptimizer(1e-3), "dynamic"
)
train_op = opt.minimize(loss, global_step=global_step)
```
"""

from typing import TYPE_CHECKING

from tf_compat_lossscale._version import __version__

if TYPE_CHECKING:
  from tf_compat_lossscale import accumulation as accumulation
  from tf_compat_lossscale import checkpoint as checkpoint
  from tf_compat_lossscale import contrib as contrib
  from tf_compat_lossscale import distributed as distributed
  from tf_compat_lossscale import environment as environment
  from tf_compat_lossscale import gradients as gradients
  from tf_compat_lossscale import graph_rewrite as graph_rewrite
  from tf_compat_lossscale import keras as keras
  from tf_compat_lossscale import loss_scale as loss_scale
  from tf_compat_lossscale import loss_scale_optimizer as loss_scale_optimizer
  from tf_compat_lossscale import monitoring as monitoring
  from tf_compat_lossscale import policies as policies
  from tf_compat_lossscale._core.which_keras import use_keras_2
  from tf_compat_lossscale.accumulation import accumulate
  from tf_compat_lossscale.environment import honor_environment
  from tf_compat_lossscale.environment import ignore_environment
  from tf_compat_lossscale.graph_rewrite import (
    disable_mixed_precision_graph_rewrite,
  )
  from tf_compat_lossscale.graph_rewrite import (
    enable_mixed_precision_graph_rewrite,
  )
  from tf_compat_lossscale.loss_scale import DynamicLossScale
  from tf_compat_lossscale.loss_scale import FixedLossScale
  from tf_compat_lossscale.loss_scale import get
  from tf_compat_lossscale.loss_scale import LossScale
  from tf_compat_lossscale.loss_scale_optimizer import (
    MixedPrecisionLossScaleOptimizer,
  )
  from tf_compat_lossscale.programs.install import install
  from tf_compat_lossscale.programs.install import installed
  from tf_compat_lossscale.programs.install import uninstall

__all__ = [
  "DynamicLossScale",
  "FixedLossScale",
  "LossScale",
  "MixedPrecisionLossScaleOptimizer",
  "__version__",
  "accumulate",
  "disable_mixed_precision_graph_rewrite",
  "enable_mixed_precision_graph_rewrite",
  "get",
  "honor_environment",
  "ignore_environment",
  "install",
  "installed",
  "uninstall",
  "use_keras_2",
]

# The command line starts without TensorFlow, so names are loaded on first use.
if not TYPE_CHECKING:  # Checkers see the names above, and no others.
  from tf_compat_lossscale._lazy import load_lazily

  __getattr__, __dir__ = load_lazily(
    __name__,
    {
      "DynamicLossScale": "loss_scale",
      "FixedLossScale": "loss_scale",
      "LossScale": "loss_scale",
      "MixedPrecisionLossScaleOptimizer": "loss_scale_optimizer",
      "accumulate": "accumulation",
      "accumulation": None,
      "checkpoint": None,
      "contrib": None,
      "disable_mixed_precision_graph_rewrite": "graph_rewrite",
      "enable_mixed_precision_graph_rewrite": "graph_rewrite",
      "distributed": None,
      "environment": None,
      "get": "loss_scale",
      "gradients": None,
      "graph_rewrite": None,
      "honor_environment": "environment",
      "ignore_environment": "environment",
      "install": "programs.install",
      "installed": "programs.install",
      "keras": None,
      "loss_scale": None,
      "loss_scale_optimizer": None,
      "monitoring": None,
      "policies": None,
      "uninstall": "programs.install",
      "use_keras_2": "_core.which_keras",
    },
    hints={
      "GrowthBackoff": "did you mean tf_compat_lossscale.policies."
      "GrowthBackoff?",
      "LossScaleHook": "did you mean "
      "tf_compat_lossscale.monitoring.LossScaleHook?",
      "LossScaleOptimizer": "there are three: MixedPrecisionLossScaleOptimizer "
      "for optimizers of tf.compat.v1.train, keras.LossScaleOptimizer for "
      "those of Keras, and contrib.LossScaleOptimizer for tf.contrib's "
      "managers of loss scales.",
    },
  )
