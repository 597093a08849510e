# SPDX-License-Identifier: Apache-2.0
"""Tests the programs of `make demo` and `make gpu`, on the CPU."""

import runpy

import helpers
import processes
import pytest

pytestmark = pytest.mark.any_release
_DEMO = str(helpers.ROOT / "examples" / "resume_digits.py")


def demo(*args, cwd):
  """Runs the demo; returns the completed process."""
  return processes.complete_forked(_DEMO, *args, cwd=cwd, COLUMNS="100")


@pytest.mark.thorough
def test_resumes_and_compares(tmp_path):
  done = demo("--steps=100", cwd=tmp_path)
  assert done.returncode == 0, done.stderr
  table = done.stdout.splitlines()
  judged = [line.split() for line in table if line.split()[-1:] == ["ok"]]
  # Three restored values, then three after 50 and after 100 steps.
  assert [row[-3:-1] for row in judged[:3]] == [
    ["391", "391"],
    ["524,288", "524,288"],
    ["16", "16"],
  ]
  assert len(judged) == 9
  assert "within a point" in done.stdout
  path = table[-1].split()[-1]
  assert (tmp_path / (path + ".index")).exists()
  again = demo("--steps=50", cwd=tmp_path)
  assert again.returncode == 0, again.stderr


def test_what_is_near():
  progress = runpy.run_path(_DEMO)["Progress"]
  recorded = progress(488, 1.04858e6, 0.9057)
  assert progress(489, 2.09715e6, 0.9158).is_near(recorded) == (True,) * 3
  assert progress(491, 4.19430e6, 0.9192).is_near(recorded) == (False,) * 3


@pytest.mark.parametrize(
  "args", [["--steps=0"], ["--step=9"], ["somewhere"], ["--output=full"]]
)
def test_mistakes(args, tmp_path):
  (tmp_path / "full").mkdir()
  (tmp_path / "full" / "thesis.tex").write_text("precious")
  done = demo(*args, cwd=tmp_path)
  assert done.returncode != 0
  assert "Traceback" not in done.stderr
  assert (tmp_path / "full" / "thesis.tex").read_text() == "precious"


@pytest.mark.thorough
def test_all_checks_for_a_gpu_hold():
  flags = ("--only=checks,steps", "--steps=100", "--width=64", "--rounds=3")
  printed = processes.run_python("tools/gpu.py", *flags, timeout=900)
  assert printed.count(" | ok | ") == 5, printed
  assert "14 of 14 products" in printed and "100 small" in printed
