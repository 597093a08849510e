# SPDX-License-Identifier: Apache-2.0
"""Tests the package's metadata, and its errors without a TensorFlow."""

import re
import runpy
import subprocess
import sys

import helpers
import pytest

pytestmark = pytest.mark.any_release

_PROJECT = "https://example.org/o/p"
_PAGES = "https://pages.example.org"
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MADE = runpy.run_path(str(helpers.ROOT / "setup.py"), run_name="made")


def make_absolute(text, project=_PROJECT, documentation=_PAGES):
  return _MADE["make_links_absolute"](text, project, documentation)


def read_settings():
  tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
  return tomllib.loads((helpers.ROOT / "pyproject.toml").read_text("utf-8"))


def test_no_relative_link_is_left_of_the_readme():
  readme = (helpers.ROOT / "README.md").read_text("utf-8")
  assert len(_LINK.findall(readme)) > 10
  for known in ((_PROJECT, _PAGES), (_PROJECT, ""), ("", _PAGES), ("", "")):
    text = make_absolute(readme, *known)
    assert not [x for x in _LINK.findall(text) if not re.match("https://|#", x)]
    assert "Checkpoints" in text
  text = "[a](docs/x.md#y) [b](#c) [d](LICENSE) `[e](f)`"
  assert make_absolute(text) == (
    f"[a]({_PAGES}/x.html#y) [b](#c) [d]({_PROJECT}/blob/main/LICENSE) `[e](f)`"
  )
  urls = _MADE["make_urls"](_PROJECT, _PAGES)
  assert urls["Documentation"] == _PAGES and urls["Source"] == _PROJECT
  assert urls["Changelog"] == f"{_PROJECT}/blob/main/CHANGELOG.md"
  assert _MADE["make_urls"]("", "") == {}


def test_what_needs_tensorflow_is_for_pythons_that_it_has_wheels_for():
  project = read_settings()["project"]
  assert "version" in project["dynamic"] and project["authors"][0]["name"]
  for extra in ("tensorflow", "keras"):
    (requirement,) = project["optional-dependencies"][extra]
    assert requirement.endswith("; python_version < '3.14'")
  pythons = [
    c.rpartition(" ")[2]
    for c in project["classifiers"]
    if c.startswith("Programming Language :: Python :: 3.")
  ]
  assert pythons == ["3.10", "3.11", "3.12", "3.13", "3.14"]


# Python with a tensorflow that is missing, too old, or damaged.

_MISSING = "needs TensorFlow, which is missing: install TensorFlow 2.12"
_ABSENT = "import sys; sys.modules['tensorflow'] = None"
_NEW_PYTHON = f"{_ABSENT}; sys.version_info = (3, 14, 0)"
_TOO_OLD = "does not run on TensorFlow 2.8.4: install TensorFlow 2.12"
_OLD = (
  "import sys, types; old = types.ModuleType('tensorflow'); "
  "old.__version__ = '2.8.4'; sys.modules['tensorflow'] = old"
)


def run_code(*lines):
  """Runs lines of Python in a process; returns its status and both streams."""
  return subprocess.run(
    [sys.executable, "-c", "\n".join(lines)],
    capture_output=True,
    cwd=helpers.ROOT,
    text=True,
    timeout=60,
  )


def command_line(*args):
  """Returns the lines that run `tf-lossscale ARGS`."""
  return (
    "from tf_compat_lossscale.cli import main",
    f"sys.exit(main.main({list(args)!r}))",
  )


def test_what_needs_no_tensorflow_works_without():
  done = run_code(
    _ABSENT,
    "import tf_compat_lossscale as tfl",
    "assert 'DynamicLossScale' in dir(tfl)",
  )
  assert done.returncode == 0, done.stderr
  done = run_code(_ABSENT, *command_line("scan", __file__))
  assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
  ("setup", "use", "words"),
  [
    (_ABSENT, "tfl.DynamicLossScale(8)", _MISSING),
    (_ABSENT, "tfl.checkpoint.describe", _MISSING),
    (_ABSENT, "tfl.keras.Policy", _MISSING),
    (_ABSENT, "tfl.install()", _MISSING),
    (_ABSENT, "from tf_compat_lossscale import gradients", _MISSING),
    (_NEW_PYTHON, "tfl.DynamicLossScale(8)", "no wheels for Python 3.14: use"),
    (_OLD, "tfl.DynamicLossScale(8)", _TOO_OLD),
    (_OLD, "tfl.install()", _TOO_OLD),
  ],
)
def test_the_first_use_says_what_to_install(setup, use, words):
  done = run_code(setup, "import tf_compat_lossscale as tfl", use)
  *_, last = done.stderr.splitlines()
  assert last.startswith("ImportError: tf_compat_lossscale ") and words in last
  assert "[tensorflow]" in last


def test_other_errors_of_imports_stay_as_they_are():
  done = run_code(
    _OLD,
    "old.__version__ = '2.12.0'",
    "import tf_compat_lossscale as tfl",
    "tfl.DynamicLossScale",
  )
  *_, last = done.stderr.splitlines()
  assert last.startswith("ModuleNotFoundError: No module named 'tensorflow.")


def test_run_says_it_in_one_line(tmp_path):
  (tmp_path / "old.py").write_text("import tensorflow as tf\n", "utf-8")
  program = str(tmp_path / "old.py")
  done = run_code(_ABSENT, *command_line("run", program))
  assert done.returncode == 2
  assert done.stderr.startswith("tf-lossscale run: tf_compat_lossscale needs")
  assert done.stderr.count("\n") == 1
