# SPDX-License-Identifier: Apache-2.0
"""Sessions of a cluster with parameter servers, with a limit to each wait.

`tf.compat.v1.train.MonitoredTrainingSession` waits without a limit if a task of
the cluster is gone: a new session waits for all tasks of the cluster, also for
other workers; a step waits for a reply of a parameter server; `close` waits
until each parameter server has deleted its part of the session; a session that
cannot be created is tried again for ever; and a worker waits for the chief for
half an hour.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import os
import queue
import re
import socket
import threading
import time
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

__all__ = ["open_session"]

_train: Any = tf.compat.v1.train

# The jobs whose tasks run sessions. All other jobs serve them.
_JOBS_WITH_SESSIONS = ("chief", "evaluator", "master", "worker")
_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError)
# TensorFlow raises the first error of a step. If a server has restarted, that
# may be the cancellation of another part of the step.
_CANCELLED_BY_LOSS = re.compile(
  r"\b(ABORTED|UNAVAILABLE): |RecvFromRemoteAsync is cancelled"
)


@contextlib.contextmanager
def open_session(
  server: Any,
  is_chief: bool,
  checkpoint_dir: str | os.PathLike[str] | None = None,
  save_steps: int | None = None,
  save_seconds: float | None = None,
  hooks: Iterable[Any] = (),
  scaffold: Any = None,
  config: tf.compat.v1.ConfigProto | None = None,
  limit: float = 60.0,
) -> Iterator[Any]:
  """Opens a session that trains, for a task of a cluster.

  The session does not wait for other workers. If a parameter server restarts,
  the chief restores the newest checkpoint, and training goes on with the next
  step. What the tasks trained since that checkpoint is lost.

  With a `SyncReplicasOptimizer`, `limit` must be longer than the slowest worker
  takes for a step, and than the tasks take to start.

  Args:
    server: The task's `tf.compat.v1.train.Server`.
    is_chief: Whether this task initializes or restores the variables and writes
      checkpoints.
    checkpoint_dir: The chief's folder of checkpoints; None for no checkpoints.
    save_steps: After how many global steps the chief writes a checkpoint.
    save_seconds: After how many seconds the chief writes a checkpoint; 600 if
      `save_steps` is None, too.
    hooks: Further hooks of the session, such as that of a
      `SyncReplicasOptimizer`.
    scaffold: A `tf.compat.v1.train.Scaffold`, or None for a new one.
    config: Further settings of the session, or None. Settings of device filters
      and of the timeout stay as they are.
    limit: The most seconds that a step, a checkpoint or a hook's call of the
      session may take, and that the session may take to train again.

  Yields:
    A `tf.compat.v1.train.MonitoredSession`.

  Raises:
    tf.errors.DeadlineExceededError: A wait was longer than `limit`. The message
      says what the session waited for.
    tf.errors.AbortedError, tf.errors.UnavailableError: A parameter server was
      lost after training, when the hooks ended. The message names the server.
    RuntimeError: The chief's scaffold leaves variables uninitialized.
    ValueError: `limit` is not above 0, or both `save_steps` and `save_seconds`
      are given.
  """
  if not limit > 0:
    raise ValueError(f"limit must be above 0 seconds, but got {limit!r}.")
  if save_steps is not None and save_seconds is not None:
    raise ValueError(
      "save_steps and save_seconds must not be given both, but got "
      f"{save_steps!r} and {save_seconds!r}."
    )
  config = _complete(config, server.server_def, limit)
  folder = None if checkpoint_dir is None else os.fspath(checkpoint_dir)
  scaffold = scaffold or _train.Scaffold()
  hooks = list(hooks)
  if is_chief and folder is not None:
    if save_steps is None and save_seconds is None:
      save_seconds = 600
    hooks.append(
      _train.CheckpointSaverHook(
        folder, save_seconds, save_steps, scaffold=scaffold
      )
    )
  make: Callable[..., _Creator] = _Chief if is_chief else _Worker
  creator = make(scaffold, server, config, folder, limit)
  hooks.append(_StepHook(creator))
  with contextlib.closing(creator), _explain(creator):
    session = _train.MonitoredSession(
      creator, hooks, stop_grace_period_secs=min(limit, 10)
    )
    creator.note_step()
    with session:
      yield session
      creator.is_at_end = True


def _complete(
  config: tf.compat.v1.ConfigProto | None, server_def: Any, limit: float
) -> tf.compat.v1.ConfigProto:
  """Returns settings with a timeout and with device filters.

  Without filters, a new session waits until all tasks of the cluster reply.
  """
  complete = tf.compat.v1.ConfigProto()
  if config is not None:
    complete.CopyFrom(config)
  if not complete.operation_timeout_in_ms:
    complete.operation_timeout_in_ms = max(1, int(limit * 1000))
  if not complete.device_filters:
    complete.device_filters.extend(_name_servers(server_def))
    complete.device_filters.append(_name_task(server_def))
  return complete


def _name_servers(server_def: Any) -> list[str]:
  """Returns the devices of the jobs that serve variables."""
  jobs = [job.name for job in server_def.cluster.job]
  return [f"/job:{job}" for job in jobs if job not in _JOBS_WITH_SESSIONS]


def _name_task(server_def: Any) -> str:
  """Returns the devices of a server's own task."""
  return f"/job:{server_def.job_name}/task:{server_def.task_index}"


class _Session(tf.compat.v1.Session):
  """A session whose calls return in time, also if a server is gone.

  After `operation_timeout_in_ms`, TensorFlow cancels a call, and then waits
  until the call has ended. If a server does not reply, three calls never end:
  the first one of a session, the first one of other fetches, and `close`. They
  wait in C++, where no signal ends them, either. So each call runs in a thread,
  which is given up.
  """

  def __init__(
    self, target: str, graph: tf.Graph, config: tf.compat.v1.ConfigProto
  ) -> None:
    self._is_over = self._is_stuck = False
    self.lost: tf.errors.OpError | None = None
    self._seconds = config.operation_timeout_in_ms / 1000
    self.until: float | None = None  # When the creation must be complete.
    super().__init__(target, graph, config)

  def run(
    self,
    fetches: Any,
    feed_dict: Any = None,
    options: Any = None,
    run_metadata: Any = None,
  ) -> Any:
    """Runs ops as `tf.compat.v1.Session` does, with a limit."""
    seconds = self._seconds
    if options is not None and options.timeout_in_ms:
      seconds = options.timeout_in_ms / 1000
    if self.until is not None:
      seconds = min(seconds, max(self.until - time.monotonic(), 0.1))
    run = super().run
    try:
      with _raise_lost():
        return _call_in_thread(
          lambda: run(fetches, feed_dict, options, run_metadata), seconds
        )
    except (tf.errors.DeadlineExceededError, *_LOST) as error:
      self._is_stuck = True
      # An error holds frames, and these hold this session.
      self.lost = type(error)(None, None, error.message)
      raise
    except (KeyboardInterrupt, SystemExit):
      self._is_stuck = True
      raise

  def close(self) -> None:
    """Closes the session; does not wait for servers that are gone."""
    if self._is_over:
      return
    self._is_over = True
    seconds = 0.0 if self._is_stuck else min(self._seconds, 5.0)
    with contextlib.suppress(tf.errors.DeadlineExceededError):
      _call_in_thread(super().close, seconds)

  def __del__(self) -> None:
    # `Session` would close here, and delete what a thread still closes. A
    # thread that was given up keeps this object until the thread's end.
    if self._is_over:
      super().__del__()


class _Creator(_train.SessionCreator):
  """Creates sessions, and gives up after a time.

  `MonitoredSession` asks again for ever if the error is one of `_LOST`.

  Attributes:
    is_at_end: Whether the program has left the `with` statement.
  """

  def __init__(
    self,
    scaffold: Any,
    server: Any,
    config: tf.compat.v1.ConfigProto,
    folder: str | None,
    limit: float,
  ) -> None:
    self._scaffold, self._target, self._config = scaffold, server.target, config
    self._folder, self._limit = folder, limit
    self._session: _Session | None = None
    self._until: float | None = None
    self._lost: tf.errors.OpError | None = None
    self._begun = 0  # Sessions since the last step.
    self._has_given_up = self.is_at_end = False
    self._task = _name_task(server.server_def)
    self._jobs = ", ".join(_name_servers(server.server_def))
    self._addresses = [
      address
      for job in server.server_def.cluster.job
      if job.name not in _JOBS_WITH_SESSIONS
      for _, address in sorted(job.tasks.items())
    ]

  def create_session(self) -> Any:
    """Returns a new session.

    Raises:
      tf.errors.DeadlineExceededError: The time is over.
    """
    self.close()
    if self._until is None:
      self._until = time.monotonic() + self._limit
    elif time.monotonic() < self._until:
      time.sleep(min(0.5, self._limit / 10))
    else:
      raise self._give_up("The time is over.")
    self._waits_for = self._name_servers()
    self._scaffold.finalize()
    session = self._session = _Session(
      self._target, tf.compat.v1.get_default_graph(), self._config
    )
    session.until = self._until
    try:
      self._find_missing(session, self._scaffold.ready_for_local_init_op)
      self._prepare(session, self._until)
    except tf.errors.DeadlineExceededError as error:
      raise self._give_up(error.message) from error
    session.until = None
    self._begun += 1
    return session

  def note_step(self) -> None:
    """Begins a new limit, because training goes on."""
    self._until, self._lost, self._begun = None, None, 0

  def close(self) -> None:
    """Closes the last session, also one that no `MonitoredSession` got."""
    if self._session is not None:
      self._lost = self._session.lost or self._lost
      self._session.close()

  def _prepare(self, session: _Session, until: float) -> None:
    """Waits until a new session may train."""
    raise NotImplementedError

  def _make_ready(self, session: _Session) -> str:
    """Initializes local variables; returns what is still not initialized."""
    scaffold = self._scaffold
    missing = self._find_missing(session, scaffold.ready_for_local_init_op)
    if not missing:
      if scaffold.local_init_op is not None:
        session.run(scaffold.local_init_op, scaffold.local_init_feed_dict)
      missing = self._find_missing(session, scaffold.ready_op)
    return missing

  def _find_missing(self, session: _Session, op: Any) -> str:
    """Returns the names of variables that an op reports as missing."""
    if op is None:
      return ""
    try:
      names = session.run(op)
    except tf.errors.FailedPreconditionError as error:
      if "uninitialized" not in error.message:
        raise
      return error.message
    # The user's own op may return anything: it is enough that the op runs.
    if names is None or np.asarray(names).dtype.kind not in "OSU":
      return ""
    return ", ".join(tf.compat.as_text(name) for name in np.ravel(names))

  def _name_servers(self) -> str:
    addresses = ", ".join(self._addresses)
    return f"{self._jobs or 'the other tasks'} ({addresses})"

  def _give_up(self, reason: str) -> tf.errors.OpError:
    self._has_given_up = True
    if self._begun:
      reason += f" Sessions that were lost before a step ended: {self._begun}."
    if self._lost is not None:
      reason += f" The last error: {self._lost.message}"
    silent = _name_silent(self._addresses)
    return tf.errors.DeadlineExceededError(
      None,
      None,
      f"{self._task} got no session that trains within {self._limit:g} "
      f"seconds: it waited for {self._waits_for}.{silent} Start the tasks that "
      "are gone, then this task; it resumes from the newest checkpoint. "
      f"{reason}",
    )

  def explain(self, error: tf.errors.OpError) -> tf.errors.OpError:
    """Returns an error that says what a session waited for."""
    if self._has_given_up:
      return error
    silent = _name_silent(self._addresses)
    if isinstance(error, tf.errors.DeadlineExceededError):
      what = "The end" if self.is_at_end else "A step"
      return tf.errors.DeadlineExceededError(
        None,
        None,
        f"{what} of {self._task} took more than {self._limit:g} seconds: it "
        f"waited for {self._name_servers()}, or, with a SyncReplicasOptimizer, "
        f"for gradients of the other workers.{silent} If all tasks run, pass a "
        f"higher limit. The error: {error.message}",
      )
    return type(error)(
      None,
      None,
      f"{self._task} lost {self._name_servers()} at its end: steps since the "
      f"newest checkpoint may not be saved.{silent} Start the tasks that are "
      f"gone, then this task. The error: {error.message}",
    )


class _Chief(_Creator):
  """Creates sessions, and restores or initializes the variables."""

  def _prepare(self, session: _Session, until: float) -> None:
    scaffold, state = self._scaffold, None
    if self._folder is not None:
      state = tf.train.get_checkpoint_state(self._folder)
    if state is not None and state.model_checkpoint_path:
      path = state.model_checkpoint_path
      self._waits_for = f"{self._name_servers()} to restore {path}"
      # TensorFlow does so in this order: a Saver does not restore what a
      # SavedModel has initialized.
      of_models = session.graph.get_collection("saved_model_initializers")
      if of_models:
        session.run(of_models)
      scaffold.saver.restore(session, path)
      scaffold.saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
    else:
      self._waits_for = f"{self._name_servers()} to initialize the variables"
      if scaffold.init_op is not None:
        session.run(scaffold.init_op, scaffold.init_feed_dict)
      if scaffold.init_fn is not None:
        scaffold.init_fn(session)
    missing = self._make_ready(session)
    if missing:
      raise RuntimeError(
        "The chief must initialize or restore all variables, but these are not "
        f"initialized: {missing}. Pass a scaffold whose init_op, init_fn or "
        "saver has them."
      )


class _Worker(_Creator):
  """Creates sessions when the chief has initialized the variables.

  `tf.compat.v1.train.WorkerSessionCreator` looks every 30 seconds only.
  """

  def _prepare(self, session: _Session, until: float) -> None:
    while missing := self._make_ready(session):
      self._waits_for = (
        f"the chief to initialize the variables {_shorten(missing)} in "
        f"{self._name_servers()}"
      )
      pause = min(1.0, self._limit / 10)
      if time.monotonic() + pause > until:
        raise tf.errors.DeadlineExceededError(
          None, None, "Variables are not initialized."
        )
      time.sleep(pause)
      self._waits_for = self._name_servers()


@contextlib.contextmanager
def _raise_lost() -> Iterator[None]:
  """Makes the error of a step that a lost server cancelled one of `_LOST`."""
  try:
    yield
  except tf.errors.CancelledError as error:
    if not _CANCELLED_BY_LOSS.search(error.message):
      raise
    raise tf.errors.AbortedError(
      error.node_def, error.op, error.message
    ) from error


class _StepHook(_train.SessionRunHook):
  """Tells a creator of sessions that a step was done."""

  def __init__(self, creator: _Creator) -> None:
    self._creator = creator

  def after_run(self, run_context: Any, run_values: Any) -> None:
    """Begins a new limit."""
    self._creator.note_step()


def _shorten(text: str) -> str:
  """Returns the beginning of a text."""
  return text if len(text) <= 200 else f"{text[:200]}…"


def _name_silent(addresses: list[str]) -> str:
  """Returns a sentence about addresses where no process listens."""
  silent, until = [], time.monotonic() + 2
  for address in addresses:
    host, _, port = address.rpartition(":")
    left = until - time.monotonic()
    if not port.isdecimal() or not int(port) or left <= 0:
      continue
    try:
      socket.create_connection((host.strip("[]"), int(port)), left).close()
    except OSError:
      silent.append(address)
  return f" No process listens at {', '.join(silent)}." if silent else ""


def _call_in_thread(function: Callable[[], Any], seconds: float) -> Any:
  """Calls a function in a thread, and gives up the thread after some seconds.

  Raises:
    tf.errors.DeadlineExceededError: The function has not returned.
  """
  results: queue.SimpleQueue[tuple[Any, BaseException | None]] = (
    queue.SimpleQueue()
  )

  def call() -> None:
    try:
      results.put((function(), None))
    except BaseException as error:
      results.put((None, error))

  threading.Thread(target=call, daemon=True).start()
  try:
    result, error = results.get(timeout=seconds)
  except queue.Empty:
    raise tf.errors.DeadlineExceededError(
      None, None, "TensorFlow still waits for a reply."
    ) from None
  if error is not None:
    raise error
  return result


@contextlib.contextmanager
def _explain(creator: _Creator) -> Iterator[None]:
  """Makes errors of waits and of the end say what a session waited for."""
  try:
    yield
  except tf.errors.DeadlineExceededError as error:
    raise creator.explain(error) from error
  except _LOST as error:
    if not creator.is_at_end:
      raise
    raise creator.explain(error) from error
