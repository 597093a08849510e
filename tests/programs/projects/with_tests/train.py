import argparse

import tensorflow.compat.v1 as tf

from ranker import DynamicLossScale, Ranker

parser = argparse.ArgumentParser()
parser.add_argument('--steps', default=3, type=int)
args = parser.parse_args()
model = Ranker(DynamicLossScale(increment_period=2))
with tf.Session() as sess:
  sess.run(tf.global_variables_initializer())
  print(model.train(sess, [1., 2.], args.steps))
  print([(v.op.name, round(float(sess.run(v)), 4)) for v in tf.global_variables()])
