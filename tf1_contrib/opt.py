# SPDX-License-Identifier: Apache-2.0
"""Optimizers of `tf.contrib.opt`.

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


class _RowsOfAdam(tf.train.AdamOptimizer):
  """A base class of Adam's kind with a rule for some rows of a variable."""

  def _apply_sparse(self, grad: Any, var: Any) -> Any:
    return self._apply_to_rows(grad.values, var, grad.indices)

  def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
    return self._apply_to_rows(grad, var, indices)

  def _apply_to_rows(self, grad: Any, var: Any, indices: Any) -> Any:
    """Returns the op that applies gradients to some rows of a variable."""
    raise NotImplementedError

  def _cast_settings(self, dtype: Any) -> list[Any]:
    """Returns the rate, beta1, beta2 and epsilon in a variable's dtype."""
    settings = self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t
    return [tf.cast(value, dtype.base_dtype) for value in settings]

  def _move_moments(self, grad: Any, var: Any, indices: Any) -> Any:
    """Returns Adam's rate of this step, and the new moments of some rows."""
    rate, beta1, beta2, _ = self._cast_settings(var.dtype)
    power1, power2 = self._get_beta_accumulators()
    rate *= tf.sqrt(1 - tf.cast(power2, rate.dtype))
    rate /= 1 - tf.cast(power1, rate.dtype)
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    new_m = beta1 * tf.gather(m, indices) + (1 - beta1) * grad
    new_v = beta2 * tf.gather(v, indices) + (1 - beta2) * tf.square(grad)
    return rate, new_m, new_v


class LazyAdamOptimizer(_RowsOfAdam):
  """Adam that leaves the moments of rows without gradients as they are."""

  def _apply_to_rows(self, grad: Any, var: Any, indices: Any) -> Any:
    *_, epsilon = self._cast_settings(var.dtype)
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    rate, new_m, new_v = self._move_moments(grad, var, indices)
    step = rate * new_m / (tf.sqrt(new_v) + epsilon)
    return tf.group(
      m.scatter_update(tf.IndexedSlices(new_m, indices)),
      v.scatter_update(tf.IndexedSlices(new_v, indices)),
      var.scatter_sub(tf.IndexedSlices(step, indices)),
    )


class _KernelOfAdam(_RowsOfAdam):
  """A base class of Adam's kind with a kernel of its own for dense gradients.

  Attributes:
    _dense: The op for reference variables.
    _resource_dense: The op for resource variables.
  """

  _dense: Any
  _resource_dense: Any

  def _list_powers(self, dtype: Any) -> dict[str, Any]:
    """Returns the inputs of the ops that not all of them have."""
    raise NotImplementedError

  def _apply_dense(self, grad: Any, var: Any) -> Any:
    state = var, self.get_slot(var, "m"), self.get_slot(var, "v")
    return self._call(type(self)._dense, state, grad).op

  def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
    state = var, self.get_slot(var, "m"), self.get_slot(var, "v")
    handles = [variable.handle for variable in state]
    return self._call(type(self)._resource_dense, handles, grad)

  def _call(self, op: Any, state: Any, grad: Any) -> Any:
    settings = ("lr", "beta1", "beta2", "epsilon")
    return op(
      **dict(zip(("var", "m", "v"), state)),
      **dict(zip(settings, self._cast_settings(grad.dtype))),
      **self._list_powers(grad.dtype.base_dtype),
      grad=grad,
      use_locking=self._use_locking,
    )


class NadamOptimizer(_KernelOfAdam):
  """Adam with Nesterov momentum: a step is by the next first moment.

  Slots and powers have Adam's names. The moments of rows without gradients
  decay, and the rows themselves stay. Keras's Nadam has another rule.
  """

  _dense = tf.raw_ops.ApplyAdam
  _resource_dense = tf.raw_ops.ResourceApplyAdam

  def _list_powers(self, dtype: Any) -> dict[str, Any]:
    beta1, beta2 = self._get_beta_accumulators()
    return {
      "beta1_power": tf.cast(beta1, dtype),
      "beta2_power": tf.cast(beta2, dtype),
      "use_nesterov": True,
    }

  def _apply_to_rows(self, grad: Any, var: Any, indices: Any) -> Any:
    _, beta1, beta2, epsilon = self._cast_settings(var.dtype)
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    rate, new_m, new_v = self._move_moments(grad, var, indices)
    ahead = beta1 * new_m + (1 - beta1) * grad
    step = rate * ahead / (tf.sqrt(new_v) + epsilon)
    updates = [var.scatter_sub(tf.IndexedSlices(step, indices))]
    for slot, decay, rows in ((m, beta1, new_m), (v, beta2, new_v)):
      with tf.control_dependencies([rows]):
        decayed = slot.assign(decay * slot)
      with tf.control_dependencies([decayed]):
        updates.append(slot.scatter_update(tf.IndexedSlices(rows, indices)))
    return tf.group(*updates)


class AdaMaxOptimizer(_KernelOfAdam):
  """AdaMax: Adam whose second moment is a decaying maximum.

  With gradient g, step t, and first 0 in both slots:

    m = beta1 * m + (1 - beta1) * g
    v = max(beta2 * v, |g|)
    w -= learning_rate / (1 - beta1 ** t) * m / (v + epsilon)

  Rows without gradients, and their slots, stay as they are.
  """

  _dense = tf.raw_ops.ApplyAdaMax
  _resource_dense = tf.raw_ops.ResourceApplyAdaMax

  def __init__(
    self,
    learning_rate: Any = 0.001,
    beta1: Any = 0.9,
    beta2: Any = 0.999,
    epsilon: Any = 1e-8,
    use_locking: bool = False,
    name: str = "AdaMax",
  ):
    super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

  def _create_slots(self, var_list: Any) -> None:
    first = min(var_list, key=lambda var: var.name)  # On all workers.
    self._create_non_slot_variable(self._beta1, "beta1_power", first)
    for var in var_list:
      self._zeros_slot(var, "m", self.get_name())
      self._zeros_slot(var, "v", self.get_name())

  def _get_beta_accumulators(self) -> Any:
    """Returns the power of beta1, the only one that AdaMax has."""
    return super()._get_beta_accumulators()[0]

  def _list_powers(self, dtype: Any) -> dict[str, Any]:
    return {"beta1_power": tf.cast(self._get_beta_accumulators(), dtype)}

  def _apply_to_rows(self, grad: Any, var: Any, indices: Any) -> Any:
    rate, beta1, beta2, epsilon = self._cast_settings(var.dtype)
    rate /= 1 - tf.cast(self._get_beta_accumulators(), rate.dtype)
    m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
    new_m = beta1 * tf.gather(m, indices) + (1 - beta1) * grad
    new_v = tf.maximum(beta2 * tf.gather(v, indices), tf.abs(grad))
    step = rate * new_m / (new_v + epsilon)
    return tf.group(
      m.scatter_update(tf.IndexedSlices(new_m, indices)),
      v.scatter_update(tf.IndexedSlices(new_v, indices)),
      var.scatter_sub(tf.IndexedSlices(step, indices)),
    )

  def _finish(self, update_ops: Any, name_scope: Any) -> Any:
    with tf.control_dependencies(update_ops):
      power = self._get_beta_accumulators()
      update = power.assign(power * self._beta1_t, self._use_locking)
    return tf.group(*update_ops, update, name=name_scope)


class LARSOptimizer(tf.train.Optimizer):
  """Momentum with a rate for each layer, by the norms of weight and gradient.

  The rate of a layer is

    learning_rate * eeta * |w| / (|g| + weight_decay * |w| + epsilon)

  or `learning_rate` if a norm is 0. A variable whose name has an entry of
  `skip_list` in it has `learning_rate` and no weight decay. So has a variable
  with a sparse gradient.
  """

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

  def _create_slots(self, var_list: Any) -> None:
    for var in var_list:
      self._zeros_slot(var, "momentum", self.get_name())

  def _apply_dense(self, grad: Any, var: Any) -> Any:
    return self._resource_apply_dense(grad, var)

  def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
    rate, grad = self.compute_lr(grad, var)
    step = grad * rate
    momentum = tf.cast(self._momentum_tensor, var.dtype.base_dtype)
    slot = self.get_slot(var, "momentum")
    total = slot.assign(momentum * slot + step)
    if self._nesterov:
      total = step + momentum * total
    return var.assign_sub(total).op

  def _apply_sparse(self, grad: Any, var: Any) -> Any:
    return self._resource_apply_sparse(grad.values, var, grad.indices)

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
