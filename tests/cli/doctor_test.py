# SPDX-License-Identifier: Apache-2.0
"""Tests `tf-lossscale doctor`: runs, checkpoints, folders with both."""

import json
import os
import shutil
import subprocess
import sys

import command_calls
import helpers
import monitoring_logs as logs
import pytest

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.files import values
from tf_compat_lossscale.checkpoint.files import writer
from tf_compat_lossscale.cli import main
from tf_compat_lossscale.monitoring import event_files

pytestmark = pytest.mark.any_release

_GOLDEN = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  monkeypatch.setenv("COLUMNS", "80")
  monkeypatch.chdir(tmp_path)
  return tmp_path


def run(capsys, *argv):
  return command_calls.call(capsys, "doctor", *argv)


def run_json(capsys, *argv):
  status, out, err = run(capsys, "--format=json", *argv)
  assert err == ""
  return status, json.loads(out)


def copy_checkpoint(folder):
  """Copies a checkpoint into a folder."""
  shutil.copytree(_GOLDEN, folder, dirs_exist_ok=True)


def write_state(folder, scale, good_steps):
  """Writes a checkpoint that has the state of a loss scale."""
  tensors = {
    "current_loss_scale": values.Literal("float32", scale),
    "global_step": values.Literal("int64", 100),
    "good_steps": values.Literal("int64", good_steps),
  }
  with writer.reserve(str(folder / "model.ckpt")) as new:
    new.write(tensors)
    new.publish()


@pytest.mark.parametrize("kind", logs.KINDS)
def test_runs(capsys, folder, kind):
  logs.write(folder / "run", logs.KINDS[kind]())
  status, out, err = run(capsys, "run")
  assert (status, err) == (int(kind != "healthy"), "")
  title, sentence, shows, *rest = out.splitlines()
  assert title == "run run/loss_scale.jsonl"
  assert sentence.startswith(("The ", "73 of the last 1000"))
  assert shows == "What shows it:"
  assert ("What to do:" in rest) == (kind != "healthy")
  status, (found,) = run_json(capsys, "run")
  assert status == int(kind != "healthy")
  assert found["sentence"] == sentence
  sentences = [f"- {text}" for text in found["evidence"] + found["advice"]]
  assert sentences == [line for line in rest if line.startswith("- ")]


def test_a_stuck_run(capsys, folder):
  logs.write(folder / "run", logs.make_stuck())
  status, out, _ = run(capsys, "run")
  assert status == 1
  assert out.splitlines()[1] == "The loss scale is stuck at 1 since step 811."
  assert "16384 -> 1 between steps 797 and 810" in out
  assert "softmax_tensor/dense/kernel (in 590 of 590 steps" in out


def test_a_checkpoint(capsys, folder):
  status, (found,) = run_json(capsys, str(_GOLDEN))
  assert status == 0
  assert found["what"] == "checkpoint" and found["kind"] == "healthy"
  assert found["path"] == str(_GOLDEN / "model.ckpt-10")
  (state,) = checkpoint.describe(_GOLDEN).loss_scales
  assert found["sentence"] == f"The loss scale is {state.value:g}."


@pytest.mark.parametrize(
  "scale,good_steps,status,kind",
  [
    (32768.0, 5, 0, "healthy"),
    (1.0, 0, 1, "stuck"),
    (1.0, 7, 0, "healthy"),
    (float("nan"), 0, 1, "invalid_scale"),
    (float("inf"), 0, 1, "invalid_scale"),
    (0.0, 0, 1, "invalid_scale"),
  ],
)
def test_states_of_checkpoints(capsys, folder, scale, good_steps, status, kind):
  write_state(folder, scale, good_steps)
  found_status, (found,) = run_json(capsys, "model.ckpt")
  assert (found_status, found["kind"]) == (status, kind)
  assert found["healthy"] == (status == 0)


def test_several_loss_scales(capsys):
  golden = helpers.GOLDENS / "tf-1.15.5" / "program_gan"
  status, found = run_json(capsys, str(golden / "model.ckpt"))
  states = checkpoint.describe(golden / "model.ckpt").loss_scales
  assert len(found) == len(states) == 2
  assert [f["loss_scale"] for f in found] == [s.names[0] for s in states]
  assert status == int(not all(f["healthy"] for f in found))


def test_a_checkpoint_without_a_loss_scale(capsys):
  golden = helpers.GOLDENS / "tf-1.15.5" / "session_fixed_adam"
  status, (found,) = run_json(capsys, str(golden))
  assert status == 0
  assert "no dynamic loss scale" in found["sentence"]


def test_a_folder_with_both(capsys, folder):
  copy_checkpoint(folder / "both")
  logs.write(folder / "both", logs.make_stuck())
  status, found = run_json(capsys, "both")
  assert status == 1
  assert [f["what"] for f in found] == ["run", "checkpoint"]
  assert [f["kind"] for f in found] == ["stuck", "healthy"]
  # A file is meant alone.
  _, (found,) = run_json(capsys, "both/loss_scale.jsonl")
  assert found["what"] == "run"


def test_a_model_dir_with_its_log_below(capsys, folder):
  copy_checkpoint(folder / "model_dir")
  with event_files.EventFile(folder / "model_dir") as file:
    file.add_scalars(1, {"loss": 0.5}, 1.0)
  logs.write(folder / "model_dir" / "loss_scale", logs.make_stuck())
  status, found = run_json(capsys, "model_dir")
  assert status == 1
  assert [f["what"] for f in found] == ["run", "checkpoint"]
  assert found[0]["path"] == "model_dir/loss_scale/loss_scale.jsonl"
  assert [f["kind"] for f in found] == ["stuck", "healthy"]


def test_the_same_advice_is_printed_once(capsys, folder):
  for name in "ab":
    logs.write(folder / "runs" / name, logs.make_stuck())
  _, found = run_json(capsys, "runs")
  assert found[0]["advice"] == found[1]["advice"] != []
  _, out, _ = run(capsys, "runs")
  for sentence in found[0]["advice"]:
    assert out.count(sentence) == 1
  assert out.endswith(
    "What to do:\n- The same as for runs/a/loss_scale.jsonl.\n"
  )


def test_several_runs_below_a_folder(capsys, folder):
  logs.write(folder / "runs" / "a", logs.make_healthy(500))
  logs.write(folder / "runs" / "b", logs.make_stuck())
  (folder / "runs" / "c").mkdir()
  (folder / "runs" / "c" / "loss_scale.jsonl").write_text("bad\n")
  status, out, err = run(capsys, "runs")
  assert status == 2 and "runs/c/loss_scale.jsonl:1: this is no JSON" in err
  assert out.count("run runs/") == 2
  (folder / "runs" / "c" / "loss_scale.jsonl").unlink()
  status, out, err = run(capsys, "runs")
  assert (status, err) == (1, "") and out.count("run runs/") == 2


def test_a_checkpoint_beside_event_files_of_others(capsys, folder):
  copy_checkpoint(folder / "model")
  with event_files.EventFile(folder / "model") as file:
    file.add_scalars(1, {"loss": 0.5}, 1.0)
  status, (found,) = run_json(capsys, "model")
  assert (status, found["what"]) == (0, "checkpoint")


def test_a_damaged_checkpoint_beside_a_log(capsys, folder):
  copy_checkpoint(folder / "both")
  os.truncate(folder / "both" / "model.ckpt-10.index", 20)
  logs.write(folder / "both", logs.make_healthy(500))
  status, out, err = run(capsys, "both")
  assert status == 2
  assert out.startswith("run both/loss_scale.jsonl\n")
  assert err.count("\n") == 1 and "model.ckpt-10" in err


def test_paths_that_cannot_be_read_among_others(capsys, folder):
  logs.write(folder / "good", logs.make_healthy(500))
  (folder / "empty").mkdir()
  (folder / "bad.jsonl").write_text("bad\n")
  (folder / "other").mkdir()
  (folder / "other" / "notes.txt").touch()
  with event_files.EventFile(folder) as file:
    file.add_scalars(1, {"loss": 0.5}, 1.0)
  os.rename(file.path, folder / "tfevents")
  paths = ["missing", "empty", "good", "bad.jsonl", "other", "tfevents", ""]
  status, out, err = run(capsys, *paths)
  assert status == 2 and out.count("run good/loss_scale.jsonl") == 1
  lines = err.splitlines()
  assert len(lines) == 6
  expected = (
    *("missing: no such checkpoint, file or folder", "empty: the folder is"),
    *("bad.jsonl:1: this is no JSON", "other: there is no log, but notes.txt"),
    *("tfevents: there is no scalar loss_scale/value", "'' is no path"),
  )
  for line, text in zip(lines, expected):
    assert line.startswith(f"tf-lossscale doctor: {text}"), line


def test_a_log_without_steps(capsys, folder):
  (folder / "loss_scale.jsonl").touch()
  status, (found,) = run_json(capsys, ".")
  assert (status, found["kind"]) == (0, "too_short")


@pytest.mark.parametrize("argv", [[], ["--format=xml", "x"], ["x", "--no"]])
def test_mistakes(capsys, argv):
  status, out, err = run(capsys, *argv)
  assert (status, out, err.count("\n")) == (2, "", 1)


def test_the_status_stays_if_the_reader_has_left(folder):
  logs.write(folder / "run", logs.make_stuck())
  outlet, inlet = os.pipe()
  os.close(outlet)
  done = subprocess.run(
    [sys.executable, "-m", "tf_compat_lossscale", "doctor", "run"],
    stdout=inlet,
    stderr=subprocess.PIPE,
    cwd=folder,
    env=os.environ | {"PYTHONPATH": str(helpers.ROOT)},
    timeout=60,
  )
  os.close(inlet)
  assert (done.returncode, done.stderr) == (1, b"")


def test_no_tensorflow_is_imported(folder):
  copy_checkpoint(folder / "both")
  logs.write(folder / "both", logs.make_healthy(500))
  program = (
    "import sys\n"
    "sys.modules['tensorflow'] = sys.modules['matplotlib'] = None\n"
    "from tf_compat_lossscale.cli.main import main\n"
    "sys.exit(main(['doctor', 'both']))"
  )
  out = helpers.run_python(
    "-c", program, cwd=folder, PYTHONPATH=str(helpers.ROOT)
  )
  assert "run both/" in out and "checkpoint both/model.ckpt-10" in out


def test_the_page_shows_what_the_commands_print(capsys, folder):
  page = (helpers.ROOT / "docs/api/command-line.md").read_text("utf-8")
  logs.write(folder / "logs", logs.make_stuck())
  for command, status in (("plot", 0), ("doctor", 1)):
    shown = f"tf-lossscale {command} logs/\n```\n\n```text\n"
    _, _, rest = page.partition(shown)
    assert main.main([command, "logs"]) == status
    assert capsys.readouterr() == (rest.partition("```")[0], "")


if __name__ == "__main__":
  helpers.main()
