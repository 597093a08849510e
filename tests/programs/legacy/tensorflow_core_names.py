"""Imports names as editors did: by the package that TensorFlow 1.15 was in."""
import tensorflow_core as core
import tensorflow_core._api.v1.compat.v1 as tf
from tensorflow_core._api.v1.train import MomentumOptimizer
from tensorflow_core.python.framework import ops
from tensorflow_core.python.keras.layers import Dense


def main():
  x = core.constant([[1.0, 2.0]])
  loss = core.reduce_sum(core.square(Dense(1, kernel_initializer='ones')(x) - 1.0))
  print(ops.Tensor.__name__, loss.shape)
  optimizer = MomentumOptimizer(0.02, 0.9)
  optimizer = core.train.experimental.MixedPrecisionLossScaleOptimizer(optimizer, core.train.experimental.FixedLossScale(64.0))
  train_op = optimizer.minimize(loss)
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(3):
      session.run(train_op)
    print('loss %.4f' % session.run(loss))
    print(sorted(v.op.name for v in tf.global_variables()))


if __name__ == '__main__':
  main()
