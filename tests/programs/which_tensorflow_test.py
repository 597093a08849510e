# SPDX-License-Identifier: Apache-2.0
"""Tests which TensorFlow a program is taken to mean."""

import textwrap

import program_choices
import pytest

from tf_compat_lossscale.programs import launch

pytestmark = pytest.mark.any_release

_TF = "import tensorflow as tf\n"
_V1 = "import tensorflow.compat.v1 as tf\n"
_EAGER = f"""{_TF}
@tf.function
def step(x):
  with tf.GradientTape() as tape:
    return tape.gradient(x, x)
"""


def choose(tmp_path, main, **others):
  """Returns the choice for a program; `others` are its modules."""
  for name, text in {"main": main, **others}.items():
    path = tmp_path / f"{name}.py"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(textwrap.dedent(text), "utf-8")
  return program_choices.choose(tmp_path / "main.py")


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("sess = tf.Session()", 1),
    ("tf.logging.info('x')", 1),
    ("tf.lbeta(x)", 1),  # Only TensorFlow's own list has this name.
    ("tf.metrics.mean(x)", 1),
    ("tf.keras.backend.get_session()", 1),
    ("x.repeat().make_one_shot_iterator()", 1),
    ("def f(x=tf.Session()): pass", 1),
    ("class C(Base):\n  def call(self): tf.log(1)", 1),
    ("getattr(tf, 'Session')()", 1),
    ("tf.losses.mean_squared_error(x, y)", 2),
    ("print('日本語日本語', tf.Session() if hasattr(tf, 'Session') else 0)", 2),
    ("tf.summary.scalar('x', 1)", 2),
    ("tf.ones([])", 2),
    ("tf.Session = mine\ntf.Session()", 2),
    ("def f(tf): tf.Session()", 2),
    # Questions.
    ("if hasattr(tf, 'Session'): tf.Session()", 2),
    ("x = tf.log(1) if hasattr(tf, 'log') else tf.math.log(1)", 2),
    ("hasattr(tf, 'log') and tf.log(1)", 2),
    ("if tf.__version__ < '2': tf.Session()\nelse: tf.function(f)", 2),
    ("if tf.VERSION[0] == '1': tf.Session()", 2),
    ("if IS_TF2: pass\nelse: tf.Session()", 2),
    ("try:\n  tf.log(1)\nexcept AttributeError:\n  tf.math.log(1)", 2),
    ("try:\n  import tensorflow.contrib\nexcept ImportError:\n  pass", 2),
    ("try:\n  for x in y: tf.Session()\nexcept ValueError: pass", 1),
    ("if FLAGS.fast: tf.Session()", 1),
    ("if tf1.flag or 0: tf.Session()", 1),  # An alias of TensorFlow.
    # Questions about other objects.
    ("if hasattr(FLAGS, 'fast'): tf.Session()", 1),
    ("if numpy.__version__ > '1': tf.Session()", 1),
    (
      "try:\n  import horovod as h\n  tf.Session()\nexcept ImportError: 1",
      1,
    ),
    ("try:\n  with tf.Session(): f.x\nexcept AttributeError: pass", 1),
    ("try:\n  from tensorflow import log\nexcept ImportError: tf.Session()", 2),
    ("if getattr(FLAGS, 'tf2') or 0: tf.Session()", 1),
    ("if FLAGS.tf2: tf.function(f)\nelse: tf.Session()", 2),
    # Both: what a graph cannot do without weighs most. A tie is TensorFlow 2.
    (f"{_EAGER}\ntf.log(1.)", 2),
    (f"{_EAGER}\ntf.Session().run(tf.placeholder(1))", 1),
    ("tf.log(1)\ntf.function(f)", 2),
  ],
)
def test_weighs_names(text, expected, tmp_path):
  assert choose(tmp_path, _TF + text).tensorflow == expected


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    (f"{_V1}tf.placeholder(1)", 1),
    ("from tensorflow.compat import v1 as tf\ntf.Session()", 1),
    ("from tensorflow.compat.v1 import placeholder as p, Session", 1),
    ("import tensorflow as t\ntf = t.compat.v1\ntf.get_variable('x')", 2),
    (f"{_V1}tf.ones([])", 2),
    (f"{_V1}tf.disable_v2_behavior()\ntf.placeholder(1)", 1),
    (f"{_TF}tf.compat.v1.disable_v2_behavior()\ntf.keras.Model()", 2),
    (f"{_V1}if 1: tf.disable_eager_execution()\ntf.Session()", 2),
    (f"{_V1}if not tf.executing_eagerly():\n  tf.placeholder(1)", 2),
    (f"{_V1}import tensorflow as t\nt.function(f)\ntf.Session()", 2),
    (f"{_TF}with tf.compat.v1.Session() as s: pass", 2),
    (f"{_TF}s = tf.compat.v1.Session()\ns.run(tf.compat.v1.placeholder(1))", 1),
    (
      f"try:\n  {_V1}  tf.disable_v2_behavior()\nexcept ImportError:\n"
      "  import tensorflow as tf\ntf.Session()",
      1,
    ),
    ("from tensorflow.contrib import slim", 1),
    ("from tensorflow import placeholder", 1),
    ("import tensorflow\ntensorflow.train.AdamOptimizer()", 1),
  ],
)
def test_imports(text, expected, tmp_path):
  assert choose(tmp_path, text).tensorflow == expected


def test_modules_decide_if_the_program_has_no_name(tmp_path, monkeypatch):
  old = f"{_TF}tf.Session()"
  others = {
    "old": old,
    "new": _EAGER,
    "between": "from package import deep",
    "package/__init__": "",
    "package/deep": "from . import sub",
    "package/sub": old,
    "far": "import between",
  }
  for main, expected in (
    ("import old", 1),
    ("from old import *", 1),
    ("import package.sub", 1),
    ("import between", 1),  # At the third level.
    ("import far", 2),  # That is the fourth.
    (f"import old\n{_EAGER}", 2),  # The program's own names come first.
    ("import new, between", 2),  # The nearer level does.
    ("import old, new", 1),
    ("import numpy", 2),
  ):
    assert choose(tmp_path, main, **others).tensorflow == expected, main
  # In the working folder, and in PYTHONPATH.
  (tmp_path / "elsewhere").mkdir()
  elsewhere = tmp_path / "elsewhere" / "start.py"
  elsewhere.write_text("import old")
  assert program_choices.choose(elsewhere).tensorflow == 2
  monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/none:{tmp_path}")
  assert program_choices.choose(elsewhere).tensorflow == 1
  monkeypatch.delenv("PYTHONPATH")
  monkeypatch.chdir(tmp_path)
  assert program_choices.choose(elsewhere).tensorflow == 1


@pytest.mark.parametrize(
  "start",
  ["from env import tf", "from env import tf as t", "from env import *"],
)
def test_a_module_of_the_program_gives_tensorflow(start, tmp_path):
  root = start.rpartition(" ")[2].replace("*", "tf")
  found = choose(tmp_path, f"{start}\n{root}.get_variable('w', [])", env=_TF)
  assert found.tensorflow == 1
  found = choose(tmp_path, f"{start}\n{root}.summary.flush()", env=_TF)
  assert found.decision.signs[0].tensorflow == 2


def test_an_installed_library_is_not_the_program(tmp_path, monkeypatch):
  library = tmp_path / "site-packages"
  library.mkdir()
  (library / "helper.py").write_text(f"{_TF}tf.Session()")
  monkeypatch.setenv("PYTHONPATH", str(library))
  assert choose(tmp_path, "import helper").tensorflow == 2


@pytest.mark.parametrize(
  ("text", "options", "expected"),
  [
    ("print('nothing')", {}, (2, None, None)),
    (f"{_TF}tf.placeholder(1)", {}, (1, 2, "legacy")),
    (f"{_TF}tf.placeholder(1)", {"optimizers": "new"}, (1, 2, "new")),
    (f"{_TF}tf.placeholder(1)", {"tensorflow": 2, "keras": 3}, (2, 3, None)),
    (f"{_TF}tf.function", {}, (2, None, None)),
    (f"{_TF}tf.function", {"optimizers": "legacy"}, (2, 2, "legacy")),
    (f"{_TF}tf.function", {"optimizers": "new"}, (2, None, "new")),
    *(
      (text, {}, (2, 2, "legacy"))
      for text in (
        f"{_TF}tf.train.experimental.LossScale",
        f"{_TF}tf.estimator.RunConfig()",
        f"{_TF}tf.keras.experimental.CosineDecay",
        f"{_TF}tf.keras.layers.experimental.preprocessing",
        f"{_TF}tf.keras.backend.set_learning_phase(1)",
        f"{_TF}tf.compat.v2.keras.estimator",
        f"{_TF}def f(model):\n  model.predict_classes(1)",
        "def f(optimizer, x):\n  return optimizer.get_scaled_loss(x)",
        "from tensorflow.keras.mixed_precision import experimental",
        "from tensorflow.python.keras import backend",
        "from keras.engine.topology import Layer",
        "import keras\nkeras.utils.multi_gpu_model",
        "from keras.layers.advanced_activations import LeakyReLU",
        "from keras.utils import np_utils",
      )
    ),
    *(
      (text, {}, (2, None, None))
      for text in (
        f"{_TF}tf.keras.layers.Dense(1)",
        f"{_TF}tf.keras.backend.floatx()",
        "import tf_compat_lossscale as tfl\n"
        "tfl.keras.Keras3LossScaleOptimizer(opt).get_scaled_loss(loss)",
      )
    ),
  ],
)
def test_chooses_keras_and_its_optimizers(text, options, expected, tmp_path):
  path = tmp_path / "main.py"
  path.write_text(f"{text}\n", "utf-8")
  assert program_choices.choose(path, **options)[:3] == expected


def test_keras_3_has_no_legacy_optimizers():
  with pytest.raises(launch.RunError, match="--keras2 instead"):
    program_choices.choose("none.py", keras=3, optimizers="legacy")


def test_says_which_name_decided(tmp_path):
  choice = choose(tmp_path, f"{_TF}tf.logging.info(1)\ntf.log(1)\ntf.Session()")
  assert choice.describe() == "TensorFlow 1 code (tf.Session, main.py line 4)"
  choice = choose(tmp_path, f"{_EAGER}tf.log(1)")
  assert "(tf.function, main.py line 3)" in choice.describe()
  choice = choose(tmp_path, f"{_V1}tf.Session()")
  assert "disable_v2_behavior" in choice.describe()
  choice = choose(tmp_path, f"{_TF}tf.estimator.LinearClassifier([])\n")
  assert "--tf1 if it is older" in choice.describe()


def test_reads_deep_code(tmp_path):
  """Checks code that Python runs, and whose tree is deeper than its stack."""
  branches = "".join(f"elif x == {i}: pass\n" for i in range(500))
  text = f"{_TF}x = {' + '.join(['1'] * 1500)}\nif x: pass\n{branches}"
  assert choose(tmp_path, f"{text}tf.Session()\n").tensorflow == 1
