# SPDX-License-Identifier: Apache-2.0
"""A session hook that compares the loss scales of all workers."""

from __future__ import annotations

from typing import Any
from typing import TypeAlias

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale.distributed import drift
from tf_compat_lossscale.monitoring import session_runs
from tf_compat_lossscale.monitoring import watched

_Run: TypeAlias = tf.compat.v1.train.SessionRunContext


class DriftHook(tf.compat.v1.train.SessionRunHook):
  """Checks every N steps that all workers have the same loss scale.

  All workers need the hook, and must take the same steps: a worker waits until
  all others have come to the same step. If a rank of Horovod is gone, Horovod
  raises an error in the others; see the page on Horovod for the time that it
  waits.

  The hook counts attempted steps, applied or skipped. If a session cannot run
  the step by itself, as with `backward_passes_per_step` of Horovod, the hook
  counts all runs of the session.
  """

  def __init__(
    self,
    optimizer: Any,
    every_n_steps: int = 100,
    all_gather: drift.AllGather = "horovod",
  ) -> None:
    """Creates a hook; nothing is added to a graph yet.

    Args:
      optimizer: An optimizer that has or wraps a loss scale.
      every_n_steps: The number of steps after which the states are compared.
      all_gather: As for `check_drift`; called with a tensor of the graph.

    Raises:
      ImportError: `all_gather` is "horovod" and Horovod is not installed.
      RuntimeError: `all_gather` is "horovod" and Horovod is not initialized.
      ValueError: An argument is none of these.
    """
    watched.find_optimizer(optimizer)  # Refuses what has no loss scale.
    self._optimizer = optimizer
    self._every = arguments.check_steps("every_n_steps", every_n_steps)
    self._all_gather = drift.find_gather(all_gather)
    self._steps = 0
    self._names: list[str] = []
    self._rows: tf.Tensor | None = None
    # Says whether a run does a step; None if no session can run a step alone.
    self._runs: session_runs.SessionRuns[bool] | None = None

  def begin(self) -> None:
    """Adds the op that gathers the states to the current graph."""
    graph = tf.compat.v1.get_default_graph()
    if self._rows is not None and self._rows.graph is graph:
      return  # A second session of a graph, which may be finalized.
    optimizer = watched.find_optimizer(self._optimizer)
    steps = {x.op for x in session_runs.list_steps(optimizer, graph)}
    self._runs = None
    if steps:
      self._runs = session_runs.SessionRuns(
        graph, lambda ancestors, _: not steps.isdisjoint(ancestors)
      )
    # The op must not wait for ops of the code that calls this method.
    with tf.control_dependencies(None):
      self._names, self._rows = drift.gather_state(
        self._optimizer, self._all_gather
      )

  def after_create_session(self, session: Any, coord: Any) -> None:
    """Starts to count anew: all workers restart together."""
    del session, coord
    self._steps = 0

  def after_run(self, run_context: _Run, run_values: Any) -> None:
    """Counts a step, and compares the states after every N.

    Args:
      run_context: The run.
      run_values: Its results.

    Raises:
      DriftError: The states differ. All workers raise this error.
    """
    del run_values
    if self._runs is not None and not self._runs.ask(run_context.original_args):
      return
    self._steps += 1
    if self._steps % self._every == 0:
      rows = run_context.session.run(self._rows)
      drift.compare(self._names, rows, self._steps)
