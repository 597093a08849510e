# SPDX-License-Identifier: Apache-2.0
"""Runs commands on a pseudo-terminal, as a person would."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import helpers


def read_all(outer: int) -> str:
  """Returns what was written to a terminal until it was closed, and closes it.

  Args:
    outer: The first descriptor of `os.openpty`.
  """
  parts = []
  while True:
    try:
      part = os.read(outer, 1 << 16)
    except OSError:  # Linux says so if the other end is closed.
      break
    if not part:
      break
    parts.append(part)
  os.close(outer)
  return b"".join(parts).decode("utf-8").replace("\r\n", "\n")


def run(
  *argv: str, cwd: Any, piped: bool = False, **env: str
) -> tuple[int, str, str]:
  """Runs `tf-lossscale` on a terminal.

  Args:
    *argv: The arguments.
    cwd: The folder to run in.
    piped: Whether standard output is a pipe, and standard error alone is the
      terminal.
    **env: Variables to add to the environment.

  Returns:
    The status, what the pipe got, and what the terminal got.
  """
  outer, inner = os.openpty()
  variables = {"PYTHONPATH": str(helpers.ROOT), "TERM": "xterm-256color"}
  inherited = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
  with subprocess.Popen(
    [sys.executable, "-m", "tf_compat_lossscale", *argv],
    stdin=inner,
    stdout=subprocess.PIPE if piped else inner,
    stderr=inner,
    cwd=cwd,
    env=inherited | variables | env,
    text=True,
  ) as process:
    os.close(inner)
    shown = read_all(outer)
    text = process.stdout.read() if process.stdout else ""
    return process.wait(60), text, shown
