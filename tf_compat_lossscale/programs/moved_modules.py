# SPDX-License-Identifier: Apache-2.0
"""Puts private modules and names of TensorFlow 1 back that moved or went.

In the table, a module's name stands for the module below `tensorflow.python`.
So does a target, unless it begins with `tf` or a package, as `loading`
reads it. Nothing that this TensorFlow has is replaced.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

from tf_compat_lossscale._core import patching
from tf_compat_lossscale.programs import import_hooks
from tf_compat_lossscale.programs import lazy_modules
from tf_compat_lossscale.programs import loading

_ROOT = "tensorflow.python."
_FIRST = ("tf", "tf1_contrib", "tensorflow", "tensorflow_estimator")

_TABLE = loading.read_table("""
data.ops.dataset_ops
  data.ops.options: AutotuneAlgorithm Options
distribute.distribute_lib
  distribute.distribute_utils: create_mirrored_variable get_loss_reduction
distribute.values
  distribute.distribute_utils: is_distributed_variable regroup select_replica
    update_regroup value_container
eager.tape
  eager.record: could_possibly_record record_operation should_record_backprop
    stop_recording
framework.graph_util
  tf.graph_util: convert_variables_to_constants
framework.graph_util_impl
  tf.graph_util: convert_variables_to_constants
framework.ops
  framework.indexed_slices: IndexedSlices IndexedSlicesValue
    convert_n_to_tensor_or_indexed_slices convert_to_tensor_or_indexed_slices
    internal_convert_n_to_tensor_or_indexed_slices
    internal_convert_to_tensor_or_indexed_slices
  framework.tensor: Tensor disable_tensor_equality enable_tensor_equality
  framework.tensor_conversion: convert_to_tensor_v2
  framework.tensor_conversion_registry: register_tensor_conversion_function
  framework.stack: default_session
  tf1_contrib.private: RegisterShape register_dense_tensor_like_type
framework.tensor_shape
  tf1_contrib.private: matrix scalar vector
framework.tensor_util
  ops.shape_util: shape_tensor
layers.normalization
  tf.layers: BatchNormalization batch_normalization
    BatchNorm=BatchNormalization batch_norm=batch_normalization
layers.layers
  tf.layers: BatchNormalization batch_normalization
ops.array_ops
  ops.array_ops_stack: stack unstack
ops.control_flow_ops
  ops.control_flow_case: case case_v2
  ops.control_flow_assert: Assert
  ops.control_flow_switch_case: switch_case
  ops.cond: cond cond_for_tf_v2
  ops.while_loop: while_loop while_loop_v2
ops.functional_ops
  ops.gen_functional_ops: partitioned_call
ops.gradients_util
  eager.backprop_util: IsTrainable
ops.math_ops
  ops.gen_special_math_ops: bessel_i0e bessel_i1e
  ops.bincount_ops: bincount_v1
ops.nn
  tf.nn: bidirectional_dynamic_rnn dynamic_rnn raw_rnn static_rnn
    static_state_saving_rnn
ops.nn_impl
  ops.nn_impl_distribute: compute_average_loss scale_regularization_loss
ops.random_ops
  ops.random_crop_ops: random_crop
ops.standard_ops
  tf: case cond random_crop stack trace unstack while_loop
ops.variable_scope
  ops.resource_variables_toggle: disable_resource_variables
    enable_resource_variables resource_variables_enabled
  ops.ref_variable: default_variable_creator
  tf: variable=Variable
ops.variables
  ops.ref_variable: RefVariable default_variable_creator
  ops.variable_v1: VariableV1
  ops.state_ops: is_variable_initialized
saved_model.utils_impl
  saved_model.path_helpers: get_assets_dir get_or_create_assets_dir
    get_or_create_variables_dir get_variables_dir get_variables_path
tpu.tpu
  tpu.tpu_replication: TPUReplicateContext outside_compilation
training.checkpoint_management
  checkpoint.checkpoint_management: CheckpointManager checkpoint_exists
    checkpoint_exists_internal generate_checkpoint_state_proto
    get_checkpoint_mtimes get_checkpoint_state latest_checkpoint
    meta_graph_filename remove_checkpoint update_checkpoint_state
    update_checkpoint_state_internal
# Names that changed, too.
data.util.nest
  data.util.nest: is_sequence=is_nested
eager.function
  tf: defun=function
eager.backprop
  tf: function
util.nest
  util.nest: is_sequence=is_nested
# Modules that went.
data.experimental.ops.distribute_options = data.ops.options
data.experimental.ops.optimization_options = data.ops.options
data.experimental.ops.threading_options = data.ops.options
distribute.all_reduce = distribute.v1.all_reduce
distribute.distribution_strategy_context = distribute.distribute_lib
estimator = tensorflow_estimator.python.estimator
eager.profiler = profiler.profiler_v2
ops.gen_user_ops = user_ops.ops.gen_user_ops
pywrap_tensorflow_internal = pywrap_tensorflow
training.checkpointable = trackable
training.checkpointable.tracking = trackable.autotrackable
training.checkpointable.util = checkpoint.checkpoint
training.device_util = distribute.device_util
training.distribute = distribute.distribute_lib
training.distribution_strategy_context = distribute.distribute_lib
training.gen_training_ops = ops.gen_training_ops
training.saving.checkpoint_options = checkpoint.checkpoint_options
training.saving.functional_saver = checkpoint.functional_saver
training.tracking = trackable
training.tracking.graph_view = checkpoint.graph_view
training.tracking.tracking = trackable.autotrackable
training.tracking.util = checkpoint.checkpoint
training.training_ops = ops.gen_training_ops
util.compat_internal = util.compat
util.deprecation_wrapper = util.module_wrapper
""")

# A module that nothing serves -> the reason, and what to do.
GONE = {
  "tensorflow.tools.graph_transforms": (
    "TensorFlow 2 has no Graph Transform Tool: use tf.lite or "
    "tf.compat.v1.graph_util to change a GraphDef"
  ),
}


def _get_target(text: str) -> str:
  """Returns the target that a text of the table means."""
  if text.partition(".")[0] in _FIRST:
    return text
  return _ROOT + text


TABLE = loading.Table(
  {
    _ROOT + module: {name: _get_target(to) for name, to in targets.items()}
    for module, targets in _TABLE.names.items()
  },
  {_ROOT + module: _get_target(to) for module, to in _TABLE.modules.items()},
  [],
)


def _make_package(name: str, other: types.ModuleType) -> types.ModuleType:
  """Returns a package that has the names of another package.

  The other package itself cannot stand for it: the import system would look for
  the modules of the one in the folder of the other.
  """

  def load(member: str) -> Any:
    if not member.startswith("__"):
      child = f"{name}.{member}"
      try:
        return importlib.import_module(child)
      except ModuleNotFoundError as error:
        if error.name != child:
          raise
    return getattr(other, member)

  return lazy_modules.LazyModule(name, load)


class MovedModules(import_hooks.ImportWatcher):
  """A watcher of imports that serves what the table of moved modules has.

  A module that TensorFlow lacks is the module that the table names. A module
  that lacks names gets a `__getattr__`, which loads a name at its first use.
  """

  def __init__(self, log: patching.UndoLog) -> None:
    self._log = log

  def watches(self, name: str) -> bool:
    return (
      name in TABLE.names or name in GONE or TABLE.find_module(name) is not None
    )

  def after_load(self, name: str, module: types.ModuleType) -> None:
    self._fill(name, module)

  def supply_module(self, name: str) -> types.ModuleType | None:
    if name in GONE:
      message = f"{name} is gone: {GONE[name]}"
      raise ModuleNotFoundError(message, name=name)
    target = TABLE.find_module(name)
    if target is None:
      return None
    try:
      module = loading.load(target)
    except loading.TargetError:
      return None
    if not isinstance(module, types.ModuleType):
      return None
    if hasattr(module, "__path__"):
      module = _make_package(name, module)
    return self._log.supply(name, module)

  def fill_loaded(self) -> None:
    """Serves the names in the modules that are loaded already."""
    for name in TABLE.names:
      module = sys.modules.get(name)
      if module is not None:
        self._fill(name, module)

  def _fill(self, name: str, module: types.ModuleType) -> None:
    """Gives a module a `__getattr__` for the names of the table."""
    targets = TABLE.names.get(name)
    if not targets:
      return

    def load(member: str, target: str) -> Any:
      try:
        return loading.load(target)
      except loading.TargetError as error:
        message = f"{name}.{member} moved: {error}"
        raise AttributeError(message) from None

    lazy_modules.serve_names(self._log, module, targets, load)
