# SPDX-License-Identifier: Apache-2.0
"""Tests projects of several files, untouched and migrated.

Each folder of `programs/projects/` is a project. `expected.json` there has the
commands that people typed, and the lines that each command printed on the old
release that the file names. Today, the commands must print the same lines under
`tf-lossscale run`, and under Python alone once the project is migrated.
"""

import functools
import json
import re
import shlex
import shutil

import helpers
import legacy_runner
import processes
import pytest

from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.migration import scanner

_PROJECTS = helpers.TESTS / "programs" / "projects"
_EXPECTED = json.loads((_PROJECTS / "expected.json").read_text("utf-8"))
_RUNNER = str(helpers.HARNESS / "legacy_runner.py")

# Projects without a file that starts a program -> the file that runs first.
_BY_HAND = {"console_scripts": "segnet/__init__.py"}

# What pip writes for a console script.
_CONSOLE_SCRIPT = """\
import sys
from {module} import {function}
if __name__ == '__main__':
    sys.exit({function}())
"""


def copy_project(name, tmp_path):
  """Copies a project without what ran programs left; returns the copy."""
  copy = tmp_path / name
  shutil.copytree(
    _PROJECTS / name, copy, ignore=shutil.ignore_patterns("__pycache__")
  )
  return copy


@functools.cache  # Several tests need the project.
def migrate_project(name, folder):
  """Migrates a copy of a project in a folder; returns the copy."""
  project = copy_project(name, folder)
  assert cli.main(["migrate", "--write", str(project)]) == 0
  left = scanner.scan([str(project)]).findings
  assert [f.code for f in left] == ["LS206"] * (name in _BY_HAND)
  for found in left:  # The user types what the finding says.
    path = project / _BY_HAND[name]
    code = found.message.split("`")[1].replace("; ", "\n")
    path.write_text(f"{code}\n{path.read_text('utf-8')}", "utf-8")
  return project


@pytest.fixture(params=sorted(_EXPECTED))
def name(request):
  return request.param


@pytest.fixture(scope="session")
def migrated_folder(tmp_path_factory):
  return tmp_path_factory.mktemp("migrated")


@pytest.fixture
def migrated(name, migrated_folder, tmp_path):
  """Returns a copy of a migrated project."""
  project = migrate_project(name, migrated_folder)
  return shutil.copytree(project, tmp_path / project.name)


def read_contents(project):
  """Returns the bytes of each file of a project."""
  return {
    path.relative_to(project): path.read_bytes()
    for path in project.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
  }


def find_entry_point(project, name):
  """Returns module and function of a console script of a project."""
  for file in ("setup.py", "pyproject.toml"):
    path = project / file
    if path.exists():
      pattern = rf"\b{re.escape(name)}\s*=\s*\"?([\w.]+):(\w+)"
      match = re.search(pattern, path.read_text("utf-8"))
      if match:
        return match.groups()
  raise AssertionError(f"{project.name} has no console script {name}")


def read_notebook(path):
  """Returns the code of a notebook as Python's own, without magics."""
  cells = json.loads(path.read_text("utf-8"))["cells"]
  code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
  lines = "\n".join(code).splitlines()
  return "\n".join(line for line in lines if not line.startswith(("%", "!")))


def prepare_command(project, command):
  """Makes what a command runs as people would have it installed.

  Args:
    project: The project's folder.
    command: The command as a line of text. It begins with a script, `-m`, a
      notebook, or the name of a console script.

  Returns:
    The folder to put into PYTHONPATH, or None, and the arguments of Python.
  """
  first, *rest = shlex.split(command)
  if first == "-m" or first.endswith(".py"):
    return None, [first, *rest]
  installed = project.parent / "bin" / first.replace(".ipynb", ".py")
  installed.parent.mkdir(exist_ok=True)
  if first.endswith(".ipynb"):
    code = read_notebook(project / first)
  else:
    module, function = find_entry_point(project, first)
    code = _CONSOLE_SCRIPT.format(module=module, function=function)
  installed.write_text(code, "utf-8")
  source = project / "src"
  return source if source.exists() else project, [str(installed), *rest]


def run_forked(project, command, *options):
  """Runs a command in a forked process; returns the lines it prints.

  Args:
    project: The folder to run in.
    command: The command: see `prepare_command`.
    *options: `--plain` to run it by Python alone.
  """
  path, args = prepare_command(project, command)
  args = [_RUNNER, *options, *([f"--path={path}"] if path else []), *args]
  env = helpers.KERAS_2
  done = processes.complete_forked(*args, cwd=project, **env)
  if done.returncode == legacy_runner.OTHER_KERAS:
    done = processes.complete_forked(*args, cwd=project)
  assert done.returncode == 0, done.stdout + done.stderr
  return done.stdout.splitlines()


def check_prints(name, run_command, project, *options):
  """Checks that all commands of a project print what they should."""
  for row in _EXPECTED[name]:
    printed = run_command(project, row["command"], *options)
    assert printed == row["printed"], row["command"]


@pytest.mark.thorough
def test_runs_untouched(name, tmp_path):
  check_prints(name, run_forked, copy_project(name, tmp_path))


@pytest.mark.thorough
@pytest.mark.any_release  # The test above runs the commands on all releases.
def test_runs_migrated(name, migrated):
  check_prints(name, run_forked, migrated, "--plain")


@pytest.mark.any_release
def test_migrate_edits_sources_alone_and_once(name, migrated, capsys):
  assert cli.main(["scan", str(_PROJECTS / name)]) == 1
  assert capsys.readouterr().out
  assert cli.main(["scan", str(migrated)]) == 0
  before, after = map(read_contents, (_PROJECTS / name, migrated))
  assert set(after) == set(before)
  changed = {path.suffix for path in before if before[path] != after[path]}
  assert changed and changed <= {".py", ".ipynb"}
  assert cli.main(["migrate", "--write", str(migrated)]) == 0
  assert read_contents(migrated) == after
