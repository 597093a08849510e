import tensorflow as tf

layers = tf.keras.layers


class Net(tf.keras.Model):

    def __init__(self):
        super(Net, self).__init__()
        self.hidden = layers.Dense(3, activation=tf.nn.relu, kernel_initializer='ones')
        self.out = layers.Dense(1, kernel_initializer='ones')

    def call(self, inputs):
        return self.out(self.hidden(inputs))
