# SPDX-License-Identifier: Apache-2.0
"""Lists the text files of the project, for tests that check all of them."""

from collections.abc import Iterator
import pathlib
import shutil
import subprocess

import helpers
import pytest


def text_files() -> Iterator[tuple[pathlib.Path, str]]:
  """Yields (path, text) of the text files that git tracks."""
  if not (helpers.ROOT / ".git").exists():
    pytest.skip("this is no git checkout, so nothing says what is tracked")
  if shutil.which("git") is None:
    pytest.skip("git is not installed")
  listed = subprocess.run(
    # In a container, another user than the tests' may own the checkout.
    ["git", "-c", "safe.directory=*", "ls-files", "-z"],
    capture_output=True,
    check=True,
    cwd=helpers.ROOT,
  )
  for name in listed.stdout.decode("utf-8").split("\0"):
    path = helpers.ROOT / name
    if path.is_file():
      data = path.read_bytes()
      if b"\0" not in data:
        yield path, data.decode("utf-8", "replace")
