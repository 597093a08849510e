# SPDX-License-Identifier: Apache-2.0
"""Loss scales of several workers, such as the ranks of Horovod.

Workers that average their gradients have the same gradients, so they need
nothing of this module to keep the same loss scale. `agree` is for workers that
check gradients of their own: each then skips a step if any does. `DriftHook`
and `check_drift` compare the loss scales of all workers, and raise a
`DriftError` if these differ. `open_session` opens a session with parameter
servers that waits for nothing without a limit:

```
from tf_compat_lossscale import distributed

distributed.agree(opt)                              # All ranks of Horovod.
hook = distributed.DriftHook(opt, every_n_steps=100)
```
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tf_compat_lossscale.distributed.agreeing import agree
  from tf_compat_lossscale.distributed.comparison_hook import DriftHook
  from tf_compat_lossscale.distributed.drift import check_drift
  from tf_compat_lossscale.distributed.drift import DriftError
  from tf_compat_lossscale.distributed.sessions import open_session

__all__ = ["DriftError", "DriftHook", "agree", "check_drift", "open_session"]

if not TYPE_CHECKING:  # Checkers see the names above, and no others.
  from tf_compat_lossscale._lazy import load_lazily

  __getattr__, __dir__ = load_lazily(
    __name__,
    {
      "DriftError": "drift",
      "DriftHook": "comparison_hook",
      "agree": "agreeing",
      "check_drift": "drift",
      "open_session": "sessions",
    },
  )
