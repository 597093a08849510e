# SPDX-License-Identifier: Apache-2.0
"""Tests TensorFlow under `tf-lossscale run`, for every form of import."""

import os
import sys

import helpers
import legacy_processes
from legacy_processes import program
from legacy_processes import run
import pytest

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.programs import tensorflow1

_HAS_KERAS_3 = helpers.RELEASE >= (2, 16)

# A statement for TensorFlow 1 -> a part of its error message, or None.
_GONE = {
  "tf.contrib.rnn": None,
  "from tensorflow.contrib import quantize": None,
  "from tensorflow.contrib.quantize import create_eval_graph": "tf.lite",
  "tf.contrib.quantize.create_eval_graph": "tf.lite",
  "import tensorflow.contrib.no_such as t": "TensorFlow 2.0 removed",
  "from tensorflow.examples.tutorials.mnist import input_data": "datasets",
  "tf.examples": "tf.keras.datasets.mnist",
  "from tensorflow.contrib import nope": "TensorFlow 2.0 removed",
  "tf.no_such": "no attribute 'no_such'",
  "tf.optimizers": "TensorFlow 2 has tf.optimizers: if the program is for",
  "tf.summary.flush": "try tf-lossscale run --tf2",
  "tf.estimator.Estimator": None,
  "from tensorflow.estimator.export import ServingInputReceiver": None,
}
# One process for all checks, because importing TensorFlow takes seconds.
_TENSORFLOW_1 = """
import sys
import tf_compat_lossscale.checkpoint._saver  # Imports TensorFlow.
import tensorflow as tf
import tensorflow
import importlib
assert tensorflow is tf is importlib.import_module("tensorflow")
assert not tf.executing_eagerly() and not tf.resource_variables_enabled()
assert tf.placeholder and tf.train.AdamOptimizer and tf.app.run and tf.flags
assert tf.__file__ and tf.__path__ and "placeholder" in dir(tf)

import tensorflow.compat.v1 as tf1
assert tf1.placeholder is tf.placeholder
assert tf.compat.v1.placeholder is tf.placeholder
import tensorflow.compat.v2 as tf2
assert tf2.Variable is not tf.Variable
from tensorflow.python.framework import ops
assert tensorflow.python.framework.ops is ops
assert ops.Graph is tf.Graph
from tensorflow.python.training.experimental import loss_scale
assert loss_scale.LossScale is tf.train.experimental.LossScale
from tensorflow.train import AdamOptimizer
assert AdamOptimizer is tf.train.AdamOptimizer
import tensorflow.train
assert tensorflow.train is tf.train and tf.train.AdamOptimizer
from tensorflow import placeholder, layers, contrib
assert layers.dense and tf.layers.dense is layers.dense
from tensorflow.core.framework import graph_pb2
assert tf.GraphDef is graph_pb2.GraphDef
import tensorflow.keras as keras
assert ".engine." in keras.Model.__module__ and tf.keras.Model is keras.Model
from tensorflow.keras.layers import Dense
assert Dense is tf.keras.layers.Dense
import tensorflow.keras.layers
from tensorflow.keras import backend as K
assert K.get_session
import tensorflow.nn
assert tf.nn.rnn_cell.BasicLSTMCell
exec("from tensorflow import *", {})

class Mine(tf.Session):
  pass
tf.Session = Mine
assert tensorflow.Session is Mine

ALL_VERSIONS = '''
import tensorflow as tf
import tensorflow.compat.v1 as tf1
from tensorflow import VERSION, __version__ as version
from tensorflow.version import VERSION as a
from tensorflow.compat.v1 import VERSION as b
told = {tf.__version__, tf.VERSION, tf.version.VERSION, tf1.__version__,
        tf1.VERSION, tf1.version.VERSION, version, VERSION, a, b}
for namespace in (tf, tf1, tf.version):
  assert "VERSION" in dir(namespace)
  star = {}
  exec(f"from {namespace.__name__} import *", star)
  assert "VERSION" in star
'''
program, library = {}, {"__file__": "env/site-packages/slim/__init__.py"}
exec(ALL_VERSIONS, program)
assert program["told"] == {"1.15.5"}, program["told"]
exec(ALL_VERSIONS, library)
real = tf.compat.v2.__version__
assert library["told"] == {real} and real.startswith("2."), library["told"]
from tf_compat_lossscale import _requirements
assert _requirements._get_imported_version() == real
# Sizes as programs for Python 2 compute them.
assert tf.TensorShape([8 / 2, None]).as_list() == [4, None]
assert tf.get_variable("halves", [2, 8 / 2]).shape == [2, 4]
assert tf.zeros([2, 8 / 2]).shape == [2, 4]
try:
  tf.TensorShape([5 / 2])
  raise AssertionError
except ValueError as error:
  assert "2.5" in str(error) and "//" in str(error)
assert tf.GIT_VERSION == tf.version.GIT_VERSION == tf.__git_version__

x = tf.placeholder(tf.float32, [2])
w = tf.Variable([1., 2.])
assert w.dtype._is_ref_dtype
opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(
    tf.train.AdamOptimizer(), "dynamic")
opt.minimize(tf.reduce_sum(w * x))
assert "tf_compat_lossscale" in type(opt).__module__

for statement in sys.argv[1:]:
  try:
    exec(statement)
    print("fine")
  except Exception as error:
    print(f"{type(error).__name__}: {error}")

def run_without_feeding():
  tf.Session().run(x)
run_without_feeding()
"""


@pytest.mark.thorough
def test_tensorflow_1_and_all_ways_to_import_it(tmp_path):
  name = program(tmp_path, _TENSORFLOW_1)
  code, out, err = run("--tf1", name, *_GONE, cwd=tmp_path)
  assert code == 1 and "InvalidArgumentError" in err, err
  assert "in run_without_feeding" in err
  # The package's own frames must not be in the traceback.
  assert "tf_compat_lossscale" not in err
  lines = out.splitlines()
  assert len(lines) == len(_GONE), out
  for line, (statement, what) in zip(lines, _GONE.items()):
    if what is None:
      assert line == "fine", (statement, line)
    else:
      assert what in line, (statement, line)
      kind = "ModuleNotFoundError"
      if statement.startswith("tf."):
        kind = "AttributeError"
      assert line.startswith(f"{kind}: "), (statement, line)


_FIRST_IMPORTS = """
import importlib, os, sys
assert "tensorflow" not in sys.modules
for name in sys.argv[1:]:
  if os.fork():
    print(name, os.wait()[1], flush=True)
    continue
  importlib.import_module(name)
  if "tensorflow" in sys.modules:
    import tensorflow as tf
    import tf_compat_lossscale as tfl
    assert tf.train.experimental.LossScale is tfl.LossScale
    assert hasattr(tf, "placeholder") == TENSORFLOW_1
  break
"""


def modules_that_may_come_first():
  """Yields the dotted names of the package's public modules.

  Of the modules that import Keras, which takes seconds, only one is yielded.
  """
  for path in sorted((helpers.ROOT / "tf_compat_lossscale").rglob("*.py")):
    parts = path.relative_to(helpers.ROOT).with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    is_other_keras = parts[1] == "keras" and parts[2] != "policy"
    is_public = not any(part.startswith("_") for part in parts[:-1])
    is_public &= not name.rpartition(".")[2].startswith("_")
    if is_public and not is_other_keras:
      yield name


@pytest.mark.thorough
@pytest.mark.any_release
@pytest.mark.parametrize("mode", ["tf1", "tf2"])
def test_any_module_may_be_what_a_program_imports_first(mode, tmp_path):
  """Checks each module as the first import, which imports TensorFlow."""
  text = _FIRST_IMPORTS.replace("TENSORFLOW_1", str(mode == "tf1"))
  name = program(tmp_path, text)
  modules = list(modules_that_may_come_first())
  assert len(modules) > 40
  if mode == "tf2":  # Programs import these; other modules come after them.
    modules = [module for module in modules if module.count(".") == 1]
    assert len(modules) > 10
  out = legacy_processes.run_forked(f"--{mode}", name, *modules, cwd=tmp_path)
  assert out.splitlines() == [f"{module} 0" for module in modules]


def test_says_that_tensorflow_was_not_seen(tmp_path):
  """Checks a program that imports a module whose name it is given."""
  program(tmp_path, "import tensorflow as tf\n", "hidden.py")
  text = "import importlib, sys\nimportlib.import_module(sys.argv[1])\n"
  _, _, err = run(program(tmp_path, text), "hidden", cwd=tmp_path)
  assert "it is TensorFlow 2; --tf1 if the program is older" in err


def test_tensorflow_2_is_left_as_it_is(tmp_path):
  text = """
import tf_compat_lossscale.gradients  # Imports TensorFlow.
import tensorflow as tf
import sys
assert type(tf) is type(sys) and tf.executing_eagerly()
assert not hasattr(tf, "placeholder")
import tf_compat_lossscale as tfl
assert tf.mixed_precision.experimental.DynamicLossScale is tfl.DynamicLossScale
print(2 if ".engine." in tf.keras.Model.__module__ else 3)
"""
  name = program(tmp_path, text)
  run_forked = legacy_processes.run_forked
  assert run_forked("--tf2", "--keras2", name, cwd=tmp_path) == "2\n"
  if _HAS_KERAS_3:
    assert run_forked("--tf2", "--keras3", name, cwd=tmp_path) == "3\n"
  else:
    code, _, err = run("--tf2", "--keras3", name, cwd=tmp_path)
    assert code == 2 and "TensorFlow 2.16" in err


_WRONG_GUESS = """
import tensorflow as tf
names = dir(tf), dir(tf.summary)
assert "__getattr__" not in sum(names, []) and "__dir__" not in sum(names, [])
assert "__getattr__" not in getattr(tf.train, "__all__", ())
assert not hasattr(tf, "Session") and getattr(tf, "Session", 3) == 3
for name in ("train.AdamOptimizer", "summary.FileWriter", "train.no_such",
             "Session"):
  try:
    eval("tf." + name)
  except AttributeError as error:
    assert error.name == name.rpartition(".")[2]
    print(str(error).partition(". ")[2])
"""


def test_an_error_tells_of_the_other_tensorflow(tmp_path):
  name = program(tmp_path, _WRONG_GUESS)
  printed = legacy_processes.run_forked("--tf2", "--keras2", name, cwd=tmp_path)
  expected = [
    f"TensorFlow 1 has tf.{name}: if the program is for TensorFlow 1, try "
    "tf-lossscale run --tf1"
    for name in ("train.AdamOptimizer", "summary.FileWriter", "", "Session")
  ]
  expected[2] = ""
  assert printed.splitlines() == expected


_INSTALLED = "env/lib/python3.11/site-packages"


def ask(path, name="asker"):
  """Returns what a module in a file is told when the real version is 2.99.0."""
  names = {"answer": tensorflow1.tell_version, "__name__": name}
  if path is not None:
    names["__file__"] = path
  return eval("answer('2.99.0')", names)


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("path", "name", "expected"),
  [
    ("me/train.py", "__main__", "1.15.5"),
    ("me/site/packages/train.py", "train", "1.15.5"),
    (None, "__main__", "1.15.5"),  # Code without a file, as in a notebook.
    (f"{_INSTALLED}/tf_slim/__init__.py", "tf_slim", "2.99.0"),
    ("lib/python3/dist-packages/mine.py", "mine", "2.99.0"),
    ("env\\Lib\\site-packages\\horovod\\a.py", "horovod.a", "2.99.0"),
    # This package is not always among the installed ones.
    ("src/tf_compat_lossscale/a.py", "tf_compat_lossscale.a", "2.99.0"),
    (
      "src/tf_compat_lossscale_tools.py",
      "tf_compat_lossscale_tools",
      "1.15.5",
    ),
  ],
)
def test_tells_by_the_asking_module(path, name, expected):
  assert ask(path, name) == expected


@pytest.mark.any_release
def test_a_package_of_the_program_may_be_installed(monkeypatch):
  monkeypatch.setenv(legacy_names.PACKAGES, f"opennmt{os.pathsep}single")
  assert ask(f"{_INSTALLED}/opennmt/utils/compat.py") == "1.15.5"
  assert ask(f"{_INSTALLED}/single.py") == "1.15.5"
  assert ask(f"{_INSTALLED}/opennmt_tools/a.py") == "2.99.0"
  monkeypatch.delenv(legacy_names.PACKAGES)
  assert ask(f"{_INSTALLED}/opennmt/utils/compat.py") == "2.99.0"


@pytest.mark.any_release
@pytest.mark.parametrize(
  "message, hint",
  [
    ("Key bad_steps not found in checkpoint", "checkpoint.Scaffold()"),
    ("Key a/cond/beta1_power not found in checkpoint", "checkpoint.Scaffold()"),
    ("Key w not found in checkpoint", ""),
    ("T.x: Expected an int, got a boolean.", "pip install 'protobuf<7'"),
  ],
)
def test_some_errors_get_a_hint(message, hint, monkeypatch, capsys):
  monkeypatch.setattr(sys, "excepthook", lambda *error: None)
  tensorflow1.add_hints()
  sys.excepthook(ValueError, ValueError(message), None)
  said = capsys.readouterr().err
  assert hint in said
  assert bool(hint) == bool(said)


def test_what_protobuf_says_of_true_gets_the_hint(monkeypatch, capsys):
  from tensorflow.core.protobuf import rewriter_config_pb2

  monkeypatch.setattr(sys, "excepthook", lambda *error: None)
  tensorflow1.add_hints()
  options = rewriter_config_pb2.RewriterConfig()
  try:
    options.auto_mixed_precision = True
  except TypeError as error:
    sys.excepthook(TypeError, error, None)
    assert "protobuf<7" in capsys.readouterr().err
  else:
    assert options.auto_mixed_precision == 1
