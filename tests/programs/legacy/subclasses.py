"""Subclasses that set and override what the classes of 1.15 have, as programs did."""
from __future__ import print_function

import tensorflow as tf
from tensorflow.python.training.experimental import loss_scale as loss_scale_module
from tensorflow.python.training.experimental.loss_scale_optimizer import MixedPrecisionLossScaleOptimizer as MixedPrecision

tf.logging.set_verbosity(tf.logging.ERROR)
contrib = tf.contrib.mixed_precision
experimental = tf.train.experimental
INF = float('inf')
FACTORS = [1., 1., INF, 1., INF, 1., 1., INF, INF, 1.]


def sgd(rate=0.125):
  return tf.train.GradientDescentOptimizer(rate)


def variable(name, value, dtype=tf.float32):
  return tf.get_variable(name, [], dtype, tf.constant_initializer(value), trainable=False)


def train(title, make, extra=lambda opt: [], feed=lambda opt: {}):
  with tf.Graph().as_default():
    w = tf.get_variable('w', initializer=[1., 2.])
    factor = tf.placeholder(tf.float32, [])
    opt = make()
    step = tf.train.get_or_create_global_step()
    pairs = opt.compute_gradients(tf.reduce_sum(w * w) * factor)
    train_op = opt.apply_gradients(pairs, global_step=step)
    more = [tf.convert_to_tensor(each) for each in extra(opt)]
    with tf.Session() as sess:
      sess.run(tf.global_variables_initializer())
      seen = []
      for value in FACTORS:
        sess.run(train_op, dict([(factor, value)] + list(feed(opt).items())))
        seen.append('/'.join('%g' % each for each in sess.run(more)))
      print(title, *seen)
      print('  step %d  w %s' % (sess.run(step), sess.run(w).round(6)))


def manager_state(opt):
  manager = opt._loss_scale_manager
  return [manager.get_loss_scale(), manager._num_good_steps, manager._num_bad_steps]


def with_manager(title, make, extra=manager_state, **kwargs):
  train(title, lambda: contrib.LossScaleOptimizer(sgd(), make()), extra, **kwargs)


class Base(contrib.ExponentialUpdateLossScaleManager):

  def __init__(self):
    super(Base, self).__init__(1024., 2, 2, 4, 0.25)


class SetsAfter(Base):

  def __init__(self):
    super(SetsAfter, self).__init__()
    self._loss_scale = variable('mine', 64.)
    self._num_good_steps = variable('good', 1, tf.int32)
    self._num_bad_steps = variable('bad', 1, tf.int32)
    self._incr_every_n_steps = 3
    self._decr_every_n_nan_or_inf = 1
    self._incr_ratio = tf.constant(2.)
    self._decr_ratio = 0.5


class NoSuper(contrib.ExponentialUpdateLossScaleManager):

  def __init__(self):
    self._loss_scale = variable('mine', 32.)
    self._num_good_steps = variable('good', 0, tf.int32)
    self._num_bad_steps = variable('bad', 0, tf.int32)
    self._incr_every_n_steps, self._decr_every_n_nan_or_inf = 2, 1
    self._incr_ratio, self._decr_ratio = 2., 0.5


class Capped(Base):

  def get_loss_scale(self):
    return tf.minimum(super(Capped, self).get_loss_scale(), 2048.)

  def update_loss_scale(self, finite_grads):
    update = super(Capped, self).update_loss_scale(finite_grads)
    with tf.control_dependencies([update]):
      return tf.assign(self._loss_scale, tf.maximum(self._loss_scale, 512.)).op


class NamesOfItsOwn(Base):
  """Has attributes that the class of 1.15 lacked."""

  def __init__(self):
    self._value = self._state = self._scale = 'mine'
    super(NamesOfItsOwn, self).__init__()
    self._weights, self._recipes, self._waiting = [1], [2], [3]
    self.loss_scale, self.good_steps, self.bad_steps = 'a', 'b', 'c'
    self._graph, self._manager = 'd', 'e'


for cls in [Base, SetsAfter, NoSuper, Capped]:
  with_manager(cls.__name__, cls)


def own_names():
  manager = NamesOfItsOwn()
  print(manager._value, manager._state, manager._scale, manager._weights, manager._recipes, manager._waiting)
  print(manager.loss_scale, manager.good_steps, manager.bad_steps, manager._graph, manager._manager)
  return manager


with_manager('NamesOfItsOwn', own_names)


def changed(**attributes):
  """A manager whose attributes are set from outside."""
  manager = Base()
  for name, value in attributes.items():
    setattr(manager, name, value)
  return manager


with_manager('changed', lambda: changed(_incr_every_n_steps=1, _incr_ratio=8))


class Fixed(contrib.FixedLossScaleManager):

  def __init__(self, value):
    self._loss_scale = self._value = 5.
    super(Fixed, self).__init__(8.)
    self._loss_scale = value


class FixedNoSuper(contrib.FixedLossScaleManager):

  def __init__(self):
    self._loss_scale = variable('mine', 16.)


def fixed_state(opt):
  return [opt._loss_scale_manager.get_loss_scale(), opt._loss_scale_manager._loss_scale]


with_manager('Fixed number', lambda: Fixed(32.), fixed_state)
with_manager('Fixed no super', FixedNoSuper, fixed_state)
# A gradient of 2e38 / 1e38 is too large for a scale of 1e38 that is fed.
with_manager('Fixed fed', lambda: contrib.FixedLossScaleManager(8.), lambda opt: [],
             feed=lambda opt: {opt._loss_scale_manager.get_loss_scale(): 1e38})


class Plain(contrib.LossScaleManager):

  def __init__(self):
    self._loss_scale, self._weights, self._state = variable('plain', 8.), None, {}

  def get_loss_scale(self):
    return self._loss_scale

  def update_loss_scale(self, finite_grads):
    return tf.assign_add(self._loss_scale, tf.cast(finite_grads, tf.float32)).op


with_manager('Plain', Plain, lambda opt: [opt._loss_scale_manager._loss_scale])


class Replaced(contrib.LossScaleOptimizer):

  def __init__(self):
    super(Replaced, self).__init__(sgd(100.), Base())
    self._opt = sgd()
    self._loss_scale_manager = SetsAfter()


def scaled(grads_and_vars, factor):
  return [(grad * factor, var) for grad, var in grads_and_vars]


class Around(contrib.LossScaleOptimizer):

  def compute_gradients(self, *args, **kwargs):
    return scaled(super(Around, self).compute_gradients(*args, **kwargs), 0.5)

  def apply_gradients(self, grads_and_vars, *args, **kwargs):
    return super(Around, self).apply_gradients(scaled(grads_and_vars, 0.5), *args, **kwargs)


train('Replaced', Replaced, manager_state)
train('Around', lambda: Around(sgd(), Base()), manager_state)

assert isinstance(loss_scale_module.get('dynamic'), experimental.DynamicLossScale)


class Dynamic(experimental.DynamicLossScale):

  def __init__(self):
    self._current_loss_scale = self._num_good_steps = self._multiplier = None
    super(Dynamic, self).__init__(1024., 2, 4.)


class DynamicSet(Dynamic):

  def __init__(self):
    super(DynamicSet, self).__init__()
    self._current_loss_scale = tf.get_variable('mine', initializer=64., trainable=False, use_resource=True)
    self._num_good_steps = tf.get_variable('good', initializer=tf.constant(1, tf.int64), trainable=False, use_resource=True)
    self._increment_period, self._multiplier, self._initial_loss_scale = 3, 2., 64.

  multiplier = property(lambda self: 3.)


class FixedSet(experimental.FixedLossScale):

  def __init__(self):
    super(FixedSet, self).__init__(8)
    self._loss_scale_value = 16.


class Weights(loss_scale_module.LossScale):
  """Sets what the constructor would set."""

  def __init__(self):
    self._weights = {}
    self._value = self._add_weight('value', 8., tf.float32)

  def __call__(self):
    return tf.convert_to_tensor(self._value)

  def update(self, grads):
    return tf.no_op(), True

  def get_config(self):
    return {}


def scale_state(opt):
  return [opt._loss_scale(), opt._loss_scale._num_good_steps]


def shown(scale):
  print(scale.get_config())
  return scale


train('Dynamic', lambda: MixedPrecision(sgd(), Dynamic()), scale_state)
train('DynamicSet', lambda: MixedPrecision(sgd(), shown(DynamicSet())), scale_state)
for cls in [FixedSet, Weights]:
  train(cls.__name__, lambda: MixedPrecision(sgd(), shown(cls())), lambda opt: [opt._loss_scale()])


def replaced():
  opt = MixedPrecision(sgd(100.), Dynamic())
  opt._optimizer, opt._loss_scale = sgd(), DynamicSet()
  return opt


train('replaced', replaced, scale_state)
