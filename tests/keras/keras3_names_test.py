# SPDX-License-Identifier: Apache-2.0
"""Tests `tf.keras.mixed_precision.experimental` if `tf.keras` is Keras 3."""

import copy
import importlib
import pickle
import sys

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

_HAS_KERAS_3 = helpers.RELEASE >= (2, 16)
_needs_keras_3 = pytest.mark.skipif(
  not _HAS_KERAS_3, reason="tf.keras is Keras 3 from TensorFlow 2.16 on"
)
_NAMES = (
  "LossScaleOptimizer",
  "Policy",
  "get_layer_policy",
  "global_policy",
  "set_policy",
)
_ON_KERAS_2 = (
  "tf_compat_lossscale.use_keras_2()",
  "TF_USE_LEGACY_KERAS=1",
  "python -m tf_compat_lossscale run",
)


def alone(function):
  """Runs a function in a process of its own, whose `tf.keras` is Keras 3."""
  helpers.run_alone(function, **helpers.KERAS_3)


def installed():
  """Installs the legacy names; returns Keras 3 and their module in Keras."""
  tfl.install()
  return tf.keras, tf.keras.mixed_precision.experimental


def refused(error, words, function, *args):
  """Checks that a call is refused with these words."""
  with pytest.raises(error) as caught:
    function(*args)
  for part in words:
    assert part in str(caught.value), (part, str(caught.value))


def model_of(k3, **kwargs):
  layers = [
    k3.layers.Input((4,)),
    k3.layers.Dense(3),
    k3.layers.Activation("linear", dtype="float32"),
  ]
  return k3.Sequential(layers, **kwargs)


def fit(model):
  model.fit(np.ones((8, 4)), np.ones((8, 3)), verbose=0)


def policies():
  k3, mp = installed()
  assert isinstance(mp.global_policy(), mp.Policy)
  assert mp.global_policy().name == "float32"
  for policy in (
    "mixed_float16",
    mp.Policy("mixed_float16"),
    mp.Policy("mixed_float16", "dynamic"),
    mp.Policy("mixed_float16", tfl.DynamicLossScale()),
    mp.Policy("mixed_float16", helpers.OWN.DynamicLossScale()),
    k3.mixed_precision.DTypePolicy("mixed_float16"),
  ):
    mp.set_policy(policy)
    assert mp.global_policy().name == "mixed_float16"
    assert k3.config.dtype_policy().name == "mixed_float16"
    model = model_of(k3)
    dense = model.layers[0]
    assert (dense.compute_dtype, dense.variable_dtype) == ("float16", "float32")
    assert isinstance(mp.get_layer_policy(dense), mp.Policy)
    assert mp.get_layer_policy(dense) is dense.dtype_policy
    if isinstance(policy, k3.mixed_precision.DTypePolicy):
      assert mp.get_layer_policy(dense) is mp.global_policy() is policy
    model.compile("sgd", "mse")
    assert type(model.optimizer) is k3.optimizers.LossScaleOptimizer
    assert isinstance(model.optimizer, mp.LossScaleOptimizer)
    assert model.optimizer.initial_scale == 2.0**15
    assert model.optimizer.dynamic_growth_steps == 2000
  fit(model)
  mp.set_policy(None)
  assert mp.global_policy().name == k3.config.floatx() == "float32"
  for policy in ("mixed_bfloat16", mp.Policy("mixed_bfloat16", None)):
    mp.set_policy(policy)
    model = model_of(k3)
    model.compile("sgd", "mse")
    assert not isinstance(model.optimizer, mp.LossScaleOptimizer)
    assert model.layers[0].compute_dtype == "bfloat16"
  mp.set_policy("float64")
  assert k3.layers.Dense(2).compute_dtype == "float64"


def policy_objects():
  k3, mp = installed()
  own = k3.mixed_precision.DTypePolicy
  mixed, plain = mp.Policy("mixed_float16"), mp.Policy("float32")
  assert mixed.loss_scale.get_config() == tfl.DynamicLossScale().get_config()
  assert mixed.loss_scale is mixed.loss_scale and plain.loss_scale is None
  assert repr(plain) == '<PolicyV1 "float32", loss_scale=None>'
  assert repr(mixed).startswith('<PolicyV1 "mixed_float16", loss_scale=Dynam')
  assert isinstance(own("float16"), mp.Policy)
  assert not isinstance("float16", mp.Policy)
  assert mixed == own("mixed_float16") and own("mixed_float16") == mixed
  assert mixed != own("float16") and own("float16") != mixed

  class Mine(mp.Policy):
    pass

  assert isinstance(Mine("float16"), mp.Policy)
  assert not isinstance(mixed, Mine)
  for again in (
    copy.copy(mixed),
    copy.deepcopy(mixed),
    pickle.loads(pickle.dumps(mixed)),
    mp.Policy.from_config(mixed.get_config()),
  ):
    assert type(again) is mp.Policy and again == mixed
  dense = k3.layers.Dense(2, dtype=mixed)
  again = k3.layers.Dense.from_config(dense.get_config())
  assert type(again.dtype_policy) is own
  assert again.dtype_policy.name == "mixed_float16"


def all_of_policies():
  """Runs both checks of policies, in a process that imports Keras 3 once."""
  policy_objects()
  policies()


@_needs_keras_3
def test_policies_are_those_of_keras_3():
  alone(all_of_policies)


def refusals():
  k3, mp = installed()
  factor = "loss_scale_factor=8.0"
  for name, scale, instead in (
    ("mixed_float16", None, "auto_scale_loss=False"),
    ("mixed_float16", 8, factor),
    ("mixed_float16", 8, "auto_scale_loss=False"),
    ("float16", tfl.FixedLossScale(8), factor),
    ("mixed_float16", tfl.DynamicLossScale(64, 3), "dynamic_growth_steps=3"),
    ("mixed_float16", tfl.DynamicLossScale(64, 3), "initial_scale=64.0"),
    ("mixed_bfloat16", "dynamic", "initial_scale=32768.0"),
  ):
    said = (repr(name), f"loss_scale={scale!r}", instead, *_ON_KERAS_2)
    refused(ValueError, said, mp.Policy, name, scale)
  words = ("DynamicLossScale.multiplier must be 2",)
  steep = tfl.DynamicLossScale(multiplier=4)
  refused(ValueError, words, mp.Policy, "mixed_float16", steep)
  refused(ValueError, ("'often'",), mp.Policy, "mixed_float16", "often")
  refused(ValueError, ("'abc'",), mp.Policy, "abc")
  for call in (mp.Policy, mp.set_policy):
    refused(TypeError, ("not a DType", "float16"), call, tf.float16)
    refused(TypeError, ("must be a string, but got: 5",), call, 5)
  for wrong in ("int32", mp.Policy("complex64")):
    words = ("set_policy can only be used to set the global policy to float",)
    refused(ValueError, words, mp.set_policy, wrong)
  assert mp.global_policy().name == "float32"
  words = ("get_policy can only be called on a layer, but got: 1", "Keras 3")
  refused(ValueError, words, mp.get_layer_policy, 1)
  sgd = k3.optimizers.SGD
  wrap = mp.LossScaleOptimizer
  words = ("loss_scale=8", factor, "auto_scale_loss=False", *_ON_KERAS_2)
  refused(ValueError, words, wrap, sgd(), 8)
  refused(ValueError, ("loss_scale cannot be None",), wrap, sgd(), None)
  refused(ValueError, ("Invalid value", "'often'"), wrap, sgd(), "often")
  words = ('When passing a DynamicLossScale to "loss_scale"',)
  refused(ValueError, words, wrap, sgd(), steep)
  refused(TypeError, ("cannot wrap another",), wrap, wrap(sgd(), "dynamic"), 2)
  refused(TypeError, ("of Keras 3, but got 5",), wrap, 5, "dynamic")
  config = {"optimizer": {"class_name": "SGD"}, "loss_scale": "dynamic"}
  refused(
    ValueError, ("inner_optimizer", *_ON_KERAS_2), wrap.from_config, config
  )


def optimizers():
  k3, mp = installed()
  own = k3.optimizers.LossScaleOptimizer
  for scale, expected in (
    ("dynamic", (2.0**15, 2000)),
    (tfl.DynamicLossScale(64, 3), (64.0, 3)),
    (tfl.DynamicLossScale(64, 3).get_config(), (64.0, 3)),
    (helpers.OWN.DynamicLossScale(64, 3), (64.0, 3)),
  ):
    inner = k3.optimizers.SGD(0.25)
    opt = mp.LossScaleOptimizer(optimizer=inner, loss_scale=scale)
    assert isinstance(opt, own) and isinstance(opt, mp.LossScaleOptimizer)
    assert opt.inner_optimizer is inner
    assert (opt.initial_scale, opt.dynamic_growth_steps) == expected
    again = type(opt).from_config(opt.get_config())
    assert type(again) is type(opt)
    assert again.get_config() == opt.get_config()
  assert isinstance(own(k3.optimizers.SGD()), mp.LossScaleOptimizer)
  mine = mp.LossScaleOptimizer(
    k3.optimizers.SGD(0.25), tfl.DynamicLossScale(8, 2)
  )
  theirs = own(k3.optimizers.SGD(0.25), 8.0, 2)
  seen = []
  for one in (mine, theirs):
    v = k3.Variable([1.0])
    rows = []
    for factor in (1.0, 1.0, float("inf"), 1.0):
      one.apply([tf.constant([8.0 * factor])], [v])
      rows.append(
        (float(v[0]), float(one.dynamic_scale), int(one.step_counter))
      )
    seen.append(rows)
  assert seen[0] == seen[1] and seen[0][-1][1:] == (8.0, 1)
  with pytest.raises(AttributeError, match="dynamic_scale"):
    mine.loss_scale  # noqa: B018
  assert float(mine.get_scaled_loss(tf.constant(2.0))) == 16.0
  (grad,) = mine.get_unscaled_gradients([tf.constant([8.0])])
  assert grad.numpy().tolist() == [1.0]

  class WithDefault(mp.LossScaleOptimizer):
    def __init__(self, opt, loss_scale="dynamic"):
      super().__init__(opt, loss_scale)

  assert WithDefault(k3.optimizers.SGD()).initial_scale == 2.0**15
  assert not isinstance(mine, WithDefault)
  mp.set_policy("mixed_float16")
  model = model_of(k3)
  opt = WithDefault(k3.optimizers.SGD(0.01))
  model.compile(opt, "mse")
  assert model.optimizer is opt
  fit(model)


@_needs_keras_3
def test_optimizers():
  alone(optimizers)


_LOADING = """
import sys, keras
model = keras.models.load_model(sys.argv[1])
assert not [m for m in sys.modules if m.startswith("tf_compat_lossscale")]
print(type(model.optimizer).__module__, model.optimizer.initial_scale)
print(model.layers[0].dtype_policy.name, type(model.layers[0].dtype_policy))
"""


@_needs_keras_3
def test_files_load_without_this_package(tmp_path):
  path = str(tmp_path / "model.keras")
  code = f"""
{helpers.import_line(__file__)}
k3, mp = test.installed()
mp.set_policy(mp.Policy("mixed_float16"))
model = test.model_of(k3)
scale = test.tfl.DynamicLossScale(64, 3)
model.compile(mp.LossScaleOptimizer(k3.optimizers.SGD(0.01), scale), "mse")
test.fit(model)
model.save({path!r})
assert k3.models.load_model({path!r}).optimizer.initial_scale == 64
"""
  helpers.run_forked("-c", code)
  printed = helpers.run_forked("-c", _LOADING, path).splitlines()
  assert printed[-2].split()[1] == "64.0" and "tf_compat" not in printed[-2]
  assert "mixed_float16" in printed[-1] and "tf_compat" not in printed[-1]


def graph_rewrite():
  _, mp = installed()
  opt = tf.compat.v1.train.GradientDescentOptimizer(0.1)
  try:
    tfl.enable_mixed_precision_graph_rewrite(opt)
    words = (
      'cannot be set to "mixed_float16", because the mixed precision graph '
      "rewrite has already been enabled",
    )
    refused(ValueError, words, mp.set_policy, "mixed_float16")
    assert mp.global_policy().name == "float32"
    mp.set_policy("float64")
  finally:
    tfl.disable_mixed_precision_graph_rewrite()
  for policy in ("mixed_float16", "mixed_bfloat16"):
    mp.set_policy(policy)
    rewrite = tfl.enable_mixed_precision_graph_rewrite
    refused(ValueError, ("mixed",), rewrite, opt)
  mp.set_policy(None)
  try:
    tfl.enable_mixed_precision_graph_rewrite(opt)
  finally:
    tfl.disable_mixed_precision_graph_rewrite()


def both_keras():
  import keras
  import tf_keras

  k3, mp = installed()
  again = importlib.import_module(
    "tensorflow.keras.mixed_precision.experimental"
  )
  for name in _NAMES:
    for place in (again, keras.mixed_precision.experimental):
      assert getattr(place, name) is getattr(mp, name)
  from tensorflow.python.keras.mixed_precision.experimental import policy

  assert policy.Policy is mp.Policy
  k2 = tf_keras.mixed_precision.experimental
  for name in _NAMES:
    assert getattr(k2, name) is getattr(tfl.keras, name)
    assert getattr(mp, name) is not getattr(k2, name)
  mp.set_policy("mixed_float16")
  assert tfl.keras.global_policy().name == "float32"
  assert tf_keras.layers.Dense(1).compute_dtype == "float32"
  mp.set_policy(None)
  tfl.keras.set_policy("mixed_float16")
  assert mp.global_policy().name == "float32"
  assert k3.layers.Dense(1).compute_dtype == "float32"
  for of_2 in (
    tfl.keras.Policy("float32"),
    tf_keras.mixed_precision.Policy("float32"),
  ):
    words = ("of Keras 2", "tf_compat_lossscale.keras.set_policy()")
    refused(TypeError, (*words, *_ON_KERAS_2), mp.set_policy, of_2)
  dense = tf_keras.layers.Dense(1)
  words = (
    "no layer of Keras 3",
    "tf_compat_lossscale.keras.get_layer_policy()",
  )
  refused(ValueError, words, mp.get_layer_policy, dense)
  refused(
    ValueError, ("Keras 2 (tf_keras)",), k2.get_layer_policy, k3.layers.Dense(1)
  )
  sgd = tf_keras.optimizers.legacy.SGD()
  words = ("For optimizers of Keras 2", "tf_compat_lossscale.keras.Loss")
  refused(TypeError, words, mp.LossScaleOptimizer, sgd, "dynamic")
  assert k2.LossScaleOptimizer(sgd, 8).initial_scale == 8


@_needs_keras_3
def test_each_keras_has_its_own():
  pytest.importorskip("tf_keras", reason="it compares with Keras 2")
  alone(both_keras)


def without_keras_2():
  sys.modules["tf_keras"] = None
  _, mp = installed()
  assert all(callable(getattr(mp, name)) for name in _NAMES)
  refusals()
  graph_rewrite()


@_needs_keras_3
def test_keras_2_is_not_needed_to_refuse_what_keras_3_cannot_do():
  alone(without_keras_2)


@pytest.mark.skipif(_HAS_KERAS_3, reason="tf.keras is Keras 3 here")
def test_without_keras_3_there_is_keras_2():
  with tfl.installed():
    found = tf.keras.mixed_precision.experimental
    for name in _NAMES:
      assert getattr(found, name) is getattr(tfl.keras, name)
  with pytest.raises(ImportError, match=r"TensorFlow 2\.16 and later"):
    importlib.import_module("tf_compat_lossscale.keras.keras3_names")


if __name__ == "__main__":
  helpers.main()
