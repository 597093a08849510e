# SPDX-License-Identifier: Apache-2.0
"""Makes Python 3 of programs that are Python 2."""

import pathlib
import subprocess
import sys

REMARK = "2to3 makes Python 3 of it"


def convert(folder: pathlib.Path, *fixers: str) -> None:
  """Converts the modules of a folder, by all of 2to3's fixers or by some."""
  sources = sorted(map(str, folder.glob("*.py")))
  command = (sys.executable, "-m", "lib2to3", "--write", "--nobackups")
  options = (f"--fix={fixer}" for fixer in fixers)
  subprocess.run(
    [*command, *options, *sources], check=True, capture_output=True
  )
