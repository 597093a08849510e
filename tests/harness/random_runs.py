# SPDX-License-Identifier: Apache-2.0
"""Saves, restores and converts random programs, and prints statistics.

python tests/harness/random_runs.py --first=0 --count=1000
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import tempfile
import time

from random_builder import Api
from random_builder import Graphs
from random_checks import check
from random_checks import check_conversion
from random_checks import check_own_layout
from random_programs import changed
from random_programs import own_layout
from random_programs import program_of
from random_programs import variant_of
from random_saves import make_old
from random_saves import save


def describe(variant: dict, api: Api) -> str:
  """Returns a short description of a variant."""
  kinds = ",".join(
    "none" if key in variant["dropped"] else kind
    for key, kind in sorted(variant["kinds"].items())
  )
  return f"{kinds} v{1 + variant['v2']} {api.name}"


def _api(rng, program, variant) -> Api:
  """Draws an API that can build a variant."""
  own = Api("tf")
  if rng.random() < 0.25 and own.can(program, variant):
    return own
  return Api("tfl")


def run(seed: int, restores: int = 3):
  """Saves, restores and converts one program in several variants.

  Each variant saves the program, and all variants restore each checkpoint.
  Building the graphs takes most of the time, so each graph is used as often as
  possible.

  Args:
    seed: The seed of the program and of everything else that is drawn.
    restores: The number of variants besides the first variant.

  Yields:
    The action, a description of the case, and the `Finding`.
  """
  program = program_of(seed)
  rng = random.Random(f"variants of {seed}")
  variant = variant_of(rng, program)
  if len(variant["kinds"]) > 1 and rng.random() < 0.06:
    variant["dropped"] = [rng.choice(sorted(variant["kinds"]))]
  ways = [(variant, _api(rng, program, variant))]
  for _ in range(restores):
    here = changed(rng, program, variant)
    ways.append((here, _api(rng, program, here)))
  graphs = Graphs()
  for i, (variant, api) in enumerate(ways):
    with tempfile.TemporaryDirectory() as folder:
      by_object = rng.random() < 0.12
      meta = not by_object and rng.random() < 0.5
      path, manifest = save(
        program,
        variant,
        api,
        os.path.join(folder, "model.ckpt"),
        meta,
        by_object,
        graphs=graphs,
      )
      make_old(path)
      how = "by object" if by_object else "with .meta" if meta else "without"
      told = f"seed {seed}.{i}: {describe(variant, api)} ({how})"
      for here, here_api in ways:
        saver = rng.random() < 0.3
        same = here == variant and not by_object
        yield (
          f"restore{' same' * same}",
          f"{told} -> {describe(here, here_api)}{' Saver' * saver}",
          check(program, here, here_api, path, manifest, saver, same, graphs),
        )
      if i == 0:  # Each conversion needs one more graph.
        to = rng.choice(["saver", "saver-v2", "contrib", "fp32"])
        yield (
          f"convert to {to}",
          f"{told} -> {to}",
          check_conversion(program, variant, path, manifest, to, graphs),
        )
      own = own_layout(program, variant)
      if own and not by_object:
        finding = check_own_layout(path, own)
        yield "convert to own", f"{told} -> {own}", finding


def main() -> int:
  """Runs many programs; prints statistics and failures."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--first", type=int, default=0)
  parser.add_argument("--count", type=int, default=100)
  parser.add_argument("--restores", type=int, default=3)
  parser.add_argument(
    "--errors", action="store_true", help="print what errors say, too"
  )
  args = parser.parse_args()
  begin = time.time()
  statistics, failing = collections.Counter(), collections.defaultdict(set)
  for seed in range(args.first, args.first + args.count):
    for what, case, finding in run(seed, args.restores):
      statistics[what, finding.outcome] += 1
      for tag in sorted(finding.tags):
        statistics[what, f"{finding.outcome} [{tag}]"] += 1
      if finding.failed:
        failing[finding.outcome].add(seed)
        failing["any"].add(seed)
      if finding.failed or (args.errors and finding.outcome != "ok"):
        print(f"{case}: {what}: {finding}", flush=True)
  for (what, outcome), count in sorted(statistics.items()):
    print(f"{count:7} {what}: {outcome}")
  for outcome, seeds in sorted(failing.items()):
    print(f"{len(seeds):7} seeds of {args.count} {outcome}")
  print(f"{time.time() - begin:.0f} seconds")
  return 1 if failing else 0


if __name__ == "__main__":
  sys.exit(main())
