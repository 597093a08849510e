# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.estimator`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow_estimator.python.estimator.canned import head as heads

_MEAN = tf.losses.Reduction.SUM_OVER_BATCH_SIZE


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


def multi_class_head(
  n_classes: int,
  weight_column: Any = None,
  label_vocabulary: Any = None,
  loss_reduction: str = _MEAN,
  loss_fn: Any = None,
  name: str | None = None,
) -> Any:
  """Returns a head for three or more classes, of which one is right."""
  make = heads._multi_class_head_with_softmax_cross_entropy_loss
  arguments = weight_column, label_vocabulary, loss_reduction, loss_fn, name
  return make(n_classes, *arguments)


def binary_classification_head(
  weight_column: Any = None,
  thresholds: Any = None,
  label_vocabulary: Any = None,
  loss_reduction: str = _MEAN,
  loss_fn: Any = None,
  name: str | None = None,
) -> Any:
  """Returns a head for two classes."""
  make = heads._binary_logistic_head_with_sigmoid_cross_entropy_loss
  arguments = label_vocabulary, loss_reduction, loss_fn, name
  return make(weight_column, thresholds, *arguments)


def regression_head(
  weight_column: Any = None,
  label_dimension: int = 1,
  loss_reduction: str = _MEAN,
  loss_fn: Any = None,
  inverse_link_fn: Any = None,
  name: str | None = None,
) -> Any:
  """Returns a head for numbers, whose loss is the squared error."""
  make = heads._regression_head
  arguments = loss_reduction, loss_fn, inverse_link_fn, name
  return make(weight_column, label_dimension, *arguments)
