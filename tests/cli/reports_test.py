# SPDX-License-Identifier: Apache-2.0
"""Tests the formats of `tf-lossscale scan` on reports made by hand."""

import argparse
import json
import os
import sys

import helpers
import pseudo_terminals
import pytest

from tf_compat_lossscale.cli import reports
from tf_compat_lossscale.cli import scan
from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules

pytestmark = pytest.mark.any_release

_ARGUMENTS = argparse.Namespace(
  paths=["src"],
  tf=None,
  nvidia_switch=False,
  target=None,
  select=[],
  ignore=[],
  exclude=[],
  format="text",
  reportfile=None,
)


def finding(path="a.py", line=2, **values):
  values = {
    "column": 5,
    "end_line": line,
    "end_column": 38,
    "code": "LS101",
    "name": "tf.train.experimental.LossScale",
    "message": "tfl.LossScale",
    "state": findings.MIGRATE,
  } | values
  return findings.Finding(path, line, **values)


BY_HAND = finding(
  line=7,
  code="LS203",
  name="tf.contrib.ffmpeg",
  message="nothing replaces it",
  state=findings.BY_HAND,
  note="since 2.0",
)
IN_CELL = finding("b c.ipynb", 1, cell=3, state=findings.OFFERED)


def report(*found, files=2, **values):
  values = {
    "uses_loss_scaling": True,
    "tensorflow": 1,
    "reason": "tf.Session, a.py line 1",
  } | values
  return findings.Report(files, found, **values)


def printed(made, capsys, **options):
  reports.write(made, argparse.Namespace(**{**vars(_ARGUMENTS), **options}))
  return capsys.readouterr().out


_LINES = (
  "a.py:2:5: LS101 tf.train.experimental.LossScale -> tfl.LossScale [migrate]\n"
  "a.py:7:5: LS203 tf.contrib.ffmpeg: nothing replaces it (since 2.0) "
  "[by hand]\n"
)
_SUMMARY = "2 files, TensorFlow 1 (tf.Session, a.py line 1)"


def test_text(capsys):
  assert printed(report(finding(), BY_HAND), capsys) == (
    f"{_LINES}{_SUMMARY}: 2 places in 1 file: 1 migrate, 1 by hand\n"
    "`tf-lossscale migrate --write src` makes 1 of them\n"
  )
  assert printed(report(), capsys) == f"{_SUMMARY}, nothing to change\n"
  line, _ = printed(report(IN_CELL), capsys).splitlines()
  assert line.startswith("b c.ipynb:cell 3:1:5: LS101 ")
  assert line.endswith(" [offered]")
  none = report(uses_loss_scaling=False, tensorflow=None)
  assert printed(none, capsys).startswith("2 files, no loss scaling: nothing")
  assert not printed(report(files=0), capsys)


def test_findings_that_say_the_same(capsys):
  more = [finding(line=9), finding("b.py"), finding(line=11, cell=2)]
  first, second, *_ = printed(report(finding(), *more), capsys).splitlines()
  assert first.endswith(" [migrate] (also in line 9, 11 of cell 2)")
  assert second.startswith("b.py:2:5: ") and second.endswith(" [migrate]")
  many = [finding(line=line) for line in range(1, 20)]
  first, *_ = printed(report(*many), capsys).splitlines()
  assert first.endswith("12, 13 and 6 more)")


def test_lines_stay_lines(capsys):
  made = report(finding("a\n\x1b[2J.py", name="tf. x", note="ü\t"))
  line, *_ = printed(made, capsys).splitlines()
  assert line.startswith("a\\n\\x1b[2J.py:2:5: LS101 tf. x -> ")
  assert "(ü\t)" in line


def test_a_path_that_is_no_text(capsys, tmp_path):
  made = report(finding("\udcff.py"))
  assert printed(made, capsys).startswith("\\udcff.py:2:5: ")
  path = tmp_path / "r"
  printed(made, capsys, reportfile=str(path))
  assert path.read_text("utf-8").startswith("\\udcff.py:2:5: ")


def on_terminal(made):
  """Returns what a terminal gets."""
  outer, inner = os.openpty()
  with open(inner, "w", encoding="utf-8") as stream:
    printer = terminal.Printer(stream)
    for group in reports.group_findings(made.findings):
      printer.print(*reports.format_findings(group))
  return pseudo_terminals.read_all(outer)


def test_a_terminal_gets_color(monkeypatch):
  monkeypatch.setenv("TERM", "xterm-256color")
  monkeypatch.delenv("NO_COLOR", raising=False)
  assert "\x1b[1;31mLS101\x1b[0m" in on_terminal(report(finding(), BY_HAND))
  for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
    with monkeypatch.context() as context:
      context.setenv(name, value)
      assert on_terminal(report(finding(), BY_HAND)) == _LINES
  monkeypatch.setitem(sys.modules, "rich.console", None)
  assert on_terminal(report(finding(), BY_HAND)) == _LINES


def test_json(capsys):
  made = report(finding(), IN_CELL, errors=("c.py: no",))
  value = json.loads(printed(made, capsys, format="json"))
  first, second = value.pop("findings")
  assert first == {
    "path": "a.py",
    "line": 2,
    "column": 5,
    "end_line": 2,
    "end_column": 38,
    "code": "LS101",
    "name": "tf.train.experimental.LossScale",
    "message": "tfl.LossScale",
    "state": "migrate",
    "note": "",
    "cell": None,
  }
  assert second["cell"] == 3
  assert value == {
    "unreadable": ["c.py: no"],
    "files": 2,
    "tensorflow": 1,
    "reason": "tf.Session, a.py line 1",
    "uses_loss_scaling": True,
    "states": {"migrate": 1, "offered": 1, "by hand": 0},
    "command": "tf-lossscale migrate --write src",
  }


def test_the_table_of_codes(monkeypatch, capsys):
  listed = [
    rules.Rule("LS101", "legacy-name", None, (), "A legacy name.", "It moved."),
    rules.Rule("LS203", "gone", None, (), "A name that is gone.", ""),
  ]
  states = {"LS101": findings.STATES, "LS203": (findings.BY_HAND,)}
  monkeypatch.setattr(rules, "list_rules", lambda: listed)
  monkeypatch.setattr(
  )
  assert scan.list_codes() == 0
  assert capsys.readouterr().out.splitlines() == [
    "LS101  legacy-name  migrate, offered, by hand  A legacy name.",
    "LS203  gone         by hand                    A name that is gone.",
  ]


if __name__ == "__main__":
  helpers.main()
