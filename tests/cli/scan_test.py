# SPDX-License-Identifier: Apache-2.0
"""Tests `tf-lossscale scan` and `migrate` as commands, from end to end."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys

import command_calls
import helpers
import pseudo_terminals
import pytest
import source_trees

pytestmark = pytest.mark.any_release

_OLD = """\
import tensorflow as tf

scale = tf.train.experimental.FixedLossScale(8)
with tf.Session() as session:
  print(session.run(scale()))
"""
_FILES = {
  "one/main.py": _OLD,
  "two/main.py": f"{_OLD}tf.contrib.quantize.create_eval_graph\n",
  "other/main.py": "import tensorflow as tf\nprint(tf.function)\n",
}


@pytest.fixture
def tree(tmp_path):
  return source_trees.write_tree(tmp_path, _FILES)


@pytest.fixture
def run(monkeypatch, capsys):
  """Returns a function that calls the command in a folder."""

  def call(*argv, cwd, stdin=""):
    monkeypatch.chdir(cwd)
    command_calls.pipe(monkeypatch, stdin)
    return command_calls.call(capsys, *argv)

  return call


def codes_of(out):
  """Returns the codes of the findings before the summary."""
  lines = [line.split() for line in out.splitlines()]
  return sorted({words[1] for words in lines if words[1].startswith("LS")})


_NOTHING = "1 file, TensorFlow 1, nothing to change\n"
_NO_LOSS_SCALING = (
  "1 file, no loss scaling: nothing to change; `tf-lossscale run` runs "
  "TensorFlow 1 programs as they are\n"
)


def test_scan(tree, run):
  status, out, err = run("scan", "one", cwd=tree)
  assert (status, err) == (1, "")
  assert codes_of(out) == ["LS101", "LS201", "LS204"]
  line = "one/main.py:3:9: LS101 tf.train.experimental.FixedLossScale -> "
  assert f"\n{line}tfl.FixedLossScale" in f"\n{out}"
  assert out.splitlines()[-3:] == [
    "what the codes mean: tf-lossscale explain LS101",
    "1 file, TensorFlow 1 (tf.Session, main.py line 4): 3 places in 1 file: "
    "3 migrate",
    "`tf-lossscale migrate --write one` settles 3 of them",
  ]
  assert run("scan", "other", cwd=tree) == (0, _NO_LOSS_SCALING, "")
  status, out, err = run("scan", "--tf1", "--exclude=o*r", ".", cwd=tree)
  assert (status, err) == (1, "")
  assert out.splitlines()[-1] == (
    "`tf-lossscale migrate --write --tf1 '--exclude=o*r' .` settles 6 of them"
  )


def test_findings_that_say_the_same_are_one_line(tree, run):
  name = "tf.train.experimental.FixedLossScale(8)\n"
  (tree / "one" / "main.py").write_text(f"import tensorflow as tf\n{3 * name}")
  _, out, _ = run("scan", "one", cwd=tree)
  line, _, summary, _ = out.splitlines()
  assert line.startswith("one/main.py:2:1: LS101 ")
  assert line.endswith(" [migrate] (also in line 3, 4)")
  assert "3 places in 1 file: 3 migrate" in summary
  _, out, _ = run("scan", "--format=json", "one", cwd=tree)
  assert [f["line"] for f in json.loads(out)["findings"]] == [2, 3, 4]


def test_lines_stay_lines(tree, run):
  for name in ("a\n\x1b[2J.py", os.fsdecode(b"\xff.py")):
    (tree / "one" / name).write_text(_OLD)
  _, out, _ = run("scan", "one", cwd=tree)
  assert "one/a\\n\\x1b[2J.py:3:9: LS101 " in out
  assert "one/\\udcff.py:3:9: LS101 " in out
  run("scan", "--reportfile=r", "one", cwd=tree)
  assert "one/\\udcff.py:3:9: LS101 " in (tree / "r").read_text("utf-8")


def test_without_a_path_the_working_folder_is_read(tree, run):
  assert run("scan", cwd=tree) == run("scan", ".", cwd=tree)
  assert run("migrate", "--check", cwd=tree)[1].startswith("one/main.py: would")


def test_explain(tree, run):
  status, out, err = run("explain", "ls101", "LS206", cwd=tree)
  assert (status, err) == (0, "")
  assert out.startswith("LS101 legacy-name [migrate]\n\nA name of the loss-")
  assert "\nAfter:\n    import tf_compat_lossscale as tfl\n" in out
  assert "\nLS206 program-start [by hand]\n" in out
  status, out, err = run("explain", "LS999", cwd=tree)
  assert (status, out) == (2, "") and err.count("\n") == 1


def test_edits_are_counted_where_something_changes(tmp_path, run):
  text = "import tensorflow as tf\nx = tf.train.experimental.LossScale\n"
  for i in range(9):
    text += f"tf.contrib.layers.flatten({i})\ntf.contrib.rnn.NASCell({i})\n"
  (tmp_path / "main.py").write_text(text, "utf-8")
  out = run("migrate", "--format=json", cwd=tmp_path)[1]
  value = json.loads(out)
  codes = [x["code"] for x in value["findings"] if x["state"] == "migrate"]
  (change,) = value["changes"]
  assert change["edits"] == len(codes) - codes.count("LS301") < len(codes)


def test_formats(tree, run):
  status, out, err = run("scan", "--format=json", ".", cwd=tree)
  assert (status, err) == (1, "")
  value = json.loads(out)
  assert (value["files"], value["tensorflow"]) == (3, 1)
  assert value["states"] == {"migrate": 6, "offered": 0, "by hand": 1}
  assert value["command"] == "tf-lossscale migrate --write ."
  assert (value["unreadable"], value["uses_loss_scaling"]) == ([], True)
  assert value["reason"] == "tf.Session, main.py line 4"
  (first,) = (
    f
    for f in value["findings"]
    if f["path"].endswith("one/main.py") and f["code"] == "LS101"
  )
  note = first.pop("note")
  assert "ValueError" in note and first == {
    "path": "one/main.py",
    "cell": None,
    "code": "LS101",
    "line": 3,
    "column": 9,
    "end_line": 3,
    "end_column": 45,
    "name": "tf.train.experimental.FixedLossScale",
    "message": "tfl.FixedLossScale",
    "state": "migrate",
  }
  status, out, err = run("scan", "--format=xml", "one", cwd=tree)
  assert (status, out) == (2, "") and err.count("\n") == 1


def test_a_report_file(tree, run):
  _, whole, _ = run("scan", "one", cwd=tree)
  status, out, err = run("scan", "--reportfile=r.txt", "one", cwd=tree)
  assert (status, err) == (1, "")
  assert (tree / "r.txt").read_text() == whole
  assert out == "".join(whole.splitlines(True)[-3:])
  assert run("scan", "--reportfile=r/r", "one", cwd=tree)[0] == 2


def test_standard_input(tree, run):
  status, out, err = run("scan", "-", cwd=tree, stdin=_OLD)
  assert (status, err) == (1, "")
  assert "-:3:9: LS101 " in out
  _, out, _ = run(
    *("scan", "--stdin-filename=one/x.py", "-"), cwd=tree, stdin=_OLD
  )
  assert "one/x.py:3:9: LS101 " in out
  found = run("scan", "-", cwd=tree, stdin="x = 1\n")
  assert found == (0, _NO_LOSS_SCALING, "")
  status, out, err = run("scan", "-", cwd=tree, stdin=f"{_OLD}def f(:\n")
  assert (status, out) == (2, "") and err.count("\n") == 1
  _, out, _ = run("migrate", "-", cwd=tree, stdin=_OLD)
  assert run("scan", "-", cwd=tree, stdin=out) == (0, _NOTHING, "")


@pytest.mark.parametrize("command", ["scan", "migrate"])
def test_mistakes_are_one_line(command, tree, run):
  (tree / "empty").mkdir()
  (tree / "README.md").write_text("# Hello\n")
  (tree / "binary.py").write_bytes(b"\0\1\2")
  for argv in (
    ["typo.py"],
    ["empty"],
    ["README.md"],
    ["binary.py"],
    ["--select=LS9", "one"],
    ["--ignore=LS101,X", "one"],
    ["--target=1.15", "one"],
    ["--target=new", "one"],
    ["--tf1", "--tf2", "one"],
    ["-", "one"],
    ["one", "--stdin-filename=a.py"],
    ["--list=x"],
  ):
    status, out, err = run(command, *argv, cwd=tree)
    assert (status, out, err.count("\n")) == (2, "", 1), (argv, out, err)
    assert err.startswith("tf-lossscale"), argv


@pytest.mark.parametrize(
  ("command", "closed", "status", "err"),
  [
    ("scan one", ">&-", 1, ""),
    ("migrate --write one", ">&-", 0, ""),
    ("scan typo.py", "2>&-", 2, ""),
    ("version", ">&- 2>&-", 0, ""),
    ("version", ">/dev/full", 2, "tf-lossscale version: No space left on dev"),
    ("scan -", "<&-", 2, "tf-lossscale scan: standard input is closed;"),
    ("scan one", ">/dev/full", 2, "tf-lossscale scan: No space left on device"),
  ],
)
def test_closed_streams(command, closed, status, err, tree):
  line = (
    f"{shlex.quote(sys.executable)} -m tf_compat_lossscale {command} {closed}"
  )
  done = subprocess.run(
    ["bash", "-c", line],
    capture_output=True,
    cwd=tree,
    # Without a buffer, Python has nothing to write again at its end.
    env={**os.environ, "PYTHONPATH": str(helpers.ROOT), "PYTHONUNBUFFERED": ""},
    text=True,
    timeout=120,
  )
  assert (done.returncode, done.stdout) == (status, "")
  assert done.stderr.startswith(err) and bool(done.stderr) == bool(err)


def test_lists(tree, run):
  status, out, err = run("scan", "--list", cwd=tree)
  assert (status, err) == (0, "")
  assert out.startswith("LS101  legacy-name ")
  assert run("migrate", "--list", "typo.py", cwd=tree) == (0, out, "")


def test_a_terminal(tree, run):
  status, _, shown = pseudo_terminals.run("scan", "one", cwd=tree)
  assert status == 1
  assert "\x1b[1;31mLS101\x1b[0m" in shown
  assert "\x1b[32m [migrate]\x1b[0m" in shown
  status, _, shown = pseudo_terminals.run("scan", "one", cwd=tree, NO_COLOR="1")
  assert "\x1b" not in shown
  assert shown.endswith("migrate --write one` settles 3 of them\n")
  assert (
    "\x1b"
    in pseudo_terminals.run(
      *("scan", "one"), cwd=tree, piped=True, FORCE_COLOR="1"
    )[1]
  )
  _, out, _ = pseudo_terminals.run(
    *("migrate", "--reportfile=report", "one"),
    cwd=tree,
    piped=True,
    FORCE_COLOR="1",
  )
  assert "\x1b" not in out + (tree / "report").read_text()
  # Lines end at blanks.
  for env in ({"NO_COLOR": "1"}, {}):
    _, _, shown = pseudo_terminals.run(
      "scan", "one", cwd=tree, COLUMNS="60", **env
    )
    lines = re.sub("\x1b[^m]*m", "", shown).splitlines()
    assert max(map(len, lines)) <= 60 and "tfl.FixedLossScale" in shown
  status, out, shown = pseudo_terminals.run("scan", "one", cwd=tree, piped=True)
  assert (status, shown) == (1, "")
  assert out == run("scan", "one", cwd=tree)[1]
  status, _, shown = pseudo_terminals.run("migrate", "one", cwd=tree)
  assert status == 0
  assert "\x1b[32m+scale = tfl.FixedLossScale(8)\x1b[0m\n" in shown
  assert "Would rewrite 1 file: 3 edits, 0 left to do by hand." in shown
  status, _, shown = pseudo_terminals.run(
    "migrate", "--write", ".", cwd=tree, NO_COLOR="1"
  )
  assert status == 0 and "\x1b" not in shown
  assert "Rewrote 2 files: 6 edits, 1 left to do by hand." in shown


# `cli.scan` is imported for the parser, `migration.scanner` when it is used.
_SLOW_IMPORTS = """if True:
  import importlib.abc, sys, time
  class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
      if name == "tf_compat_lossscale.MODULE":
        print("importing", flush=True)
        time.sleep(60)
  sys.meta_path.insert(0, Finder())
  from tf_compat_lossscale.cli import main
  sys.exit(main.main(["scan", "."]))
"""


@pytest.mark.parametrize("module", ["cli.scan", "migration.scanner"])
def test_ctrl_c_before_anything_is_printed(module, tree):
  code = _SLOW_IMPORTS.replace("MODULE", module)
  with subprocess.Popen(
    [sys.executable, "-c", code],
    cwd=tree,
    env={**os.environ, "PYTHONPATH": str(helpers.ROOT)},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as process:
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
  assert (process.returncode, out) == (130, "")
  assert err == "tf-lossscale: interrupted\n"
