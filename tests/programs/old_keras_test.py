# SPDX-License-Identifier: Apache-2.0
"""Tests that `tensorflow.python.keras` is Keras 2 for programs.

`legacy/private_keras.py` is a program that mixes both.
"""

import json

import helpers
import processes
import pytest

_KERAS = "tensorflow.python.keras"
# Imports that public programs of TensorFlow 1.4 to 2.8 have.
_IMPORTS = f"""
import {_KERAS} as k
import {_KERAS}.backend as K
import {_KERAS}.layers.core
from tensorflow.python import keras
from tensorflow.python.keras import Input, Model, Sequential
from {_KERAS} import activations, backend, backend_config, callbacks
from {_KERAS} import constraints, initializers, layers, losses, metrics, models
from {_KERAS} import optimizers, regularizers
from {_KERAS}._impl.keras import backend as old_backend
from {_KERAS}._impl.keras.models import Model as OldModel
from {_KERAS}.applications import VGG19, imagenet_utils, resnet
from {_KERAS}.applications.resnet_v2 import ResNet50V2
from {_KERAS}.backend import set_session, get_session, batch_dot
from {_KERAS}.callbacks import Callback, ModelCheckpoint
from {_KERAS}.datasets import mnist
from {_KERAS}.engine import base_layer, base_layer_utils, network, training
from {_KERAS}.engine import InputSpec, Layer
from {_KERAS}.engine.base_layer import Layer as Layer2
from {_KERAS}.engine.keras_tensor import KerasTensor
from {_KERAS}.initializers.initializers_v2 import Zeros
from {_KERAS}.layers import Dense, BatchNormalization
from {_KERAS}.layers.advanced_activations import LeakyReLU
from {_KERAS}.layers.convolutional import Conv, Conv2D, UpSampling2D
from {_KERAS}.layers.core import Activation, Dropout, Flatten, Lambda
from {_KERAS}.layers.embeddings import Embedding
from {_KERAS}.layers.merge import _Merge, Add, concatenate
from {_KERAS}.layers.normalization import BatchNormalization as BN
from {_KERAS}.layers.pooling import AveragePooling3D
from {_KERAS}.layers.preprocessing import image_preprocessing
from {_KERAS}.layers.recurrent import LSTMCell, RNN
from {_KERAS}.layers.wrappers import TimeDistributed
from {_KERAS}.losses import LossFunctionWrapper, MSE
from {_KERAS}.mixed_precision import policy
from {_KERAS}.mixed_precision.experimental import device_compatibility_check
from {_KERAS}.mixed_precision.experimental import loss_scale_optimizer
from {_KERAS}.models import load_model
from {_KERAS}.optimizer_v2 import gradient_descent, learning_rate_schedule
from {_KERAS}.optimizer_v2 import optimizer_v2, utils as optimizer_utils
from {_KERAS}.optimizer_v2.adam import Adam
from {_KERAS}.optimizers import Adam as Adam2
from {_KERAS}.preprocessing import dataset_utils
from {_KERAS}.preprocessing.image import ImageDataGenerator
from {_KERAS}.preprocessing.sequence import pad_sequences
from {_KERAS}.saving import hdf5_format
from {_KERAS}.saving.saving_utils import model_input_signature
from {_KERAS}.utils import conv_utils, data_utils, generic_utils, losses_utils
from {_KERAS}.utils import metrics_utils, tf_utils, to_categorical
from {_KERAS}.utils.generic_utils import CustomObjectScope, to_list
from {_KERAS}.utils.generic_utils import serialize_keras_object
"""
_USE_EACH = f"""
import json, sys
import tensorflow
import tf_compat_lossscale as tfl
tfl.install(keras_optimizers="legacy")
wrong, names = {{}}, {{}}
for line in {_IMPORTS!r}.splitlines():
  try:
    exec(line, names)
  except ImportError as error:
    wrong[line] = str(error)
tf = names["tf"] = tensorflow
public = tf.keras
same = {{
  "Model": public.Model, "OldModel": public.Model, "Dense": public.layers.Dense,
  "Layer": public.layers.Layer, "Layer2": public.layers.Layer,
  "Adam": public.optimizers.Adam, "Adam2": public.optimizers.Adam,
  "BN": public.layers.BatchNormalization, "MSE": public.losses.MSE,
  "Callback": public.callbacks.Callback, "RNN": public.layers.RNN,
  "CustomObjectScope": public.utils.CustomObjectScope,
}}
for name, value in same.items():
  if names[name] is not value:
    wrong[name] = repr(names[name])
if not tf.keras.utils.to_categorical is names["to_categorical"]:
  wrong["to_categorical"] = ""
# What TensorFlow has built on its own copy goes on to use that copy.
from tensorflow.python.layers import core, normalization
dense = core.Dense(2)
dense(tf.ones([1, 2]))
if isinstance(dense, public.layers.Layer):
  wrong["core.Dense"] = ""
star = {{}}
exec("from {_KERAS}.layers import *", star)
if star["Dense"] is not public.layers.Dense or "_Merge" in star:
  wrong["star"] = ""
stood = sys.modules["{_KERAS}.backend"]
tfl.uninstall()
own = sys.modules["{_KERAS}.backend"]
from {_KERAS} import layers
if own is stood or layers.Dense is public.layers.Dense:
  wrong["uninstall"] = ""
print(json.dumps(wrong))
"""
_WITH_KERAS_3 = f"""
import keras
import tensorflow as tf
import tf_compat_lossscale as tfl
from {_KERAS}.layers import Dense
adam = tf.keras.optimizers.Adam
tfl.install(keras_optimizers="legacy")
from {_KERAS}.layers import Dense as Dense2
import keras.layers as layers
assert Dense2 is Dense and layers.Dense is keras.layers.Dense is not Dense
assert hasattr(keras, "ops") and tf.keras.optimizers.Adam is adam
assert type(tf.keras.optimizers.get("adam")) is adam
"""


def test_programs_get_the_modules_of_keras_2():
  printed = processes.run_forked("-c", _USE_EACH, **helpers.KERAS_2)
  wrong = json.loads(printed.splitlines()[-1])
  assert not wrong


@pytest.mark.skipif(helpers.RELEASE < (2, 16), reason="there is no Keras 3")
def test_keras_3_and_the_copy_stay_as_they_are():
  processes.run_forked("-c", _WITH_KERAS_3, **helpers.KERAS_3)
