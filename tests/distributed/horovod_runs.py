# SPDX-License-Identifier: Apache-2.0
"""Starts programs by horovodrun, bounded in time, and stops all that it began.

A test module that imports this is marked `machines`, and is skipped if Horovod
is not installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import helpers
import numpy as np
import pytest

NEEDS_HOROVOD = pytest.mark.skipif(
  importlib.util.find_spec("horovod") is None,
  reason="needs Horovod: make machines",
)
MARKS = [pytest.mark.machines, NEEDS_HOROVOD]

WORKER = helpers.TESTS / "distributed" / "horovod_worker.py"

# `horovodrun` without its look whether Horovod is built with Gloo: that imports
# TensorFlow, for three seconds of CPU time.
_LAUNCHER = """
from horovod.runner import launch
launch.gloo_built = lambda verbose: True
launch.run_commandline()
"""


def make_environment(**env: str) -> dict[str, str]:
  """Returns the environment of a launcher: no rank waits for long."""
  return {
    **os.environ,
    "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONPATH": f"{helpers.ROOT}:{helpers.HARNESS}",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "20",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "5",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "10",
    "HOROVOD_CYCLE_TIME": "0.2",
    **env,
  }


def start(
  folder: pathlib.Path, ranks: int, *args: str, log: Any, **env: str
) -> subprocess.Popen[bytes]:
  """Starts `horovodrun` for a Python program with arguments.

  Args:
    folder: The folder of the run, where ranks write their process ids.
    ranks: The number of ranks.
    *args: The arguments of Python.
    log: The open file to write the output to.
    **env: Variables to add to the environment.
  """
  command = [sys.executable, "-c", _LAUNCHER, "-np", str(ranks), "--gloo"]
  command += ["-H", f"localhost:{ranks}", sys.executable, *args]
  return subprocess.Popen(
    command,
    cwd=folder,
    env=make_environment(**env),
    stdin=subprocess.DEVNULL,
    stdout=log,
    stderr=subprocess.STDOUT,
    start_new_session=True,
  )


def stop(process: subprocess.Popen[bytes], folder: pathlib.Path) -> None:
  """Ends a launcher and its ranks, if they have not ended by themselves."""
  if process.poll() is None:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)
    process.wait()
  for path in folder.glob("*.pid"):
    _kill_rank(path)


def _kill_rank(path: pathlib.Path) -> None:
  """Kills the rank whose process id a file has, if it is one of that folder."""
  text = path.read_text("utf-8")
  with contextlib.suppress(OSError, ValueError):
    command = pathlib.Path(f"/proc/{int(text)}/cmdline").read_bytes()
    if str(path.parent).encode() in command:
      os.kill(int(text), signal.SIGKILL)


def complete(
  folder: pathlib.Path, ranks: int, *args: str, timeout: float = 120, **env: str
) -> tuple[int, str]:
  """Runs `horovodrun` to its end; returns the status and the output."""
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / "log.txt"
  with open(path, "wb") as log:
    process = start(folder, ranks, *args, log=log, **env)
    try:
      status = process.wait(timeout)
    except subprocess.TimeoutExpired:
      pytest.fail(
        f"horovodrun took over {timeout} seconds:\n{path.read_text('utf-8')}"
      )
    finally:
      stop(process, folder)
  return status, path.read_text("utf-8")


def run_task(
  folder: pathlib.Path,
  ranks: int,
  task: str,
  timeout: float = 240,
  **env: str,
) -> list[dict[str, np.ndarray]]:
  """Runs a task of horovod_worker.py; returns the results of each rank."""
  args = (str(WORKER), task, str(folder))
  status, log = complete(folder, ranks, *args, timeout=timeout, **env)
  assert status == 0, log
  return [dict(np.load(folder / f"{rank}.npz")) for rank in range(ranks)]
