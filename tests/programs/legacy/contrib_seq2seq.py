"""Trains and searches with tf.contrib.seq2seq; prints sums and variables."""

import numpy as np
import tensorflow as tf

from tensorflow.contrib.seq2seq.python.ops import attention_wrapper

rnn, seq2seq = tf.contrib.rnn, tf.contrib.seq2seq
rng = np.random.RandomState(0)
MEMORY = rng.uniform(-1, 1, (2, 4, 3)).astype("f")
INPUTS = rng.uniform(-1, 1, (2, 5, 3)).astype("f")
TARGETS = [[1, 2, 3, 0, 0], [1, 5, 0, 0, 0]]


class Waves(object):

    def __call__(self, shape, dtype=tf.float32, partition_info=None, **kwargs):
        size = int(np.prod(shape))
        values = np.sin(np.arange(size) * 0.7 + 1) * 0.9
        return tf.constant(values.reshape(shape), dtype)


def show(name, build):
    with tf.Graph().as_default(), tf.Session() as sess:
        with tf.variable_scope("s", initializer=Waves()):
            tensors = build()
        sess.run(tf.global_variables_initializer())
        for value in sess.run(tensors):
            if value.dtype.kind == "f":
                print(name, value.shape, "%.3f" % np.abs(value).sum())
            else:
                print(name, value.tolist())
        for v in tf.trainable_variables():
            print(" ", v.op.name, v.shape.as_list())


def train(mechanism, layer):
    mechanism = mechanism(tf.constant(MEMORY), memory_sequence_length=[4, 2])
    cell = attention_wrapper.AttentionWrapper(
        rnn.GRUCell(5), mechanism, layer, alignment_history=True)
    helper = seq2seq.TrainingHelper(tf.constant(INPUTS), [5, 3])
    decoder = seq2seq.BasicDecoder(
        cell, helper, cell.zero_state(2, tf.float32),
        tf.layers.Dense(6, use_bias=False))
    outputs, state, lengths = seq2seq.dynamic_decode(
        decoder, impute_finished=True)
    loss = seq2seq.sequence_loss(
        outputs.rnn_output, tf.constant(TARGETS),
        tf.sequence_mask(lengths, 5, tf.float32))
    gradients = tf.gradients(loss, tf.trainable_variables())
    sums = tf.stack([tf.reduce_sum(tf.abs(g)) for g in gradients])
    return [outputs.rnn_output, outputs.sample_id, lengths, loss, sums,
            state.cell_state, state.alignment_history.stack()]


def search():
    embeddings = tf.get_variable("embeddings", [7, 3])
    memory = seq2seq.tile_batch(tf.constant(MEMORY), 3)
    lengths = seq2seq.tile_batch(tf.constant([4, 2]), 3)
    start = tf.constant([[.1, .2, .3, .4, .5], [1, -1, 1, -1, .2]])
    cell = seq2seq.AttentionWrapper(
        rnn.GRUCell(5), seq2seq.BahdanauAttention(4, memory, lengths), 3)
    state = cell.zero_state(6, tf.float32).clone(
        cell_state=seq2seq.tile_batch(start, 3))
    decoder = seq2seq.BeamSearchDecoder(
        cell, embeddings, tf.fill([2], 1), 2, state, 3, tf.layers.Dense(7),
        length_penalty_weight=0.8, coverage_penalty_weight=0.3)
    outputs, state, lengths = seq2seq.dynamic_decode(
        decoder, maximum_iterations=6)
    steps = outputs.beam_search_decoder_output
    return [outputs.predicted_ids, steps.parent_ids, steps.scores,
            state.log_probs, state.lengths, state.cell_state.attention]


def sample():
    embeddings = tf.get_variable("embeddings", [7, 3])
    cell = rnn.LSTMCell(4)
    decoder = seq2seq.BasicDecoder(
        cell, seq2seq.GreedyEmbeddingHelper(embeddings, [1, 4], 6),
        cell.zero_state(2, tf.float32), tf.layers.Dense(7))
    outputs, _, lengths = seq2seq.dynamic_decode(decoder, maximum_iterations=6)
    return [outputs.sample_id, outputs.rnn_output, lengths,
            seq2seq.hardmax(outputs.rnn_output)]


show("bahdanau", lambda: train(
    lambda *a, **k: seq2seq.BahdanauAttention(4, normalize=True, *a, **k), 3))
show("luong", lambda: train(
    lambda *a, **k: seq2seq.LuongAttention(5, scale=True, *a, **k), None))
show("search", search)
show("sample", sample)
