# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/monitoring.md shows what is printed."""

import pathlib
import re

import helpers
import pytest

pytestmark = [pytest.mark.any_release, pytest.mark.thorough]

_PAGE = (helpers.ROOT / "docs" / "monitoring.md").read_text("utf-8")
_EXAMPLE = str(helpers.ROOT / "examples" / "watch_digits.py")
_COMMAND = ("-m", "tf_compat_lossscale")
_BLOCKS = re.findall(r"^```text\n(.*?)^```$", _PAGE, re.DOTALL | re.MULTILINE)
_LOG, _PLOT, _VERDICT = _BLOCKS[-3:]


def leave_out_numbers(text):
  """Returns lines whose numbers and spaces are left out.

  Another processor may round float16 otherwise, and other elements overflow.
  """
  return [
    " ".join(re.sub(r"[-+.\d]*\d%?", "#", line).split())
    for line in text.splitlines()
  ]


def test_the_example_plants_what_the_page_says():
  source = pathlib.Path(_EXAMPLE).read_text("utf-8")
  found = dict(re.findall(r'DEFINE_integer\(\s*"(\w+)", (\d+)', source))
  assert f"At step\n{found['nan_at']}, the gradient of one kernel" in _PAGE
  assert f"From step {found['overflow_from']} on, the gradient of an" in _PAGE
  assert f"\nsteps {found['steps']}, skipped " in _PLOT


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """Runs Python where the example has run; returns the status and the text.

  The run of the page takes five times as many steps of eight times as many
  images. It does the same.
  """
  folder = tmp_path_factory.mktemp("run")

  def run(*args):
    done = helpers.complete_forked(*args, cwd=folder, COLUMNS="86")
    return done.returncode, done.stdout + done.stderr

  faults = ("--nan_at=50", "--overflow_from=60", "--increment_period=20")
  size = "--batch_size=8"
  run.status, run.log = run(_EXAMPLE, "--steps=170", size, *faults)
  return run


@pytest.mark.thorough
def test_log(run):
  assert run.status == 0, run.log
  lines = [line.partition("] ")[2] for line in run.log.splitlines()]
  printed = set(leave_out_numbers("\n".join(lines)))
  for line in leave_out_numbers(_LOG):
    assert line == "…" or line in printed
  for planted, text in ("300 500 599", _LOG), ("50 60 159", run.log):
    nan_at, overflow_from, stuck_at = planted.split()
    for expected in (
      rf"Step {nan_at} was skipped; .*: conv_2/kernel: 0 inf, 4608 NaN of 4608",
      rf"Step {overflow_from} was skipped; .* 1 of 6 gradients: dense/kernel: ",
      rf"The loss scale is stuck: the last 100 steps were skipped, from step "
      rf"{overflow_from} to step {stuck_at}; ",
    ):
      assert re.search(expected, text)


@pytest.mark.thorough
def test_plot(run):
  status, text = run(*_COMMAND, "plot", "build/watch")
  assert status == 0
  printed = leave_out_numbers(text)
  # The run of the page is longer, so it says so twice.
  shown = leave_out_numbers(re.sub(r" \(said 2 times, .*\)", "", _PLOT))
  assert {*shown[:1], *shown[11:]} <= set(printed)


def test_verdict(run):
  status, text = run(*_COMMAND, "doctor", "build/watch/loss_scale.jsonl")
  assert status == 1
  assert leave_out_numbers(text) == leave_out_numbers(_VERDICT)
  assert "stuck at 1 since step 7" in text
  assert "dense/kernel (in 9" in text


@pytest.mark.thorough
def test_other_runs_are_not_judged_alike(run):
  arguments = ("--steps=100", "--output=build/healthy", "--overflow_from=1000")
  status, log = run(_EXAMPLE, *arguments, "--nan_at=1000")
  assert status == 0
  assert "skipped;" not in log
  status, text = run(*_COMMAND, "doctor", "build/healthy/loss_scale.jsonl")
  assert status == 0
  assert "healthy" in text
