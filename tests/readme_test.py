# SPDX-License-Identifier: Apache-2.0
"""Tests the code and the commands in README and the pages under docs/."""

import functools
import re

import helpers
import pytest

_README = helpers.ROOT / "README.md"
# Several processes run their programs: distributed/page_test.py and
# horovod_page_test.py.
_TESTED_APART = ("distributed", "horovod")
_PAGES = sorted((helpers.ROOT / "docs").glob("*.md"))
_LANGUAGES = {"python", "sh", "starlark", "text", "toml", "yaml"}
_COMMANDS = {
  "run",
  "scan",
  "migrate",
  "inspect",
  "convert",
  "simulate",
  "plot",
  "doctor",
}


def blocks_of(path, language=None):
  """Returns the code of a language's blocks, or (language, code) of all."""
  text = path.read_text("utf-8")
  found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
  assert text.count("```") == 2 * len(found), path
  if language is None:
    return found
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


@pytest.mark.parametrize("code", list(python_blocks()))
def test_python_blocks_run(code, tmp_path):
  if "to_keras3(" in code and helpers.RELEASE < (2, 16):
    pytest.skip("Keras 3 comes with 2.16")
  (tmp_path / "block.py").write_text(code, "utf-8")
  # A forked process has imported TensorFlow: `use_keras_2` checks that its
  # variable was set before.
  env = helpers.KERAS_2 if "use_keras_2()" in code else {}
  helpers.run_forked("block.py", cwd=tmp_path, **env)


def test_every_block_has_a_language():
  for path in (_README, *_PAGES):
    for language, _ in blocks_of(path):
      assert language in _LANGUAGES, f"{path.name}: {language!r}"
  assert blocks_of(_README, "python")
  assert len(list(python_blocks())) >= 10


@functools.cache
def makefile_targets():
  makefile = (helpers.ROOT / "Makefile").read_text("utf-8")
  return set(re.findall(r"^(\w+):", makefile, re.MULTILINE))


@pytest.mark.any_release
@pytest.mark.parametrize(
  "path",
  [_README, *(path for path in _PAGES if path.stem not in _TESTED_APART)],
  ids=lambda path: path.stem,
)
def test_shell_blocks_name_what_there_is(path):
  for block in blocks_of(path, "sh"):
    for line in block.splitlines():
      program, what, *rest = line.split("#")[0].split()
      known = {
        "make": makefile_targets(),
        "pip": {"install"},
        "tf-lossscale": _COMMANDS,
        "python": {"-m"},
      }
      assert what in known[program], line
      if what == "-m":
        assert (helpers.ROOT / f"{rest[0].replace('.', '/')}.py").exists(), line


def test_the_command_has_the_commands():
  printed = helpers.run_python("-m", "tf_compat_lossscale", "--help")
  assert all(f"    {name} " in printed for name in _COMMANDS)


@pytest.mark.any_release
def test_the_two_commands_come_first():
  ((_, first), *_) = blocks_of(_README)
  assert first.startswith("make demo")
  text = _README.read_text("utf-8")
  assert text.index("make test") < text.index("\n\n", 60)
  assert len(text.splitlines()) <= 130


if __name__ == "__main__":
  helpers.main()
