import numpy as np

import config
from core import graph, optim
import tensorflow as tf


def main():
    data = np.arange(config.BATCH * 3).reshape(config.BATCH, 3)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(4):
            loss, _ = sess.run([graph.loss, optim.train_op], {graph.x: data})
            print('step %d loss %.3f' % (sess.run(optim.global_step), loss))
        print(' '.join('%.4f' % x for x in sess.run(graph.w).ravel()))
    print([v.op.name for v in tf.global_variables()])


main()
