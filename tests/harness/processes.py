# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests that start processes and threads, bounded in time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
import ctypes
import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from typing import Any

import forks
import helpers
import pytest


def _environment(env: dict[str, str]) -> dict[str, str]:
  """Returns the environment with `env`, and paths to the package and tests."""
  return {
    **os.environ,
    "PYTHONPATH": f"{helpers.ROOT}:{helpers.HARNESS}",
    **env,
  }


def run_python(
  *args: str, timeout: float = 300, cwd: Any = helpers.ROOT, **env: str
) -> str:
  """Runs Python on `args` in a process of its own; returns standard output.

  Importing TensorFlow costs such a process five seconds. Use `run_forked` or
  `run_alone`, unless the test is about importing or starting: which modules
  get loaded and when, options of the interpreter, `sys.executable`.
  """
  done = subprocess.run(
    [sys.executable, *args],
    capture_output=True,
    cwd=cwd,
    env=_environment(env),
    text=True,
    timeout=timeout,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  return done.stdout


def start_forked(
  *args: str, stdout: Any, stderr: Any, cwd: Any = helpers.ROOT, **env: str
) -> forks.Forked:
  """Starts Python on `args` as `run_forked` does, for tests that kill it.

  Use the result, which has `pid`, `poll`, `wait` and `kill` as a
  `subprocess.Popen` has, in a `with` statement, which kills it at the end.
  """
  return forks.start(
    *args, env=_environment(env), cwd=cwd, stdout=stdout, stderr=stderr
  )


def run_forked(
  *args: str, timeout: float = 300, cwd: Any = helpers.ROOT, **env: str
) -> str:
  """Runs Python as `run_python` does, but starts 50 times as fast.

  The process is forked from a server that has imported TensorFlow, NumPy and
  pytest but has not started TensorFlow. So the process has its own TensorFlow
  runtime, with devices, behaviours and memory as in a new process. The process
  has no module of this process and none of the package.

  Variables that begin with TF_, TF2_, KERAS_ or PYTHON may be read while
  TensorFlow is imported. So each combination of their values has a server of
  its own, which takes five seconds to start.

  At the end, the process calls no `atexit` functions and waits for no threads.

  Args:
    *args: `-c CODE ARGS...`, `-m MODULE ARGS...` or `SCRIPT ARGS...`.
    timeout: Seconds after which the process is killed and the test fails.
    cwd: The folder to run in.
    **env: Variables to add to the environment.

  Returns:
    What the process printed to standard output.
  """
  done = complete_forked(*args, timeout=timeout, cwd=cwd, **env)
  assert done.returncode == 0, (
    f"Exit status: {done.returncode}\n{done.stdout}{done.stderr}"
  )
  return done.stdout


def complete_forked(
  *args: str, timeout: float = 300, cwd: Any = helpers.ROOT, **env: str
) -> subprocess.CompletedProcess[str]:
  """Runs Python as `run_forked` does, whatever the exit status."""
  with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
    with start_forked(*args, stdout=out, stderr=err, cwd=cwd, **env) as process:
      try:
        status = process.wait(timeout)
      except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        status = None
    out.seek(0)
    err.seek(0)
    printed, errors = out.read().decode(), err.read().decode()
  assert status is not None, (
    f"Killed after {timeout} seconds\n{printed}{errors}"
  )
  return subprocess.CompletedProcess(args, status, printed, errors)


def run_once(
  factory: pytest.TempPathFactory, *args: str, timeout: float = 300, **env: str
) -> str:
  """Runs `run_forked` once for all of pytest's workers; returns the output.

  The first argument is pytest's fixture `tmp_path_factory`.
  """
  folder = factory.getbasetemp()
  if "PYTEST_XDIST_WORKER" in os.environ:
    folder = folder.parent  # All workers share this folder.
  parts = [*args, *map("=".join, sorted(env.items()))]
  name = hashlib.sha256("\0".join(parts).encode()).hexdigest()
  path = folder / name
  with open(folder / f"{name}.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not path.exists():
      printed = run_forked(*args, timeout=timeout, **env)
      path.write_text(printed, "utf-8")
  return path.read_text("utf-8")


def run_alone(
  function: Callable[[], None], timeout: float = 300, **env: str
) -> None:
  """Runs a function of a test module as `run_forked` does."""
  code = import_line(function.__code__.co_filename)
  code += f"test.{function.__name__}()"
  print(run_forked("-c", code, timeout=timeout, **env))


def import_line(path: str) -> str:
  """Returns code that imports the test module of a file as `test`."""
  file = pathlib.Path(path)
  return (
    f"import sys; sys.path.append({str(file.parent)!r}); "
    f"import {file.stem} as test\n"
  )


def resident_memory() -> int:
  """Returns the bytes of memory that this process holds.

  Memory that the allocator keeps for later is first given back to the system,
  because it is no growth of the program.
  """
  ctypes.CDLL("libc.so.6").malloc_trim(0)
  pages = int(pathlib.Path("/proc/self/statm").read_text("ascii").split()[1])
  return pages * os.sysconf("SC_PAGE_SIZE")


def in_threads(function: Callable[[int], Any], count: int) -> list[Any]:
  """Calls a function with 0, 1, … in threads at once; returns all results."""
  barrier = threading.Barrier(count, timeout=60)

  def call(i: int) -> Any:
    barrier.wait()
    return function(i)

  with futures.ThreadPoolExecutor(count) as pool:
    return list(pool.map(call, range(count), timeout=240))
