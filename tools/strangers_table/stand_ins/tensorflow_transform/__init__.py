# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Transform's output: the features in a JSON file."""

import json
import os

import tensorflow.compat.v1 as tf


class TFTransformOutput:
  def __init__(self, path):
    with open(os.path.join(path, "features.json")) as file:
      self._features = json.load(file)

  def transformed_feature_spec(self):
    return {
      name: tf.FixedLenFeature(shape, tf.as_dtype(dtype))
      for name, (dtype, shape) in self._features.items()
    }
