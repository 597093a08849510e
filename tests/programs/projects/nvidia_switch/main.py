# Copyright (c) 2019, NVIDIA CORPORATION. All rights reserved.
# Licensed under the Apache License, Version 2.0.
import argparse
import os

import tensorflow as tf

from model.unet import unet
from utils import hooks, hvd_utils


def parse_args():
    parser = argparse.ArgumentParser(description='UNet-mini')
    parser.add_argument('--amp', dest='use_amp', action='store_true')
    parser.add_argument('--max_steps', type=int, default=6)
    return parser.parse_args()


def main():
    flags = parse_args()
    tf.get_variable_scope().set_use_resource(True)
    if flags.use_amp:
        os.environ['TF_ENABLE_AUTO_MIXED_PRECISION'] = '1'

    if hvd_utils.is_main():
        print('amp', flags.use_amp)
    features = tf.placeholder(tf.float32, [2, 3], name='features')
    loss = unet(features)
    optimizer = tf.train.MomentumOptimizer(learning_rate=0.01, momentum=0.5)
    train_op = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
    with tf.train.MonitoredTrainingSession(hooks=[hooks.StopAt(flags.max_steps)]) as sess:
        while not sess.should_stop():
            _, value = sess.run([train_op, loss], {features: [[1, 2, 3], [4, 5, 6]]})
            print('loss %.4f' % value)
    for v in tf.global_variables():
        print(v.op.name)


if __name__ == '__main__':
    main()
