# SPDX-License-Identifier: Apache-2.0
"""The modules below `tf.contrib` in TensorFlow 1.15.

They can be imported, also those without names that are served: some programs
import a module and use it in rare cases alone."""

from __future__ import annotations

# Module of `tf.contrib` -> the modules below it, as "folder: module module".
# Several folders are separated by ";".
_MODULES = {
  "all_reduce": ": python; python: all_reduce",
  "autograph": "",
  "batching": ": python; python: ops; python.ops: batch_ops",
  "checkpoint": (
    ": python; python: containers python_state split_dependency visualize"
  ),
  "cluster_resolver": (
    ": python; python: training; python.training: cluster_resolver "
    "gce_cluster_resolver kubernetes_cluster_resolver "
    "slurm_cluster_resolver tfconfig_cluster_resolver "
    "tpu_cluster_resolver"
  ),
  "compiler": ": jit xla",
  "crf": ": python; python: ops; python.ops: crf",
  "cudnn_rnn": (
    ": python; python: layers ops; python.layers: cudnn_rnn; "
    "python.ops: cudnn_rnn_ops"
  ),
  "data": (
    ": python; python: ops; python.ops: batching counter enumerate_ops "
    "error_ops get_single_element grouping interleave_ops iterator_ops "
    "parsing_ops prefetching_ops random_ops readers resampling scan_ops "
    "shuffle_ops sliding threadpool unique writers"
  ),
  "distribute": (
    ": python; python: collective_all_reduce_strategy mirrored_strategy "
    "monitor one_device_strategy parameter_server_strategy tpu_strategy"
  ),
  "distributions": (
    ": python; python: ops; python.ops: autoregressive batch_reshape "
    "binomial cauchy chi2 conditional_distribution "
    "conditional_transformed_distribution deterministic "
    "distribution_util estimator geometric gumbel half_normal "
    "independent inverse_gamma kumaraswamy logistic mixture "
    "mixture_same_family moving_stats mvn_diag mvn_diag_plus_low_rank "
    "mvn_full_covariance mvn_linear_operator mvn_tril negative_binomial "
    "normal_conjugate_posteriors onehot_categorical poisson "
    "poisson_lognormal quantized_distribution relaxed_bernoulli "
    "relaxed_onehot_categorical sample_stats seed_stream shape "
    "sinh_arcsinh statistical_testing test_util vector_diffeomixture "
    "vector_exponential_diag vector_exponential_linear_operator "
    "vector_laplace_diag vector_laplace_linear_operator "
    "vector_sinh_arcsinh_diag vector_student_t wishart"
  ),
  "eager": (
    ": python; python: datasets metrics metrics_impl network "
    "parameter_server saver tfe"
  ),
  "estimator": (
    ": python; python: estimator; python.estimator: boosted_trees "
    "dnn_with_layer_annotations early_stopping export exporter "
    "extenders head hooks logit_fns multi_head replicate_model_fn rnn "
    "saved_model_estimator"
  ),
  "feature_column": (
    ": python; python: feature_column; python.feature_column: "
    "sequence_feature_column"
  ),
  "framework": (
    ": python; python: framework ops; python.framework: "
    "checkpoint_utils experimental graph_util tensor_util; python.ops: "
    "arg_scope audio_ops checkpoint_ops gen_variable_ops ops "
    "prettyprint_ops script_ops sort_ops variables"
  ),
  "image": (
    ": ops python; ops: gen_distort_image_ops gen_image_ops "
    "gen_single_image_random_dot_stereograms_ops; python: ops; "
    "python.ops: dense_image_warp distort_image_ops image_ops "
    "interpolate_spline single_image_random_dot_stereograms "
    "sparse_image_warp"
  ),
  "layers": (
    ": ops python; ops: gen_sparse_feature_cross_op; python: layers "
    "ops; python.layers: embedding_ops encoders feature_column "
    "feature_column_ops initializers layers normalization optimizers "
    "regularizers rev_block_lib summaries target_column utils; "
    "python.ops: bucketization_op sparse_feature_cross_op sparse_ops"
  ),
  "learn": (
    ": python; python: learn; python.learn: basic_session_run_hooks "
    "datasets estimators evaluable experiment export_strategy "
    "graph_actions learn_io learn_runner learn_runner_lib metric_spec "
    "models monitored_session monitors ops preprocessing "
    "session_run_hook summary_writer_cache trainable utils; "
    "python.learn.datasets: base mnist; python.learn.estimators: "
    "_sklearn composable_model constants debug dnn dnn_linear_combined "
    "dynamic_rnn_estimator estimator head kmeans linear "
    "logistic_regressor metric_key model_fn prediction_key rnn_common "
    "run_config state_saving_rnn_estimator svm tensor_signature; "
    "python.learn.learn_io: data_feeder generator_io graph_io numpy_io "
    "pandas_io; python.learn.ops: embeddings_ops losses_ops "
    "seq2seq_ops; python.learn.preprocessing: categorical "
    "categorical_vocabulary text; python.learn.utils: export gc "
    "input_fn_utils inspect_checkpoint saved_model_export_utils"
  ),
  "legacy_seq2seq": ": python; python: ops; python.ops: seq2seq",
  "lookup": ": lookup_ops",
  "losses": (
    ": python; python: losses metric_learning; python.losses: loss_ops; "
    "python.metric_learning: metric_loss_ops"
  ),
  "metrics": (
    ": python; python: metrics ops; python.metrics: classification; "
    "python.ops: confusion_matrix_ops histogram_ops metric_ops set_ops"
  ),
  "nccl": "",
  "nn": (
    ": python; python: ops; python.ops: alpha_dropout cross_entropy "
    "fwd_gradients sampling_ops scaled_softplus"
  ),
  "opt": (
    ": python; python: training; python.training: adam_gs_optimizer "
    "adamax addsign agn_optimizer drop_stale_gradient_optimizer "
    "elastic_average_optimizer external_optimizer ggt lars_optimizer "
    "lazy_adam_gs_optimizer lazy_adam_optimizer matrix_functions "
    "model_average_optimizer moving_average_optimizer "
    "multitask_optimizer_wrapper nadam_optimizer powersign "
    "reg_adagrad_optimizer shampoo sign_decay "
    "variable_clipping_optimizer weight_decay_optimizers"
  ),
  "predictor": (
    ": contrib_estimator_predictor core_estimator_predictor predictor "
    "predictor_factories saved_model_predictor"
  ),
  "proto": (
    ": python; python: ops; python.ops: decode_proto_op encode_proto_op"
  ),
  # Programs import these for what they seldom use: members are errors.
  "quantize": (
    ": python; python: common fold_batch_norms graph_matcher input_to_ops "
    "quant_ops quantize quantize_graph"
  ),
  "recurrent": (
    ": python; python: ops recurrent_api; python.ops: functional_rnn recurrent"
  ),
  "resampler": (
    ": ops python; ops: gen_resampler_ops; python: ops; python.ops: "
    "resampler_ops"
  ),
  "rnn": (
    ": python; python: kernel_tests ops tools; python.kernel_tests: "
    "benchmarking; python.ops: core_rnn_cell fused_rnn_cell gru_ops "
    "lstm_ops rnn rnn_cell; python.tools: checkpoint_convert"
  ),
  "saved_model": (
    ": python; python: saved_model; python.saved_model: "
    "keras_saved_model reader"
  ),
  "seq2seq": (
    ": ops python; ops: gen_beam_search_ops; python: ops; python.ops: "
    "attention_wrapper basic_decoder beam_search_decoder "
    "beam_search_ops decoder helper loss sampler"
  ),
  "signal": "",
  "slim": (
    ": nets python; python: slim; python.slim: data evaluation learning "
    "model_analyzer nets queues summaries; python.slim.data: "
    "data_decoder data_provider dataset dataset_data_provider "
    "parallel_reader prefetch_queue tfexample_decoder"
  ),
  "sparsemax": (": python; python: ops; python.ops: sparsemax sparsemax_loss"),
  "staging": "",
  "stateless": "",
  "summary": ": summary",
  "tensorboard": (
    ": plugins; plugins: projector; plugins.projector: projector_config_pb2"
  ),
  "tfprof": ": model_analyzer tfprof_logger",
  "tpu": (
    ": python; python: ops profiler tpu; python.ops: tpu_ops; "
    "python.tpu: _tpu_estimator_embedding async_checkpoint bfloat16 "
    "datasets device_assignment error_handling feature_column "
    "functional keras_support keras_tpu_variables session_support "
    "tensor_tracer topology tpu tpu_config tpu_context tpu_embedding "
    "tpu_embedding_gradient tpu_estimator tpu_feed tpu_function "
    "tpu_optimizer tpu_sharding tpu_system_metadata training_loop util"
  ),
  "training": (
    ": python; python: training; python.training: bucket_ops "
    "device_setter evaluation feeding_queue_runner hparam hparam_pb2 "
    "resample sampling_ops sequence_queueing_state_saver training tuner"
  ),
  "util": ": loader",
}

# A module of `tf.contrib` -> the module that serves as the whole of it.
MODULES = {
  "all_reduce.python.all_reduce": "tensorflow.python.distribute.v1.all_reduce",
  "rnn.ops.gen_gru_ops": "tensorflow.python.ops.gen_rnn_ops",
  "rnn.ops.gen_lstm_ops": "tensorflow.python.ops.gen_rnn_ops",
  "tensorrt": "tensorflow.python.compiler.tensorrt.trt_convert",
  "tfprof.model_analyzer": "parts.tfprof",
  "tpu.python.ops.tpu_ops": "tensorflow.python.tpu.ops.tpu_ops",
  "tpu.python.tpu.device_assignment": "tensorflow.python.tpu.device_assignment",
  "tpu.python.tpu.tpu": "tensorflow.python.tpu.tpu",
  "tpu.python.tpu.tpu_feed": "tensorflow.python.tpu.tpu_feed",
  "tpu.python.tpu.tpu_function": "tensorflow.python.tpu.tpu_function",
  "tpu.python.tpu.tpu_sharding": "tensorflow.python.tpu.tpu_sharding",
  "tpu.python.tpu.training_loop": "tensorflow.python.tpu.training_loop",
  "framework.nest": "tensorflow.python.util.nest",
  "keras": "tf.keras",
  "layers.summaries": "tf_slim.layers.summaries",
  "losses.metric_learning": "tf_slim.losses.metric_learning",
  "slim.nets": "tf_slim.nets",
  "slim.python.slim": "tf_slim",
  "slim.python.slim.data": "tf_slim.data",
  "slim.python.slim.nets": "tf_slim.nets",
}


def _list_paths() -> frozenset[str]:
  """Returns the paths of all modules below `tf.contrib` that are served."""
  listed = set(MODULES)
  for top, text in _MODULES.items():
    listed.add(top)
    for group in filter(None, text.split(";")):
      folder, _, names = group.strip().partition(":")
      for name in names.split():
        listed.add(".".join(filter(None, [top, folder, name])))
  paths = set()
  for path in listed:
    while path:
      paths.add(path)
      path = path.rpartition(".")[0]
  return frozenset(paths)


_PATHS = _list_paths()


def is_module(path: str) -> bool:
  """Returns whether TensorFlow 1.15 had a module `tf.contrib.PATH`."""
  return path in _PATHS
