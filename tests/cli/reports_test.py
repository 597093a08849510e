# SPDX-License-Identifier: Apache-2.0
"""Tests the formats of `tf-lossscale scan` on reports made by hand."""

import json
import os
import sys

import helpers
import pseudo_terminals
import pytest

from tf_compat_lossscale.cli import scan
from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.cli.reports import json as json_report
from tf_compat_lossscale.cli.reports import text
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rule_states
from tf_compat_lossscale.migration import rules

pytestmark = pytest.mark.any_release

_RULES = [
  rules.Rule("LS101", "legacy-name", None, (), "A legacy name.", "It *moved*."),
  rules.Rule("LS203", "gone", None, (), "A name that is gone.", ""),
]


@pytest.fixture(autouse=True)
def two_rules(monkeypatch):
  monkeypatch.setattr(rules, "list_rules", lambda: _RULES)


def finding(path="a.py", line=2, **values):
  values = {
    "column": 5,
    "end_line": line,
    "end_column": 38,
    "code": "LS101",
    "name": "tf.train.experimental.LossScale",
    "message": "tfl.LossScale",
    "state": findings.APPLIED,
  } | values
  return findings.Finding(path, line, **values)


BY_HAND = finding(
  line=7,
  code="LS203",
  name="tf.contrib.\n  ffmpeg",
  message="nothing replaces it",
  state=findings.BY_HAND,
  note="since 2.0",
)
IN_CELL = finding("b c.ipynb", 1, cell=3, state=findings.OFFERED)


def project(*found, path="a.py", files=2, tensorflow=1, **values):
  reason = "tf.Session, a.py line 1" if tensorflow else ""
  values = {"uses_loss_scaling": True} | values
  return findings.Project(
    path, files, tensorflow, reason, findings=found, **values
  )


def report(*projects, errors=()):
  return findings.Report(projects, errors)


def printed(made, capsys, writer=text):
  writer.write(made, terminal.Printer(sys.stdout))
  return capsys.readouterr().out


def on_terminal(made):
  """Returns what a terminal gets."""
  outer, inner = os.openpty()
  with open(inner, "w", encoding="utf-8") as stream:
    text.write(made, terminal.Printer(stream))
  return pseudo_terminals.read_all(outer)


_LINES = (
  "a.py:2:5: LS101 tf.train.experimental.LossScale -> tfl.LossScale [applied]\n"
  "a.py:7:5: LS203 tf.contrib. ffmpeg: nothing replaces it (since 2.0) "
  "[by hand]\n"
)


def test_text(capsys):
  shown = printed(report(project(finding(), BY_HAND)), capsys)
  *lines, summary = shown.splitlines(keepends=True)
  assert "".join(lines) == _LINES
  assert summary.endswith(", 1 applied, 1 by hand\n")
  (line,) = printed(report(project()), capsys).splitlines()
  assert line.endswith(", nothing to change")
  line, _ = printed(report(project(IN_CELL)), capsys).splitlines()
  assert line.startswith("b c.ipynb:cell 3:1:5: LS101 ")
  assert line.endswith(" [offered]")


def test_text_of_several_projects(capsys):
  shown = printed(
    report(
      project(finding(), finding(), BY_HAND, path="one"),
      project(path="two", files=1, tensorflow=2),
      project(path="three", uses_loss_scaling=False, tensorflow=None),
    ),
    capsys,
  )
  *_, one, two, three = shown.splitlines()
  assert one == (
    "one: 2 files, TensorFlow 1 (tf.Session, a.py line 1), 2 applied, 1 by hand"
  )
  assert two == (
    "two: 1 file, TensorFlow 2 (tf.Session, a.py line 1), nothing to change"
  )
  assert three == "three: 2 files, no TensorFlow, does not use loss scaling"


def test_lines_stay_lines(capsys):
  made = report(project(finding("a\n\x1b[2J.py", name="tf.\n  x", note="ü\t")))
  line, _ = printed(made, capsys).splitlines()
  assert line.startswith("a\\n\\x1b[2J.py:2:5: LS101 tf. x -> ")
  assert "(ü\t)" in line


def test_a_path_that_is_no_text(capsys):
  shown = printed(report(project(finding("\udcff.py"))), capsys)
  assert shown.startswith("\\udcff.py:2:5: ")


def test_a_terminal_gets_color_and_a_count(monkeypatch):
  monkeypatch.setenv("TERM", "xterm-256color")
  monkeypatch.delenv("NO_COLOR", raising=False)
  shown = on_terminal(report(project(finding(), BY_HAND)))
  assert "\x1b[1;31mLS101\x1b[0m" in shown
  assert "in 1 of 2 files: 1 applied, 1 by hand." in shown
  for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
    with monkeypatch.context() as context:
      context.setenv(name, value)
      shown = on_terminal(report(project(finding(), BY_HAND)))
    assert "\x1b" not in shown
    assert shown.startswith(_LINES)
    assert shown.endswith(
      "\nFound 2 places in 1 of 2 files: 1 applied, 1 by hand.\n"
    )


def test_a_terminal_without_rich(monkeypatch):
  monkeypatch.setenv("TERM", "xterm-256color")
  monkeypatch.setitem(sys.modules, "rich.console", None)
  shown = on_terminal(report(project()))
  assert shown.splitlines() == [
    "a.py: 2 files, TensorFlow 1 (tf.Session, a.py line 1), nothing to change",
    "Nothing to change in 2 files.",
  ]


def test_json(capsys):
  made = report(project(finding(), IN_CELL), errors=("c.py: no",))
  value = json.loads(printed(made, capsys, json_report))
  assert list(value) == ["findings", "unreadable", "projects"]
  assert value["unreadable"] == ["c.py: no"]
  first, second = value["findings"]
  assert first == {
    "path": "a.py",
    "line": 2,
    "column": 5,
    "end_line": 2,
    "end_column": 38,
    "code": "LS101",
    "name": "tf.train.experimental.LossScale",
    "message": "tfl.LossScale",
    "state": "applied",
    "note": "",
    "cell": None,
  }
  assert second["cell"] == 3
  assert value["projects"] == [
    {
      "path": "a.py",
      "files": 2,
      "tensorflow": 1,
      "reason": "tf.Session, a.py line 1",
      "uses_loss_scaling": True,
      "unreadable": 0,
      "notes": [],
      "missing": [],
      "findings": 2,
      "states": {"applied": 1, "offered": 1, "by hand": 0},
    }
  ]


def test_the_table_of_codes(monkeypatch, capsys):
  states = {"LS101": findings.STATES, "LS203": (findings.BY_HAND,)}
  monkeypatch.setattr(
    rule_states, "find_states", lambda rule: states[rule.code]
  )
  assert scan.list_codes() == 0
  assert capsys.readouterr().out.splitlines() == [
    "LS101  legacy-name  applied, offered, by hand  A legacy name.",
    "LS203  gone         by hand                    A name that is gone.",
  ]


if __name__ == "__main__":
  helpers.main()
