# SPDX-License-Identifier: Apache-2.0
"""Tests Keras 2's gradients that one replica has and the other lacks."""

import helpers
import numpy as np
import pytest
import tensorflow as tf

from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2

_LEGACY, _NEW = (
  _keras2.keras.optimizers.legacy,
  _keras2.keras.optimizers,
)


@pytest.mark.filterwarnings("ignore:.*Gradients do not exist")
@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("loss_scale", ["dynamic", 8])
@pytest.mark.parametrize("module", [_LEGACY, _NEW], ids=["legacy", "new"])
def test_zeros_where_a_replica_has_none(module, loss_scale, mode):
  strategy = helpers.two_replicas()
  with strategy.scope():
    shared, own = (tf.Variable([1.0, 1.0]) for _ in range(2))
    opt = keras.LossScaleOptimizer(module.SGD(0.25), loss_scale)

  def replica_fn():
    context = tf.distribute.get_replica_context()
    second = int(tf.get_static_value(context.replica_id_in_sync_group)) == 1
    grad = tf.ones([2])
    opt.apply_gradients([(grad, shared), (None if second else 2 * grad, own)])

  def run():
    strategy.run(replica_fn)

  run = tf.function(run) if mode == "function" else run
  run()
  for variable in (shared, own):
    np.testing.assert_array_equal(variable.values[0], [0.5, 0.5])
    np.testing.assert_array_equal(variable.values[1], [0.5, 0.5])


if __name__ == "__main__":
  helpers.main()
