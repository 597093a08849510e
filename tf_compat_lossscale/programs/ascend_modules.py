# SPDX-License-Identifier: Apache-2.0
"""Ascend's `npu_bridge`, `npu_device` and `hccl`, on other hardware.

Programs for Ascend's NPUs import these packages, which exist for such hardware
alone. Here their names are served by this package and by TensorFlow, in a world
of one process. A name of theirs that nothing serves can be imported, too: it
raises an error when the program uses it. If Ascend's own packages are
installed, they are used.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from typing import Any
from typing import NoReturn

from tf_compat_lossscale._core import patching
from tf_compat_lossscale.programs import lazy_modules
from tf_compat_lossscale.programs import loading

_PARTS = "tf_compat_lossscale.programs.ascend"
_ESTIMATOR = "npu_bridge.estimator"
_NPU = f"{_ESTIMATOR}.npu"
_ABSENT = "absent."

# `absent` has the names that nothing serves.
_TABLE = loading.read_table(f"""
{_NPU}.npu_loss_scale_optimizer
  {_PARTS}.npu_optimizers: FixedLossScaleManager NPULossScaleOptimizer
{_NPU}.npu_loss_scale_manager
  {_PARTS}.npu_optimizers: ExponentialUpdateLossScaleManager
    FixedLossScaleManager
  tf_compat_lossscale.contrib: LossScaleManager
{_NPU}.npu_optimizer
  {_PARTS}.npu_optimizers: KerasDistributeOptimizer=wrap
    NPUDistributedOptimizer NPUOptimizer npu_distributed_optimizer_wrapper=wrap
  {_PARTS}.npu_world: allreduce=average npu_allreduce=all_reduce_values
  absent: NPUBasics
{_NPU}.npu_config
  {_PARTS}.npu_estimators: NPURunConfig
    DumpConfig=Options DynamicInputConfig=Options MemoryConfig=Options
    ProfilingConfig=Options
  {_PARTS}.npu_functions: NpuExecutePlacement
  absent: decorator_tf_session ExperimentalConfig GraphMemoryOptimizeConfig
    GraphParallelConfig
{_NPU}.npu_estimator
  {_PARTS}.npu_estimators: NPUEstimator NPUEstimatorSpec
  {_PARTS}.npu_estimators: NPURunConfig
  {_PARTS}.npu_hooks: NPUBroadcastGlobalVariablesHook
    SetIterationsVarHook=NpuEmptyHook
  tf.train: NPUCheckpointSaverHook=CheckpointSaverHook
  absent: NPUBasics NPUInfeedOutfeedSessionHook NPULogOutfeedSessionHook
    NPUSaver
{_NPU}.keras_to_npu
  {_PARTS}.npu_estimators: model_to_npu_estimator
  {_PARTS}.npu_estimators: NPUEstimator NPUEstimatorSpec NPURunConfig
{_NPU}.npu_hook
  {_PARTS}.npu_hooks: NPUBroadcastGlobalVariablesHook
    NPUShutDownHook=NpuEmptyHook SetIterationsVarHook=NpuEmptyHook
  tf.train: NPUCheckpointSaverHook=CheckpointSaverHook
  absent: broadcast_global_variables NPUInfeedOutfeedSessionHook
    NPULogOutfeedSessionHook NPUOutputTensorHook TellMeStepOrLossHook
{_NPU}.npu_callbacks
  {_PARTS}.npu_hooks: NPUBroadcastGlobalVariablesCallback=make_callback
  absent: broadcast_global_variables BroadcastGlobalVariablesCallbackImpl
{_NPU}.npu_strategy
  {_PARTS}.npu_sessions: NPUStrategy=make_strategy
  absent: NPUExtended
{_NPU}.npu_rnn
  {_PARTS}.npu_functions: npu_dynamic_rnn
{_NPU}.npu_scope
  {_PARTS}.npu_functions: keep_dtype_scope=no_scope
    npu_graph_slice_scope=no_scope
    npu_mem_type_scope=no_scope npu_optimizer_scope=no_scope
    npu_qos_label_scope=no_scope npu_recompute_scope=no_scope
    npu_stage_scope=no_scope npu_variable_scope=no_scope
    npu_weight_prefetch_scope=no_scope op_specified_engine_scope=no_scope
    subgraph_multi_dims_scope=no_scope without_npu_compile_scope=no_scope
  {_PARTS}.npu_functions: NpuExecutePlacement
{_NPU}.npu_plugin
  {_PARTS}.npu_sessions: is_inf_nan_enabled
  {_PARTS}.npu_world: npu_close=do_nothing npu_resource_init=do_nothing
    npu_resource_shutdown=do_nothing set_device_sat_mode=do_nothing
  absent: check_graph_run_mode get_rdma_cache get_var_addr_and_size
    init_debug_dir init_op_compiler_cache_dir init_op_compiler_cache_mode
    init_rdma_pool malloc_shared_memory npu_global_init npu_global_shutdown
    rdma_remote_init rdma_remote_register
{_NPU}.util
  {_PARTS}.npu_functions: IterationPerLoop get_value
    keep_tensors_dtypes=get_first
    set_graph_exec_config=get_first set_iteration_per_loop set_value
  {_PARTS}.npu_world: get_ranksize global_dict_init=do_nothing
    npu_compile=do_nothing
  tf: variable_initializer_in_host=variables_initializer
  absent: add_grads_and_vars check_aoe_mode check_bool_type check_mstune_mode
    check_nonnegative_integer check_not_none check_path check_positive_integer
    check_profiling_options convert_bool_to_int create_or_get_var fair_division
    format_string get_all_grad_item get_gid_by_grad get_gid_by_weight
    GradDivisionItem register_func set_op_input_tensor_multi_dims
    set_op_tensor_max_range set_op_tensor_max_size
# Its import changed the dropout of Keras.
{_NPU}.npu_convert_dropout
  absent: dropout_call dropout_convert npu_convert_api
{_NPU}.npu_dynamic_rnn
  absent: DynamicAUGRU DynamicGRUV2 DynamicRNN
{_NPU}.npu_common
  absent: DeviceInfo JobConfig JobInfo NPUBasics
{_NPU}.npu_saver
  absent: NPUBulkSaverBuilder NPUSaver
{_ESTIMATOR}.npu_ops
  {_PARTS}.npu_functions: NPUInit=initialize_system
    NPUShutdown=initialize_system dropout gelu initialize_system
    shutdown_system=initialize_system
  absent: adam_apply_one_assign adam_apply_one_with_decay_assign basic_lstm_cell
    basic_lstm_cell_grad channel_get_next dynamic_augru_grad dynamic_gru_v2_grad
    dynamic_rnn_grad dynamic_rnn_v2_grad gen_npu_ops k_means_centroids LARS
    LARSV2 npu_onnx_graph_op npu_test NPUBasics outfeed_dequeue_op
    outfeed_enqueue_op scatter_elements stop_outfeed_dequeue_op
{_ESTIMATOR}.npu_unary_ops
  {_PARTS}.npu_functions: gelu
  {_ESTIMATOR}: npu_unary_ops
{_ESTIMATOR}.npu_aicore_ops
  {_PARTS}.npu_functions: dropout_v3=dropout dropout_v4=dropout fast_gelu
    fast_gelu_v2=fast_gelu
  {_ESTIMATOR}: npu_aicore_ops
  absent: layer_norm nonzero nonzerowithvalue prelu prelu_grad prodforcesea
    prodvirialsea tabulatefusion tabulatefusiongrad tabulatefusionsea
    tabulatefusionseagrad
npu_bridge.hccl.hccl_ops
  {_PARTS}.npu_world: allgather=copy allreduce=copy broadcast=copy reduce=copy
    reduce_scatter=copy
  absent: all_to_all_v all_to_all_v_c gather_all_to_all_v gen_hccl_ops receive
    remote_read remote_ref_read remote_scatter_write remote_write send
npu_bridge.helper.helper
  absent: get_gen_ops version
npu_bridge.image.image_ops
  absent: decode_and_crop_and_resize_jpeg decode_and_resize_jpeg
    gen_npu_image_ops
npu_bridge.embedding
  absent: EmbeddingAdagradOptimizer EmbeddingAdamOptimizer
    EmbeddingAdamWOptimizer EmbeddingRmspropOptimizer EmbeddingService
    EmbeddingSgdOptimizer EmbeddingSgdWOptimizer es_initializer path_on_tf
npu_bridge.embedding.embedding_resource
  absent: NpuEmbeddingResource
npu_bridge.embedding.embedding_service
  absent: AutoMergeTableMapPolicy CounterFilter embedding_optimizer
    EmbeddingVariableOption es_initializer EsInitializer ESWorker
    host_feature_mapping_export host_feature_mapping_import Initializer
    NoneTableMapPolicy NpuEmbeddingResource specified_ps_engine_scope
npu_bridge.npu_cpu.lru_cache
  absent: LruCache
npu_bridge.npu_cpu.npu_cpu_ops
  absent: device_feature_mapping embeddingrankid ESWorker randomchoicewithmask
npu_bridge.tbe.npu_cube_ops
  absent: deformable_conv2d
npu_bridge.tbe.npu_vector_ops
  absent: PReLU prelu
npu_bridge.tf_adapter
  absent: AUTO_TUNE_MODE DT_FLOAT GetDeviceSatMode GetVarAddrAndSize HostVarInfo
    InitRdmaPool MallocSharedMem map_string_string NpuClose OP_DEBUG_LEVEL
    OPTION_EXEC_ENABLE_SCOPE_FUSION_PASSES OPTION_EXEC_HCCL_FLAG
    OPTION_EXEC_PROFILING_BPPONIT_OPTIONS OPTION_EXEC_PROFILING_FPPONIT_OPTIONS
    OPTION_EXEC_PROFILING_MODE OPTION_EXEC_PROFILING_OPTIONS
    OPTION_GRAPH_RUN_MODE PluginFinalize PluginInit RdmaInitAndRegister
    RegistRdmaRemoteAddr SetDeviceSatMode TensorInfo
npu_bridge
  {_PARTS}.npu_world: npu_close=do_nothing
  {_NPU}: npu_estimator
  npu_bridge.hccl: hccl_ops
  absent: npu_bridge_handle npu_decorator
hccl.manage.api
  {_PARTS}.npu_world: create_group=do_nothing destroy_group=do_nothing
    get_group_rank_from_world_rank=get_rank_id get_local_rank_id=get_rank_id
    get_local_rank_size=get_rank_size get_rank_id get_rank_size
    get_world_rank_from_group_rank=get_rank_id
hccl.split.api
  {_PARTS}.npu_world: set_split_strategy_by_idx=do_nothing
    set_split_strategy_by_size=do_nothing
npu_bridge.npu_init
  {_PARTS}.npu_sessions: close_session init_resource npu_clear_session
    npu_config_proto npu_graph_options npu_optimizer_options
    set_keras_session_npu_config shutdown_resource
  {_PARTS}.npu_estimators: npu_run_config_init
  {_PARTS}.npu_hooks: NpuEmptyHook npu_callbacks_append npu_hooks_append
  {_PARTS}.npu_optimizers: npu_keras_optimizer=wrap
    npu_tf_optimizer=NPUDistributedOptimizer
  {_PARTS}.npu_world: get_npu_local_rank_id=get_rank_id
    get_npu_local_rank_size=get_rank_size get_npu_rank_id=get_rank_id
    get_npu_rank_size=get_rank_size
  {_NPU}: keras_to_npu npu_plugin npu_rnn npu_scope npu_strategy util
  {_ESTIMATOR}: npu_ops npu_unary_ops
  npu_bridge.hccl: hccl_ops
  tensorflow.core.protobuf: config_pb2 rewriter_config_pb2
  tensorflow.core.protobuf.rewriter_config_pb2: RewriterConfig
  {_PARTS}.npu_world: npu_close=do_nothing
  absent: decorator_tf_session experimental_options NPUOutputTensorHook
    TellMeStepOrLossHook
npu_device
  {_PARTS}.npu_sessions: global_npu_ctx=Device global_options
    is_inf_nan_enabled open=Device
  {_PARTS}.npu_functions: keep_dtype_scope=no_scope
    npu_compat_function=get_first npu_recompute_scope=no_scope
    npu_run_context=no_scope
  {_PARTS}.npu_world: set_device_sat_mode=do_nothing
  absent: close configs get_device_sat_mode never_nested_function NPU NpuConfig
    NpuDeviceHandle NpuRunContextOptions set_npu_loop_size stupid_repeat
    watch_op_register wrap_cpu_only_api
npu_device.compat
  {_PARTS}.npu_sessions: enable_v1
npu_device.compat.utils
  {_PARTS}.npu_sessions: SessionConfigBuilder
npu_device.distribute
  {_PARTS}.npu_hooks: npu_callbacks_append
  {_PARTS}.npu_optimizers: npu_distributed_keras_optimizer_wrapper=wrap
  {_PARTS}.npu_world: all_reduce=all_reduce_values broadcast=broadcast_values
    shard_and_rebatch_dataset
  {_PARTS}.npu_functions: npu_gradients_scope=no_scope
    npu_optimizer_scope=no_scope
  absent: grouping_broadcast grouping_gradients_apply
npu_device.ops
  {_PARTS}.npu_functions: gelu fast_gelu
npu_device.gen_npu_ops
  {_PARTS}.npu_functions: gelu fast_gelu
  absent: adam_apply_one_assign adam_apply_one_with_decay_assign adp_get_next
    ascend_anti_quant ascend_dequant ascend_quant ascend_weight_quant
    basic_lstm_cell basic_lstm_cell_c_state_grad basic_lstm_cell_input_grad
    basic_lstm_cell_weight_grad batch_dilate_polys batch_enqueue cache_add
    cache_all_index_to_local cache_remote_index_to_local centralization
    decode_and_crop_and_resize_jpeg decode_and_resize_jpeg decode_image_v3
    deformable_offsets deformable_offsets_grad dense_image_warp
    dense_image_warp_grad dequeue device_queue_dataset dp_group_dataset dpop
    drop_out_do_mask drop_out_do_mask_v3 drop_out_gen_mask drop_out_gen_mask_v3
    drop_out_gen_mask_v4 dynamic_augru dynamic_augru_grad dynamic_get_next_v2
    dynamic_gru_v2 dynamic_gru_v2_grad dynamic_rnn dynamic_rnn_grad
    dynamic_rnn_v2 embedding_apply_ada_grad embedding_apply_adam
    embedding_apply_adam_w embedding_apply_rmsprop embedding_apply_sgd
    embedding_compute_var_export embedding_compute_var_import
    embedding_feature_mapping embedding_local_index embedding_rank_id
    embedding_table_export embedding_table_find embedding_table_find_and_init
    embedding_table_import exponential_decay_lr fake_remote_lookup_uniqued
    fast_gelu_grad feature_mapping feature_mapping_export feature_mapping_import
    file_constant fused_layer_norm fused_layer_norm_grad ge_op gelu_grad
    geop_dataset get_next get_next_from_queue get_shape hcom_all_gather
    hcom_all_reduce hcom_all_to_all_v hcom_all_to_all_vc hcom_broadcast
    hcom_gather_all_to_all_v hcom_receive hcom_reduce hcom_reduce_scatter
    hcom_remote_read hcom_remote_ref_read hcom_remote_scatter_write
    hcom_remote_write hcom_send host_feature_mapping host_queue_dataset
    init_embedding_hashmap init_partition_map k_means_centroids
    k_means_centroids_v2 lamb_apply_optimizer_assign lamb_apply_weight_assign
    lars lars_v2 load_and_execute_om log_time_stamp lru_cache lru_cache_v2
    non_zero non_zero_with_value non_zero_with_value_shape
    npu_alloc_float_status npu_clear_float_status npu_clear_float_status_v2
    npu_get_float_status npu_get_float_status_v2 npu_init
    npu_map_and_batch_dataset npu_map_dataset npu_onnx_graph_op npu_shutdown
    npu_test ocr_detection_post_handle ocr_detection_pre_handle
    ocr_find_contours ocr_identify_pre_handle ocr_recognition_pre_handle
    outfeed_dequeue_op outfeed_enqueue_op p_relu p_relu_grad prod_env_mat_a
    prod_force_se_a prod_virial_se_a queue_data queue_dataset
    random_choice_with_mask resize_and_clip_polys resize_v2 scatter_elements
    scatter_elements_v2 stop_outfeed_dequeue_op table_to_resource
    tabulate_fusion tabulate_fusion_grad tabulate_fusion_se_a
    tabulate_fusion_se_a_grad uninit_embedding_hashmap uninit_partition_map
    warp_affine_v2
npu_device.train.optimizer
  tf.keras.mixed_precision: NpuLossScaleOptimizer=LossScaleOptimizer
  absent: NpuExperimentalLossScaleOptimizer
# Modules that are others.
npu_device.compat.v1 = npu_bridge
npu_device.distribute.hccl = npu_device.distribute
npu_device.npu_device = npu_device
npu_device.train.optimizer.npu_loss_scale_optimizer = npu_device.train.optimizer
npu_device.train.npu_convert = {_NPU}.npu_convert_dropout
""")

# `from npu_bridge.npu_init import *` binds the names of these modules, too.
_INIT = "npu_bridge.npu_init"
_ALL_IN_INIT = (
  *(f"{_NPU}.npu_{each}" for each in ("loss_scale_optimizer", "optimizer")),
  *(f"{_NPU}.npu_{each}" for each in ("config", "estimator", "hook")),
  f"{_NPU}.npu_callbacks",
  f"{_NPU}.npu_loss_scale_manager",
  "hccl.manage.api",
  "hccl.split.api",
)
_TABLE.names[_INIT].update(os="os", tf="tensorflow.compat.v1")
for _module in _ALL_IN_INIT:
  for _name, _target in _TABLE.names[_module].items():
    if not _target.startswith(_ABSENT):
      _TABLE.names[_INIT].setdefault(_name, _target)
# Modules with all ops of Ascend's, of which TensorFlow generated the functions.
for _module in (
  *(f"{_ESTIMATOR}.npu_{each}_ops" for each in ("aicore", "unary")),
  f"{_ESTIMATOR}.npu_ops",
  "npu_bridge.npu_cpu.npu_cpu_ops",
  *(f"npu_bridge.tbe.npu_{each}_ops" for each in ("cube", "vector")),
):
  for _name, _target in _TABLE.names["npu_device.gen_npu_ops"].items():
    _TABLE.names[_module].setdefault(_name, _target)


MODULES = _TABLE.list_modules()


class _Absent:
  """A name that nothing serves here: its uses raise an error."""

  def __init__(self, message: str) -> None:
    self._message = message

  def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises the error."""
    raise NotImplementedError(self._message)

  __call__ = __iter__ = __getitem__ = __enter__ = _refuse
  __mro_entries__ = _refuse

  def __getattr__(self, name: str) -> Any:
    if name.startswith("__"):
      raise AttributeError(name)
    self._refuse()

  def __instancecheck__(self, instance: Any) -> bool:
    return False

  def __repr__(self) -> str:
    return f"<{self._message}>"


class _AscendModule(lazy_modules.TableModule):
  """A module of Ascend's packages."""

  def _load(self, name: str) -> Any:
    value = super()._load(name)
    if name == "__all__" and _importer_has("tf"):
      # The program's `tf` may be TensorFlow 2, or TensorFlow 1.
      value = [each for each in value if each != "tf"]
    return value

  def _load_member(self, name: str) -> Any:
    return _load_member(self.__name__, name)

  def _list_names(self) -> list[str]:
    return sorted(_list_members(self.__name__))


def _importer_has(name: str) -> bool:
  """Returns whether the module that runs an import has a global name."""
  own = __name__.partition(".")[0]
  return name in lazy_modules.find_asker(lambda asker: asker.startswith(own))


@functools.cache
def get_module(name: str) -> types.ModuleType:
  """Returns the module that serves as one of Ascend's.

  Raises:
    ModuleNotFoundError: There is no such module.
  """
  home = _TABLE.find_module(name)
  if home is not None:
    return get_module(home)
  if name not in MODULES:
    raise ModuleNotFoundError(
      f"{name} is not among the modules of Ascend that tf_compat_lossscale "
      "stands in for: install Ascend's own package, or leave the import out",
      name=name,
    )
  return _AscendModule(name)


def _list_members(module: str) -> set[str]:
  """Returns the names and modules in one of Ascend's modules."""
  start = f"{module}."
  below = (each for each in MODULES if each.startswith(start))
  children = {each[len(start) :].partition(".")[0] for each in below}
  return {*_TABLE.names.get(module, ()), *children}


def _load_member(module: str, name: str) -> Any:
  """Returns a member of one of Ascend's modules.

  Raises:
    AttributeError: There is none.
  """
  full = f"{module}.{name}"
  target = _TABLE.names.get(module, {}).get(name)
  if target is None:
    if full in MODULES:
      return importlib.import_module(full)
    raise AttributeError(
      f"module {module!r} has no attribute {name!r}: Ascend's has none, as far "
      "as tf_compat_lossscale knows"
    )
  if target.startswith(_ABSENT):
    return _Absent(
      f"{full} runs on Ascend's NPUs alone: nothing stands in for it on other "
      "hardware"
    )
  # What TensorFlow gets after its import waits for this package's modules, and
  # some of these need it: TensorFlow's import must not begin in them.
  importlib.import_module("tensorflow")
  try:
    return loading.load(target)
  except loading.TargetError as error:
    return _Absent(f"{full} is not there: {error}")


def supply_module(
  name: str, log: patching.UndoLog | None = None
) -> types.ModuleType | None:
  """Returns the module to use if Ascend's own package is missing.

  Args:
    name: The module's name.
    log: The log that takes the module back, or None.
  """
  parent = name.rpartition(".")[0]
  if parent and not isinstance(sys.modules.get(parent), _AscendModule):
    return None  # Ascend's own package.
  module = get_module(name)
  return log.supply(name, module) if log else module
