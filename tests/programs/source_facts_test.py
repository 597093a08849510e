# SPDX-License-Identifier: Apache-2.0
"""Tests which uses of legacy names are found in sources, under any alias."""

import textwrap

import helpers
import pytest

from tf_compat_lossscale.programs import source_facts

pytestmark = pytest.mark.any_release


def read(tmp_path, text):
  path = tmp_path / "program.py"
  path.write_text(textwrap.dedent(text), "utf-8")
  return source_facts.read_source(str(path))


def uses(tmp_path, text):
  """Returns (line, name as written, name today, form) of each use."""
  prefix = "tf_compat_lossscale"
  return [
    (u.line, u.written, u.now.replace(prefix, "tfl", 1), u.form)
    for u in read(tmp_path, text).uses
  ]


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    (
      "import tensorflow as tf\ntf.train.experimental.LossScale",
      [(2, "tf.train.experimental.LossScale", "tfl.LossScale", "expression")],
    ),
    (
      "import tensorflow\ntensorflow.compat.v1.mixed_precision.LossScale()",
      [
        (
          2,
          "tensorflow.compat.v1.mixed_precision.LossScale",
          "tfl.LossScale",
          "expression",
        )
      ],
    ),
    (
      "import tensorflow.compat.v1 as tf\n"
      "tf.train.experimental.enable_mixed_precision_graph_rewrite(1).minimize",
      [
        (
          2,
          "tf.train.experimental.enable_mixed_precision_graph_rewrite",
          "tfl.enable_mixed_precision_graph_rewrite",
          "expression",
        )
      ],
    ),
    (
      "from tensorflow.keras.mixed_precision import experimental\n"
      "experimental.set_policy(experimental.Policy('float32'))",
      [
        (1, "experimental", "tfl.keras", "from"),
        (2, "experimental.set_policy", "tfl.keras.set_policy", "follows"),
        (2, "experimental.Policy", "tfl.keras.Policy", "follows"),
      ],
    ),
    (
      "import tensorflow as tf\nmp = tf.keras.mixed_precision.experimental\n"
      "mp.Policy('mixed_float16')",
      [
        (2, "tf.keras.mixed_precision.experimental", "tfl.keras", "expression"),
        (3, "mp.Policy", "tfl.keras.Policy", "follows"),
      ],
    ),
    (
      "import tensorflow as tf\ntf1 = tf.compat.v1\n"
      "e = tf1.train.experimental\n"
      "def f():\n  return e.FixedLossScale(1)",
      [(5, "e.FixedLossScale", "tfl.FixedLossScale", "expression")],
    ),
    (
      "from tensorflow.contrib.mixed_precision import *",
      [
        (
          1,
          "from tensorflow.contrib.mixed_precision import *",
          "tfl.contrib",
          "star",
        )
      ],
    ),
    (
      "from tensorflow.contrib import mixed_precision as m\n"
      "m.FixedLossScaleManager(1.)",
      [
        (1, "mixed_precision", "tfl.contrib", "from"),
        (
          2,
          "m.FixedLossScaleManager",
          "tfl.contrib.FixedLossScaleManager",
          "follows",
        ),
      ],
    ),
    (
      "import tensorflow.contrib.mixed_precision.python"
      ".loss_scale_manager as l",
      [
        (
          1,
          "tensorflow.contrib.mixed_precision.python.loss_scale_manager",
          "tfl.contrib",
          "import",
        )
      ],
    ),
    (
      "from tensorflow.python.keras.mixed_precision.experimental "
      "import policy\n"
      "from tensorflow.python.keras.mixed_precision.experimental.policy "
      "import Policy as P",
      [
        (1, "policy", "tfl.keras", "from"),
        (2, "Policy", "tfl.keras.Policy", "from"),
      ],
    ),
    (
      "try:\n  import tensorflow.compat.v1 as tf\nexcept ImportError:\n"
      "  import tensorflow as tf\ntf.train.experimental.LossScale",
      [(5, "tf.train.experimental.LossScale", "tfl.LossScale", "expression")],
    ),
    (
      "def f():\n  import tensorflow as tf\n"
      "  class C(tf.train.experimental.LossScale):\n    pass",
      [(3, "tf.train.experimental.LossScale", "tfl.LossScale", "expression")],
    ),
    (
      "import importlib\nimportlib.import_module('tensorflow.contrib."
      "mixed_precision')",
      [
        (
          2,
          "'tensorflow.contrib.mixed_precision'",
          "tfl.contrib",
          "text",
        )
      ],
    ),
    (
      "import tensorflow as tf\ngetattr(tf.train.experimental, 'LossScale')",
      [
        (
          2,
          "getattr(tf.train.experimental, 'LossScale')",
          "tfl.LossScale",
          "getattr",
        )
      ],
    ),
  ],
)
def test_finds(text, expected, tmp_path):
  assert uses(tmp_path, text) == expected


@pytest.mark.parametrize(
  "text",
  [
    # These names are not TensorFlow's, or not legacy names.
    "import mytf as tf\ntf.train.experimental.LossScale",
    "import tensorflow as tf\ntf.train.experimental.PythonState",
    "import tensorflow as tf\ntf.keras.mixed_precision.LossScaleOptimizer",
    "import tensorflow as tf\ntf.keras.mixed_precision.Policy('float32')",
    "import tensorflow as tf\n"
    "def f(tf):\n  return tf.train.experimental.LossScale",
    "import tensorflow as tf\n[tf.train.experimental.LossScale for tf in y]",
    "import tensorflow as tf\nlambda tf: tf.train.experimental.LossScale",
    "class C:\n  import tensorflow as tf\n  def f(s):\n"
    "    return tf.train.experimental.LossScale",
    "tf = tf\ntf.train.experimental.LossScale",
    "a = b\nb = a\na.train.experimental.LossScale",
    "from .tensorflow import train\ntrain.experimental.LossScale",
    "'tf.train.experimental.LossScale'  # tf.train.experimental.LossScale",
    "import tf_compat_lossscale as tfl\ntfl.keras.Policy",
  ],
)
def test_leaves_alone(text, tmp_path):
  assert uses(tmp_path, text) == []


def test_the_nine_uses_of_a_sample(tmp_path):
  """Checks nine uses, of which `tf_upgrade_v2` changes 3 and ignores 4."""
  found = uses(
    tmp_path,
    """\
    import tensorflow as tf
    from tensorflow.contrib.mixed_precision import FixedLossScaleManager
    from tensorflow.keras.mixed_precision import experimental as mp

    scale = tf.train.experimental.DynamicLossScale()
    fixed = tf.train.experimental.FixedLossScale(8)
    opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(opt, scale)
    manager = tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager(1, 2)
    opt = tf.contrib.mixed_precision.LossScaleOptimizer(opt, manager)
    policy = tf.keras.mixed_precision.experimental.Policy('mixed_float16')
    mp.set_policy(policy)
    """,
  )
  assert [line for line, *_ in found] == [2, 3, 5, 6, 7, 8, 9, 10, 11]


def test_uses_in_f_strings_are_found(tmp_path):
  text = "import tensorflow as tf\nx = f'ü{tf.train.experimental.LossScale}'\n"
  text += 'y = f"""\n\nü{\ntf.train.experimental.FixedLossScale}"""\n'
  assert [use[1] for use in uses(tmp_path, text)] == [
    "tf.train.experimental.LossScale",
    "tf.train.experimental.FixedLossScale",
  ]


@pytest.mark.parametrize(
  ("text", "evidence"),
  [
    ("import tensorflow as tf\ntf.Session()", "tf.Session"),
    ("import tensorflow as tf\nx = tf.placeholder(1)", "tf.placeholder"),
    ("import tensorflow as tf\ntf.app.run()", "tf.app.run"),
    ("import tensorflow as tf\ntf.contrib.x.y", "tf.contrib.x.y"),
    ("from tensorflow.contrib import slim", "slim"),
    ("import tensorflow.contrib.slim as s", "tensorflow.contrib.slim"),
    ("from tensorflow import placeholder", "placeholder"),
    (
      "import tensorflow as tf\ntf.train.AdamOptimizer",
      "tf.train.AdamOptimizer",
    ),
    ("import tensorflow as tf\ntf.compat.v1.Session()", None),
    ("import tensorflow.compat.v1 as tf\ntf.Session()", None),
    ("import tensorflow as tf\ntf.function(f)\ntf.keras.Model", None),
    ("import tensorflow as tf\ntf.logical_and\ntf.train.Checkpoint", None),
    ("import tensorflow as tf\ntf.Session = S\ntf.Session()", None),
    ("import torch as tf\ntf.Session()", None),
  ],
)
def test_tells_tensorflow_1_code(text, evidence, tmp_path):
  found = [use.written for use in read(tmp_path, text).tensorflow1]
  assert found[:1] == ([evidence] if evidence else [])


def test_what_cannot_be_read(tmp_path):
  for text, what in (
    (b"print 'x'\n", "program.py:1: cannot be parsed"),
    (b"x = '\xff'\n", "cannot be parsed"),
    (b"x = 1\0\n", "cannot be parsed"),
    (b"# coding: no-such\n", "cannot be parsed"),
  ):
    path = tmp_path / "program.py"
    path.write_bytes(text)
    with pytest.raises(source_facts.SourceError, match=what) as error:
      source_facts.read_source(str(path))
    assert "\n" not in str(error.value)
  with pytest.raises(source_facts.SourceError, match="No such file"):
    source_facts.read_source(str(tmp_path / "missing.py"))


if __name__ == "__main__":
  helpers.main()
