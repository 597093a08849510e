# SPDX-License-Identifier: Apache-2.0
"""Tests [tool.tf-lossscale] of pyproject.toml, and the options beside it."""

import builtins
import sys
import types

import helpers
import pytest

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import selection
from tf_compat_lossscale.migration import rules

pytestmark = pytest.mark.any_release


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
  listed = [types.SimpleNamespace(code=code) for code in ("LS101", "LS203")]
  monkeypatch.setattr(rules, "list_rules", lambda: listed)
  folder = tmp_path / "project"
  (folder / "src" / "deep").mkdir(parents=True)
  monkeypatch.chdir(folder)
  return folder


def write(project, *lines):
  text = "\n".join(["[tool.tf-lossscale]", *lines])
  (project / "pyproject.toml").write_text(text, "utf-8")


def read(*argv):
  """Returns what a command line selects."""
  parser = errors.Parser()
  selection.add_arguments(parser)
  return selection.select(parser.parse_args(argv))


def test_all_keys(project):
  write(
    project,
    'paths = ["src"]',
    'exclude = ["*_pb2.py", "src/old"]',
    'select = ["LS1"]',
    'ignore = ["LS203"]',
    'target = "2.15"',
  )
  selected = read()
  assert selected.paths == ("src",)
  options = selected.options
  assert options.exclude == ("*_pb2.py", f"{project}/src/old")
  assert (options.select, options.ignore) == (("LS1",), ("LS203",))
  assert options.target == (2, 15)
  assert options.tensorflow is None and options.jobs is None


def test_the_command_line_wins(project):
  write(
    project,
    'paths = ["src"]',
    'exclude = ["a"]',
    'select = ["LS1"]',
    'ignore = ["LS203"]',
    'target = "2.15"',
  )
  selected = read(
    "src/deep",
    *("--exclude=b,c/d", "--exclude=e", "--ignore=LS101", "--target=2.21.0"),
    *("--tf1", "-j3"),
  )
  assert selected.paths == ("src/deep",)
  options = selected.options
  assert options.exclude == ("b", f"{project}/c/d", "e")
  assert (options.select, options.ignore) == (("LS1",), ("LS101",))
  assert options.target == (2, 21)
  assert (options.tensorflow, options.jobs) == (1, 3)
  options = read("--select=LS203, LS1").options
  assert (options.select, options.ignore) == (("LS203", "LS1"), ())


@pytest.mark.parametrize(
  ("argv", "folder"),
  [
    ([], "src/deep"),
    (["src/deep", "src/a.py"], "."),
    (["../outside/src/x.py", "../outside/src/deep"], "../outside/src"),
    (["-"], "."),
    (["-", "--stdin-filename=src/a.py"], "src"),
  ],
)
def test_where_the_file_is_looked_for(argv, folder, project, monkeypatch):
  folder = project / folder
  folder.mkdir(parents=True, exist_ok=True)
  for name in argv:
    if name != "-" and name[0] != "-":
      path = project / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.touch() if path.suffix else path.mkdir(exist_ok=True)
  if not argv:
    monkeypatch.chdir(folder)
  write(folder.parent, 'select = ["LS1"]', 'paths = ["a"]')
  assert read(*argv).options.select == ("LS1",)
  # A nearer file without the table does not count, a nearer table does.
  (folder / "pyproject.toml").write_text("[tool.black]\n")
  assert read(*argv).options.select == ("LS1",)
  write(folder, 'select = ["LS2"]', 'paths = ["a"]')
  assert read(*argv).options.select == ("LS2",)


def test_paths_are_relative_to_the_file(project, monkeypatch):
  write(project, 'paths = ["src", "more"]')
  monkeypatch.chdir(project / "src" / "deep")
  assert read().paths == ("..", "../../more")


@pytest.mark.parametrize(
  ("lines", "message"),
  [
    (["path = ['src']"], "has no key 'path': expected one of paths, exclude"),
    (["paths = 'src'"], "paths: expected a list of strings, got 'src'"),
    (["exclude = ['a', 1]"], "exclude: expected a list of strings, got ['a', "),
    (["exclude = ['']"], "exclude: expected a list of strings, got ['']"),
    (["select = ['LS9']"], "select: there is no code 'LS9': expected LS101, "),
    (["ignore = [['LS1']]"], "ignore: expected a list of strings"),
    (["target = 2.15"], 'target: expected a string such as "2.15", got 2.15'),
    (["target = '1.15'"], "target: '1.15' is no TensorFlow release from 2.12"),
    (["target = '2.8'"], "target: '2.8' is no TensorFlow release from 2.12"),
    (["target = 'new'"], "target: 'new' is no TensorFlow release from 2.12"),
    (["paths = ['src'"], "this is no TOML: "),
    (["paths = []", "paths = []"], "this is no TOML: "),
  ],
)
def test_mistakes_name_file_and_key(lines, message, project):
  write(project, *lines)
  with pytest.raises(errors.Mistake) as error:
    read("src")
  assert str(error.value).startswith("pyproject.toml: ")
  assert message in str(error.value)
  assert "\n" not in errors.as_line(error.value)


@pytest.mark.parametrize(
  "text", ["tool.tf-lossscale = 3", "tool = 'tf-lossscale'"]
)
def test_a_table_that_is_none(text, project):
  (project / "pyproject.toml").write_text(text)
  if text.startswith("tool."):
    with pytest.raises(errors.Mistake, match="expected a table, got 3"):
      read("src")
  else:
    assert read("src").options.select == ()


def test_files_of_other_tools_are_not_complained_of(project):
  (project / "pyproject.toml").write_text("[tool.black\n")
  assert read("src").paths == ("src",)


def test_a_file_that_cannot_be_read(project):
  (project / "pyproject.toml").write_bytes(b"[tool.tf-lossscale]\n# \xff\n")
  with pytest.raises(errors.Mistake, match=r"pyproject\.toml: .*can't decode"):
    read("src")


def test_python_3_10_needs_tomli(project, monkeypatch):
  load = builtins.__import__

  def refuse(name, *args):
    if name == "tomli":
      raise ImportError(name)
    return load(name, *args)

  monkeypatch.setattr(builtins, "__import__", refuse)
  monkeypatch.setattr(sys, "version_info", (3, 10, 14))
  write(project, "paths = []")
  with pytest.raises(errors.Mistake, match=r"3\.10 .*: pip install tomli"):
    read("src")
  text = '[project]\ndependencies = ["tf-lossscale"]\n'
  (project / "pyproject.toml").write_text(text)
  assert read("src").paths == ("src",)


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    ([], "name a PATH, or set `paths`"),
    (["-", "src"], "give PATH or -"),
    (["src", "--stdin-filename=a.py"], "--stdin-filename goes with"),
    (["typo.py"], "'typo.py' is not there"),
    (["src", "--select=LS9"], "--select: there is no code 'LS9'"),
    (["src", "--ignore=LS101,X"], "--ignore: there is no code 'X'"),
    (["src", "--select="], "--select: there is no code ''"),
  ],
)
def test_mistakes_of_the_command_line(argv, message):
  with pytest.raises(errors.Mistake) as error:
    read(*argv)
  assert message in str(error.value)


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    (["--tf1", "--tf2"], "not allowed with"),
    (["--target=2"], "'2' is no TensorFlow release"),
    (["-j0"], "'0' is no number from 1 on"),
    (["--jobs=many"], "'many' is no number"),
  ],
)
def test_words_that_argparse_refuses(argv, message, capsys):
  with pytest.raises(SystemExit) as exit_:
    read("src", *argv)
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert message in line


def test_names_of_standard_input():
  assert read("-")[:2] == ((), "-")
  assert read("-", "--stdin-filename=a.ipynb")[:2] == ((), "a.ipynb")


if __name__ == "__main__":
  helpers.main()
