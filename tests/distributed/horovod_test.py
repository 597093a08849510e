# SPDX-License-Identifier: Apache-2.0
"""Tests Horovod on two ranks, and what needs no Horovod of its rules."""

import importlib.util
import re
import shlex
import subprocess
import sys

import helpers
import horovod_runs
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib

tf1 = tf.compat.v1
_WORKER = str(helpers.TESTS / "distributed" / "horovod_worker.py")
_PAGE = (helpers.ROOT / "docs" / "distributed.md").read_text("utf-8")
_SESSION, _AGREE = (
  re.search(rf"^# horovod_{name}\.py\n(.*?)^```$", _PAGE, re.S | re.M)[1]
  for name in ("sessions", "agree")
)


def on_ranks(test):
  """Marks a test that starts ranks of Horovod."""
  skip = pytest.mark.skipif(
    importlib.util.find_spec("horovod") is None,
    reason="needs Horovod: make machines",
  )
  return pytest.mark.machines(skip(test))


@on_ranks
@pytest.mark.parametrize("task", ["run_states", "run_options"])
def test_both_ranks_find_what_they_expect(task, tmp_path):
  """Runs all cases in one launch, for a launch takes longer than a case."""
  status, log = horovod_runs.complete(
    tmp_path, _WORKER, task, str(tmp_path), timeout=300
  )
  assert status == 0, log
  for rank in range(2):
    assert f"done {task} of rank {rank}" in log


# The programs of docs/distributed.md ---------------------------------------


def run(folder, code, *args):
  """Runs a program on two ranks."""
  (folder / "train.py").write_text(code, "utf-8")
  status, log = horovod_runs.complete(folder, "train.py", *args)
  assert status == 0, log


def test_the_command_of_the_page():
  (line,) = re.findall(r"^```sh\n(.*)\n```$", _PAGE, re.M)
  command = shlex.split(line)
  assert " ".join(command[:6]) == "horovodrun -np 2 --gloo -H localhost:2"
  assert command[6:] == ["python", "horovod_sessions.py", "checkpoints"]


@on_ranks
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


@on_ranks
def test_the_session_of_the_page_and_its_restart(tmp_path):
  """The second run goes on from the checkpoint of the first one."""

  def list_names():
    return {x.name for x in (tmp_path / "saved").glob("model.ckpt-*.index")}

  run(tmp_path, _SESSION.replace("last_step=200", "last_step=60"), "saved")
  assert "model.ckpt-60.index" in list_names()
  run(tmp_path, _SESSION, "saved")
  assert "model.ckpt-200.index" in list_names()
  assert "model.ckpt-1.index" not in list_names()


@on_ranks
def test_the_ranks_of_the_page_agree(tmp_path):
  run(tmp_path, _AGREE)


# An optimizer that stands in for Horovod's ---------------------------------


class Passing(tf1.train.GradientDescentOptimizer):
  """An optimizer that says of itself what Horovod's says."""

  __module__ = "horovod.tensorflow"
  _backward_passes_per_step = 2


class Wrapper(tf1.train.Optimizer):
  """An optimizer of a user, around another one."""

  def __init__(self, optimizer):
    super().__init__(name="Wrapper", use_locking=False)
    self._opt = optimizer


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("is_contrib", [False, True])
def test_passes_inside_are_an_error_that_says_what_works(between, is_contrib):
  opt = Wrapper(Passing(0.5)) if between else Passing(0.5)
  message = (
    r"backward_passes_per_step=2: .*tf_compat_lossscale\.accumulate\("
    r"tf_compat_lossscale\.MixedPrecisionLossScaleOptimizer\("
    r"hvd\.DistributedOptimizer\(opt\), loss_scale\), 2\)"
  )
  with pytest.raises(ValueError, match=message):
    if is_contrib:
      contrib.LossScaleOptimizer(opt, contrib.FixedLossScaleManager(8))
    tfl.MixedPrecisionLossScaleOptimizer(opt, "dynamic")
  # A loss scale that never changes is the same on all ranks.
  fixed = tfl.MixedPrecisionLossScaleOptimizer(opt, 8)
  with pytest.raises(ValueError, match=message):
    tfl.accumulate(fixed, 2)
