# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/distributed.md's programs of Horovod run, on two ranks."""

import re
import shlex
import subprocess
import sys

import helpers
import horovod_runs

pytestmark = horovod_runs.MARKS

_PAGE = (helpers.ROOT / "docs" / "distributed.md").read_text("utf-8")
_SESSION, _AGREE = (
  re.search(rf"^# horovod_{name}\.py\n(.*?)^```$", _PAGE, re.S | re.M)[1]
  for name in ("sessions", "agree")
)


def run(folder, code, *args):
  """Runs a program on two ranks."""
  (folder / "train.py").write_text(code, "utf-8")
  status, log = horovod_runs.complete(folder, 2, "train.py", *args)
  assert status == 0, log


def test_command():
  (line,) = re.findall(r"^```sh\n(.*)\n```$", _PAGE, re.M)
  command = shlex.split(line)
  assert " ".join(command[:6]) == "horovodrun -np 2 --gloo -H localhost:2"
  assert command[6:] == ["python", "horovod_sessions.py", "checkpoints"]


def test_without_horovodrun_each_process_is_alone(tmp_path):
  """The variables are those that `mpirun` and `srun` set."""
  done = subprocess.run(
    [sys.executable, "-c", _SESSION],
    env=horovod_runs.make_environment(
      OMPI_COMM_WORLD_RANK="1",
      OMPI_COMM_WORLD_SIZE="2",
      SLURM_PROCID="1",
      SLURM_NTASKS="2",
    ),
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert "one rank alone" in done.stderr


def test_session_and_restart(tmp_path):
  """The second run goes on from the checkpoint of the first one."""
  run(tmp_path, _SESSION.replace("last_step=200", "last_step=60"), "saved")
  names = {
    path.name for path in (tmp_path / "saved").glob("model.ckpt-*.index")
  }
  assert "model.ckpt-60.index" in names
  run(tmp_path, _SESSION, "saved")
  names = {
    path.name for path in (tmp_path / "saved").glob("model.ckpt-*.index")
  }
  assert "model.ckpt-200.index" in names
  assert "model.ckpt-1.index" not in names


def test_ranks_agree(tmp_path):
  run(tmp_path, _AGREE)


if __name__ == "__main__":
  helpers.main()
