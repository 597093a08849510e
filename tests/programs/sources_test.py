# SPDX-License-Identifier: Apache-2.0
"""Tests which names of modules are found in sources, under any alias."""

import ast

import pytest

from tf_compat_lossscale.programs import sources

pytestmark = pytest.mark.any_release

_TF = "import tensorflow as tf\n"


def uses(text):
  """Returns (line, name as written, full name, form) of TensorFlow's names."""
  return [
    (use.line, use.written, use.name.replace("tensorflow", "TF", 1), use.form)
    for use in sources.read_text("program.py", text).uses
    if use.name.startswith("tensorflow")
  ]


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    (f"{_TF}tf.train.Saver", [(2, "tf.train.Saver", "TF.train.Saver")]),
    (
      "import tensorflow\ntensorflow.compat.v1.Session().run",
      [(2, "tensorflow.compat.v1.Session", "TF.compat.v1.Session")],
    ),
    (f"{_TF}mp = tf.keras\nmp.Model", [(3, "mp.Model", "TF.keras.Model")]),
    (
      f"{_TF}tf1 = tf.compat.v1\ne = tf1.train\ndef f():\n  return e.Saver(1)",
      [(5, "e.Saver", "TF.compat.v1.train.Saver")],
    ),
    (
      "try:\n  import tensorflow.compat.v1 as tf\nexcept ImportError:\n"
      "  import tensorflow as tf\ntf.Session",
      [(5, "tf.Session", "TF.compat.v1.Session")],
    ),
    (
      "def f():\n  import tensorflow as tf\n  class C(tf.Module):\n    pass",
      [(3, "tf.Module", "TF.Module")],
    ),
    (  # What a module binds below a function.
      f"def f(): return late.foo\n{_TF}late = tf.compat.v1",
      [(1, "late.foo", "TF.compat.v1.foo")],
    ),
    (
      "import importlib\nt = importlib.import_module('tensorflow')\nt.app",
      [(3, "t.app", "TF.app")],
    ),
    (f"{_TF}x = f'ü{{tf.log}}'", [(2, "tf.log", "TF.log")]),
    (f"{_TF}[tf.z for i in tf.w]", [(2, "tf.w", "TF.w"), (2, "tf.z", "TF.z")]),
    (
      f"{_TF}@tf.function\ndef f(tf=tf.a) -> tf.b: return tf.c",
      [
        (2, "tf.function", "TF.function"),
        (3, "tf.a", "TF.a"),
        (3, "tf.b", "TF.b"),
      ],
    ),
  ],
)
def test_expressions(text, expected):
  found = [use[:3] for use in uses(text) if use[3] == "expression"]
  assert set(expected) <= set(found)


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("import tensorflow.train", ("tensorflow.train", "TF.train", "import")),
    ("from tensorflow import train as t", ("train", "TF.train", "from")),
    (
      "from tensorflow.contrib import *",
      ("from tensorflow.contrib import *", "TF.contrib", "star"),
    ),
    (f"{_TF}getattr(tf, 'log')", ("getattr(tf, 'log')", "TF.log", "getattr")),
    (f"{_TF}hasattr(tf, 'log')", ("hasattr(tf, 'log')", "TF.log", "hasattr")),
    (f"{_TF}tf.Session = 1", ("tf.Session", "TF.Session", "store")),
    (
      "x = 'tensorflow.contrib'",
      ("'tensorflow.contrib'", "TF.contrib", "text"),
    ),
  ],
)
def test_forms(text, expected):
  assert expected in [use[1:] for use in uses(text)]


@pytest.mark.parametrize(
  "text",
  [
    "import mytf as tf\ntf.Session",
    f"{_TF}def f(tf):\n  return tf.Session",
    f"{_TF}[tf.Session for tf in y]",
    f"{_TF}lambda tf: tf.Session",
    "class C:\n  import tensorflow as tf\n  def f(s):\n    return tf.Session",
    "tf = tf\ntf.Session",
    "a = b\nb = a\na.Session",
    "from .tensorflow import train\ntrain.Session",
    "'tf.Session'  # tf.Session",
  ],
)
def test_leaves_alone(text):
  assert not [use for use in uses(text) if "Session" in use[1]]


def test_what_else_is_read():
  text = "from . import a\nfrom .b import c\nimport os.path\nself.x.y(os.sep)\n"
  source = sources.read_text("x.py", text)
  assert source.modules == [".", ".a", ".b", ".b.c", "os.path"]
  assert [ast.unparse(node) for node in source.unknown] == ["self.x.y"]
  (call,) = source.list_nodes(ast.Call)
  assert source.resolve(call.args[0]) == "os.sep"
  assert source.resolve(call.args[0].value) == "os"
  assert source.resolve(call.func) is None


def test_what_cannot_be_read(tmp_path):
  texts = (b"print 'x'\n", b"x = '\xff'\n", b"x = 1\0\n")
  for text in (*texts, b"# coding: no-such\n", b"# coding: rot13\n"):
    path = tmp_path / "program.py"
    path.write_bytes(text)
    what = "program.py:1: cannot be parsed"
    with pytest.raises(sources.SourceError, match=what) as error:
      sources.read(str(path))
    assert "\n" not in str(error.value)
  with pytest.raises(sources.SourceError, match="No such file"):
    sources.read(str(tmp_path / "missing.py"))
