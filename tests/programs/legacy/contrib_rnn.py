"""Trains and searches with tf.contrib.rnn and seq2seq; prints sums and variables."""

import numpy as np
import tensorflow as tf

from tensorflow.contrib.seq2seq.python.ops import attention_wrapper

rnn, seq2seq = tf.contrib.rnn, tf.contrib.seq2seq
INPUTS = np.random.RandomState(0).uniform(-1, 1, (2, 5, 3)).astype("f")
TARGETS = tf.constant([[1, 2, 3, 0, 0], [1, 5, 0, 0, 0]])
LENGTHS = [5, 3]


class Waves(object):

    def __call__(self, shape, dtype=tf.float32, partition_info=None, **kwargs):
        size = int(np.prod(shape))
        values = np.sin(np.arange(size) * 0.7 + 1) * 0.4
        return tf.constant(values.reshape(shape), dtype)


def encode():
    backwards = rnn.TimeReversedFusedRNN(rnn.LSTMBlockFusedCell(3))
    inputs = tf.constant(INPUTS.transpose([1, 0, 2]))
    return backwards(inputs, dtype=tf.float32, sequence_length=LENGTHS)[0]


def train():
    memory = tf.transpose(encode(), [1, 0, 2])
    cell = attention_wrapper.AttentionWrapper(
        rnn.MultiRNNCell([rnn.HighwayWrapper(rnn.GRUCell(6)), rnn.NASCell(4)]),
        seq2seq.BahdanauAttention(4, memory, LENGTHS, normalize=True), 3)
    decoder = seq2seq.BasicDecoder(
        cell, seq2seq.TrainingHelper(tf.constant(INPUTS), LENGTHS),
        cell.zero_state(2, tf.float32), tf.layers.Dense(6, use_bias=False))
    outputs, _, lengths = seq2seq.dynamic_decode(decoder, impute_finished=True)
    return outputs, lengths, seq2seq.sequence_loss(
        outputs.rnn_output, TARGETS, tf.sequence_mask(lengths, 5, tf.float32))


def search():
    embeddings = tf.get_variable("embeddings", [7, 3])
    start = rnn.LSTMStateTuple(*tf.unstack(tf.constant(INPUTS[:, :2]), axis=1))
    decoder = seq2seq.BeamSearchDecoder(
        rnn.LayerNormBasicLSTMCell(3), embeddings, tf.fill([2], 1), 2,
        seq2seq.tile_batch(start, 3), 3, tf.layers.Dense(7))
    return seq2seq.dynamic_decode(decoder, maximum_iterations=6)[0]


with tf.variable_scope("train", initializer=Waves()):
    outputs, lengths, loss = train()
with tf.variable_scope("search", initializer=Waves()):
    found = search()
variables = tf.trainable_variables("train/")
sums = [tf.reduce_sum(tf.abs(g)) for g in tf.gradients(1e3 * loss, variables)]
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    print(sess.run(outputs.sample_id).tolist(), sess.run(lengths).tolist())
    print("loss %.4f" % sess.run(loss), sess.run(found.predicted_ids).tolist())
    for v, value in zip(variables, sess.run(sums)):
        print(v.op.name, v.shape.as_list(), "%.3f" % value)
    print(*[v.op.name for v in tf.trainable_variables("search/")])
