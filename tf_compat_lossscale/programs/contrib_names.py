# SPDX-License-Identifier: Apache-2.0
"""The table of names of `tf.contrib`: where each lives today.

The targets are texts as `targets` reads them: `tf.X` is X in
`tensorflow.compat.v1`, `parts.X` is a piece of this package.
"""

from __future__ import annotations

from tf_compat_lossscale.programs import contrib_part_names
from tf_compat_lossscale.programs import contrib_slim_names
from tf_compat_lossscale.programs import loading

_ROWS = (
  loading.Row("autograph", "tf.autograph", "to_code to_graph"),
  loading.Row(
    "autograph",
    "tf.autograph.experimental",
    "Feature do_not_convert",
  ),
  loading.Row(
    "cluster_resolver",
    "tf.distribute.cluster_resolver",
    "ClusterResolver GCEClusterResolver KubernetesClusterResolver "
    "SimpleClusterResolver SlurmClusterResolver TFConfigClusterResolver "
    "TPUClusterResolver UnionResolver",
  ),
  loading.Row(
    "data",
    "tf.data.experimental",
    "AUTOTUNE CheckpointInputPipelineHook Counter CsvDataset Optional "
    "RandomDataset Reducer SqlDataset TFRecordWriter bucket_by_sequence_length "
    "choose_from_datasets copy_to_device dense_to_sparse_batch "
    "enumerate_dataset get_next_as_optional get_single_element "
    "group_by_reducer group_by_window ignore_errors "
    "make_batched_features_dataset make_csv_dataset "
    "make_saveable_from_iterator map_and_batch parallel_interleave "
    "parse_example_dataset prefetch_to_device rejection_resample "
    "sample_from_datasets scan shuffle_and_repeat unbatch unique",
  ),
  # Names of contrib.data before tf.data, up to 1.4.
  loading.Row(
    "data",
    "tf.data",
    "Dataset FixedLengthRecordDataset Iterator TFRecordDataset TextLineDataset",
  ),
  loading.Row(
    "distribute",
    "tf.distribute",
    "CrossDeviceOps ReplicaContext get_loss_reduction "
    "get_replica_context get_strategy has_strategy in_cross_replica_context",
  ),
  loading.Row(
    "framework",
    "tensorflow.python.util.deprecation",
    "deprecated deprecated_arg_values deprecated_args",
  ),
  loading.Row(
    "framework",
    "tf.train",
    "init_from_checkpoint list_variables load_checkpoint load_variable",
  ),
  loading.Row(
    "framework",
    "tf",
    "TensorSpec argsort assert_same_float_dtype assert_scalar "
    "convert_to_tensor_or_sparse_tensor is_tensor sort",
  ),
  loading.Row(
    "framework",
    "tensorflow.python.ops.init_ops",
    "convolutional_delta_orthogonal convolutional_orthogonal_1d "
    "convolutional_orthogonal_2d convolutional_orthogonal_3d",
  ),
  loading.Row(
    "metrics",
    "tf.sets",
    "set_difference set_intersection set_size set_union",
  ),
  loading.Row("proto", "tf.io", "decode_proto encode_proto"),
  loading.Row(
    "rnn",
    "tf.nn.rnn_cell",
    "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell "
    "LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper",
  ),
  loading.Row(
    "rnn",
    "tf.nn",
    "static_bidirectional_rnn static_rnn static_state_saving_rnn",
  ),
  loading.Row(
    "signal",
    "tf.signal",
    "frame hamming_window hann_window inverse_stft inverse_stft_window_fn "
    "linear_to_mel_weight_matrix mfccs_from_log_mel_spectrograms "
    "overlap_and_add stft",
  ),
  loading.Row(
    "stateless",
    "tf.random",
    "stateless_multinomial stateless_truncated_normal",
  ),
  loading.Row(
    "checkpoint",
    "tensorflow.python.trackable.data_structures",
    "List Mapping NoDependency",
  ),
  loading.Row("checkpoint", "tf.train", "CheckpointManager"),
  loading.Row(
    "distribute",
    "tensorflow.python.distribute.distribute_lib or "
    "tensorflow.python.distribute.distribution_strategy_context",
    "get_cross_replica_context get_distribution_strategy "
    "has_distribution_strategy require_replica_context",
  ),
  loading.Row(
    "distribute",
    "tensorflow.python.distribute.step_fn",
    "StandardInputStep StandardSingleLossStep Step",
  ),
  loading.Row(
    "distributions",
    "tf.distributions",
    "Bernoulli Beta Categorical Dirichlet DirichletMultinomial Distribution "
    "Exponential FULLY_REPARAMETERIZED Gamma Laplace Multinomial "
    "NOT_REPARAMETERIZED Normal RegisterKL ReparameterizationType StudentT "
    "Uniform kl_divergence",
  ),
  loading.Row(
    "eager",
    "tf",
    "GradientTape TensorSpec custom_gradient enable_eager_execution "
    "executing_eagerly function make_template",
  ),
  loading.Row(
    "eager",
    "tensorflow.python.eager.context",
    "ASYNC DEVICE_PLACEMENT_EXPLICIT DEVICE_PLACEMENT_SILENT "
    "DEVICE_PLACEMENT_WARN SYNC execution_mode num_gpus set_execution_mode",
  ),
  loading.Row("eager", "tf.train", "Checkpoint"),
  loading.Row(
    "estimator",
    "tf.estimator.experimental",
    "InMemoryEvaluatorHook build_raw_supervised_input_receiver_fn "
    "call_logit_fn dnn_logit_fn_builder linear_logit_fn_builder "
    "make_early_stopping_hook stop_if_higher_hook stop_if_lower_hook "
    "stop_if_no_decrease_hook stop_if_no_increase_hook",
  ),
  loading.Row(
    "estimator",
    "tf.estimator",
    "BaselineEstimator DNNEstimator DNNLinearCombinedEstimator "
    "LinearEstimator add_metrics",
  ),
  loading.Row(
    "feature_column",
    "tf.feature_column",
    "sequence_categorical_column_with_hash_bucket "
    "sequence_categorical_column_with_identity "
    "sequence_categorical_column_with_vocabulary_file "
    "sequence_categorical_column_with_vocabulary_list sequence_numeric_column",
  ),
  loading.Row("learn", "tf.train", "NanLossDuringTrainingError"),
  loading.Row(
    "lookup",
    "tensorflow.python.ops.lookup_ops",
    "FastHashSpec HashTable HasherSpec IdTableWithHashBuckets "
    "InitializableLookupTableBase KeyValueTensorInitializer LookupInterface "
    "MutableHashTable StrongHashSpec "
    "TableInitializerBase TextFileIdTableInitializer TextFileIndex "
    "TextFileInitializer TextFileStringTableInitializer index_table_from_file "
    "index_to_string_table_from_file",
  ),
  loading.Row(
    "nccl",
    "tensorflow.python.ops.nccl_ops",
    "all_max all_min all_prod all_sum broadcast reduce_sum",
  ),
  loading.Row("nn", "tf.nn", "conv1d_transpose"),
  loading.Row("nn", "tensorflow.python.ops.nn_ops", "nth_element"),
  loading.Row(
    "summary",
    "tensorflow.python.ops.summary_ops_v2",
    "SummaryWriter always_record_summaries audio create_file_writer "
    "create_summary_file_writer eval_dir flush generic histogram image "
    "import_event initialize never_record_summaries "
    "record_summaries_every_n_global_steps scalar should_record_summaries "
    "summary_writer_initializer_op",
  ),
  loading.Row(
    "tensorboard",
    "tensorboard.plugins.projector",
    "EmbeddingInfo ProjectorConfig SpriteMetadata visualize_embeddings",
  ),
  loading.Row(
    "tpu",
    "tf.tpu",
    "CrossShardOptimizer batch_parallel bfloat16_scope core cross_replica_sum "
    "initialize_system outside_compilation replicate rewrite shard "
    "shutdown_system",
  ),
  loading.Row("tpu", "tf.tpu.experimental", "DeviceAssignment Topology"),
  loading.Row(
    "tpu",
    "tf.estimator.tpu",
    "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec",
  ),
  loading.Row(
    "tpu",
    "tensorflow.python.tpu.ops.tpu_ops",
    "infeed_dequeue infeed_dequeue_tuple infeed_enqueue infeed_enqueue_tuple "
    "outfeed_dequeue outfeed_dequeue_tuple outfeed_enqueue "
    "outfeed_enqueue_tuple",
  ),
  loading.Row(
    "tpu", "tensorflow.python.tpu.training_loop", "repeat while_loop"
  ),
  loading.Row(
    "tpu", "tensorflow.python.tpu.device_assignment", "device_assignment"
  ),
  loading.Row("tpu", "tensorflow.python.tpu.tpu_feed", "InfeedQueue"),
)

# Names whose last part changed, and names that are alone in their home.
_RENAMED = {
  "batching.batch_function": "tf.nondifferentiable_batch_function",
  "checkpoint.Checkpointable": "tensorflow.python.trackable.autotrackable"
  ".AutoTrackable",
  "checkpoint.CheckpointableBase": "tensorflow.python.trackable.base.Trackable",
  "compiler.compile": "tf.xla.experimental.compile",
  "compiler.experimental_jit_scope": "tf.xla.experimental.jit_scope",
  "distribute.AllReduceCrossDeviceOps": "tensorflow.python.distribute"
  ".cross_device_ops.AllReduceCrossDeviceOps",
  "distribute.DistributionStrategy": "tf.distribute.Strategy",
  "eager.Iterator": "parts.eager.Iterator",
  "eager.Variable": "tensorflow.python.ops.resource_variable_ops"
  ".ResourceVariable",
  "eager.defun": "tf.function",
  "eager.gradients_function": "tensorflow.python.eager.backprop"
  ".gradients_function",
  "eager.implicit_gradients": "tensorflow.python.eager.backprop.implicit_grad",
  "eager.implicit_value_and_gradients": "tensorflow.python.eager.backprop"
  ".implicit_val_and_grad",
  "eager.in_eager_mode": "tf.executing_eagerly",
  "eager.py_func": "tf.py_function",
  "eager.value_and_gradients_function": "tensorflow.python.eager.backprop"
  ".val_and_grad_function",
  "lookup.MutableDenseHashTable": "tf.lookup.experimental.DenseHashTable",
  "summary.graph": "tensorflow.python.ops.summary_ops_v2.graph_v1",
  "summary.all_summary_ops": "tf.summary.all_v2_summary_ops",
  "framework.BoundedTensorSpec": "tensorflow.python.framework.tensor_spec"
  ".BoundedTensorSpec",
  "metrics.confusion_matrix": "tf.math.confusion_matrix",
  "rnn.best_effort_input_batch_size": "tensorflow.python.ops.rnn"
  "._best_effort_input_batch_size",
  "rnn.transpose_batch_time": "tensorflow.python.ops.rnn._transpose_batch_time",
  "staging.StagingArea": "tensorflow.python.ops.data_flow_ops.StagingArea",
  "stateless.stateless_random_normal": "tf.random.stateless_normal",
  "stateless.stateless_random_uniform": "tf.random.stateless_uniform",
  "util.constant_value": "tf.get_static_value",
  "util.make_ndarray": "tf.make_ndarray",
  "util.make_tensor_proto": "tf.make_tensor_proto",
}

# tf.contrib.slim had all names of these modules, too.
_OF_SLIM = ("layers", "framework")


def _read_rows() -> dict[str, dict[str, str]]:
  """Returns module of `tf.contrib` -> name -> target."""
  found: dict[str, dict[str, str]] = {}
  others = (*contrib_slim_names.ROWS, *contrib_part_names.ROWS)
  for row in (*_ROWS, *map(loading.Row._make, others)):
    for name in row.names.split():
      homes = (f"{home}.{name}" for home in row.home.split(" or "))
      found.setdefault(row.module, {})[name] = " or ".join(homes)
  for path, target in _RENAMED.items():
    module, _, name = path.partition(".")
    found.setdefault(module, {})[name] = target
  return found


# Module of `tf.contrib` -> name in that module -> target.
NAMES = _read_rows()


def find_targets(module: str, name: str) -> list[str]:
  """Returns the targets that a name may have, the best first.

  Args:
    module: The module of `tf.contrib`, such as "layers".
    name: A name in that module, or in a module below it.
  """
  modules: tuple[str, ...] = (module,)
  found = []
  if module == "slim":
    found.append(f"tf_slim.{name}")
    modules = _OF_SLIM
  for owner in modules:
    target = NAMES.get(owner, {}).get(name)
    if target:
      found.append(target)
  return found


def list_names(module: str) -> set[str]:
  """Returns the names of a module of `tf.contrib` that the table has."""
  modules = _OF_SLIM if module == "slim" else (module,)
  return {name for owner in modules for name in NAMES.get(owner, ())}
