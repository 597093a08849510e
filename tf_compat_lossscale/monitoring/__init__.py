# SPDX-License-Identifier: Apache-2.0
"""Monitoring of loss scales: what happened to the scale, and why.

`LossScaleHook` watches Session-based training, `Monitor` eager code and
`tf.function`, `LossScaleCallback` models of Keras 2.

`read_run` reads the files that a monitored run wrote, and `judge` says in plain
words whether the run's loss scale is all right. Both need no TensorFlow:

```
from tf_compat_lossscale import monitoring

print(monitoring.judge(monitoring.read_run("logs/")).sentence)
```
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tf_compat_lossscale.monitoring.hook import LossScaleHook
  from tf_compat_lossscale.monitoring.keras_callback import LossScaleCallback
  from tf_compat_lossscale.monitoring.monitor import Monitor
  from tf_compat_lossscale.monitoring.rows import LogError
  from tf_compat_lossscale.monitoring.rows import RunLog
  from tf_compat_lossscale.monitoring.run_logs import read_run
  from tf_compat_lossscale.monitoring.stuck import StuckError
  from tf_compat_lossscale.monitoring.verdicts import judge
  from tf_compat_lossscale.monitoring.verdicts import Verdict

__all__ = [
  "LogError",
  "LossScaleCallback",
  "LossScaleHook",
  "Monitor",
  "RunLog",
  "StuckError",
  "Verdict",
  "judge",
  "read_run",
]

# Names are loaded at their first use, since reading logs needs no TensorFlow.
if not TYPE_CHECKING:  # Checkers see the names above, and no others.
  from tf_compat_lossscale._lazy import load_lazily

  __getattr__, __dir__ = load_lazily(
    __name__,
    {
      "LogError": "rows",
      "LossScaleCallback": "keras_callback",
      "LossScaleHook": "hook",
      "Monitor": "monitor",
      "RunLog": "rows",
      "StuckError": "stuck",
      "Verdict": "verdicts",
      "judge": "verdicts",
      "read_run": "run_logs",
    },
  )
