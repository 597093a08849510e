from __future__ import absolute_import, division, print_function

import tensorflow as tf
tf.enable_eager_execution()

from lib import losses
from lib.net import Net


def main():
    net = Net()
    loss_scale = tf.train.experimental.DynamicLossScale(2. ** 100, increment_period=3)
    opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(
        tf.train.AdamOptimizer(0.1), loss_scale)
    step = tf.train.get_or_create_global_step()
    x = tf.constant([[1., 2.], [3., 4.]])
    net(x)  # creates the variables
    for i in range(6):
        factor = 2. ** 40 if i == 2 else 1.
        opt.minimize(lambda: factor * losses.mean(net(x), 1.), var_list=net.trainable_variables, global_step=step)
        print('step %d loss %.4f scale %g' % (step.numpy(), losses.mean(net(x), 1.).numpy(), loss_scale().numpy()))
    saver = tf.train.Checkpoint(net=net, opt=opt)
    print(sorted(tf.train.list_variables(saver.save('ckpt/model')))[:4])


if __name__ == '__main__':
    main()
