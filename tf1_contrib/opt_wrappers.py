# SPDX-License-Identifier: Apache-2.0
"""Optimizers of `tf.contrib.opt` that wrap another optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


class MovingAverageOptimizer(tf.train.Optimizer):
  """An optimizer that keeps moving averages of the variables it trains.

  `swapping_saver` writes the averages under the variables' names.
  """

  def __init__(
    self,
    opt: Any,
    average_decay: float = 0.9999,
    num_updates: Any = None,
    sequential_update: bool = True,
  ):
    """Wraps an optimizer.

    Args:
      opt: The optimizer.
      average_decay: The decay of the averages, a float [].
      num_updates: The number of updates [], which makes the decay start small.
      sequential_update: Whether averages are computed after the step.
    """
    self._optimizer = opt
    self._averages = tf.train.ExponentialMovingAverage(
      average_decay, num_updates=num_updates
    )
    self._sequential = sequential_update
    self._swapped: dict[str, str] | None = None

  def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
    """Computes gradients by the wrapped optimizer."""
    return self._optimizer.compute_gradients(*args, **kwargs)

  def apply_gradients(
    self, grads_and_vars: Any, global_step: Any = None, name: Any = None
  ) -> Any:
    """Applies gradients by the wrapped optimizer, and updates averages.

    Args:
      grads_and_vars: Pairs of gradient and variable. Variables whose gradient
        is None get no average.
      global_step: An integer variable [] to increment, or None.
      name: The name of the wrapped optimizer's op.

    Returns:
      The op that does both.
    """
    grads_and_vars = list(grads_and_vars)
    train = self._optimizer.apply_gradients(
      grads_and_vars, global_step=global_step, name=name
    )
    trained = [var for grad, var in grads_and_vars if grad is not None]
    with tf.control_dependencies([train] if self._sequential else []):
      average = self._averages.apply(trained)
    self._swapped = {}
    for var in trained:
      names = var.op.name, self._averages.average(var).op.name
      self._swapped.update([names, names[::-1]])
    return tf.group(train, average, name="train_with_avg")

  def swapping_saver(
    self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any
  ) -> Any:
    """Returns a `Saver` that swaps the variables and their averages.

    Args:
      var_list: The variables, or a dict from names to variables, with the
        averages; by default all global variables.
      name: The saver's name scope.
      **kwargs: Arguments for `tf.train.Saver`.

    Raises:
      RuntimeError: No gradients have been applied yet.
      ValueError: A variable's average is not in `var_list`, or an average's
        variable is not.
    """
    if self._swapped is None:
      raise RuntimeError(
        "swapping_saver() was called before minimize() or apply_gradients()"
      )
    if var_list is None:
      var_list = tf.global_variables()
    if not isinstance(var_list, dict):
      var_list = {var.op.name: var for var in var_list}
    by_name = {}
    for key, value in var_list.items():
      for key_of_one, var in _name_parts(key, value):
        by_name[key_of_one] = var
    swapped = {
      key: [self._swap(by_name, var.op.name, var) for var in value]
      if isinstance(value, list)
      else self._swap(by_name, key, value)
      for key, value in var_list.items()
    }
    return tf.train.Saver(swapped, name=name, **kwargs)

  def _swap(self, by_name: dict[str, Any], name: str, var: Any) -> Any:
    """Returns the variable whose value is saved under a name."""
    other = (self._swapped or {}).get(name)
    if other is None:
      return var
    if other not in by_name:
      raise ValueError(
        f"swapping_saver() swaps {name!r} with its average {other!r}, which is "
        "not among the variables to save: put the average into var_list"
      )
    return by_name[other]


def _name_parts(key: str, value: Any) -> list[tuple[str, Any]]:
  """Returns names and variables of an entry, which may be partitioned."""
  if isinstance(value, list) or hasattr(value, "partition"):
    return [(part.op.name, part) for part in value]
  return [(key, value)]


class VariableClippingOptimizer(tf.train.Optimizer):
  """An optimizer that clips the norms of variables after each step."""

  def __init__(
    self,
    opt: Any,
    vars_to_clip_dims: Any,
    max_norm: float,
    use_locking: bool = False,
    colocate_clip_ops_with_vars: bool = False,
    name: str = "VariableClipping",
  ):
    """Wraps an optimizer.

    Args:
      opt: The optimizer.
      vars_to_clip_dims: Variable -> the dimensions over which its norm goes,
        as integers.
      max_norm: The largest norm, a float [].
      use_locking: Whether updates lock variables.
      colocate_clip_ops_with_vars: Not used: ops go where TensorFlow puts them.
      name: The name scope.
    """
    del colocate_clip_ops_with_vars
    super().__init__(use_locking, name)
    self._optimizer = opt
    self._max_norm = max_norm
    self._dimensions = {
      var.ref(): list(dims) for var, dims in vars_to_clip_dims.items()
    }

  def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
    """Computes gradients by the wrapped optimizer."""
    return self._optimizer.compute_gradients(*args, **kwargs)

  def get_slot(self, *args: Any, **kwargs: Any) -> Any:
    """Returns a slot of the wrapped optimizer."""
    return self._optimizer.get_slot(*args, **kwargs)

  def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
    """Returns the names of the wrapped optimizer's slots."""
    return self._optimizer.get_slot_names(*args, **kwargs)

  def apply_gradients(
    self, grads_and_vars: Any, global_step: Any = None, name: Any = None
  ) -> Any:
    """Applies gradients by the wrapped optimizer, then clips variables.

    If a gradient is sparse and dimension 0 is not among the variable's
    dimensions, the rows with gradients alone are clipped.

    Args:
      grads_and_vars: Pairs of gradient and variable. Variables whose gradient
        is None are not clipped.
      global_step: An integer variable [] to increment, or None.
      name: The name scope; by default the optimizer's name.

    Returns:
      The op that does both.
    """
    grads_and_vars = list(grads_and_vars)
    with tf.name_scope(name, self.get_name()) as scope:
      update = self._optimizer.apply_gradients(
        grads_and_vars, global_step=global_step
      )
      with tf.control_dependencies([update]):
        clips = [
          self._clip(grad, var)
          for grad, var in grads_and_vars
          if grad is not None and var.ref() in self._dimensions
        ]
      return tf.group(update, *clips, name=scope)

  def _clip(self, grad: Any, var: Any) -> Any:
    """Returns the op that clips a variable, or its rows with gradients."""
    dimensions = self._dimensions[var.ref()]
    with tf.name_scope(f"clip_{var.op.name}"):
      if isinstance(grad, tf.IndexedSlices) and 0 not in dimensions:
        rows = tf.gather(var, grad.indices)
        delta = rows - tf.clip_by_norm(rows, self._max_norm, dimensions)
        return var.scatter_sub(tf.IndexedSlices(delta, grad.indices))
      value = var.read_value()
      clipped = tf.clip_by_norm(value, self._max_norm, dimensions)
      return var.assign_sub(value - clipped)


class MultitaskOptimizerWrapper:
  """An optimizer whose state stays as it is if a gradient is all zeros."""

  def __init__(self, opt: Any):
    """Wraps an optimizer, and replaces its methods that apply gradients.

    Args:
      opt: A `tf.train.Optimizer`.

    Raises:
      TypeError: `opt` is not a `tf.train.Optimizer`.
    """
    if not isinstance(opt, tf.train.Optimizer):
      raise TypeError(f"{opt!r} is not a tf.train.Optimizer")
    self._optimizer = opt
    for name in (
      "_apply_dense",
      "_resource_apply_dense",
      "_apply_sparse",
      "_resource_apply_sparse",
    ):
      setattr(opt, name, _skip_zeros(getattr(opt, name)))

  def __getattr__(self, name: str) -> Any:
    return getattr(self.__dict__["_optimizer"], name)


def _skip_zeros(apply: Callable[..., Any]) -> Callable[..., Any]:
  """Returns a method that applies only gradients that are not all zeros."""

  def apply_or_skip(grad: Any, *args: Any, **kwargs: Any) -> Any:
    def call() -> Any:
      with tf.control_dependencies([apply(grad, *args, **kwargs)]):
        return tf.no_op()

    return tf.cond(_is_zero(grad), tf.no_op, call)

  return apply_or_skip


def _is_zero(grad: Any) -> Any:
  """Returns whether a gradient is all zeros."""
  values = grad.values if isinstance(grad, tf.IndexedSlices) else grad
  return tf.equal(tf.math.count_nonzero(values), 0)


def clip_gradients_by_global_norm(
  gradients_variables: Any, clip_norm: Any = 20.0
) -> tuple[list[Any], Any]:
  """Clips gradients by the global norm of all that are not None.

  Args:
    gradients_variables: Pairs of gradient and variable, at least one. A
      gradient is a float tensor, an IndexedSlices or None.
    clip_norm: The largest global norm, a float [].

  Returns:
    Pairs of clipped gradient and variable, and the norm before clipping, [].

  Raises:
    ValueError: There are no pairs.
  """
  gradients, variables = zip(*gradients_variables)
  norm = tf.linalg.global_norm([grad for grad in gradients if grad is not None])
  clipped, _ = tf.clip_by_global_norm(gradients, clip_norm, use_norm=norm)
  return list(zip(clipped, variables)), norm
