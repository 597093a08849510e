"""A program for Ascend's NPUs, with a session of its own."""
from __future__ import print_function

import tempfile

from npu_bridge.npu_init import *
from npu_bridge.estimator.npu.npu_loss_scale_optimizer import NPULossScaleOptimizer
from npu_bridge.estimator.npu.npu_loss_scale_manager import ExponentialUpdateLossScaleManager
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.ERROR)


def get_config():
  config = tf.ConfigProto()
  custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
  custom_op.name = "NpuOptimizer"
  custom_op.parameter_map["use_off_line"].b = True
  custom_op.parameter_map["precision_mode"].s = tf.compat.as_bytes("allow_mix_precision")
  config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
  return config


def train(factors, folder):
  with tf.Graph().as_default():
    w = tf.get_variable('w', initializer=[1., 2.])
    factor = tf.placeholder(tf.float32, [])
    loss = tf.reduce_sum(npu_ops.dropout(w * w, 1.0)) * factor
    opt = npu_tf_optimizer(tf.train.AdamOptimizer(0.1))
    manager = ExponentialUpdateLossScaleManager(init_loss_scale=2 ** 16, incr_every_n_steps=2,
                                                decr_every_n_nan_or_inf=1, decr_ratio=0.5)
    opt = NPULossScaleOptimizer(opt, manager, is_distributed=get_npu_rank_size() > 1)
    step = tf.train.get_or_create_global_step()
    train_op = opt.minimize(loss, global_step=step)
    saver = tf.train.Saver()
    with tf.Session(config=get_config()) as sess:
      sess.run(tf.global_variables_initializer())
      if tf.train.latest_checkpoint(folder):
        saver.restore(sess, tf.train.latest_checkpoint(folder))
      for value in factors:
        sess.run(train_op, {factor: value})
        print('scale %g  good %d  step %d  w %s' % (
            sess.run('loss_scale:0'), sess.run(manager._num_good_steps), sess.run(step), sess.run(w).round(4)))
      saver.save(sess, folder + '/model', step)


folder = tempfile.mkdtemp()
for i in range(2):
  train([1., 1., float('inf'), 1.], folder)
print(sorted(name for name, _ in tf.train.list_variables(tf.train.latest_checkpoint(folder))))
