# SPDX-License-Identifier: Apache-2.0
"""Runs Python in separate processes, and reads the memory of a process."""

from __future__ import annotations

import os
import subprocess
import sys


def python(*args: str) -> str:
  """Runs Python with `args`; returns its standard output.

  Raises:
    subprocess.CalledProcessError: The exit status is not 0.
  """
  return subprocess.run(
    [sys.executable, *args],
    check=True,
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    stderr=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    text=True,
  ).stdout


def peak() -> int:
  """Returns the most bytes of memory that this process has held.

  `getrusage` would also count what the process held before its `exec`.
  """
  with open("/proc/self/status", encoding="ascii") as file:
    (line,) = (line for line in file if line.startswith("VmHWM:"))
  return int(line.split()[1]) << 10
