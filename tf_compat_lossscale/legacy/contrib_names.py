# SPDX-License-Identifier: Apache-2.0
"""The table of names of `tf.contrib`: where each lives today.

The targets are texts as `targets` reads them: `tf.X` is X in
`tensorflow.compat.v1`, `parts.X` is a piece of this package.
"""

from __future__ import annotations

from typing import NamedTuple


class _Row(NamedTuple):
  """A row of the table: names that kept their last part.

  Attributes:
    module: The module of `tf.contrib` that had the names.
    home: The module that has the names today.
    names: The names, separated by spaces.
  """

  module: str
  home: str
  names: str


_ROWS = (
  _Row("autograph", "tf.autograph", "to_code to_graph"),
  _Row(
    "autograph",
    "tf.autograph.experimental",
    "Feature do_not_convert set_loop_options",
  ),
  _Row(
    "cluster_resolver",
    "tf.distribute.cluster_resolver",
    "ClusterResolver GCEClusterResolver KubernetesClusterResolver "
    "SimpleClusterResolver SlurmClusterResolver TFConfigClusterResolver "
    "TPUClusterResolver UnionResolver",
  ),
  _Row(
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
  _Row(
    "data",
    "parts.data",
    "assert_element_shape batch_and_drop_remainder "
    "padded_batch_and_drop_remainder reduce_dataset sliding_window_batch "
    "sloppy_interleave",
  ),
  # Names of contrib.data before tf.data, up to 1.4.
  _Row(
    "data",
    "tf.data",
    "Dataset FixedLengthRecordDataset Iterator TFRecordDataset TextLineDataset",
  ),
  _Row(
    "distribute",
    "tf.distribute",
    "CrossDeviceOps ReplicaContext get_loss_reduction "
    "get_replica_context get_strategy has_strategy in_cross_replica_context",
  ),
  _Row(
    "framework",
    "tf_slim.ops.variables",
    "VariableDeviceChooser add_model_variable assert_global_step "
    "assert_or_get_global_step assign_from_checkpoint "
    "assign_from_checkpoint_fn assign_from_values assign_from_values_fn "
    "create_global_step filter_variables get_global_step get_local_variables "
    "get_model_variables get_or_create_global_step get_trainable_variables "
    "get_unique_variable get_variable_full_name get_variables "
    "get_variables_by_name get_variables_by_suffix get_variables_to_restore "
    "global_variable local_variable model_variable variable",
  ),
  _Row(
    "framework",
    "tf_slim.ops.arg_scope",
    "add_arg_scope arg_scope arg_scoped_arguments current_arg_scope "
    "has_arg_scope",
  ),
  _Row(
    "framework",
    "tensorflow.python.util.deprecation",
    "deprecated deprecated_arg_values deprecated_args",
  ),
  _Row(
    "framework",
    "tf.train",
    "init_from_checkpoint list_variables load_checkpoint load_variable",
  ),
  _Row(
    "framework",
    "tf",
    "TensorSpec argsort assert_same_float_dtype assert_scalar "
    "convert_to_tensor_or_sparse_tensor is_tensor py_func sort",
  ),
  _Row(
    "framework",
    "tensorflow.python.ops.init_ops",
    "convolutional_delta_orthogonal convolutional_orthogonal_1d "
    "convolutional_orthogonal_2d convolutional_orthogonal_3d",
  ),
  _Row(
    "framework",
    "parts.framework",
    "assert_scalar_int get_graph_from_inputs get_name_scope get_placeholders "
    "reduce_sum_n remove_squeezable_dimensions smart_case smart_cond "
    "smart_constant_value with_same_shape with_shape zero_initializer",
  ),
  _Row(
    "layers",
    "tf_slim.layers",
    "GDN OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES RevBlock apply_regularization "
    "avg_pool2d avg_pool3d batch_norm bias_add conv1d conv2d conv2d_in_plane "
    "conv2d_transpose conv3d conv3d_transpose convolution convolution1d "
    "convolution2d convolution2d_in_plane convolution2d_transpose "
    "convolution3d convolution3d_transpose dense_to_sparse dropout elu flatten "
    "fully_connected gdn group_norm images_to_sequence instance_norm "
    "l1_l2_regularizer l1_regularizer l2_regularizer layer_norm "
    "legacy_fully_connected legacy_linear legacy_relu linear max_pool2d "
    "max_pool3d maxout one_hot_encoding optimize_loss recompute_grad relu "
    "relu6 repeat rev_block scale_gradient separable_conv2d "
    "separable_convolution2d sequence_to_images softmax spatial_softmax stack "
    "sum_regularizer summarize_activation summarize_activations "
    "summarize_collection summarize_tensor summarize_tensors unit_norm "
    "variance_scaling_initializer xavier_initializer xavier_initializer_conv2d",
  ),
  _Row(
    "layers",
    "tf_slim.layers.utils",
    "append_tensor_alias collect_named_outputs "
    "constant_value convert_collection_to_dict "
    "gather_tensors_aliases get_tensor_aliases get_variable_collections "
    "last_dimension n_positive_integers smart_cond static_cond "
    "two_element_tuple channel_dimension",
  ),
  _Row(
    "layers",
    "parts.layers",
    "bow_encoder embed_sequence embedding_lookup_unique",
  ),
  _Row("layers", "tf.nn", "safe_embedding_lookup_sparse"),
  _Row(
    "losses",
    "tf_slim.losses",
    "absolute_difference add_loss compute_weighted_loss cosine_distance "
    "get_losses get_regularization_losses get_total_loss hinge_loss log_loss "
    "mean_pairwise_squared_error mean_squared_error sigmoid_cross_entropy "
    "softmax_cross_entropy sparse_softmax_cross_entropy",
  ),
  _Row(
    "metrics",
    "tf_slim.metrics",
    "accuracy aggregate_metric_map aggregate_metrics auc_using_histogram "
    "auc_with_confidence_intervals cohen_kappa count f1_score "
    "precision_at_recall precision_recall_at_equal_thresholds "
    "recall_at_precision sparse_recall_at_top_k streaming_accuracy "
    "streaming_auc streaming_concat streaming_covariance "
    "streaming_curve_points streaming_dynamic_auc "
    "streaming_false_negative_rate "
    "streaming_false_negative_rate_at_thresholds streaming_false_negatives "
    "streaming_false_negatives_at_thresholds streaming_false_positive_rate "
    "streaming_false_positive_rate_at_thresholds streaming_false_positives "
    "streaming_false_positives_at_thresholds streaming_mean "
    "streaming_mean_absolute_error streaming_mean_cosine_distance "
    "streaming_mean_iou streaming_mean_relative_error "
    "streaming_mean_squared_error streaming_mean_tensor "
    "streaming_pearson_correlation streaming_percentage_less "
    "streaming_precision streaming_precision_at_thresholds streaming_recall "
    "streaming_recall_at_k streaming_recall_at_thresholds "
    "streaming_root_mean_squared_error streaming_sensitivity_at_specificity "
    "streaming_sparse_average_precision_at_k "
    "streaming_sparse_average_precision_at_top_k "
    "streaming_sparse_precision_at_k streaming_sparse_precision_at_top_k "
    "streaming_sparse_recall_at_k streaming_specificity_at_sensitivity "
    "streaming_true_negatives streaming_true_negatives_at_thresholds "
    "streaming_true_positives streaming_true_positives_at_thresholds",
  ),
  _Row(
    "metrics",
    "tf.sets",
    "set_difference set_intersection set_size set_union",
  ),
  _Row("proto", "tf.io", "decode_proto encode_proto"),
  _Row(
    "rnn",
    "tf.nn.rnn_cell",
    "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell "
    "LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper",
  ),
  _Row(
    "rnn",
    "tf.nn",
    "static_bidirectional_rnn static_rnn static_state_saving_rnn",
  ),
  _Row(
    "signal",
    "tf.signal",
    "frame hamming_window hann_window inverse_stft inverse_stft_window_fn "
    "linear_to_mel_weight_matrix mfccs_from_log_mel_spectrograms "
    "overlap_and_add stft",
  ),
  _Row(
    "stateless",
    "tf.random",
    "stateless_multinomial stateless_truncated_normal",
  ),
  _Row("training", "tf.train", "checkpoints_iterator"),
  _Row(
    "training",
    "tf_slim.training.training",
    "add_gradients_summaries clip_gradient_norms clip_gradient_norms_fn "
    "create_train_op multiply_gradients train",
  ),
  _Row(
    "training",
    "tf_slim.training.evaluation",
    "StopAfterNEvalsHook SummaryAtEndHook evaluate_once evaluate_repeatedly "
    "get_or_create_eval_step wait_for_new_checkpoint",
  ),
  _Row("training", "parts.training", "HParams parse_values"),
)

# Names whose last part changed, and names that are alone in their home.
_RENAMED = {
  "framework.BoundedTensorSpec": "tensorflow.python.framework.tensor_spec"
  ".BoundedTensorSpec",
  "metrics.confusion_matrix": "tf.math.confusion_matrix",
  "staging.StagingArea": "tensorflow.python.ops.data_flow_ops.StagingArea",
  "stateless.stateless_random_normal": "tf.random.stateless_normal",
  "stateless.stateless_random_uniform": "tf.random.stateless_uniform",
  "util.constant_value": "tf.get_static_value",
  "util.make_ndarray": "tf.make_ndarray",
  "util.make_tensor_proto": "tf.make_tensor_proto",
}

# A module of `tf.contrib` -> the module that serves as the whole of it.
MODULES = {
  "framework.nest": "tensorflow.python.util.nest",
  "keras": "tf.keras",
  "layers.summaries": "tf_slim.layers.summaries",
  "losses.metric_learning": "tf_slim.losses.metric_learning",
  "slim.nets": "tf_slim.nets",
  "slim.python.slim": "tf_slim",
  "slim.python.slim.data": "tf_slim.data",
  "slim.python.slim.nets": "tf_slim.nets",
}

# tf.contrib.slim had all names of these modules, too.
_OF_SLIM = ("layers", "framework")


def _read_rows() -> dict[str, dict[str, str]]:
  """Returns module of `tf.contrib` -> name -> target."""
  found: dict[str, dict[str, str]] = {}
  for row in _ROWS:
    for name in row.names.split():
      found.setdefault(row.module, {})[name] = f"{row.home}.{name}"
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
  modules = (module,)
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
