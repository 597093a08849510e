# SPDX-License-Identifier: Apache-2.0
"""Tests `migrate` on random sources: all names move, all else stays."""

import ast
import codecs
import io
import os
import pathlib
import random
import re
import tokenize
import warnings

import processes
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale import _releases
from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import scanner
from tf_compat_lossscale.migration import trees

pytestmark = pytest.mark.any_release

_EXAMPLES = int(os.environ.get("MIGRATION_EXAMPLES", "200"))
_EDITED = (findings.MIGRATE, findings.OFFERED)
_OPTIONS = scanner.ScanOptions(target=_releases.NEWEST, edited=_EDITED)


def read_table(text):
  """Returns the cells of a table: "\\n" stands for the end of a line."""
  rows = text.strip().splitlines()
  return [[c.replace(r"\n", "\n") for c in row.split(" => ")] for row in rows]


# Statements, the name that each binds, and the module that the name is.
_MODULES = read_table(r"""
import tensorflow as tf => tf
import os, tensorflow as tf, sys  # Three. => tf
import tensorflow as tf; import os => tf
if True: import tensorflow as tf => tf
try:\n  import tensorflow as tf\nexcept ImportError:\n  tf = None => tf
try: import nothing as tf\nexcept ImportError: import tensorflow as tf => tf
import \\n    tensorflow as \\n    tf  # Split. => tf
import tensorflow.compat.v1 as tf1\ntf1.disable_v2_behavior() => tf1
import tensorflow as größe => größe
from tensorflow import (  # A\n  train as t,  # B\n  keras,\n) => t => train
from tensorflow.train import experimental as e => e => train.experimental
import tensorflow.contrib as c => c => contrib
from tensorflow import contrib as c, keras => c => contrib
import tensorflow.contrib.mixed_precision as mp => mp => contrib.mixed_precision
import tensorflow.contrib.mixed_precision\n => tensorflow
from tensorflow import contrib, train => contrib => contrib
import tensorflow as tf\nm = tf.contrib => m => contrib
import tensorflow as tf\nE = tf.train.experimental => E => train.experimental
""")
_NAMES = (
  *("train.experimental.LossScale", "train.experimental.DynamicLossScale"),
  "train.experimental.MixedPrecisionLossScaleOptimizer",
  "train.experimental.enable_mixed_precision_graph_rewrite",
  "mixed_precision.experimental.FixedLossScale",
  "python.training.experimental.loss_scale.DynamicLossScale",
  "contrib.mixed_precision.FixedLossScaleManager",
  "contrib.mixed_precision.LossScaleOptimizer",
  *("train.experimental.PythonState", "train.Saver", "train"),  # Stay.
)
# Statements that import names (E is `tensorflow.train.experimental`), and one
# of the names.
_IMPORTS = read_table(r"""
from E import LossScale => LossScale
from E import LossScale as L, PythonState => L
from E import (  # A\n  LossScale as L,\n  # C\n  PythonState as P  # D\n) => L
from E \\n    import DynamicLossScale, \\n    FixedLossScale as F => F
from E import * => LossScale
from tensorflow.contrib.mixed_precision import * => LossScaleOptimizer
from tensorflow.contrib.mixed_precision import (LossScaleOptimizer as O) => O
from tensorflow.python.training.experimental.loss_scale import get as g => g
try:\n  from E import LossScale as L\nexcept ImportError:\n  L = None => L
from tensorflow . train . experimental import LossScale as L => L
def f():\n  global L\n  from E import LossScale as L\nf() => L
""")
# Statements with a name N, that is OWNER.LAST.
_USES = read_table(r"""
R(N)
R(N); R(1)
x = N; R(x)  # type: N
R(\n    N,  # The name.\n)
R(1) ; \\n  R(N)
R(x := N)
R('N'); R(N)
R({'a': N}['a'])
R(f'{R(N) and 1}')
R(f'{{N}}{1:{2}}')
'''\n  N\n'''\nR(N)
def f(a=N):\n  'N'\n  return a\nR(f())
if R(N):\n  pass\nelse: R(N)
R(N\n.__doc__)
class C(object):\n  n = N  # In.\n\n  def f(self): return N\nR(C().f())
match N:\n  case value if R(N):\n    R(value)
try:\n  R(N)\nfinally:\n  R(N)
def f(tf):\n  return tf\nR(f(2))
def f(x: 'N', *, y: N = N) -> N: R(y)\nf(1)
straße = N; R(straße)
@R\n@(lambda f: N and f.__name__)\ndef f(): pass
'ä'; R(N)  # ä
tfl = 1; R(tfl)
def f():\n  def g():\n    return N\n  return g\nR(f()())
x = {\n  1: N,\n  # N\n  2: N\n}; R(x[1]); R(x[2])
R(getattr(OWNER, 'LAST'))
R(hasattr(OWNER, 'LAST'))
of_LAST = OWNER\nR(of_LAST.LAST)
R(tf.placeholder)
R(OWNER \\n    . LAST)
R((OWNER\n  # In.\n  .LAST))
[R(N) for R in [R]]
import importlib; R(importlib.import_module('FULL').LAST)
if 1:\n\tR(N)\n\tif 2:\n\t\tR(N) # Tabs.
""")


def draw_uses(rng):
  """Returns lines that import TensorFlow and use a name."""
  owner, last, full, uses = "train", "Saver", "", _USES
  if rng.random() < 0.5:
    statement, name = rng.choice(_IMPORTS)
    statement = re.sub(r"\bE\b", "tensorflow.train.experimental", statement)
    uses = [[x] for (x,) in _USES if "OWNER" not in x and "FULL" not in x]
  else:
    statement, bound, *module = rng.choice(_MODULES)
    below = f"{module[0]}." if module else ""
    known = [n.removeprefix(below) for n in _NAMES if n.startswith(below)]
    name = f"{bound}.{rng.choice(known)}"
    owner, _, last = name.rpartition(".")
    full = f"tensorflow.{below}{owner.partition('.')[2]}".rstrip(".")
  lines = statement.split("\n")
  for (use,) in rng.choices(uses, k=rng.randrange(4)):
    for word, value in (("OWNER", owner), ("LAST", last), ("FULL", full)):
      use = use.replace(word, value)
    use = re.sub(r"\bN\b", name, use)
    gap = rng.choice(["", "", "\n", "\f", "\f\n", "  \n", "# N\n"])
    lines += (gap + use).split("\n")
  if rng.randrange(4):
    return lines
  where, end = rng.choice(
    [
      ("def run():", ["run()"]),
      ("if True:", []),
      ("class A:", []),
      ("try:", ["finally:", "  pass"]),
    ]
  )
  return [where, *(f"  {line}" for line in lines), *end]


def draw_source(rng):
  """Returns the bytes of a source."""
  lines = [rng.choice(["", "\f", "#!/usr/bin/python", "# ä"])]
  lines += rng.choice([[], ["'The docstring.'"], ['"""Two\nlines."""']])
  lines += rng.choice([[], ["from __future__ import division  # Old."]])
  for _ in range(rng.randint(1, 3)):
    lines += draw_uses(rng)
  text = "\n".join(lines) + rng.choice(["\n", "\n", "", "  # End", "\n\n"])
  ends = rng.choice([["\n"], ["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\r"]])
  text = re.sub("\n", lambda _: rng.choice(ends), text)
  if not rng.randrange(5):
    text = text.replace("  ", "\t")
  if not rng.randrange(5):
    return f"# coding: latin-1\n{text}".encode("latin-1")
  return (b"" if rng.randrange(5) else codecs.BOM_UTF8) + text.encode("utf-8")


def run(source, is_old):
  """Runs a source; returns what it gives to `R`.

  Args:
    source: The bytes of the source.
    is_old: Whether TensorFlow has its old names, as under `tfl.install()`.
  """
  seen = []
  scope = {"R": lambda value: seen.append(value) or value}
  if is_old:
    tfl.install()
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # The source's own.
      code = compile(source, "source", "exec", dont_inherit=True)
      exec(code, {**scope, "__name__": "__main__"})
  finally:
    tfl.uninstall()
  return seen


def name_of(value):
  """Returns the last part of the name of a value, or the value."""
  return str(getattr(value, "__name__", value)).rpartition(".")[2]


def migrate(path):
  """Writes the edits of a file; returns the report, and findings left."""
  report = scanner.scan([str(path)], _OPTIONS)
  left = []
  for change in report.changes:
    whole_files.replace_file(change.path, change.after)
    left += change.left
  return report, left


def migrate_random_sources():
  """Runs and migrates sources, which may change this process's TensorFlow."""
  tfl.use_keras_2 = lambda: None  # TensorFlow is imported already.
  path = pathlib.Path(os.environ["FOLDER"], "source.py")
  rng = random.Random(1)
  tried = edited = 0
  while tried < _EXAMPLES:
    source = draw_source(rng)
    try:
      old = run(source, is_old=True)
    except (SyntaxError, ImportError, NameError, AttributeError, TypeError):
      continue  # Not every mixture is a program.
    tried += 1
    path.write_bytes(source)
    try:
      edited += check_migration(path, source, old)
    except Exception as error:
      raise AssertionError(source.decode("latin-1")) from error
  assert edited > _EXAMPLES / 4


@pytest.mark.thorough
def test_random_sources(tmp_path):
  folder = str(tmp_path)
  processes.run_alone(migrate_random_sources, timeout=600, FOLDER=folder)


def check_migration(path, source, old):
  """Checks what `migrate` makes of a source; returns whether all names moved.

  Args:
    path: The file that has the source.
    source: The bytes of the source.
    old: What the source gives to `R`.
  """
  report, left = migrate(path)
  after = path.read_bytes()
  # What is gone, and what is reported, is all that there was.
  again, left_again = migrate(path)
  assert path.read_bytes() == after
  assert {f.state for f in again.findings} <= {findings.BY_HAND} or left
  assert [f.name for f in left_again] == [f.name for f in left]
  check_layout(source, after, report.findings)
  if not report.uses_loss_scaling:
    modules = [getattr(value, "__module__", "") for value in old]
    assert not [x for x in modules if x.startswith(tfl.__name__)]
  elif not left and findings.BY_HAND not in {f.state for f in report.findings}:
    new = run(after, is_old=False)
    assert list(map(name_of, new)) == list(map(name_of, old))
    return True
  return False


def check_layout(before, after, found):
  """Checks that comments, and lines outside findings, are still there."""
  old = trees.read("x.py", before).text
  new = trees.read("x.py", after).text
  assert is_in_order(list_comments(old), list_comments(new))
  changed = set()  # The numbers of the lines of statements with findings.
  for finding in found:
    changed.update(range(finding.line, finding.end_line + 1))
  for node in ast.walk(ast.parse(old)):
    if isinstance(node, (ast.Import, ast.ImportFrom)):
      changed.update(range(node.lineno, node.end_lineno + 1))
  lines = split_lines(old)
  stay = [line for i, line in enumerate(lines, 1) if i not in changed]
  if stay and len(lines) not in changed:
    stay[-1] = stay[-1].rstrip("\r\n")  # New lines can follow the last.
  assert is_in_order(stay, [*split_lines(new), stay[-1] if stay else ""])


def split_lines(text):
  """Returns the lines of a text with their ends."""
  return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def is_in_order(some, others):
  """Returns whether a list has all of another list, in order."""
  rest = iter(others)
  return all(each in rest for each in some)


def list_comments(text):
  """Returns the comments in a text."""
  lines = io.StringIO(text, newline=None)
  return [
    token.string
    for token in tokenize.generate_tokens(lines.readline)
    if token.type == tokenize.COMMENT
  ]
