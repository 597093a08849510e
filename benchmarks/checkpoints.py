# SPDX-License-Identifier: Apache-2.0
"""Times `inspect` on a small checkpoint and `convert` on a large checkpoint.

The large checkpoint has 16 tensors of 128 MiB: 2 GiB in all. A separate process
converts the checkpoint and reports its own peak of resident memory. We compare
the time with that of copying the checkpoint's files and flushing the copies to
the disk, because the conversion flushes, too.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import statistics
import tempfile
import time

from benchmarks import processes

_MIB = 1 << 20
_SMALL = "tests/goldens/tf-1.15.5/session_dynamic_adam"
_MAKE = """
import sys
import tensorflow as tf
parts = []
for i in range(16):
  parts.append(f"{sys.argv[1]}.part{i}")
  values = {f"w{i}": tf.random.normal([int(sys.argv[2]) << 18])}
  if not i:
    values["current_loss_scale"] = tf.constant(1024.0)
    values["good_steps"] = tf.constant(7, tf.int64)
  tf.raw_ops.SaveV2(
    prefix=parts[-1], tensor_names=list(values), tensors=list(values.values()),
    shape_and_slices=[""] * len(values))
tf.raw_ops.MergeV2Checkpoints(
  checkpoint_prefixes=parts, destination_prefix=sys.argv[1])
"""
# Prints the seconds of a conversion, then the process's peak of resident memory
# in bytes twice: after TensorFlow's import and after the conversion.
_CONVERT = """
import sys
import time
import tensorflow
from benchmarks.processes import peak
from tf_compat_lossscale import checkpoint
before, begin = peak(), time.perf_counter()
checkpoint.convert(sys.argv[1], sys.argv[2], "contrib")
print(time.perf_counter() - begin, before, peak())
"""


def make(prefix: str, megabytes: int = 128) -> None:
  """Writes a checkpoint of 16 shards, each a tensor of `megabytes` MiB."""
  processes.python("-c", _MAKE, prefix, str(megabytes))


def convert(source: str, destination: str) -> tuple[float, int, int]:
  """Converts a checkpoint in another process.

  Returns:
    The seconds, without TensorFlow's import; the peak of resident memory in
    bytes after that import; and the same peak after the conversion.
  """
  seconds, before, after = processes.python(
    "-c", _CONVERT, source, destination
  ).split()
  return float(seconds), int(before), int(after)


def copy(source: str, destination: str) -> float:
  """Copies a checkpoint's files and flushes them; returns the seconds."""
  begin = time.perf_counter()
  for path in pathlib.Path(source).parent.glob("*"):
    new = os.path.join(destination, path.name)
    shutil.copyfile(path, new)
    with open(new, "rb+") as file:
      os.fsync(file.fileno())
  return time.perf_counter() - begin


def rows(rounds: int, large: bool) -> list[tuple[str, str]]:
  """Returns pairs of what was measured and the figure, in words."""
  alone, inspected, imported = [], [], []
  for _ in range(rounds):
    for times, arguments in (
      (alone, ("-c", "pass")),
      (inspected, ("-m", "tf_compat_lossscale", "inspect", _SMALL)),
      (imported, ("-c", "import tensorflow")),
    ):
      begin = time.perf_counter()
      processes.python(*arguments)
      times.append(time.perf_counter() - begin)
  result = [
    (
      "inspect of a small checkpoint",
      f"{1e3 * (min(inspected) - min(alone)):.0f} ms more than an empty program"
      f" (import tensorflow: {1e3 * (min(imported) - min(alone)):.0f} ms)",
    )
  ]
  if not large:
    return result
  copied, converted, memory = [], [], []
  with tempfile.TemporaryDirectory() as folder:
    source, target = os.path.join(folder, "a"), os.path.join(folder, "b")
    os.mkdir(source)
    prefix = os.path.join(source, "model")
    make(prefix)
    for _ in range(rounds):
      os.mkdir(target)
      copied.append(copy(prefix, target))
      shutil.rmtree(target)
      os.mkdir(target)
      seconds, before, after = convert(prefix, os.path.join(target, "new"))
      converted.append(seconds)
      memory.append(after - before)
      shutil.rmtree(target)
  slower = statistics.median(converted) / statistics.median(copied)
  result += [
    (
      "convert 2 GiB",
      f"{slower:.2f} of the time of copying it "
      f"({statistics.median(copied):.1f} s)",
    ),
    (
      "convert 2 GiB: memory",
      f"{max(memory) / _MIB:.0f} MiB more than TensorFlow's import",
    ),
  ]
  return result
