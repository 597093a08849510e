import tensorflow.compat.v1 as tf


class Ranker(object):
  """Ranks by one weight; `train` returns the losses."""

  def __init__(self, loss_scale):
    self.scores = tf.placeholder(tf.float32, [None], 'scores')
    self.weight = tf.get_variable('weight', shape=[], initializer=tf.zeros_initializer)
    self.loss = tf.reduce_mean(tf.nn.softplus(-self.scores * self.weight))
    optimizer = tf.train.AdamOptimizer(0.5)
    optimizer = tf.train.experimental.MixedPrecisionLossScaleOptimizer(optimizer, loss_scale)
    self.train_op = optimizer.minimize(self.loss)

  def train(self, sess, scores, steps):
    feed = {self.scores: scores}
    return [round(float(sess.run([self.loss, self.train_op], feed)[0]), 4) for _ in range(steps)]
