# SPDX-License-Identifier: Apache-2.0
"""Tests the package's errors if TensorFlow is missing or too old."""

import subprocess
import sys

import helpers
import pytest

pytestmark = pytest.mark.any_release

_MISSING = "needs TensorFlow, which is missing: install TensorFlow 2.12"
_ABSENT = "import sys; sys.modules['tensorflow'] = None"
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
  "use",
  [
    "tfl.DynamicLossScale(8)",
    "tfl.checkpoint.describe",
    "tfl.checkpoint.restore",
    "tfl.keras.Policy",
    "tfl.install()",
    "from tf_compat_lossscale import gradients",
  ],
)
def test_the_first_use_says_what_to_install(use):
  done = run_code(_ABSENT, "import tf_compat_lossscale as tfl", use)
  *_, last = done.stderr.splitlines()
  assert last.startswith(f"ImportError: tf_compat_lossscale {_MISSING}")
  assert "[tensorflow]" in last


@pytest.mark.parametrize("use", ["tfl.DynamicLossScale(8)", "tfl.install()"])
def test_an_old_tensorflow_is_named(use):
  done = run_code(_OLD, "import tf_compat_lossscale as tfl", use)
  *_, last = done.stderr.splitlines()
  assert "does not run on TensorFlow 2.8.4: install TensorFlow 2.12" in last
  assert last.startswith("ImportError: ")


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


if __name__ == "__main__":
  helpers.main()
