# SPDX-License-Identifier: Apache-2.0
"""Describes, restores and converts checkpoints of all releases.

```
from tf_compat_lossscale import checkpoint

print(checkpoint.describe("model.ckpt-1000").loss_scales)
checkpoint.restore(session, "model.ckpt-1000")
```
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tf_compat_lossscale.checkpoint.converting import convert
  from tf_compat_lossscale.checkpoint.describing import describe
  from tf_compat_lossscale.checkpoint.describing import Description
  from tf_compat_lossscale.checkpoint.describing import LossScaleState
  from tf_compat_lossscale.checkpoint.reading import CheckpointError
  from tf_compat_lossscale.checkpoint.report import Conversion
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

# Names are loaded at their first use: the package can be imported without
# TensorFlow.
if not TYPE_CHECKING:  # Checkers see the names above, and no others.
  from tf_compat_lossscale._lazy import load_lazily

  __getattr__, __dir__ = load_lazily(
    __name__,
    {
      "CheckpointError": "reading",
      "Conversion": "report",
      "Description": "describing",
      "LossScaleState": "describing",
      "MonitoredTrainingSession": "saver",
      "Report": "report",
      "Saver": "saver",
      "Scaffold": "saver",
      "convert": "converting",
      "describe": "describing",
      "import_meta_graph": "saver",
      "restore": "restoring",
    },
  )
