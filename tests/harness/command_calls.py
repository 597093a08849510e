# SPDX-License-Identifier: Apache-2.0
"""Calls the command line in the process of the tests."""

import io
import sys
from typing import Any

from tf_compat_lossscale.cli import main


def call(capsys: Any, *argv: str) -> tuple[int, str, str]:
  """Calls `tf-lossscale`; returns the status and both streams."""
  try:
    status = main.main(argv)
  except SystemExit as exit_:
    status = exit_.code
  return status, *capsys.readouterr()


def pipe(monkeypatch: Any, text: str) -> None:
  """Makes a text the standard input."""
  data = io.BytesIO(text.encode())
  monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data, "utf-8"))
