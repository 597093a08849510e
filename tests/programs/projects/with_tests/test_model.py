import tensorflow.compat.v1 as tf

import ranker


class RankerTest(tf.test.TestCase):

  def losses(self, make_scale):
    with tf.Graph().as_default(), tf.Session() as sess:
      model = ranker.Ranker(make_scale())
      sess.run(tf.global_variables_initializer())
      return model.train(sess, [1., 2., 3.], 4)

  def test_scales_agree(self):
    fixed = self.losses(lambda: ranker.PowerOfTwo(4))
    dynamic = self.losses(lambda: ranker.DynamicLossScale(2. ** 10, increment_period=1))
    print(fixed)
    self.assertAllClose(fixed, dynamic, atol=1e-3)
    self.assertLess(fixed[-1], fixed[0])


if __name__ == '__main__':
  tf.test.main()
