# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/monitoring.md shows what is printed."""

import os
import re
import subprocess
import sys

import helpers
import pytest

pytestmark = pytest.mark.any_release

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


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """Runs Python where the example has run; returns the status and the text."""
  folder = tmp_path_factory.mktemp("run")

  def run(*args):
    done = subprocess.run(
      [sys.executable, *args],
      cwd=folder,
      env={**os.environ, "PYTHONPATH": str(helpers.ROOT), "COLUMNS": "86"},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      timeout=300,
    )
    return done.returncode, done.stdout

  status, run.log = run(_EXAMPLE, "--output=build/watch")
  assert status == 0, run.log
  return run


def test_log(run):
  lines = [line.partition("] ")[2] for line in run.log.splitlines()]
  printed = set(leave_out_numbers("\n".join(lines)))
  for line in leave_out_numbers(_LOG):
    assert line == "…" or line in printed
  for planted in (
    "Step 300 was skipped; .* 1 of 6 gradients: conv_2/kernel: 0 inf, 4608 NaN",
    "Step 500 was skipped; .* 1 of 6 gradients: dense/kernel: ",
    "The loss scale is stuck: the last 100 steps were skipped, from step 500 ",
  ):
    assert re.search(planted, _LOG)
    assert re.search(planted, run.log)


def test_plot(run):
  status, text = run(*_COMMAND, "plot", "build/watch")
  assert status == 0
  printed = leave_out_numbers(text)
  shown = leave_out_numbers(_PLOT)
  assert {*shown[:1], *shown[11:]} <= set(printed)


def test_verdict(run):
  status, text = run(*_COMMAND, "doctor", "build/watch/loss_scale.jsonl")
  assert status == 1
  assert leave_out_numbers(text) == leave_out_numbers(_VERDICT)
  assert "stuck at 1 since step 51" in text
  assert "dense/kernel (in 28" in text


def test_other_runs_are_not_judged_alike(run):
  arguments = ("--steps=150", "--output=build/healthy", "--overflow_from=1000")
  status, log = run(_EXAMPLE, *arguments, "--nan_at=1000")
  assert status == 0
  assert "skipped;" not in log
  status, text = run(*_COMMAND, "doctor", "build/healthy/loss_scale.jsonl")
  assert status == 0
  assert "healthy" in text
