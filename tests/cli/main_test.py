# SPDX-License-Identifier: Apache-2.0
"""Tests the command line."""

import errno
import importlib.metadata
import os
import re
import subprocess
import sys

import processes
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import main
from tf_compat_lossscale.cli import run
from tf_compat_lossscale.cli import version

pytestmark = pytest.mark.any_release


def test_version(capsys):
  assert main.main(["version"]) == 0
  printed = capsys.readouterr().out.splitlines()
  assert printed[0] == f"tf_compat_lossscale {tfl.__version__}"
  assert printed[1] == f"tensorflow {importlib.metadata.version('tensorflow')}"
  for option in ("--version", "-V"):
    with pytest.raises(SystemExit) as done:
      main.main([option])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"{printed[0]}\n"


def _read_error(capsys, *argv, status=2):
  with pytest.raises(SystemExit) as exit_:
    main.main(argv)
  assert exit_.value.code == status
  (line,) = capsys.readouterr().err.splitlines()
  return line


@pytest.mark.parametrize("name", main._COMMANDS)
def test_a_bad_flag_leads_to_the_help_of_its_subcommand(name, capsys):
  for argv in ([name, "--bogus"], ["--traceback", name, "--bogus=3"]):
    line = _read_error(capsys, *argv)
    assert line.startswith(f"tf-lossscale {name}: ")
    assert line.endswith(f"; see tf-lossscale {name} --help")


@pytest.mark.parametrize(
  ("argv", "start", "end"),
  [
    (["plot", "x", "--tga=y"], "plot: ", "(did you mean '--tag'?)"),
    (["plot", "x", "--traceback"], "plot: ", "(--traceback goes before plot)"),
    (["plot", "-V", "x"], "plot: ", "(-V goes before plot)"),
    (["plot", "a", "--", "--tag=1"], "plot: ", None),
    (["--tag", "plot", "x"], "", "(--tag goes after plot)"),
    (["--versoin"], "", "(did you mean '--version'?)"),
    (["run", "--quite", "x.py"], "run: ", "(did you mean '--quiet'?)"),
    (["convert", "a", "b", "c", "--to=fp32"], "convert: ", ": c"),
    (
      ["run", "--steps=5", "train.py"],
      "run: ",
      "--steps=5 (the program's options go after it)",
    ),
    (["scan", "--fix", "src"], "scan: ", "migrate --write makes the edits)"),
    (["migrate", "-w", "src"], "migrate: ", "migrate --write makes the edits)"),
    (["migrate", "--dry-run", "src"], "migrate: ", "--write edits files)"),
    (["doctor", "--json", "x"], "doctor: ", "--json (use --format=json)"),
    (["plot", "--json", "x"], "plot: ", "unrecognized arguments: --json"),
  ],
)
def test_words_of_no_parser(argv, start, end, capsys):
  line = _read_error(capsys, *argv)
  assert line.startswith(f"tf-lossscale{f' {start}' if start else ': '}")
  help_ = f"; see tf-lossscale {start and start[:-2] + ' '}--help"
  assert line.endswith((end or "") + help_)


@pytest.mark.parametrize(
  ("argv", "words"),
  [
    (["pltt", "x"], "'pltt' (did you mean 'plot'?): choose from version, run"),
    (["scan", "--format=jsno"], "did you mean 'json'?"),
    (["inspect", "--format=JSON", "x"], "did you mean 'json'?"),
    (["scan", "--select=ls101", "."], "did you mean 'LS101'?"),
    (["bogus"], "'bogus': choose from version, run"),
    ([], "COMMAND"),
  ],
)
def test_choices(argv, words, capsys):
  assert words in _read_error(capsys, *argv)


@pytest.mark.parametrize(
  ("error", "status", "end"),
  [
    # No help can mend the machine.
    (OSError(errno.ENOSPC, "No space", "/there"), 2, "/there: No space"),
    (OSError(errno.EIO, "A fault", "/there"), 2, "/there: A fault"),
    (MemoryError(), 2, "there is not enough memory"),
    (
      OSError(errno.ENOENT, "No file"),
      2,
      "No file; see tf-lossscale version --help",
    ),
    # EX_SOFTWARE: an internal error.
    (
      KeyError("two\nlines"),
      70,
      "internal error: KeyError: 'two\\nlines'; "
      "tf-lossscale --traceback version shows where",
    ),
  ],
)
def test_an_error_is_one_line(error, status, end, monkeypatch, capsys):
  def fail(arguments):
    raise error

  monkeypatch.setattr(version, "execute", fail)
  line = _read_error(capsys, "version", status=status)
  assert line == f"tf-lossscale version: {end}"
  with pytest.raises(type(error)):
    main.main(["--traceback", "version"])


def test_tracebacks_if_asked_for(capsys):
  with pytest.raises(checkpoint.CheckpointError):
    main.main(["--traceback", "inspect", "nowhere"])
  with pytest.raises(errors.Mistake):
    main.main(["--traceback", "convert", "nowhere", "new", "--to=fp32"])
  with pytest.raises(errors.Mistake, match="SCRIPT"):
    main.main(["--traceback", "run", "--quiet"])


@pytest.mark.parametrize(
  ("argv", "expected"),
  [
    (["run", "x.py", "--tf1"], (["run"], ["x.py", "--tf1"])),
    (["run", "--tf1", "-m", "x"], (["run", "--tf1"], ["-m", "x"])),
    (["run", "--tf1", "-c", "x"], (["run", "--tf1"], ["-c", "x"])),
    (["--traceback", "run", "-"], (["--traceback", "run"], ["-"])),
    (["run", "--quiet"], (["run", "--quiet"], [])),
    (["scan", "run", "x.py"], (["scan", "run", "x.py"], [])),
    (["--help"], (["--help"], [])),
    ([], ([], [])),
  ],
)
def test_the_words_of_a_program_are_its_own(argv, expected):
  assert run.split_words(argv) == expected


_LIKE_WINDOWS = """if True:
  import importlib, os, pkgutil, signal, sys
  import numpy  # NumPy's import needs names that are removed below.
  for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
  for name in ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGUSR1"):
    delattr(signal, name)
  for name in ("fork", "getuid", "killpg", "setsid", "uname"):
    delattr(os, name)
  from tf_compat_lossscale import cli, migration, programs
  count = 0
  for package in (cli, migration, programs):
    for module in pkgutil.iter_modules(package.__path__):
      if module.name in ("rehearsal", "watching"):
        continue  # They are loaded when the program has loaded TensorFlow.
      importlib.import_module(f"{package.__name__}.{module.name}")
      count += 1
  assert count > 15, count
  assert "tensorflow" not in sys.modules
"""


def test_modules_need_nothing_that_windows_lacks():
  processes.run_python("-c", _LIKE_WINDOWS)


def test_subcommands_load_when_used():
  code = """if True:
    import sys
    from tf_compat_lossscale.cli import main
    try:
      main.main(["--help"])
    except SystemExit as exit_:
      assert not exit_.code
    assert not {"tensorflow", "numpy", "ast"} & set(sys.modules)
    ours = [name for name in sys.modules if name.startswith("tf_compat_")]
    assert not [name for name in ours if "checkpoint" in name]
    assert not [name for name in ours if "programs" in name]
  """
  assert "inspect" in processes.run_python("-c", code)


def test_the_shell_completes_words(monkeypatch):
  argcomplete = pytest.importorskip("argcomplete")
  monkeypatch.setenv("_ARGCOMPLETE", "1")
  asked = []
  monkeypatch.setattr(argcomplete, "autocomplete", asked.append)
  assert main.main(["version"]) == 0
  (parser,) = asked
  finder = argcomplete.CompletionFinder(parser)
  words = finder._get_completions(["tf-lossscale", "scan"], "--ta", "", None)
  assert [word.strip() for word in words] == ["--target"]


@pytest.mark.parametrize("columns", [60, 100])
def test_help_breaks_no_word(columns, monkeypatch, capsys):
  monkeypatch.setenv("COLUMNS", str(columns))
  for name in main._COMMANDS:
    with pytest.raises(SystemExit):
      main.main([name, "--help"])
    page = capsys.readouterr().out
    assert not re.search(r"\w-\n", page), page


@pytest.mark.skipif(
  "TEST_SRCDIR" in os.environ, reason="pip's command; Bazel makes its own"
)
def test_installed_command():
  command = os.path.join(os.path.dirname(sys.executable), "tf-lossscale")
  done = subprocess.run(
    [command, "version"], capture_output=True, text=True, timeout=60
  )
  assert done.returncode == 0
  assert done.stdout.startswith(f"tf_compat_lossscale {tfl.__version__}\n")
