"""`tf.contrib.mixed_precision`, as TensorFlow 1.12 to 1.15 had it.

Newer code has `DynamicLossScale` for `ExponentialUpdateLossScaleManager`,
`FixedLossScale` for `FixedLossScaleManager`, and
`MixedPrecisionLossScaleOptimizer` for this module's `LossScaleOptimizer`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale._core import arguments as _arguments
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core.tf import control_flow

__all__ = [
  "ExponentialUpdateLossScaleManager",
  "FixedLossScaleManager",
  "LossScaleManager",
  "LossScaleOptimizer",
]


class LossScaleManager(graph_weights.GraphWeights, metaclass=abc.ABCMeta):
  """What a loss is multiplied by, and how that number changes.

  A subclass of one's own defines the two methods. Its state goes into
  `_add_weight` and is read by `_get_weight`.
  """

  @abc.abstractmethod
  def get_loss_scale(self) -> tf.Tensor | tf.Variable:
    """Returns the current loss scale, a float32 scalar."""

  @abc.abstractmethod
  def update_loss_scale(self, finite_grads: bool | tf.Tensor) -> Any:
    """Lets the loss scale react to the gradients of a step.

    Args:
      finite_grads: Whether all of them were finite, a bool scalar.

    Returns:
      An op that does it; None when eager, where it has happened.
    """


class FixedLossScaleManager(LossScaleManager):
  """A loss scale that stays what it is. `FixedLossScale` replaced it."""

  def __init__(self, loss_scale: float) -> None:
    """Makes a manager of a fixed loss scale.

    Args:
      loss_scale: A finite number of at least 1.

    Raises:
      ValueError: It is not.
    """
    self._value = _arguments.scale("loss_scale", loss_scale)

  def get_loss_scale(self) -> tf.Tensor:
    """Returns the loss scale, a float32 scalar."""
    return tf.constant(self._value, tf.float32)

  def update_loss_scale(self, finite_grads: bool | tf.Tensor) -> Any:
    """Changes nothing."""
    del finite_grads
    return tf.no_op()

  def to_loss_scale(self) -> loss_scale_lib.FixedLossScale:
    """Returns the loss scale that replaced this manager.

    A `MixedPrecisionLossScaleOptimizer` with it does not look at gradients: it
    applies those that are not finite, too.
    """
    return loss_scale_lib.FixedLossScale(self._value)


class ExponentialUpdateLossScaleManager(LossScaleManager):
  """A loss scale that grows and shrinks by what it meets.

  The whole rule, by TensorFlow 1.15:

  ```
  if all gradients are finite:
    good_steps += 1
    if good_steps >= incr_every_n_steps:
      loss_scale = loss_scale * incr_ratio, unless that is not finite
      good_steps = bad_steps = 0
  else:
    bad_steps += 1
    good_steps = 0
    if bad_steps >= decr_every_n_nan_or_inf:
      loss_scale = max(1, loss_scale * decr_ratio)
      bad_steps = 0
  ```

  Finite steps must follow one another to make the scale grow; those that are
  not finite add up, with finite ones in between, until the scale changes.
  """

  def __init__(
    self,
    init_loss_scale: float,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2,
    decr_ratio: float = 0.8,
  ) -> None:
    """Makes a manager, and its variables in the current graph.

    Args:
      init_loss_scale: What it starts from, a finite number of at least 1.
      incr_every_n_steps: After how many consecutive finite steps it grows.
      decr_every_n_nan_or_inf: After how many steps that are not it shrinks.
      incr_ratio: By what it is multiplied to grow; above 1.
      decr_ratio: By what it is multiplied to shrink; between 0 and 1.

    Raises:
      ValueError: A number is not as it should be.
    """
    self._init_loss_scale = _arguments.scale("init_loss_scale", init_loss_scale)
    self._incr_every_n_steps = _arguments.steps(
      "incr_every_n_steps", incr_every_n_steps
    )
    self._decr_every_n_nan_or_inf = _arguments.steps(
      "decr_every_n_nan_or_inf", decr_every_n_nan_or_inf
    )
    self._incr_ratio = _arguments.multiplier("incr_ratio", incr_ratio)
    self._decr_ratio = _arguments.shrinking("decr_ratio", decr_ratio)
    self._add_weight("loss_scale", self._init_loss_scale, tf.float32)
    self._add_weight("good_steps", 0, tf.int32)
    self._add_weight("bad_steps", 0, tf.int32)

  @property
  def _loss_scale(self) -> tf.Variable:
    return self._get_weight("loss_scale")

  @property
  def _num_good_steps(self) -> tf.Variable:
    return self._get_weight("good_steps")

  @property
  def _num_bad_steps(self) -> tf.Variable:
    return self._get_weight("bad_steps")

  def get_loss_scale(self) -> tf.Variable:
    """Returns the current graph's loss scale, a float32 scalar."""
    return self._loss_scale

  def update_loss_scale(self, finite_grads: bool | tf.Tensor) -> Any:
    """Applies the rule above.

    Args:
      finite_grads: Whether all gradients were finite, a bool scalar.

    Returns:
      An op that does it; None when eager, where it has happened.
    """
    # In TensorFlow 1 this was a cond; what comes after it in the graph is named
    # accordingly, and checkpoints go by names.
    with self._exclusively(), tf.name_scope("cond"):
      finite = tf.convert_to_tensor(finite_grads)
      update = loss_scale_lib.count_step(
        finite,
        self._num_good_steps,
        self._incr_every_n_steps,
        self._loss_scale,
        lambda scale: self._end_run(finite, scale),
      )
      return None if tf.executing_eagerly() else tf.group(update)

  def _end_run(self, finite: tf.Tensor, scale: tf.Tensor) -> Any:
    """Changes the scale, or counts one more bad step."""
    bad_steps = tf.convert_to_tensor(self._num_bad_steps) + 1
    return control_flow.cond(
      tf.logical_or(finite, bad_steps >= self._decr_every_n_nan_or_inf),
      lambda: self._change(finite, scale),
      self._count_bad,
    )

  def _count_bad(self) -> tf.Operation | None:
    """Counts a bad step, and good ones anew."""
    return tf.group(
      self._num_good_steps.assign(0),
      self._num_bad_steps.assign_add(1, read_value=False),
    )

  def _change(self, finite: tf.Tensor, scale: tf.Tensor) -> tf.Operation | None:
    """Begins to count all steps anew, then makes the scale grow or shrink."""
    new_scale = loss_scale_lib.choose(
      finite,
      lambda: loss_scale_lib.grown(scale, self._incr_ratio),
      lambda: tf.maximum(scale * self._decr_ratio, 1.0),
    )
    counts = (self._num_good_steps, self._num_bad_steps)
    with tf.control_dependencies([tf.group([x.assign(0) for x in counts])]):
      return tf.group(self._loss_scale.assign(new_scale))

  def to_loss_scale(self) -> loss_scale_lib.DynamicLossScale:
    """Returns the loss scale that replaced this manager, if it means the same.

    It starts anew: at `init_loss_scale`, with no step counted.

    Raises:
      ValueError: `DynamicLossScale` cannot do what this one does: it shrinks
        at every step that is not finite, by the ratio that it grows by.
    """
    same_ratio = self._decr_ratio == 1 / self._incr_ratio
    if self._decr_every_n_nan_or_inf != 1 or not same_ratio:
      raise ValueError(
        "DynamicLossScale shrinks at every step that is not finite, by the "
        "ratio that it grows by: to_loss_scale() needs "
        "decr_every_n_nan_or_inf=1 and decr_ratio=1/incr_ratio, but has "
        f"decr_every_n_nan_or_inf={self._decr_every_n_nan_or_inf}, "
        f"incr_ratio={self._incr_ratio} and decr_ratio={self._decr_ratio}. "
        "Make a DynamicLossScale of your choice instead."
      )
    return loss_scale_lib.DynamicLossScale(
      self._init_loss_scale, self._incr_every_n_steps, self._incr_ratio
    )


class _Managed(loss_scale_lib.LossScale):
  """A manager, as the optimizer of the core sees it."""

  def __init__(self, manager: Any) -> None:
    super().__init__()
    self.manager = manager

  @property
  def _weights(self) -> dict[str, tf.Variable]:
    return getattr(self.manager, "_weights", {})

  def __call__(self) -> tf.Tensor:
    return self.manager.get_loss_scale()

  def update(self, grads: Any) -> tuple[Any, tf.Tensor]:
    finite = gradients.all_replicas_finite(grads)
    return self.manager.update_loss_scale(finite), finite

  def get_config(self) -> dict[str, Any]:
    raise NotImplementedError("Managers of loss scales have no config.")


class LossScaleOptimizer(loss_scale_optimizer.MixedPrecisionLossScaleOptimizer):
  """Wraps an optimizer and applies a manager's loss scale to it.

  A step whose gradients are not all finite is left out, whatever the manager.
  In object-based checkpoints the wrapped optimizer is `base_optimizer` and the
  manager `loss_scale`.
  """

  def __init__(
    self, opt: tf.compat.v1.train.Optimizer, loss_scale_manager: Any
  ) -> None:
    """Wraps an optimizer.

    Args:
      opt: The optimizer that applies the gradients.
      loss_scale_manager: A LossScaleManager, or what has its two methods.

    Raises:
      ValueError: One of them is not.
    """
    for method in ("get_loss_scale", "update_loss_scale"):
      if not callable(getattr(loss_scale_manager, method, None)):
        raise ValueError(
          "loss_scale_manager must be a LossScaleManager, but got "
          f"{loss_scale_manager!r}, which has no method {method}()."
        )
    super().__init__(opt, _Managed(loss_scale_manager))
    if isinstance(loss_scale_manager, graph_weights.GraphWeights):
      self._track_trackable(loss_scale_manager, "loss_scale", overwrite=True)

  @property
  def _opt(self) -> tf.compat.v1.train.Optimizer:
    return self._optimizer

  @property
  def _loss_scale_manager(self) -> Any:
    return self._loss_scale.manager

  def _update_and_apply(
    self, grads: list[Any], apply_if: Callable[[bool | tf.Tensor], Any]
  ) -> tuple[Any, ...]:
    """Applies gradients if they are finite, then updates the loss scale.

    In that order, unlike the core, since variables that the wrapped optimizer
    makes are named by the cond that they are made in: here the first, `cond`.
    """
    finite = gradients.all_replicas_finite(grads)
    applied = apply_if(finite)
    return applied, self._loss_scale_manager.update_loss_scale(finite)

  def __repr__(self) -> str:
    return f"LossScaleOptimizer({self._opt!r}, {self._loss_scale_manager!r})"
