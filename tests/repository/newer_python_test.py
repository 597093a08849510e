# SPDX-License-Identifier: Apache-2.0
"""Tests what needs no TensorFlow on newer Pythons, if they are installed."""

import pathlib
import shutil
import subprocess

import absl
import helpers
import pytest

pytestmark = pytest.mark.any_release

_PYTHONS = ("python3.12", "python3.13", "python3.14", "python3.15")
_CODE = """if True:
  import pathlib, sys, warnings
  sys.dont_write_bytecode = True
  root, site = sys.argv[1:3]
  sys.path[:0] = [root, site]
  warnings.simplefilter("error")
  for path in pathlib.Path(root, "tf_compat_lossscale").rglob("*.py"):
    compile(path.read_text("utf-8"), str(path), "exec")
  from tf_compat_lossscale.cli import main
  sys.exit(main.main(sys.argv[3:]))
"""


def find(name):
  """Returns the path of a Python that runs, or None."""
  path = shutil.which(name)
  if path is None:
    return None
  done = subprocess.run([path, "--version"], capture_output=True)
  return None if done.returncode else path


@pytest.mark.parametrize("name", _PYTHONS)
def test_commands_that_need_no_tensorflow(name, tmp_path):
  python = find(name)
  if python is None:
    pytest.skip(f"{name} is not installed")
  # Of the packages of this environment, only pure Python is for all.
  package = pathlib.Path(next(iter(absl.__path__)))
  (tmp_path / "site").mkdir()
  (tmp_path / "site" / "absl").symlink_to(package)
  program = tmp_path / "old.py"
  program.write_text(
    "import tensorflow as tf\n"
    "scale = tf.train.experimental.FixedLossScale(8)\n"
    "with tf.Session() as session:\n"
    "  print(session.run(scale()))\n"
  )

  def run(*argv):
    return subprocess.run(
      [python, "-c", _CODE, helpers.ROOT, tmp_path / "site", *argv],
      capture_output=True,
      cwd=tmp_path,
      text=True,
      timeout=120,
    )

  found = run("scan", program)
  assert found.returncode == 1 and not found.stderr, found
  assert "LS101 tf.train.experimental.FixedLossScale" in found.stdout
  assert run("version").stdout.splitlines()[-1].startswith("Python 3.")
  assert run("plot", "--bogus").returncode == 2
  edited = run("migrate", "--write", program)
  assert edited.returncode == 0, edited
  assert "tfl.FixedLossScale(8)" in program.read_text("utf-8")
  missing = run("run", program)
  assert missing.returncode == 2
  assert "install TensorFlow 2.12 or later" in missing.stderr
  if int(name.rpartition(".")[2]) >= 14:
    assert "no wheels for Python 3." in missing.stderr


if __name__ == "__main__":
  helpers.main()
