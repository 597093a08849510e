import numpy as np
import tensorflow as tf

from nets import nets_factory

flags = tf.app.flags
flags.DEFINE_string('model', 'vgg_tiny', 'The network.')
flags.DEFINE_integer('max_steps', 5, 'How long to train.')
FLAGS = flags.FLAGS


def main(unused_argv):
  tf.logging.set_verbosity(tf.logging.FATAL)
  with tf.Graph().as_default():
    step = tf.contrib.framework.get_or_create_global_step()
    images = tf.constant(np.linspace(0, 1, 2 * 4 * 4 * 3).reshape(2, 4, 4, 3), tf.float32)
    labels = tf.constant([0, 1])
    network = nets_factory.get_network(FLAGS.model)
    logits, end_points = network(images, 2)
    tf.losses.sparse_softmax_cross_entropy(labels, logits)
    loss = tf.losses.get_total_loss()
    manager = tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager(
        init_loss_scale=2 ** 12, incr_every_n_steps=2)
    optimizer = tf.contrib.mixed_precision.LossScaleOptimizer(
        tf.train.GradientDescentOptimizer(0.5), manager)
    train_op = tf.contrib.layers.optimize_loss(
        loss, step, learning_rate=None, optimizer=optimizer, summaries=[])
    print(sorted(end_points))
    for v in tf.contrib.framework.get_model_variables():
      print(v.op.name, v.shape.as_list())
    with tf.train.MonitoredTrainingSession() as sess:
      for _ in range(FLAGS.max_steps):
        value, i = sess.run([train_op, step])
        print('step %d loss %.4f' % (i, value))
      print('scale %g' % sess.run(manager.get_loss_scale()))


if __name__ == '__main__':
  tf.app.run()
