# SPDX-License-Identifier: Apache-2.0
"""Tests diffs: `git apply` has to understand them, whatever the bytes."""

import subprocess

import helpers
import pytest

from tf_compat_lossscale.cli import diffs

pytestmark = pytest.mark.any_release


@pytest.mark.parametrize(
  ("before", "after"),
  [
    (b"a\nb\nc\n", b"a\nB\nc\n"),
    (b"a\nb", b"a\nB"),
    (b"a\nb", b"a\nb\n"),
    (b"a\nb\n", b"a\nb"),
    (b"a\r\nb\r\n", b"A\r\nb\r\n"),
    (b"a\rb\rc", b"a\rB\rc"),
    (b"a\n\x0c\nb\x1c\n", b"a\n\x0c\nB\x1c\n"),
    ("x = 'ü'  # \u2028\n".encode(), "y = 'ü'  # \u2028\n".encode()),
    ("x = 'ü'\n".encode("latin-1"), "y = 'ü'\n".encode("latin-1")),
    (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\na\n"),
    (b"\n" * 50 + b"a\n" + b"\n" * 50, b"x\n" + b"\n" * 50 + b"b\n" * 50),
  ],
)
@pytest.mark.parametrize("name", ["a.py", "a b/ü.py"])
def test_git_understands_diffs(before, after, name, tmp_path):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True)
  path.write_bytes(before)
  diff = diffs.make_diff(name, before, after)
  subprocess.run(
    ["git", "apply", "--whitespace=nowarn", "-"],
    input=diff,
    cwd=tmp_path,
    check=True,
  )
  assert path.read_bytes() == after


def test_headers():
  diff = diffs.make_diff("/x/\udcff.py", b"a\n", b"b\n")
  assert diff.startswith(b"--- a/x/\xff.py\n+++ b/x/\xff.py\n@@")
  assert diffs.make_diff("./x.py", b"", b"b").startswith(b"--- a/x.py\n")
  assert diffs.make_diff("x", b"a", b"a") == b""


if __name__ == "__main__":
  helpers.main()
