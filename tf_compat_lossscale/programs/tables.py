# SPDX-License-Identifier: Apache-2.0
"""The table of old names and modules of TensorFlow, and where each is today.

What stands for an old name that has nothing to do with loss scaling comes from
here, but for methods (`old_methods`) and NumPy's names (`old_libraries`).
`old_modules` serves the rows, `missing_names` asks which there are. Nothing
that today's TensorFlow has is replaced. To add a name, add it to the row of its
module and its new home.

The lines of a text are of these kinds; a line that begins with four spaces
continues the line before, and a comment begins with "#":

    data
      tf.data: Dataset Iterator=DatasetIterator

The module `data` had the names `Dataset` and `Iterator`. They are
`tf.data.Dataset` and `tf.data.DatasetIterator` today.

    layers
      tf_slim.layers: *

Other names of `layers` are those of `tf_slim.layers`. (Names that need Keras 2
or `tensorflow_estimator` stand alone: the error for another name must not speak
of that.) A module without a name can be imported.

    keras = tf.keras

`tf.keras` serves as the whole module `keras`, and its modules as those below.
Several modules may share a line: `keras old_keras = tf.keras`.

    [tensorflow.contrib]

The modules in the lines below are those of `tensorflow.contrib`.

A target, such as `tf.data.Dataset`, begins with a key of `SHORT`, with
`keras2`, the package that has Keras 2's own modules, with `top`, the package
that the old module is in, or is a full name.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

CONTRIB = "tensorflow.contrib"
PRIVATE_KERAS = "tensorflow.python.keras"
SHORT = {
  "est": "tensorflow_estimator.python.estimator",
  "ours": "tf_compat_lossscale._core.tf",
  "py": "tensorflow.python",
  "tf": "tensorflow.compat.v1",
}


class Table(NamedTuple):
  """A table of old names.

  The modules below one of `tf.contrib` have its names, too: programs import
  names from both.

  Attributes:
    names: Module -> name in the module -> target.
    stars: Module -> the modules whose names the module has, too.
    modules: Module -> the target that serves as the whole module.
  """

  names: dict[str, dict[str, str]]
  stars: dict[str, list[str]]
  modules: dict[str, str]

  def find_module(self, name: str) -> str | None:
    """Returns the target that serves as a module, or None.

    If the table has no target for the module, the nearest of its parents with a
    target counts: modules below a module are then below its target.
    """
    head, tail = name, ""
    while head:
      if head in self.modules:
        return self.modules[head] + tail
      head, _, last = head.rpartition(".")
      tail = f".{last}{tail}"
    return None


def _read(text: str) -> Table:
  """Reads a table."""
  table = Table({}, {}, {})
  roots: list[str] = []
  modules: list[str] = []
  text = re.sub(r"\n {4}", " ", re.sub("#.*", "", text))
  for line in filter(str.strip, text.splitlines()):
    left, _, right = line.strip().partition(": ")
    old, _, target = left.partition(" = ")
    if line.startswith(" "):
      for module in modules:
        home = re.sub(r"^top\b", module.partition(".")[0], left)
        for each in right.split():
          name, _, new = each.partition("=")
          if name == "*":
            table.stars[module].append(home)
          else:
            table.names[module][name] = f"{home}.{new or name}"
      continue
    if line.startswith("["):
      roots = modules = line.strip("[]").split()
    else:
      modules = [f"{root}.{each}" for root in roots for each in old.split()]
    for module in modules:
      if target:
        table.modules[module] = target
      else:
        table.names.setdefault(module, {})
        table.stars.setdefault(module, [])
  return table


TABLE = _read("""
[tensorflow]
  est.api._v2: estimator
  py: pywrap_tensorflow
estimator = est.api._v2.estimator
compat.v1.estimator = est.api._v1.estimator
compat.v2.estimator = est.api._v2.estimator
python.estimator = est
python.estimator.keras = est.keras_lib
python.tpu.error_handling = est.tpu.error_handling
python.tpu.tpu_config = est.tpu.tpu_config
python.tpu.tpu_context = est.tpu.tpu_context
python.tpu.tpu_estimator = est.tpu.tpu_estimator
python.tpu.util = est.tpu.util

python.distribute.estimator_training = ours.estimator_training
python.tpu.session_support python.tpu.tpu_embedding
    python.tpu.tpu_embedding_gradient = ours.tpu_parts

keras.utils
  tf_compat_lossscale.programs.old_methods: multi_gpu_model
compat.v1
  est.api._v1: estimator
  py: pywrap_tensorflow
compat.v1.tpu.experimental
  ours.tpu_parts: AdagradParameters AdamParameters FtrlParameters
    StochasticGradientDescentParameters

[tensorflow.python]
data.ops.dataset_ops
  py.data.ops.options: AutotuneAlgorithm Options
distribute.distribute_lib
  py.distribute.distribute_utils: create_mirrored_variable get_loss_reduction
distribute.values
  py.distribute.distribute_utils: is_distributed_variable regroup select_replica
    update_regroup value_container
eager.tape
  py.eager.record: could_possibly_record record_operation should_record_backprop
    stop_recording
feature_column.feature_column_lib feature_column.feature_column_v2
  tf.keras.layers: DenseFeatures
feature_column.feature_column_lib feature_column.sequence_feature_column
  tf.keras.experimental: SequenceFeatures
framework.common_shapes
  tf1_contrib.private: unknown_shape
framework.op_def_library
  ours.contrib_parameters: OpDefLibrary
framework.op_def_registry
  tf1_contrib.private: register_op_list
framework.graph_util framework.graph_util_impl
  tf.graph_util: convert_variables_to_constants
framework.ops
  py.framework.indexed_slices: IndexedSlices IndexedSlicesValue
    convert_n_to_tensor_or_indexed_slices convert_to_tensor_or_indexed_slices
    internal_convert_n_to_tensor_or_indexed_slices
    internal_convert_to_tensor_or_indexed_slices
  py.framework.tensor: Tensor disable_tensor_equality enable_tensor_equality
  py.framework.tensor_conversion: convert_to_tensor_v2
  py.framework.tensor_conversion_registry: register_tensor_conversion_function
  py.framework.stack: default_session
  tf1_contrib.private: RegisterShape register_dense_tensor_like_type
framework.tensor_shape
  tf1_contrib.private: matrix scalar vector
framework.tensor_util
  py.ops.shape_util: shape_tensor
layers.layers layers.normalization
  tf.layers: BatchNormalization batch_normalization
    BatchNorm=BatchNormalization batch_norm=batch_normalization
# TensorFlow 1 hid this package by the module `framework.ops`.
ops
  py.framework.ops: Graph GraphKeys IndexedSlices NoGradient NotDifferentiable
    Operation RegisterGradient Tensor add_to_collection colocate_with
    control_dependencies convert_to_tensor convert_to_tensor_v2 device
    get_collection get_default_graph name_scope
ops.array_ops
  py.ops.array_ops_stack: stack unstack
ops.control_flow_ops
  py.ops.control_flow_case: case case_v2
  py.ops.control_flow_assert: Assert
  py.ops.control_flow_switch_case: switch_case
  py.ops.cond: cond cond_for_tf_v2
  py.ops.while_loop: while_loop while_loop_v2
ops.functional_ops
  py.ops.gen_functional_ops: partitioned_call
ops.gradients_util
  py.eager.backprop_util: IsTrainable
ops.math_ops
  py.ops.gen_special_math_ops: bessel_i0e bessel_i1e
  py.ops.bincount_ops: bincount_v1
ops.nn
  tf.nn: bidirectional_dynamic_rnn dynamic_rnn raw_rnn static_rnn
    static_state_saving_rnn
ops.nn_impl
  py.ops.nn_impl_distribute: compute_average_loss scale_regularization_loss
ops.random_ops
  py.ops.random_crop_ops: random_crop
ops.resource_variable_ops
  py.ops.ref_variable: _from_proto_fn _to_proto_fn
ops.standard_ops
  tf: random_crop stack unstack
ops.variable_scope
  py.ops.resource_variables_toggle: disable_resource_variables
    enable_resource_variables resource_variables_enabled
  py.ops.ref_variable: default_variable_creator
  tf: variable=Variable
ops.variables
  py.ops.ref_variable: RefVariable default_variable_creator
  py.ops.variable_v1: VariableV1
  py.ops.state_ops: is_variable_initialized
pywrap_tensorflow
  tf.train: NewCheckpointReader
  py.client._pywrap_events_writer: EventsWriter
  py.client.pywrap_tf_session: EqualGraphDefWrapper
  py.util._pywrap_util_port: IsGoogleCudaEnabled IsMklEnabled
saved_model.loader_impl
  py.saved_model.loader_impl: _parse_saved_model=parse_saved_model
saved_model.utils_impl
  py.saved_model.path_helpers: get_assets_dir get_or_create_assets_dir
    get_or_create_variables_dir get_variables_dir get_variables_path
tpu.tpu
  py.tpu.tpu_replication: TPUReplicateContext _OUTSIDE_COMPILATION_ATTR
    _TPU_REPLICATE_ATTR _UNSUPPORTED_OPS outside_compilation
training.checkpoint_utils training.saver
  tf.train: NewCheckpointReader
# Names that changed, too.
data.util.nest
  py.data.util.nest: is_sequence=is_nested
eager.function
  tf: defun=function
eager.backprop
  tf: function
util.nest
  py.util.nest: is_sequence=is_nested
util.tf_export
  est.estimator_export: estimator_export
# Modules that went.
_pywrap_events_writer = py.client._pywrap_events_writer
_pywrap_util_port = py.util._pywrap_util_port
data.experimental.ops.distribute_options
    data.experimental.ops.optimization_options
    data.experimental.ops.threading_options = py.data.ops.options
distribute.all_reduce = py.distribute.v1.all_reduce
distribute.distribution_strategy_context training.distribute
    training.distribution_strategy_context = py.distribute.distribute_lib
eager.profiler = py.profiler.profiler_v2
ops.gen_user_ops = py.user_ops.ops.gen_user_ops
pywrap_tensorflow_internal = py.pywrap_tensorflow
training.checkpointable training.tracking = py.trackable
training.checkpointable.tracking training.tracking.tracking =
    py.trackable.autotrackable
training.checkpointable.util training.tracking.util = py.checkpoint.checkpoint
training.device_util = py.distribute.device_util
training.gen_training_ops training.training_ops = py.ops.gen_training_ops
training.saving.checkpoint_options = py.checkpoint.checkpoint_options
training.saving.functional_saver = py.checkpoint.functional_saver
training.tracking.graph_view = py.checkpoint.graph_view
util.compat_internal = py.util.compat
util.deprecation_wrapper = py.util.module_wrapper

[tensorflow.contrib]
autograph
  tensorflow.compat.v2.autograph: to_code to_graph
  tf.autograph.experimental: Feature do_not_convert
batching
  tf: batch_function=nondifferentiable_batch_function
checkpoint
  py.trackable.data_structures: List Mapping NoDependency
  tf.train: CheckpointManager
  py.trackable.autotrackable: Checkpointable=AutoTrackable
  py.trackable.base: CheckpointableBase=Trackable
cluster_resolver
  tf.distribute.cluster_resolver: *
compiler
  tf.xla.experimental: compile experimental_jit_scope=jit_scope
crf
  tf1_contrib.crf: *
cudnn_rnn
  tf1_contrib.rnn_blocks: CudnnCompatibleLSTMCell
data
  tf.data.experimental: *
  # Names of contrib.data before tf.data, up to 1.4.
  tf.data: Dataset FixedLengthRecordDataset Iterator TFRecordDataset
    TextLineDataset
  tf1_contrib.data: *
distribute
  tf.distribute: CrossDeviceOps OneDeviceStrategy ReplicaContext
    get_loss_reduction get_replica_context get_strategy has_strategy
    in_cross_replica_context DistributionStrategy=Strategy
  py.distribute.distribute_lib: require_replica_context
  py.distribute.distribution_strategy_context: get_cross_replica_context
    get_distribution_strategy has_distribution_strategy
  py.distribute.step_fn: StandardInputStep StandardSingleLossStep Step
  tf1_contrib.distribute: CollectiveAllReduceStrategy MirroredStrategy
    ParameterServerStrategy
  tf.distribute.experimental: TPUStrategy
  tf.tpu.experimental: initialize_tpu_system
  py.distribute.cross_device_ops: AllReduceCrossDeviceOps
  # Names of 1.12.
  py.distribute.cross_device_ops: AllReduceCrossTowerOps=AllReduceCrossDeviceOps
  tf.distribute: CrossTowerOps=CrossDeviceOps
    get_tower_context=get_replica_context
distributions
  tf.distributions: *
eager
  tf: GradientTape TensorSpec custom_gradient enable_eager_execution
    executing_eagerly in_eager_mode=executing_eagerly make_template
    py_func=py_function
  py.eager.context: ASYNC DEVICE_PLACEMENT_EXPLICIT
    DEVICE_PLACEMENT_SILENT DEVICE_PLACEMENT_WARN SYNC async_wait
    execution_mode num_gpus set_execution_mode
  py.framework.test_util:
    run_all_tests_in_graph_and_eager_modes=run_all_in_graph_and_eager_modes
    run_test_in_graph_and_eager_modes=run_in_graph_and_eager_modes
  py.ops.variable_scope: EagerVariableStore
  tf.app: run
  tf.train: Checkpoint
  py.data.ops.iterator_ops: Iterator=OwnedIterator
  tf1_contrib.parameters: defun=function function
  py.ops.resource_variable_ops: Variable=ResourceVariable
  py.eager.backprop: gradients_function implicit_gradients=implicit_grad
    implicit_value_and_gradients=implicit_val_and_grad
    value_and_gradients_function=val_and_grad_function
estimator
  tf.estimator.experimental: InMemoryEvaluatorHook
    build_raw_supervised_input_receiver_fn call_logit_fn dnn_logit_fn_builder
    linear_logit_fn_builder make_early_stopping_hook stop_if_higher_hook
    stop_if_lower_hook stop_if_no_decrease_hook stop_if_no_increase_hook
  tf.estimator: BaselineEstimator DNNEstimator DNNLinearCombinedEstimator
    LinearEstimator add_metrics
  tf1_contrib.estimator: binary_classification_head clip_gradients_by_norm
    multi_class_head regression_head
factorization
  py.ops.clustering_ops: COSINE_DISTANCE KMEANS_PLUS_PLUS_INIT KMeans
    RANDOM_INIT SQUARED_EUCLIDEAN_DISTANCE
  py.ops.gen_clustering_ops: nearest_neighbors
feature_column
  tf.feature_column: *
framework
  py.util.deprecation: deprecated deprecated_arg_values deprecated_args
  tf1_contrib.parameters: init_from_checkpoint list_variables load_checkpoint
    load_variable
  tf: TensorSpec argsort assert_same_float_dtype assert_scalar
    convert_to_tensor_or_sparse_tensor is_tensor sort
  py.ops.init_ops: convolutional_delta_orthogonal convolutional_orthogonal_1d
    convolutional_orthogonal_2d convolutional_orthogonal_3d
  tf1_contrib.framework: *
  tf_slim.ops.variables: *
  tf_slim.ops.arg_scope: add_arg_scope arg_scope arg_scoped_arguments
    current_arg_scope has_arg_scope
  py.framework.ops: get_name_scope
  py.framework.smart_cond: smart_case smart_cond smart_constant_value
  ours.contrib_parameters: remove_squeezable_dimensions
  py.framework.tensor_spec: BoundedTensorSpec
graph_editor
  py.ops.op_selector: get_backward_walk_ops get_consuming_ops get_generating_ops
    get_tensors get_unique_graph make_list_of_op make_list_of_t
  # All but the walk raise an error when they are called.
  tf1_contrib.graph_editor: *
image
  tf1_contrib.image: *
layers
  tf_slim.layers: *
  tf_slim.layers.utils: append_tensor_alias convert_collection_to_dict
    gather_tensors_aliases get_tensor_aliases *
  tf.nn: safe_embedding_lookup_sparse
  tf1_contrib.layers: embed_sequence
legacy_seq2seq
  tf1_contrib.legacy_seq2seq: *
learn
  tf.train: NanLossDuringTrainingError
  tf1_contrib.learn: ModeKeys replace_monitors_with_hooks
  tf1_contrib.run_config: RunConfig
lookup
  py.ops.lookup_ops: *
  ours.contrib_parameters: index_table_from_tensor
    index_to_string_table_from_tensor
  tf1_contrib.parameters: HashTable MutableDenseHashTable MutableHashTable
losses
  tf_slim.losses: *
memory_stats
  tf1_contrib.memory_stats: *
metrics
  tf.sets: set_difference set_intersection set_size set_union
  tf_slim.metrics: *
  tf.math: confusion_matrix
nccl
  py.ops.nccl_ops: all_max all_min all_prod all_sum broadcast reduce_sum
nn
  tf.nn: conv1d_transpose
  py.ops.nn_ops: nth_element
opt
  tf1_contrib.opt: *
proto
  tf.io: decode_proto encode_proto
rnn
  tf.nn.rnn_cell: BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper
    GRUCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper
  tf.nn: static_bidirectional_rnn static_rnn static_state_saving_rnn
  tf1_contrib.private: _Linear=Linear _linear=linear
  tf1_contrib.rnn: *
  tf1_contrib.rnn_blocks: GRUBlockCell GRUBlockCellV2 LSTMBlockCell
    LSTMBlockFusedCell
  tf1_contrib.rnn_cells: Conv1DLSTMCell Conv2DLSTMCell Conv3DLSTMCell
    ConvLSTMCell LayerNormBasicLSTMCell NASCell SRUCell UGRNNCell
  tf1_contrib.rnn_wrappers: AttentionCellWrapper EmbeddingWrapper HighwayWrapper
    InputProjectionWrapper OutputProjectionWrapper
  py.ops.rnn: best_effort_input_batch_size=_best_effort_input_batch_size
    transpose_batch_time=_transpose_batch_time
seq2seq
  tf1_contrib.attention: AttentionMechanism AttentionWrapper
    AttentionWrapperState BahdanauAttention LuongAttention
    _BaseAttentionMechanism
  tf1_contrib.beam_search: BeamSearchDecoder BeamSearchDecoderOutput
    BeamSearchDecoderState FinalBeamSearchDecoderOutput gather_tree
    gather_tree_from_array tile_batch
  tf1_contrib.decoder: BasicDecoder BasicDecoderOutput Decoder dynamic_decode
  tf1_contrib.helpers: CustomHelper GreedyEmbeddingHelper Helper InferenceHelper
    SampleEmbeddingHelper ScheduledEmbeddingTrainingHelper TrainingHelper
  tf1_contrib.seq2seq: *
  py.ops.rnn: _transpose_batch_time
signal
  tf.signal: *
slim
  tf_slim: *
  tensorflow.contrib.layers: *
  tensorflow.contrib.framework: *
sparsemax
  tf1_contrib.sparsemax: *
staging
  py.ops.data_flow_ops: StagingArea
stateless
  tf.random: stateless_multinomial stateless_truncated_normal
    stateless_random_normal=stateless_normal
    stateless_random_uniform=stateless_uniform
summary
  py.ops.summary_ops_v2: graph=graph_v1 *
  tf.summary: all_summary_ops=all_v2_summary_ops
tensorboard
  tensorboard.plugins.projector: EmbeddingInfo ProjectorConfig SpriteMetadata
  tf1_contrib.parameters: visualize_embeddings
tpu
  tf.tpu: *
  tf.tpu.experimental: DeviceAssignment Topology
  tf.estimator.tpu: InputPipelineConfig RunConfig TPUConfig TPUEstimator
    TPUEstimatorSpec
  py.tpu.ops.tpu_ops: infeed_dequeue infeed_dequeue_tuple infeed_enqueue
    infeed_enqueue_tuple outfeed_dequeue outfeed_dequeue_tuple outfeed_enqueue
    outfeed_enqueue_tuple
  py.tpu.training_loop: repeat while_loop
  py.tpu.device_assignment: device_assignment
  py.tpu.tpu_feed: InfeedQueue
training
  tf.train: checkpoints_iterator
  # tf_slim takes long to import: what needs it not comes first.
  tf1_contrib.buckets: *
  tf1_contrib.training: *
  tf_slim.training.training: *
  tf_slim.training.evaluation: *
util
  tf: constant_value=get_static_value make_ndarray make_tensor_proto

# Some programs import these, and use what they had in rare cases alone.
bayesflow bigtable boosted_trees cloud copy_graph decision_trees deprecated
    ffmpeg fused_conv grid_rnn hadoop hooks ignite input_pipeline
    integrate kafka kernel_methods kinesis labeled_tensor libsvm
    linear_optimizer meta_graph_transform model_pruning nearest_neighbor
    optimizer_v2 periodic_resample quantization receptive_field
    reduce_slice_ops remote_fused_graph rpc session_bundle solvers specs
    stat_summarizer tensor_forest testing text timeseries
compiler.jit compiler.xla learn.monitors lookup.lookup_ops
    graph_editor.edit graph_editor.match graph_editor.reroute
    graph_editor.select graph_editor.subgraph graph_editor.transform
    graph_editor.util predictor predictor.predictor quantize recurrent resampler
    predictor.predictor_factories predictor.saved_model_predictor saved_model
    summary.summary tfprof.tfprof_logger util.loader

# Modules that others serve as a whole.
all_reduce.python.all_reduce = py.distribute.v1.all_reduce
nccl.ops.gen_nccl_ops = py.ops.gen_nccl_ops
nccl.python.ops.nccl_ops = py.ops.nccl_ops
rnn.ops.gen_gru_ops rnn.ops.gen_lstm_ops = py.ops.gen_rnn_ops
tensorrt = py.compiler.tensorrt.trt_convert
tfprof.model_analyzer = tf1_contrib.tfprof
tpu.python.ops.tpu_ops = py.tpu.ops.tpu_ops
tpu.python.tpu = py.tpu
framework.nest = py.util.nest
keras = tf.keras
layers.summaries = tf_slim.layers.summaries
losses.metric_learning = tf_slim.losses.metric_learning
slim.nets = tf_slim.nets
slim.python.slim = tf_slim

# Names of Keras 2, which is the package keras up to TensorFlow 2.15.
[keras tf_keras]
  py.keras: engine
api._v1.keras.optimizers
  top.api._v2.keras.optimizers: experimental
api._v1.keras.utils api._v2.keras.utils utils
  tf_compat_lossscale.programs.old_methods: multi_gpu_model
backend
  top.api._v1.keras.backend: get_session set_session
initializers
  top.api._v1.keras.initializers: normal uniform
layers
  top.api._v1.keras.layers: CuDNNGRU CuDNNLSTM
losses
  top.api._v1.keras.losses: cosine cosine_proximity
metrics
  top.api._v1.keras.metrics: cosine cosine_proximity
engine
  keras2.engine.base_layer: Layer
  keras2.engine.input_layer: Input
  keras2.engine.input_spec: InputSpec
  keras2.engine.sequential: Sequential
  keras2.engine.training: Model
layers.normalization
  keras2.layers: BatchNormalization LayerNormalization
utils.generic_utils
  keras2.saving.object_registration: CustomObjectScope get_custom_objects
    custom_object_scope=CustomObjectScope
  keras2.saving.legacy.serialization: deserialize_keras_object
    serialize_keras_object
preprocessing.image
  keras2.utils.image_utils: array_to_img img_to_array load_img save_img
preprocessing.sequence
  keras2.utils.data_utils: pad_sequences
utils
  py.keras.utils: generic_utils np_utils vis_utils

# tensorflow_addons imports modules of Keras 2 from `keras`, also from Keras 3.
[keras]
src.engine = keras2.engine

[tensorboard]
summary
  tensorboard.summary.v1: audio_pb custom_scalar custom_scalar_pb histogram_pb
    image_pb pr_curve pr_curve_pb pr_curve_raw_data_op pr_curve_raw_data_pb
    pr_curve_streaming_op scalar_pb text_pb
""")

# The modules of TensorFlow's old copy of Keras, where Keras 2 has its names.
# Keras 2's other modules are where they were. `old_keras` serves these.
KERAS = _read("""
[tensorflow.python.keras]
api api._v1 api._v2
  tf: keras
api.keras api._v1.keras api._v2.keras = keras2
engine engine.topology
  keras2.engine.base_layer: *
  keras2.engine.input_layer: *
  keras2.engine.input_spec: *
  keras2.engine.sequential: *
  keras2.engine.training: *
engine.network
  keras2.engine.training: Network=Model
engine.topology
  keras2.engine.training: Container=Model
  keras2.utils.layer_utils: get_source_inputs
layers.convolutional
  keras2.layers.convolutional.base_conv: *
layers.normalization
  keras2.layers.normalization.batch_normalization: *
metrics
  keras2.metrics.base_metric: *
utils.generic_utils
  keras2.saving.legacy.serialization: *
utils.tf_utils
  keras2.utils.control_flow_util: *
utils.training_utils
  tf_compat_lossscale.programs.old_methods: multi_gpu_model
backend.tensorflow_backend = keras2.backend
keras_parameterized = keras2.testing_infra.test_combinations
testing_utils = keras2.testing_infra.test_utils
initializers.initializers_v2 = keras2.initializers.initializers
layers.advanced_activations layers.convolutional_recurrent
    layers.cudnn_recurrent layers.dense_attention layers.embeddings layers.local
    layers.noise layers.normalization_v2 layers.recurrent_v2 layers.wrappers =
    keras2.layers
layers.merge = keras2.layers.merging.base_merge
layers.recurrent = keras2.layers.rnn.rnn_utils
objectives = keras2.losses
optimizer_v2 = keras2.optimizers.legacy
optimizer_v2.learning_rate_schedule =
    keras2.optimizers.schedules.learning_rate_schedule
optimizer_v2.utils = keras2.optimizers.utils
preprocessing.dataset_utils = keras2.utils.dataset_utils
saving = keras2.saving.legacy
""")

# Modules below `tf.contrib` that are in no row.
_BELOW = re.compile(
  r"\w+\.(python|ops)(\.[a-z_]\w*){0,2}|(learn|slim)\.python(\.[a-z_]\w*){0,3}"
  r"|tensorboard\.plugins(\.projector(\.projector_config_pb2)?)?"
)


@functools.cache
def is_contrib_module(path: str) -> bool:
  """Returns whether `tf.contrib.PATH` was a module, or looks like one.

  Args:
    path: Such as "layers.python.layers.utils". The folders of `tf.contrib` had
      all modules two or three levels below a folder `python`.
  """
  top, _, below = path.partition(".")
  start, rows = f"{CONTRIB}.{top}.", (*TABLE.names, *TABLE.modules)
  if not any(f"{name}.".startswith(start) for name in rows):
    return False
  is_listed = not below or f"{CONTRIB}.{path}" in rows
  return is_listed or _BELOW.fullmatch(path) is not None
