# SPDX-License-Identifier: Apache-2.0
"""Runs a function in several processes."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import multiprocessing
import os
import signal
import sys
from typing import Any
from typing import TypeVar

_Arguments = TypeVar("_Arguments", bound=tuple[Any, ...])
_Result = TypeVar("_Result")

# Fewer calls take less time than starting processes.
_FEW = 4


def run(
  function: Callable[..., _Result],
  calls: Sequence[_Arguments],
  jobs: int | None = None,
) -> Iterator[tuple[_Arguments, _Result]]:
  """Calls a function several times; yields each call and its result.

  Args:
    function: The function.
    calls: The arguments of each call.
    jobs: The number of processes; None for one for each core.
  """
  count = min(jobs or _count_cores(), len(calls))
  if count < 2 or (jobs is None and len(calls) < _FEW) or not _can_fork():
    for arguments in calls:
      yield arguments, function(*arguments)
    return
  executor = futures.ProcessPoolExecutor(
    count, multiprocessing.get_context("fork"), _ignore_interrupts
  )
  try:
    # Ctrl-C in the middle of a fork would print what Python then ignores.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
      waiting = {executor.submit(function, *each): each for each in calls}
    finally:
      signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for future in futures.as_completed(waiting):
      yield waiting[future], future.result()
  except BaseException:
    # After Ctrl-C, nothing waits for the calls that run.
    for process in multiprocessing.active_children():
      process.terminate()
    raise
  finally:
    executor.shutdown(wait=True, cancel_futures=True)


def _ignore_interrupts() -> None:
  """Leaves Ctrl-C to the process that started this one."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)


def _can_fork() -> bool:
  """Returns whether a fork of this process would work as it should."""
  return sys.platform == "linux" and "tensorflow" not in sys.modules


def _count_cores() -> int:
  """Returns the number of cores that this process may use."""
  return len(os.sched_getaffinity(0)) if _can_fork() else os.cpu_count() or 1
