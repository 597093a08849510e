# SPDX-License-Identifier: Apache-2.0
"""Tests what `tf-lossscale migrate` does with the edits, whatever they are."""

import builtins
import errno
import json
import os
import pathlib
import stat
import subprocess

import command_calls
import helpers
import pytest

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.cli import migrate
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import scanner

pytestmark = pytest.mark.any_release

_BEFORE = "import tensorflow as tf\nx = tf.train.experimental.LossScale\n"
_AFTER = "import tf_compat_lossscale as tfl\nimport tensorflow as tf\n"
_AFTER += "x = tfl.LossScale\n"


def finding(path, state, name="tf.train.experimental.LossScale"):
  return findings.Finding(
    *(path, 2, 5, 2, 38, "LS101", name, "tfl.LossScale", state)
  )


def change(path, data, after, offered):
  made = finding(path, findings.OFFERED if offered else findings.MIGRATE)
  left = finding(path, findings.MIGRATE, "tf.odd")
  found = (left,) if b"odd" in data else ()
  return findings.Change(path, data, after, (made,), found)


@pytest.fixture(autouse=True)
def core(monkeypatch, tmp_path):
  """Stands in for the core: replaces `_BEFORE` by `_AFTER`."""

  def edit(path, data, options):
    after = data.replace(_BEFORE.encode(), _AFTER.encode())
    return change(path, data, after, findings.OFFERED in options.edited)

  def scan(paths, options, progress):
    found, errors, changes = [], [], []
    for path in paths:
      data = pathlib.Path(path).read_bytes()
      text = data.decode("utf-8")
      if "2to3" in text:
        errors.append(f"{path}:1: cannot be parsed")
        continue
      found.append(finding(path, findings.MIGRATE))
      if "by hand" in text:
        found.append(finding(path, findings.BY_HAND, "tf.gone"))
      if _BEFORE in text:
        changes.append(edit(path, data, options))
    return findings.Report(
      *(2, tuple(found), tuple(errors), tuple(changes), True)
    )

  def scan_text(data, name, options):
    if b"2to3" in data:
      return findings.Report(0, errors=(f"{name}:1: cannot be parsed",))
    return findings.Report(1, changes=(edit(name, data, options),))

  monkeypatch.setattr(scanner, "scan", scan)
  monkeypatch.setattr(scanner, "scan_text", scan_text)
  monkeypatch.chdir(tmp_path)


@pytest.fixture
def old(tmp_path):
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


def test_check(old, capsys):
  assert run(capsys, "--check", "old.py") == (1, "old.py: would change\n", "")
  status, out, _ = run(capsys, "--check", "--diff", "old.py")
  assert status == 1 and out.startswith("--- a/old.py\n")
  assert old.read_text() == _BEFORE
  old.write_text(_AFTER)
  assert run(capsys, "--check", "old.py") == (0, "", "")
  assert run(capsys, "--check", "--diff", "old.py") == (0, "", "")


def test_write(old, capsys):
  assert run(capsys, "--write", "old.py") == (0, "old.py: rewritten\n", "")
  assert old.read_text() == _AFTER
  status, out, err = run(capsys, "--write", "old.py")
  assert (status, out, err) == (0, "", "")


def test_json(old, capsys):
  status, out, err = run(capsys, "--write", "--format=json", "old.py")
  assert (status, err) == (0, "") and old.read_text() == _AFTER
  value = json.loads(out)
  assert value["changes"] == [{"path": "old.py", "edits": 1, "written": True}]
  assert value["states"]["migrate"] == 1


def test_a_report_file(old, tmp_path, capsys):
  for options in ((), ("--format=json",)):
    status, out, err = run(capsys, *options, "--reportfile=r", "old.py")
    assert (status, err) == (0, "") and out.startswith("--- a/old.py\n")
    text = (tmp_path / "r").read_text()
    assert "`tf-lossscale migrate --write old.py` makes 1 of them" in text or (
      json.loads(text)["command"] == "tf-lossscale migrate --write old.py"
    )
  status, out, err = run(capsys, "--reportfile", "old.py", "old.py")
  assert status == 2 and "does not replace a program" in err
  status, out, err = run(capsys, "--reportfile=no/r", "old.py")
  assert status == 2 and "no/r" in err and err.count("\n") == 1


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_write_stands_alone(option, old, capsys):
  status, out, err = run(capsys, "--write", option, "old.py")
  assert (status, out) == (2, "") and err.count("\n") == 1
  assert "--write" in err and option in err
  assert old.read_text() == _BEFORE


def test_what_is_left(old, capsys):
  old.write_text(f"{_BEFORE}# by hand, odd\n")
  status, out, err = run(capsys, "--write", "old.py")
  assert (status, out) == (0, "old.py: rewritten\n")
  assert err.splitlines() == [
    "old.py:2:5: LS101 tf.odd -> tfl.LossScale [not made]",
    "old.py:2:5: LS101 tf.gone: tfl.LossScale [by hand]",
  ]


def test_what_cannot_be_read(old, tmp_path, capsys):
  (tmp_path / "bad.py").write_text("2to3")
  for options in ([], ["--check"], ["--write"]):
    status, out, err = run(capsys, *options, "bad.py", "old.py")
    assert status == 2
    assert err == "tf-lossscale: bad.py:1: cannot be parsed\n"
    assert "old.py" in out
  assert old.read_text() == _AFTER


def test_a_file_that_cannot_be_written(old, tmp_path, monkeypatch, capsys):
  other = tmp_path / "other.py"
  other.write_text(_BEFORE)
  replace = whole_files.replace_file

  def refuse(path, data):
    if path == "old.py":
      raise PermissionError(errno.EACCES, "Permission denied", path)
    replace(path, data)

  monkeypatch.setattr(whole_files, "replace_file", refuse)
  assert run(capsys, "--write", "old.py", "other.py") == (
    2,
    "other.py: rewritten\n",
    "tf-lossscale: old.py: not written: Permission denied\n",
  )
  assert (old.read_text(), other.read_text()) == (_BEFORE, _AFTER)


def test_a_write_protected_file(old, monkeypatch, capsys):
  # A test that runs as root may write to any file.
  load = builtins.open

  def refuse(path, mode="r", *args, **options):
    if path == "old.py" and mode != "rb":
      raise PermissionError(errno.EACCES, "Permission denied", path)
    return load(path, mode, *args, **options)

  monkeypatch.setattr(builtins, "open", refuse)
  status, out, err = run(capsys, "--write", "old.py")
  monkeypatch.undo()
  assert (status, out) == (2, "")
  assert err == "tf-lossscale: old.py: not written: Permission denied\n"
  assert old.read_text() == _BEFORE


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


def test_modes_and_links_are_kept_and_nothing_else_written(tmp_path, capsys):
  real, link = tmp_path / "real.py", tmp_path / "link.py"
  real.write_text(_BEFORE)
  real.chmod(0o755)
  link.symlink_to(real)
  assert run(capsys, "--write", "link.py")[0] == 0
  assert link.is_symlink() and real.read_text() == _AFTER
  assert stat.S_IMODE(real.stat().st_mode) == 0o755
  assert sorted(os.listdir(tmp_path)) == ["link.py", "real.py"]


@pytest.mark.parametrize(
  ("options", "status", "first"),
  [
    ([], 0, _AFTER.split("\n")[0]),
    (["--stdin-filename=a/b.py"], 0, _AFTER.split("\n")[0]),
    (["--diff"], 0, "--- a/-"),
    (["--diff", "--stdin-filename=a/b.py"], 0, "--- a/a/b.py"),
    (["--check"], 1, ""),
    (["--check", "--diff"], 1, "--- a/-"),
  ],
)
def test_standard_input(options, status, first, monkeypatch, capsys):
  command_calls.pipe(monkeypatch, _BEFORE)
  done, out, err = run(capsys, *options, "-")
  assert (done, err) == (status, "")
  assert out.partition("\n")[0] == first
  if not {"--diff", "--check"} & {*options}:
    assert out == _AFTER


def test_standard_input_that_needs_no_edit(monkeypatch, capsys):
  for options, out in (([], _AFTER), (["--diff"], ""), (["--check"], "")):
    command_calls.pipe(monkeypatch, _AFTER)
    assert run(capsys, *options, "-") == (0, out, "")


def test_standard_input_that_cannot_be_read(monkeypatch, capsys):
  command_calls.pipe(monkeypatch, "2to3")
  error = "tf-lossscale: -:1: cannot be parsed\n"
  assert run(capsys, "-") == (2, "", error)


def test_standard_input_cannot_be_written(monkeypatch, capsys):
  command_calls.pipe(monkeypatch, _BEFORE)
  status, out, err = run(capsys, "--write", "-")
  assert (status, out) == (2, "") and "--write needs a file" in err


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
  diff = migrate.make_diff(name, before, after)
  subprocess.run(
    ["git", "apply", "--whitespace=nowarn", "-"],
    input=diff,
    cwd=tmp_path,
    check=True,
  )
  assert path.read_bytes() == after


def test_headers():
  diff = migrate.make_diff("/x/\udcff.py", b"a\n", b"b\n")
  assert diff.startswith(b"--- a/x/\xff.py\n+++ b/x/\xff.py\n@@")
  assert migrate.make_diff("./x.py", b"", b"b").startswith(b"--- a/x.py\n")
  assert migrate.make_diff("x", b"a", b"a") == b""


if __name__ == "__main__":
  helpers.main()
