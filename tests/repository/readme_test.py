# SPDX-License-Identifier: Apache-2.0
"""Tests the code and the commands in README and the pages under docs/."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import helpers
import processes
import pytest

_README = helpers.ROOT / "README.md"
# Several processes run these programs: distributed/page_test.py and
# horovod_test.py.
_TESTED_APART = ("distributed",)
_PAGES = sorted((helpers.ROOT / "docs").glob("*.md"))
_DOCS = helpers.ROOT / "docs"
_OF_DEVELOPERS = ("bench", "test", "lint", "docs", "dev", "mutants")


def blocks_of(path, language):
  """Returns the code of a language's blocks on a page."""
  text = path.read_text("utf-8")
  found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
  assert text.count("```") == 2 * len(found), path
  return [code for own, code in found if own == language]


def python_blocks():
  """Yields a parameter for each Python block of README and pages."""
  for path in (_README, *_PAGES):
    # The README uses the parts of the API that depend on the release.
    marks = [] if path == _README else [pytest.mark.any_release]
    if path.stem in _TESTED_APART:
      continue
    for i, code in enumerate(blocks_of(path, "python")):
      yield pytest.param(code, id=f"{path.stem}-{i}", marks=marks)


@pytest.mark.thorough
@pytest.mark.parametrize("code", list(python_blocks()))
def test_python_blocks_run(code, tmp_path):
  if "Keras3LossScale" in code and helpers.RELEASE < (2, 16):
    pytest.skip("Keras 3 comes with 2.16")
  (tmp_path / "block.py").write_text(code, "utf-8")
  # A forked process has imported TensorFlow: `use_keras_2` checks that its
  # variable was set before.
  env = helpers.KERAS_2 if "use_keras_2()" in code else {}
  processes.run_forked("block.py", cwd=tmp_path, **env)


@pytest.mark.any_release
@pytest.mark.parametrize("language", ["python", "py", "sh", "starlark"])
def test_lines_of_blocks_fit_a_column(language):
  for path in (_README, *_PAGES):
    for code in blocks_of(path, language):
      wide = [line for line in code.splitlines() if len(line) > 80]
      assert not wide, path.name


@pytest.mark.any_release
def test_the_two_commands_come_first():
  first, *_ = blocks_of(_README, "sh")
  assert re.findall("^make [a-z]+", first, re.M) == ["make demo", "make test"]
  lines = _README.read_text("utf-8").splitlines()
  assert "make test" in "\n".join(lines[:32])
  assert len(lines) <= 130


def complete(line, folder):
  """Runs a line of a shell; returns what it printed, errors, too."""
  program, *arguments = shlex.split(line)
  if program == "cp":
    sources = [helpers.ROOT / name for name in arguments[:-1] if name[0] != "-"]
    target = folder / arguments[-1]
    for source in sources:
      if source.is_dir():
        shutil.copytree(source, target)
      else:
        shutil.copy(source, target)
    return ""
  command = {
    "python": [sys.executable],
    "tf-lossscale": [sys.executable, "-m", "tf_compat_lossscale"],
  }[program]
  done = subprocess.run(
    [*command, *arguments],
    cwd=folder,
    env={**os.environ, "PYTHONPATH": str(helpers.ROOT)},
    stderr=subprocess.STDOUT,
    stdout=subprocess.PIPE,
    text=True,
    timeout=300,
  )
  assert done.returncode == 0, done.stdout
  return done.stdout


def check_console(block, folder):
  """Runs a block's commands, and compares what they print with the block.

  A line "…" stands for any lines, and so does the end. Of a line with an
  accuracy, the numbers are not compared: they depend on the processor.
  """
  _, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
  assert parts
  for part in parts:
    command, *shown = part.splitlines()
    printed = iter(complete(command, folder).splitlines())
    skips = False
    for line in shown:
      if line == "…":
        skips = True
        continue
      numbers = r"[\d.e+]+" if "accuracy" in line else r"(?!)"
      wanted = re.sub(numbers, "#", line)
      for found in printed:
        if re.sub(numbers, "#", found) == wanted:
          break
        assert skips, f"{command}: {line!r} expected, {found!r} printed"
      else:
        pytest.fail(f"{command}: {line!r} is not printed")
      skips = False


@pytest.mark.thorough
def test_the_tutorial(tmp_path):
  for block in blocks_of(_DOCS / "tutorial.md", "console"):
    check_console(block, tmp_path)
  assert (tmp_path / "weights.npz").exists()


@pytest.mark.thorough
@pytest.mark.any_release
def test_the_readme_shows_what_is_printed(tmp_path):
  (tmp_path / "examples").symlink_to(helpers.ROOT / "examples")
  (block,) = blocks_of(_README, "console")
  check_console(block, tmp_path)


@pytest.mark.any_release
def test_the_readme_lists_the_extras():
  project = (helpers.ROOT / "pyproject.toml").read_text("utf-8")
  _, _, rest = project.partition("[project.optional-dependencies]\n")
  section, _, _ = rest.partition("\n[")
  extras = re.findall(r"^(\w+) = \[", section, re.MULTILINE)
  rows = re.findall(r"^\| `(\w+)` \|", _README.read_text("utf-8"), re.M)
  assert rows == [name for name in extras if name not in _OF_DEVELOPERS]
