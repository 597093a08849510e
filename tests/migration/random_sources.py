# SPDX-License-Identifier: Apache-2.0
"""Sources that use legacy names in many ways, for tests of `migrate`."""

from __future__ import annotations

import codecs
import re

from hypothesis import strategies as st

# Statements, and legacy names that may follow them.
_MODULES = (
  ("import tensorflow as tf", "tf", ""),
  ("import tensorflow", "tensorflow", ""),
  ("import os, tensorflow as tf, sys  # Three.", "tf", ""),
  ("import tensorflow as tf; import os", "tf", ""),
  ("if True: import tensorflow as tf", "tf", ""),
  (
    "try:\n  import tensorflow as tf\nexcept ImportError:\n  tf = None",
    "tf",
    "",
  ),
  (
    "try:\n  import nothing as tf\n"
    "except ImportError:\n  import tensorflow as tf",
    *("tf", ""),
  ),
  ("import \\\n    tensorflow as \\\n    tf  # Split.", "tf", ""),
  ("import tensorflow.compat.v1 as tf1\ntf1.disable_v2_behavior()", "tf1", ""),
  ("import tensorflow as größe", "größe", ""),
  ("from tensorflow import train", "train", "train"),
  (
    "from tensorflow import (  # A\n  train as t,  # B\n  keras,\n)",
    "t",
    "train",
  ),
  ("from tensorflow.train import experimental as e", "e", "train.experimental"),
  ("import tensorflow.train.experimental as e", "e", "train.experimental"),
  ("import tensorflow.contrib as c", "c", "contrib"),
  (
    "from tensorflow.contrib import mixed_precision",
    "mixed_precision",
    "contrib.mixed_precision",
  ),
  (
    "import tensorflow.contrib.mixed_precision as mp",
    "mp",
    "contrib.mixed_precision",
  ),
  ("import tensorflow.contrib.mixed_precision\n", "tensorflow", ""),
  ("from tensorflow import contrib, train", "contrib", "contrib"),
  ("import tensorflow as tf\nm = tf.contrib", "m", "contrib"),
  (
    "import tensorflow as tf\nE = tf.train.experimental",
    "E",
    "train.experimental",
  ),
  (
    "from tensorflow.mixed_precision import experimental as mixed",
    *("mixed", "mixed_precision.experimental"),
  ),
  (
    "import tensorflow.python.training.experimental.loss_scale as ls",
    *("ls", "python.training.experimental.loss_scale"),
  ),
)
_NAMES = (
  *("train.experimental.LossScale", "train.experimental.DynamicLossScale"),
  *("train.experimental.MixedPrecisionLossScaleOptimizer",),
  *("train.experimental.enable_mixed_precision_graph_rewrite",),
  *("mixed_precision.experimental.FixedLossScale",),
  *("python.training.experimental.loss_scale.DynamicLossScale",),
  *("contrib.mixed_precision.FixedLossScaleManager",),
  *("contrib.mixed_precision.LossScaleOptimizer",),
  *("train.experimental.PythonState", "train.Saver", "train"),  # Stay.
)
# Statements that import names, and the names.
_IMPORTS = (
  ("from tensorflow.train.experimental import LossScale", "LossScale"),
  (
    "from tensorflow.train.experimental import LossScale as L, PythonState",
    "L",
  ),
  (
    "from tensorflow.train.experimental import PythonState, LossScale  # Two.",
    "LossScale",
  ),
  (
    "from tensorflow.train.experimental import (  # A\n    LossScale,  # B\n"
    "    # C\n    PythonState as P,\n    FixedLossScale as F  # D\n)  # E",
    "F",
  ),
  (
    "from tensorflow.train.experimental \\\n    import DynamicLossScale, \\\n"
    "    FixedLossScale as F",
    "F",
  ),
  ("from tensorflow.train.experimental import *", "LossScale"),
  ("from tensorflow.contrib.mixed_precision import *", "LossScaleOptimizer"),
  (
    "from tensorflow.contrib.mixed_precision import (LossScaleOptimizer)",
    "LossScaleOptimizer",
  ),
  (
    "from tensorflow.python.training.experimental.loss_scale import get as g, "
    "FixedLossScale",
    "g",
  ),
  (
    "from tensorflow.train.experimental import "
    "enable_mixed_precision_graph_rewrite as rewrite",
    "rewrite",
  ),
  (
    "try:\n  from tensorflow.train.experimental import LossScale as L\n"
    "except ImportError:\n  L = None",
    "L",
  ),
  ("from tensorflow . train . experimental import LossScale as L", "L"),
  (
    "def load():\n  global L\n"
    "  from tensorflow.train.experimental import LossScale as L\nload()",
    "L",
  ),
)
# Statements with a name N, as `R(N)` or otherwise.
_USES = (
  *("R(N)", "R( N )  # N, as it was.", "R(N); R(1)", "x = N; R(x)  # type: N"),
  *("R(\n    N,  # The name.\n)", "R(1) ; \\\n  R(N)", "R(x := N)"),
  *("R((lambda x=N: x)())", "R([N for _ in range(2)][0])", "R('N'); R(N)"),
  *("R({'a': N}['a'])", "R(f'{R(N) and 1}')", "R(f'{{N}}{1:{2}}')", "R(*[N])"),
  *("'''\n  N\n'''\nR(N)", "def f(a=N):\n  'N'\n  return a\nR(f())"),
  *("if R(N):\n  pass\nelse: R(N)", "R(N if N else None)", "R(N\n.real)"),
  *("class C(object):\n  n = N  # In.\n\n  def f(self): return N\nR(C().f())",),
  *("match N:\n  case value if R(N):\n    R(value)", "for x in [N]: R(x)"),
  *("try:\n  R(N)\nfinally:\n  R(N)", "while R(N): break", "assert R(N), N"),
  *(
    "def f(tf):\n  return tf\nR(f(2))",
    "def f(x: 'N', *, y: N = N) -> N: R(y)\nf(1)",
  ),
  *("async def f():\n  return N", "R(not N or N)", "straße = N; R(straße)"),
  *("@R\n@(lambda f: N and f.__name__)\ndef f(): pass", "'ä'; R(N)  # ä"),
  *("import io\nwith io.StringIO() as f, f: R(N)",),
  *(
    "tfl = 1; R(tfl)",
    "def f():\n  def g():\n    return N\n  return g\nR(f()())",
  ),
  *(
    "R(N) if True else 0",
    "x = {\n  1: N,\n  # N\n  2: N\n}; R(x[1]); R(x[2])",
  ),
  *(
    "# N\n\n\n",
    "\f",
    "R(getattr(OWNER, 'LAST'))",
    "R(getattr(OWNER, 'LAST', 1))",
  ),
  *(
    "of_LAST = OWNER\nR(of_LAST.LAST)",
    "R(tf.placeholder)",
    "R(OWNER \\\n    . LAST)",
  ),
  *(
    "R((OWNER).LAST)",
    "R(hasattr(OWNER, 'LAST'))",
    "R((OWNER\n  # In.\n  .LAST))",
    "[R(N) for R in [R]]",
  ),
  *("import importlib; R(importlib.import_module('FULL').LAST)",),
  *("if 1:\n\tR(N)\n\tif 2:\n\t\tR(N) # Tabs.", "R(N)  # A comment."),
)


@st.composite
def sources(draw):
  """Draws the bytes of a source."""
  parts = []
  if draw(st.booleans()):
    parts.append(draw(st.sampled_from(["#!/usr/bin/python", "# ä", "", "\f"])))
  if draw(st.booleans()):
    parts.append(
      draw(st.sampled_from(["'The docstring.'", '"""Two\nlines."""']))
    )
  if draw(st.booleans()):
    parts.append("from __future__ import division  # Old.")
  for _ in range(draw(st.integers(1, 3))):
    parts += draw(uses())
  text = "\n".join(parts) + draw(
    st.sampled_from(["\n", "\n", "", "  # End", "\n\n"])
  )
  ends = draw(st.sampled_from(["\n", "\n", "\r\n", "\r", "mixed"]))
  if ends == "mixed":
    first, *lines = text.split("\n")
    text = first + "".join(
      draw(st.sampled_from(["\n", "\r\n", "\r"])) + line for line in lines
    )
  else:
    text = text.replace("\n", ends)
  if draw(st.integers(0, 4)) == 0:
    text = text.replace("  ", "\t")
  if draw(st.integers(0, 4)) == 0:
    return f"# coding: latin-1\n{text}".encode("latin-1")
  mark = codecs.BOM_UTF8 if draw(st.integers(0, 4)) == 0 else b""
  return mark + text.encode("utf-8")


@st.composite
def uses(draw):
  """Draws statements that import TensorFlow and use a name."""
  if draw(st.booleans()):
    statement, name = draw(st.sampled_from(_IMPORTS))
    owner, last, full = "train", "Saver", ""
    templates = [
      use for use in _USES if "OWNER" not in use and "FULL" not in use
    ]
  else:
    statement, bound, module = draw(st.sampled_from(_MODULES))
    below = f"{module}." if module else ""
    known = [n.removeprefix(below) for n in _NAMES if n.startswith(below)]
    name = f"{bound}.{draw(st.sampled_from(known))}"
    owner, _, last = name.rpartition(".")
    full = "tensorflow." + below + owner.partition(".")[2]
    templates = _USES
  parts = [statement]
  for template in draw(st.lists(st.sampled_from(templates), max_size=4)):
    for key, value in (
      *(("OWNER", owner), ("LAST", last), ("FULL", full.rstrip("."))),
    ):
      template = template.replace(key, value)
    template = re.sub(r"\bN\b", name, template)
    gap = draw(st.sampled_from(["", "", "\n", "\f", "\f\n", "  \n", "# N\n"]))
    parts.append(gap + template)
  if draw(st.integers(0, 3)) == 0:
    lines = "\n".join(parts).split("\n")
    where = draw(
      st.sampled_from(["def run():", "if True:", "class A:", "try:"])
    )
    body = [where, *(f"  {line}" for line in lines)]
    end = {"def run():": ["run()"], "try:": ["finally:", "  pass"]}.get(
      where, []
    )
    return [*body, *end]
  return parts
