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

import importlib
from typing import Any
from typing import TYPE_CHECKING

from tf_compat_lossscale._version import __version__

if TYPE_CHECKING:
  from tf_compat_lossscale.graph_rewrite import (
    disable_mixed_precision_graph_rewrite,
  )
  from tf_compat_lossscale.graph_rewrite import (
    enable_mixed_precision_graph_rewrite,
  )
  from tf_compat_lossscale.legacy_modules import install
  from tf_compat_lossscale.legacy_modules import installed
  from tf_compat_lossscale.legacy_modules import uninstall
  from tf_compat_lossscale.loss_scale import DynamicLossScale
  from tf_compat_lossscale.loss_scale import FixedLossScale
  from tf_compat_lossscale.loss_scale import get
  from tf_compat_lossscale.loss_scale import LossScale
  from tf_compat_lossscale.loss_scale_optimizer import (
    MixedPrecisionLossScaleOptimizer,
  )
  from tf_compat_lossscale.which_keras import use_keras_2

__all__ = [
  "DynamicLossScale",
  "FixedLossScale",
  "LossScale",
  "MixedPrecisionLossScaleOptimizer",
  "__version__",
  "disable_mixed_precision_graph_rewrite",
  "enable_mixed_precision_graph_rewrite",
  "get",
  "install",
  "installed",
  "uninstall",
  "use_keras_2",
]

# Public names by module. They are loaded when first used, so that the command
# line starts without TensorFlow.
_NAMES: dict[str, tuple[str, ...]] = {
  "checkpoint": (),
  "contrib": (),
  "gradients": (),
  "keras": (),
  "graph_rewrite": (
    "disable_mixed_precision_graph_rewrite",
    "enable_mixed_precision_graph_rewrite",
  ),
  "legacy_modules": ("install", "installed", "uninstall"),
  "loss_scale": ("DynamicLossScale", "FixedLossScale", "LossScale", "get"),
  "loss_scale_optimizer": ("MixedPrecisionLossScaleOptimizer",),
  "which_keras": ("use_keras_2",),
}


def __getattr__(name: str) -> Any:
  for module_name, names in _NAMES.items():
    if name == module_name or name in names:
      module = importlib.import_module(f"{__name__}.{module_name}")
      value = module if name == module_name else getattr(module, name)
      globals()[name] = value
      return value
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__, *_NAMES})
