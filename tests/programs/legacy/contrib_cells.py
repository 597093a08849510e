"""Runs cells of tf.contrib.rnn; prints losses, gradients and variables."""

import numpy as np
import tensorflow as tf

rnn = tf.contrib.rnn
INPUTS = np.random.RandomState(0).uniform(-1, 1, (2, 3, 4)).astype("f")
LENGTHS = [2, 1, 1]


class Waves(tf.keras.initializers.Initializer):

    def __call__(self, shape, dtype=tf.float32, partition_info=None, **kwargs):
        size = int(np.prod(shape))
        values = np.sin(np.arange(size) * 0.7 + 1) * 0.4
        return tf.constant(values.reshape(shape), dtype)


results = []


def show(name, build):
    with tf.variable_scope(name, initializer=Waves()):
        outputs = build(tf.constant(INPUTS))
    tensors = tf.contrib.framework.nest.flatten(outputs)
    loss = tf.add_n([tf.reduce_sum(tf.square(t)) for t in tensors])
    variables = tf.trainable_variables(name + "/")
    gradients = tf.gradients(loss, variables)
    sums = tf.stack([tf.reduce_sum(tf.abs(g)) for g in gradients])
    results.append((name, variables, loss, sums))


def run(name, make):
    show(name, lambda x: tf.nn.static_rnn(
        make(), tf.unstack(x), dtype=tf.float32))


def both_ways(x):
    forwards = rnn.LSTMBlockFusedCell(3)
    backwards = rnn.TimeReversedFusedRNN(rnn.LSTMBlockFusedCell(3))
    kwargs = dict(dtype=tf.float32, sequence_length=LENGTHS)
    return (forwards(x, scope="fw", **kwargs),
            backwards(x, scope="bw", **kwargs))


run("LayerNorm", lambda: rnn.LayerNormBasicLSTMCell(3))
run("LSTMBlock", lambda: rnn.LSTMBlockCell(3, use_peephole=True, cell_clip=.5))
show("LSTMBlockFused", both_ways)
run("GRUBlockV2", lambda: rnn.GRUBlockCellV2(3))
run("NAS", lambda: rnn.NASCell(3, num_proj=2, use_bias=True))
run("UGRNN", lambda: rnn.UGRNNCell(3))
run("SRU", lambda: rnn.SRUCell(3))
run("projections", lambda: rnn.OutputProjectionWrapper(
    rnn.InputProjectionWrapper(rnn.GRUCell(3), 2), 2))
run("Attention", lambda: rnn.AttentionCellWrapper(rnn.BasicLSTMCell(3), 2))
run("Highway", lambda: rnn.MultiRNNCell(
    [rnn.HighwayWrapper(rnn.GRUCell(4)), rnn.ResidualWrapper(rnn.GRUCell(4))]))
show("stack", lambda x: rnn.stack_bidirectional_rnn(
    [rnn.GRUCell(2), rnn.GRUCell(3)], [rnn.GRUCell(2), rnn.GRUCell(3)],
    tf.unstack(x), dtype=tf.float32))
show("dynamic", lambda x: tf.nn.dynamic_rnn(
    rnn.LSTMBlockCell(3), x, LENGTHS, dtype=tf.float32, time_major=True))

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    values = sess.run([result[2:] for result in results])
for (name, variables, _, _), (loss, sums) in zip(results, values):
    print(name, "%.4f" % loss, " ".join("%.3f" % s for s in sums))
    for v in variables:
        print(" ", v.op.name, v.shape.as_list())
