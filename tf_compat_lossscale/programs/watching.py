# SPDX-License-Identifier: Apache-2.0
"""`run --watch=DIR`: watches the loss scales of a program that nobody edits.

Each `MonitoredSession` of the process, and so each training by an Estimator,
gets a `LossScaleHook` for each optimizer with a loss scale that takes steps in
its graph.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any


def watch_sessions(folder: str) -> None:
  """Gives a hook to the monitored sessions that are created from now on.

  Args:
    folder: Where the first optimizer's hook writes; that of a further one, in a
      folder of the optimizer's number below.
  """
  import tensorflow.compat.v2 as tf

  # Both kinds of monitored sessions inherit the constructor from this class.
  base: Any = tf.compat.v1.train.MonitoredSession.__mro__[1]
  initialize = base.__init__

  @functools.wraps(initialize)
  def __init__(
    self: Any, session_creator: Any, hooks: Any, *args: Any, **kwargs: Any
  ) -> None:
    graph = tf.compat.v1.get_default_graph()
    # First, because a hook that stops at a NaN loss ends the others' turn.
    hooks = [*_make_hooks(graph, folder), *(hooks or ())]
    initialize(self, session_creator, hooks, *args, **kwargs)

  base.__init__ = __init__


def _make_hooks(graph: Any, folder: str) -> list[Any]:
  """Returns the hooks for a graph, and says where they write."""
  from tf_compat_lossscale import loss_scale_optimizer
  from tf_compat_lossscale import monitoring

  hooks = []
  found = loss_scale_optimizer.list_optimizers(graph)
  for number, optimizer in enumerate(found, 1):
    own = folder if number == 1 else os.path.join(folder, str(number))
    hooks.append(monitoring.LossScaleHook(optimizer, own))
    print(
      f"tf-lossscale: the loss scale of {type(optimizer).__name__} is written "
      f"to {own}: see tf-lossscale doctor {own}",
      file=sys.stderr,
    )
  return hooks
