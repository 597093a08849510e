# SPDX-License-Identifier: Apache-2.0
"""The table of names of `tf.contrib`: where each lives today.

The targets are texts as `loading` reads them: `tf.X` is X in
`tensorflow.compat.v1`, `parts.X` is a piece of this package.
"""

from __future__ import annotations

from tf_compat_lossscale.programs import loading

_ROWS = (
  loading.Row("autograph", "tf.autograph", "to_code to_graph"),
  loading.Row(
    "autograph", "tf.autograph.experimental", "Feature do_not_convert"
  ),
  loading.Row(
    "batching", "tf", "batch_function=nondifferentiable_batch_function"
  ),
  loading.Row(
    "checkpoint",
    "tensorflow.python.trackable.data_structures",
    "List Mapping NoDependency",
  ),
  loading.Row("checkpoint", "tf.train", "CheckpointManager"),
  loading.Row(
    "checkpoint",
    "tensorflow.python.trackable.autotrackable",
    "Checkpointable=AutoTrackable",
  ),
  loading.Row(
    "checkpoint",
    "tensorflow.python.trackable.base",
    "CheckpointableBase=Trackable",
  ),
  loading.Row(
    "cluster_resolver",
    "tf.distribute.cluster_resolver",
    "ClusterResolver GCEClusterResolver KubernetesClusterResolver "
    "SimpleClusterResolver SlurmClusterResolver TFConfigClusterResolver "
    "TPUClusterResolver UnionResolver",
  ),
  loading.Row(
    "compiler",
    "tf.xla.experimental",
    "compile experimental_jit_scope=jit_scope",
  ),
  loading.Row("cudnn_rnn", "parts.rnn_blocks", "CudnnCompatibleLSTMCell"),
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
    "data",
    "parts.data",
    "assert_element_shape batch_and_drop_remainder "
    "padded_batch_and_drop_remainder reduce_dataset sliding_window_batch "
    "sloppy_interleave",
  ),
  loading.Row(
    "distribute",
    "tf.distribute",
    "CrossDeviceOps ReplicaContext get_loss_reduction get_replica_context "
    "get_strategy has_strategy in_cross_replica_context "
    "DistributionStrategy=Strategy",
  ),
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
    "distribute",
    "parts.distribute",
    "CollectiveAllReduceStrategy MirroredStrategy OneDeviceStrategy "
    "ParameterServerStrategy",
  ),
  loading.Row(
    "distribute",
    "tensorflow.python.distribute.cross_device_ops",
    "AllReduceCrossDeviceOps",
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
    "executing_eagerly function make_template defun=function "
    "in_eager_mode=executing_eagerly py_func=py_function",
  ),
  loading.Row(
    "eager",
    "tensorflow.python.eager.context",
    "ASYNC DEVICE_PLACEMENT_EXPLICIT DEVICE_PLACEMENT_SILENT "
    "DEVICE_PLACEMENT_WARN SYNC execution_mode num_gpus set_execution_mode",
  ),
  loading.Row("eager", "tf.train", "Checkpoint"),
  loading.Row("eager", "parts.eager", "Iterator"),
  loading.Row(
    "eager",
    "tensorflow.python.ops.resource_variable_ops",
    "Variable=ResourceVariable",
  ),
  loading.Row(
    "eager",
    "tensorflow.python.eager.backprop",
    "gradients_function implicit_gradients=implicit_grad "
    "implicit_value_and_gradients=implicit_val_and_grad "
    "value_and_gradients_function=val_and_grad_function",
  ),
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
    "BaselineEstimator DNNEstimator DNNLinearCombinedEstimator LinearEstimator "
    "add_metrics",
  ),
  loading.Row(
    "feature_column",
    "tf.feature_column",
    "sequence_categorical_column_with_hash_bucket "
    "sequence_categorical_column_with_identity "
    "sequence_categorical_column_with_vocabulary_file "
    "sequence_categorical_column_with_vocabulary_list sequence_numeric_column",
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
  loading.Row(
    "framework",
    "tf_slim.ops.arg_scope",
    "add_arg_scope arg_scope arg_scoped_arguments current_arg_scope "
    "has_arg_scope",
  ),
  loading.Row(
    "framework",
    "parts.framework",
    "assert_scalar_int get_graph_from_inputs get_name_scope get_placeholders "
    "py_func reduce_sum_n remove_squeezable_dimensions smart_case smart_cond "
    "smart_constant_value with_same_shape with_shape zero_initializer",
  ),
  loading.Row(
    "framework", "tensorflow.python.framework.tensor_spec", "BoundedTensorSpec"
  ),
  loading.Row(
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
  loading.Row(
    "layers",
    "tf_slim.layers.utils",
    "append_tensor_alias collect_named_outputs constant_value "
    "convert_collection_to_dict gather_tensors_aliases get_tensor_aliases "
    "get_variable_collections last_dimension n_positive_integers smart_cond "
    "static_cond two_element_tuple channel_dimension",
  ),
  loading.Row("layers", "tf.nn", "safe_embedding_lookup_sparse"),
  loading.Row(
    "layers",
    "parts.layers",
    "bow_encoder embed_sequence embedding_lookup_unique",
  ),
  loading.Row("learn", "tf.train", "NanLossDuringTrainingError"),
  loading.Row("learn", "parts.learn", "ModeKeys"),
  loading.Row("learn", "parts.run_config", "RunConfig"),
  loading.Row(
    "lookup",
    "tensorflow.python.ops.lookup_ops",
    "FastHashSpec HashTable HasherSpec IdTableWithHashBuckets "
    "InitializableLookupTableBase KeyValueTensorInitializer LookupInterface "
    "MutableHashTable StrongHashSpec TableInitializerBase "
    "TextFileIdTableInitializer TextFileIndex TextFileInitializer "
    "TextFileStringTableInitializer index_table_from_file "
    "index_to_string_table_from_file",
  ),
  loading.Row(
    "lookup",
    "parts.lookup",
    "index_table_from_tensor index_to_string_table_from_tensor",
  ),
  loading.Row(
    "lookup", "tf.lookup.experimental", "MutableDenseHashTable=DenseHashTable"
  ),
  loading.Row(
    "losses",
    "tf_slim.losses",
    "absolute_difference add_loss compute_weighted_loss cosine_distance "
    "get_losses get_regularization_losses get_total_loss hinge_loss log_loss "
    "mean_pairwise_squared_error mean_squared_error sigmoid_cross_entropy "
    "softmax_cross_entropy sparse_softmax_cross_entropy",
  ),
  loading.Row(
    "metrics", "tf.sets", "set_difference set_intersection set_size set_union"
  ),
  loading.Row(
    "metrics",
    "tf_slim.metrics",
    "accuracy aggregate_metric_map aggregate_metrics auc_using_histogram "
    "auc_with_confidence_intervals cohen_kappa count f1_score "
    "precision_at_recall precision_recall_at_equal_thresholds "
    "recall_at_precision sparse_recall_at_top_k streaming_accuracy "
    "streaming_auc streaming_concat streaming_covariance "
    "streaming_curve_points streaming_dynamic_auc "
    "streaming_false_negative_rate streaming_false_negative_rate_at_thresholds "
    "streaming_false_negatives streaming_false_negatives_at_thresholds "
    "streaming_false_positive_rate streaming_false_positive_rate_at_thresholds "
    "streaming_false_positives streaming_false_positives_at_thresholds "
    "streaming_mean streaming_mean_absolute_error "
    "streaming_mean_cosine_distance streaming_mean_iou "
    "streaming_mean_relative_error streaming_mean_squared_error "
    "streaming_mean_tensor streaming_pearson_correlation "
    "streaming_percentage_less streaming_precision "
    "streaming_precision_at_thresholds streaming_recall streaming_recall_at_k "
    "streaming_recall_at_thresholds streaming_root_mean_squared_error "
    "streaming_sensitivity_at_specificity "
    "streaming_sparse_average_precision_at_k "
    "streaming_sparse_average_precision_at_top_k "
    "streaming_sparse_precision_at_k streaming_sparse_precision_at_top_k "
    "streaming_sparse_recall_at_k streaming_specificity_at_sensitivity "
    "streaming_true_negatives streaming_true_negatives_at_thresholds "
    "streaming_true_positives streaming_true_positives_at_thresholds",
  ),
  loading.Row("metrics", "tf.math", "confusion_matrix"),
  loading.Row(
    "nccl",
    "tensorflow.python.ops.nccl_ops",
    "all_max all_min all_prod all_sum broadcast reduce_sum",
  ),
  loading.Row("nn", "tf.nn", "conv1d_transpose"),
  loading.Row("nn", "tensorflow.python.ops.nn_ops", "nth_element"),
  loading.Row("nn", "parts.nn", "alpha_dropout scaled_softplus"),
  loading.Row(
    "opt",
    "parts.opt",
    "AdamWOptimizer DecoupledWeightDecayExtension LazyAdamOptimizer "
    "MomentumWOptimizer extend_with_decoupled_weight_decay",
  ),
  loading.Row(
    "opt",
    "parts.opt_rules",
    "AdaMaxOptimizer AddSignOptimizer LARSOptimizer NadamOptimizer "
    "PowerSignOptimizer",
  ),
  loading.Row(
    "opt",
    "parts.opt_wrappers",
    "MovingAverageOptimizer MultitaskOptimizerWrapper "
    "VariableClippingOptimizer clip_gradients_by_global_norm",
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
    "rnn",
    "parts.rnn",
    "FusedRNNCell FusedRNNCellAdaptor TimeReversedFusedRNN "
    "stack_bidirectional_dynamic_rnn stack_bidirectional_rnn",
  ),
  loading.Row(
    "rnn",
    "parts.rnn_blocks",
    "GRUBlockCell GRUBlockCellV2 LSTMBlockCell LSTMBlockFusedCell",
  ),
  loading.Row(
    "rnn",
    "parts.rnn_cells",
    "Conv1DLSTMCell Conv2DLSTMCell Conv3DLSTMCell ConvLSTMCell "
    "LayerNormBasicLSTMCell NASCell SRUCell UGRNNCell",
  ),
  loading.Row(
    "rnn",
    "parts.rnn_wrappers",
    "AttentionCellWrapper EmbeddingWrapper HighwayWrapper "
    "InputProjectionWrapper OutputProjectionWrapper",
  ),
  loading.Row(
    "rnn",
    "tensorflow.python.ops.rnn",
    "best_effort_input_batch_size=_best_effort_input_batch_size "
    "transpose_batch_time=_transpose_batch_time",
  ),
  loading.Row(
    "seq2seq",
    "parts.attention",
    "AttentionMechanism AttentionWrapper AttentionWrapperState "
    "BahdanauAttention LuongAttention _BaseAttentionMechanism",
  ),
  loading.Row(
    "seq2seq",
    "parts.beam_search",
    "BeamSearchDecoder BeamSearchDecoderOutput BeamSearchDecoderState "
    "FinalBeamSearchDecoderOutput gather_tree gather_tree_from_array "
    "tile_batch",
  ),
  loading.Row(
    "seq2seq",
    "parts.decoder",
    "BasicDecoder BasicDecoderOutput Decoder dynamic_decode",
  ),
  loading.Row(
    "seq2seq",
    "parts.helpers",
    "CustomHelper GreedyEmbeddingHelper Helper InferenceHelper "
    "SampleEmbeddingHelper ScheduledEmbeddingTrainingHelper TrainingHelper",
  ),
  loading.Row("seq2seq", "parts.seq2seq", "hardmax safe_cumprod sequence_loss"),
  loading.Row(
    "signal",
    "tf.signal",
    "frame hamming_window hann_window inverse_stft inverse_stft_window_fn "
    "linear_to_mel_weight_matrix mfccs_from_log_mel_spectrograms "
    "overlap_and_add stft",
  ),
  loading.Row("sparsemax", "parts.sparsemax", "sparsemax sparsemax_loss"),
  loading.Row("staging", "tensorflow.python.ops.data_flow_ops", "StagingArea"),
  loading.Row(
    "stateless",
    "tf.random",
    "stateless_multinomial stateless_truncated_normal "
    "stateless_random_normal=stateless_normal "
    "stateless_random_uniform=stateless_uniform",
  ),
  loading.Row(
    "summary",
    "tensorflow.python.ops.summary_ops_v2",
    "SummaryWriter always_record_summaries audio create_file_writer "
    "create_summary_file_writer eval_dir flush generic histogram image "
    "import_event initialize never_record_summaries "
    "record_summaries_every_n_global_steps scalar should_record_summaries "
    "summary_writer_initializer_op graph=graph_v1",
  ),
  loading.Row("summary", "tf.summary", "all_summary_ops=all_v2_summary_ops"),
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
  loading.Row("training", "tf.train", "checkpoints_iterator"),
  loading.Row(
    "training",
    "tf_slim.training.training",
    "add_gradients_summaries clip_gradient_norms clip_gradient_norms_fn "
    "create_train_op multiply_gradients train",
  ),
  loading.Row(
    "training",
    "tf_slim.training.evaluation",
    "StopAfterNEvalsHook SummaryAtEndHook evaluate_once evaluate_repeatedly "
    "get_or_create_eval_step wait_for_new_checkpoint",
  ),
  loading.Row("training", "parts.training", "HParams parse_values"),
  loading.Row(
    "util",
    "tf",
    "constant_value=get_static_value make_ndarray make_tensor_proto",
  ),
)

# tf.contrib.slim had all names of these modules, too.
_OF_SLIM = ("layers", "framework")


# Module of `tf.contrib` -> name in that module -> target.
NAMES = loading.read_rows(_ROWS)


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
