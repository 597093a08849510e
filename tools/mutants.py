# SPDX-License-Identifier: Apache-2.0
"""Breaks the package in a random sample of places and counts what tests notice.

  python tools/mutants.py [--count=N] [--seed=S] [PATTERN ...]

mutmut makes the mutants of the modules in pyproject.toml and runs, for each,
the tests that call the changed function. A PATTERN such as
'tf_compat_lossscale.gradients.*' restricts the sample.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import pathlib
import random
import subprocess
import sys

_FOLDER = pathlib.Path("mutants")
# What mutmut writes for a mutant: exit statuses of pytest, or its own.
_SURVIVED, _UNTESTED = 0, (5, 33)


def run_mutmut(*args: str) -> None:
  """Runs mutmut; its progress goes to the terminal."""
  done = subprocess.run(["mutmut", "run", *args])
  if done.returncode:
    sys.exit(f"tools/mutants.py: mutmut failed with status {done.returncode}")


def read_statuses() -> dict[str, int | None]:
  """Returns the exit status of each mutant's tests; None if none ran."""
  statuses: dict[str, int | None] = {}
  for path in _FOLDER.rglob("*.py.meta"):
    statuses |= json.loads(path.read_text("utf-8"))["exit_code_by_key"]
  return statuses


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--count", type=int, default=200)
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--processes", type=int, default=2)
  parser.add_argument("patterns", nargs="*", default=["*"])
  flags = parser.parse_args()
  processes = f"--max-children={flags.processes}"
  # A name that matches no mutant: mutmut makes all mutants and runs none.
  subprocess.run(["mutmut", "run", processes, "none"], check=False)
  names = [
    name
    for name in sorted(read_statuses())
    if any(fnmatch.fnmatch(name, pattern) for pattern in flags.patterns)
  ]
  if not names:
    sys.exit(f"tools/mutants.py: no mutant has a name like {flags.patterns}")
  random.Random(flags.seed).shuffle(names)
  sample = sorted(names[: flags.count])
  run_mutmut(processes, *sample)
  statuses = read_statuses()
  results = {name: statuses[name] for name in sample}
  survivors = [n for n, status in results.items() if status == _SURVIVED]
  untested = [n for n, status in results.items() if status in _UNTESTED]
  caught = len(sample) - len(survivors) - len(untested)
  for name in survivors:
    print(f"survived: {name}")
  for name in untested:
    print(f"no test: {name}")
  print(
    f"{caught} of {len(sample)} mutants were caught, of {len(names)} in all"
  )


if __name__ == "__main__":
  main()
