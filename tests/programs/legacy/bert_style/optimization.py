"""An optimizer that makes its slots in apply_gradients, and a schedule."""
import re

import tensorflow as tf


def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps, use_fp16):
  global_step = tf.train.get_or_create_global_step()
  learning_rate = tf.train.polynomial_decay(
      tf.constant(value=init_lr, shape=[], dtype=tf.float32), global_step, num_train_steps, end_learning_rate=0.0)
  warmup = tf.cast(global_step, tf.float32) / tf.cast(num_warmup_steps, tf.float32)
  is_warmup = tf.cast(global_step < num_warmup_steps, tf.float32)
  learning_rate = (1.0 - is_warmup) * learning_rate + is_warmup * init_lr * warmup
  optimizer = AdamWeightDecayOptimizer(learning_rate, weight_decay_rate=0.01, exclude_from_weight_decay=['bias'])
  if use_fp16:
    loss_scaler = tf.train.experimental.DynamicLossScale(initial_loss_scale=2 ** 32, increment_period=2,
                                                         multiplier=2.0)
    optimizer = tf.train.experimental.MixedPrecisionLossScaleOptimizer(optimizer, loss_scaler)
    tf.identity(loss_scaler(), name='loss_scale')
  tvars = tf.trainable_variables()
  grads_and_vars = optimizer.compute_gradients(loss, tvars)
  grads_and_vars = [(g, v) for g, v in grads_and_vars if g is not None]
  grads, tvars = list(zip(*grads_and_vars))
  all_are_finite = tf.reduce_all([tf.reduce_all(tf.is_finite(g)) for g in grads])
  (clipped, _) = tf.clip_by_global_norm(
      grads, clip_norm=1.0,
      use_norm=tf.cond(all_are_finite, lambda: tf.global_norm(grads), lambda: tf.constant(1.0)))
  train_op = optimizer.apply_gradients(list(zip(clipped, tvars)), global_step=global_step)
  return train_op


class AdamWeightDecayOptimizer(tf.train.Optimizer):
  """Adam with weight decay, as in BERT."""

  def __init__(self, learning_rate, weight_decay_rate=0.0, beta_1=0.9, beta_2=0.999, epsilon=1e-6,
               exclude_from_weight_decay=None, name='AdamWeightDecayOptimizer'):
    super(AdamWeightDecayOptimizer, self).__init__(False, name)
    self.learning_rate = tf.identity(learning_rate, name='learning_rate')
    self.weight_decay_rate = weight_decay_rate
    self.beta_1 = beta_1
    self.beta_2 = beta_2
    self.epsilon = epsilon
    self.exclude_from_weight_decay = exclude_from_weight_decay

  def apply_gradients(self, grads_and_vars, global_step=None, name=None, manual_fp16=False):
    assignments = []
    for (grad, param) in grads_and_vars:
      if grad is None or param is None:
        continue
      param_name = re.match('^(.*):\\d+$', param.name).group(1)
      m = tf.get_variable(name=param_name + '/adam_m', shape=param.shape.as_list(), dtype=tf.float32, trainable=False,
                          initializer=tf.zeros_initializer())
      v = tf.get_variable(name=param_name + '/adam_v', shape=param.shape.as_list(), dtype=tf.float32, trainable=False,
                          initializer=tf.zeros_initializer())
      next_m = tf.multiply(self.beta_1, m) + tf.multiply(1.0 - self.beta_1, grad)
      next_v = tf.multiply(self.beta_2, v) + tf.multiply(1.0 - self.beta_2, tf.square(grad))
      update = next_m / (tf.sqrt(next_v) + self.epsilon)
      if not any(re.search(r, param_name) for r in self.exclude_from_weight_decay or []):
        update += self.weight_decay_rate * param
      assignments.extend([param.assign(param - self.learning_rate * update), m.assign(next_m), v.assign(next_v)])
    new_global_step = tf.identity(global_step + 1, name='step_update')
    return tf.group(*(assignments + [global_step.assign(new_global_step)]), name=name)
