# SPDX-License-Identifier: Apache-2.0
"""Starts programs by horovodrun, bounded in time, and ends what it began."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

import helpers
import pytest

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
  folder: pathlib.Path, *args: str, timeout: float = 120
) -> tuple[int, str]:
  """Runs Python on two ranks to their end; returns the status and the output.

  The ranks write their process ids into the folder.
  """
  command = [sys.executable, "-c", _LAUNCHER, "-np", "2", "--gloo"]
  command += ["-H", "localhost:2", sys.executable, *args]
  path = folder / "log.txt"
  with open(path, "wb") as log:
    process = subprocess.Popen(
      command,
      cwd=folder,
      env=make_environment(),
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=subprocess.STDOUT,
      start_new_session=True,
    )
    try:
      status = process.wait(timeout)
    except subprocess.TimeoutExpired:
      pytest.fail(
        f"horovodrun took over {timeout} seconds:\n{path.read_text('utf-8')}"
      )
    finally:
      stop(process, folder)
  return status, path.read_text("utf-8")
