# SPDX-License-Identifier: Apache-2.0
"""Python in processes of their own, and what a process holds."""

from __future__ import annotations

import os
import resource
import subprocess
import sys


def python(*args: str) -> str:
  """Runs Python with these arguments; returns what it prints.

  Raises:
    subprocess.CalledProcessError: It fails.
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
  """Bytes of memory that this process held at most.

  Not `getrusage`'s, which counts what the process was before it became another
  program.
  """
  with open("/proc/self/status", encoding="ascii") as file:
    (line,) = (line for line in file if line.startswith("VmHWM:"))
  return int(line.split()[1]) << 10


def resident() -> int:
  """Bytes of memory that this process holds now."""
  with open("/proc/self/statm", encoding="ascii") as file:
    return int(file.read().split()[1]) * resource.getpagesize()
