"""Times what people wait for before a program does anything."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time

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


def _python(*args: str) -> tuple[float, str]:
  start = time.perf_counter()
  done = subprocess.run(
    [sys.executable, *args],
    check=True,
    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    stderr=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    text=True,
  )
  return time.perf_counter() - start, done.stdout


def rows(rounds: int) -> list[tuple[str, str]]:
  """What was timed -> the best of `rounds`, in words.

  The best, since all that disturbs a start makes it longer, and TensorFlow's
  import alone varies by more than what is looked for.
  """
  run = ("-m", "tf_compat_lossscale", "run", "--quiet")
  result = []
  with tempfile.TemporaryDirectory() as folder:
    for name, text in _PROGRAMS.items():
      program = pathlib.Path(folder, "program.py")
      program.write_text(text, "utf-8")
      plain, launched = [], []
      for _ in range(rounds):
        plain.append(_python(str(program))[0])
        launched.append(_python(*run, str(program))[0])
      more = min(launched) - min(plain)
      result.append((f"run, over python: {name}", f"{1e3 * more:.0f} ms more"))
  inside = [
    [float(word) for word in _python("-c", _INSIDE)[1].split()]
    for _ in range(rounds)
  ]
  for name, times in zip(("import of all names", "install()"), zip(*inside)):
    result.append((name, f"{1e3 * min(times):.1f} ms"))
  return result
