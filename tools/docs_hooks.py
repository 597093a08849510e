# SPDX-License-Identifier: Apache-2.0
"""Puts the command line's help into the documentation, for `make docs`."""

import os
import re
import subprocess
import sys


def on_page_markdown(markdown: str, **_: object) -> str:
  """Replaces each line `{help COMMAND}` by what `COMMAND --help` prints."""
  return re.sub(r"^\{help(.*)\}$", _read_help, markdown, flags=re.MULTILINE)


def _read_help(match: re.Match[str]) -> str:
  command = [sys.executable, "-m", "tf_compat_lossscale", *match[1].split()]
  printed = subprocess.run(
    [*command, "--help"],
    capture_output=True,
    check=True,
    env={**os.environ, "COLUMNS": "80"},
    text=True,
  )
  return f"```text\n{printed.stdout}```"
