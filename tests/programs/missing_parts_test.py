# SPDX-License-Identifier: Apache-2.0
"""Tests parts that today's TensorFlow and Keras miss, in programs.

The programs are written in the manner of public ones.
"""

import importlib.util

import legacy_processes
from legacy_processes import run_text
import pytest

_HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None


# A copy of openai/baselines' logger, and of a script that lists a checkpoint.
_EVENTS_AND_CHECKPOINTS = """
import os
import tensorflow as tf
from tensorflow.core.util import event_pb2
from tensorflow.python import pywrap_tensorflow
from tensorflow.python.pywrap_tensorflow import NewCheckpointReader
from tensorflow.python.util import compat
import tensorflow.python._pywrap_events_writer as moved

writer = pywrap_tensorflow.EventsWriter(compat.as_bytes(os.path.abspath("e")))
summary = tf.Summary(value=[tf.Summary.Value(tag="loss", simple_value=2.5)])
writer.WriteEvent(event_pb2.Event(wall_time=1.0, step=7, summary=summary))
writer.Flush()
writer.Close()
(name,) = [name for name in os.listdir(".") if name.startswith("e.out")]
for event in tf.train.summary_iterator(name):
  for value in event.summary.value:
    print(event.step, value.tag, value.simple_value)
assert moved.EventsWriter is pywrap_tensorflow.EventsWriter

tf.get_variable("v", initializer=[1.0, 2.0])
with tf.Session() as session:
  session.run(tf.global_variables_initializer())
  prefix = tf.train.Saver().save(session, os.path.abspath("model.ckpt"))
for make in (pywrap_tensorflow.NewCheckpointReader, NewCheckpointReader,
             tf.pywrap_tensorflow.NewCheckpointReader,
             tf.train.NewCheckpointReader):
  print(make(prefix).get_tensor("v").tolist())
assert pywrap_tensorflow.IsMklEnabled() in (True, False)
"""


def test_events_and_checkpoints_by_private_names(tmp_path):
  lines = run_text(tmp_path, _EVENTS_AND_CHECKPOINTS).splitlines()
  assert lines == ["7 loss 2.5", *["[1.0, 2.0]"] * 4]


_SIZES = """
import tensorflow as tf

def get_noise(use_noise, resolution):
  return tf.get_variable("noise%d" % resolution, trainable=False,
                         shape=[1, use_noise, resolution, resolution],
                         initializer=tf.initializers.random_normal())

noise = get_noise(True, 4)
x = tf.placeholder(tf.float32, [None, True, 4.0])
print(noise.shape.as_list(), x.shape.as_list(), tf.Dimension(True).value)
with tf.Session() as session:
  session.run(tf.global_variables_initializer())
  print(session.run(noise).shape, session.run(tf.zeros([2, True])).shape)
"""


def test_true_is_a_size_in_tensorflow_1(tmp_path):
  assert run_text(tmp_path, _SIZES).splitlines() == [
    "[1, 1, 4, 4] [None, 1, 4] 1",
    "(1, 1, 4, 4) (2, 1)",
  ]


_NAMES_OF_2_0 = """
import numpy as np
import tensorflow as tf
from tensorflow.keras.utils import multi_gpu_model

strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
data = strategy.experimental_make_numpy_dataset(np.arange(4.0)).batch(2)
data = strategy.experimental_distribute_dataset(data.prefetch(np.int64(1)))

@tf.function
def step(batch):
  replica = strategy.experimental_run_v2(lambda x: 2 * x, args=(batch,))
  return strategy.reduce(tf.distribute.ReduceOp.SUM, replica, axis=0)

print([float(step(batch)) for batch in data])
datasets = strategy.experimental_distribute_datasets_from_function(
    lambda context: tf.data.Dataset.range(2))
print([int(x) for x in datasets])
v1 = tf.compat.v1.distribute.MirroredStrategy(["/cpu:0"])
print(float(v1.experimental_run_v2(lambda: tf.constant(3.0))))

def make(units):
  layer = tf.keras.layers.Dense(units, kernel_initializer="ones")
  return tf.keras.Sequential([layer])

x = np.array([[1.0], [0.25]])
print(make(1).predict_classes(x).tolist(), make(2).predict_proba(x).tolist())
print(make(3).predict_classes(x, batch_size=1, verbose=0).tolist())
policy = tf.keras.mixed_precision.experimental.Policy
print([policy(n).should_cast_variables for n in ("mixed_float16", "float32")])
print(tf.keras.mixed_precision.Policy("mixed_float16").should_cast_variables)
try:
  multi_gpu_model(make(1), gpus=2)
except NotImplementedError as error:
  print(error)
"""


def test_names_of_tensorflow_2_0_to_2_3(tmp_path):
  lines = run_text(tmp_path, _NAMES_OF_2_0, "--tf2").splitlines()
  assert lines[:-1] == [
    "[2.0, 10.0]",
    "[0, 1]",
    "3.0",
    "[[1], [0]] [[1.0, 1.0], [0.25, 0.25]]",
    "[0, 0]",
    "[True, False]",
    "True",
  ]
  assert "MirroredStrategy().scope()" in lines[-1]


_SEEDS = """
import tensorflow as tf

def make(seed):
  tf.random.set_seed(seed)
  layer = tf.keras.layers.Dense(2)
  layer.build((None, 3))
  return layer.kernel.numpy().tolist()

first, second, other = make(1), make(1), make(2)
assert first == second != other
print(first)
"""


def test_a_seed_repeats_the_weights_of_keras_2(tmp_path):
  assert run_text(tmp_path, _SEEDS, "--tf2") == run_text(
    tmp_path, _SEEDS, "--tf2"
  )


# As in programs for Keras 2.0 to 2.4, which import it before TensorFlow.
_STANDALONE = """
import keras
import keras.backend as K
from keras import backend, initializers, layers, optimizers, regularizers
from keras.applications.vgg16 import VGG16
from keras.backend.tensorflow_backend import set_session
from keras.callbacks import Callback, ModelCheckpoint
from keras.datasets import mnist
from keras.engine import InputSpec, Layer
from keras.engine.topology import Layer as Layer2, get_source_inputs
from keras.layers import BatchNormalization, Dense, Input
from keras.layers.advanced_activations import LeakyReLU
from keras.layers.convolutional import Conv2D
from keras.layers.core import Dropout
from keras.layers.embeddings import Embedding
from keras.layers.merge import add, concatenate
from keras.layers.normalization import BatchNormalization as BN
from keras.layers.recurrent import LSTM
from keras.layers.wrappers import TimeDistributed
from keras.models import Model, Sequential, load_model
from keras.objectives import categorical_crossentropy
from keras.optimizers import SGD, Adam
from keras.preprocessing.image import ImageDataGenerator
from keras.preprocessing.sequence import pad_sequences
from keras.utils import np_utils, to_categorical
from keras.utils.generic_utils import get_custom_objects
from keras.utils.np_utils import to_categorical as to_categorical2
from keras.utils.training_utils import multi_gpu_model
import numpy as np
import tensorflow as tf

assert Layer is Layer2 is keras.engine.Layer is tf.keras.layers.Layer
assert BN is BatchNormalization and Model is tf.keras.Model
assert keras.utils.np_utils.to_categorical is to_categorical
assert keras.optimizers.Adam is Adam and K.floatx() == "float32"
assert not hasattr(keras, "ops"), "this is Keras 3"
assert keras.layers.CuDNNLSTM and keras.initializers.normal
if hasattr(tf, "Session"):
  session = tf.Session(config=tf.ConfigProto(allow_soft_placement=True))
  K.set_session(session)
  assert K.get_session() is session is tf.keras.backend.get_session()
  assert set_session is K.set_session is backend.set_session

class Scale(Layer):
  def build(self, input_shape):
    self.scale = self.add_weight(name="scale", shape=(), initializer="ones")
  def call(self, x):
    return x * self.scale

inputs = Input((2,))
model = Model(inputs, LeakyReLU()(Scale()(Dense(1)(inputs))))
model.compile(Adam(lr=0.1), "mse")
model.fit(np.ones((4, 2)), np.zeros((4, 1)), epochs=1, verbose=0)
print("trained")
"""


@pytest.mark.parametrize(
  "option", [pytest.param("--tf1", marks=pytest.mark.thorough), "--tf2"]
)
def test_standalone_keras_is_keras_2(option, tmp_path):
  program = legacy_processes.program(tmp_path, _STANDALONE)
  command = (option, "--keras2", program)
  done = legacy_processes.run(*command, cwd=tmp_path)
  assert done[:2] == (0, "trained\n"), done


_ESTIMATOR = """
import numpy as np
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
model.compile(tf.train.GradientDescentOptimizer(0.1), "mse")
estimator = tf.keras.estimator.model_to_estimator(model, model_dir="model")
inputs = tf.compat.v1.estimator.inputs.numpy_input_fn(
    {"dense_input": np.ones((8, 2), "f")}, np.ones((8, 1), "f"), 4,
    num_epochs=None, shuffle=False)
estimator.train(inputs, steps=3)
print(estimator.get_variable_value("global_step"))
"""


def test_a_keras_model_becomes_an_estimator_in_tensorflow_1(tmp_path):
  assert run_text(tmp_path, _ESTIMATOR) == "3\n"


_SUMMARY = """
import tensorflow as tf
from tensorboard import summary as summary_lib
assert summary_lib.custom_scalar_pb
print(summary_lib.scalar_pb("loss", 2.0), summary_lib.scalar)
"""
_FAKE_TENSORBOARD = {
  "tensorboard/__init__": "",
  "tensorboard/summary/__init__": "scalar = 'new'",
  "tensorboard/summary/v1": """
def scalar_pb(tag, data):
  return f'tag: "{tag}"'

custom_scalar_pb = scalar_pb
""",
}


def test_tensorboards_names_of_tensorflow_1(tmp_path):
  files = {} if _HAS_TENSORBOARD else _FAKE_TENSORBOARD
  printed = run_text(tmp_path, _SUMMARY, **files)
  assert 'tag: "loss' in printed
  assert _HAS_TENSORBOARD or printed.endswith(" new\n")


_CALLBACK = """
import numpy as np
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
callback = tf.keras.callbacks.TensorBoard("logs")
try:
  model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0, callbacks=[callback])
except Exception as error:
  print(error)
"""


@pytest.mark.skipif(_HAS_TENSORBOARD, reason="TensorBoard is installed")
@pytest.mark.parametrize("option", ["--keras2", "--keras3"])
def test_the_error_of_the_tensorboard_callback(option, tmp_path):
  printed = run_text(tmp_path, _CALLBACK, "--tf2", option)
  assert "needs TensorBoard" in printed and "pip install" in printed, printed
  explained = legacy_processes.run("--explain", "program.py", cwd=tmp_path)[1]
  assert "missing: tensorboard: pip install" in explained, explained


# As protoc 3.6 wrote it.
_OLD_PB2 = r"""
from google.protobuf import descriptor as _descriptor
DESCRIPTOR = _descriptor.FileDescriptor(
  name="a.proto", package="", syntax="proto2", serialized_options=None,
  serialized_pb=b"\n\x07\x61.proto\"\x0e\n\x01M\x12\t\n\x01x\x18\x01 \x01(\x05")
_M = _descriptor.Descriptor(
  name="M", full_name="M", filename=None, file=DESCRIPTOR, containing_type=None,
  fields=[_descriptor.FieldDescriptor(
    name="x", full_name="M.x", index=0, number=1, type=5, cpp_type=1, label=1,
    has_default_value=False, default_value=0, message_type=None, enum_type=None,
    containing_type=None, is_extension=False, extension_scope=None,
    serialized_options=None, file=DESCRIPTOR)],
  extensions=[], nested_types=[], enum_types=[], serialized_options=None,
  is_extendable=False, syntax="proto2", extension_ranges=[], oneofs=[],
  serialized_start=11, serialized_end=25)
"""


@pytest.mark.thorough
def test_the_error_of_old_protocol_buffers(tmp_path):
  legacy_processes.program(tmp_path, _OLD_PB2, "old_pb2.py")
  name = legacy_processes.program(
    tmp_path, "import old_pb2\nimport tensorflow as tf\nprint('loaded')"
  )
  status, _, err = legacy_processes.run("--tf1", name, cwd=tmp_path)
  setting = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python"
  assert status == 1 and setting in err, err
  command = ("-m", "tf_compat_lossscale", "run", "--tf1", name)
  variable, _, value = setting.partition("=")
  done = legacy_processes.plain(*command, cwd=tmp_path, **{variable: value})
  assert done[:2] == (0, "loaded\n"), done
