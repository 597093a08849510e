# SPDX-License-Identifier: Apache-2.0
"""The names of `tf.contrib` that the package tf_slim has."""

from __future__ import annotations

# (module of `tf.contrib`, the module that has the names today, the names)
ROWS = (
  (
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
  (
    "framework",
    "tf_slim.ops.arg_scope",
    "add_arg_scope arg_scope arg_scoped_arguments current_arg_scope "
    "has_arg_scope",
  ),
  (
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
  (
    "layers",
    "tf_slim.layers.utils",
    "append_tensor_alias collect_named_outputs "
    "constant_value convert_collection_to_dict "
    "gather_tensors_aliases get_tensor_aliases get_variable_collections "
    "last_dimension n_positive_integers smart_cond static_cond "
    "two_element_tuple channel_dimension",
  ),
  ("layers", "tf.nn", "safe_embedding_lookup_sparse"),
  (
    "losses",
    "tf_slim.losses",
    "absolute_difference add_loss compute_weighted_loss cosine_distance "
    "get_losses get_regularization_losses get_total_loss hinge_loss log_loss "
    "mean_pairwise_squared_error mean_squared_error sigmoid_cross_entropy "
    "softmax_cross_entropy sparse_softmax_cross_entropy",
  ),
  (
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
  ("training", "tf.train", "checkpoints_iterator"),
  (
    "training",
    "tf_slim.training.training",
    "add_gradients_summaries clip_gradient_norms clip_gradient_norms_fn "
    "create_train_op multiply_gradients train",
  ),
  (
    "training",
    "tf_slim.training.evaluation",
    "StopAfterNEvalsHook SummaryAtEndHook evaluate_once evaluate_repeatedly "
    "get_or_create_eval_step wait_for_new_checkpoint",
  ),
)
