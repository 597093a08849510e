import numpy as np


def _dataset(repeat):
    import tensorflow as tf  # lazily: the module is read by tools, too
    x = np.linspace(0, 1, 24).reshape(12, 2).astype(np.float32)
    y = x[:, :1] * 2 - x[:, 1:]
    data = tf.data.Dataset.from_tensor_slices(({'x': x}, y)).batch(4)
    return data.repeat() if repeat else data


def train_input_fn():
    return _dataset(True).make_one_shot_iterator().get_next()


def eval_input_fn():
    return _dataset(False)
