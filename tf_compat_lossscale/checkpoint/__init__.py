"""Checkpoints across generations: what they are, restored and converted.

```
from tf_compat_lossscale import checkpoint

print(checkpoint.describe("model.ckpt-1000").loss_scales)
checkpoint.restore(session, "model.ckpt-1000")
```
"""

import importlib
from typing import Any
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tf_compat_lossscale.checkpoint._errors import CheckpointError
  from tf_compat_lossscale.checkpoint.converting import Conversion
  from tf_compat_lossscale.checkpoint.converting import convert
  from tf_compat_lossscale.checkpoint.describing import describe
  from tf_compat_lossscale.checkpoint.description import Description
  from tf_compat_lossscale.checkpoint.description import LossScaleState
  from tf_compat_lossscale.checkpoint.report import Report
  from tf_compat_lossscale.checkpoint.restoring import restore
  from tf_compat_lossscale.checkpoint.saver import import_meta_graph
  from tf_compat_lossscale.checkpoint.saver import MonitoredTrainingSession
  from tf_compat_lossscale.checkpoint.saver import Saver
  from tf_compat_lossscale.checkpoint.saver import Scaffold

__all__ = [
  "CheckpointError",
  "Conversion",
  "Description",
  "LossScaleState",
  "MonitoredTrainingSession",
  "Report",
  "Saver",
  "Scaffold",
  "convert",
  "describe",
  "import_meta_graph",
  "restore",
]

# Loaded when first used: looking into a checkpoint needs no TensorFlow.
_MODULES = {
  "CheckpointError": "_errors",
  "Conversion": "converting",
  "Description": "description",
  "LossScaleState": "description",
  "MonitoredTrainingSession": "saver",
  "Report": "report",
  "Saver": "saver",
  "Scaffold": "saver",
  "convert": "converting",
  "describe": "describing",
  "import_meta_graph": "saver",
  "restore": "restoring",
}


def __getattr__(name: str) -> Any:
  if name not in _MODULES:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
  globals()[name] = value = getattr(module, name)
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
