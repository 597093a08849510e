# SPDX-License-Identifier: Apache-2.0
"""Tests that the programs of docs/horovod.md run as written, on two ranks."""

import re
import shlex
import subprocess
import sys

import helpers
import horovod_runs

pytestmark = horovod_runs.MARKS

_PAGE = (helpers.ROOT / "docs" / "horovod.md").read_text("utf-8")


def blocks_of(language):
  return re.findall(rf"^```{language}\n(.*?)^```$", _PAGE, re.DOTALL | re.M)


_SESSION, *_OTHERS = blocks_of("python")


def run(folder, code, *args):
  """Runs a program on two ranks; returns the output."""
  folder.mkdir(exist_ok=True)
  (folder / "train.py").write_text(code, "utf-8")
  status, log = horovod_runs.complete(folder, 2, "train.py", *args)
  assert status == 0, log
  return log


def test_command():
  command = shlex.split(blocks_of("sh")[0])
  assert " ".join(command[:6]) == "horovodrun -np 2 --gloo -H localhost:2"
  assert command[6:] == ["python", "train.py", "checkpoints"]


def test_without_horovodrun_each_process_is_alone(tmp_path):
  """The variables are those that `mpirun` and `srun` set."""
  code = _OTHERS[-1]
  done = subprocess.run(
    [sys.executable, "-c", code],
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


def test_other_programs(tmp_path):
  """All in one launch, for a launch takes longer than a program."""
  bodies = "\n".join(_OTHERS)
  last = "hvd.shutdown()\n"
  bodies = re.sub(r"hvd\.shutdown\(\).*\n", "", bodies) + last
  log = run(tmp_path, bodies)
  assert "rank 1 of 2" in log


if __name__ == "__main__":
  helpers.main()
