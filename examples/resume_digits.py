# SPDX-License-Identifier: Apache-2.0
"""Resumes a TensorFlow 1.15 checkpoint with the program that wrote it.

  python examples/resume_digits.py [--steps=400] [--output=build/demo]

The program (`legacy/train_digits.py`), its data and its checkpoint are those of
TensorFlow 1.15.5. The program trains on from that checkpoint on the installed
TensorFlow; a table then compares the results of both.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app
from absl import flags
import tensorflow as tf

try:
  from rich import box
  from rich.console import Console
  from rich.table import Table
except ImportError:
  print(
    "resume_digits: the table needs rich: pip install rich", file=sys.stderr
  )
  sys.exit(2)

FLAGS = flags.FLAGS
flags.DEFINE_integer(
  "steps", 400, "How many steps to train on for.", lower_bound=50
)
flags.DEFINE_string(
  "output", "build/demo", "Where the new checkpoint goes; replaced if there."
)

_EXAMPLES = pathlib.Path(__file__).resolve().parent
_LEGACY = _EXAMPLES / "legacy"
_OLD = _LEGACY / "tf-1.15.5"
_PROGRESS = re.compile(
  r"ran (\d+)  global_step (\d+)  loss_scale (\S+)  held-out accuracy (\S+)"
)


def progress(text: str) -> dict[int, tuple[float, float]]:
  """Returns (loss scale, accuracy) by steps run, as the program prints."""
  return {
    int(ran): (float(scale), float(accuracy))
    for ran, _, scale, accuracy in _PROGRESS.findall(text)
  }


def state(checkpoint: str) -> tuple[float, int]:
  """Returns the loss scale and the count of good steps in a checkpoint."""
  reader = tf.train.load_checkpoint(checkpoint)
  return (
    float(reader.get_tensor("current_loss_scale")),
    int(reader.get_tensor("good_steps")),
  )


def train(model_dir: pathlib.Path, steps: int) -> str:
  """Runs the old program on `model_dir`; returns what it printed."""
  command = [
    sys.executable,
    *("-m", "tf_compat_lossscale", "run"),
    str(_LEGACY / "train_digits.py"),
    f"--data={_LEGACY / 'digits.npz'}",
    f"--model_dir={model_dir}",
    f"--steps={steps}",
  ]
  printed = []
  with tempfile.TemporaryFile("w+") as log:  # Long, and of use if it fails.
    with subprocess.Popen(
      command, stdout=subprocess.PIPE, stderr=log, text=True
    ) as program:
      for line in program.stdout:
        print(line, end="", flush=True)
        printed.append(line)
    if program.returncode:
      log.seek(0)
      sys.stderr.write(log.read())
      sys.exit(program.returncode)
  return "".join(printed)


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"Arguments are not understood: {argv[1:]}")
  model_dir = pathlib.Path(FLAGS.output)
  if model_dir.exists():
    if any(model_dir.iterdir()) and not (model_dir / "checkpoint").exists():
      print(
        f"resume_digits: --output={model_dir} holds other things than "
        "checkpoints: name a new folder",
        file=sys.stderr,
      )
      sys.exit(2)
    shutil.rmtree(model_dir)
  shutil.copytree(_OLD, model_dir)
  start = tf.train.latest_checkpoint(str(model_dir))
  old_start = state(start)
  os.utime(start + ".index", (0, 0))

  print("Resuming", os.path.relpath(start), "on TensorFlow", tf.__version__)
  now = progress(train(model_dir, FLAGS.steps))
  recorded = (_LEGACY / "expected.txt").read_text("utf-8")
  after = progress(recorded.partition("# resumed")[2])

  # A session saves as soon as it has restored: what it has is read from there.
  if os.stat(start + ".index").st_mtime == 0:
    sys.exit(
      f"The session did not save {start} again, so its state is unknown."
    )
  new_start = state(start)
  end = tf.train.latest_checkpoint(str(model_dir))

  table = Table("", "", "TensorFlow 1.15.5", f"now, {tf.__version__}")
  table.box = box.SIMPLE
  table.add_row(
    "restored", "loss scale", f"{old_start[0]:,.0f}", f"{new_start[0]:,.0f}"
  )
  table.add_row("", "good steps", str(old_start[1]), str(new_start[1]))
  for ran in (min(now), max(now)):
    old = after.get(ran)
    was = (f"{old[0]:,.0f}", f"{old[1]:.4f}") if old else ("not recorded",) * 2
    table.add_row(
      f"{ran} steps on", "loss scale", was[0], f"{now[ran][0]:,.0f}"
    )
    table.add_row("", "accuracy", was[1], f"{now[ran][1]:.4f}")
  table.add_row("", "good steps", "not recorded", str(state(end)[1]))
  Console().print(table)
  print("New checkpoint:", os.path.relpath(end))
  if new_start != old_start:
    sys.exit(f"The state did not carry over: {old_start} became {new_start}.")


if __name__ == "__main__":
  try:
    app.run(main)
  except KeyboardInterrupt:
    print("resume_digits: interrupted", file=sys.stderr)
    sys.exit(128 + signal.SIGINT)
