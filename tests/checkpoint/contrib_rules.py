# SPDX-License-Identifier: Apache-2.0
"""AdaMax of TensorFlow 1's `tf.contrib.opt`, to write checkpoints.

Slots and variables have the names that TensorFlow 1.15 gave them. Gradients
must be dense, and variables resource variables.
"""

import tensorflow.compat.v1 as tf


class AdaMaxOptimizer(tf.train.Optimizer):
  """Adam with the largest gradient in place of the second moment."""

  def __init__(self, learning_rate, beta1=0.9, beta2=0.999, epsilon=1e-8):
    super().__init__(use_locking=False, name="AdaMax")
    self._rate, self._beta1, self._beta2 = learning_rate, beta1, beta2
    self._epsilon = epsilon

  def _create_slots(self, var_list):
    self._create_non_slot_variable(
      initial_value=self._beta1,
      name="beta1_power",
      colocate_with=min(var_list, key=lambda var: var.name),
    )
    for var in var_list:
      for name in ("m", "v"):
        self._zeros_slot(var, name, self.get_name())

  def _get_power(self):
    with tf.init_scope():  # A cond of TensorFlow 2 has a graph of its own.
      graph = None if tf.executing_eagerly() else tf.get_default_graph()
    return self._get_non_slot_variable("beta1_power", graph=graph)

  def _resource_apply_dense(self, grad, var):
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    new_m = self._beta1 * m + (1 - self._beta1) * grad
    new_v = tf.maximum(self._beta2 * v, tf.abs(grad))
    rate = self._rate / (1 - self._get_power())
    step = rate * new_m / (new_v + self._epsilon)
    return tf.group(m.assign(new_m), v.assign(new_v), var.assign_sub(step))

  def _finish(self, update_ops, name_scope):
    with tf.control_dependencies(update_ops):
      power = self._get_power()
      update = power.assign(power * self._beta1)
    return tf.group(*update_ops, update, name=name_scope)
