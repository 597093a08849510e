# SPDX-License-Identifier: Apache-2.0
"""Writes logs of loss scales, as monitored runs do, without TensorFlow.

  python tests/harness/monitoring_logs.py FOLDER

writes a folder for each kind of run.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import itertools
import json
import math
import os
import pathlib
import random
import sys
from typing import Any

import growth_backoff_oracle as oracle

from tf_compat_lossscale.monitoring import event_files

# Gradients of a float16 network: name -> number of elements.
GRADIENTS = {
  "resnet50/conv1/kernel": 9408,
  "resnet50/block_3/unit_2/bottleneck/conv2/kernel": 589824,
  "resnet50/block_4/unit_1/batch_normalization/gamma": 2048,
  "transformer/encoder/layer_11/attention/output/dense/kernel": 589824,
  "softmax_tensor/dense/kernel": 2048000,
  "softmax_tensor/dense/bias": 1000,
}
NAMES = tuple(GRADIENTS)
START = 1.7e9  # Seconds since the epoch.
CONFIG = {
  "class_name": "DynamicLossScale",
  "initial_loss_scale": 32768.0,
  "increment_period": 2000,
  "multiplier": 2.0,
  "minimum": 1.0,
}


def number(value: float) -> float | str:
  """Returns a number as the file has it."""
  return value if math.isfinite(value) else str(value)


def find_blame(name: str, inf: int = 1, nan: int = 0) -> dict[str, Any]:
  """Returns a gradient that was at fault."""
  size = GRADIENTS.get(name, 1000)
  blame = {"name": name, "inf": inf, "nan": min(nan, size)}
  return blame | {"size": size, "largest": 6.1e4}


def make_underflow(
  zeros: float, largest: float, lost: float | None = 0.0
) -> dict[str, Any]:
  """Returns the shares of zeros of a step; older logs have no share lost."""
  pair = [min(1.0, 1.2 * zeros), number(largest)]
  named = dict.fromkeys(NAMES[:3], pair)
  found = {"zeros": zeros, "largest": number(largest), "gradients": named}
  return found if lost is None else {**found, "lost": lost, "unscaling": 0.0}


def make_records(
  finite: Iterable[bool],
  rule: Any = None,
  *,
  first: int = 1,
  every: int = 100,
  blame: Callable[[int], list[dict[str, Any]]] | None = None,
  underflow: Callable[[int, float], dict[str, Any]] | None = None,
  config: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
  """Returns the lines of a run.

  Args:
    finite: For each step, whether its gradients were finite.
    rule: The rule of the scale; by default that of `DynamicLossScale`.
    first: The number of the first step.
    every: A line is written each so many steps.
    blame: Returns the gradients at fault of a skipped step.
    underflow: Returns the shares of zeros for a step and the scale before it.
    config: The configuration in the first line.
  """
  rule = rule or oracle.Rule()
  state = rule.start()
  records: list[dict[str, Any]] = []
  last_blame: list[dict[str, Any]] | None = None
  flags = list(finite)
  for step, flag in enumerate(flags, first):
    before = state.current_loss_scale
    state = rule.step(state, flag)
    scale = state.current_loss_scale
    is_end = step in (first, first + len(flags) - 1)
    if not (is_end or step % every == 0 or not flag or scale != before):
      continue
    record: dict[str, Any] = {
      "step": step,
      "applied": flag,
      "loss_scale/value": number(scale),
      "loss_scale/good_steps": state.good_steps,
      "loss_scale/skipped_total": state.skipped_steps,
      "loss_scale/skipped_rate": state.skipped_steps / step,
      "global_step": step - state.skipped_steps,
      "time": START + 0.25 * step,
    }
    if not flag and blame:
      found = blame(step)
      record["gradients"] = 161
      if found != last_blame:
        record["blame"] = last_blame = found
    if underflow and step % every == 0:
      record["underflow"] = underflow(step, before)
    if step == first:
      record["config"] = CONFIG if config is None else config
    records.append(record)
  return records


def make_flags(count: int, *skipped: int | range) -> list[bool]:
  """Returns which of some steps are finite; steps are counted from 1."""
  flags = [True] * count
  for item in skipped:
    for step in item if isinstance(item, range) else (item,):
      flags[step - 1] = False
  return flags


def write(folder: pathlib.Path, records: Iterable[dict[str, Any]]) -> str:
  """Appends lines to the log of a folder and returns the folder's path."""
  folder.mkdir(parents=True, exist_ok=True)
  with open(folder / "loss_scale.jsonl", "a", encoding="utf-8") as file:
    file.writelines(f"{json.dumps(record)}\n" for record in records)
  return str(folder)


def write_events(
  folder: pathlib.Path,
  records: Iterable[dict[str, Any]],
  start: int | None = None,
) -> str:
  """Writes an event file into a folder and returns the file's path."""
  folder.mkdir(parents=True, exist_ok=True)
  with event_files.EventFile(folder) as file:
    if start is not None:
      file.add_start(start, START)
    for record in records:
      scalars = {k: float(v) for k, v in record.items() if "/" in k}
      file.add_scalars(record["step"], scalars, record["time"])
    return file.path


def overflow_above(limits: Iterable[float], rule: Any = None) -> Iterator[bool]:
  """Yields whether each step is finite: if the scale is at most its limit."""
  rule = rule or oracle.Rule()
  state = rule.start()
  for limit in limits:
    flag = state.current_loss_scale <= limit
    state = rule.step(state, flag)
    yield flag


def blame_of(*names: str, nan: int = 0) -> Callable[[int], list[Any]]:
  """Returns a function that blames the same gradients at each step."""
  return lambda step: [find_blame(name, 1, nan) for name in names]


def blame_by_chance(step: int) -> list[dict[str, Any]]:
  """Returns gradients at fault, some oftener than others."""
  generator = random.Random(step)
  count = generator.choice([1, 1, 1, 2, 3])
  names = generator.choices(NAMES, weights=[1, 8, 2, 5, 20, 3], k=count)
  return [
    find_blame(name, generator.randint(1, 900), generator.randint(0, 5))
    for name in sorted({*names})
  ]


def make_healthy(count: int = 24000) -> list[dict[str, Any]]:
  """Returns a run whose scale meets its limit once in each period."""
  generator = random.Random(3)
  limits = (2 ** min(18, generator.gauss(17.3, 0.2)) for _ in range(count))
  return make_records(
    overflow_above(limits),
    blame=blame_by_chance,
    underflow=lambda step, scale: make_underflow(0.04, 2000.0),
  )


def make_stuck(since: int = 797, count: int = 1400) -> list[dict[str, Any]]:
  """Returns a run of which all steps are skipped from a step on."""
  records = make_records(
    make_flags(count, 303, range(since, count + 1)),
    oracle.Rule(growth_interval=500),
    blame=lambda step: [
      find_blame(NAMES[4], 2048000),
      *([find_blame(NAMES[5], 1000)] if step > since + 90 else []),
    ],
    config=CONFIG | {"increment_period": 500},
  )
  stuck = next(r for r in records if r["step"] >= since + 200)
  stuck["stuck"] = f"200 steps were skipped since step {since}"
  return records


def make_nan(count: int = 1200) -> list[dict[str, Any]]:
  """Returns a run whose model makes NaN."""
  return make_records(
    make_flags(count, range(900, count + 1)),
    blame=blame_of(NAMES[2], NAMES[0], nan=9408),
  )


def make_underflowing(count: int = 3000) -> list[dict[str, Any]]:
  """Returns a run whose scale is too low."""
  return make_records(
    make_flags(count),
    underflow=lambda step, scale: make_underflow(
      0.83, scale * 2.0**-20, lost=0.83
    ),
  )


def make_noisy(count: int = 5000) -> list[dict[str, Any]]:
  """Returns a run that skips steps too often."""
  generator = random.Random(5)
  rule = oracle.Rule(growth_interval=10)
  limits = (2 ** generator.gauss(14, 0.7) for _ in range(count))
  return make_records(
    overflow_above(limits, rule),
    rule,
    blame=blame_by_chance,
    config=CONFIG | {"increment_period": 10},
  )


def make_climbing(count: int = 20000) -> list[dict[str, Any]]:
  """Returns a run whose scale has not met its limit at the end."""
  return make_records(make_flags(count))


KINDS: dict[str, Callable[[], list[dict[str, Any]]]] = {
  "healthy": make_healthy,
  "stuck": make_stuck,
  "nan": make_nan,
  "underflow": make_underflowing,
  "noisy": make_noisy,
  "climbing": make_climbing,
}


def restart(
  records: list[dict[str, Any]], after: int, later: list[dict[str, Any]]
) -> list[dict[str, Any]]:
  """Returns the lines up to a step, and those of a run that goes on."""
  kept = itertools.takewhile(lambda record: record["step"] <= after, records)
  return [*kept, *later]


if __name__ == "__main__":
  for kind, make in KINDS.items():
    print(write(pathlib.Path(os.path.join(sys.argv[1], kind)), make()))
