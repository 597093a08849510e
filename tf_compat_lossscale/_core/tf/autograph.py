# SPDX-License-Identifier: Apache-2.0
"""What AutoGraph rewrites of a `tf.function` that takes a step.

AutoGraph rewrites each function that it meets, for about 30 ms each. The
functions of this package need no rewriting, and left out, the first step of a
process takes a tenth of the time. Functions of the program that the package
calls, such as a loss or a loss scale of its own, are rewritten all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import Final

from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.core import config
from tensorflow.python.autograph.impl import api

from tf_compat_lossscale._core import patching

_PACKAGE = __name__.partition(".")[0]
# AutoGraph rewrites `programs/` all the same: in very many places there, a
# function of the program is called, and would need `convert`.
_REWRITTEN = f"{_PACKAGE}.programs"
_log: Final = patching.UndoLog()


def leave_out_package() -> None:
  """Makes AutoGraph call the functions of this package as they are.

  The public `do_not_convert` would do the same for one function, and for all
  that it calls, the program's own functions, too. A release that has no such
  rules rewrites the package, which takes longer.
  """
  rules = getattr(config, "CONVERSION_RULES", None)
  if isinstance(rules, tuple):
    own = (config.Convert(_REWRITTEN), config.DoNotConvert(_PACKAGE))
    _log.set(config, "CONVERSION_RULES", (*own, *rules))


def convert(function: Callable[..., Any]) -> Callable[..., Any]:
  """Returns a function of the program, rewritten if its caller is.

  No public name does that: `tf.autograph.to_graph` rewrites in any case. All
  releases from 2.12 to 2.21 have `ag_ctx` and `api`; without them, this module
  cannot be imported.
  """
  context = ag_ctx.control_status_ctx()
  if context.status != ag_ctx.Status.ENABLED:
    return function
  converted: Callable[..., Any] = api.tf_convert(function, context)
  return converted


leave_out_package()
