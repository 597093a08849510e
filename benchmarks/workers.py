# SPDX-License-Identifier: Apache-2.0
"""Simulates loss scaling with more workers than there are machines.

  python -m benchmarks.workers

With many workers, it is likely that some worker overflows. The first table says
where each policy settles; the second what the agreement on `found_inf` costs.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any
from typing import NoReturn

try:
  from rich import box
  from rich.console import Console
  from rich.table import Table
except ImportError:
  print(
    "benchmarks: rich is needed: pip install 'tf_compat_lossscale[bench]'",
    file=sys.stderr,
  )
  sys.exit(2)

from benchmarks import worker_model as model

_WORKERS = (1, 64, 1024, 16384)
_MEGABYTE = 1e6


class _Parser(argparse.ArgumentParser):
  """A parser whose errors are one line."""

  def error(self, message: str) -> NoReturn:
    """Prints a mistake in one line and exits with the status 2."""
    print(f"benchmarks.workers: {message}", file=sys.stderr)
    sys.exit(2)


def _count(text: str) -> int:
  """Returns a whole number of at least 1."""
  try:
    number = int(text)
  except ValueError:
    number = 0
  if number < 1:
    raise argparse.ArgumentTypeError(
      f"{text!r} must be a whole number of at least 1"
    )
  return number


def _share(text: str) -> float:
  """Returns a number from 0 to below 1."""
  try:
    number = float(text)
  except ValueError:
    number = -1.0
  if not 0 <= number < 1:
    raise argparse.ArgumentTypeError(f"{text!r} must be from 0 to below 1")
  return number


def _positive(text: str) -> float:
  """Returns a finite number above 0."""
  try:
    number = float(text)
  except ValueError:
    number = 0.0
  if not 0 < number < float("inf"):
    raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0")
  return number


def _parse(argv: list[str] | None) -> argparse.Namespace:
  """Returns the arguments of the command line."""
  parser = _Parser(
    prog="python -m benchmarks.workers", description=__doc__.split("\n")[0]
  )
  parser.add_argument(
    "--workers",
    type=_count,
    nargs="+",
    default=_WORKERS,
    metavar="N",
    help="numbers of workers (default: 1 64 1024 16384)",
  )
  parser.add_argument(
    "--steps", type=_count, default=100_000, help="steps of each run"
  )
  parser.add_argument(
    "--deviation",
    type=_positive,
    default=1.0,
    help="standard deviation of log2 of a worker's largest gradient",
  )
  parser.add_argument(
    "--broken",
    type=_share,
    nargs="+",
    default=(0.0, 1e-7, 1e-5),
    metavar="SHARE",
    help="the share of a worker's batches whose gradients are not finite at "
    "any scale; a table for each (default: 0 1e-7 1e-5)",
  )
  parser.add_argument(
    "--megabytes",
    type=_positive,
    nargs="+",
    default=(1.0, 100.0),
    metavar="SIZE",
    help="sizes of all gradients (default: 1 100)",
  )
  parser.add_argument("--seed", type=int, default=0, help="of random numbers")
  parser.add_argument("--json", metavar="FILE", help="write all figures, too")
  return parser.parse_args(argv)


def find_policies(
  arguments: argparse.Namespace, broken: float
) -> dict[str, dict[int, model.Settled]]:
  """Returns policy -> workers -> where the policy settles."""
  gradients = model.Gradients(deviation=arguments.deviation, broken=broken)
  return {
    name: {
      workers: model.simulate(
        rule, gradients, workers, arguments.steps, arguments.seed
      )
      for workers in arguments.workers
    }
    for name, rule in model.POLICIES.items()
  }


def print_policies(
  console: Console, found: dict[str, dict[int, model.Settled]], broken: float
) -> None:
  """Prints a table of policies, with a column for each number of workers."""
  counts = list(next(iter(found.values())))
  table = Table(
    "policy",
    *[f"{count:,} workers" for count in counts],
    title=f"Median scale, share of skipped steps; broken batches: {broken:g}",
    box=box.SIMPLE,
  )
  for name, settled in found.items():
    table.add_row(
      name,
      *[
        f"2^{settled[count].scale:.0f}, {settled[count].skipped:.2%}"
        for count in counts
      ],
    )
  console.print(table)


def find_costs(arguments: argparse.Namespace) -> list[dict[str, Any]]:
  """Returns what agreement costs on each network, in seconds."""
  return [
    {
      "network": network.name,
      "workers": workers,
      "megabytes": size,
      **model.find_costs(network, workers, size * _MEGABYTE),
    }
    for network in model.NETWORKS
    for size in arguments.megabytes
    for workers in arguments.workers
    if workers > 1
  ]


def print_costs(console: Console, rows: list[dict[str, Any]]) -> None:
  """Prints what agreement costs, in time and as a share of the all-reduce."""
  ways = ("ring", "tree", "fused")
  table = Table(
    "network",
    "MB",
    "workers",
    "gradients",
    *ways,
    title="found_inf: milliseconds (share of the gradients' all-reduce)",
    box=box.SIMPLE,
  )
  for row in rows:
    table.add_row(
      row["network"],
      f"{row['megabytes']:g}",
      f"{row['workers']:,}",
      f"{1e3 * row['gradients']:.4g}",
      *[
        f"{1e3 * row[way]:.3g} ({row[way] / row['gradients']:.1%})"
        for way in ways
      ],
    )
  console.print(table)


def main(argv: list[str] | None = None) -> None:
  """Prints the tables, and writes the figures if a file is named."""
  arguments = _parse(argv)
  console = Console()
  figures: dict[str, Any] = {"policies": {}}
  for broken in arguments.broken:
    found = find_policies(arguments, broken)
    print_policies(console, found, broken)
    figures["policies"][broken] = {
      name: {count: one._asdict() for count, one in settled.items()}
      for name, settled in found.items()
    }
  figures["costs"] = find_costs(arguments)
  print_costs(console, figures["costs"])
  if arguments.json:
    try:
      with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump(figures, file, indent=1)
    except OSError as error:
      print(f"benchmarks.workers: --json: {error}", file=sys.stderr)
      sys.exit(2)


if __name__ == "__main__":
  main()
