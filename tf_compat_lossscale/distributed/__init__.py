# SPDX-License-Identifier: Apache-2.0
"""Loss scales of several workers, such as the ranks of Horovod.

Workers that average their gradients have the same gradients, so they need
nothing of this module to keep the same loss scale. `agree` is for workers that
check gradients of their own: each then skips a step if any does:

```
from tf_compat_lossscale import distributed

distributed.agree(opt)                              # All ranks of Horovod.
```
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tf_compat_lossscale.distributed.agreeing import agree

__all__ = ["agree"]

if not TYPE_CHECKING:  # Checkers see the names above, and no others.
  from tf_compat_lossscale._lazy import load_lazily

  __getattr__, __dir__ = load_lazily(
    __name__,
    {
      "agree": "agreeing",
    },
  )
