"""TensorFlow's deprecated loss-scaling API, standing on its own.

What `tf.compat.v1.mixed_precision` held:

```
import tf_compat_lossscale as tfl

opt = tfl.MixedPrecisionLossScaleOptimizer(
  tf.compat.v1.train.AdamOptimizer(1e-3), "dynamic"
)
train_op = opt.minimize(loss, global_step=global_step)
```
"""

from tf_compat_lossscale._version import __version__
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

__all__ = [
  "DynamicLossScale",
  "FixedLossScale",
  "LossScale",
  "MixedPrecisionLossScaleOptimizer",
  "__version__",
  "disable_mixed_precision_graph_rewrite",
  "enable_mixed_precision_graph_rewrite",
  "get",
]
