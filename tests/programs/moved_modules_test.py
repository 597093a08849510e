# SPDX-License-Identifier: Apache-2.0
"""Tests private modules and names of TensorFlow 1.

contrib_names_test imports each of the table.
"""

import importlib
import sys

import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import tables


def test_what_exists_is_not_replaced():
  from tensorflow.python.framework import ops
  from tensorflow.python.ops import array_ops

  before = {**vars(ops)}, {**vars(array_ops)}
  with tfl.installed():
    for module, names in zip((ops, array_ops), before):
      for name, value in names.items():
        if name not in ("__getattr__", "__warningregistry__"):
          assert vars(module)[name] is value
    assert ops.Tensor is array_ops.ops.Tensor
  assert ({**vars(ops)}, {**vars(array_ops)}) == before


def test_modules_and_names_are_taken_back():
  module = "tensorflow.python.training.checkpointable"
  with tfl.installed():
    from tensorflow.python.ops import control_flow_ops
    from tensorflow.python.training.checkpointable import base
    from tensorflow.python.training.checkpointable import tracking

    public = importlib.import_module("tensorflow").compat.v1
    assert control_flow_ops.cond is public.cond
    from tensorflow.python.ops import variable_scope

    # tf_slim's local_variable asks for this function.
    local = variable_scope.variable(2.0, collections=["mine"])
    assert type(local) is type(public.Variable(2.0))
    assert control_flow_ops.while_loop is public.while_loop
    assert base is importlib.import_module("tensorflow.python.trackable.base")
    assert tracking.AutoTrackable
    assert f"{module}.base" in sys.modules
    with pytest.raises(AttributeError, match="no_such"):
      control_flow_ops.no_such  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
      importlib.import_module("tensorflow.python.training.no_such")
  assert not [name for name in sys.modules if name.startswith(module)]
  training = importlib.import_module("tensorflow.python.training")
  assert not hasattr(training, "checkpointable")
  with pytest.raises(ModuleNotFoundError):
    importlib.import_module(module)


def test_the_package_that_tensorflow_was_in():
  tensorflow = importlib.import_module("tensorflow")
  with tfl.installed():
    for name, public in (
      ("tensorflow_core", "tensorflow"),
      ("tensorflow_core.python.framework.ops", None),
      ("tensorflow_core._api.v1.compat.v1", "tensorflow.compat.v1"),
      ("tensorflow_core._api.v2.math", "tensorflow.math"),
      ("tensorflow._api.v1.train", "tensorflow.train"),
      ("tensorflow_core.contrib.seq2seq", "tensorflow.contrib.seq2seq"),
    ):
      public = public or name.replace("_core", "")
      module = importlib.import_module(name)
      assert module is importlib.import_module(public), name
    with pytest.raises(ModuleNotFoundError, match="no_such"):
      importlib.import_module("tensorflow_core.no_such")
  assert sys.modules["tensorflow"] is tensorflow
  with pytest.raises(ModuleNotFoundError):
    importlib.import_module("tensorflow_core")
  assert not hasattr(importlib.import_module("tensorflow._api"), "v1")


@pytest.mark.parametrize(
  ("name", "is_there"),
  [
    ("training.checkpoint_management.get_checkpoint_state", True),
    ("training.checkpoint_state_pb2.CheckpointState", True),
    ("ops.array_ops.no_such", False),
    ("ops.lookup_ops.string_to_index", False),  # An op has the name.
  ],
)
def test_private_names_are_there_as_their_modules_say(name, is_there):
  found = missing_names.find(f"tensorflow.python.{name}", 2, None)
  assert (found is None) == is_there


@pytest.mark.any_release
def test_modules_below_a_module_are_below_its_target():
  find = tables.TABLE.find_module
  assert find("tensorflow.python.tpu.util.sub") == "est.tpu.util.sub"
  assert find("tensorflow.python.ops.no_such") is None
  for table in (tables.TABLE, tables.KERAS):
    for name in (*table.names, *table.modules):
      first = name.partition(".")[0]
      assert first in ("keras", "tensorboard", "tensorflow", "tf_keras")
      assert "  " not in name
