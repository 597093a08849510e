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
  from tf_compat_lossscale.checkpoint._converting import convert
  from tf_compat_lossscale.checkpoint._describing import describe
  from tf_compat_lossscale.checkpoint._describing import Description
  from tf_compat_lossscale.checkpoint._describing import LossScaleState
  from tf_compat_lossscale.checkpoint._report import Conversion
  from tf_compat_lossscale.checkpoint._report import Report
  from tf_compat_lossscale.checkpoint._restoring import restore
  from tf_compat_lossscale.checkpoint._saver import import_meta_graph
  from tf_compat_lossscale.checkpoint._saver import MonitoredTrainingSession
  from tf_compat_lossscale.checkpoint._saver import Saver
  from tf_compat_lossscale.checkpoint._saver import Scaffold
  from tf_compat_lossscale.checkpoint.reading import CheckpointError

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
      "Conversion": "_report",
      "Description": "_describing",
      "LossScaleState": "_describing",
      "MonitoredTrainingSession": "_saver",
      "Report": "_report",
      "Saver": "_saver",
      "Scaffold": "_saver",
      "convert": "_converting",
      "describe": "_describing",
      "import_meta_graph": "_saver",
      "restore": "_restoring",
    },
  )
