# SPDX-License-Identifier: Apache-2.0
"""Optimizers of `tf.contrib.opt` with update rules of their own.

Slots and variables have the names that TensorFlow 1.15 gave them.
"""

from __future__ import annotations

from collections.abc import Callable
import math
from typing import Any

import tensorflow.compat.v1 as tf


class _RuleOptimizer(tf.train.Optimizer):
  """A base class for optimizers with one rule for all kinds of variables."""

  # The names of the slots of zeros that each variable has.
  _SLOTS: tuple[str, ...] = ()

  def _update(self, grad: Any, var: Any) -> Any:
    """Returns the op that applies a dense gradient."""
    raise NotImplementedError

  def _apply_dense(self, grad: Any, var: Any) -> Any:
    return self._update(grad, var)

  def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
    return self._update(grad, var)

  def _apply_sparse(self, grad: Any, var: Any) -> Any:
    return self._resource_apply_sparse(grad.values, var, grad.indices)

  def _create_slots(self, var_list: Any) -> None:
    for var in var_list:
      for name in self._SLOTS:
        self._zeros_slot(var, name, self.get_name())


class LARSOptimizer(_RuleOptimizer):
  """Momentum with a rate for each layer, by the norms of weight and gradient.

  The rate of a layer is

    learning_rate * eeta * |w| / (|g| + weight_decay * |w| + epsilon)

  or `learning_rate` if a norm is 0. A variable whose name has an entry of
  `skip_list` in it has `learning_rate` and no weight decay. So has a variable
  with a sparse gradient.
  """

  _SLOTS = ("momentum",)

  def __init__(
    self,
    learning_rate: Any,
    momentum: Any = 0.9,
    weight_decay: float = 0.0001,
    eeta: float = 0.001,
    epsilon: float = 0.0,
    name: str = "LARSOptimizer",
    skip_list: Any = None,
    use_nesterov: bool = False,
  ):
    """Creates the optimizer.

    Args:
      learning_rate: A float [], or a function without arguments that returns
        one. Each step casts it to the variable's dtype.
      momentum: A number, 0 or more.
      weight_decay: A number, 0 or more.
      eeta: A number; see the class.
      epsilon: A number; see the class.
      name: The name of the optimizer.
      skip_list: Strings, or None.
      use_nesterov: Whether to use Nesterov momentum.

    Raises:
      ValueError: `momentum` or `weight_decay` is negative.
    """
    for label, value in (
      ("momentum", momentum),
      ("weight_decay", weight_decay),
    ):
      if value < 0:
        raise ValueError(f"{label} must be 0 or more, but got {value}")
    super().__init__(use_locking=False, name=name)
    self._learning_rate = learning_rate
    self._momentum = momentum
    self._decay, self._eeta, self._epsilon = weight_decay, eeta, epsilon
    self._skipped = skip_list
    self._nesterov = use_nesterov

  def _prepare(self) -> None:
    rate = self._learning_rate
    self._rate = tf.convert_to_tensor(
      rate() if callable(rate) else rate, name="learning_rate"
    )
    self._momentum_tensor = tf.convert_to_tensor(
      self._momentum, name="momentum"
    )

  def compute_lr(self, grad: Any, var: Any) -> tuple[Any, Any]:
    """Returns a variable's rate, and the gradient with weight decay.

    Args:
      grad: A dense gradient, of the variable's shape and dtype.
      var: The variable.

    Returns:
      The rate [] and the gradient, of the variable's shape. Both have the
      variable's dtype.
    """
    rate = tf.cast(self._rate, var.dtype.base_dtype)
    if self._skipped and any(part in var.name for part in self._skipped):
      return rate, grad
    weight, gradient = tf.norm(var, ord=2), tf.norm(grad, ord=2)
    ratio = (
      self._eeta * weight / (gradient + self._decay * weight + self._epsilon)
    )
    is_known = tf.logical_and(weight > 0, gradient > 0)
    ratio = tf.where(is_known, ratio, tf.ones_like(ratio))
    return rate * ratio, grad + self._decay * var

  def _update(self, grad: Any, var: Any) -> Any:
    rate, grad = self.compute_lr(grad, var)
    return self._apply_momentum(grad * rate, var)

  def _apply_momentum(self, step: Any, var: Any) -> Any:
    """Returns the op that adds a step to the momentum, and takes it."""
    momentum = tf.cast(self._momentum_tensor, var.dtype.base_dtype)
    slot = self.get_slot(var, "momentum")
    total = slot.assign(momentum * slot + step)
    if self._nesterov:
      total = step + momentum * total
    return var.assign_sub(total).op

  def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
    momentum = tf.cast(self._momentum_tensor, var.dtype.base_dtype)
    rate = tf.cast(self._rate, var.dtype.base_dtype)
    slot = self.get_slot(var, "momentum")
    total = momentum * tf.gather(slot, indices) + grad
    step = rate * (grad + momentum * total if self._nesterov else total)
    return tf.group(
      slot.scatter_update(tf.IndexedSlices(total, indices)),
      var.scatter_sub(tf.IndexedSlices(step, indices)),
    )


class _SignOptimizer(_RuleOptimizer):
  """A base class for AddSign and PowerSign.

  m = beta * m + (1 - beta) * g
  w = w - learning_rate * factor(sign(g) * sign(m) * decay) * g
  """

  _SLOTS = ("m",)

  def __init__(
    self,
    learning_rate: Any,
    beta: Any,
    sign_decay_fn: Callable[[Any], Any] | None,
    use_locking: bool,
    name: str,
  ):
    super().__init__(use_locking, name)
    self._learning_rate, self._beta = learning_rate, beta
    self._decay_function = sign_decay_fn
    self._sign_decay: Any = 1.0

  def apply_gradients(
    self, grads_and_vars: Any, global_step: Any = None, name: Any = None
  ) -> Any:
    """Applies gradients; see the class.

    Args:
      grads_and_vars: Pairs of dense gradient and variable.
      global_step: An integer variable [] to increment, or None. The function
        `sign_decay_fn` gets it.
      name: The name of the op.

    Returns:
      The op that takes the step.

    Raises:
      NotImplementedError: A gradient is sparse.
    """
    if self._decay_function is not None:
      self._sign_decay = tf.convert_to_tensor(
        self._decay_function(global_step), name="sign_decay"
      )
    return super().apply_gradients(grads_and_vars, global_step, name)

  def _factor(self, agreement: Any) -> Any:
    """Returns the factor of the gradient."""
    raise NotImplementedError

  def _update(self, grad: Any, var: Any) -> Any:
    dtype = var.dtype.base_dtype
    m = self._update_mean(grad, var)
    agreement = tf.cast(self._sign_decay, dtype) * tf.sign(grad) * tf.sign(m)
    rate = tf.cast(self._learning_rate, dtype)
    return var.assign_sub(rate * self._factor(agreement) * grad).op

  def _update_mean(self, grad: Any, var: Any) -> Any:
    """Returns the mean of the gradients, after its update."""
    beta = tf.cast(self._beta, var.dtype.base_dtype)
    m = self.get_slot(var, "m")
    return m.assign(m * beta + grad * (1 - beta))


class AddSignOptimizer(_SignOptimizer):
  """An optimizer whose factor is `alpha + sign(g) * sign(m)`.

  Rate, `alpha` and `beta` are floats [], cast to the variable's dtype.
  `sign_decay_fn` takes the global step and returns a float [], which multiplies
  `sign(g) * sign(m)`.
  """

  def __init__(
    self,
    learning_rate: Any = 0.1,
    alpha: Any = 1.0,
    beta: Any = 0.9,
    sign_decay_fn: Any = None,
    use_locking: bool = False,
    name: str = "AddSignOptimizer",
  ):
    super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
    self._alpha = alpha

  def _factor(self, agreement: Any) -> Any:
    return tf.cast(self._alpha, agreement.dtype) + agreement


class PowerSignOptimizer(_SignOptimizer):
  """An optimizer whose factor is `base ** (sign(g) * sign(m))`.

  Rate and `beta` are floats [], cast to the variable's dtype. `base` is a
  number above 0, else the constructor raises a ValueError. `sign_decay_fn`
  takes the global step and returns a float [], which multiplies
  `sign(g) * sign(m)`.
  """

  def __init__(
    self,
    learning_rate: Any = 0.1,
    base: float = math.e,
    beta: Any = 0.9,
    sign_decay_fn: Any = None,
    use_locking: bool = False,
    name: str = "PowerSignOptimizer",
  ):
    super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
    self._log_base = math.log(base)

  def _factor(self, agreement: Any) -> Any:
    return tf.exp(self._log_base * agreement)


class NadamOptimizer(tf.train.AdamOptimizer):
  """Adam with Nesterov momentum.

  m = beta1 * m + (1 - beta1) * g
  v = beta2 * v + (1 - beta2) * g * g
  w = w - rate * (beta1 * m + (1 - beta1) * g) / (sqrt(v) + epsilon)

  The arguments are those of `tf.train.AdamOptimizer`. Sparse gradients are made
  dense.
  """

  def _apply_dense(self, grad: Any, var: Any) -> Any:
    return self._resource_apply_dense(grad, var)

  def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
    dtype = var.dtype.base_dtype
    beta1, beta2, epsilon, rate = (
      tf.cast(value, dtype)
      for value in (self._beta1_t, self._beta2_t, self._epsilon_t, self._lr_t)
    )
    powers = [tf.cast(p, dtype) for p in self._get_beta_accumulators()]
    rate *= tf.sqrt(1 - powers[1]) / (1 - powers[0])
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    new_m = m.assign(m + (1 - beta1) * (grad - m))
    new_v = v.assign(v + (1 - beta2) * (tf.square(grad) - v))
    mean = beta1 * new_m + (1 - beta1) * grad
    return var.assign_sub(rate * mean / (tf.sqrt(new_v) + epsilon)).op

  def _apply_sparse(self, grad: Any, var: Any) -> Any:
    return self._resource_apply_dense(tf.convert_to_tensor(grad), var)

  def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
    slices = tf.IndexedSlices(grad, indices, tf.shape(var))
    return self._resource_apply_dense(tf.convert_to_tensor(slices), var)


class AdaMaxOptimizer(_RuleOptimizer):
  """Adam with the largest gradient in place of the second moment.

  m = beta1 * m + (1 - beta1) * g
  v = max(beta2 * v, |g|)
  w = w - learning_rate / (1 - beta1 ** t) * m / (v + epsilon)

  Rate, `beta1`, `beta2` and `epsilon` are floats [], cast to the variable's
  dtype. A sparse gradient changes its rows of `m`, `v` and `w` alone.
  """

  _SLOTS = ("m", "v")

  def __init__(
    self,
    learning_rate: Any = 0.001,
    beta1: Any = 0.9,
    beta2: Any = 0.999,
    epsilon: Any = 1e-8,
    use_locking: bool = False,
    name: str = "AdaMax",
  ):
    super().__init__(use_locking, name)
    self._learning_rate = learning_rate
    self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon

  def _create_slots(self, var_list: Any) -> None:
    self._create_non_slot_variable(
      initial_value=self._beta1,
      name="beta1_power",
      colocate_with=min(var_list, key=lambda var: var.name),
    )
    super()._create_slots(var_list)

  def _get_power(self) -> Any:
    """Returns the variable that is `beta1 ** t`."""
    with tf.init_scope():  # A cond of TensorFlow 2 has a graph of its own.
      graph = None if tf.executing_eagerly() else tf.get_default_graph()
    return self._get_non_slot_variable("beta1_power", graph=graph)

  def _update(self, grad: Any, var: Any) -> Any:
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    step, new_m, new_v = self._compute_step(grad, var, m, v)
    return tf.group(m.assign(new_m), v.assign(new_v), var.assign_sub(step))

  def _compute_step(
    self, grad: Any, var: Any, m: Any, v: Any
  ) -> tuple[Any, Any, Any]:
    """Returns the step, and the new values of the slots."""
    dtype = var.dtype.base_dtype
    beta1, beta2, epsilon, rate, power = (
      tf.cast(value, dtype)
      for value in (
        self._beta1,
        self._beta2,
        self._epsilon,
        self._learning_rate,
        self._get_power(),
      )
    )
    new_m = beta1 * m + (1 - beta1) * grad
    new_v = tf.maximum(beta2 * v, tf.abs(grad))
    return rate / (1 - power) * new_m / (new_v + epsilon), new_m, new_v

  def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    step, new_m, new_v = self._compute_step(
      grad, var, tf.gather(m, indices), tf.gather(v, indices)
    )
    return tf.group(
      m.scatter_update(tf.IndexedSlices(new_m, indices)),
      v.scatter_update(tf.IndexedSlices(new_v, indices)),
      var.scatter_sub(tf.IndexedSlices(step, indices)),
    )

  def _finish(self, update_ops: Any, name_scope: Any) -> Any:
    with tf.control_dependencies(update_ops):
      power = self._get_power()
      update = power.assign(power * tf.cast(self._beta1, power.dtype))
    return tf.group(*update_ops, update, name=name_scope)
