# SPDX-License-Identifier: Apache-2.0
"""Tests `make strangers` with a tiny repository."""

import dataclasses
import subprocess

import helpers
import pytest
import strangers
import strangers_table

pytestmark = pytest.mark.any_release
_GOLDENS = helpers.ROOT / "tests" / "goldens" / "tf-1.15.5"
# It needs no TensorFlow to run: what it saves was written before.
_PROGRAM = """
import os, shutil, sys
import logger, unused.below.it
if sys.argv[1] == "-c":
  exec(sys.argv[2])
  sys.exit()

def build():
  import tensorflow as tf
  return tf.train.experimental.DynamicLossScale()

logger.log(os.environ["WORDS"], open("data.txt").read())
half = os.environ.get("TF_COMPAT_LOSSSCALE_FLOAT16_ON_CPU") == "1"
if half:  # As `run` prints of two sessions; a third one has nothing to convert.
  for count in ("2 of 3", "11 of 12", "0 of 3"):
    print(f"tf-lossscale: float16: {count} products and convolutions, 9 casts")
print("loss 8.0, loss", 0.25 if half else 0.125)
shutil.copytree(sys.argv[1], "model", dirs_exist_ok=True)
"""
_LOGGER = "def log(*words):\n  print('logged:', *words)\n"


def git(folder, *arguments):
  command = ("git", "-c", "user.name=a", "-c", "user.email=b", *arguments)
  done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return done.stdout.strip()


def write_data(repo, work):
  assert (repo / "train.py").exists()
  (work / "data.txt").write_text("data")


@pytest.fixture(scope="module")
def clones(tmp_path_factory):
  """Makes a bare clone of a program; returns the folder of clones."""
  folder = tmp_path_factory.mktemp("clones")
  source = tmp_path_factory.mktemp("source")
  (source / "train.py").write_text(_PROGRAM)
  git(source, "init", "-q")
  git(source, "add", "train.py")
  git(source, "commit", "-q", "-m", "A program.")
  clone = folder / "owner+project" / "repo"
  git(folder, "clone", "-q", "--bare", str(source), str(clone))
  return folder


@pytest.fixture
def program(clones, tmp_path, monkeypatch):
  """A program whose bare clone is in the folder STRANGERS."""
  stand_ins = tmp_path / "stand_ins"
  stand_ins.mkdir()
  (stand_ins / "logger.py").write_text(_LOGGER)
  importable = strangers.STAND_INS / "only_importable.py"
  (stand_ins / "only_importable.py").write_bytes(importable.read_bytes())
  monkeypatch.setattr(strangers, "STAND_INS", stand_ins)
  monkeypatch.setenv("STRANGERS", str(clones))
  return strangers_table.Program(
    name="tiny",
    repository="owner/project",
    commit=git(clones / "owner+project" / "repo", "rev-parse", "HEAD"),
    title="train.py",
    start=(("{repo}/train.py", str(_GOLDENS / "contrib_exponential")),),
    resume=(("{repo}/train.py", str(_GOLDENS / "session_dynamic_adam")),),
    checkpoint="{work}/model",
    folder=None,
    stand_ins=("logger",),
    importable=("unused",),
    prepare=write_data,
    environment={"WORDS": "{work}"},
    prints=r"logged: .*/(|migrated_|float32_)work data",
    loss=r"loss (?P<entropy>[\d.]+)",
    timeout=60,
  )


def run(capsys, program, *arguments, page=strangers.PAGE):
  """Returns the exit status, and the program and its details."""
  status = strangers.main(arguments, (program,), page)
  name, details = capsys.readouterr().out.strip("| \n").split(" | ")
  return status, [name, *details.split("<br>")]


def test_a_program_in_all_stages(program, tmp_path, capsys):
  page = tmp_path / "page.md"
  old = "| owner/project, `train.py` | TensorFlow 2.12.1, x<br>starts: **no** |"
  page.write_text(f"{strangers.BEGIN}\n{old}\n{strangers.END}\nThe rest.\n")
  status, cells = run(
    *(capsys, program, "--page", f"--keep={tmp_path / 'keep'}"), page=page
  )
  assert status == 0, cells
  name, tried, *stages = cells
  assert name == "owner/project, `train.py`"
  assert tried.endswith(f"commit {program.commit[:12]}")
  assert stages == [
    "starts: step 10, scale 8192 (3 good)",
    "resumes: step 10, scale 16384 (0 good)",
    "migrated: step 10, scale 8192 (3 good)",
    "float16: 11 of 12 products and convolutions, 9 casts; "
    "entropy 0.25, in float32 0.125",
  ]
  log = (tmp_path / "keep" / "tiny" / "migrated.log").read_text()
  assert "logged" in log and " run " not in log
  written, release = page.read_text(), tried.split()[1].strip(",")
  assert old in written and f"| {name} | {'<br>'.join(cells[1:])} |" in written
  assert (
    f"| {name} | 2.12.1: **starts: fails**; "
    f"{release}: starts, resumes, migrated, float16 |\n"
  ) in written
  assert written.endswith("The rest.\n")


@pytest.mark.parametrize(
  ("change", "stage", "said"),
  [
    (
      {"start": (("{repo}/train.py", "-c", "raise ValueError('a reason')"),)},
      *(2, "starts: **exit 1: ValueError: a reason**"),
    ),
    ({"prints": "nothing"}, 2, "starts: **does not print 'nothing'**"),
    (
      {"resume": ()},
      *(3, "resumes: **the loss scale did not move: step 10, scale 8192"),
    ),
    ({"commit": "0" * 40}, 2, "starts: **git cannot unpack the commit 0000000"),
  ],
)
def test_what_fails_has_its_reason(program, capsys, change, stage, said):
  changed = dataclasses.replace(program, **change)
  status, cells = run(capsys, changed)
  assert status == 1
  assert cells[stage].startswith(said), cells


def test_the_table():
  table = strangers_table.read_table()
  names = [program.name for program in table]
  assert len(set(names)) == len(names)
  for program in table:
    assert len(program.commit) == 40, program.name
    assert program.repository.count("/") == 1
    for name in program.stand_ins:
      place = strangers.STAND_INS / name
      assert place.is_dir() or place.with_suffix(".py").exists(), name
