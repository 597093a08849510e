# SPDX-License-Identifier: Apache-2.0
"""Tests the formats of `tf-lossscale scan` on reports made by hand."""

import email.message
import importlib.metadata
import json
import os
import sys

import helpers
import pseudo_terminals
import pytest
import sarif_rules

from tf_compat_lossscale.cli import scan
from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.cli.reports import codes
from tf_compat_lossscale.cli.reports import formats
from tf_compat_lossscale.cli.reports import rule_urls
from tf_compat_lossscale.migration import application
from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import edits
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import reading
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


def printed(made, capsys, form="text", statistics=False):
  writers = formats.STATISTICS_WRITERS if statistics else formats.WRITERS
  writers[form](made, terminal.Printer(sys.stdout))
  return capsys.readouterr().out


def on_terminal(made):
  """Returns what a terminal gets."""
  outer, inner = os.openpty()
  with open(inner, "w", encoding="utf-8") as stream:
    formats.WRITERS["text"](made, terminal.Printer(stream))
  return pseudo_terminals.read_all(outer)


_LINES = (
  "a.py:2:5: LS101 tf.train.experimental.LossScale -> tfl.LossScale [applied]\n"
  "a.py:7:5: LS203 tf.contrib. ffmpeg: nothing replaces it (since 2.0) "
  "[by hand]\n"
)


def test_text(capsys):
  text = printed(report(project(finding(), BY_HAND)), capsys)
  *lines, summary = text.splitlines(keepends=True)
  assert "".join(lines) == _LINES
  assert summary.endswith(", 1 applied, 1 by hand\n")
  (line,) = printed(report(project()), capsys).splitlines()
  assert line.endswith(", nothing to change")
  line, _ = printed(report(project(IN_CELL)), capsys).splitlines()
  assert line.startswith("b c.ipynb:cell 3:1:5: LS101 ")
  assert line.endswith(" [offered]")


def test_text_of_several_projects(capsys):
  text = printed(
    report(
      project(finding(), finding(), BY_HAND, path="one"),
      project(path="two", files=1, tensorflow=2),
      project(path="three", uses_loss_scaling=False, tensorflow=None),
    ),
    capsys,
  )
  *_, one, two, three = text.splitlines()
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
  text = printed(report(project(finding("\udcff.py"))), capsys)
  assert text.startswith("\\udcff.py:2:5: ")


def test_a_terminal_gets_color_and_a_count(monkeypatch):
  monkeypatch.setenv("TERM", "xterm-256color")
  monkeypatch.delenv("NO_COLOR", raising=False)
  text = on_terminal(report(project(finding(), BY_HAND)))
  assert "\x1b[1;31mLS101\x1b[0m" in text
  assert "in 1 of 2 files: 1 applied, 1 by hand." in text
  for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
    with monkeypatch.context() as context:
      context.setenv(name, value)
      text = on_terminal(report(project(finding(), BY_HAND)))
    assert "\x1b" not in text
    assert text.startswith(_LINES)
    assert text.endswith(
      "\nFound 2 places in 1 of 2 files: 1 applied, 1 by hand.\n"
    )


def test_a_terminal_without_rich(monkeypatch):
  monkeypatch.setenv("TERM", "xterm-256color")
  monkeypatch.setitem(sys.modules, "rich.console", None)
  text = on_terminal(report(project()))
  assert text.splitlines() == [
    "a.py: 2 files, TensorFlow 1 (tf.Session, a.py line 1), nothing to change",
    "Nothing to change in 2 files.",
  ]


def test_json(capsys):
  made = report(project(finding(), IN_CELL), errors=("c.py: no",))
  value = json.loads(printed(made, capsys, "json"))
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


def test_github(capsys):
  odd = finding("a,b:c%.py", name="x", message="50% of\ny")
  made = report(project(odd, IN_CELL), errors=("c.py:1: no\n",))
  first, second, third = printed(made, capsys, "github").splitlines()
  assert first == (
    "::error file=a%2Cb%3Ac%25.py,line=2,col=5,endLine=2,endColumn=38,"
    "title=LS101::a,b:c%25.py:2:5: LS101 x -> 50%25 of%0Ay [applied]"
  )
  assert second.startswith("::error file=b c.ipynb,title=LS101::b c.ipynb:cell")
  assert third == "::error title=unreadable::c.py:1: no%0A"


def test_sarif(capsys):
  made = report(
    project(finding("/a b/ü.py"), BY_HAND, IN_CELL, finding(code="LS999")),
    errors=("c.py: no",),
  )
  log = json.loads(printed(made, capsys, "sarif"))
  sarif_rules.check_log(log)
  (run,) = log["runs"]
  assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [
    "LS101",
    "LS203",
  ]
  (invocation,) = run["invocations"]
  assert not invocation["executionSuccessful"]
  (notification,) = invocation["toolExecutionNotifications"]
  assert notification["message"]["text"] == "c.py: no"
  first, second, third, fourth = run["results"]
  (location,) = first["locations"]
  assert location["physicalLocation"] == {
    "artifactLocation": {"uri": "file:///a%20b/%C3%BC.py"},
    "region": {"startLine": 2, "startColumn": 5, "endLine": 2, "endColumn": 38},
  }
  assert second["ruleIndex"] == 1
  assert second["properties"] == {"state": "by hand"}
  assert second["message"]["text"] == (
    "tf.contrib. ffmpeg: nothing replaces it (since 2.0)"
  )
  (location,) = third["locations"]
  assert "region" not in location["physicalLocation"]
  assert third["message"]["text"].startswith("cell 3, line 1: ")
  assert "ruleIndex" not in fourth
  assert not any("fixes" in result for result in run["results"])


def test_sarif_of_nothing(capsys):
  log = json.loads(printed(report(), capsys, "sarif"))
  sarif_rules.check_log(log)
  (run,) = log["runs"]
  assert run["results"] == []
  assert run["invocations"][0]["executionSuccessful"]


@pytest.mark.parametrize(
  ("before", "after"),
  [
    ("import os\nx = 1\ny = 2\n", "import tfl\nimport os\nx = 1\ny = 3\n"),
    ("a\nb", "a\nc"),
    ("a\nb", "a\n"),
    ("a\n", "a\nb"),
    ("a\n\x0c\nb\r\nc\rd\n", "a\n\x0c\nc\r\nc\rd\n"),
    ("", "a\n"),
    ("a", ""),
    ("a\na\na\n", "a\na\n"),
  ],
)
def test_fixes_of_sarif(before, after, monkeypatch, tmp_path, capsys):
  def edit(read, found):
    assert found == [one]
    assert read.document.data == before.encode()
    document = documents.read(read.document.path, after.encode())
    return reading.Read(document, read.source)

  monkeypatch.setattr(application, "edit", edit)
  monkeypatch.chdir(tmp_path)
  (tmp_path / "a b.py").write_bytes(before.encode())
  one = finding("a b.py", edits=(edits.Edit(0, 1, "x"),))
  log = json.loads(printed(report(project(one, BY_HAND)), capsys, "sarif"))
  sarif_rules.check_log(log)
  result, by_hand = log["runs"][0]["results"]
  assert "fixes" not in by_hand
  (fix,) = result["fixes"]
  assert fix["description"]["text"] == one.message
  texts = sarif_rules.apply_fix(fix, {"a%20b.py": before})
  assert texts == {"a%20b.py": after}


def test_a_file_that_has_gone_has_no_fix(monkeypatch, tmp_path, capsys):
  monkeypatch.chdir(tmp_path)
  one = finding("gone.py", edits=(edits.Edit(0, 1, "x"),))
  log = json.loads(printed(report(project(one)), capsys, "sarif"))
  (result,) = log["runs"][0]["results"]
  assert "fixes" not in result


def test_pages_of_rules(monkeypatch, capsys):
  def name_site(url):
    monkeypatch.setattr(rule_urls, "find_site", lambda: url)
    log = json.loads(printed(report(), capsys, "sarif"))
    sarif_rules.check_log(log)
    return log["runs"][0]["tool"]["driver"]["rules"][0]

  rule = name_site("https://docs.example.org/x/")
  assert rule["helpUri"] == "https://docs.example.org/x/codes/LS101.html"
  assert rule["help"]["markdown"] == "It *moved*."
  assert "helpUri" not in name_site(None)


def test_addresses_of_pages_in_the_output(monkeypatch, capsys):
  two = report(project(finding(line=1), finding(line=2)))
  before = printed(two, capsys, "text")
  monkeypatch.setattr(rule_urls, "find_site", lambda: "https://a.example/")
  line = "LS101: https://a.example/codes/LS101.html\n"
  assert printed(two, capsys, "text") == before + line
  assert "https" not in printed(report(), capsys, "text")
  log = json.loads(printed(two, capsys, "json"))
  urls = [found["url"] for found in log["findings"]]
  assert urls == ["https://a.example/codes/LS101.html"] * 2


@pytest.mark.parametrize(
  ("lines", "site"),
  [
    (["Source, https://a.example", "Documentation, https://b.example"], "b"),
    (["Source, https://a.example"], None),
    ([], None),
  ],
)
def test_the_site_is_in_the_metadata(lines, site, monkeypatch):
  message = email.message.Message()
  for line in lines:
    message["Project-URL"] = line
  monkeypatch.setattr(importlib.metadata, "metadata", lambda name: message)
  assert rule_urls.find_site() == (site and f"https://{site}.example")


def test_statistics(capsys):
  many = [finding(line=line) for line in range(1, 11)]
  made = report(project(BY_HAND, *many, IN_CELL))
  assert printed(made, capsys, statistics=True).splitlines() == [
    "11 LS101 legacy-name: 10 applied, 1 offered",
    " 1 LS203 gone: 1 by hand",
  ]
  rows = json.loads(printed(made, capsys, "json", statistics=True))
  assert [(row["code"], row["total"]) for row in rows] == [
    ("LS101", 11),
    ("LS203", 1),
  ]
  assert printed(report(), capsys, statistics=True) == ""


def test_the_table_of_codes(monkeypatch, capsys):
  states = {"LS101": findings.STATES, "LS203": (findings.BY_HAND,)}
  monkeypatch.setattr(
    rule_states, "find_states", lambda rule: states[rule.code]
  )
  codes.write(terminal.Printer(sys.stdout))
  assert capsys.readouterr().out.splitlines() == [
    "LS101  legacy-name  applied, offered, by hand  A legacy name.",
    "LS203  gone         by hand                    A name that is gone.",
  ]


def test_the_formats_are_those_of_the_option():
  assert tuple(formats.WRITERS) == scan.FORMATS


if __name__ == "__main__":
  helpers.main()
