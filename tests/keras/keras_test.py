# SPDX-License-Identifier: Apache-2.0
"""Tests the names of `tf.keras.mixed_precision.experimental`, and where."""

import helpers
import processes

_HAS_KERAS_3 = helpers.RELEASE >= (2, 16)


def test_brings_no_keras_3():
  code = """
import sys
import tensorflow
before = set(sys.modules)
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2
new = set(sys.modules) - before
print([m for m in new if m == "keras" or m.startswith("keras.")][:3])
"""
  printed = processes.run_forked("-c", code).splitlines()[-1]
  assert printed == "[]" or not _HAS_KERAS_3


def test_without_keras_2_it_says_what_to_install():
  code = """
import sys
sys.modules["tf_keras"] = None
import tf_compat_lossscale as tfl
tfl.install()
import tensorflow as tf
from tensorflow.keras.mixed_precision import experimental as mp
for use in (lambda: mp.Policy, lambda: tfl.keras.Policy):
  try:
    use()
  except ImportError as error:
    print(error)
"""
  lines = processes.run_forked("-c", code).splitlines()
  release = ".".join(map(str, helpers.RELEASE))
  command = f"pip install 'tf_keras=={release}.*'"
  assert [command in line for line in lines] == [True, True] * _HAS_KERAS_3


@helpers.NEEDS_KERAS_3
def test_on_keras_3_the_names_say_what_to_do():
  code = """
import tf_compat_lossscale as tfl
tfl.install()
import tensorflow as tf
import keras
import tf_keras
from tensorflow.python.keras.mixed_precision.experimental import policy
for name in ("LossScaleOptimizer", "Policy", "global_policy", "set_policy",
             "get_layer_policy"):
  for place in (tf.keras, tf.compat.v1.keras, keras):
    try:
      getattr(place.mixed_precision.experimental, name)
    except ImportError as error:
      print(error)
  found = getattr(tf_keras.mixed_precision.experimental, name)
  assert found is getattr(tfl.keras, name)
try:
  policy.Policy
except ImportError as error:
  print(error)
try:
  from tensorflow.keras.mixed_precision.experimental import Policy
except ImportError as error:
  print(error)
"""
  lines = processes.run_forked("-c", code, **helpers.KERAS_3).splitlines()
  lines = [line for line in lines if "is of Keras 2, and" in line]
  assert len(lines) == 17
  for line in lines:
    assert "set TF_USE_LEGACY_KERAS=1 and install tf_keras (pip" in line
    assert "tf_compat_lossscale.keras.Keras3LossScaleOptimizer" in line


def test_legacy_places():
  code = """
import tf_compat_lossscale as tfl
tfl.install()
import tensorflow as tf
import tensorflow.compat.v1 as tf1
from tensorflow.keras.mixed_precision import experimental as mp
from tensorflow.python.keras.mixed_precision.experimental import policy
import tensorflow.keras.mixed_precision.experimental as again
from tensorflow.python.keras.mixed_precision.experimental.loss_scale_optimizer \
  import LossScaleOptimizer
for place in (tf.keras, tf1.keras):
  found = place.mixed_precision.experimental
  for name in ("LossScaleOptimizer", "Policy", "global_policy", "set_policy",
               "get_layer_policy"):
    assert getattr(found, name) is getattr(tfl.keras, name), (place, name)
assert again is mp and mp.Policy is tfl.keras.Policy is policy.Policy
assert LossScaleOptimizer is tfl.keras.LossScaleOptimizer
opt = mp.LossScaleOptimizer(tf.keras.optimizers.SGD(), "dynamic")
assert isinstance(opt, tf.keras.mixed_precision.LossScaleOptimizer)
assert isinstance(mp.Policy("mixed_float16").loss_scale,
                  tf.mixed_precision.experimental.DynamicLossScale)
"""
  processes.run_forked("-c", code, **helpers.KERAS_2)
