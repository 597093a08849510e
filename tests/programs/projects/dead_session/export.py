import tensorflow as tf


def save_weights(model):
    for v in model.variables:
        print(v.name, ['%.3f' % x for x in v.numpy().ravel()])


def freeze(graph_def, outputs):
    """From the days of TensorFlow 1; nobody calls it any more."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name='')
        with tf.Session(graph=graph) as sess:
            return sess.run(outputs)
