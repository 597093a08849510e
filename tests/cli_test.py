"""The command line."""

import importlib.metadata
import os
import subprocess
import sys

import helpers
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale.cli import main as cli


def test_version(capsys):
  assert cli.main(["version"]) == 0
  printed = capsys.readouterr().out.splitlines()
  assert printed[0] == f"tf_compat_lossscale {tfl.__version__}"
  assert printed[1] == f"tensorflow {importlib.metadata.version('tensorflow')}"


@pytest.mark.parametrize(
  ("argv", "what"),
  [
    ([], "COMMAND"),
    (["versoin"], "versoin"),
    (["version", "--loud"], "--loud"),
  ],
)
def test_mistakes_are_one_line(argv, what, capsys):
  with pytest.raises(SystemExit) as exit_:
    cli.main(argv)
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith("tf-lossscale") and what in line


def test_as_a_module():
  printed = helpers.run_python("-m", "tf_compat_lossscale", "version")
  assert printed.startswith(f"tf_compat_lossscale {tfl.__version__}\n")


def test_a_reader_that_leaves_early():
  command = f"{sys.executable} -m tf_compat_lossscale version | true"
  done = subprocess.run(
    ["bash", "-c", command],
    capture_output=True,
    cwd=helpers.ROOT,
    text=True,
    timeout=60,
  )
  assert done.returncode == 0 and not done.stderr


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


if __name__ == "__main__":
  helpers.main()
