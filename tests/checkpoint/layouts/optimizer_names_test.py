# SPDX-License-Identifier: Apache-2.0
"""Tests the guess, for people, of the optimizer that wrote a checkpoint."""

import helpers
import pytest
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.layouts import optimizer_names

tf1 = tf.compat.v1
pytestmark = pytest.mark.any_release


class LAMBOptimizer(tf1.train.Optimizer):
  """An optimizer with the slots of Adam under a name of its own."""

  def _create_slots(self, var_list):
    for var in var_list:
      for slot in ("m", "v"):
        self._zeros_slot(var, slot, self._name)

  def _resource_apply_dense(self, grad, handle):
    return tf.no_op()


@pytest.mark.parametrize("by_object", [False, True])
@pytest.mark.parametrize(
  ("make", "expected"),
  [
    (lambda: LAMBOptimizer(False, "LAMBOptimizer"), "LAMB"),
    (lambda: LAMBOptimizer(False, "AdamW"), "AdamW"),
    (lambda: tf1.train.AdamOptimizer(), "Adam"),
    (lambda: tf1.train.MomentumOptimizer(0.1, 0.9), "Momentum"),
  ],
)
def test_optimizers_of_compat_v1(make, expected, by_object, tmp_path):
  with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("a/lamb", initializer=[1.0], use_resource=True)
    opt = make()
    opt.minimize(w * w, var_list=[w])
    session.run(tf1.global_variables_initializer())
    if by_object:
      path = tf.train.Checkpoint(opt=opt, w=w).save(str(tmp_path / "ckpt"))
    else:
      path = tf1.train.Saver().save(session, str(tmp_path / "ckpt"))
  assert checkpoint.describe(path).inner_optimizer == expected


@pytest.mark.parametrize(
  ("names", "expected"),
  [
    (["w", "w/adam_m", "w/adam_v"], "AdamWeightDecay or LAMB"),
    (["w", "training/LAMB/w/m", "training/LAMB/w/v"], "LAMB"),
    (["w", "w/LAMB", "w/LAMB_1", "b", "b/Adam", "b/Adam_1"], "Adam, LAMB"),
    (["w", "beta1_power", "beta2_power"], None),
    (["lamb/w", "lamb/b"], None),
  ],
)
def test_names(names, expected):
  assert optimizer_names.guess_by_names(names) == expected


@pytest.mark.skipif(
  helpers.RELEASE < (2, 16), reason="keras is Keras 2 there, without Lamb"
)
def test_keras_3(tmp_path):
  import keras

  model = keras.Sequential([keras.layers.Dense(1)])
  model.build((None, 2))
  for make in (keras.optimizers.Lamb, keras.optimizers.Adam):
    opt = make()
    opt.build(model.trainable_variables)
    path = tf.train.Checkpoint(opt=opt, model=model).save(str(tmp_path / "c"))
    name = checkpoint.describe(path).inner_optimizer
    assert name == {"Lamb": "LAMB"}.get(make.__name__, "Adam")


if __name__ == "__main__":
  helpers.main()
