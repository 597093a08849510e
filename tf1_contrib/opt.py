# SPDX-License-Identifier: Apache-2.0
"""Optimizers of `tf.contrib.opt` that extend another optimizer.

Slots and variables have the names that TensorFlow 1.15 gave them.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class DecoupledWeightDecayExtension:
  """A base class, beside an optimizer, that decays weights before each step.

  Gradients are those of the weights before the decay. In TensorFlow 1.15,
  chance decided which of the two came first.

  `apply_gradients` takes `decay_var_list`, the variables that decay; by
  default, all variables do.
  """

  def __init__(self, weight_decay: Any, *args: Any, **kwargs: Any):
    """Creates the optimizer.

    Args:
      weight_decay: A float [], or a function without arguments that returns
        one. Each step casts it to the variable's dtype.
      *args: Arguments for the optimizer that is extended.
      **kwargs: The same by name.
    """
    self._decaying: set[Any] | None = None  # References; None means all.
    self._weight_decay = weight_decay
    self._weight_decay_tensor: Any = None
    super().__init__(*args, **kwargs)

  def minimize(self, *args: Any, **kwargs: Any) -> Any:
    """Minimizes a loss, as `tf.train.Optimizer` does.

    As in TensorFlow 1.15, all variables decay, also if `decay_var_list` is
    given, the last argument: call `compute_gradients` and `apply_gradients` to
    choose variables.
    """
    kwargs.pop("decay_var_list", None)
    return super().minimize(*args[:8], **kwargs)  # type: ignore[misc]

  def apply_gradients(
    self,
    grads_and_vars: Any,
    global_step: Any = None,
    name: str | None = None,
    decay_var_list: Any = None,
  ) -> Any:
    """Applies gradients, after the variables of `decay_var_list` decayed.

    Args:
      grads_and_vars: Pairs of gradient and variable. A gradient is a tensor of
        the variable's shape and dtype, an IndexedSlices or None.
      global_step: An integer variable [] to increment, or None.
      name: The name of the op.
      decay_var_list: The variables that decay; all, if None or empty.

    Returns:
      The op that takes the step.
    """
    self._decaying = {v.ref() for v in decay_var_list or ()} or None
    return super().apply_gradients(  # type: ignore[misc]
      grads_and_vars, global_step=global_step, name=name
    )

  def _prepare(self) -> None:
    decay = self._weight_decay
    self._weight_decay_tensor = tf.convert_to_tensor(
      decay() if callable(decay) else decay, name="weight_decay"
    )
    super()._prepare()  # type: ignore[misc]

  def _decay_weights_op(self, grad: Any, var: Any, indices: Any = None) -> Any:
    """Returns the op that decays a variable, or the rows of a variable."""
    if self._decaying is not None and var.ref() not in self._decaying:
      return tf.no_op()
    factor = tf.cast(self._weight_decay_tensor, var.dtype.base_dtype)
    with tf.control_dependencies([grad]):
      if indices is None:
        return var.assign_sub(factor * var)
      rows = tf.gather(var, indices)
      return var.scatter_sub(tf.IndexedSlices(factor * rows, indices))

  def _apply_dense(self, grad: Any, var: Any) -> Any:
    with tf.control_dependencies([self._decay_weights_op(grad, var)]):
      return super()._apply_dense(grad, var)  # type: ignore[misc]

  def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
    with tf.control_dependencies([self._decay_weights_op(grad, var)]):
      return super()._resource_apply_dense(grad, var)  # type: ignore[misc]

  def _apply_sparse(self, grad: Any, var: Any) -> Any:
    with tf.control_dependencies(
      [self._decay_weights_op(grad.values, var, grad.indices)]
    ):
      return super()._apply_sparse(grad, var)  # type: ignore[misc]

  def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
    with tf.control_dependencies([self._decay_weights_op(grad, var, indices)]):
      return super()._resource_apply_sparse(  # type: ignore[misc]
        grad, var, indices
      )


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
  """Returns a subclass of an optimizer whose first argument is weight decay.

  Args:
    base_optimizer: A subclass of `tf.train.Optimizer`.

  Returns:
    A class; see `DecoupledWeightDecayExtension`. Its constructor takes the
    weight decay, then the arguments of `base_optimizer`.
  """

  class OptimizerWithDecoupledWeightDecay(
    DecoupledWeightDecayExtension,
    base_optimizer,
  ):
    """An optimizer with decoupled weight decay."""

  return OptimizerWithDecoupledWeightDecay


class MomentumWOptimizer(
  DecoupledWeightDecayExtension, tf.train.MomentumOptimizer
):
  """Momentum with decoupled weight decay."""

  def __init__(
    self,
    weight_decay: Any,
    learning_rate: Any,
    momentum: Any,
    use_locking: bool = False,
    name: str = "MomentumW",
    use_nesterov: bool = False,
  ):
    arguments = learning_rate, momentum, use_locking, name, use_nesterov
    super().__init__(weight_decay, *arguments)


class AdamWOptimizer(DecoupledWeightDecayExtension, tf.train.AdamOptimizer):
  """Adam with decoupled weight decay."""

  def __init__(
    self,
    weight_decay: Any,
    learning_rate: Any = 0.001,
    beta1: Any = 0.9,
    beta2: Any = 0.999,
    epsilon: Any = 1e-8,
    use_locking: bool = False,
    name: str = "AdamW",
  ):
    arguments = learning_rate, beta1, beta2, epsilon, use_locking, name
    super().__init__(weight_decay, *arguments)


class LazyAdamOptimizer(tf.train.AdamOptimizer):
  """Adam that leaves the moments of rows without gradients as they are."""

  def _apply_sparse(self, grad: Any, var: Any) -> Any:
    return self._apply_to_rows(grad.values, var, grad.indices)

  def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
    return self._apply_to_rows(grad, var, indices)

  def _apply_to_rows(self, grad: Any, var: Any, indices: Any) -> Any:
    """Returns the op that applies gradients to some rows of a variable."""
    dtype = var.dtype.base_dtype
    beta1, beta2, epsilon, rate = (
      tf.cast(value, dtype)
      for value in (self._beta1_t, self._beta2_t, self._epsilon_t, self._lr_t)
    )
    powers = [tf.cast(p, dtype) for p in self._get_beta_accumulators()]
    rate *= tf.sqrt(1 - powers[1]) / (1 - powers[0])
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    new_m = beta1 * tf.gather(m, indices) + (1 - beta1) * grad
    new_v = beta2 * tf.gather(v, indices) + (1 - beta2) * tf.square(grad)
    step = rate * new_m / (tf.sqrt(new_v) + epsilon)
    return tf.group(
      m.scatter_update(tf.IndexedSlices(new_m, indices)),
      v.scatter_update(tf.IndexedSlices(new_v, indices)),
      var.scatter_sub(tf.IndexedSlices(step, indices)),
    )
