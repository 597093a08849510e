# SPDX-License-Identifier: Apache-2.0
"""Tests Ascend's packages on other hardware."""

import importlib
import os
import sys
import types

import helpers
import legacy_processes
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.cli import main
from tf_compat_lossscale.programs import ascend_modules

# Prints the names that cannot be loaded.
_USE_EACH_NAME = """
import importlib
import tf_compat_lossscale as tfl
from tf_compat_lossscale.programs import ascend_modules as ascend
tfl.install()
for module in ascend.MODULES:
  for name in dir(importlib.import_module(module)):
    value = getattr(importlib.import_module(module), name)
    if "NPUs alone" not in repr(value) and type(value).__name__ == "_Absent":
      print(value)
"""
# Trains, is stopped and goes on; a session's run takes one step, though the
# configuration says five.
_ESTIMATOR = """
import sys
import tf_compat_lossscale as tfl
tfl.install()
from npu_bridge.npu_init import *
import tensorflow.compat.v1 as tf
from tensorflow.contrib import summary
tf.disable_v2_behavior()

seen = []
def model_fn(features, labels, mode, params):
  w = tf.get_variable("w", [3])
  step = tf.train.get_or_create_global_step()
  loss = tf.reduce_sum(w) * features
  manager = ExponentialUpdateLossScaleManager(8, 2, 1, decr_ratio=0.25)
  opt = NPULossScaleOptimizer(
    npu_tf_optimizer(tf.train.AdamOptimizer(0.1)), manager, is_distributed=True)
  train_op = opt.minimize(loss)
  train_op = tf.group(train_op, step.assign_add(1))
  def look(scale):
    with summary.create_file_writer(sys.argv[1]).as_default():
      return tf.py_func(seen.append, [scale], [])

  return NPUEstimatorSpec(mode, loss=loss, train_op=train_op,
                          host_call=(look, [manager.get_loss_scale()]))

config = NPURunConfig(iterations_per_loop=5, precision_mode="allow_mix",
                      session_config=npu_config_proto(), hcom_parallel=True,
                      dump_config=DumpConfig(enable_dump=False))
for steps, factors in (4, [1., 1, 1, 1]), (8, [1., float("inf"), 1, 1]):
  estimator = NPUEstimator(model_fn, sys.argv[1], config)
  data = lambda: tf.data.Dataset.from_tensor_slices((factors, factors))
  estimator.train(data, max_steps=steps, hooks=npu_hooks_append())
print(*[int(x) for x in seen])
print(*estimator.get_variable_names())
"""
# A program of TensorFlow 1 as Ascend's tool wrote it.
_SESSION = """
import tensorflow as tf
from npu_bridge.npu_init import *

w = tf.get_variable("w", initializer=3.0)
opt = npu_tf_optimizer(tf.train.GradientDescentOptimizer(0.1))
opt = NPULossScaleOptimizer(opt, FixedLossScaleManager(8))
loss = w * w
train_op = opt.minimize(loss)
with tf.Session(config=npu_config_proto()) as session:
  session.run(tf.global_variables_initializer())
  session.run(train_op)
  print(session.run(loss).round(2))
"""


def test_each_name_of_the_table_is_there():
  printed = helpers.run_forked("-c", _USE_EACH_NAME, **helpers.KERAS_2)
  assert printed == ""


def test_an_estimator_trains_and_goes_on(tmp_path):
  scales, names = helpers.run_forked(
    "-c", _ESTIMATOR, str(tmp_path / "model"), **helpers.KERAS_2
  ).splitlines()
  assert scales == "8 16 16 32 32 8 8 16"
  assert set(names.split()) == {
    *("bad_steps", "cond/beta1_power", "cond/beta2_power", "global_step"),
    *("good_steps", "loss_scale", "w", "w/Adam", "w/Adam_1"),
  }


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("module", "name"),
  [
    ("npu_bridge.tbe.npu_cube_ops", "deformable_conv2d"),
    ("npu_bridge.npu_init", "NPUOutputTensorHook"),
    ("npu_bridge.estimator.npu.npu_dynamic_rnn", "DynamicRNN"),
    ("npu_device.gen_npu_ops", "lars_v2"),
    ("npu_device.compat.v1.estimator.npu_ops", "LARSV2"),
    ("npu_device.npu_device.gen_npu_ops", "dynamic_rnn"),
  ],
)
def test_what_only_an_npu_can_raises_an_error_when_it_is_used(module, name):
  with tfl.installed():
    op = getattr(importlib.import_module(module), name)
    for use in (
      lambda: op(1),
      lambda: op.attribute,
      lambda: types.new_class("Own", (op,)),
    ):
      with pytest.raises(NotImplementedError, match=f"{name} runs on"):
        use()
    assert not isinstance(1, op)
    with pytest.raises(ModuleNotFoundError, match="none is not among"):
      importlib.import_module("npu_bridge.none")
  assert "npu_bridge" not in sys.modules


@pytest.mark.any_release
@pytest.mark.parametrize(
  "module", ["npu_bridge", "npu_bridge.npu_init", "npu_device.compat.v1.hccl"]
)
def test_what_ascend_never_had(module):
  with tfl.installed():
    loaded = importlib.import_module(module)
    assert not hasattr(loaded, "anything")
    with pytest.raises(AttributeError, match="has no attribute 'lars_v9'"):
      _ = loaded.lars_v9


@pytest.mark.any_release
@pytest.mark.parametrize("own", ["tensorflow", "tensorflow.compat.v1", None])
def test_a_star_import_leaves_the_programs_tensorflow(own):
  names = {}
  with tfl.installed():
    if own:
      exec(f"import {own} as tf", names)
    exec("from npu_bridge.npu_init import *", names)
  assert names["tf"] is importlib.import_module(own or "tensorflow.compat.v1")
  assert names["npu_config_proto"] and names["os"] is os


def test_a_migrated_program_keeps_its_tensorflow(tmp_path):
  path = tmp_path / "train.py"
  path.write_text(_SESSION)
  assert main.main(["migrate", "--write", str(path)]) == 0
  assert "import tensorflow.compat.v1 as tf\n" in path.read_text()
  printed = helpers.run_forked(str(path), cwd=tmp_path, **helpers.KERAS_2)
  assert printed == "5.76\n"


@pytest.mark.any_release
def test_the_real_package_wins(tmp_path, monkeypatch):
  (tmp_path / "npu_bridge").mkdir()
  (tmp_path / "npu_bridge" / "__init__.py").write_text("REAL = 1\n")
  monkeypatch.syspath_prepend(tmp_path)
  with tfl.installed():
    import npu_bridge

    assert npu_bridge.REAL and not hasattr(npu_bridge, "npu_init")
    with pytest.raises(ModuleNotFoundError, match="No module named"):
      importlib.import_module("npu_bridge.npu_init")
  del sys.modules["npu_bridge"]


@pytest.mark.any_release
def test_the_environment_says_that_there_are_other_processes(monkeypatch):
  monkeypatch.setenv("RANK_SIZE", "8")
  with tfl.installed():
    from hccl.manage.api import get_rank_size
    from npu_bridge.npu_init import hccl_ops
    from npu_bridge.npu_init import npu_tf_optimizer
    from npu_device.distribute import all_reduce

    for use in (
      get_rank_size,
      lambda: npu_tf_optimizer(tf.train.AdamOptimizer()),
      lambda: hccl_ops.allreduce(1.0, "sum"),
      lambda: all_reduce([1.0]),
    ):
      with pytest.raises(RuntimeError, match="RANK_SIZE is '8'"):
        use()


@pytest.mark.any_release
def test_several_steps_in_a_run_of_a_session():
  with tfl.installed(), tf.Graph().as_default(), tf.Session() as session:
    from npu_bridge.estimator.npu import util

    var = tf.get_variable("var", initializer=0.0, use_resource=True)
    step, feed = var.assign_add(1.0).op, tf.placeholder_with_default(0.0, [])
    assert util.set_iteration_per_loop(session, step, 1) is step
    op = util.set_iteration_per_loop(session, step, iterations_per_loop=10)
    session.run(var.initializer)
    assert session.run({"a": [op, feed]}, {feed: 2.0}) == {"a": [None, 2.0]}
    assert session.run(var) == 10.0
    with pytest.raises(ValueError, match="iterations_per_loop must be"):
      util.set_iteration_per_loop(session, step, 0)
    loop = util.IterationPerLoop()
    with pytest.raises(RuntimeError, match="call create_iteration_per_loop_v"):
      loop.load_iteration_per_loop_var(session, 10)
    op = loop.create_iteration_per_loop_var(step)
    loop.load_iteration_per_loop_var(session, 10)
    session.run(op)
    assert session.run(var) == 20.0
    loop.load_iteration_per_loop_var(session, 5)
    session.run(op)
    assert session.run(var) == 25.0


@pytest.mark.parametrize("checks", [True, False])
def test_a_fixed_scale_may_check_nothing(checks):
  with tfl.installed(), tf.Graph().as_default():
    from npu_bridge.npu_init import FixedLossScaleManager
    from npu_bridge.npu_init import npu_config_proto
    from npu_bridge.npu_init import NPULossScaleOptimizer
    from npu_bridge.npu_init import NPUOptimizer

    var = tf.get_variable("var", initializer=1.0, use_resource=True)
    manager = FixedLossScaleManager(8, enable_overflow_check=checks)
    inner = tf.train.AdamOptimizer(0.5)
    opt = NPULossScaleOptimizer(inner, manager)
    assert isinstance(opt, tfl.contrib.LossScaleOptimizer)
    bad = tf.placeholder_with_default(np.inf, [])
    step = opt.apply_gradients([(tf.cast(bad, tf.float32), var)])
    assert "var/Adam" in [each.op.name for each in tf.global_variables()]
    whole = NPUOptimizer(
      tf.train.GradientDescentOptimizer(1.0), manager, is_loss_scale=True
    )
    descend = whole.minimize(var * 1.0, var_list=[var])
    config = npu_config_proto(tf.ConfigProto(log_device_placement=False))
    (npu,) = config.graph_options.rewrite_options.custom_optimizers
    npu.parameter_map["use_off_line"].b = True
    assert npu_config_proto(config) is config
    with tf.Session(config=config) as session:
      session.run(tf.global_variables_initializer())
      session.run(descend)
      assert session.run(var) == 0.0
      finite = "overflow_status_reduce_all:0"
      if checks:
        assert session.run([finite, "loss_scale:0", step])[:2] == [False, 8.0]
      session.run(step)
      assert np.isnan(session.run(var)) != checks


def test_an_estimator_may_be_what_a_program_imports_first(tmp_path):
  text = (
    "from npu_bridge.estimator.npu.npu_estimator import NPUEstimator\n"
    "import tensorflow as tf\n"
    "print(issubclass(NPUEstimator, tf.estimator.Estimator))\n"
  )
  name = legacy_processes.program(tmp_path, text)
  printed = legacy_processes.run_forked("--tf1", name, cwd=tmp_path)
  assert printed == "True\n"


class _Program:
  """A small program, which saves and restores by name.

  Its checkpoints have the names of Ascend's programs.
  """

  def __init__(self, manager_class, optimizer_class):
    self._graph = tf.Graph()
    with self._graph.as_default():
      self._w = tf.get_variable("w", initializer=[1.0, 2.0])
      self._factor = tf.placeholder(tf.float32, [])
      manager = manager_class(2**16, 3, 2, decr_ratio=0.5)
      opt = optimizer_class(tf.train.AdamOptimizer(0.1), manager)
      step = tf.train.get_or_create_global_step()
      loss = tf.reduce_sum(self._w**2) * self._factor
      self._train_op = opt.minimize(loss, global_step=step)
      self._init = tf.global_variables_initializer()
      self._saver = tf.train.Saver()

  def train(self, factors, new, old=None):
    """Returns the variables after the steps, which are saved as `new`."""
    with tf.Session(graph=self._graph) as session:
      session.run(self._init)
      if old:
        self._saver.restore(session, str(old))
      for factor in factors:
        session.run(self._train_op, {self._factor: factor})
      self._saver.save(session, str(new))
    names = (name for name, _ in tf.train.list_variables(str(new)))
    return {name: tf.train.load_variable(str(new), name) for name in names}


@pytest.mark.any_release
def test_checkpoints_are_those_of_contrib(tmp_path):
  contrib = tfl.contrib
  theirs = _Program(
    contrib.ExponentialUpdateLossScaleManager, contrib.LossScaleOptimizer
  )
  with tfl.installed():
    from npu_bridge.npu_init import ExponentialUpdateLossScaleManager
    from npu_bridge.npu_init import NPULossScaleOptimizer

    ours = _Program(ExponentialUpdateLossScaleManager, NPULossScaleOptimizer)
    first, inf = tmp_path / "first", np.inf
    state = theirs.train([1, inf, 1, 1], first)
    assert {"loss_scale": 2**16, "good_steps": 2, "bad_steps": 1}.items() <= {
      name: value for name, value in state.items() if value.ndim == 0
    }.items()
    second, third = [inf, 1], [1, 1]
    ours.train(second, tmp_path / "ours", first)
    back = theirs.train(third, tmp_path / "back", tmp_path / "ours")
    expected = theirs.train([*second, *third], tmp_path / "all", first)
  assert expected["loss_scale"] == 2**16 and expected["global_step"] == 6
  assert back.keys() == expected.keys() == state.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(back[name], value, err_msg=name)


@pytest.mark.any_release
def test_attributes_of_a_wrapped_optimizer():
  with tfl.installed(), tf.Graph().as_default():
    from npu_bridge.npu_init import npu_tf_optimizer
    from npu_bridge.npu_init import NPUOptimizer

    inner = tf.train.AdamOptimizer(0.5)
    for opt in (npu_tf_optimizer(inner), NPUOptimizer(npu_tf_optimizer(inner))):
      assert opt._lr == 0.5 and opt.get_name() != "Adam"
      opt._lr = 0.25
      assert inner._lr == 0.25 and "_lr" not in vars(opt)
      inner._lr = 0.5


@pytest.mark.any_release
def test_functions():
  with tfl.installed(), tf.Graph().as_default(), tf.Session() as session:
    from npu_bridge.npu_init import hccl_ops
    from npu_bridge.npu_init import npu_ops
    from npu_bridge.npu_init import npu_scope
    from npu_bridge.npu_init import npu_unary_ops
    import npu_device

    npu_device.global_options().dump_config.dump_path = "x"
    assert npu_device.global_options().dump_config.dump_path == "x"
    x = tf.constant([-1.0, 0.0, 2.0])
    with npu_scope.npu_stage_scope(1), npu_device.open().as_default().scope():
      gelu = session.run(npu_unary_ops.gelu(x))
    np.testing.assert_allclose(gelu, [-0.158808, 0, 1.954598], atol=1e-6)
    np.testing.assert_allclose(
      session.run(npu_device.gen_npu_ops.fast_gelu(x)),
      [-1 / (1 + np.exp(1.702)), 0, 2 / (1 + np.exp(-3.404))],
      atol=1e-5,
    )
    dropped = session.run(npu_ops.dropout(tf.ones([1000]), 0.8, seed=1))
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1.25)}
    assert npu_ops.dropout(x, 1.0) is x
    with pytest.raises(ValueError, match=r"in \(0, 1\], but got 0"):
      npu_ops.dropout(x, 0)
    (copy,) = hccl_ops.broadcast([x], 0)
    np.testing.assert_equal(
      session.run([copy, hccl_ops.allreduce(x, "sum")]), [[-1, 0, 2]] * 2
    )
    session.run([npu_ops.initialize_system(), npu_ops.shutdown_system()])


@pytest.mark.any_release
def test_the_packages_are_those_of_the_table():
  packages = {each.partition(".")[0] for each in ascend_modules.MODULES}
  assert packages == set(legacy_names.ASCEND)
