# SPDX-License-Identifier: Apache-2.0
"""Tests the rules of `migrate`, and the page of their codes."""

import ast
import importlib
import json
import re
import textwrap

import pytest
import rule_pages

from tf_compat_lossscale import _releases
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration import scanner

pytestmark = pytest.mark.any_release

_EDITED = scanner.ScanOptions(edited=(findings.MIGRATE,))
_RULES = rules.list_rules()
_EXAMPLES = [
  pytest.param(rule.code, example, id=f"{rule.code}-{i}")
  for rule in _RULES
  for i, example in enumerate(rule.examples)
]


def plan(data, name):
  """Returns the changes of a program."""
  return scanner.scan_text(data, name, _EDITED).changes


def edited(text, name="program.py"):
  """Migrates a text; checks that a second migration changes nothing."""
  data = text.encode("utf-8")
  changes = plan(data, name)
  if not changes:
    return text
  (change,) = changes
  assert change.before == data
  assert not change.left
  assert not plan(change.after, name)
  return change.after.decode("utf-8")


def codes_in(text, **options):
  report = scanner.scan_text(
    text.encode("utf-8"), "program.py", scanner.ScanOptions(**options)
  )
  assert not report.errors
  return [finding.code for finding in report.findings]


def test_the_page_of_codes_is_that_of_the_rules():
  text = rule_pages.PAGE.read_text("utf-8")
  assert text == rule_pages.format_page(), "run: python tools/rule_pages.py"
  titles = [f"{rule.code}: {rule.name}" for rule in _RULES]
  assert re.findall("^## (.+)$", text, re.MULTILINE) == titles
  for rule in _RULES:
    assert re.fullmatch(r"[A-Z`].{10,}\.", rule.summary), "one sentence"
    assert rule.explanation and rule.examples, rule.code


@pytest.mark.parametrize(("code", "example"), _EXAMPLES)
def test_examples(code, example, monkeypatch):
  if code == "LS303":  # Of a Python without Keras 2.
    monkeypatch.setattr(which_keras, "is_missing", lambda release: True)
  before, after = example
  if code == "LS305":
    cells = [{"cell_type": "code", "source": before}]
    data = json.dumps({"cells": cells}).encode()
    report = scanner.scan_text(data, "x.ipynb")
    assert code in {finding.code for finding in report.findings}
    return
  assert code in codes_in(before, target=_releases.NEWEST)
  assert edited(before) == after


@pytest.mark.parametrize(
  ("before", "after"),
  [
    (
      """\
      import tensorflow.compat.v1 as tf
      tf.disable_v2_behavior()
      import tf_compat_lossscale as ls
      os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
      run()
      """,
      """\
      import tensorflow.compat.v1 as tf
      tf.disable_v2_behavior()
      import tf_compat_lossscale as ls
      ls.honor_environment()
      os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"
      run()
      """,
    ),
    (
      '''\
      #!/usr/bin/env python
      # Copyright.
      """Doc."""

      from __future__ import print_function
      import tensorflow as tf; import sys

      with tf.Session() as s: x = tf.train.experimental.FixedLossScale(8)
      ''',
      '''\
      #!/usr/bin/env python
      # Copyright.
      """Doc."""

      from __future__ import print_function
      import tf_compat_lossscale as tfl
      import tensorflow.compat.v1 as tf; tf.disable_v2_behavior(); import sys

      with tf.Session() as s: x = tfl.FixedLossScale(8)
      ''',
    ),
    (
      """\
      def f(tfl):
        import tensorflow as tf
        return tf.train.experimental.LossScale, tfl
      """,
      """\
      import tf_compat_lossscale
      def f(tfl):
        import tensorflow as tf
        return tf_compat_lossscale.LossScale, tfl
      """,
    ),
    (
      """\
      import tensorflow as tf
      import tf_compat_lossscale as ls
      a = ls.get(1), (tf.train
                      .experimental.LossScale)
      """,
      """\
      import tensorflow as tf
      import tf_compat_lossscale as ls
      a = ls.get(1), (ls.LossScale)
      """,
    ),
    (
      """\
      from tensorflow.compat.v1 import mixed_precision, train
      if True: from tensorflow.train.experimental import LossScale, PythonState
      mixed_precision.FixedLossScale(1)
      """,
      """\
      from tensorflow.compat.v1 import train
      import tf_compat_lossscale as mixed_precision
      if True: from tensorflow.train.experimental import PythonState; """
      """from tf_compat_lossscale import LossScale
      mixed_precision.FixedLossScale(1)
      """,
    ),
    (
      """\
      import tensorflow.contrib.mixed_precision
      tensorflow.contrib.mixed_precision.FixedLossScaleManager(1.)
      """,
      """\
      import tf_compat_lossscale as tfl
      import tensorflow.compat.v1 as tensorflow
      tensorflow.compat.v1.disable_v2_behavior()
      tfl.contrib.FixedLossScaleManager(1.)
      """,
    ),
    (
      """\
      from tensorflow.python.training.experimental import mixed_precision as m
      m.enable_mixed_precision_graph_rewrite_v1(opt)
      m.enable_mixed_precision_graph_rewrite(opt)
      """,
      """\
      import tf_compat_lossscale as tfl
      from tf_compat_lossscale import graph_rewrite as m
      tfl.enable_mixed_precision_graph_rewrite(opt)
      m.enable_mixed_precision_graph_rewrite(opt)
      """,
    ),
    (
      "import tensorflow as tf\n\x0c\nx = tf.train.experimental.LossScale\n",
      "import tf_compat_lossscale as tfl\nimport tensorflow as tf\n\x0c\n"
      "x = tfl.LossScale\n",
    ),
    (
      "from tensorflow.train.experimental import *\nx = FixedLossScale(8)\n",
      "from tensorflow.train.experimental import *\n"
      "from tf_compat_lossscale import DynamicLossScale, FixedLossScale, "
      "LossScale, MixedPrecisionLossScaleOptimizer, "
      "disable_mixed_precision_graph_rewrite, "
      "enable_mixed_precision_graph_rewrite\nx = FixedLossScale(8)\n",
    ),
    (
      "from tensorflow.train.experimental import (  # a\n"
      "    LossScale,  # b\n    PythonState)  # c\n",
      "from tensorflow.train.experimental import (  # a\n"
      "      # b\n    PythonState)  # c\n"
      "from tf_compat_lossscale import LossScale\n",
    ),
    (
      "import tensorflow as tf\ntf.Session\n"
      "def f():\n  from tensorflow import layers; "
      "return tf.train.experimental.LossScale\n",
      "import tf_compat_lossscale as tfl\n"
      "tfl.use_keras_2()  # Before TensorFlow is imported.\n"
      "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n"
      "tf.Session\ndef f():\n  from tensorflow.compat.v1 import layers; "
      "return tfl.LossScale\n",
    ),
    (
      "import importlib\n"
      "x = importlib.import_module('tensorflow.contrib.mixed_precision')\n",
      "import importlib\n"
      "x = importlib.import_module('tf_compat_lossscale.contrib')\n",
    ),
    (
      "import tensorflow as tf\n"
      "x = getattr(tf.train, 'experimental').LossScale\n",
      "import tf_compat_lossscale as tfl\nimport tensorflow as tf\n"
      "x = tfl.LossScale\n",
    ),
    (
      "import tensorflow.compat.v1 as tf\n"
      'has = hasattr(tf.mixed_precision, "FixedLossScale")\n',
      "import tf_compat_lossscale as tfl\nimport tensorflow.compat.v1 as tf\n"
      'has = hasattr(tfl, "FixedLossScale")\n',
    ),
    2
    * (
      "import tensorflow.compat.v1 as tf\n"
      'has = hasattr(tf.mixed_precision, "experimental")\n',  # It stays.
    ),
    (
      "import tensorflow as tf\nx: 'tf.train' = "
      "(tf.train.\\\n  experimental.LossScale, tf.train.experimental)\n",
      "import tf_compat_lossscale as tfl\nimport tensorflow as tf\n"
      "x: 'tf.train' = (tfl.LossScale, tf.train.experimental)\n",
    ),
  ],
)
def test_rewrites(before, after):
  before, after = textwrap.dedent(before), textwrap.dedent(after)
  assert edited(before) == after
  ast.parse(after)


def test_offered_edits(tmp_path, capsys):
  path = tmp_path / "old.py"
  old = "def f(tf):\n  return (tf.train  # In.\n    .experimental.LossScale)\n"
  path.write_text(old)
  assert cli.main(["migrate", "--write", str(path)]) == 0
  assert path.read_text() == old
  assert cli.main(["scan", str(path)]) == 1
  assert "offered" in capsys.readouterr().out
  assert cli.main(["migrate", "--offered", "--write", str(path)]) == 0
  new = "import tf_compat_lossscale as tfl\ndef f(tf):\n"
  assert path.read_text() == f"{new}  return (tfl.LossScale  # In.\n)\n"
  assert cli.main(["scan", str(path)]) == 0


_GUARDED = [
  "try:\n  y = tf.nn.gelu(x)\nexcept AttributeError:\n  y = g(x)",
  "try:\n  try:\n    f = tf.nn.gelu\n  except AttributeError:\n    f = g\n"
  "finally: pass",
  "try:\n  from tensorflow.nn import gelu\nexcept ImportError:\n  gelu = g",
  "f = tf.nn.gelu if hasattr(tf.nn, 'gelu') else g",
  "has = hasattr(tf.nn, 'gelu')",
  "f = getattr(tf.nn, 'gelu', g)",
  "import tensorflow as t\nif t.__version__.startswith('2'): f = t.nn.gelu",
  "from tensorflow import __version__ as v, nn\n"
  "if LooseVersion(v) > LooseVersion('2.3'): f = nn.gelu",
  "if TF2: tf.random.set_seed(1)\nelse: tf.set_random_seed(1)",
]


@pytest.mark.parametrize("guarded", _GUARDED)
@pytest.mark.parametrize("session", ["tf.Session()\n", ""])
def test_the_same_branch_runs_as_before(session, guarded, tmp_path):
  scale = "x = tf.train.experimental.LossScale()\n"
  text = f"import tensorflow as tf\n{scale}{session}{guarded}\n"
  (tmp_path / "main.py").write_text(text, "utf-8")
  for i in range(2):
    path = tmp_path / f"other{i}.py"
    path.write_text(f"import tensorflow as tf\n{scale}tf.Session()\n", "utf-8")
  report = scanner.scan([str(tmp_path)], _EDITED)
  (change,) = [x for x in report.changes if x.path.endswith("main.py")]
  after = change.after.decode("utf-8")
  assert "compat.v1" not in after and "tfl.LossScale()" in after
  (found,) = [x for x in report.findings if x.name == "names of both"]
  assert found.state == findings.BY_HAND and "main.py line" in found.note
  # The user decides.
  report = scanner.scan([str(tmp_path)], _EDITED._replace(tensorflow=1))
  assert not [x for x in report.findings if x.state == findings.BY_HAND]


@pytest.mark.parametrize(
  "start",
  [
    "try:\n  import tensorflow.compat.v1 as tf\nexcept ImportError:\n"
    "  import tensorflow as tf\n",
    "try:\n  from tensorflow.compat import v1 as tf\nexcept:\n"
    "  import tensorflow as tf\n",
    "if V2:\n  import tensorflow.compat.v1 as tf\nelif V3: pass\n"
    "else:\n  import tensorflow as tf\n",
  ],
)
def test_the_import_for_an_older_tensorflow_stays(start):
  rest = "tf.disable_v2_behavior()\nx = {}.LossScale\ntf.Session()\n"
  new = f"import tf_compat_lossscale as tfl\n{start}{rest.format('tfl')}"
  assert edited(start + rest.format("tf.train.experimental")) == new


def test_what_reads_nvidias_switch_turns_nothing_on():
  name = "TF_ENABLE_AUTO_MIXED_PRECISION"
  for read in (
    f"os.environ.get('{name}', '0') == '1'",
    f"os.getenv('{name}')",
    f"'{name}' in os.environ and os.environ['{name}'] == '1'",
  ):
    text = f"import os, tensorflow as tf\nif {read}: tf.train.AdamOptimizer()\n"
    assert codes_in(text) == []
    text += (
      "opt = tf.train.experimental.enable_mixed_precision_graph_rewrite(0)"
    )
    assert "LS205" not in codes_in(text)


def test_where_nvidias_switch_is_named():
  start = "import os, tensorflow as tf\nos.environ"
  name = "TF_ENABLE_AUTO_MIXED_PRECISION"
  text = f"{start}['{name}'] = '1'\ntf.function(f)\n"
  assert codes_in(text) == codes_in(text, nvidia_switch=True) == []
  text = f"{start}.update({name}='1')\nopt = tf.train.AdamOptimizer()\n"
  assert "honor_environment()" in edited(text)
  assert codes_in(f"import os\nx = dict(os.environ, {name}='1')") == ["LS205"]


@pytest.mark.parametrize(
  ("text", "state"),
  [
    ("from mylib import tf\nx = tf.train.experimental.LossScale", "offered"),
    (
      "from lib.env import tf\n"
      "opt = tf.mixed_precision.enable_mixed_precision_graph_rewrite(opt)",
      "offered",
    ),
    (
      "from lib import tf\ntf.keras.mixed_precision.LossScaleOptimizer(1)",
      None,
    ),
    ("from mylib import train\nx = train.experimental.LossScale()", "offered"),
    ("import m\nm.tf.mixed_precision.experimental.FixedLossScale", "offered"),
    ("from mylib import *\nx = tf.train.experimental.LossScale", "offered"),
    ("from tensorflow import *\nx = train.experimental.LossScale", "offered"),
    ("from tensorflow.train import *\nexperimental.LossScale()", "offered"),
    ("import tensorflow as tf\nf(tf.train.experimental)", "by hand"),
    ("import tensorflow as tf\nx = {1: tf.train.experimental}", "by hand"),
    (
      "import tensorflow as tf\nf(getattr(tf.train, 'experimental'))",
      "by hand",
    ),
    ("import tensorflow as tf\neval('tf.train.experimental.get(8)')", None),
    ("eval('tf.train.experimental.LossScale(8)')", "by hand"),
    ("exec('x = 1\\nx = tf.train.experimental.LossScale(8)')", "by hand"),
    ("import tensorflow as tf\nE = tf.train.experimental\nE.PythonState", None),
    ("import tensorflow as tf\nhasattr(tf.train, 'experimental')", None),
    ("import tensorflow as tf\ntf.train.experimental.PythonState", None),
    ("import mylib\nmylib.LossScale(8)\nx.LossScale", None),
    ("mock.patch('tensorflow.train.experimental.LossScale')", "by hand"),
  ],
)
def test_what_may_be_a_legacy_name_is_left_to_the_user(text, state):
  text = f"import tf_compat_lossscale\n{text}\n"
  report = scanner.scan_text(text.encode(), "program.py", _EDITED)
  found = [f.state for f in report.findings if f.code == "LS103"]
  assert found == ([state] if state else [])
  assert not [f for f in report.changes if f.before != f.after]


def test_imports_name_what_is_there():
  rows = [
    (f"from {place.replace('tf.', 'tensorflow.', 1)} import {name}", row.home)
    for row in legacy_names.TABLE
    for place in row.places
    for name in row.names
  ]
  text = "".join(f"{line} as x{i}\n" for i, (line, _) in enumerate(rows))
  written = re.findall(r"^from (\S+) import (\w+) as x\d+", edited(text), re.M)
  for (line, home), (module, name) in zip(rows, written, strict=True):
    assert module.startswith("tf_compat_lossscale"), line
    if home != "keras":
      assert hasattr(importlib.import_module(module), name), line
