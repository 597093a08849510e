# SPDX-License-Identifier: Apache-2.0
"""Sessions and devices that programs set up for NPUs.

TensorFlow ignores the graph optimizer "NpuOptimizer" in a session's options if
it has none of that name.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from tf_compat_lossscale.programs.ascend import npu_functions
from tf_compat_lossscale.programs.ascend import npu_world


def npu_config_proto(config_proto: Any = None) -> Any:
  """Returns the `ConfigProto`, or makes one, with the device of ops optional.

  `graph_options.rewrite_options.custom_optimizers` has an "NpuOptimizer", as on
  Ascend: programs set its `parameter_map`. It has no effect.
  """
  if not isinstance(config_proto, tf.ConfigProto):
    config_proto = tf.ConfigProto()
  config_proto.allow_soft_placement = True
  optimizers = config_proto.graph_options.rewrite_options.custom_optimizers
  if all(each.name != "NpuOptimizer" for each in optimizers):
    optimizers.add().name = "NpuOptimizer"
  return config_proto


def npu_graph_options(graph_options: Any = None) -> Any:
  """Returns the `GraphOptions`, or makes some."""
  return tf.GraphOptions() if graph_options is None else graph_options


def npu_optimizer_options(optimizer_options: Any = None) -> Any:
  """Returns the `OptimizerOptions`, or makes some."""
  if optimizer_options is None:
    return tf.OptimizerOptions()
  return optimizer_options


def set_keras_session_npu_config(config: Any = None) -> Any:
  """Returns a session with a `ConfigProto`, which Keras 2 uses from now on."""
  session = tf.Session(config=npu_config_proto(config))
  tf.keras.backend.set_session(session)
  return session


def npu_clear_session(config: Any = None) -> None:
  """Makes Keras 2 begin with a new graph and session."""
  tf.keras.backend.clear_session()
  set_keras_session_npu_config(config)


def init_resource(config: Any = None) -> tuple[Any, Any]:
  """Returns a session, and the op that `shutdown_resource` runs.

  Raises:
    RuntimeError: There should be several processes.
  """
  npu_world.check()
  shutdown = npu_functions.initialize_system()
  return tf.Session(config=npu_config_proto(config)), shutdown


def shutdown_resource(sess: Any, npu_shutdown: Any) -> None:
  """Runs the op that `init_resource` returned."""
  sess.run(npu_shutdown)


def close_session(sess: Any) -> None:
  """Closes a session."""
  sess.close()


def make_strategy(device: str = "/cpu:0") -> Any:
  """Returns a strategy of one replica, on the CPU by default."""
  npu_world.check()
  return tf.distribute.OneDeviceStrategy(device)


class SessionConfigBuilder:
  """The options of a session and those of its "NpuOptimizer"."""

  def __init__(self, config: Any = None) -> None:
    """Takes a `ConfigProto`, or makes one."""
    self.session_config = npu_config_proto(config)

  @property
  def parameter_map(self) -> Any:
    """The options of the "NpuOptimizer", which have no effect."""
    options = self.session_config.graph_options.rewrite_options
    for each in options.custom_optimizers:
      if each.name == "NpuOptimizer":
        return each.parameter_map
    return None


class Device:
  """Where the program runs: the devices of TensorFlow, in one process."""

  workers_num, worker_id = 1, 0

  def __init__(self, device_id: int | None = None) -> None:
    """Takes the number of an NPU, which has no effect.

    Raises:
      RuntimeError: There should be several processes.
    """
    npu_world.check()
    self.device_id = device_id

  def as_default(self) -> Device:
    """Returns this object."""
    return self

  def scope(self) -> Any:
    """Returns a context that changes nothing."""
    return npu_functions.no_scope()

  def name(self) -> str:
    """Returns the device's name, "" for TensorFlow's choice."""
    return ""

  def is_cluster_worker(self) -> bool:
    """Returns whether there are other processes: False."""
    return False


class _FreeOptions:
  """Options that may have any names, and options within them."""

  def __getattr__(self, name: str) -> Any:
    if name.startswith("__"):
      raise AttributeError(name)
    value = _FreeOptions()
    setattr(self, name, value)
    return value


_options = _FreeOptions()


def global_options() -> Any:
  """Returns an object whose attributes may be set, without an effect."""
  return _options


def is_inf_nan_enabled() -> bool:
  """Returns whether inf and NaN are kept in tensors: True."""
  return True


def enable_v1() -> None:
  """Gives TensorFlow the behavior of TensorFlow 1."""
  tf.disable_v2_behavior()
