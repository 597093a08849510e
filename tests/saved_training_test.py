# SPDX-License-Identifier: Apache-2.0
"""Tests SavedModels that train on after they are loaded."""

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1


def scaled(inner):
  return tfl.MixedPrecisionLossScaleOptimizer(inner, tfl.DynamicLossScale(8, 2))


WRAPPERS = {
  "dynamic": scaled,
  "fixed": lambda inner: tfl.MixedPrecisionLossScaleOptimizer(inner, 8),
  "contrib": lambda inner: contrib.LossScaleOptimizer(
    inner, contrib.ExponentialUpdateLossScaleManager(8, 2)
  ),
  "policy": lambda inner: tfl.MixedPrecisionLossScaleOptimizer(
    inner, policies.GrowthBackoff(8.0, growth_interval=2)
  ),
}


def make_module(wrapper, inner):
  """Returns a module with a variable, an optimizer and a training step."""
  module = tf.Module()
  module.v = tf.Variable([1.0, 2.0])
  module.opt = WRAPPERS[wrapper](helpers.INNER[inner]())

  @tf.function(input_signature=[tf.TensorSpec([])], autograph=False)
  def step(factor):
    module.opt.minimize(
      lambda: tf.reduce_sum(module.v * module.v * factor), var_list=[module.v]
    )
    return module.opt.last_step_applied, module.opt.loss_scale()

  module.step = step
  return module


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_trains_on_bit_for_bit(wrapper, tmp_path):
  module = make_module(wrapper, "sgd")
  for factor in (0.1, 0.2, 0.3):
    module.step(tf.constant(factor))
  tf.saved_model.save(module, tmp_path)
  loaded = tf.saved_model.load(tmp_path)
  factors = [0.5, 0.1, 0.3]
  if wrapper != "fixed":  # A fixed loss scale applies an infinity.
    factors.insert(1, float("nan"))
  for factor in factors:
    expected = module.step(tf.constant(factor))
    found = loaded.step(tf.constant(factor))
    assert [x.numpy() for x in found] == [x.numpy() for x in expected]
    np.testing.assert_array_equal(loaded.v, module.v)


def test_checkpoints_keep_the_optimizer(tmp_path):
  module = make_module("dynamic", "adam")
  module.step(tf.constant(0.1))
  path = tf.train.Checkpoint(opt=module.opt, v=module.v).write(tmp_path / "c")
  keys = {name for name, _ in tf.train.list_variables(path)}
  value = "/.ATTRIBUTES/VARIABLE_VALUE"
  assert f"opt/base_optimizer/beta1_power{value}" in keys
  assert f"v/.OPTIMIZER_SLOT/opt/base_optimizer/m{value}" in keys


if __name__ == "__main__":
  helpers.main()
