# SPDX-License-Identifier: Apache-2.0
"""Tests `tf.estimator` on releases with and without one of their own.

`legacy/estimator_expected.json` has the lines that each program printed on the
old release that the file names. The program must print the same lines today.
"""

import json

import helpers
import legacy_processes
import processes
import pytest

_LEGACY = helpers.TESTS / "programs" / "legacy"
_EXPECTED = json.loads((_LEGACY / "estimator_expected.json").read_text("utf-8"))
_IS_GONE = helpers.RELEASE >= (2, 16)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(_EXPECTED))
def test_programs_print_what_they_printed(name):
  out = legacy_processes.run_forked(name, cwd=_LEGACY)
  assert out.splitlines() == _EXPECTED[name]["printed"]


def run_code(code):
  """Runs code in a process; returns the lines it prints."""
  text = f"import sys\nimport tensorflow as tf\n{code}"
  env = helpers.KERAS_2
  return processes.run_forked("-c", text, **env).splitlines()


_WAYS = """
import tensorflow.estimator
import tensorflow.compat.v1.estimator as v1
import tensorflow.compat.v2.estimator as v2
from tensorflow.estimator import Estimator, EstimatorSpec
from tensorflow.estimator.export import ServingInputReceiver
from tensorflow.compat.v1.estimator import Estimator as Estimator1
from tensorflow.compat.v1.estimator.inputs import numpy_input_fn
from tensorflow.python.estimator import estimator as private
from tensorflow.python.estimator.canned import dnn
from tensorflow.python.estimator.keras import model_to_estimator
import tensorflow.python.estimator.model_fn
from tensorflow.python.tpu.tpu_estimator import TPUEstimator
import tensorflow_estimator

assert Estimator is tf.estimator.Estimator is tf.compat.v2.estimator.Estimator
assert Estimator1 is tf.compat.v1.estimator.Estimator is not Estimator
assert issubclass(Estimator, private.Estimator)
assert issubclass(Estimator1, private.Estimator)
assert EstimatorSpec is tf.estimator.EstimatorSpec
assert TPUEstimator is tf.compat.v1.estimator.tpu.TPUEstimator
assert tf.compat.v1.tpu.experimental.AdamParameters(0.1, beta1=0.9)
assert look() == [True] * 3
"""
_TAKEN_BACK = """
import re
from tensorflow import python
from tensorflow.python.util import tf_export
from tf_compat_lossscale.programs import install

def look():
  return [hasattr(t, "estimator") for t in (tf, tf.compat.v1, tf.compat.v2)]

def find_names():
  modules = (
    tf, tf.compat.v1, tf.compat.v2, tf.compat.v1.tpu.experimental, tf_export,
    python, python.distribute, python.tpu)
  return list(tf_export.API_ATTRS), [
    {n for n in vars(m) if f"{m.__name__}.{n}" not in sys.modules}
    for m in modules]

look(), tf.keras  # A look-up makes these attributes.
before = find_names()
modules = set(sys.modules)
install.install()
assert not any(name.startswith("tensorflow_estimator") for name in sys.modules)
exec(WAYS)
install.uninstall()
new = set(sys.modules) - modules
exec(IF_GONE)
estimator = Estimator(lambda features, labels, mode: None)
assert estimator.config.model_dir
install.install()
exec(WAYS)  # A second installation finds everything again.
print("fine")
"""
_IF_GONE = r"""
assert look() == [False] * 3
assert find_names() == before
gone = re.compile(r"tensorflow\..*(estimator|tpu_embedding|session_support).*")
assert not list(filter(gone.fullmatch, new))
for name in ("estimator", "compat.v1.estimator", "python.estimator"):
  try:
    __import__("tensorflow." + name)
  except ModuleNotFoundError:
    continue
  raise AssertionError(name)
"""


def test_all_ways_to_import_it():
  code = f"""
WAYS = {_WAYS!r}
IF_GONE = {(_IF_GONE if _IS_GONE else "")!r}
{_TAKEN_BACK}
"""
  assert run_code(code)[-1] == "fine"


_MISSING = """
import os
os.environ.pop("TF_USE_LEGACY_KERAS", None)
sys.modules["tensorflow_estimator"] = None
from tf_compat_lossscale.programs import install
install.install()
assert not hasattr(tf, "estimator") and not hasattr(tf.compat.v1, "estimator")
for statement in (
    "tf.estimator.Estimator",
    "tf.compat.v1.estimator",
    "from tensorflow import estimator",
    "import tensorflow.estimator",
    "from tensorflow.compat.v1.estimator import Estimator",
    "from tensorflow.python.estimator import estimator",
):
  try:
    exec(statement)
  except (AttributeError, ImportError) as error:
    print(f"{type(error).__name__}: {error}")
for name in ("no_such", "estimators"):
  try:
    getattr(tf, name)
  except AttributeError as error:
    print(error)
from importlib import metadata
del sys.modules["tensorflow_estimator"]
metadata.version = lambda name: "2.12.0"
try:
  tf.estimator
except AttributeError as error:
  print(error)
"""


@pytest.mark.skipif(not _IS_GONE, reason="TensorFlow depends on the package")
def test_says_what_to_install():
  *lines, before, last, too_old = run_code(_MISSING)
  assert len(lines) == 6
  for line in lines:
    assert line.endswith("pip install 'tensorflow-estimator==2.15.*'"), line
  assert lines[0].startswith("AttributeError: ")
  assert lines[3].startswith("ModuleNotFoundError: ")
  assert before == "module 'tensorflow' has no attribute 'no_such'"
  assert last == "module 'tensorflow' has no attribute 'estimators'"
  assert "not 2.12.0: pip install 'tensorflow-estimator==2.15.*'" in too_old


_WORKER = """
import json, os, socket, types
with socket.create_server(("localhost", 0)) as server:
  port = server.getsockname()[1]
cluster = {"chief": [f"localhost:{port}"]}
task = {"type": "chief", "index": 0}
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
import numpy as np
import tensorflow as tf
import tf_compat_lossscale as tfl
tf1 = tf.compat.v1
tfl.install()

def read_input():
  return tf.data.Dataset.from_tensors((np.ones((4, 2)), np.ones((4, 1))))

def model_fn(features, labels, mode):
  w = tf1.get_variable("w", [2, 1], tf.float64)
  loss = tf.reduce_mean((tf.matmul(features, w) - labels) ** 2)
  opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.1), "dynamic")
  train_op = opt.minimize(loss, tf1.train.get_global_step())
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

strategy = tf.distribute.MultiWorkerMirroredStrategy()
config = tf.estimator.RunConfig("model", train_distribute=strategy)
estimator = tf.estimator.Estimator(model_fn, config=config)
try:
  estimator.train(read_input)
except ValueError as error:
  print(error)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(lambda: read_input().repeat(), max_steps=2),
    tf.estimator.EvalSpec(read_input))
print(tf.train.latest_checkpoint("model"))
options = types.SimpleNamespace(
    train_distribute=strategy, eval_distribute=None, remote_cluster=cluster)
try:
  tf.estimator.RunConfig(experimental_distribute=options)
except ValueError as error:
  print(error)
"""


@pytest.mark.skipif(not _IS_GONE, reason="TensorFlow has its own module")
def test_a_worker_of_a_cluster(tmp_path):
  out = processes.run_forked("-c", _WORKER, cwd=tmp_path, **helpers.KERAS_2)
  refused, path, remote = out.splitlines()
  assert refused.endswith("of a cluster: use train_and_evaluate")
  assert path.endswith("model.ckpt-2")
  assert "remote_cluster, which needs TensorFlow 2.15 or older" in remote


_HOOK = """
import tensorflow as tf
import tf_compat_lossscale as tfl

def hook(name):
  if name == "mine":
    return 1
  raise AttributeError(name)

tf.__getattr__ = hook
tfl.install()
assert tf.mine == 1 and tf.estimator.ModeKeys.TRAIN
tfl.uninstall()
assert tf.__getattr__ is hook and tf.mine == 1
"""


def test_a_hook_of_the_program_stays():
  processes.run_forked("-c", _HOOK)
