# SPDX-License-Identifier: Apache-2.0
"""Resumes a TensorFlow 1.15 checkpoint with the program that wrote it.

  python examples/resume_digits.py [--steps=400] [--output=build/demo]

The program (`legacy/train_digits.py`), its data and its checkpoint are those of
TensorFlow 1.15.5. The program trains on from that checkpoint on the installed
TensorFlow; a table then compares the results of both. The exit status is 1 if
they are further apart than `_BOUNDS` says.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import NamedTuple

from absl import app
from absl import flags

from tf_compat_lossscale.cli import terminal

with terminal.quiet_tensorflow():
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
# Processors round float16 differently, so the numbers part after some steps.
_BOUNDS = (
  "Compared: the restored values exactly; then the global step within 2, the "
  "loss scale within one factor of 2, and the accuracy within a point (3 of "
  "297 images). Digits of float16 training differ from processor to processor."
)


class Progress(NamedTuple):
  """What the program prints after some steps."""

  global_step: int
  loss_scale: float
  accuracy: float

  def is_near(self, other: "Progress") -> tuple[bool, bool, bool]:
    """Returns which of the values are within `_BOUNDS`."""
    return (
      abs(self.global_step - other.global_step) <= 2,
      0.49 < self.loss_scale / other.loss_scale < 2.01,
      round(297 * abs(self.accuracy - other.accuracy)) <= 3,
    )


def progress(text: str) -> dict[int, Progress]:
  """Returns what the program printed, by steps run."""
  return {
    int(ran): Progress(int(step), float(scale), float(accuracy))
    for ran, step, scale, accuracy in _PROGRESS.findall(text)
  }


def state(checkpoint: str) -> tuple[int, float, int]:
  """Returns the global step, the loss scale and the count of good steps."""
  reader = tf.train.load_checkpoint(checkpoint)
  return (
    int(reader.get_tensor("global_step")),
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

  table = Table("", "", "TensorFlow 1.15.5", f"now, {tf.__version__}", "")
  table.box = box.SIMPLE
  differs = []

  def compare(when: str, what: str, was: str, is_now: str, same: bool) -> None:
    table.add_row(when, what, was, is_now, "ok" if same else "DIFFERS")
    if not same:
      differs.append(f"{what}, {when}: {was} became {is_now}")

  names = ("global step", "loss scale", "good steps")
  for name, old, new in zip(names, old_start, new_start):
    compare("restored", name, f"{old:,.0f}", f"{new:,.0f}", old == new)
  for ran in (min(now), max(now)):
    when = f"{ran} steps on"
    if ran not in after:
      table.add_row(
        when, "accuracy", "not recorded", f"{now[ran].accuracy:.4f}"
      )
      continue
    rows = zip(
      ("global step", "loss scale", "accuracy"),
      (",.0f", ",.0f", ".4f"),
      after[ran],
      now[ran],
      now[ran].is_near(after[ran]),
    )
    for name, form, old, new, same in rows:
      compare(when, name, format(old, form), format(new, form), same)
  console = Console()
  console.print(table)
  console.print(_BOUNDS, highlight=False)
  print("New checkpoint:", os.path.relpath(end))
  if differs:
    sys.exit("resume_digits: not the same:\n" + "\n".join(differs))


if __name__ == "__main__":
  try:
    app.run(main)
  except KeyboardInterrupt:
    print("resume_digits: interrupted", file=sys.stderr)
    sys.exit(128 + signal.SIGINT)
