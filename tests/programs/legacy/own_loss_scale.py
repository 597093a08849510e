"""A loss scale of one's own, built on the private module as people did."""
import tensorflow as tf
from tensorflow.python.training.experimental import loss_scale as loss_scale_module
from tensorflow.python.training.experimental.loss_scale_optimizer import MixedPrecisionLossScaleOptimizer

tf.logging.set_verbosity(tf.logging.ERROR)


class Decaying(loss_scale_module.LossScale):
  """Halves with every call of step_down()."""

  def __init__(self, start):
    super(Decaying, self).__init__()
    self._start = start
    self._value = self._add_weight('value', start, tf.float32)

  def __call__(self):
    return tf.convert_to_tensor(self._value)

  def update(self, grads):
    return tf.no_op(), True

  def step_down(self):
    return self._value.assign(self._value / 2.)

  def get_config(self):
    return {'start': self._start}


scale = Decaying(64.)
w = tf.get_variable('w', [], initializer=tf.ones_initializer())
opt = MixedPrecisionLossScaleOptimizer(tf.train.GradientDescentOptimizer(0.5), scale)
op = opt.minimize(w * w)
step_down = scale.step_down()
assert isinstance(loss_scale_module.get('dynamic'), loss_scale_module.DynamicLossScale)
with tf.Session() as sess:
  sess.run(tf.global_variables_initializer())
  sess.run(op)
  sess.run(step_down)
  print('w %g  scale %g  config %s' % (sess.run(w), sess.run(scale()), scale.get_config()))
