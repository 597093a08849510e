# SPDX-License-Identifier: Apache-2.0
"""Tests which TensorFlow a program is taken to mean."""

import textwrap

import helpers
import program_choices
import pytest

from tf_compat_lossscale.migration import scanner
from tf_compat_lossscale.programs import tensorflow_names

pytestmark = pytest.mark.any_release


def choose(tmp_path, main, **others):
  """Returns 1 or 2 for a program; `others` are its modules."""
  for name, text in {"main": main, **others}.items():
    path = tmp_path / f"{name}.py"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(textwrap.dedent(text), "utf-8")
  path = str(tmp_path / "main.py")
  return program_choices.choose(path, [str(tmp_path)]).tensorflow


_TF = "import tensorflow as tf\n"
_EAGER = f"""{_TF}
@tf.function
def step(x):
  with tf.GradientTape() as tape:
    return tape.gradient(x, x)
step(tf.ones([]))
"""


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("sess = tf.Session()", 1),
    ("tf.logging.info('x')", 1),
    ("tf.lbeta(x)", 1),  # Only TensorFlow's own list has this name.
    ("tf.metrics.mean(x)", 1),
    ("tf.keras.backend.get_session()", 1),
    ("tf.losses.mean_squared_error(x, y)", 2),
    ("tf.summary.scalar('x', 1)", 2),
    # Questions.
    ("if hasattr(tf, 'Session'): tf.Session()", 2),
    ("x = tf.log(1) if hasattr(tf, 'log') else tf.math.log(1)", 2),
    ("hasattr(tf, 'log') and tf.log(1)", 2),
    ("if tf.__version__ < '2': tf.Session()\nelse: tf.function(f)", 2),
    ("if tf.VERSION[0] == '1': tf.Session()", 2),
    ("V = LooseVersion(tf.__version__)\nif V < '2': tf.Session()", 2),
    ("IS_TF2 = 1\ndef f():\n  if IS_TF2: return\n  tf.Session()\nf()", 2),
    (
      "def f():\n  if tf.executing_eagerly():\n    return 1\n  tf.log(1)\nf()",
      2,
    ),
    ("try:\n  tf.log(1)\nexcept AttributeError:\n  tf.math.log(1)", 2),
    ("try:\n  import tensorflow.contrib\nexcept ImportError:\n  pass", 2),
    ("try:\n  tf.enable_eager_execution()\nexcept Exception: pass", 2),
    ("try:\n  for x in y: tf.Session()\nexcept Exception: pass", 1),
    ("if version.parse(tf.__version__): tf = tf.compat.v1\ntf.Session", 1),
    ("if FLAGS.fast: tf.Session()", 1),
    # Code that nothing reaches.
    ("def f(): tf.Session()\ntf.ones([])", 2),
    ("def f(): tf.Session()\nf()", 1),
    ("def f(): tf.Session()\ndef main(): f()\ntf.app.run()", 1),
    ("class C:\n  def f(self): tf.Session()\nC()\ntf.ones([])", 2),
    ("class C:\n  def f(self): tf.Session()\nC().f()", 1),
    ("class C(Base):\n  def call(self): tf.log(1)\nC()", 1),
    ("class C:\n  def __call__(self): tf.log(1)\nC()", 1),
    ("class D:\n  def f(self): tf.log(1)\nclass C(D): pass\nC().f()", 1),
    ("def f(x=tf.Session()): pass\ntf.ones([])", 1),
    ("class C(tf.train.SessionRunHook): pass\ntf.ones([])", 1),
    ("@registry.register('x')\ndef f(): tf.Session()\ntf.ones([])", 1),
    ("def f(): tf.Session()\nglobals()[x]()\ntf.ones([])", 1),
    ("if 0: tf.Session()\ntf.ones([])", 2),
    ("if __name__ == '__main__': tf.Session()", 1),
    # Without any other use of TensorFlow, code that nothing reaches counts.
    ("def f(): tf.Session()", 1),
    ("from tensorflow.core.protobuf import x_pb2\ndef f(): tf.Session()", 1),
    ("from tensorflow import keras\nclass C:\n  def f(self): tf.Session()", 1),
    ("from tensorflow import keras\ndef f(): tf.log(1)\nkeras.Input()", 2),
    # Both.
    (f"{_EAGER}\ntf.log(1.)", 2),
    (f"{_EAGER}\ntf.Session().run(tf.placeholder(1))", 1),
  ],
)
def test_weighs_names(text, expected, tmp_path):
  assert choose(tmp_path, _TF + text) == expected


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("import tensorflow.compat.v1 as tf\ntf.placeholder(1)", 1),
    ("from tensorflow.compat import v1 as tf\ntf.Session()", 1),
    ("from tensorflow.compat.v1 import placeholder as p, Session", 1),
    ("import tensorflow as t\ntf = t.compat.v1\ntf.get_variable('x')", 2),
    ("import tensorflow.compat.v1 as tf\ntf.ones([])", 2),
    (
      "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n"
      "tf.placeholder(1)",
      2,
    ),
    (
      "import tensorflow.compat.v1 as tf\nif 1: tf.disable_eager_execution()\n"
      "tf.Session()",
      2,
    ),
    (
      "import tensorflow.compat.v1 as tf\nwith tf.Graph().as_default():\n"
      "  tf.Session().run(tf.placeholder(1))",
      2,
    ),
    (
      "import tensorflow.compat.v1 as tf\nif not tf.executing_eagerly():\n"
      "  tf.placeholder(1)",
      2,
    ),
    (f"{_TF}with tf.compat.v1.Session() as s: pass", 2),
    (f"{_TF}s = tf.compat.v1.Session()\ns.run(tf.compat.v1.placeholder(1))", 1),
    (
      "try:\n  import tensorflow.compat.v1 as tf\n  tf.disable_v2_behavior()\n"
      "except ImportError:\n  import tensorflow as tf\ntf.Session()",
      2,
    ),
    ("from tensorflow.contrib import slim", 1),
    ("from tensorflow import placeholder", 1),
    ("import tensorflow\ntensorflow.train.AdamOptimizer()", 1),
  ],
)
def test_imports(text, expected, tmp_path):
  assert choose(tmp_path, text) == expected


def test_a_dead_session_in_a_helper(tmp_path):
  helper = f"{_TF}\ndef used(): pass\ndef main(): tf.Session()\n"
  helper += "if __name__ == '__main__': main()\n"
  for main in (
    f"import helper\n{_EAGER}\ndef main(): helper.used()\nmain()",
    f"from helper import used\n{_EAGER}\ndef main(): used()\nmain()",
  ):
    assert choose(tmp_path, main, helper=helper) == 2
  for main in (
    "import helper\nhelper.main()",
    "import helper as h\ndef main(): h.main()\nmain()",
    "from helper import main\nmain()",
    "from helper import *\nmain()",
    "from package import sub\nsub.main()",
    "import package.sub\npackage.sub.main()",
    "from package import main\nmain()",
    "run('helper.main')",
    "import helper\ngetattr(helper, name)()",
  ):
    others = {
      "helper": helper,
      "package/__init__": "from package.sub import main",
      "package/sub": "from helper import main",
    }
    assert choose(tmp_path, main, **others) == 1, main


def test_says_which_name_decided(tmp_path):
  text = f"{_TF}tf.logging.info(1)\ntf.log(1)\ntf.Session()"
  path = tmp_path / "main.py"
  path.write_text(text)
  reason = program_choices.choose(str(path), []).reason
  assert reason == "TensorFlow 1 code (tf.Session, main.py line 4)"
  path.write_text(f"{_EAGER}tf.log(1)")
  assert (
    "(tf.function, main.py line 3)"
    in program_choices.choose(str(path), []).reason
  )
  path.write_text("import tensorflow.compat.v1 as tf\ntf.Session()")
  assert "disable_v2_behavior" in program_choices.choose(str(path), []).reason


_EDITS = (
  "sys.path.append(os.path.join(os.path.dirname(__file__), '..', 'lib'))",
  "sys.path.insert(0, os.path.abspath(__file__ + '/../../lib'))",
  "sys.path.extend([os.path.dirname(os.path.dirname(__file__)) + '/lib'])",
  "sys.path += ['x', str(Path(__file__).resolve().parents[1] / 'lib')]",
  "sys.path[0:0] = [os.path.join(HERE, os.pardir, 'lib')]",
  "sys.path = [f'{HERE}/../lib'] + sys.path[1:]",
  "sys.path.append(os.path.join(os.environ['LIB_FOLDER'], 'lib'))",
  "for folder in ('a', '../lib'):\n"
  "  sys.path.append(os.path.join(HERE, folder))",
  "site.addsitedir(os.path.join(os.getcwd(), 'lib'))",
  "sys.path.append('{root}/../lib'.format(root=HERE))",
  "sys.path.append('{missing}'.format(**x)); sys.path.append(HERE + '/../lib')",
)


@pytest.mark.parametrize("edit", _EDITS)
def test_follows_edits_of_the_path(edit, tmp_path, monkeypatch):
  monkeypatch.setenv("LIB_FOLDER", str(tmp_path))
  monkeypatch.chdir(tmp_path)
  start = "import os, sys, site\nfrom pathlib import Path\n"
  start += f"HERE = os.path.dirname(os.path.abspath(__file__))\n{edit}\n"
  for name, text in {
    "bin/main.py": "import setup_path\nimport helper",
    "bin/setup_path.py": f"{start}sys.path.append(unknown(1))\n",
    "lib/helper.py": f"{_TF}tf.Session()",
  }.items():
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
  main, folder = str(tmp_path / "bin" / "main.py"), str(tmp_path / "bin")
  assert program_choices.choose(main, [folder]).tensorflow == 1


def test_datasets_of_tensorflow_1_have_other_methods(tmp_path):
  text = f"{_TF}def f(x):\n  return x.repeat().make_one_shot_iterator()\nf(1)\n"
  assert choose(tmp_path, text) == 1
  (tmp_path / "other").mkdir()
  text = f"{_TF}x = tf.ones([])\ntry: x.make_one_shot_iterator()\n"
  text += "except AttributeError: pass\n"
  assert choose(tmp_path / "other", text) == 2


def test_an_ambiguous_estimator_is_said_to_be(tmp_path):
  path = tmp_path / "main.py"
  path.write_text(f"{_TF}tf.estimator.LinearClassifier([])\n")
  assert "--tf1 if it is older" in program_choices.choose(str(path), []).reason


def test_reads_deep_code(tmp_path):
  """Checks code that Python runs, and whose tree is deeper than its stack."""
  branches = "".join(f"elif x == {i}: pass\n" for i in range(500))
  text = f"{_TF}x = {' + '.join(['1'] * 1500)}\nif x: pass\n{branches}"
  assert choose(tmp_path, f"{text}tf.Session()\n") == 1
  path = tmp_path / "old.py"
  path.write_text(f"{text}tf.train.experimental.LossScale\n")
  assert scanner.scan([str(path)]).errors == ()


def test_searches_the_folders_of_pythonpath(tmp_path, monkeypatch):
  (tmp_path / "lib").mkdir()
  (tmp_path / "lib" / "helper.py").write_text(f"{_TF}tf.Session()")
  monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/none:{tmp_path}/lib")
  assert choose(tmp_path, "import helper") == 1
  # Packages are installed in this folder: they are not the program.
  (tmp_path / "lib" / "other-1.0.dist-info").mkdir()
  assert choose(tmp_path, "import helper") == 2


def test_reads_tensorflows_own_lists():
  find_1 = tensorflow_names.find_tensorflow_1_name
  find_2 = tensorflow_names.find_tensorflow_2_name
  assert len(tensorflow_names._read_renamed()) > 600
  assert find_1("train.AdamOptimizer.minimize") == "train.AdamOptimizer"
  assert find_1("contrib.layers.x") == "contrib"
  assert find_1("train.experimental.LossScale") is None
  assert find_1("reduce_sum") is find_2("reduce_sum") is None
  assert find_2("summary.create_file_writer") == "summary.create_file_writer"
  assert find_2("keras.mixed_precision.set_global_policy")
  assert find_2("Session") is None


def test_without_tensorflows_list(monkeypatch):
  monkeypatch.setattr(tensorflow_names, "_read_renamed", frozenset)
  find = tensorflow_names.find_tensorflow_1_name.__wrapped__  # No memory.
  assert find("Session") and find("contrib.slim") and find("layers.dense")
  assert find("lbeta") is None


if __name__ == "__main__":
  helpers.main()
