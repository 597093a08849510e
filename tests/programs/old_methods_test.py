# SPDX-License-Identifier: Apache-2.0
"""Tests the methods that classes had in TensorFlow 1."""

import legacy_processes
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

_PROGRAM = """
import tensorflow as tf

def shown(d):
  o = d.options()
  return (o.experimental_optimization.map_and_batch_fusion,
          o.experimental_optimization.noop_elimination,
          o.experimental_deterministic,
          o.experimental_distribute.auto_shard_policy.name)

first = tf.data.Options()
first.experimental_optimization.noop_elimination = True
first.experimental_deterministic = False
first.experimental_distribute.auto_shard_policy = (
    tf.data.experimental.AutoShardPolicy.OFF)
d = tf.data.Dataset.range(4).with_options(first).map(lambda x: x + 1).batch(4)
options = d.options()
options.experimental_optimization.map_and_batch_fusion = False
options.experimental_deterministic = True
print(shown(d))
d = d.with_options(options)
print(shown(d))
with tf.Session() as session:
  print(session.run(d.make_one_shot_iterator().get_next()))
"""


_OLD = """
import sys
import tensorflow as tf

sys.stderr = sys.stdout
o = tf.data.Options()
old = o.experimental_optimization
old.map_vectorization.enabled = True
old.map_vectorization.use_choose_fastest = True
old.hoist_random_uniform = True
old.autotune_buffers = False
old.autotune = False
o.experimental_stats.latency_all_edges = True
o.experimental_stateful_whitelist = None
o.experimental_autotune = False
o.experimental_distribute.auto_shard = False
o.experimental_map_fusion = True
print(o.autotune.enabled, o.experimental_autotune, old.map_fusion)
print(o.experimental_distribute.auto_shard_policy.name)
for owner, name in ((old, 'map_vectorisation'), (o, 'experimental_stat'),
                    (o, 'no_such'),
                    (o.experimental_distribute, 'auto_shards')):
  try:
    setattr(owner, name, True)
  except AttributeError:
    print('typo')
d = tf.data.Dataset.range(3).with_options(o)
changed = d.options()
changed.experimental_optimization.map_vectorization.enabled = False
with tf.Session() as session:
  print(session.run(tf.data.make_one_shot_iterator(
    d.with_options(changed).batch(3)).get_next()))
"""


def test_dropped_options_do_nothing_and_moved_ones_move(tmp_path):
  printed = legacy_processes.run_text(tmp_path, _OLD)
  said, *lines = printed.splitlines()
  assert "map_vectorization of tf.data's OptimizationOptions" in said
  assert "does nothing" in said
  expected = ["False False True", "OFF", *["typo"] * 4]
  assert lines[:6] == expected and lines[-1] == "[0 1 2]"
  assert "does nothing" not in "".join(lines)


def test_uninstall_takes_the_options_back():
  options = tf.data.Options
  before = vars(options)["experimental_optimization"]
  with tfl.installed():
    options().experimental_stats.prefix = "mine"
  assert not hasattr(options(), "experimental_stats")
  assert vars(options)["experimental_optimization"] is before


def test_a_program_changes_the_options_of_a_dataset(tmp_path):
  printed = legacy_processes.run_text(tmp_path, _PROGRAM)
  assert printed.splitlines() == [
    "(None, True, False, 'OFF')",
    "(False, True, True, 'OFF')",
    "[1 2 3 4]",
  ]


_LAYERS = """
import tensorflow as tf

modes = MODES.split()
if "eager" in modes:
  tf.enable_eager_execution()

class Twice(tf.keras.layers.Layer):
  def call(self, x):
    self.add_loss(tf.reduce_sum(x), inputs=True)
    return 2. * x

l2 = tf.keras.regularizers.l2(0.1)
layers = [tf.keras.layers.Dense(1, kernel_regularizer=l2), Twice(),
          tf.keras.layers.BatchNormalization()]
x = y = tf.keras.layers.Input([3]) if "model" in modes else tf.ones([2, 3])
for layer in layers:
  y = layer.apply(y)
if "model" in modes:
  layers = [tf.keras.Model(x, y)]
for layer in layers:
  print([len(get(inputs)) for get in (layer.get_losses_for,
         layer.get_updates_for) for inputs in (None, [x])])
"""


@pytest.mark.parametrize(
  ("modes", "expected"),
  [
    ("", "[1, 0, 0, 0][0, 1, 0, 0][0, 0, 0, 2]"),  # As 1.15.5 has them.
    ("model", "[1, 1, 0, 2]"),
    ("eager", "[1, 0, 0, 0][0, 1, 0, 0][0, 0, 0, 0]"),
    ("eager model", "[1, 1, 0, 0]"),  # Updates run at once; 1.15.5 kept two.
  ],
)
def test_layers_tell_losses_and_updates(modes, expected, tmp_path):
  text = _LAYERS.replace("MODES", repr(modes))
  printed = legacy_processes.run_text(tmp_path, text)
  assert printed.replace("\n", "") == expected


_ASSERTIONS = """
import tensorflow as tf

class Test(tf.test.TestCase):
  def test_lists(self):
    one, two = [tf.zeros([2]), tf.ones([2])], [tf.zeros([2]), tf.ones([2]) + 1]
    self.assertAllEqual(one, [[0., 0.], [1., 1.]])
    self.assertAllEqual((tuple(one), one), (one, one))
    self.assertAllClose([tf.shape(tf.ones([2, 3]))[1], 4], [3, 4])
    for check in (self.assertAllEqual, self.assertAllClose):
      with self.assertRaises(AssertionError):
        check([one, one], [one, two])

tf.test.main()
"""


def test_tests_evaluate_symbolic_tensors_in_lists(tmp_path):
  program = legacy_processes.program(tmp_path, _ASSERTIONS)
  status, _, err = legacy_processes.run("--tf1", program, cwd=tmp_path)
  assert status == 0, err


_BESIDE = """
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.contrib import boosted_trees, cloud
from tensorflow.contrib.factorization import KMeans
from tensorflow.python import ops as hidden
from tensorflow.python.feature_column import feature_column_lib
from tensorflow.python.framework import common_shapes, op_def_library, ops
from tensorflow.python.framework import op_def_registry
from tensorflow.python.keras import keras_parameterized
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.saved_model import loader_impl
from tensorflow.python.tpu import tpu

try:
  cloud.BigQueryReader
except AttributeError as error:
  print(str(error).partition("part. ")[2])
op_def_registry.register_op_list(op_def_pb2.OpList())
library = op_def_library.OpDefLibrary()
library.add_op_list(op_def_pb2.OpList())
product = library.apply_op('MatMul', a=[[2.]], b=[[3.]], transpose_a=False,
                           transpose_b=None, name='mine')
ops.RegisterShape('Mine')(common_shapes.unknown_shape)
print(product.op.name, common_shapes.unknown_shape(product.op))
try:
  tf.contrib.training.HParams.from_proto(None)
except NotImplementedError as error:
  print(str(error).rpartition(": ")[2])
column = tf.feature_column.numeric_column('x')
dense = feature_column_lib.DenseFeatures([column])({'x': tf.constant([[7.]])})
print(hidden.convert_to_tensor_v2(1).dtype.name, tpu._TPU_REPLICATE_ATTR)
proto = resource_variable_ops._to_proto_fn(tf.get_variable('v', []))
print(proto.variable_name, loader_impl._parse_saved_model.__name__)
points = tf.constant([[0.], [8.]])
graph = KMeans(points, 2, use_mini_batch=False).training_graph()
head = tf.contrib.estimator.regression_head(label_dimension=2)

def model_fn(features, labels, mode):
  return head.create_estimator_spec(
      features, mode, tf.zeros([2, 2]), labels, tf.train.AdamOptimizer())

labels = tf.constant([[1., 2.], [3., 4.]])
with tf.Session() as session:
  print(session.run([product, dense]))
  print(session.run(model_fn({}, labels, 'eval').loss), len(graph))

class Test(keras_parameterized.TestCase):
  @keras_parameterized.run_all_keras_modes
  @tf.contrib.eager.run_test_in_graph_and_eager_modes
  def test_it(self):
    self.assertAllEqual(tf.ones([]), 1)
"""


def test_what_lay_beside_a_name(tmp_path):
  """Checks names of 1.15.5, which prints the same but for two errors."""
  printed = legacy_processes.run_text(tmp_path, _BESIDE)
  assert printed.splitlines() == [
    "Use a Python package to read the data, in tf.data.Dataset.from_generator.",
    "mine [TensorShape(None)]",
    "use to_json() and parse_json()",
    "int32 _tpu_replicate",
    "v:0 parse_saved_model",
    "[array([[6.]], dtype=float32), array([[7.]], dtype=float32)]",
    "7.5 6",
  ]
