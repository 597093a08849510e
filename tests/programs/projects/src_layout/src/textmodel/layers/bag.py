from tensorflow import keras
import tensorflow as tf


class Bag(keras.layers.Layer):
    """The mean of the embeddings of a text's words."""

    def __init__(self, words, width, **kwargs):
        super().__init__(**kwargs)
        self.words, self.width = words, width

    def build(self, input_shape):
        self.table = self.add_weight(
            name='table', shape=(self.words, self.width), initializer=keras.initializers.Constant(0.5))

    def call(self, inputs):
        return tf.reduce_mean(tf.gather(tf.cast(self.table, self.compute_dtype), inputs), axis=1)

    @property
    def compute_dtype(self):
        return keras.mixed_precision.experimental.get_layer_policy(self).compute_dtype
