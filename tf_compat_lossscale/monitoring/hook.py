# SPDX-License-Identifier: Apache-2.0
"""A hook that watches the loss scale of Session-based training."""

from __future__ import annotations

import functools
import os
import threading
from typing import Any
from typing import TypeAlias

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import sync_replicas
from tf_compat_lossscale.monitoring import keeping
from tf_compat_lossscale.monitoring import probe
from tf_compat_lossscale.monitoring import recorder
from tf_compat_lossscale.monitoring import session_runs
from tf_compat_lossscale.monitoring import stuck
from tf_compat_lossscale.monitoring import watched
from tf_compat_lossscale.monitoring.steps import State

_Run: TypeAlias = tf.compat.v1.train.SessionRunContext


class LossScaleHook(tf.compat.v1.train.SessionRunHook):
  """Watches the loss scale, and says which gradients make it fall.

  ```
  train_op = opt.minimize(loss, global_step=global_step)
  hook = LossScaleHook(opt, output_dir="logs/run")
  with tf.train.MonitoredTrainingSession(hooks=[hook]) as session:
    while not session.should_stop():
      session.run(train_op)
  ```

  A step is *attempted* whenever a session runs the op that applies the
  gradients; it is then applied or skipped. All numbers of steps in logs and
  files are numbers of attempted steps, from 1: the global step stands still
  while steps are skipped. The hook looks only at runs that do a step.

  The hook logs a line if something changes: a step was skipped, the loss scale
  changed, the run is stuck. With `output_dir`, it writes the file
  `loss_scale.jsonl` and the scalars `loss_scale/value`,
  `loss_scale/good_steps`, `loss_scale/skipped_total` and
  `loss_scale/skipped_rate` for TensorBoard: for each skipped step, for each
  change of the scale, and every `every_n_steps` steps. After a restart from a
  checkpoint, it goes on where the checkpoint was saved. An error of the disk
  is a warning; training goes on. If the run is stuck, a checkpoint of the
  state, and the shapes of what was fed, are kept in a folder `stuck-STEP`.

  Attributes:
    stop_requested: Whether the run was found stuck with `on_stuck="stop"`.
  """

  def __init__(
    self,
    optimizer: Any,
    output_dir: str | os.PathLike[str] | None = None,
    every_n_steps: int = 100,
    blame: bool = True,
    on_stuck: stuck.Reaction = "warn",
    patience: int = 200,
  ) -> None:
    """Creates a hook; nothing is added to a graph yet.

    Args:
      optimizer: A `MixedPrecisionLossScaleOptimizer`, a
        `contrib.LossScaleOptimizer`, an optimizer that wraps one of these, or
        one that has a loss scale by NVIDIA's environment variables.
      output_dir: The folder of the files, on a local disk; it is created if
        there is none. None to write no files. Each hook needs its own.
      every_n_steps: How often a line is written though nothing has changed, in
        attempted steps; and how often zeros and the largest magnitude are
        measured, to see underflow, in global steps.
      blame: Whether gradients are measured: on skipped steps, and every
        `every_n_steps` steps.
      on_stuck: What happens if the run is stuck: "warn" logs a warning, "stop"
        also asks the session to stop, "raise" raises a `StuckError`.
      patience: The number of skipped steps in a row after which the run is
        stuck; also the number of steps after which it is stuck if more than
        5 % of them, and at least 3, were skipped at the minimum of the loss
        scale.

    Raises:
      ValueError: An argument is none of these; the message names it.
    """
    self._given = optimizer
    self._settings = recorder.Settings(
      output_dir, every_n_steps, blame, on_stuck, patience
    )
    self._watch(watched.find_optimizer(optimizer))
    self._probes: list[probe.Probe] = []
    self._state: tf.Tensor | None = None
    self._runs: (
      session_runs.SessionRuns[tf.compat.v1.train.SessionRunArgs | None] | None
    ) = None
    # Several threads may share a session.
    self._lock = threading.Lock()
    self.stop_requested = False

  def _watch(self, optimizer: Any) -> None:
    """Makes the hook watch what `watched.find_optimizer` returned."""
    watched.refuse_accumulation("LossScaleHook", optimizer)
    self._optimizer = optimizer
    self._recorder = recorder.Recorder(
      self._settings, watched.describe(optimizer.loss_scale)
    )

  def begin(self) -> None:
    """Adds the ops that tell what a step did to the current graph.

    Raises:
      RuntimeError: The optimizer has taken no step in this graph that a session
        can run.
    """
    graph = tf.compat.v1.get_default_graph()
    # Only now is it known which optimizer takes the steps.
    optimizer = watched.find_optimizer(self._given)
    if optimizer is not self._optimizer:
      self._watch(optimizer)
    loss_scale = self._optimizer.loss_scale
    records = session_runs.list_steps(self._optimizer, graph)
    if not records:
      raise RuntimeError(
        f"LossScaleHook: {self._optimizer!r} has no step in this graph that a "
        "session can run: call minimize() or apply_gradients() before the hook "
        "begins, and outside of tf.cond, tf.while_loop and tf.function."
      )
    if [x.step for x in self._probes] == [x.op for x in records]:
      return  # A second session of a graph, which may be finalized.
    if graph.finalized:
      raise RuntimeError(
        "LossScaleHook: the graph is finalized: call begin() before the graph "
        "is finalized, such as before a tf.train.Supervisor is made."
      )
    grads = (x for record in records for own in record.gradients for x in own)
    if sync_replicas.is_synchronized(grads):
      logging.warning(
        "LossScaleHook: %r is inside a SyncReplicasOptimizer, whose queue "
        "runner takes the steps in runs that no hook sees: the hook logs "
        "nothing. Fetch loss_scale() and the global step with the train op.",
        self._optimizer,
      )
    every = self._settings.measure_every
    # The ops must not wait for ops of the code that calls this method.
    with tf.control_dependencies(None):
      self._probes = [probe.Probe(x, loss_scale, every) for x in records]
      self._state = probe.stack_state(loss_scale, records[-1].global_step)
    self._runs = session_runs.SessionRuns(graph, self._choose_fetches)

  def after_create_session(self, session: Any, coord: Any) -> None:
    """Starts anew: the session may go on from another checkpoint."""
    del session, coord
    with self._lock:
      self._recorder.close()

  def before_run(
    self, run_context: _Run
  ) -> tf.compat.v1.train.SessionRunArgs | None:
    """Asks for what a step did, if this run does one.

    Args:
      run_context: The run.
    """
    if self._runs is None:
      raise RuntimeError(
        "LossScaleHook: begin() was not called: call it with the graph as the "
        "default graph, before the first run."
      )
    asked = self._runs.ask(run_context.original_args)
    if asked is not None and not self._recorder.is_started:
      self._start(run_context.session)
    return asked

  def after_run(self, run_context: _Run, run_values: Any) -> None:
    """Takes note of what a step did.

    Args:
      run_context: The run.
      run_values: Its results.

    Raises:
      StuckError: The run is stuck, and `on_stuck` is "raise".
    """
    if run_values.results is None:
      return
    feed_dict = run_context.original_args.feed_dict

    def keep(folder: str, message: str) -> None:
      keeping.keep_session(run_context.session, folder, message, feed_dict)

    for i, values in run_values.results.items():
      seen = self._probes[i]
      decode = functools.partial(seen.decode, values)
      with self._lock:
        if self._recorder.pass_uneventful(seen.find_scale(values), decode):
          continue
        should_stop = self._recorder.observe(decode(), keep)
      if should_stop:
        self.stop_requested = True
        run_context.request_stop()

  def end(self, session: Any) -> None:
    """Writes the last step and closes the files."""
    del session
    with self._lock:
      self._recorder.close()

  def run(
    self,
    session: tf.compat.v1.Session,
    fetches: Any,
    feed_dict: Any = None,
    options: Any = None,
    run_metadata: Any = None,
  ) -> Any:
    """Runs fetches in a plain session, and watches the step if there is one.

    Call `begin()` before the graph is finalized, and `end(session)` at last.
    With `on_stuck="stop"`, look at `stop_requested` after each step.

    Args:
      session: The session.
      fetches: As `Session.run` takes them.
      feed_dict: As `Session.run` takes it.
      options: As `Session.run` takes them.
      run_metadata: As `Session.run` takes it.

    Returns:
      The values of `fetches`.
    """
    context = tf.compat.v1.train.SessionRunContext(
      tf.compat.v1.train.SessionRunArgs(fetches, feed_dict, options), session
    )
    own = self.before_run(context)
    both = [fetches, {} if own is None else own.fetches]
    results, seen = session.run(both, feed_dict, options, run_metadata)
    values = tf.compat.v1.train.SessionRunValues(
      None if own is None else seen, options, run_metadata
    )
    self.after_run(context, values)
    return results

  def _start(self, session: tf.compat.v1.Session) -> None:
    """Reads the state from which the run goes on."""
    with self._lock:
      if not self._recorder.is_started:
        state = session.run(self._state).tolist()
        self._recorder.start(State.decode(state))

  def _choose_fetches(
    self, ancestors: set[tf.Operation], fed: list[tf.Tensor]
  ) -> tf.compat.v1.train.SessionRunArgs | None:
    """Returns what to fetch in a run: a value for each step that the run does.

    The keys are the indices of the steps' probes. None if the run does no step.
    """
    chosen = {
      i: x.choose_fetch(ancestors, fed)
      for i, x in enumerate(self._probes)
      if x.step in ancestors
    }
    return tf.compat.v1.train.SessionRunArgs(chosen) if chosen else None
