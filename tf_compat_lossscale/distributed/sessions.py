# SPDX-License-Identifier: Apache-2.0
"""Sessions of a cluster with parameter servers, with a limit to each wait.

`tf.compat.v1.train.MonitoredTrainingSession` waits without a limit in four
places if a task of the cluster is gone: a new session waits for all tasks of
the cluster, also for other workers; a step waits for a reply of a parameter
server; a session that cannot be created is tried again for ever; and a worker
waits for the chief for half an hour.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import os
import queue
import threading
import time
from typing import Any

import tensorflow.compat.v2 as tf

__all__ = ["open_session"]

_train: Any = tf.compat.v1.train

# The jobs whose tasks run sessions. All other jobs serve them.
_JOBS_WITH_SESSIONS = ("chief", "evaluator", "master", "worker")
_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError)


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
    limit: The most seconds that a step may take, and that the session may take
      to be ready again.

  Yields:
    A `tf.compat.v1.train.MonitoredSession`.

  Raises:
    tf.errors.DeadlineExceededError: A wait was longer than `limit`. The message
      says what the session waited for.
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
  inner: Any
  if is_chief:
    inner = _train.ChiefSessionCreator(
      scaffold, server.target, config, checkpoint_dir=folder
    )
    if folder is not None:
      if save_steps is None and save_seconds is None:
        save_seconds = 600
      hooks.append(
        _train.CheckpointSaverHook(
          folder, save_seconds, save_steps, scaffold=scaffold
        )
      )
  else:
    inner = _WorkerCreator(scaffold, server.target, config, limit)
  creator = _LimitedCreator(inner, scaffold, server.server_def, is_chief, limit)
  with _explain_late_steps(creator, limit):
    session = _train.MonitoredSession(
      creator, hooks, stop_grace_period_secs=min(limit, 10)
    )
    with session:
      yield session


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


class _WorkerCreator(_train.SessionCreator):
  """Creates sessions when the chief has initialized the variables.

  `tf.compat.v1.train.WorkerSessionCreator` looks every 30 seconds only.
  """

  def __init__(
    self,
    scaffold: Any,
    target: str,
    config: tf.compat.v1.ConfigProto,
    limit: float,
  ) -> None:
    self._scaffold, self._target = scaffold, target
    self._config, self._limit = config, limit

  def create_session(self) -> Any:
    """Returns a new session."""
    manager = _train.SessionManager(
      local_init_op=self._scaffold.local_init_op,
      ready_op=self._scaffold.ready_op,
      ready_for_local_init_op=self._scaffold.ready_for_local_init_op,
      graph=tf.compat.v1.get_default_graph(),
      recovery_wait_secs=min(1.0, self._limit / 10),
    )
    return manager.wait_for_session(
      self._target, config=self._config, max_wait_secs=self._limit
    )


class _LimitedCreator(_train.SessionCreator):
  """Creates sessions, and gives up after a time.

  `MonitoredSession` asks again for ever if the error is one of `_LOST`.
  """

  def __init__(
    self,
    inner: Any,
    scaffold: Any,
    server_def: Any,
    is_chief: bool,
    limit: float,
  ) -> None:
    self._inner, self._limit = inner, limit
    self._since: float | None = None
    self.has_given_up = False
    self._scaffold = scaffold
    servers = ", ".join(_name_servers(server_def)) or "the other tasks"
    addresses = [
      address
      for job in server_def.cluster.job
      if job.name not in _JOBS_WITH_SESSIONS
      for _, address in sorted(job.tasks.items())
    ]
    self.task = _name_task(server_def)
    self.servers = f"{servers} ({', '.join(addresses)})"
    self._waits_for = self.servers
    if not is_chief:
      self._waits_for += ", and for the chief to initialize the variables"

  def create_session(self) -> Any:
    """Returns a new session.

    Raises:
      tf.errors.DeadlineExceededError: The time is over.
    """
    if self._since is None:
      self._since = time.monotonic()
    self._graph = tf.compat.v1.get_default_graph()
    self._scaffold.finalize()  # Here, because device scopes belong to a thread.
    try:
      left = self._since + self._limit - time.monotonic()
      session = _call_in_thread(self._create, max(left, 0.1))
    except _LOST as error:
      if time.monotonic() - self._since < self._limit:
        time.sleep(min(0.5, self._limit / 10))
        raise
      raise self._give_up(error) from error
    except tf.errors.DeadlineExceededError as error:
      raise self._give_up(error) from error
    self._since = None
    return session

  def _create(self) -> Any:
    with self._graph.as_default():
      return self._inner.create_session()

  def _give_up(self, error: tf.errors.OpError) -> tf.errors.OpError:
    self.has_given_up = True
    return tf.errors.DeadlineExceededError(
      None,
      None,
      f"{self.task} got no session within {self._limit:g} seconds: it waited "
      f"for {self._waits_for}. Start the tasks that are gone, then this task; "
      f"it resumes from the newest checkpoint. The last error: {error.message}",
    )


def _call_in_thread(function: Callable[[], Any], seconds: float) -> Any:
  """Calls a function in a thread, and gives up the thread after some seconds.

  TensorFlow waits for a parameter server in C++ when it creates a session, and
  neither a timeout nor a signal ends that wait.

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
      None, None, "TensorFlow still creates the session."
    ) from None
  if error is not None:
    raise error
  return result


@contextlib.contextmanager
def _explain_late_steps(
  creator: _LimitedCreator, limit: float
) -> Iterator[Any]:
  """Makes the error of a step that takes too long say so."""
  try:
    yield
  except tf.errors.DeadlineExceededError as error:
    if creator.has_given_up:
      raise
    raise tf.errors.DeadlineExceededError(
      None,
      None,
      f"A step of {creator.task} took more than {limit:g} seconds: it waited "
      f"for {creator.servers}, or, with a SyncReplicasOptimizer, for gradients "
      "of the other workers. If all tasks run, pass a higher limit. The error: "
      f"{error.message}",
    ) from error
