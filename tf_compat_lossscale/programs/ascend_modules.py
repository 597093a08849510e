# SPDX-License-Identifier: Apache-2.0
"""Ascend's `npu_bridge`, `npu_device` and `hccl`, on other hardware.

Programs for Ascend's NPUs import these packages, which exist for such hardware
alone. Here their names are served by this package and by TensorFlow, in a world
of one process. A name that nothing serves can be imported, too: it raises an
error when the program uses it. If Ascend's own packages are installed, they
are used.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any
from typing import NoReturn

from tf_compat_lossscale._core import patching
from tf_compat_lossscale.programs import import_hooks
from tf_compat_lossscale.programs import lazy_modules
from tf_compat_lossscale.programs import loading

_PARTS = "tf_compat_lossscale.programs.ascend"
_ESTIMATOR = "npu_bridge.estimator"
_NPU = f"{_ESTIMATOR}.npu"

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
{_NPU}.npu_config
  {_PARTS}.npu_estimators: NPURunConfig
    DumpConfig=Options DynamicInputConfig=Options MemoryConfig=Options
    ProfilingConfig=Options
  {_PARTS}.npu_functions: NpuExecutePlacement
{_NPU}.npu_estimator
  {_PARTS}.npu_estimators: NPUEstimator NPUEstimatorSpec
{_NPU}.keras_to_npu
  {_PARTS}.npu_estimators: model_to_npu_estimator
{_NPU}.npu_hook
  {_PARTS}.npu_hooks: NPUBroadcastGlobalVariablesHook
    NPUShutDownHook=NpuEmptyHook SetIterationsVarHook=NpuEmptyHook
  tf.train: NPUCheckpointSaverHook=CheckpointSaverHook
{_NPU}.npu_callbacks
  {_PARTS}.npu_hooks: NPUBroadcastGlobalVariablesCallback=make_callback
{_NPU}.npu_strategy
  {_PARTS}.npu_sessions: NPUStrategy=make_strategy
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
{_NPU}.npu_plugin
  {_PARTS}.npu_sessions: is_inf_nan_enabled
  {_PARTS}.npu_world: npu_close=do_nothing npu_resource_init=do_nothing
    npu_resource_shutdown=do_nothing set_device_sat_mode=do_nothing
{_NPU}.util
  {_PARTS}.npu_functions: IterationPerLoop get_value
    keep_tensors_dtypes=get_first
    set_graph_exec_config=get_first set_iteration_per_loop set_value
  {_PARTS}.npu_world: get_ranksize global_dict_init=do_nothing
    npu_compile=do_nothing
  tf: variable_initializer_in_host=variables_initializer
# Its import changed the dropout of Keras.
{_NPU}.npu_convert_dropout
{_NPU}.npu_dynamic_rnn
{_NPU}.npu_common
{_NPU}.npu_saver
{_ESTIMATOR}.npu_ops
  {_PARTS}.npu_functions: NPUInit=initialize_system
    NPUShutdown=initialize_system dropout gelu initialize_system
    shutdown_system=initialize_system
{_ESTIMATOR}.npu_unary_ops
  {_PARTS}.npu_functions: gelu
  {_ESTIMATOR}: npu_unary_ops
{_ESTIMATOR}.npu_aicore_ops
  {_PARTS}.npu_functions: dropout_v3=dropout dropout_v4=dropout fast_gelu
    fast_gelu_v2=fast_gelu
  {_ESTIMATOR}: npu_aicore_ops
npu_bridge.hccl.hccl_ops
  {_PARTS}.npu_world: allgather allreduce broadcast reduce reduce_scatter
npu_bridge.helper.helper
npu_bridge.image.image_ops
npu_bridge.embedding: embedding_resource embedding_service
npu_bridge.npu_cpu: lru_cache npu_cpu_ops
npu_bridge.tbe: npu_cube_ops npu_vector_ops
npu_bridge: tf_adapter
hccl.manage.api
  {_PARTS}.npu_world: create_group=do_nothing destroy_group=do_nothing
    get_group_rank_from_world_rank get_local_rank_id get_local_rank_size
    get_rank_id get_rank_size get_world_rank_from_group_rank
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
  {_PARTS}.npu_world: get_npu_local_rank_id get_npu_local_rank_size
    get_npu_rank_id get_npu_rank_size
  {_NPU}: keras_to_npu npu_plugin npu_rnn npu_scope npu_strategy util
  {_ESTIMATOR}: npu_ops npu_unary_ops
  npu_bridge.hccl: hccl_ops
  tensorflow.core.protobuf: config_pb2 rewriter_config_pb2
  tensorflow.core.protobuf.rewriter_config_pb2: RewriterConfig
npu_device
  {_PARTS}.npu_sessions: global_npu_ctx=Device global_options
    is_inf_nan_enabled open=Device
  {_PARTS}.npu_functions: keep_dtype_scope=no_scope
    npu_compat_function=get_first npu_recompute_scope=no_scope
    npu_run_context=no_scope
  {_PARTS}.npu_world: set_device_sat_mode=do_nothing
npu_device.compat
  {_PARTS}.npu_sessions: enable_v1
npu_device.compat.utils
  {_PARTS}.npu_sessions: SessionConfigBuilder
npu_device.distribute
  {_PARTS}.npu_hooks: npu_callbacks_append
  {_PARTS}.npu_optimizers: npu_distributed_keras_optimizer_wrapper=wrap
  {_PARTS}.npu_world: all_reduce=all_reduce_values broadcast=broadcast_values
    shard_and_rebatch_dataset
npu_device.ops
  {_PARTS}.npu_functions: gelu fast_gelu
npu_device.gen_npu_ops
  {_PARTS}.npu_functions: gelu fast_gelu
npu_device.train.optimizer
  tf.keras.mixed_precision: NpuLossScaleOptimizer=LossScaleOptimizer
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
_TABLE.names[_INIT].update(os="os", tf="tensorflow")
for _module in _ALL_IN_INIT:
  for _name, _target in _TABLE.names[_module].items():
    _TABLE.names[_INIT].setdefault(_name, _target)


def list_modules() -> frozenset[str]:
  """Returns the modules of the table, and those above them."""
  modules = set()
  for module in (*_TABLE.modules, *_TABLE.others):
    while module:
      modules.add(module)
      module = module.rpartition(".")[0]
  return frozenset(modules)


_MODULES = list_modules()
PACKAGES = frozenset(each for each in _MODULES if "." not in each)


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


class _AscendModule(lazy_modules.LazyModule):
  """A module of Ascend's packages."""

  def __init__(self, name: str) -> None:
    super().__init__(name, self._load, self._list_names)

  def _load(self, name: str) -> Any:
    if name == "__all__":  # The names that `from … import *` binds.
      return self._list_names()
    if name.startswith("__"):
      return patching.ABSENT
    value = _load_member(self.__name__, name)
    setattr(self, name, value)
    return value

  def _list_names(self) -> list[str]:
    return sorted(_list_members(self.__name__))


_modules: dict[str, types.ModuleType] = {}


def get_module(name: str) -> types.ModuleType:
  """Returns the module that serves as one of Ascend's.

  Raises:
    ModuleNotFoundError: There is no such module.
  """
  home = _TABLE.find_module(name) or name
  if home not in _MODULES:
    raise ModuleNotFoundError(
      f"{name} is not among the modules of Ascend that tf_compat_lossscale "
      "stands in for: install Ascend's own package, or leave the import out",
      name=name,
    )
  if home not in _modules:
    _modules[home] = _AscendModule(home)
  return _modules[home]


def forget_modules() -> None:
  """Makes the next calls of `get_module` return new modules."""
  _modules.clear()


def _list_members(module: str) -> set[str]:
  """Returns the names and modules in one of Ascend's modules."""
  start = f"{module}."
  below = (each for each in _MODULES if each.startswith(start))
  children = {each[len(start) :].partition(".")[0] for each in below}
  return {*_TABLE.names.get(module, ()), *children}


def _load_member(module: str, name: str) -> Any:
  """Returns a member of one of Ascend's modules."""
  full = f"{module}.{name}"
  target = _TABLE.names.get(module, {}).get(name)
  if target is None:
    if full in _MODULES:
      return importlib.import_module(full)
    return _Absent(
      f"{full} runs on Ascend's NPUs alone: nothing stands in for it on other "
      "hardware"
    )
  try:
    return loading.load(target)
  except loading.TargetError as error:
    return _Absent(f"{full} is not there: {error}")


class AscendModules(import_hooks.ImportWatcher):
  """A watcher of imports that serves Ascend's packages if they are missing."""

  def __init__(self, log: patching.UndoLog | None = None) -> None:
    """Takes the log that takes the modules back, or None."""
    self._log = log

  def watches(self, name: str) -> bool:
    return name.partition(".")[0] in PACKAGES

  def supply_module(self, name: str) -> types.ModuleType | None:
    parent = name.rpartition(".")[0]
    if parent and not isinstance(sys.modules.get(parent), _AscendModule):
      return None  # Ascend's own package.
    module = get_module(name)
    return self._log.supply(name, module) if self._log else module
