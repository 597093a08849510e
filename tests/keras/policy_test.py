# SPDX-License-Identifier: Apache-2.0
"""Tests Keras 2's Policy: patches of `compile`, and error messages."""

import copy
import functools
import logging
import pickle
import typing

import helpers
from keras_trainers import KINDS as _KINDS
import numpy as np
import processes
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _policy as policy_lib

k2 = _keras2.keras
own = k2.mixed_precision


@pytest.fixture(autouse=True)
def _policy_restored():
  yield
  keras.set_policy(None)


class Mine(k2.Model):
  """A model whose constructor takes a policy."""

  def __init__(self, **kwargs):
    super().__init__(**kwargs)
    self.dense, self.out = make_layers()

  def call(self, x):
    return self.out(self.dense(x))


def make_layers():
  out = k2.layers.Activation("linear", dtype="float32")
  return k2.layers.Dense(3, input_shape=(4,)), out


def model_of():
  return k2.Sequential(make_layers())


def raised(error, function, *args):
  """Returns the message of the error that a call raises."""
  try:
    function(*args)
  except error as caught:
    return str(caught)
  raise AssertionError(f"{error.__name__} was not raised")


def test_policy():
  auto = keras.Policy("mixed_float16")
  assert isinstance(auto.loss_scale, tfl.DynamicLossScale)
  assert auto.get_config() == {"name": "mixed_float16"}
  assert keras.Policy("float32").loss_scale is None
  assert keras.Policy("mixed_bfloat16").loss_scale is None
  none = keras.Policy("mixed_float16", loss_scale=None)
  assert none.loss_scale is None
  assert none.get_config() == {"name": "mixed_float16", "loss_scale": None}
  fixed = keras.Policy("mixed_float16", 8)
  assert isinstance(fixed.loss_scale, tfl.FixedLossScale)
  assert (fixed.compute_dtype, fixed.variable_dtype) == ("float16", "float32")
  dynamic = keras.Policy("mixed_float16", tfl.DynamicLossScale(4, 3))
  for policy in (auto, none, fixed, dynamic):
    for again in (
      keras.Policy.from_config(policy.get_config()),
      copy.copy(policy),
      copy.deepcopy(policy),
      pickle.loads(pickle.dumps(policy)),
    ):
      assert type(again) is keras.Policy
      assert again.get_config() == policy.get_config()
      assert repr(again) == repr(policy)
  with pytest.raises(ValueError, match="'often'"):
    keras.Policy("mixed_float16", "often")


def test_a_policy_that_keras_deserializes_is_keras_own():
  policy = keras.Policy("mixed_float16", 8)
  layer = k2.layers.Dense(2, dtype=policy)
  assert keras.get_layer_policy(layer) is policy
  again = k2.layers.Dense.from_config(layer.get_config())
  assert type(keras.get_layer_policy(again)) is own.Policy
  assert keras.get_layer_policy(again).name == "mixed_float16"
  keras.set_policy(policy)
  model = model_of()
  loaded = k2.models.model_from_json(model.to_json())
  assert type(loaded.layers[0].dtype_policy) is own.Policy


_DYNAMIC = tfl.DynamicLossScale(512, 3)


@pytest.mark.parametrize(
  ("make", "kind", "scale", "expected"),
  [
    (model_of, "legacy", "auto", (True, 2**15, 2000)),
    (model_of, "new", _DYNAMIC, (True, 512, 3)),
    (model_of, "legacy", 16, (False, 16, None)),
    (model_of, "new", None, None),
    (Mine, "new", "auto", (True, 2**15, 2000)),
    (Mine, "legacy", None, None),
  ],
)
def test_compile_uses_the_policys_scale(make, kind, scale, expected):
  keras.set_policy(keras.Policy("mixed_float16", scale))
  model = make()
  keras.set_policy(None)
  inner = _KINDS[kind].SGD(0.01)
  # Tracing takes seconds: one traced step is enough.
  traced = scale is _DYNAMIC
  model.compile(inner, "mse", run_eagerly=not traced)
  opt = model.optimizer
  if expected is None:
    assert opt is inner
  else:
    assert isinstance(opt, keras.LossScaleOptimizer)
    found = (opt.dynamic, opt.initial_scale, opt.dynamic_growth_steps)
    assert found == expected
  model.fit(np.ones((8, 4)), np.ones((8, 3)), verbose=0)
  assert int(opt.iterations) == 1


def test_compile_leaves_the_rest_alone():
  keras.set_policy(keras.Policy("mixed_float16", 16))
  model = model_of()
  wrapped = own.LossScaleOptimizer(k2.optimizers.SGD())
  model.compile(wrapped, "mse")
  assert model.optimizer is wrapped
  model.compile("sgd", "mse")
  assert model.optimizer.initial_scale == 16
  keras.set_policy("mixed_float16")
  model = model_of()
  model.compile("sgd", "mse")
  assert isinstance(model.optimizer, keras.LossScaleOptimizer)
  assert isinstance(keras.global_policy().loss_scale, tfl.DynamicLossScale)
  own.set_global_policy("mixed_float16")  # This one is Keras's own.
  model = model_of()
  model.compile("sgd", "mse")
  assert isinstance(model.optimizer, own.LossScaleOptimizer)
  assert not isinstance(model.optimizer, keras.LossScaleOptimizer)
  keras.set_policy(None)
  model = model_of()
  model.compile("sgd", "mse")
  assert not isinstance(model.optimizer, own.LossScaleOptimizer)
  assert compiled_scale(keras.Policy("mixed_float16", 32)) == 32


# TensorFlow's own tests, in releases 2.0 to 2.8, matched these messages.
def test_words_of_policies():
  for name in ("float32", "int8", "mixed_bfloat16", "_infer"):
    expected = f'<PolicyV1 "{name}", loss_scale=None>'
    assert repr(keras.Policy(name)) == str(keras.Policy(name)) == expected
  assert repr(keras.Policy("float16", loss_scale=2)) == (
    '<PolicyV1 "float16", loss_scale=FixedLossScale(2.0)>'
  )
  start = '<PolicyV1 "mixed_float16", loss_scale=DynamicLossScale('
  assert repr(keras.Policy("mixed_float16")).startswith(start)
  for name in ("int32", keras.Policy("complex64")):
    said = raised(ValueError, keras.set_policy, name)
    assert said.startswith(
      "set_policy can only be used to set the global policy to floating-point "
      'policies, such as "float32" and "mixed_float16", but got policy: '
      + getattr(name, "name", name)
    )
  assert "Cannot convert value abc to a mixed precision Policy." in raised(
    ValueError, keras.Policy, "abc"
  )
  for name in typing.get_args(policy_lib.PolicyName):
    assert keras.Policy(name).name
  for call in (keras.Policy, keras.set_policy):
    assert "'name' must be a string, not a DType." in raised(
      TypeError, call, tf.float16
    )
    assert "'name' must be a string, but got: 5" in raised(TypeError, call, 5)
  said = raised(ValueError, keras.get_layer_policy, 1)
  assert said.startswith("get_policy can only be called on a layer, but got: 1")
  assert f"no layer of Keras 2 ({k2.__name__})" in said


def test_a_policy_and_the_graph_rewrite_exclude_each_other():
  opt = tf.compat.v1.train.GradientDescentOptimizer(0.1)
  policy = keras.Policy("mixed_float16", 8)
  keras.set_policy(policy)
  assert keras.global_policy() is policy
  with pytest.raises(ValueError, match="mixed"):
    tfl.enable_mixed_precision_graph_rewrite(opt)
  keras.set_policy("float32")
  assert keras.global_policy().name == "float32"
  try:
    tfl.enable_mixed_precision_graph_rewrite(opt)
    for each in ("mixed_float16", policy):
      with pytest.raises(ValueError, match="rewrite has already been enabled"):
        keras.set_policy(each)
    keras.set_policy("float64")
  finally:
    tfl.disable_mixed_precision_graph_rewrite()


def test_words_of_the_warning(caplog, monkeypatch):
  monkeypatch.setattr(logging.getLogger("absl"), "propagate", True)

  def records():  # Keras warns of the device by another logger.
    return [record for record in caplog.records if record.name == "absl"]

  with caplog.at_level(logging.WARNING, logger="absl"):
    keras.Policy("mixed_float16", 2.0)
    keras.Policy("float16", 2.0)
    assert not records()
    keras.Policy("float32", 2.0)
  (record,) = records()
  assert "loss_scale=2.0 for policy float32" in record.getMessage()


def compiled_scale(policy):
  """Returns the scale of a model after `compile`, or None without a scale."""
  model = Mine(dtype=policy)
  model.compile("sgd", "mse")
  return getattr(model.optimizer, "initial_scale", None)


def scale_in_graph(policy):
  """Returns `compiled_scale` of a model in a TensorFlow 1 graph."""
  with tf.Graph().as_default():
    scale = compiled_scale(policy)
  assert hasattr(Mine, "_set_optimizer")  # Keras chose the base for graphs.
  return scale


@pytest.mark.parametrize("scale_of", [compiled_scale, scale_in_graph])
def test_uninstall_takes_the_patch_of_compile_back(scale_of):
  policy = keras.Policy("float32", 16)
  for use in (
    lambda: keras.Policy("float32"),
    lambda: keras.set_policy(None),
  ):
    use()
    assert scale_of(policy) == 16
    patched = k2.Model._get_optimizer
    use()
    assert k2.Model._get_optimizer is patched
    tfl.uninstall()
    assert k2.Model._get_optimizer is not patched
    assert k2.Model._get_optimizer.__module__ == k2.Model.__module__
    assert scale_of(policy) is None
    tfl.uninstall()


def test_installed_leaves_compile_as_it_was():
  policy = keras.Policy("float32", 16)
  with tfl.installed():
    assert compiled_scale(policy) == 16
  assert compiled_scale(policy) == 16
  tfl.uninstall()
  with tfl.installed():
    assert compiled_scale(policy) is None
    policy = tfl.keras.Policy("float32", 16)
    assert compiled_scale(policy) == 16
    tfl.uninstall()  # Within `installed`, names and patch stay.
    assert compiled_scale(policy) == 16
  assert compiled_scale(policy) is None


def test_a_program_that_patches_compile_too(monkeypatch):
  """Checks that the program's patch stays and that ours is not added twice."""
  policy = keras.Policy("float32", 16)
  ours, calls = k2.Model._get_optimizer, []

  @functools.wraps(ours)
  def get_optimizer(self, optimizer):
    calls.append(optimizer)
    return ours(self, optimizer)

  monkeypatch.setattr(k2.Model, "_get_optimizer", get_optimizer)
  assert compiled_scale(policy) == 16
  tfl.uninstall()
  assert compiled_scale(policy) is None
  assert k2.Model._get_optimizer is get_optimizer
  keras.Policy("float32")
  assert k2.Model._get_optimizer is get_optimizer
  assert compiled_scale(policy) == 16
  assert calls == ["sgd"] * 3


def optimizers_in_graphs():
  tf1 = tf.compat.v1
  tf1.disable_v2_behavior()
  tf1.keras.layers.enable_v2_dtype_behavior()
  legacy, new = k2.optimizers.legacy.SGD, k2.optimizers.SGD
  none = keras.Policy("mixed_float16", None)
  scaled = keras.Policy("mixed_float16", tfl.DynamicLossScale(64, 2))
  fixed = keras.Policy("float32", 4)

  def compile_with(policy, optimizer):
    keras.set_policy(policy)
    model = model_of()
    model.compile(optimizer, "mse")
    return model

  # Keras accepts several optimizers if there is no loss scale.
  for given in ([legacy(), "sgd"], (legacy(), legacy())):
    kept = compile_with(none, given).optimizer
    assert type(kept) is list and len(kept) == 2
    assert {type(one) for one in kept} == {legacy}
    for policy in (scaled, fixed):
      said = raised(ValueError, compile_with, policy, given)
      assert said.startswith(
        "When a dtype policy with a loss scale is used, you can only pass a "
        "single optimizer. Using policy <PolicyV1 "
      )
  wrapped = k2.mixed_precision.LossScaleOptimizer
  for given in (new(), [new()], wrapped(new())):
    for policy in (none, scaled):
      said = raised(ValueError, compile_with, policy, given)
      assert said.startswith(
        '"optimizer" must be an instance of tf.keras.optimizers.legacy.'
      )
      assert "in a graph" in said
  tf1_sgd = tf1.train.GradientDescentOptimizer(0.1)
  said = raised(ValueError, compile_with, scaled, tf1_sgd)
  assert "when a dtype policy with a loss scale is used" in said
  compile_with(none, tf1_sgd)
  for policy, given, scale in ((scaled, "sgd", 128), (fixed, legacy(), 4)):
    model = compile_with(policy, given)
    assert isinstance(model.optimizer, keras.LossScaleOptimizer)
    model.fit(np.ones((8, 4)), np.ones((8, 3)), epochs=3, verbose=0)
    assert k2.backend.get_value(model.optimizer.loss_scale) == scale
  mine = wrapped(legacy())
  assert compile_with(scaled, mine).optimizer is mine


def test_compile_says_what_graphs_do_not_take():
  processes.run_alone(optimizers_in_graphs, **helpers.KERAS_2)


@pytest.mark.parametrize("scale", [None, 8])
def test_several_optimizers_without_graphs(scale):
  keras.set_policy(keras.Policy("mixed_float16", scale))
  model = model_of()
  model.compile([k2.optimizers.SGD(), "adam"], "mse")
  wrapped = [
    isinstance(one, keras.LossScaleOptimizer) for one in model.optimizer
  ]
  assert wrapped == [scale is not None] * 2


@pytest.mark.parametrize(
  ("name", "compute", "variable"),
  [
    # As TensorFlow 1.15.5 has them.
    ("infer", None, None),
    ("float16_with_float32_vars", "float16", "float32"),
    ("bfloat16_with_float32_vars", "bfloat16", "float32"),
    ("float32_with_float32_vars", "float32", "float32"),
  ],
)
def test_policies_of_1_14_to_2_0(name, compute, variable):
  policy = keras.Policy(name)
  assert (policy.compute_dtype, policy.variable_dtype) == (compute, variable)
  assert policy.loss_scale is None
  again = keras.Policy.from_config(policy.get_config())
  assert (again.compute_dtype, again.loss_scale) == (compute, None)


def test_infer_takes_the_dtype_of_the_first_input():
  before = keras.global_policy()
  try:
    for policy in ("infer", keras.Policy("infer")):
      keras.set_policy(policy)
      for dtype in (tf.float16, tf.float64):
        layer = _keras2.keras.layers.Dense(2)
        assert layer(tf.ones([1, 3], dtype)).dtype == dtype
        assert layer.kernel.dtype == dtype
  finally:
    keras.set_policy(before)


def test_policies_that_no_keras_has_say_what_to_write():
  for name in ("infer_float32_vars", "infer_with_float32_vars"):
    for call in (keras.Policy, keras.set_policy):
      with pytest.raises(ValueError, match=f"{name}.*first .*mixed_float16"):
        call(name)
