from tensorflow import keras

from .layers import Bag


class TextModel(keras.Model):

    def __init__(self, words, classes):
        super().__init__(name='text')
        self.bag = Bag(words, 4, name='bag')
        self.out = keras.layers.Dense(
            classes, kernel_initializer=keras.initializers.Constant(0.25), name='logits')

    def call(self, inputs):
        return keras.backend.cast(self.out(self.bag(inputs)), 'float32')
