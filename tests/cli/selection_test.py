# SPDX-License-Identifier: Apache-2.0
"""Tests the options that `scan` and `migrate` share."""

import types

import command_calls
import helpers
import pytest

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import selection
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration import scanner

pytestmark = pytest.mark.any_release


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
  """Returns a folder; `scanner` is replaced by what it is called with."""
  listed = [types.SimpleNamespace(code=code) for code in ("LS101", "LS203")]
  monkeypatch.setattr(rules, "list_rules", lambda: listed)
  monkeypatch.setattr(scanner, "scan", lambda *args: args)
  monkeypatch.setattr(scanner, "scan_text", lambda *args: args)
  folder = tmp_path / "project"
  (folder / "src" / "deep").mkdir(parents=True)
  monkeypatch.chdir(folder)
  return folder


def read(*argv):
  """Returns what a command line selects, as `scanner` gets it."""
  parser = errors.Parser()
  selection.add_arguments(parser)
  arguments = parser.parse_args(argv)
  selection.read_standard_input(arguments)
  return selection.read(arguments)


def test_what_is_selected():
  paths, options, _ = read(
    *("src/deep", "src"),
    *("--exclude=b,c/d", "--exclude=e", "--select=LS203, LS1"),
    *("--ignore=LS101", "--target=2.21.0", "--tf1"),
  )
  assert paths == ["src/deep", "src"]
  assert options.exclude == ("b", "c/d", "e")
  assert (options.select, options.ignore) == (("LS203", "LS1"), ("LS101",))
  assert (options.target, options.tensorflow) == ((2, 21), 1)
  assert not options.nvidia_switch


def test_what_is_selected_by_default():
  assert read("src")[1] == scanner.Options()


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    ([], "name a PATH, or -"),
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
    (["--target=1.15"], "'1.15' is no TensorFlow release from 2.12"),
    (["--target=2.8"], "'2.8' is no TensorFlow release from 2.12"),
    (["--target=new"], "'new' is no TensorFlow release from 2.12"),
  ],
)
def test_words_that_argparse_refuses(argv, message, capsys):
  with pytest.raises(SystemExit) as exit_:
    read("src", *argv)
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert message in line


def test_names_of_standard_input(monkeypatch):
  command_calls.pipe(monkeypatch, "x")
  assert read("-")[:2] == (b"", "-")
  command_calls.pipe(monkeypatch, "x")
  assert read("-", "--stdin-filename=a.ipynb")[1] == "a.ipynb"


if __name__ == "__main__":
  helpers.main()
