# SPDX-License-Identifier: Apache-2.0
"""Nadam and AdaMax of TensorFlow 1's `tf.contrib.opt`, to write checkpoints.

Slots and variables have the names that TensorFlow 1.15 gave them.
"""

import tensorflow.compat.v1 as tf


class NadamOptimizer(tf.train.AdamOptimizer):
  """Adam with Nesterov momentum; sparse gradients are made dense."""

  def _apply_dense(self, grad, var):
    return self._resource_apply_dense(grad, var)

  def _resource_apply_dense(self, grad, var):
    beta1, beta2 = self._beta1_t, self._beta2_t
    power1, power2 = self._get_beta_accumulators()
    rate = self._lr_t * tf.sqrt(1 - power2) / (1 - power1)
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    new_m = m.assign(m + (1 - beta1) * (grad - m))
    new_v = v.assign(v + (1 - beta2) * (tf.square(grad) - v))
    mean = beta1 * new_m + (1 - beta1) * grad
    return var.assign_sub(rate * mean / (tf.sqrt(new_v) + self._epsilon_t)).op

  def _apply_sparse(self, grad, var):
    return self._resource_apply_dense(tf.convert_to_tensor(grad), var)

  def _resource_apply_sparse(self, grad, var, indices):
    slices = tf.IndexedSlices(grad, indices, tf.shape(var))
    return self._resource_apply_dense(tf.convert_to_tensor(slices), var)


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

  def _compute_step(self, grad, m, v):
    """Returns the step, and the new values of the slots."""
    new_m = self._beta1 * m + (1 - self._beta1) * grad
    new_v = tf.maximum(self._beta2 * v, tf.abs(grad))
    rate = self._rate / (1 - self._get_power())
    return rate * new_m / (new_v + self._epsilon), new_m, new_v

  def _apply_dense(self, grad, var):
    return self._resource_apply_dense(grad, var)

  def _resource_apply_dense(self, grad, var):
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    step, new_m, new_v = self._compute_step(grad, m, v)
    return tf.group(m.assign(new_m), v.assign(new_v), var.assign_sub(step))

  def _apply_sparse(self, grad, var):
    return self._resource_apply_sparse(grad.values, var, grad.indices)

  def _resource_apply_sparse(self, grad, var, indices):
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    step, new_m, new_v = self._compute_step(
      grad, tf.gather(m, indices), tf.gather(v, indices)
    )
    return tf.group(
      m.scatter_update(tf.IndexedSlices(new_m, indices)),
      v.scatter_update(tf.IndexedSlices(new_v, indices)),
      var.scatter_sub(tf.IndexedSlices(step, indices)),
    )

  def _finish(self, update_ops, name_scope):
    with tf.control_dependencies(update_ops):
      power = self._get_power()
      update = power.assign(power * self._beta1)
    return tf.group(*update_ops, update, name=name_scope)
