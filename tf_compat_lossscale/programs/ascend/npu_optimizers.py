# SPDX-License-Identifier: Apache-2.0
"""Ascend's optimizers and managers of loss scales, by `contrib`'s."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from tf_compat_lossscale import contrib
from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import wrapped_optimizers
from tf_compat_lossscale.programs.ascend import npu_world


class FixedLossScaleManager(contrib.FixedLossScaleManager):
  """A loss scale that never changes."""

  def __init__(
    self, loss_scale: arguments.Number, enable_overflow_check: bool = True
  ) -> None:
    """Creates a manager of a fixed loss scale.

    Args:
      loss_scale: The factor: at least 1, and finite in float32.
      enable_overflow_check: Whether steps whose gradients are not finite are
        skipped.

    Raises:
      ValueError: `loss_scale` is no such number.
    """
    super().__init__(loss_scale)
    # Programs fetch "loss_scale:0" and "overflow_status_reduce_all:0".
    tf.constant(loss_scale, tf.float32, name="loss_scale")
    self._enable_overflow_check = enable_overflow_check

  def get_enable_overflow_check(self) -> bool:
    """Returns whether steps whose gradients are not finite are skipped."""
    return self._enable_overflow_check


class ExponentialUpdateLossScaleManager(
  contrib.ExponentialUpdateLossScaleManager
):
  """A loss scale that grows after good steps and shrinks after bad steps.

  With TensorFlow 1's behavior, its variables are no resources: programs fetch
  the tensor "loss_scale:0".
  """

  _use_resource = None


class NPULossScaleOptimizer(contrib.LossScaleOptimizer):
  """An optimizer that applies a manager's loss scale to another optimizer.

  On Ascend's NPUs, a flag of the hardware tells that a number overflowed
  somewhere in the step. Here the gradients tell, as in `tf.contrib`.
  """

  def __init__(
    self, opt: Any, loss_scale_manager: Any, is_distributed: bool = False
  ) -> None:
    """Wraps an optimizer.

    Args:
      opt: The `tf.compat.v1.train.Optimizer` that applies the gradients.
      loss_scale_manager: A LossScaleManager.
      is_distributed: Whether all processes skip a step if one has to. Here
        there is one process.

    Raises:
      ValueError: As of `contrib.LossScaleOptimizer`.
      RuntimeError: There should be several processes.
    """
    if is_distributed:
      npu_world.check()
    super().__init__(opt, loss_scale_manager)
    self._is_distributed = is_distributed

  def _find_finite(self, grads: Any) -> tf.Tensor:
    """Returns whether the gradients are finite, or True if none should ask."""
    asks = getattr(self.loss_scale_manager, "get_enable_overflow_check", None)
    if asks is not None and not asks():
      return tf.constant(True)
    finite = super()._find_finite(grads)
    return tf.identity(finite, "overflow_status_reduce_all")


class NPUDistributedOptimizer(
  wrapped_optimizers.Delegating, tf.train.Optimizer
):
  """An optimizer that averages another's gradients over one process.

  Attributes of the other, such as `_lr`, are read and set through this object.
  """

  def __init__(
    self,
    optimizer: Any,
    is_weight_update_sharding: bool = False,
    name: str | None = None,
  ) -> None:
    """Wraps an optimizer.

    Args:
      optimizer: The `tf.compat.v1.train.Optimizer`.
      is_weight_update_sharding: Whether each process updates some variables.
      name: This optimizer's name.

    Raises:
      RuntimeError: There should be several processes.
    """
    npu_world.check()
    del is_weight_update_sharding
    super().__init__(False, name or f"Distributed{type(optimizer).__name__}")
    self._optimizer = optimizer

  def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
    """Computes gradients by the wrapped optimizer."""
    return self._optimizer.compute_gradients(*args, **kwargs)

  def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
    """Applies gradients by the wrapped optimizer."""
    return self._optimizer.apply_gradients(*args, **kwargs)

  def get_slot(self, *args: Any, **kwargs: Any) -> Any:
    """Returns a slot of the wrapped optimizer."""
    return self._optimizer.get_slot(*args, **kwargs)

  def get_slot_names(self) -> Any:
    """Returns the names of the wrapped optimizer's slots."""
    return self._optimizer.get_slot_names()

  def variables(self) -> Any:
    """Returns the wrapped optimizer's variables."""
    return self._optimizer.variables()


class NPUOptimizer(NPUDistributedOptimizer):
  """An optimizer that averages gradients, and may have a loss scale."""

  def __init__(
    self,
    opt: Any,
    loss_scale_manager: Any = None,
    is_distributed: bool = False,
    is_loss_scale: bool = False,
    is_tailing_optimization: bool = False,
    name: str | None = None,
  ) -> None:
    """Wraps an optimizer.

    Args:
      opt: The `tf.compat.v1.train.Optimizer` that applies the gradients.
      loss_scale_manager: The manager of the loss scale.
      is_distributed: Whether there are several processes.
      is_loss_scale: Whether the manager's loss scale is applied.
      is_tailing_optimization: A way of communication.
      name: This optimizer's name.

    Raises:
      ValueError: `is_loss_scale` is true, and `loss_scale_manager` is no
        manager.
      RuntimeError: There should be several processes.
    """
    del is_tailing_optimization
    if is_loss_scale:
      opt = NPULossScaleOptimizer(opt, loss_scale_manager, is_distributed)
    super().__init__(opt, name=name or f"NPUOptimizer{type(opt).__name__}")


def wrap(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
  """Returns the optimizer itself: there is one process.

  Args:
    optimizer: A Keras optimizer, its name, or another optimizer.
    *args: How several processes would average gradients.
    **kwargs: The same.

  Raises:
    RuntimeError: There should be several processes.
  """
  del args, kwargs
  npu_world.check()
  if isinstance(optimizer, str):
    return tf.keras.optimizers.get(optimizer)
  return optimizer
