# SPDX-License-Identifier: Apache-2.0
"""Tests what `tf-lossscale migrate` does with the edits, whatever they are."""

import builtins
import errno
import json
import os
import stat
import subprocess

import command_calls
import pytest

from tf_compat_lossscale.cli import migrate
from tf_compat_lossscale.migration import scanner

pytestmark = pytest.mark.any_release

_BEFORE = "import tensorflow as tf\nx = tf.train.experimental.LossScale\n"
_AFTER = "import tf_compat_lossscale as tfl\nimport tensorflow as tf\n"
_AFTER += "x = tfl.LossScale\n"


@pytest.fixture
def old(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  path = tmp_path / "old.py"
  path.write_text(_BEFORE)
  return path


def run(capsys, *argv):
  return command_calls.call(capsys, "migrate", *argv)


def test_a_diff_is_the_default(old, capsys):
  status, out, err = run(capsys, "old.py")
  assert (status, err) == (0, "")
  assert out.startswith("--- a/old.py\n+++ b/old.py\n@@ ")
  assert "+x = tfl.LossScale\n" in out
  assert old.read_text() == _BEFORE
  assert run(capsys, "--diff", "old.py") == (0, out, "")


def test_check_and_write(old, capsys):
  assert run(capsys, "--check", "old.py") == (1, "old.py: would change\n", "")
  status, out, _ = run(capsys, "--check", "--diff", "old.py")
  assert status == 1 and out.startswith("--- a/old.py\n")
  assert old.read_text() == _BEFORE
  for option in ("--check", "--diff"):
    status, out, err = run(capsys, "--write", option, "old.py")
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert "--write" in err and option in err
  assert run(capsys, "--write", "old.py") == (0, "old.py: rewritten\n", "")
  assert old.read_text() == _AFTER
  nothing = "1 file, TensorFlow 2, nothing to change\n"
  for options in (["--check"], ["--check", "--diff"], ["--write"]):
    assert run(capsys, *options, "old.py") == (0, "", nothing)


def test_json_and_a_report_file(old, tmp_path, capsys):
  for options in ((), ("--format=json",)):
    status, out, err = run(capsys, *options, "--reportfile=r", "old.py")
    assert (status, err) == (0, "") and out.startswith("--- a/old.py\n")
    text = (tmp_path / "r").read_text()
    assert "tf-lossscale migrate --write old.py" in text
  status, out, err = run(capsys, "--reportfile", "old.py", "old.py")
  assert status == 2 and "does not replace a program" in err
  status, out, err = run(capsys, "--write", "--format=json", "old.py")
  assert (status, err) == (0, "") and old.read_text() == _AFTER
  value = json.loads(out)
  assert value["changes"] == [{"path": "old.py", "edits": 1, "written": True}]
  assert value["states"]["migrate"] == 1


def test_what_cannot_be_read(old, tmp_path, capsys):
  (tmp_path / "bad.py").write_text(f"{_BEFORE}(")
  for options in ([], ["--check"], ["--write"]):
    status, out, err = run(capsys, *options, "bad.py", "old.py")
    assert status == 2
    assert (
      err == "tf-lossscale: bad.py:3: cannot be parsed: '(' was never closed\n"
    )
    assert "old.py" in out
  assert old.read_text() == _AFTER


def test_files_that_cannot_be_written(old, tmp_path, monkeypatch, capsys):
  other, load = tmp_path / "other.py", builtins.open
  other.write_text(_BEFORE)

  def refuse(path, mode="r", *args, **options):
    # A test that runs as root may write to any file.
    if path == "old.py" and mode != "rb":
      raise PermissionError(errno.EACCES, "Permission denied", path)
    return load(path, mode, *args, **options)

  monkeypatch.setattr(builtins, "open", refuse)
  status, out, err = run(capsys, "--write", "old.py", "other.py")
  monkeypatch.undo()
  assert (status, out) == (2, "other.py: rewritten\n")
  assert err == "tf-lossscale: old.py: not written: Permission denied\n"
  assert (old.read_text(), other.read_text()) == (_BEFORE, _AFTER)


def test_a_full_disk(old, tmp_path, monkeypatch, capsys):
  (tmp_path / "other.py").write_text(_BEFORE)

  def full(*args):
    raise OSError(errno.ENOSPC, "No space left on device")

  monkeypatch.setattr(os, "fsync", full)
  status, out, err = run(capsys, "--write", "old.py", "other.py")
  assert (status, out) == (2, "")
  assert err.startswith("tf-lossscale migrate: old.py: not written: No space")
  assert err.count("\n") == 1
  assert old.read_text() == _BEFORE
  assert sorted(os.listdir(tmp_path)) == ["old.py", "other.py"]


def test_a_file_that_changes_meanwhile(old, monkeypatch, capsys):
  scan = scanner.scan

  def edit_meanwhile(*args):
    report = scan(*args)
    old.write_text("# Mine.\n")
    return report

  monkeypatch.setattr(scanner, "scan", edit_meanwhile)
  status, out, err = run(capsys, "--write", "old.py")
  assert (status, out) == (2, "")
  assert err.startswith("tf-lossscale: old.py: left alone: ")
  assert old.read_text() == "# Mine.\n"


def test_modes_and_links_are_kept_and_nothing_else_written(
  old, tmp_path, capsys
):
  old.chmod(0o755)
  (tmp_path / "link.py").symlink_to(old)
  assert run(capsys, "--write", "link.py")[0] == 0
  assert (tmp_path / "link.py").is_symlink() and old.read_text() == _AFTER
  assert stat.S_IMODE(old.stat().st_mode) == 0o755
  assert sorted(os.listdir(tmp_path)) == ["link.py", "old.py"]


@pytest.mark.parametrize(
  ("options", "status", "first"),
  [
    ([], 0, _AFTER.split("\n")[0]),
    (["--diff", "--stdin-filename=a/b.py"], 0, "--- a/a/b.py"),
    (["--check"], 1, ""),
    (["--check", "--diff"], 1, "--- a/-"),
    (["--write"], 2, ""),
  ],
)
def test_standard_input(options, status, first, monkeypatch, capsys):
  command_calls.pipe(monkeypatch, _BEFORE)
  done, out, _ = run(capsys, *options, "-")
  assert (done, out.partition("\n")[0]) == (status, first)
  if "--write" not in options:
    command_calls.pipe(monkeypatch, _AFTER)
    rest = "" if {"--diff", "--check"} & {*options} else _AFTER
    assert run(capsys, *options, "-") == (0, rest, "")


@pytest.mark.parametrize(
  ("before", "after"),
  [
    (b"a\nb\nc\n", b"a\nB\nc\n"),
    (b"a\nb", b"a\nB"),
    (b"a\nb\n", b"a\nb"),
    (b"a\r\nb\r\n", b"A\r\nb\r\n"),
    (b"a\rb\rc", b"a\rB\rc"),
    (b"a\n\x0c\nb\x1c\n", b"a\n\x0c\nB\x1c\n"),
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
  diff = migrate.make_diff(name, before, after)
  subprocess.run(
    ["git", "apply", "--whitespace=nowarn", "-"],
    input=diff,
    cwd=tmp_path,
    check=True,
  )
  assert path.read_bytes() == after
