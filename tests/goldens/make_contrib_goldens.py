"""Records what the pieces of tf.contrib compute, one function for each name.

    python make_contrib_goldens.py OUTPUT.json

The same program runs on TensorFlow 1.15.5, which wrote `contrib/values.json`,
and on TensorFlow 2 after `tf_compat_lossscale.install()`. It sets each
trainable variable to fixed waves, and records for each name:

    NAME/0, NAME/1, ...  the values that its function returns, flattened
    NAME/grad/VARIABLE   the gradient of the sum of squares of these values
    NAME/variables       the names of all variables, sorted

A value is a dtype, a shape and a list of elements.
"""

import json
import sys
import tempfile

import numpy as np
import tensorflow

if not tensorflow.__version__.startswith("1."):
    import tf_compat_lossscale

    tf_compat_lossscale.install()

import tensorflow.compat.v1 as tf
from tensorflow.contrib import crf, cudnn_rnn, data, distribute, framework
from tensorflow.contrib import layers, learn, legacy_seq2seq, lookup, opt, rnn
from tensorflow.contrib import seq2seq, sparsemax, training
from tensorflow.contrib.rnn.python.ops import core_rnn_cell
from tensorflow.contrib.seq2seq.python.ops import attention_wrapper

X = np.random.RandomState(0).uniform(-1, 1, (3, 2, 4)).astype("f")
MEMORY = np.random.RandomState(1).uniform(-1, 1, (2, 4, 3)).astype("f")
LENGTHS = [3, 2]
CASES = {}


def case(function):
    """Registers a function `module__name` as the case of `module.name`."""
    CASES[function.__name__.replace("__", ".", 1)] = function
    return function


def add(name, function):
    CASES[name] = function


def wave(shape, phase=0):
    size = int(np.prod(shape))
    return (np.sin(np.arange(size) * 0.7 + 1 + phase) * 0.6).reshape(shape)


# Datasets.


def elements(transformation, dataset=None):
    dataset = tf.data.Dataset.range(10) if dataset is None else dataset
    dataset = dataset.apply(transformation)
    following = tf.data.make_one_shot_iterator(dataset).get_next()
    found = []
    while True:
        try:
            found.append(tf.get_default_session().run(following))
        except tf.errors.OutOfRangeError:
            return found


def numbers_and_pairs():
    numbers = tf.data.Dataset.range(7)
    return tf.data.Dataset.zip((numbers, numbers.batch(1)))


add("data.batch_and_drop_remainder", lambda:
    elements(data.batch_and_drop_remainder(3), numbers_and_pairs()))
add("data.padded_batch_and_drop_remainder", lambda: elements(
    data.padded_batch_and_drop_remainder(2, [None], np.int64(-1)),
    tf.data.Dataset.range(5).map(lambda n: tf.fill([n], n))))
add("data.sloppy_interleave", lambda: np.sort(elements(data.sloppy_interleave(
    lambda n: tf.data.Dataset.range(n).map(lambda x: x + 10 * n), 2, 2))))


# Strategies.


def strategy_case(make):
    def run():
        strategy = make()
        with strategy.scope():
            v = tf.get_variable("v", initializer=[1.0, 2.0])
            result = strategy.experimental_run_v2(
                lambda x: x * v.value() + 1.0, (tf.constant(3.0),))
        return [strategy.num_replicas_in_sync,
                strategy.experimental_local_results(result)]
    return run


add("distribute.CollectiveAllReduceStrategy",
    strategy_case(lambda: distribute.CollectiveAllReduceStrategy(0)))
add("distribute.MirroredStrategy",
    strategy_case(lambda: distribute.MirroredStrategy(num_gpus=0)))
add("distribute.OneDeviceStrategy",
    strategy_case(lambda: distribute.OneDeviceStrategy("/cpu:0")))
add("distribute.ParameterServerStrategy",
    strategy_case(lambda: distribute.ParameterServerStrategy(0)))


# Pieces of tf.contrib.framework.


def error_of(function, *args, **kwargs):
    """Returns the name of the error of a call; "" if there is none."""
    try:
        function(*args, **kwargs)
    except (TypeError, ValueError) as error:
        return np.array(type(error).__name__)
    return np.array("")


@case
def framework__get_name_scope():
    with tf.name_scope("a"), tf.name_scope("b"):
        inner = framework.get_name_scope()
    return [np.array(inner), np.array(framework.get_name_scope())]


@case
def framework__get_placeholders():
    first, second = (tf.placeholder(tf.float32, [n]) for n in (1, 2))
    tf.placeholder_with_default(1.0, [])
    found = framework.get_placeholders(tf.get_default_graph())
    return [len(found), found[0] is first, found[1] is second]


@case
def framework__remove_squeezable_dimensions():
    unknown = tf.placeholder_with_default(X[:, :, :1], [None, None, None])
    remove = framework.remove_squeezable_dimensions
    return [remove(tf.constant(X[..., :1]), tf.constant(X[..., 0])),
            remove(tf.constant(X[..., 0]), tf.constant(X[..., :1])),
            remove(tf.constant(X), tf.constant(X)),
            remove(unknown, tf.placeholder_with_default(X[..., 0], None))]


def unknown(value, shape=()):
    return tf.placeholder_with_default(value, shape)


def one():
    return tf.constant(1)


def two():
    return tf.constant(2)


add("framework.smart_case", lambda: [framework.smart_case(*given) for given in [
    ([(unknown(False), one), (tf.constant(True), two)],),
    ([(unknown(False), one)], two), ([(False, one)], two), ([(True, one)],)]])
add("framework.smart_cond", lambda: [framework.smart_cond(pred, one, two)
    for pred in (unknown(False), True, 0, tf.constant(False))])
add("framework.smart_constant_value", lambda: [
    np.array(str(framework.smart_constant_value(pred))) for pred in (
        unknown(False), True, False, 0, 1, np.bool_(True), 1.0,
        tf.constant(True))] + [error_of(framework.smart_constant_value, 2)])


@case
def framework__with_same_shape():
    unknown = tf.placeholder_with_default(X, [None, None, None])
    same = framework.with_same_shape
    right, checked = same(tf.constant(X), unknown), same(unknown, unknown)
    return [right, checked, np.array(str(right.shape)),
            error_of(same, tf.zeros([2]), tf.zeros([3]))]


@case
def framework__with_shape():
    unknown = tf.placeholder_with_default(X, [None, None, None])
    size = tf.placeholder_with_default(np.array([3, 2, 4], "i"), [3])
    right = framework.with_shape([3, 2, 4], unknown)
    return [right, framework.with_shape(size, unknown),
            np.array(str(right.shape)),
            error_of(framework.with_shape, [2], tf.zeros([3]))]


# Embeddings and tables.


def ids():
    return tf.constant([[1, 2, 0], [3, 3, 0]])


add("layers.embed_sequence", lambda: [layers.embed_sequence(ids(), 4, 2),
    layers.embed_sequence(ids(), 4, 2, unique=True, scope="unique")])


@case
def lookup__index_table_from_tensor():
    plain = lookup.index_table_from_tensor(["a", "b"], default_value=-3)
    buckets = lookup.index_table_from_tensor(["a", "b"], num_oov_buckets=3)
    numbers = lookup.index_table_from_tensor(
        np.array([30, 10], "i8"), dtype=tf.int64)
    keys = tf.constant(["b", "x", "y", "z", "a"])
    return [plain.lookup(keys), buckets.lookup(keys),
            numbers.lookup(tf.constant([10, 20, 30], tf.int64))]


add("lookup.index_to_string_table_from_tensor", lambda: [
    lookup.index_to_string_table_from_tensor(["a", "b"], *default).lookup(
        tf.constant([1, 7, 0, -1], tf.int64)) for default in ((), ("?",))])


# Optimizers.


def train(make, apply=None, linear=False):
    """Returns variables and slots after each of three steps, of each kind.

    With `linear`, gradients do not depend on the variables: 1.15 may read a
    variable for its gradient before or after it decayed.
    """
    found = []
    for use_resource in (False, True):
        for rows in (False, True):
            with tf.Graph().as_default(), tf.Session() as session:
                w = tf.get_variable("w", initializer=[1.0, -2.0, 3.0, 0.5],
                                    use_resource=use_resource)
                e = tf.get_variable("e", initializer=wave((4, 2)).astype("f"),
                                    use_resource=use_resource)
                # No row twice: TensorFlow sums such rows in any order.
                table = tf.gather(e, [1, 3]) if rows else e
                loss = tf.reduce_sum(table * (
                    wave(table.shape.as_list(), 2) if linear else table ** 2))
                loss += tf.reduce_sum(w * ([1, -2, 3, 0] if linear else w))
                optimizer = make(w, e)
                gradients = optimizer.compute_gradients(loss, [w, e])
                if apply is None:
                    step = optimizer.apply_gradients(gradients)
                else:
                    step = apply(optimizer, gradients, w, e)
                session.run(tf.global_variables_initializer())
                variables = sorted(tf.global_variables(), key=lambda v: v.name)
                found.append(np.array([v.op.name for v in variables]))
                for _ in range(3):
                    session.run(step)
                    found.append(np.concatenate(
                        [v.ravel() for v in session.run(variables)]))
    return found


def optimizer_case(name, make, *args):
    add("opt." + name, lambda: train(make, *args))


class DecayedAdagrad(opt.DecoupledWeightDecayExtension,
                     tf.train.AdagradOptimizer):
    def __init__(self, weight_decay, learning_rate):
        super(DecayedAdagrad, self).__init__(
            weight_decay, learning_rate=learning_rate)


def apply_to_w(optimizer, gradients, w, e):
    return optimizer.apply_gradients(gradients, decay_var_list=[w])


optimizer_case("AdamWOptimizer", lambda w, e: opt.AdamWOptimizer(0.1, 0.1),
               None, True)
optimizer_case("DecoupledWeightDecayExtension",
               lambda w, e: DecayedAdagrad(0.1, 0.2), apply_to_w, True)
optimizer_case("extend_with_decoupled_weight_decay", lambda w, e:
               opt.extend_with_decoupled_weight_decay(
                   tf.train.RMSPropOptimizer)(
                       weight_decay=0.1, learning_rate=0.1), None, True)
optimizer_case("LazyAdamOptimizer", lambda w, e: opt.LazyAdamOptimizer(0.1))
optimizer_case("NadamOptimizer", lambda w, e: opt.NadamOptimizer(0.1, 0.8))
optimizer_case("AdaMaxOptimizer", lambda w, e: opt.AdaMaxOptimizer(0.1, 0.8))
optimizer_case("LARSOptimizer", lambda w, e: opt.LARSOptimizer(
    1.0, weight_decay=0.01, eeta=0.1, use_nesterov=True))


@case
def opt__clip_gradients_by_global_norm():
    v = tf.get_variable("v", [3])
    pairs = [(tf.constant([3.0, 0.0, 4.0]), v), (None, v),
             (tf.constant([[12.0]]), v)]
    clipped, norm = opt.clip_gradients_by_global_norm(pairs, 2.0)
    return [clipped[0][0], clipped[1][0] is None, clipped[2][0], norm]


@case
def opt__MovingAverageOptimizer():
    def make(w, e):
        return opt.MovingAverageOptimizer(
            tf.train.MomentumOptimizer(0.1, 0.9), 0.5)
    found = train(make)
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=[1.0, -2.0])
        optimizer = make(w, w)
        step = optimizer.minimize(tf.reduce_sum(w * w))
        saver = optimizer.swapping_saver()
        session.run(tf.global_variables_initializer())
        session.run(step)
        path = saver.save(session, tempfile.mkdtemp() + "/model")
        reader = tf.train.load_checkpoint(path)
        return found + [reader.get_tensor(key)
                        for key in sorted(reader.get_variable_to_shape_map())]


# Cells.


def run_static(make):
    return lambda: tf.nn.static_rnn(
        make(), tf.unstack(tf.constant(X)), dtype=tf.float32)


def run_dynamic(make, inputs=X):
    return lambda: tf.nn.dynamic_rnn(
        make(), tf.constant(inputs), LENGTHS, dtype=tf.float32,
        time_major=True)


add("cudnn_rnn.CudnnCompatibleLSTMCell",
    run_static(lambda: cudnn_rnn.CudnnCompatibleLSTMCell(3)))
add("rnn.GRUBlockCell", run_static(lambda: rnn.GRUBlockCell(3)))
add("rnn.GRUBlockCellV2", run_dynamic(lambda: rnn.GRUBlockCellV2(3)))
add("rnn.LSTMBlockCell", run_dynamic(
    lambda: rnn.LSTMBlockCell(3, use_peephole=True, cell_clip=.5)))
add("rnn.LayerNormBasicLSTMCell",
    run_static(lambda: rnn.LayerNormBasicLSTMCell(3)))
add("rnn.NASCell",
    run_static(lambda: rnn.NASCell(3, num_proj=2, use_bias=True)))
add("rnn.SRUCell", run_static(lambda: rnn.SRUCell(3)))
add("rnn.UGRNNCell", run_static(lambda: rnn.UGRNNCell(3)))
add("rnn.AttentionCellWrapper", run_static(
    lambda: rnn.AttentionCellWrapper(rnn.BasicLSTMCell(3), 2)))
add("rnn.HighwayWrapper", run_static(
    lambda: rnn.HighwayWrapper(rnn.GRUCell(4), False)))
add("rnn.InputProjectionWrapper", run_static(
    lambda: rnn.InputProjectionWrapper(rnn.GRUCell(3), 2, tf.nn.relu)))
add("rnn.OutputProjectionWrapper", run_static(
    lambda: rnn.OutputProjectionWrapper(rnn.GRUCell(3), 2)))
add("rnn.EmbeddingWrapper", lambda: tf.nn.static_rnn(
    rnn.EmbeddingWrapper(rnn.GRUCell(3), 5, 2),
    [tf.constant([1, 4]), tf.constant([0, 1])], dtype=tf.float32))


def run_convolution(make, *size):
    images = np.random.RandomState(2).uniform(-1, 1, (3, 2) + size)
    return run_dynamic(make, images.astype("f"))


add("rnn.Conv1DLSTMCell", run_convolution(
    lambda: rnn.Conv1DLSTMCell(
        input_shape=[5, 2], output_channels=3, kernel_shape=[3]), 5, 2))
add("rnn.Conv2DLSTMCell", run_convolution(
    lambda: rnn.Conv2DLSTMCell(
        input_shape=[4, 3, 2], output_channels=2, kernel_shape=[3, 2]),
    4, 3, 2))
add("rnn.Conv3DLSTMCell", run_convolution(
    lambda: rnn.Conv3DLSTMCell(
        input_shape=[2, 3, 2, 1], output_channels=2, kernel_shape=[1, 2, 2],
        use_bias=False), 2, 3, 2, 1))


@case
def rnn__ConvLSTMCell():
    cell = rnn.ConvLSTMCell(
        conv_ndims=1, input_shape=[4, 2], output_channels=2, kernel_shape=[2],
        skip_connection=True, forget_bias=0.5)
    state = [tf.constant(wave((2, 4, 2), k), tf.float32) for k in (1, 2)]
    return cell(tf.reshape(tf.constant(X[:2]), [2, 4, 2]), state)


class Sums(rnn.FusedRNNCell):
    """A fused cell of a program's own."""

    def __call__(self, inputs, initial_state=None, dtype=None,
                 sequence_length=None, scope=None):
        outputs = tf.cumsum(inputs, axis=0)
        return outputs, outputs[-1]


add("rnn.FusedRNNCell", lambda: [Sums()(tf.constant(X)),
    rnn.TimeReversedFusedRNN(Sums())(tf.constant(X))])


@case
def rnn__FusedRNNCellAdaptor():
    x, found = tf.constant(X), []
    for dynamic in (False, True):
        for inputs in (x, tf.unstack(x)):
            with tf.variable_scope("s%d" % len(found)):
                fused = rnn.FusedRNNCellAdaptor(rnn.GRUCell(2), dynamic)
                found.append(fused(
                    inputs, dtype=tf.float32, sequence_length=LENGTHS))
    return found


@case
def rnn__LSTMBlockFusedCell():
    fused = rnn.LSTMBlockFusedCell(3, use_peephole=True)
    kwargs = dict(dtype=tf.float32)
    start = tf.constant(wave((2, 3)), tf.float32)
    return [fused(tf.constant(X), sequence_length=LENGTHS, **kwargs),
            rnn.LSTMBlockFusedCell(3)(
                tf.constant(X), (start, -start), scope="b", **kwargs)]


add("rnn.TimeReversedFusedRNN", lambda: [
    rnn.TimeReversedFusedRNN(rnn.LSTMBlockFusedCell(3))(
        tf.constant(X), dtype=tf.float32, sequence_length=lengths,
        scope="s%d" % bool(lengths)) for lengths in (None, LENGTHS)])


def two_cells():
    return [rnn.GRUCell(2), rnn.GRUCell(3)]


add("rnn.stack_bidirectional_rnn", lambda: rnn.stack_bidirectional_rnn(
    two_cells(), two_cells(), tf.unstack(tf.constant(X)),
    dtype=tf.float32, sequence_length=LENGTHS))


@case
def rnn__stack_bidirectional_dynamic_rnn():
    starts = [tf.constant(wave((2, n)), tf.float32) for n in (2, 3)]
    return [rnn.stack_bidirectional_dynamic_rnn(
        two_cells(), two_cells(), tf.constant(X), dtype=tf.float32,
        sequence_length=LENGTHS, time_major=True),
            rnn.stack_bidirectional_dynamic_rnn(
        two_cells(), two_cells(), tf.transpose(tf.constant(X), [1, 0, 2]),
        starts, starts, scope="other")]


# Pieces of tf.contrib.seq2seq.


def make_dense(name):
    return tf.layers.Dense(3, name=name, use_bias=False, dtype=tf.float32)


class Dots(attention_wrapper._BaseAttentionMechanism):
    """A mechanism of a program's own."""

    def __init__(self, memory, lengths):
        super(Dots, self).__init__(
            query_layer=make_dense("query"),
            memory=memory, probability_fn=lambda s, _: tf.nn.softmax(s),
            memory_sequence_length=lengths,
            memory_layer=make_dense("memory"))

    def __call__(self, query, state):
        score = tf.reduce_sum(
            self.keys * tf.expand_dims(self.query_layer(query), 1), 2)
        alignments = self._probability_fn(score, state)
        return alignments, alignments


class Means(seq2seq.AttentionMechanism):
    """A mechanism that shares its base class alone with the others."""

    batch_size, alignments_size, state_size = 2, 4, 4
    dtype = tf.float32

    def __init__(self):
        self.values = tf.constant(MEMORY)

    def initial_alignments(self, batch_size, dtype):
        return tf.zeros([batch_size, 4], dtype)

    initial_state = initial_alignments

    def __call__(self, query, state):
        found = tf.nn.softmax(state + tf.reduce_mean(query, 1, True))
        return found, found + 1


def attend(make, steps=3, **kwargs):
    """Returns outputs and states of an AttentionWrapper over some steps."""
    cell = seq2seq.AttentionWrapper(rnn.GRUCell(5), make(), **kwargs)
    state, outputs = cell.zero_state(2, tf.float32), []
    for i in range(steps):
        output, state = cell(tf.constant(X[i]), state)
        outputs.append(output)
    return outputs, state


def lengths_of_memory():
    return tf.constant([4, 2])


add("seq2seq.AttentionMechanism", lambda: attend(Means))
add("seq2seq._BaseAttentionMechanism", lambda: attend(
    lambda: Dots(tf.constant(MEMORY), lengths_of_memory())))
add("seq2seq.AttentionWrapper", lambda: attend(
    lambda: [seq2seq.BahdanauAttention(4, tf.constant(MEMORY)),
             seq2seq.LuongAttention(5, tf.constant(MEMORY))],
    attention_layer_size=[2, 3], alignment_history=True))
add("seq2seq.BahdanauAttention", lambda: attend(
    lambda: seq2seq.BahdanauAttention(
        4, tf.constant(MEMORY), lengths_of_memory(), normalize=True),
    attention_layer_size=3, output_attention=False))
add("seq2seq.LuongAttention", lambda: attend(
    lambda: seq2seq.LuongAttention(
        5, tf.constant(MEMORY), lengths_of_memory(), scale=True)))


@case
def seq2seq__AttentionWrapperState():
    cell = seq2seq.AttentionWrapper(
        rnn.GRUCell(5), seq2seq.LuongAttention(5, tf.constant(MEMORY)))
    start = cell.zero_state(2, tf.float32)
    changed = start.clone(cell_state=tf.constant(wave((2, 5)), tf.float32))
    return [np.array(seq2seq.AttentionWrapperState._fields), start, changed,
            isinstance(changed, seq2seq.AttentionWrapperState),
            error_of(start.clone, cell_state=tf.zeros([2, 4])),
            cell(tf.constant(X[0]), changed)]


def embeddings():
    return tf.get_variable("embeddings", [7, 3])


def decode(helper, **kwargs):
    cell = rnn.LSTMCell(4)
    decoder = seq2seq.BasicDecoder(
        cell, helper, cell.zero_state(2, tf.float32), tf.layers.Dense(7))
    return seq2seq.dynamic_decode(decoder, maximum_iterations=5, **kwargs)


def batch_inputs():
    return tf.constant(np.concatenate([MEMORY, -MEMORY[:, :1]], 1))


add("seq2seq.TrainingHelper", lambda:
    decode(seq2seq.TrainingHelper(batch_inputs(), [5, 3])))
add("seq2seq.dynamic_decode", lambda:
    [decode(seq2seq.TrainingHelper(batch_inputs(), [4, 2]),
            impute_finished=True, output_time_major=True)])


@case
def seq2seq__BasicDecoder():
    cell = rnn.GRUCell(4)
    helper = seq2seq.TrainingHelper(batch_inputs(), [5, 3])
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32))
    return [np.array(str(decoder.output_size)),
            np.array(str(decoder.output_dtype)), decoder.batch_size,
            seq2seq.dynamic_decode(decoder)]


add("seq2seq.BasicDecoderOutput", lambda: fields(seq2seq.BasicDecoderOutput))


def fields(kind):
    """Returns the fields of a named tuple, and one made by position."""
    return [np.array(kind._fields), kind(*range(len(kind._fields)))]


add("seq2seq.BeamSearchDecoderOutput",
    lambda: fields(seq2seq.BeamSearchDecoderOutput))
add("seq2seq.BeamSearchDecoderState",
    lambda: fields(seq2seq.BeamSearchDecoderState))
add("seq2seq.FinalBeamSearchDecoderOutput",
    lambda: fields(seq2seq.FinalBeamSearchDecoderOutput))


class Counter(seq2seq.Decoder):
    """A decoder of a program's own: counts, and adds its inputs."""

    batch_size = 2
    output_size = tf.TensorShape([3])
    output_dtype = tf.float32

    def initialize(self, name=None):
        return tf.constant([False, False]), tf.ones([2, 3]), tf.zeros([2, 3])

    def step(self, time, inputs, state, name=None):
        state += inputs * tf.cast(time + 1, tf.float32)
        return state * 2, state, inputs + 1, tf.stack([time >= 1, time >= 3])


add("seq2seq.Decoder", lambda: [seq2seq.dynamic_decode(Counter()),
    seq2seq.dynamic_decode(Counter(), impute_finished=True),
    Counter().tracks_own_finished])


class Repeat(seq2seq.Helper):
    """A helper of a program's own: feeds one-hot samples."""

    batch_size = 2
    sample_ids_shape = tf.TensorShape([])
    sample_ids_dtype = tf.int32

    def initialize(self, name=None):
        return tf.constant([False, False]), tf.ones([2, 7])

    def sample(self, time, outputs, state, name=None):
        return tf.argmax(outputs, -1, output_type=tf.int32)

    def next_inputs(self, time, outputs, state, sample_ids, name=None):
        return tf.stack([time >= 2, time >= 4]), tf.one_hot(
            sample_ids, 7), state


add("seq2seq.Helper", lambda: decode(Repeat()))
add("seq2seq.CustomHelper", lambda: decode(seq2seq.CustomHelper(
    lambda: (tf.constant([False, False]), tf.ones([2, 2])),
    lambda time, outputs, state: outputs[:, :2] + 1,
    lambda time, outputs, state, sample_ids: (
        tf.stack([time >= 1, time >= 3]), sample_ids * 2, state),
    tf.TensorShape([2]), tf.float32)))


@case
def seq2seq__InferenceHelper():
    helper = seq2seq.InferenceHelper(
        lambda outputs: outputs[:, :3], [3], tf.float32, tf.ones([2, 2]),
        lambda sample_ids: sample_ids[:, 0] > 0.35,
        lambda sample_ids: sample_ids[:, 1:] * 3)
    return [decode(helper), helper.batch_size]


add("seq2seq.GreedyEmbeddingHelper", lambda:
    decode(seq2seq.GreedyEmbeddingHelper(embeddings(), [1, 4], 6)))
add("seq2seq.SampleEmbeddingHelper", lambda: decode(
    seq2seq.SampleEmbeddingHelper(
        embeddings(), [1, 4], 6, softmax_temperature=0.5, seed=3),
    parallel_iterations=1))
# Steps that run at the same time would draw in any order.
add("seq2seq.ScheduledEmbeddingTrainingHelper", lambda: [
    decode(seq2seq.ScheduledEmbeddingTrainingHelper(
        batch_inputs(), [5, 4], table, probability, seed=1, scheduling_seed=2),
           scope="decoder%d" % (probability * 10), parallel_iterations=1)
    for table in [embeddings()] for probability in (0.0, 0.5, 1.0)])


@case
def seq2seq__BeamSearchDecoder():
    memory = seq2seq.tile_batch(tf.constant(MEMORY), 3)
    cell = seq2seq.AttentionWrapper(
        rnn.GRUCell(5), seq2seq.BahdanauAttention(
            4, memory, seq2seq.tile_batch(lengths_of_memory(), 3)), 3)
    start = tf.constant([[.1, .2, .3, .4, .5], [1, -1, 1, -1, .2]])
    state = cell.zero_state(6, tf.float32).clone(
        cell_state=seq2seq.tile_batch(start, 3))
    decoder = seq2seq.BeamSearchDecoder(
        cell, embeddings(), tf.fill([2], 1), 2, state, 3, tf.layers.Dense(7),
        length_penalty_weight=0.8, coverage_penalty_weight=0.3)
    outputs, state, lengths = seq2seq.dynamic_decode(
        decoder, maximum_iterations=6)
    # The values of a search are of no differentiable function.
    return tf.nest.map_structure(
        tf.stop_gradient, [outputs.predicted_ids,
                           outputs.beam_search_decoder_output,
                           state.log_probs, state.lengths, state.finished,
                           state.cell_state.cell_state,
                           state.cell_state.attention, lengths])


@case
def seq2seq__gather_tree():
    rng = np.random.RandomState(4)
    steps = rng.randint(0, 6, (5, 2, 3)).astype("i")
    parents = rng.randint(0, 3, (5, 2, 3)).astype("i")
    return [seq2seq.gather_tree(steps, parents, np.array(lengths, "i"), 3)
            for lengths in ([5, 5], [2, 4])]


@case
def seq2seq__gather_tree_from_array():
    parents = np.random.RandomState(5).randint(0, 3, (4, 2, 3)).astype("i")
    parents = tf.constant(parents)
    values = tf.constant(wave((4, 2, 3, 2)), tf.float32)
    lengths = tf.constant([[4, 2, 3], [1, 3, 2]])
    from tensorflow.contrib.seq2seq.python.ops import beam_search_decoder
    return beam_search_decoder.gather_tree_from_array(values, parents, lengths)


add("seq2seq.tile_batch", lambda: seq2seq.tile_batch(
    (tf.constant(X), tf.constant([5, 6, 7])), multiplier=2))
add("seq2seq.hardmax", lambda: [seq2seq.hardmax(x) for x in (
    tf.constant([[1.0, 2.0, 2.0], [0.0, -1.0, -3.0]]), tf.constant(X))])


@case
def seq2seq__safe_cumprod():
    from tensorflow.contrib.seq2seq.python.ops.attention_wrapper import (
        safe_cumprod)
    x = tf.constant([[0.5, 0.0, 1.0, 0.3], [0.9, 1e-30, 1e-30, 2.0]])
    return [safe_cumprod(x, axis=1),
            safe_cumprod(x, axis=1, exclusive=True),
            safe_cumprod(tf.cast(x, tf.float16), axis=0, reverse=True),
            safe_cumprod(tf.cast(x, tf.float64), axis=1)]


add("seq2seq.sequence_loss", lambda: [seq2seq.sequence_loss(
    tf.constant(X), tf.constant([[1, 2], [0, 3], [2, 2]]),
    tf.constant([[1.0, 0.5], [2.0, 0.0], [0.0, 0.0]]),
    *[f == "1" for f in flags])
    for flags in "1100 1000 0100 0000 0011 0010 0001".split()])


def lists(value):
    return tf.unstack(tf.constant(value))


add("legacy_seq2seq.sequence_loss_by_example", lambda: [
    legacy_seq2seq.sequence_loss_by_example(
        tf.unstack(scores * 3.0), lists([[1, 2], [0, 3], [2, 2]]),
        lists([[1.0, 0.0], [2.0, 0.0], [0.5, 0.0]]), *further)
    for scores in [tf.get_variable("scores", [3, 2, 4])] for further in (
        [], [False], [True, lambda labels, logits: logits[:, 0] + tf.cast(
            labels, tf.float32)])])
add("legacy_seq2seq.sequence_loss", lambda: [
    legacy_seq2seq.sequence_loss(
        tf.unstack(scores * 3.0), lists([[1, 2], [0, 3], [2, 2]]),
        lists([[1.0, 0.5], [2.0, 0.0], [0.0, 0.0]]), *flags)
    for scores in [tf.get_variable("scores", [3, 2, 4])]
    for flags in ([], [False], [True, False], [False, False])])


# tf.contrib.sparsemax.


def logits():
    """Returns rows with ties, with classes that are left out, and far apart."""
    inf = np.inf
    return tf.get_variable("logits", [4, 5]) * 3.0 + np.array([
        [0, 0, 0, 0, 0], [9, 0, -inf, -inf, 0], [0, -inf, -inf, -inf, -inf],
        [1e4, -1e4, 0, 0, 0]], "f")


TIES = [[0.5, 0.5, 0.2], [1, 1, 1], [2, 0, 2]]
NO_NUMBERS = [[1, np.inf, 0], [np.nan, 1, 2], [-np.inf] * 3, [-np.inf, 2, 1]]


@case
def sparsemax__sparsemax():
    found = [sparsemax.sparsemax(logits())]
    return found + [sparsemax.sparsemax(tf.constant(rows, dtype))
                    for rows in (TIES, NO_NUMBERS)
                    for dtype in (tf.float32, tf.float64)]


@case
def sparsemax__sparsemax_loss():
    rows, labels = logits(), np.zeros((4, 5), "f")
    labels[0, 1:3], labels[1:, 0] = 0.5, 1
    chosen = sparsemax.sparsemax(rows)
    found = [sparsemax.sparsemax_loss(rows, chosen, labels)]
    for dtype in (tf.float32, tf.float64):
        rows = tf.constant(TIES, dtype)
        found.append(sparsemax.sparsemax_loss(
            rows, sparsemax.sparsemax(rows), tf.eye(3, dtype=dtype)))
    rows = tf.constant(NO_NUMBERS)
    return found + [sparsemax.sparsemax_loss(
        rows, sparsemax.sparsemax(rows), tf.eye(4, 3))]


# Others.


@case
def learn__ModeKeys():
    keys = learn.ModeKeys
    return [np.array([keys.TRAIN, keys.EVAL, keys.INFER]),
            error_of(keys.validate, "train"), error_of(keys.validate, "x")]


@case
def learn__replace_monitors_with_hooks():
    class Chief:
        is_chief = True
        config = None

    Chief.config = Chief
    hooks = [tf.train.StopAtStepHook(last_step=3), tf.train.StepCounterHook()]
    replace = learn.monitors.replace_monitors_with_hooks
    return [len(replace(None, Chief)), len(replace([], Chief)),
            [type(hook).__name__ for hook in replace(hooks, Chief)],
            replace(hooks, estimator=Chief) == hooks]


@case
def learn__RunConfig():
    config = learn.RunConfig(model_dir="m", tf_random_seed=7,
                             save_checkpoints_steps=5, save_checkpoints_secs=None,
                             gpu_memory_fraction=0.5, num_cores=2)
    names = ("master num_ps_replicas num_worker_replicas is_chief "
             "task_id task_type evaluation_master tf_random_seed model_dir "
             "save_summary_steps save_checkpoints_steps save_checkpoints_secs "
             "keep_checkpoint_max keep_checkpoint_every_n_hours "
             "log_step_count_steps")
    options = config.tf_config
    return [np.array([n, repr(getattr(config, n))]) for n in names.split()] + [
        options.intra_op_parallelism_threads,
        options.inter_op_parallelism_threads,
        options.gpu_options.per_process_gpu_memory_fraction]


@case
def training__HParams():
    hparams = training.HParams(a=1, b=[1.0], c="x", d=True)
    hparams.parse("a=2,b=[3,4],d=false").set_hparam("c", "y z")
    return [np.array(text) for text in (
        json.dumps(hparams.values(), sort_keys=True),
        hparams.to_json(sort_keys=True), str(sorted(hparams.values())),
        str(hparams.get("a")), str("e" in hparams),
        json.dumps(hparams.override_from_dict({"a": 7}).values(),
                   sort_keys=True))]


add("training.parse_values", lambda: [np.array(str(sorted(training.parse_values(
    text, {"a": int, "b": float, "c": str, "d": int, "e": bool},
    ignore_unknown=True).items()))) for text in (
        "a=1,b=2.5,c=x", "d=[1, 2],e=True", "d[1]=5,d[0]=4", "e=0",
        "unknown=1,a=2", "", "b=1e-3,c=a b")])


@case
def training__GreedyLoadBalancingStrategy():
    strategy = training.GreedyLoadBalancingStrategy(3, lambda op: op)
    return np.array([strategy(load) for load in [3, 1, 2.5, 2, 0, 1, 4, 0.5]])


@case
def training__byte_size_load_fn():
    ops = [tf.zeros(shape, dtype).op for shape, dtype in (
        ([2, 3], tf.float32), ([], tf.float64), ([0, 4], tf.int64),
        ([7], tf.bool), ([2], tf.string), ([5], tf.complex128))]
    return np.array([training.byte_size_load_fn(op) for op in ops])


# tf.contrib.crf.


SCORES = np.random.RandomState(3).uniform(-2, 2, (4, 5, 3)).astype("f")
TAGS = np.random.RandomState(5).randint(0, 3, (4, 5))
TIMES = np.array([5, 3, 1, 0])


def sequences(times=5):
    """Returns inputs, tags and lengths of sequences."""
    inputs = tf.get_variable("inputs%d" % times, [4, times, 3])
    lengths = tf.constant(np.minimum(TIMES, times))
    return inputs, tf.constant(TAGS[:, :times]), lengths


def transitions():
    return tf.get_variable("between", [3, 3])


add("crf.crf_unary_score", lambda: [
    crf.crf_unary_score(tf.cast(tags, dtype), lengths, inputs)
    for inputs, tags, lengths in [sequences()]
    for dtype in (tags.dtype, tf.int32)])
add("crf.crf_binary_score", lambda: [
    crf.crf_binary_score(tags, tf.cast(lengths, dtype), between)
    for between, (_, tags, lengths) in [(transitions(), sequences())]
    for dtype in (lengths.dtype, tf.int32)])
add("crf.crf_sequence_score", lambda: [
    crf.crf_sequence_score(*sequences(times) + (between,))
    for between in [transitions()] for times in (5, 1)])
add("crf.crf_log_norm", lambda: [
    crf.crf_log_norm(inputs, lengths, between) for between in [transitions()]
    for times in (5, 1) for inputs, _, lengths in [sequences(times)]])
add("crf.crf_log_likelihood", lambda: [
    value for given in [sequences()] for value in (
        crf.crf_log_likelihood(*given),
        crf.crf_log_likelihood(*given + (transitions(),))[0])])


@case
def crf__crf_decode():
    between = transitions()
    unknown = tf.placeholder_with_default(SCORES, [None, None, 3])
    times = tf.constant(TIMES)
    return [crf.crf_decode(tf.constant(SCORES), between, times),
            crf.crf_decode(tf.constant(SCORES[:, :1]), between,
                           tf.minimum(times, 1)),
            crf.crf_decode(unknown, between, tf.cast(times, tf.int32))]


@case
def crf__viterbi_decode():
    between = wave([3, 3])
    path, score = crf.viterbi_decode(SCORES[0], between)
    return [tf.constant(path), tf.constant(score),
            tf.constant(crf.viterbi_decode(SCORES[1, :1], between)[0])]


# Private functions that programs call.


@case
def rnn___Linear():
    with tf.variable_scope("first"):
        a, b, c, d = map(tf.constant, (X[0], X[1, :, :3], X[2], X[0, :, 1:]))
        linear = core_rnn_cell._Linear([a, b], 5, True)
        found = [linear([a, b]), linear([c, d])]
    with tf.variable_scope("second"):
        return found + [core_rnn_cell._Linear(
            tf.constant(X[0]), 2, False,
            kernel_initializer=tf.ones_initializer())(X[1])]


@case
def rnn___linear():
    with tf.variable_scope("first"):
        return core_rnn_cell._linear(
            [tf.constant(X[0])], 3, True,
            bias_initializer=tf.ones_initializer())


# Queues.


def batches(tensors):
    """Returns all batches, sorted: threads fill the buckets."""
    session, coordinator = tf.get_default_session(), tf.train.Coordinator()
    threads = tf.train.start_queue_runners(session, coordinator)
    found = []
    try:
        while True:
            found.append(session.run(tensors))
    except tf.errors.OutOfRangeError:
        coordinator.request_stop()
        coordinator.join(threads)
    return sorted(found, key=lambda batch: str(tf.nest.flatten(batch)))


def ragged_example():
    numbers = tf.data.Dataset.range(1, 12)
    number = tf.data.make_one_shot_iterator(numbers).get_next()
    length = tf.cast(number % 5, tf.int32)
    return number, length, tf.fill([length], number)


@case
def training__bucket():
    number, length, _ = ragged_example()
    found = training.bucket(
        {"b": tf.stack([number, number]), "a": length}, length % 3,
        [1, 2, 3], 3, allow_smaller_final_batch=True,
        keep_input=tf.not_equal(number, 4))
    shapes = [x.shape for x in flatten(found)]
    return batches(found), np.array(str(shapes))


@case
def training__bucket_by_sequence_length():
    number, length, values = ragged_example()
    found = training.bucket_by_sequence_length(
        length, [values, number], 2, [2, 4], dynamic_pad=True, capacity=4)
    shapes = [x.shape for x in flatten(found)]
    return batches(found), np.array(str(shapes))


# The recorder.


def flatten(value):
    """Returns the leaves of a nest; those of TensorArrays are stacked."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if isinstance(value, tf.TensorArray):
        value = value.stack()
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in flatten(part)]
    return [value]


def record(name, function, found):
    """Adds the values of a function to a dict."""
    with tf.Graph().as_default(), tf.Session() as session:
        leaves = flatten(function())
        fetches = {str(i): x for i, x in enumerate(leaves)}
        variables = tf.trainable_variables()
        losses = [tf.reduce_sum(tf.square(tf.cast(x, tf.float32)))
                  for x in leaves
                  if isinstance(x, tf.Tensor) and x.dtype.is_floating]
        if variables and losses:
            for v, g in zip(variables, tf.gradients(tf.add_n(losses),
                                                    variables)):
                if g is not None:
                    fetches["grad/" + v.op.name] = tf.convert_to_tensor(g)
        session.run([tf.global_variables_initializer(),
                     tf.tables_initializer()])
        session.run([tf.assign(v, wave(v.shape.as_list(), k))
                     for k, v in enumerate(sorted(
                         variables, key=lambda v: v.op.name))])
        tensors = {k: x for k, x in fetches.items()
                   if isinstance(x, (tf.Tensor, tf.Variable))}
        fetches.update(session.run(tensors))
        names = sorted(v.op.name for v in tf.global_variables())
    fetches["variables"] = np.array(names, dtype="U")
    for key, value in fetches.items():
        value = np.asarray(value)
        if value.dtype.kind in "OS":
            value = value.astype("S").astype("U")
        elements = [float("%.8g" % x) if value.dtype.kind == "f" else x.item()
                    for x in value.ravel()]
        dtype = "str" if value.dtype.kind == "U" else str(value.dtype)
        found[name + "/" + key] = [dtype, list(value.shape), elements]


def main(path):
    tf.disable_v2_behavior()
    found = {}
    for name in sorted(CASES):
        record(name, CASES[name], found)
    lines = ",\n".join("%s: %s" % (json.dumps(key), json.dumps(found[key]))
                       for key in sorted(found))
    with open(path, "w") as file:
        file.write("{\n%s\n}\n" % lines)


if __name__ == "__main__":
    main(sys.argv[1])
