# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.estimator`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class _ClippingOptimizer(tf.train.Optimizer):
  """An optimizer that clips gradients by their global norm."""

  def __init__(self, optimizer: Any, clip_norm: Any):
    super().__init__(False, f"ClipByNorm{optimizer.get_name()}")
    self._optimizer, self._clip_norm = optimizer, clip_norm

  def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
    """Computes gradients by the wrapped optimizer."""
    return self._optimizer.compute_gradients(*args, **kwargs)

  def apply_gradients(
    self, grads_and_vars: Any, global_step: Any = None, name: Any = None
  ) -> Any:
    """Clips gradients, then applies them by the wrapped optimizer."""
    grads, variables = zip(*grads_and_vars)
    clipped, _ = tf.clip_by_global_norm(grads, self._clip_norm)
    return self._optimizer.apply_gradients(
      list(zip(clipped, variables)), global_step, name
    )

  def get_slot(self, *args: Any, **kwargs: Any) -> Any:
    """Returns a slot of the wrapped optimizer."""
    return self._optimizer.get_slot(*args, **kwargs)

  def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
    """Returns the names of the wrapped optimizer's slots."""
    return self._optimizer.get_slot_names(*args, **kwargs)


def clip_gradients_by_norm(optimizer: Any, clip_norm: Any) -> Any:
  """Returns an optimizer that clips gradients before it applies them.

  Args:
    optimizer: A `tf.train.Optimizer`, whose variables keep their names.
    clip_norm: The largest global norm of all gradients, a float [].
  """
  return _ClippingOptimizer(optimizer, clip_norm)
