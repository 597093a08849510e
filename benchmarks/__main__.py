# SPDX-License-Identifier: Apache-2.0
"""Times training steps, graph building, program starts and checkpoints.

  python -m benchmarks

The bare optimizer, TensorFlow's own loss scaling and this package's take turns
in one process, one step each. Compare ratios of medians only: seconds depend on
the machine and on its load.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import platform
import sys
from typing import Any
from typing import NoReturn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _fail(message: str, status: int = 2) -> NoReturn:
  print(f"benchmarks: {message}", file=sys.stderr)
  sys.exit(status)


from absl import app
from absl import flags
import tensorflow as tf

try:
  from rich import box
  from rich.console import Console
  from rich.table import Table
except ImportError:
  _fail("rich is needed: pip install 'tf_compat_lossscale[bench]'")

from benchmarks import checkpoints
from benchmarks import monitoring
from benchmarks import network
from benchmarks import plane
from benchmarks import policy_steps
from benchmarks import rivals
from benchmarks import shapes
from benchmarks import start
from benchmarks import steps
from benchmarks import summary
from benchmarks import timing

FLAGS = flags.FLAGS
_EMBEDDING = "embedding"
_NETWORK = "small network"
_NONE = "none"
_ALL = [*shapes.SHAPES, _EMBEDDING, _NETWORK]
flags.DEFINE_float(
  "seconds", 8, "How long to time a set of variables.", lower_bound=0
)
flags.DEFINE_integer(
  "rounds", 60, "Steps of each rival to time at least.", lower_bound=4
)
flags.DEFINE_multi_enum(
  "shape", _ALL, [*_ALL, _NONE], f"What to time; {_NONE!r} for nothing."
)
flags.DEFINE_multi_enum(
  "optimizer", ["momentum"], list(rivals.OPTIMIZERS), "The inner optimizers."
)
flags.DEFINE_multi_enum(
  "gradients",
  [steps.FILLED],
  list(steps.LOSSES),
  "How they come about, for sets of variables without a model.",
)
flags.DEFINE_multi_enum(
  "mode", [steps.MODES[0]], list(steps.MODES), "How steps are run."
)
flags.DEFINE_list(
  "cells",
  [],
  "Cells of the plane to time: 60x4096 is 60 variables of 4,096 elements each, "
  "60x64-4096 has variables of 64 to 4,096, and 'all' is the whole plane.",
)
flags.DEFINE_bool(
  "quick", False, "Times a little of everything, in about two minutes."
)
flags.DEFINE_list(
  "policies",
  ["100 small"],
  "What to time with each policy; empty for nothing.",
)
flags.DEFINE_list(
  "monitoring",
  [_NETWORK, "100 small"],
  "What to time with hooks that watch the loss scale; empty for nothing.",
)
flags.DEFINE_integer(
  "starts", 7, "Timed starts of a program; 0 for none.", lower_bound=0
)
flags.DEFINE_integer(
  "checkpoints", 3, "Timed rounds with checkpoints; 0 for none.", lower_bound=0
)
flags.DEFINE_bool("large", True, "Converts a checkpoint of 2 GiB, too.")
# What --quick asks for, unless a flag says otherwise.
_QUICK = {
  "seconds": 1.0,
  "rounds": 12,
  "shape": ["4 BERT layers", "100 small", _EMBEDDING, _NETWORK],
  "cells": ["1x16384", "20x4096", "60x4096"],
  "policies": [],
  "monitoring": [_NETWORK],
  "starts": 1,
  "checkpoints": 0,
}
flags.DEFINE_string("json", None, "A file to write all figures to.")


for _name in ("policies", "monitoring"):
  flags.register_validator(
    _name,
    lambda names: set(names) <= {*_ALL},
    f"must be some of {', '.join(_ALL)}",
  )


flags.register_validator(
  "cells",
  lambda cells: cells == ["all"] or all(map(plane.parse, cells)),
  "must be cells such as 60x4096 or 60x64-4096, or all",
)


def _can_write(path: str | None) -> bool:
  if path is None:
    return True
  folder = os.path.dirname(os.path.abspath(path))
  return os.access(folder, os.W_OK) and not os.path.isdir(path)


flags.register_validator("json", _can_write, "must be a file in a folder")


def _parse(argv: list[str]) -> list[str]:
  """Parses flags; exits if a flag makes no sense, before anything is timed."""
  try:
    rest = FLAGS(argv)
  except flags.Error as error:
    _fail(" ".join(str(error).split()))
  if rest[1:]:
    _fail(f"arguments are not understood: {' '.join(rest[1:])}")
  for name, value in _QUICK.items() if FLAGS.quick else ():
    if FLAGS[name].using_default_value:
      FLAGS[name].value = value
  return rest


def find_shape(name: str, gradients: str) -> tuple[list[shapes.Shape], Any]:
  """Returns the shapes of a set of variables, and the loss."""
  if name == _EMBEDDING:
    return shapes.EMBEDDING, steps.gathered
  if name == _NETWORK:
    return network.SHAPES, network.loss
  return shapes.SHAPES[name], steps.LOSSES[gradients]


def time_shape(
  name: str, optimizer: str, mode: str, gradients: str
) -> dict[str, Any]:
  """Times a step of each rival with a set of variables; returns the figures."""
  variables, loss = find_shape(name, gradients)
  built = {
    rival: steps.Step(wrap, variables, optimizer, mode, loss)
    for rival, wrap in rivals.RIVALS.items()
  }
  title = f"{name}, {optimizer}, {mode}"
  times = timing.take_turns(built, FLAGS.seconds, FLAGS.rounds, title)
  for step in built.values():
    step.close()
  bare, own = times["bare"], times["TensorFlow"]
  return {
    "shape": name,
    "bare": sorted(bare)[len(bare) // 2],
    "over bare": {n: timing.ratio(t, bare) for n, t in times.items()},
    "over TensorFlow": timing.ratio(times["ours"], own),
    "fixed over TensorFlow": timing.ratio(
      times["ours, fixed"], times["TensorFlow, fixed"]
    ),
    "nodes": {n: step.nodes for n, step in built.items()},
  }


def print_steps(console: Console, measured: dict[str, Any]) -> None:
  rows = measured["rows"]
  table = Table(
    "variables",
    "bare",
    "TensorFlow",
    "ours",
    "ours / TensorFlow",
    "95 % of runs",
    "fixed",
    "nodes",
    title=f"TensorFlow {tf.__version__}, {measured['optimizer']}, "
    f"{measured['mode']}, {measured['gradients']}: a step, over the bare "
    "optimizer's",
    box=box.SIMPLE,
  )
  for row in rows:
    over, nodes = row["over bare"], row["nodes"]
    middle, low, high = row["over TensorFlow"]
    table.add_row(
      row["shape"],
      f"{1e3 * row['bare']:.2f} ms",
      f"{over['TensorFlow'][0]:.3f}",
      f"{over['ours'][0]:.3f}",
      f"{middle:.3f}",
      f"{low:.3f}-{high:.3f}",
      f"{row['fixed over TensorFlow'][0]:.3f}",
      f"{nodes['TensorFlow']} -> {nodes['ours']}" if nodes["ours"] else "",
    )
  mean = math.exp(
    sum(math.log(row["over TensorFlow"][0]) for row in rows) / len(rows)
  )
  console.print(table)
  console.print(f"Geometric mean of ours / TensorFlow: {mean:.3f}\n")


def time_policies(name: str) -> list[dict[str, Any]]:
  """Times a step with each policy in each mode; returns the figures."""
  return [
    {"shape": name}
    | policy_steps.measure(
      *find_shape(name, steps.FILLED), mode, FLAGS.seconds, FLAGS.rounds
    )
    for mode in FLAGS.mode
  ]


def add_ratios(
  table: Table, row: dict[str, Any], over: dict[str, tuple[float, ...]]
) -> None:
  """Adds a row with a step's time, and the ratios of other steps over it."""
  table.add_row(
    row["shape"],
    row["mode"],
    f"{1e3 * row['seconds']:.2f} ms",
    *["{:.3f}\n{:.3f}-{:.3f}".format(*ratio) for ratio in over.values()],
  )


def print_policies(console: Console, rows: list[dict[str, Any]]) -> None:
  names = list(rows[0]["over DynamicLossScale"])
  table = Table(
    "variables",
    "mode",
    "DynamicLossScale",
    *names,
    title=f"TensorFlow {tf.__version__}, momentum: a step, over that with "
    "DynamicLossScale",
    box=box.SIMPLE,
  )
  for row in rows:
    add_ratios(table, row, row["over DynamicLossScale"])
    nodes = row["nodes"]
    if nodes[rivals.RULE]:
      counts = [str(nodes[name]) for name in (rivals.RULE, *names)]
      table.add_row("", "nodes", *counts)
  console.print(table)


def time_monitoring(name: str) -> list[dict[str, Any]]:
  """Times a step with hooks in both graph modes; returns the figures."""
  return [
    {"shape": name}
    | monitoring.measure(
      *find_shape(name, steps.FILLED), mode, FLAGS.seconds, FLAGS.rounds
    )
    for mode in steps.MODES[:2]
  ]


def print_monitoring(console: Console, rows: list[dict[str, Any]]) -> None:
  names = list(rows[0]["over no hook"])
  table = Table(
    "variables",
    "mode",
    "no hook",
    *names,
    title=f"TensorFlow {tf.__version__}, momentum: a step with LossScaleHook, "
    "over that without a hook",
    box=box.SIMPLE,
  )
  for row in rows:
    add_ratios(table, row, row["over no hook"])
  console.print(table)


def print_ratios(console: Console, results: dict[str, Any]) -> None:
  table = Table(
    "all ratios, the worst first",
    "over",
    "ratio",
    "95 % of runs",
    box=box.SIMPLE,
  )
  for what, base, (middle, low, high) in summary.list_ratios(results):
    table.add_row(what, base, f"{middle:.3f}", f"{low:.3f}-{high:.3f}")
  if table.rows:
    console.print(table)


def print_rows(
  console: Console, title: str, rows: list[tuple[str, str]]
) -> None:
  table = Table(title, "", box=box.SIMPLE)
  for row in rows:
    table.add_row(*row)
  console.print(table)


def main(argv: list[str]) -> None:
  del argv
  results: dict[str, Any] = {
    "tensorflow": tf.__version__,
    "python": platform.python_version(),
    "cores": os.cpu_count(),
    "steps": [],
    "plane": [],
  }
  names = [name for name in FLAGS.shape if name != _NONE]
  cells = plane.list_cells() if FLAGS.cells == ["all"] else FLAGS.cells
  for axes in itertools.product(FLAGS.optimizer, FLAGS.mode, FLAGS.gradients):
    if names:
      measured: dict[str, Any] = dict(
        zip(("optimizer", "mode", "gradients"), axes)
      )
      measured["rows"] = [time_shape(name, *axes) for name in names]
      results["steps"].append(measured)
    results["plane"] += [
      plane.measure(cell, *axes, FLAGS.seconds / 3, FLAGS.rounds)
      for cell in cells
    ]
  for key, timed, measure in (
    ("policies", FLAGS.policies, time_policies),
    ("monitoring", FLAGS.monitoring, time_monitoring),
  ):
    results[key] = [row for name in timed for row in measure(name)]
  if FLAGS.starts:
    results["start"] = start.rows(FLAGS.starts)
  if FLAGS.checkpoints:
    results["checkpoints"] = checkpoints.rows(FLAGS.checkpoints, FLAGS.large)
  print_results(Console(width=120), results)
  if FLAGS.json:
    with open(FLAGS.json, "w", encoding="utf-8") as file:
      json.dump(results, file, indent=1)


def print_results(console: Console, results: dict[str, Any]) -> None:
  """Prints a table of all ratios, then what each is made of."""
  print_ratios(console, results)
  for measured in results["steps"]:
    print_steps(console, measured)
  if results["policies"]:
    print_policies(console, results["policies"])
  if results["monitoring"]:
    print_monitoring(console, results["monitoring"])
  for title in ("start", "checkpoints"):
    if title in results:
      print_rows(console, title, results[title])


if __name__ == "__main__":
  try:
    app.run(main, flags_parser=_parse)
  except KeyboardInterrupt:
    _fail("interrupted", 130)  # As shells do: 128 plus SIGINT's number.
