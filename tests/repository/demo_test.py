# SPDX-License-Identifier: Apache-2.0
"""Tests the demo's program."""

import helpers
import pytest

_DEMO = str(helpers.ROOT / "examples" / "resume_digits.py")


def demo(*args, cwd):
  """Runs the demo; returns the completed process."""
  return helpers.complete_forked(_DEMO, *args, cwd=cwd, COLUMNS="100")


@pytest.mark.any_release
@pytest.mark.thorough
def test_resumes_and_compares(tmp_path):
  done = demo("--steps=100", cwd=tmp_path)
  assert done.returncode == 0, done.stderr
  table = done.stdout.splitlines()
  restored = next(line.split() for line in table if "restored" in line)
  assert restored[-2:] == ["524,288", "524,288"]
  good_steps = [line.split() for line in table if "good steps" in line]
  assert good_steps[0][-2:] == ["16", "16"]
  accuracies = [
    line.split() for line in table if line.split()[:1] == ["accuracy"]
  ]
  for _, was, now in accuracies:
    assert abs(float(was) - float(now)) < 0.03
  path = table[-1].split()[-1]
  assert (tmp_path / (path + ".index")).exists()
  again = demo("--steps=50", cwd=tmp_path)
  assert again.returncode == 0, again.stderr


@pytest.mark.any_release
def test_the_old_program_is_as_it_was():
  program = (helpers.ROOT / "examples/legacy/train_digits.py").read_text(
    "utf-8"
  )
  assert "tf_compat_lossscale" not in program
  assert "import tensorflow as tf" in program


@pytest.mark.any_release
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


if __name__ == "__main__":
  helpers.main()
