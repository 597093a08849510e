# SPDX-License-Identifier: Apache-2.0
"""Tests the files of monitoring on disks with errors, and with other writers.

Training goes on whatever happens: see `Program` in `monitored_runs`.
"""

import contextlib
import json
import logging
import os
import pathlib
import resource
import shutil
import signal

import helpers
import monitored_runs
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import monitoring
from tf_compat_lossscale.monitoring import event_files
from tf_compat_lossscale.monitoring import log_files
from tf_compat_lossscale.monitoring import rows
from tf_compat_lossscale.monitoring.steps import State

pytestmark = pytest.mark.any_release

tf1 = tf.compat.v1
_BAD = float("inf")


@pytest.fixture(autouse=True)
def logged(caplog):
  """Gives each test the logged lines."""
  caplog.set_level(logging.INFO, "absl")
  return caplog


def warnings(logged):
  """Returns the warnings, but for those that a step was skipped."""
  texts = [x.getMessage() for x in logged.records if x.levelname == "WARNING"]
  return [text for text in texts if " was skipped; " not in text]


@contextlib.contextmanager
def full_disk(size):
  """Lets no file of this process grow beyond `size` bytes."""
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def train(folder, logged, break_it, mend=lambda: None):
  """Trains while something is broken, and mends it; returns the lines.

  All steps must be done as without files.
  """
  with monitored_runs.Program(output_dir=folder, every_n_steps=1) as program:
    program.step(1.0)
    break_it()
    for i in range(10):
      program.step(_BAD if i == 4 else 1.0)
    assert len(warnings(logged)) == 1, warnings(logged)
    mend()
    program.step(1.0)
    program.end()
    assert int(program.trainer.value(program.trainer.global_step)) == 11
    assert program.trainer.loss_scale == 4.0
  return warnings(logged)


@pytest.mark.parametrize("size", [10, 200, 201, 233, 1000, 1500])
def test_a_full_disk_takes_all_lines_later(tmp_path, logged, size):
  stack = contextlib.ExitStack()
  with stack:
    found = train(
      tmp_path,
      logged,
      lambda: stack.enter_context(full_disk(size)),
      stack.close,
    )
  assert found[0].startswith(str(tmp_path)), found
  assert "lines wait until they can be written; training goes on" in found[0]
  assert len(found) == 1
  lines = monitored_runs.assert_same_series(tmp_path)
  assert [x["step"] for x in lines] == list(range(1, 13))
  assert "can be written again" in logged.text


def test_a_disk_that_is_full_from_the_start(tmp_path, logged):
  stack = contextlib.ExitStack()
  with (
    stack,
    monitored_runs.Program(
      output_dir=tmp_path / "new", every_n_steps=1
    ) as program,
  ):
    stack.enter_context(full_disk(0))
    for _ in range(5):
      program.step(1.0)
    (found,) = warnings(logged)
    assert "File too large: lines wait until they can be written" in found
    assert monitored_runs.read_lines(tmp_path / "new") == []
    assert monitored_runs.list_files(tmp_path / "new") == [log_files.NAME]
    stack.close()
    program.step(1.0)
    program.end()
  lines = monitored_runs.assert_same_series(tmp_path / "new")
  assert [x["step"] for x in lines] == list(range(1, 7))


def test_a_disk_that_stays_full(tmp_path, logged):
  stack = contextlib.ExitStack()
  with stack:
    found = train(tmp_path, logged, lambda: stack.enter_context(full_disk(900)))
  written = monitored_runs.read_lines(tmp_path)  # Whole lines alone.
  events = monitored_runs.read_scalars(tmp_path)
  least = min(len(written), len(events))
  assert 0 < least < 12
  assert f": {12 - least} lines could not be written." in found[1]


def test_the_oldest_of_too_many_lines_is_dropped(tmp_path, logged, monkeypatch):
  monkeypatch.setattr(log_files, "_MOST_WAITING", 4)
  stack = contextlib.ExitStack()
  with stack:
    train(
      tmp_path,
      logged,
      lambda: stack.enter_context(full_disk(0)),
      stack.close,
    )
  lines = monitored_runs.assert_same_series(tmp_path)
  assert [x["step"] for x in lines] == [1, 9, 10, 11, 12]


@pytest.mark.parametrize("way", ["below a file", "is a file", "no permission"])
def test_folders_that_cannot_be(tmp_path, logged, way):
  (tmp_path / "file").write_text("text")
  folder = {
    "below a file": tmp_path / "file" / "run",
    "is a file": tmp_path / "file",
    "no permission": pathlib.Path("/proc/self/fdinfo/run"),
  }[way]
  (found,) = train(folder, logged, lambda: None)
  assert found.startswith(f"{os.path.realpath(folder)}/loss_scale.jsonl: ")
  assert found.endswith(
    ": the loss scale is not written there; training goes on."
  )
  assert (tmp_path / "file").read_text() == "text"
  assert monitored_runs.list_files(tmp_path) == ["file"]


def test_the_log_is_a_folder(tmp_path, logged):
  (tmp_path / log_files.NAME).mkdir()
  (found,) = train(tmp_path, logged, lambda: None)
  assert "Is a directory: the loss scale is not written there" in found


def test_a_folder_that_is_deleted(tmp_path, logged):
  folder = tmp_path / "run"
  first, last = train(folder, logged, lambda: shutil.rmtree(folder))
  assert "run/loss_scale.jsonl: deleted during training: lines wait" in first
  assert "11 lines could not be written" in last
  assert not folder.exists()


def test_an_event_file_that_is_deleted(tmp_path, logged):
  def delete():
    (path,) = event_files.list_files(tmp_path)
    os.unlink(path)

  first, _ = train(tmp_path, logged, delete)
  assert "tfevents" in first and "deleted during training" in first
  steps = [x["step"] for x in monitored_runs.read_lines(tmp_path)]
  assert steps == list(range(1, 13))


_OTHER = """
import sys
import time
from tf_compat_lossscale.monitoring import log_files
from tf_compat_lossscale.monitoring.steps import State
files = log_files.LogFiles(sys.argv[1])
files.resume(State(8.0, 0, 0))
print("ready", flush=True)
time.sleep(1000)
"""


def test_two_processes(tmp_path, logged):
  out = tmp_path / "out"
  folder = tmp_path / "run"
  with (
    open(out, "w") as stdout,
    helpers.start_forked(
      "-c",
      _OTHER,
      str(folder),
      stdout=stdout,
      stderr=stdout,
    ) as other,
  ):
    while "ready" not in out.read_text():
      assert other.poll() is None, out.read_text()
    (found,) = train(folder, logged, lambda: None)
    assert "another process writes here; give each writer a folder" in found
    assert monitored_runs.list_files(folder) == [log_files.NAME]
    other.kill()
    other.wait()
  monitored_runs.run_steps(folder, [1.0] * 3, every_n_steps=1)
  assert len(monitored_runs.assert_same_series(folder)) == 3


def test_two_hooks_of_a_process(tmp_path, logged):
  with (
    monitored_runs.Program(output_dir=tmp_path, every_n_steps=1) as first,
    monitored_runs.Program(
      output_dir=f"{tmp_path}/../{tmp_path.name}", every_n_steps=1
    ) as second,
  ):
    first.step(1.0)
    for _ in range(5):
      second.step(1.0)
      first.step(1.0)
    second.end()
    first.end()
  steps = [x["step"] for x in monitored_runs.assert_same_series(tmp_path)]
  assert steps == [1, 2, 3, 4, 5]
  assert len(list(tmp_path.glob("loss_scale*.jsonl"))) == 2
  told = [x for x in warnings(logged) if "another hook of this process" in x]
  assert len(told) == 1 and told[0].endswith("this hook writes no more.")


def test_a_new_run_in_an_old_folder(tmp_path, logged):
  old = monitored_runs.run_steps(tmp_path, [1.0] * 5, every_n_steps=1)
  assert warnings(logged) == []
  for i in 1, 2:
    new = monitored_runs.run_steps(tmp_path, [_BAD, 1.0])
    assert [x["step"] for x in new] == [1, 2]
    path = tmp_path / f"loss_scale.{i}.jsonl"
    assert warnings(logged)[-1].endswith(f"they are in {path} now.")
  kept = (tmp_path / "loss_scale.1.jsonl").read_text().splitlines()
  assert [json.loads(x)["step"] for x in kept] == [x["step"] for x in old]
  monitored_runs.assert_same_series(tmp_path)


@pytest.mark.parametrize("with_step", [True, False])
def test_a_new_run_at_a_scale_that_the_old_one_had(tmp_path, with_step):
  def train(scale, values):
    with tf.Graph().as_default(), tf1.Session() as session:
      x = tf1.placeholder(tf.float32, [])
      v = tf1.get_variable("v", initializer=1.0, use_resource=True)
      opt = tfl.MixedPrecisionLossScaleOptimizer(
        tf1.train.GradientDescentOptimizer(0.1), tfl.DynamicLossScale(scale)
      )
      step = tf1.train.get_or_create_global_step() if with_step else None
      train_op = opt.minimize(v * x, step)
      hook = monitoring.LossScaleHook(opt, tmp_path)
      hook.begin()
      session.run(tf1.global_variables_initializer())
      for value in values:
        hook.run(session, train_op, {x: value})
      hook.end(session)
    return monitored_runs.assert_same_series(tmp_path)

  old = train(32, [_BAD, _BAD, 1.0, 1.0, _BAD])
  assert [x["loss_scale/value"] for x in old] == [16, 8, 4]
  new = train(8, [1.0, 1.0])
  assert [x["step"] for x in new] == [1, 2]
  assert len((tmp_path / "loss_scale.1.jsonl").read_text().splitlines()) == 3


def test_no_space_to_keep_an_old_run(tmp_path, logged):
  monitored_runs.run_steps(tmp_path, [1.0] * 5, every_n_steps=1)
  before = (tmp_path / log_files.NAME).read_bytes()
  with monitored_runs.Program(output_dir=tmp_path) as program, full_disk(100):
    program.step(1.0)
    program.end()
  (found,) = warnings(logged)
  assert "the loss scale is not written there" in found
  assert (tmp_path / log_files.NAME).read_bytes() == before
  assert not list(tmp_path.glob("loss_scale.1.jsonl"))


def test_a_first_hook_amid_a_run_keeps_other_events(tmp_path):
  # TensorBoard drops all events of a folder from the step of a start on.
  with event_files.EventFile(tmp_path) as file:
    for step in range(1, 6):
      file.add_scalars(step, {"loss": 1.0}, 1.0)
  with monitored_runs.Program(output_dir=tmp_path) as program:
    for _ in range(5):
      program.session.run(program.train_op, program.feed(1.0))
    program.step(1.0)
    program.end()
  (line,) = monitored_runs.read_lines(tmp_path)
  assert (line["step"], line["global_step"]) == (6, 6)
  scalars = monitored_runs.read_scalars(tmp_path)
  assert sorted(scalars) == [1, 2, 3, 4, 5, 6]
  assert scalars[5] == {"loss": 1.0}


def test_an_interrupt_leaves_whole_lines(tmp_path, monkeypatch):
  row = rows.Row(1, True, 8.0, time=1.5e9)
  files = log_files.LogFiles(tmp_path)
  files.resume(State(8.0, 0, 0))
  files.write(row)
  write = os.write

  def interrupt(file, data):
    write(file, data)
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(os, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
      files.write(row._replace(step=2, stuck="x" * 1000))
  files.write(row._replace(step=3))
  files.close()
  steps = [x["step"] for x in monitored_runs.read_lines(tmp_path)]
  assert steps == [1, 2, 3]
  assert sorted(monitored_runs.read_scalars(tmp_path)) == [1, 2, 3]


if __name__ == "__main__":
  helpers.main()
