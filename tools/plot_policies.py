# SPDX-License-Identifier: Apache-2.0
"""Trains a float16 network with several policies, and draws their scales.

  python tools/plot_policies.py [PICTURE]

Prints a Markdown table for each kind of data, and writes a picture of the runs
on the first, by default into the documentation. All runs on a kind of data get
the same batches and the same first weights. Batches are more or less hard: the
harder a batch, the larger are its inputs, targets and gradients. As the network
learns, gradients shrink.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import math
import os
import pathlib
import sys
from typing import Any
from typing import NoReturn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = pathlib.Path(__file__).absolute().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

from benchmarks import pictures  # noqa: E402
import tf_compat_lossscale as tfl  # noqa: E402
from tf_compat_lossscale import policies  # noqa: E402

STEPS = 6000
PICTURE = ROOT / "docs" / "pictures" / "policies.png"
# The run is short, so the scale grows after fewer steps than by default.
_INTERVAL = 100
POLICIES: dict[str, Callable[[], tfl.LossScale]] = {
  "DynamicLossScale": lambda: tfl.DynamicLossScale(increment_period=_INTERVAL),
  "like torch": lambda: policies.like("torch", growth_interval=_INTERVAL),
  "like megatron": lambda: policies.like("megatron", growth_interval=_INTERVAL),
  "like deepspeed": lambda: policies.like(
    "deepspeed", growth_interval=_INTERVAL
  ),
  "like fairseq, tolerance 0.05": lambda: policies.like(
    "fairseq", growth_interval=_INTERVAL, overflow_tolerance=0.05
  ),
  "LogNormal": lambda: policies.LogNormal(
    recovery_interval=_INTERVAL, max_loss_scale=2**40
  ),
}
# Without loss scaling, small gradients are lost.
_ALL = {**POLICIES, "FixedLossScale(1)": lambda: tfl.FixedLossScale(1)}

_INPUTS, _HIDDEN, _BATCH = 32, 64, 32
# A loss that is a mean over many outputs has gradients as small as this one's.
_LOSS_FACTOR = 2.0**-20
_SPREAD = 0.8


@dataclasses.dataclass(frozen=True)
class Run:
  """A training run.

  Attributes:
    scales: The loss scale after each step.
    lost: The numbers of the steps that were skipped, from 0.
    hard: The numbers of the steps with one of the hardest batches.
    easy_loss: The final loss of easy data.
    hard_loss: The final loss of the hardest data, scaled to targets of the size
      that those of easy data have.
  """

  scales: list[float]
  lost: list[int]
  hard: list[int]
  easy_loss: float
  hard_loss: float


@dataclasses.dataclass(frozen=True)
class Data:
  """A kind of data.

  Attributes:
    draw_hardness: Draws the factor by which a batch is larger.
    limit: Batches with larger factors are the hardest, 4 % of all. They have
      another function to learn.
  """

  draw_hardness: Callable[[np.random.Generator], float]
  limit: float


DATA = {
  "log-normal": Data(
    lambda random: math.exp(_SPREAD * random.normal()),
    # A standard normal variable exceeds 1.75 with a probability of 0.04.
    math.exp(_SPREAD * 1.75),
  ),
  "two kinds of batches": Data(
    lambda random: 6.0 if random.random() < 0.04 else 1.0, 5.0
  ),
}


def draw_batch(
  random: np.random.Generator, size: int, hardness: float, is_hard: bool
) -> tuple[np.ndarray, np.ndarray]:
  """Returns inputs and targets of one of two functions to learn."""
  teachers = np.random.default_rng(0).normal(size=(2, _INPUTS - 1, 1))
  x = hardness * random.normal(size=(size, _INPUTS))
  x[:, -1] = hardness if is_hard else 0.0  # Tells which function it is.
  y = x[:, :-1] @ teachers[int(is_hard)] * 2 / math.sqrt(_INPUTS - 1)
  return x.astype(np.float32), np.maximum(y, 0).astype(np.float32)


def train(make: Callable[[], tfl.LossScale], data: Data, steps: int) -> Run:
  """Trains the network with a loss scale.

  Args:
    make: Creates the loss scale.
    data: What to train with.
    steps: The number of steps.

  Returns:
    What happened.
  """
  random = np.random.default_rng(1)
  with tf.Graph().as_default():
    x = tf.placeholder(tf.float32, [None, _INPUTS])
    y = tf.placeholder(tf.float32, [None, 1])
    hidden = tf.nn.relu(
      _multiply(tf.cast(x, tf.float16), _HIDDEN, "w1", random)
    )
    found = tf.cast(_multiply(hidden, 1, "w2", random), tf.float32)
    loss = tf.reduce_mean(tf.square(found - y))
    loss_scale = make()
    optimizer = tfl.MixedPrecisionLossScaleOptimizer(
      tf.train.AdamOptimizer(1e-3, epsilon=1e-12), loss_scale
    )
    global_step = tf.train.get_or_create_global_step()
    train_op = optimizer.minimize(_LOSS_FACTOR * loss, global_step)
    state = [loss_scale(), global_step]
    scales, lost, hard, applied = [], [], [], 0
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      for step in range(steps):
        hardness = data.draw_hardness(random)
        is_hard = hardness > data.limit
        if is_hard:
          hard.append(step)
        batch = draw_batch(random, _BATCH, hardness, is_hard)
        session.run(train_op, _feed(x, y, batch))
        scale, count = session.run(state)
        scales.append(float(scale))
        if count == applied:  # Skipped steps leave the global step as it is.
          lost.append(step)
        applied = count
      easy, hardest = (
        float(session.run(loss, _feed(x, y, draw_batch(random, 2048, *of))))
        for of in ((1.0, False), (data.limit, True))
      )
  return Run(scales, lost, hard, easy, hardest / data.limit**2)


def format_table(runs: Mapping[str, Run]) -> str:
  """Returns a Markdown table of runs, by the names of their policies."""
  rows = [
    "| policy | steps lost | hardest batches lost | loss, easy data "
    "| loss, hardest data | last scale |",
    "|---|---|---|---|---|---|",
  ]
  for name, run in runs.items():
    hard = len({*run.hard} & {*run.lost})
    rows.append(
      f"| {name} | {len(run.lost) / len(run.scales):.2%} "
      f"| {hard} of {len(run.hard)} | {run.easy_loss:.3f} "
      f"| {run.hard_loss:.3f} | 2^{math.log2(run.scales[-1]):g} |"
    )
  return "\n".join(rows)


def draw(runs: Mapping[str, Run], path: pathlib.Path) -> None:
  """Draws the scale of each run, and the steps that it lost."""
  plot = pictures.pyplot()
  figure, panes = plot.subplots(
    *(2, 3), figsize=(12, 5), layout="constrained", sharex=True, sharey=True
  )
  for axes, (name, run) in zip(panes.flat, runs.items()):
    axes.plot(run.scales, color="tab:blue", linewidth=1)
    lost = [run.scales[step] for step in run.lost]
    axes.plot(run.lost, lost, ".", color="tab:red", markersize=4)
    axes.set_yscale("log", base=2)
    axes.set_title(f"{name}: {len(run.lost)} steps lost", fontsize=10)
  for axes in panes[-1]:
    axes.set_xlabel("step")
  for axes in panes[:, 0]:
    axes.set_ylabel("loss scale")
  figure.savefig(path, dpi=100)
  plot.close(figure)


def _multiply(
  values: tf.Tensor, outputs: int, name: str, random: np.random.Generator
) -> tf.Tensor:
  """Returns the product with a new variable, in float16."""
  inputs = values.shape.as_list()[1]
  first = random.normal(size=(inputs, outputs)) / math.sqrt(inputs)
  weights = tf.get_variable(
    name, initializer=first.astype(np.float32), use_resource=True
  )
  return tf.matmul(values, tf.cast(weights, tf.float16))


def _feed(
  x: tf.Tensor, y: tf.Tensor, batch: tuple[np.ndarray, np.ndarray]
) -> dict[tf.Tensor, Any]:
  return {x: batch[0], y: batch[1]}


def _fail(message: str) -> NoReturn:
  print(f"tools/plot_policies.py: {message}", file=sys.stderr)
  sys.exit(2)


def main(arguments: list[str]) -> None:
  """Trains, prints the table and writes the picture."""
  if len(arguments) > 1:
    _fail(f"expects one path at most, but got {' '.join(arguments)}")
  path = pathlib.Path(arguments[0]) if arguments else PICTURE
  if path.is_dir() or not os.access(path.absolute().parent, os.W_OK):
    _fail(f"the picture must be a file in a folder that exists: {path}")
  try:
    pictures.pyplot()
  except ImportError:
    _fail("matplotlib is needed: pip install 'tf_compat_lossscale[plot]'")
  all_runs = {
    kind: {name: train(make, data, STEPS) for name, make in _ALL.items()}
    for kind, data in DATA.items()
  }
  first, *_ = all_runs.values()
  draw({name: first[name] for name in POLICIES}, path)
  for kind, runs in all_runs.items():
    print(f"\n{kind}:\n\n{format_table(runs)}")


if __name__ == "__main__":
  main(sys.argv[1:])
