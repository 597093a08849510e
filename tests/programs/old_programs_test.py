# SPDX-License-Identifier: Apache-2.0
"""Tests programs for old releases, untouched and migrated.

`legacy/expected.json` has the lines that each program printed on the old
release that the file names. The program must print the same lines today, but
for the last digit of fractions.
"""

import json
import re
import shutil

import helpers
import legacy_processes
import processes
import pytest

from tf_compat_lossscale.cli import main as cli

_LEGACY = helpers.TESTS / "programs" / "legacy"
_EXPECTED = json.loads((_LEGACY / "expected.json").read_text("utf-8"))
_PROGRAMS = sorted(_EXPECTED)
_DIGITS = helpers.ROOT / "examples" / "legacy"


def run(program, *args, cwd):
  """Runs a program untouched; returns the lines it prints."""
  return legacy_processes.run_forked(program, *args, cwd=cwd).splitlines()


def check_printed(lines, expected):
  """Checks lines, of whose fractions the last digit may be another.

  Processors add up numbers in different orders, so the last digit is not the
  same everywhere.
  """
  # Texts and numbers by turns: what is in parentheses is kept.
  fraction = re.compile(r"(\d+\.\d+(?:e[-+]\d+)?)")
  now, then = (list(map(fraction.split, x)) for x in (lines, expected))
  assert [x[::2] for x in now] == [x[::2] for x in then]
  for line, numbers in zip(lines, zip(now, then)):
    for one, other in zip(*(x[1::2] for x in numbers)):
      digits, _, exponent = other.partition("e")
      unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
      assert abs(float(one) - float(other)) < 1.5 * unit, (line, other)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
  folder = tmp_path_factory.mktemp("migrated") / "legacy"
  shutil.copytree(_LEGACY, folder)
  assert cli.main(["migrate", "--write", str(folder)]) == 0
  return folder


@pytest.mark.thorough
@pytest.mark.parametrize("name", _PROGRAMS)
def test_runs_untouched(name):
  check_printed(run(name, cwd=_LEGACY), _EXPECTED[name]["printed"])


@pytest.mark.thorough
@pytest.mark.any_release  # The test above runs the programs on all releases.
@pytest.mark.parametrize("name", _PROGRAMS)
def test_runs_migrated(name, migrated):
  printed = processes.run_forked(name, cwd=migrated, **helpers.KERAS_2)
  check_printed(printed.splitlines(), _EXPECTED[name]["printed"])


@pytest.mark.any_release
def test_migrated_is_migrated(migrated, capsys):
  before = {path: path.read_bytes() for path in migrated.rglob("*.py")}
  assert cli.main(["migrate", "--write", str(migrated)]) == 0
  assert {path: path.read_bytes() for path in before} == before
  assert cli.main(["scan", str(migrated)]) == 0
  for line in capsys.readouterr().out.splitlines():
    assert line.endswith("nothing to change")


def progress(lines):
  """Returns steps run -> (loss scale, accuracy), as train_digits.py prints."""
  pattern = r"ran (\d+) .* loss_scale (\S+)  held-out accuracy (\S+)"
  found = [re.fullmatch(pattern, line) for line in lines]
  return {int(m[1]): (float(m[2]), float(m[3])) for m in found if m}


@pytest.mark.parametrize("resumed", [False, True])
def test_digits(resumed, tmp_path):
  recorded = (_DIGITS / "expected.txt").read_text("utf-8").split("# resumed")
  expected = progress(recorded[resumed].splitlines())
  if resumed:
    shutil.copytree(_DIGITS / "tf-1.15.5", tmp_path / "model")
  lines = run(
    str(_DIGITS / "train_digits.py"),
    f"--data={_DIGITS / 'digits.npz'}",
    f"--model_dir={tmp_path / 'model'}",
    "--steps=100",
    cwd=tmp_path,
  )
  now = progress(lines)
  assert sorted(now) == [50, 100]
  for ran, (scale, accuracy) in now.items():
    # Training from the start has random weights. The scale is always close to
    # overflow, so chance decides when the scale doubles: up to 50 steps sooner
    # or later, and up to once more or less. Runs of 1.15.5 itself had 524288 to
    # 2097152 at one step.
    near = (ran,) if resumed else (ran - 50, ran, ran + 50)
    factor = 2.01 if resumed else 4.01
    near_scales = [expected[step][0] for step in near if step in expected]
    # The factors allow for the six digits that the program prints.
    assert min(near_scales) / factor <= scale <= max(near_scales) * factor, ran
    assert abs(accuracy - expected[ran][1]) < 0.06, (ran, accuracy)
