# SPDX-License-Identifier: Apache-2.0
"""Tests which names of `tf.contrib` there are, and what is said of others."""

import importlib
from importlib import machinery
import importlib.util
import json
import re
import sys

import contrib_table
import helpers
import processes
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale.programs import missing_names

# Prints which rows of the table cannot be used, with the errors, and which can
# be called.
_USE_EACH_ROW = """
import importlib, json, sys
import tf_compat_lossscale as tfl
from tf_compat_lossscale.programs import tables
tfl.install()
wrong, callables = {}, []
contrib, private = "tensorflow.contrib.", "tensorflow.python."
names = {contrib + name: x for name, x in json.loads(sys.argv[1]).items()}
for module, listed in tables.TABLE.names.items():
  if module.startswith(private):
    names[module] = listed
for module, listed in names.items():
  served = importlib.import_module(module)
  for name in listed:
    try:
      if callable(getattr(served, name)):
        callables.append(f"{module}.{name}")
    except AttributeError as error:
      wrong[f"{module}.{name}"] = str(error)
for module in tables.TABLE.modules:
  try:
    if module.startswith((contrib, private)):
      importlib.import_module(module)
  except ImportError as error:
    wrong[module] = str(error)
print(json.dumps([wrong, callables]))
"""
# Names of 1.15.5 that nothing serves: an error says what to do.
_GONE = {
  "crf.crf_multitag_sequence_score",
  "data.reduce_dataset",
  "framework.assert_scalar_int",
  "framework.get_graph_from_inputs",
  "framework.reduce_sum_n",
  "framework.zero_initializer",
  "nn.scaled_softplus",
  "recurrent.bidirectional_functional_rnn",
  "recurrent.functional_rnn",
}
# TensorFlow removed the name with tf.estimator, in 2.16.
_GONE_SINCE_2_16 = {"data.CheckpointInputPipelineHook"}


def test_each_row_is_what_tensorflow_1_had():
  names = {
    module: names
    for module, names in contrib_table.list_names().items()
    if module != "tensorboard"  # It needs a package that is no requirement.
  }
  printed = processes.run_forked(
    "-c", _USE_EACH_ROW, json.dumps(names), **helpers.KERAS_2
  )
  wrong, callables = json.loads(printed.splitlines()[-1])
  missing = _GONE_SINCE_2_16 if helpers.RELEASE >= (2, 16) else set()
  wrong.pop("tensorflow.contrib.tensorboard.plugins.projector", None)
  start = "tensorflow.contrib."
  wrong = {name.removeprefix(start): why for name, why in wrong.items()}
  assert _GONE <= set(wrong) <= _GONE | missing, wrong
  recorded = {
    f"{module}.{name}" for module, names in names.items() for name in names
  } & set(contrib_table.RECORDED["signatures"])
  called = {name.removeprefix(start) for name in callables}
  assert recorded - set(wrong) <= called


def test_all_ways_to_a_name():
  with tfl.installed():
    import tensorflow.contrib.framework as contrib_framework
    from tensorflow.contrib.framework import nest
    from tensorflow.contrib.framework.python.ops import arg_scope
    from tensorflow.contrib.framework.python.ops import variables
    from tensorflow.contrib.framework.python.ops.variables import (
      filter_variables,
    )
    import tf_slim

    assert contrib_framework is tf.contrib.framework
    # In TensorFlow 1.15, too, the function hid the module.
    assert arg_scope is contrib_framework.arg_scope is tf_slim.arg_scope
    assert filter_variables is tf.contrib.framework.filter_variables
    assert variables.filter_variables is filter_variables
    assert nest is tf.contrib.framework.nest
    assert nest.is_sequence([1]) and not nest.is_sequence(1)
    scope = {}
    exec("from tensorflow.contrib.data import *", scope)
    assert scope["map_and_batch"] is tf.contrib.data.map_and_batch


def test_the_names_of_release_1_12():
  with tfl.installed():
    distribute = tf.contrib.distribute
    ops = distribute.AllReduceCrossTowerOps("nccl", num_packs=2)
    assert isinstance(ops, distribute.CrossTowerOps)
    strategy = distribute.MirroredStrategy(num_gpus=0, cross_tower_ops=ops)
    with strategy.scope():
      assert distribute.get_tower_context() is None


def test_a_module_below_contrib_is_loaded_once():
  with tfl.installed():
    from tensorflow.contrib.slim.nets import resnet_v1
    from tensorflow.contrib.slim.python.slim.nets import resnet_v1 as deep

    assert (
      resnet_v1 is deep is importlib.import_module("tf_slim.nets.resnet_v1")
    )
    assert tf.contrib.slim.nets.resnet_v1 is resnet_v1


def test_slim_has_the_names_of_layers_and_framework():
  with tfl.installed():
    from tensorflow.contrib import slim
    import tf_slim

    assert slim is tf.contrib.slim
    assert slim.conv2d is tf_slim.conv2d is tf.contrib.layers.conv2d
    assert slim.get_name_scope is tf.contrib.framework.get_name_scope
    assert slim.tfexample_decoder.Image and slim.queues.QueueRunners
    assert {"conv2d", "arg_scope"} <= set(dir(slim))


@pytest.mark.parametrize(
  "name", ["no_such", "gan", "rnn.NoSuchCell", "opt.AddSignOptimizer"]
)
def test_what_is_gone_is_said_to_be(name):
  module, _, last = name.partition(".")
  with tfl.installed():
    value = tf.contrib
    with pytest.raises(AttributeError) as error:
      for part in name.split("."):
        value = getattr(value, part)
    assert f"tf.contrib.{name}" in str(error.value)
    assert "2.0 removed" in str(error.value)
    with pytest.raises(ImportError, match=last or module):
      exec(
        f"from tensorflow.contrib{'.' + module if last else ''} import "
        f"{last or module}"
      )
    with pytest.raises(ImportError, match=r"2\.0 removed"):
      importlib.import_module(f"tensorflow.contrib.{name}.python.ops")


def test_modules_that_have_nothing_left_import():
  with tfl.installed():
    from tensorflow.contrib.image.python.ops import image_ops
    from tensorflow.contrib.quantize.python import graph_matcher
    from tensorflow.contrib.tpu.python.tpu import keras_support

    for module, name, says in (
      (graph_matcher, "GraphMatcher", r"2\.0 removed"),
      (image_ops, "bipartite_match", r"2\.0 removed"),
      (keras_support, "tpu_model", "keras_support is not there"),
      (tf.contrib.quantize, "create_training_graph", r"2\.0 removed"),
    ):
      with pytest.raises(AttributeError, match=f"{name}.*{says}"):
        getattr(module, name)


@pytest.mark.parametrize(
  ("path", "says"),
  [
    ("opt.MomentumWOptimizer", "extend_with_decoupled_weight_decay"),
    ("data.sliding_window_batch", "window and flat_map"),
    ("layers.python.layers.encoders.bow_encoder", "embedding_lookup_sparse"),
    ("image.python.ops.image_ops.rotation", "ImageProjectiveTransformV3"),
    ("opt.NoSuchOptimizer", r"optimizer of tf\.compat\.v1\.train"),
  ],
)
def test_the_error_names_what_to_use(path, says):
  assert re.search(says, missing_names.explain(f"tensorflow.contrib.{path}"))


def forget(monkeypatch, package):
  """Makes the next import of a package load it again."""
  for name in list(sys.modules):
    if name.partition(".")[0] == package:
      monkeypatch.delitem(sys.modules, name)


def test_a_missing_package_is_named(monkeypatch):
  forget(monkeypatch, "tf_slim")
  find = machinery.PathFinder.find_spec

  def find_others(name, *args):
    return None if name == "tf_slim" else find(name, *args)

  with tfl.installed():
    # What needs no tf_slim does not import it, which takes long.
    assert tf.contrib.training.HParams and tf.contrib.framework.with_shape
    assert "tf_slim" not in sys.modules
  monkeypatch.setattr(machinery.PathFinder, "find_spec", find_others)
  with tfl.installed():
    for module in ("slim", "layers"):
      with pytest.raises(AttributeError, match="pip install tf_slim"):
        getattr(tf.contrib, module)
      with pytest.raises(ImportError, match="pip install tf_slim"):
        exec(f"from tensorflow.contrib import {module}")
    with pytest.raises(AttributeError, match="pip install tf_slim"):
      tf.contrib.framework.arg_scope  # noqa: B018
    # A name that is in no row, of a module with rows.
    with pytest.raises(AttributeError, match="tf_slim"):
      tf.contrib.metrics.streaming_mean  # noqa: B018
    assert "arg_scope" in dir(tf.contrib.framework)
  absence = missing_names.find(
    "tensorflow.contrib.metrics.streaming_mean", 1, None
  )
  assert absence.command == "pip install tf_slim"


def test_a_name_that_needs_no_package_asks_for_none(monkeypatch):
  monkeypatch.delitem(sys.modules, "tf1_contrib.estimator", raising=False)
  monkeypatch.setitem(sys.modules, "tensorflow_estimator", None)
  scope = {}
  with tfl.installed():
    assert "multi_class_head" in dir(tf.contrib.estimator)
    assert not hasattr(tf.contrib.estimator, "no_such")
    exec("from tensorflow.contrib.training import *", scope)
  assert scope["HParams"] and "_parse" not in scope


@pytest.mark.parametrize(
  "name",
  [
    "tensorflow.contrib.gan",
    "tensorflow.contrib.gan.python.train",
    "tensorflow.contrib.tensorboard.plugins.projector",
    "tensorflow.tools.graph_transforms",
  ],
)
def test_a_missing_module_is_a_module_not_found_error(name, monkeypatch):
  monkeypatch.setitem(sys.modules, "tensorboard", None)
  parent, _, last = name.rpartition(".")
  says = "tensorflow_gan|tensorboard|tf.lite"
  with tfl.installed():
    for load in (
      lambda: importlib.import_module(name),
      lambda: exec(f"import {name}"),
      lambda: exec(f"import {name} as mine"),
      lambda: exec(f"from {name} import something"),
    ):
      with pytest.raises(ModuleNotFoundError, match=says) as error:
        load()
      assert name.startswith(error.value.name)
      assert error.value.name.count(".") >= 2
    # Programs guard it so, too. Python raises an ImportError of no module.
    with pytest.raises(ModuleNotFoundError, match=says):
      exec(f"from {parent} import {last}")
    if parent in sys.modules:
      assert importlib.util.find_spec(name) is None
      assert not hasattr(sys.modules[parent], last)
    else:
      with pytest.raises(ModuleNotFoundError, match=says):
        importlib.util.find_spec(name)


def test_specs_are_found_before_and_after_an_import():
  with tfl.installed():
    for name in (
      "tensorflow.contrib",
      "tensorflow.contrib.seq2seq",
      "tensorflow.contrib.opt.python.training.lazy_adam_optimizer",
    ):
      for _ in range(2):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.name == name
        importlib.import_module(name)


def test_the_projector_is_that_of_tensorboard(monkeypatch, tmp_path):
  folder = tmp_path / "tensorboard" / "plugins"
  folder.mkdir(parents=True)
  for parent in (folder, folder.parent):
    (parent / "__init__.py").write_text("", "utf-8")
  (folder / "projector.py").write_text(
    "class ProjectorConfig: pass\n"
    "def visualize_embeddings(logdir, config): return logdir, config\n",
    "utf-8",
  )
  forget(monkeypatch, "tensorboard")
  monkeypatch.syspath_prepend(tmp_path)
  with tfl.installed():
    from tensorflow.contrib.tensorboard.plugins import projector
    import tensorflow.contrib.tensorboard.plugins.projector as again

    assert again is projector
    config = projector.ProjectorConfig()
    for call in (
      lambda: projector.visualize_embeddings("writer", config),
      lambda: tf.contrib.tensorboard.plugins.projector.visualize_embeddings(
        summary_writer="writer", config=config
      ),
    ):
      assert call() == ("writer", config)
  forget(monkeypatch, "tensorboard")
