# SPDX-License-Identifier: Apache-2.0
"""Watches the sessions of a program of `run --watch`."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import sys
import threading
import types
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale import monitoring


class _Hook(monitoring.LossScaleHook):
  """A hook that says at the first step where it writes."""

  has_seen = False

  def __init__(self, optimizer: Any, folder: str) -> None:
    super().__init__(optimizer, folder)
    self.folder, self.name = folder, type(optimizer).__name__

  def before_run(self, run_context: Any) -> Any:
    wanted = super().before_run(run_context)
    if wanted is not None and not self.has_seen:
      self.has_seen = True
      _say(
        f"the loss scale of {self.name} is written to {self.folder}: see "
        f"tf-lossscale doctor {self.folder}"
      )
    return wanted


class SessionWatcher:
  """What gives sessions a hook for each optimizer that takes steps there.

  The sessions that count are those of TensorFlow's runtime. Monitored sessions,
  and so Estimators, run their steps by them, too.
  """

  def __init__(self, folder: str) -> None:
    """Takes the folder of the first optimizer; others get numbers below.

    A session whose folder is in use by another session gets a further number.
    """
    self._folder = folder
    # Session -> the version of its graph, and the hook of each optimizer.
    self._known: dict[int, tuple[int, dict[int, _Hook]]] = {}
    # The garbage collector may close a session at any time.
    self._lock = threading.RLock()
    self._has_seen = False

  def start(self) -> None:
    """Watches all sessions that run from now on."""
    base: Any = tf.compat.v1.Session.__mro__[1]  # Of interactive sessions, too.
    graph: Any = tf.Graph
    run, close, finalize = base.run, base.close, graph.finalize
    make_callable = base.make_callable

    @functools.wraps(run)
    def watched_run(session: Any, *args: Any, **kwargs: Any) -> Any:
      call = functools.partial(run, session)
      for hook in self._find_hooks(session):
        inner = types.SimpleNamespace(graph=session.graph, run=call)
        call = functools.partial(hook.run, inner)
      return call(*args, **kwargs)

    @functools.wraps(make_callable)
    def make_watched(
      session: Any,
      fetches: Any,
      feed_list: Any = None,
      *more: Any,
      **named: Any,
    ) -> Any:
      # With a list, also an empty one, the callable calls `run`.
      return make_callable(session, fetches, feed_list or [], *more, **named)

    @functools.wraps(close)
    def close_watched(session: Any) -> None:
      self._release(id(session))
      close(session)

    @functools.wraps(finalize)
    def finalize_watched(graph: Any) -> None:
      with graph.as_default():
        for optimizer in loss_scale_optimizer.list_optimizers(graph):
          monitoring.LossScaleHook(optimizer).begin()  # While ops can be added.
      finalize(graph)

    base.run, base.close = watched_run, close_watched
    base.make_callable, graph.finalize = make_watched, finalize_watched
    atexit.register(self._end)

  def _find_hooks(self, session: Any) -> list[_Hook]:
    graph = session.graph
    with self._lock:
      version, hooks = self._known.setdefault(id(session), (-1, {}))
      if version != graph.version:
        found = loss_scale_optimizer.list_optimizers(graph)
        for number, optimizer in enumerate(found, 1):
          if id(optimizer) not in hooks:
            folder = self._choose_folder(number, len(found))
            hooks[id(optimizer)] = _Hook(optimizer, folder)
          with graph.as_default():
            hooks[id(optimizer)].begin()
        self._known[id(session)] = graph.version, hooks
      return list(hooks.values())

  def _choose_folder(self, number: int, count: int) -> str:
    known = self._known.values()
    used = {hook.folder for _, hooks in known for hook in hooks.values()}
    folders = (
      os.path.join(self._folder, str(i)) if i > 1 else self._folder
      for i in itertools.count(number, count)
    )
    return next(folder for folder in folders if folder not in used)

  def _release(self, session: int) -> None:
    with self._lock:
      _, hooks = self._known.pop(session, (-1, {}))
    for hook in hooks.values():
      hook.end(None)
      self._has_seen |= hook.has_seen

  def _end(self) -> None:
    for session in list(self._known):
      self._release(session)
    if not self._has_seen:
      _say(
        f"nothing is written to {self._folder}: no session ran a step of an "
        "optimizer with a loss scale. The steps of Keras, of tf.function and "
        "of queue runners cannot be seen: see docs/monitoring.md"
      )


def _say(text: str) -> None:
  print(f"tf-lossscale: {text}", file=sys.stderr)
