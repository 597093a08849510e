# SPDX-License-Identifier: Apache-2.0
"""Times starts of programs, and this package's import and `install`."""

from __future__ import annotations

import pathlib
import tempfile
import time

from benchmarks import processes

_PROGRAMS = {
  "an empty program": "pass",
  "import tensorflow": "import tensorflow",
}
_INSIDE = """
import time
import tensorflow
start = time.perf_counter()
from tf_compat_lossscale import *
imported = time.perf_counter()
install()
print(imported - start, time.perf_counter() - imported)
"""


def _seconds(*args: str) -> float:
  begin = time.perf_counter()
  processes.python(*args)
  return time.perf_counter() - begin


def rows(rounds: int) -> list[tuple[str, str]]:
  """Returns pairs of what was timed and the shortest time, in words.

  Other load only makes a start longer, and TensorFlow's import alone varies by
  more than the differences we look for. So the shortest time is the most exact.
  """
  run = ("-m", "tf_compat_lossscale", "run", "--quiet")
  result = []
  with tempfile.TemporaryDirectory() as folder:
    for name, text in _PROGRAMS.items():
      program = pathlib.Path(folder, "program.py")
      program.write_text(text, "utf-8")
      plain, launched = [], []
      for _ in range(rounds):
        plain.append(_seconds(str(program)))
        launched.append(_seconds(*run, str(program)))
      more = min(launched) - min(plain)
      result.append((f"run, over python: {name}", f"{1e3 * more:.0f} ms more"))
  inside = [
    [float(word) for word in processes.python("-c", _INSIDE).split()]
    for _ in range(rounds)
  ]
  for name, times in zip(("import of all names", "install()"), zip(*inside)):
    result.append((name, f"{1e3 * min(times):.1f} ms"))
  return result
