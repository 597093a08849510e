# SPDX-License-Identifier: Apache-2.0
"""Defines the optimizer of Keras 2 that scales the loss."""

from __future__ import annotations

from collections.abc import Sequence
import inspect
import math
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import horovod
from tf_compat_lossscale._core import pair_checks
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _kinds
from tf_compat_lossscale.keras import _skipped_steps
from tf_compat_lossscale.keras import scales

_READ = "_is_loss_scale_read"  # Whether the program has read the loss scale.


class LossScaleOptimizer(_kinds.OfAKind):
  """Wraps a Keras 2 optimizer, and scales the loss for it.

  This class is a `tf.keras.mixed_precision.LossScaleOptimizer` of Keras 2. Only
  the constructor differs: Keras's class takes no loss scale.

  ```
  opt = LossScaleOptimizer(tf.keras.optimizers.legacy.Adam(), "dynamic")
  with tf.GradientTape() as tape:
    loss = opt.get_scaled_loss(compute_loss())
  grads = opt.get_unscaled_gradients(tape.gradient(loss, variables))
  opt.apply_gradients(zip(grads, variables))
  ```

  `minimize` and `Model.fit` scale and unscale by themselves. Checkpoints are
  the same as those of Keras since TensorFlow 2.3. Checkpoints of TensorFlow
  1.15 to 2.2 restore, too.
  """

  def __init__(self, optimizer: Any, loss_scale: scales.Identifier) -> None:
    """Wraps an optimizer.

    Args:
      optimizer: A legacy optimizer of Keras 2, or a newer one.
      loss_scale: 'dynamic', a number for a fixed scale, a FixedLossScale, a
        DynamicLossScale whose multiplier is 2, or the config of one of these.

    Raises:
      TypeError: `optimizer` is no optimizer of Keras 2, or `loss_scale` is a
        LossScale of another class.
      ValueError: `loss_scale` is no loss scale, or its multiplier is not 2, or
        `optimizer` is Horovod's with `backward_passes_per_step` above 1.
    """
    horovod.check_passes(optimizer)
    super().__init__(optimizer, **_find_arguments(loss_scale))
    self._follow_checkpoints()

  @classmethod
  def stop_counting_skips(cls, optimizer: Any) -> list[tuple[Any, int]]:
    """Makes a loss-scale optimizer count steps as TensorFlow 1.14 to 2.2 did.

    Args:
      optimizer: A loss-scale optimizer of the legacy kind with a dynamic loss
        scale. If its class is Keras's own, its class becomes this one.

    Returns:
      Pairs of a variable and the value to assign to it.
    """
    if not isinstance(optimizer, LossScaleOptimizer):
      kind = cls.of_kind(optimizer.inner_optimizer)
      object.__setattr__(optimizer, "__class__", kind)
      optimizer._follow_checkpoints()
    steps: _skipped_steps.SkippedSteps = optimizer._skipped_steps
    return steps.stop_counting()

  def follow_skips(
    self, nodes: Any, children: dict[str, int]
  ) -> list[tuple[Any, int]]:
    """Makes this optimizer count skipped steps as a checkpoint's did.

    Args:
      nodes: The messages that describe the objects in the checkpoint.
      children: The children of the optimizer there: name -> number of node.

    Returns:
      Pairs of a variable and the value to assign to it.
    """
    if self._skipped_steps is None or "loss_scale" not in children:
      return []
    steps: _skipped_steps.SkippedSteps = self._skipped_steps
    return steps.follow(nodes, children)

  def _follow_checkpoints(self) -> None:
    """Makes the objects that checkpoints of old releases are restored into."""
    self._skipped_steps = None
    optimizer = self.inner_optimizer
    if isinstance(optimizer, _keras2.LegacyOptimizer):
      old_path = _skipped_steps.RestoredAsBaseOptimizer(optimizer)
      self._track_trackable(old_path, _skipped_steps.BASE, overwrite=True)
      if self.dynamic:
        self._skipped_steps = _skipped_steps.SkippedSteps(self)

  @property
  def loss_scale(self) -> Any:
    """The loss scale, a float32 scalar tensor."""
    self.__dict__[_READ] = True
    return super().loss_scale

  @property
  def last_step_applied(self) -> tf.Tensor:
    """Whether the step was applied, a bool scalar; False if it was skipped.

    In a graph, also in that of a `tf.function`, the tensor belongs to the last
    call of `apply_gradients` there. Eagerly, it is the value of the last eager
    step. `Model.fit` takes its steps in a `tf.function`: a `train_step` may
    return the tensor among its logs.

    Raises:
      RuntimeError: There was no step yet in this graph, or eagerly.
    """
    return loss_scale_optimizer.read_last_applied(self)

  def apply_gradients(
    self, grads_and_vars: Any, *args: Any, **kwargs: Any
  ) -> Any:
    """Applies unscaled gradients, if all of them are finite.

    A skipped step is counted in `iterations`, unless training goes on from a
    checkpoint of TensorFlow 1.14 to 2.2. Those releases did not count skipped
    steps, and Adam's bias correction goes by `iterations`. New checkpoints keep
    the rule that the state began with.

    Args:
      grads_and_vars: (gradient, variable) pairs.
      *args: The other arguments of the method of Keras's own class.
      **kwargs: Its keyword arguments.

    Returns:
      The result of that method.
    """
    pairs = list(grads_and_vars)
    if tf.distribute.in_cross_replica_context():
      return super().apply_gradients(pairs, *args, **kwargs)  # Which raises.
    pairs = list(pair_checks.fill(pairs))
    # Each call has a copy of its own: other threads may call this, too.
    copy = object.__new__(type(self))
    attributes: dict[str, Any] = copy.__dict__
    attributes.update(vars(self))
    if not _keras2.has_scaled(self):
      # Keras warns now, and would at each step, also if `loss_scale` was read.
      if _READ in vars(self) or not self.dynamic or pair_checks.are_zero(pairs):
        attributes.update(_keras2.CALLED)
      self.__dict__[_READ] = True
    if self.dynamic:
      attributes["_loss_scale"] = _keras2.ObservedState(
        self._loss_scale, self._update_state
      )
    if self._skipped_steps is not None:
      counting = _skipped_steps.Counting(self._optimizer, self._skipped_steps)
      attributes["_optimizer"] = counting
    method = super(LossScaleOptimizer, copy).apply_gradients
    result = method(pairs, *args, **kwargs)
    if not self.dynamic:
      # The step is always applied, and Keras does not ask.
      loss_scale_optimizer.keep_step_of_replica(self, None, (), None)
    return result

  def _update_state(self, state: Any, grads: Any) -> tuple[Any, Any]:
    """Updates a dynamic loss scale of Keras, and takes note of the answer.

    Keras decides within `apply_gradients`, where this answer says whether the
    gradients should be applied.
    """
    op, applied = state.update(self._agree(list(grads)))
    step = loss_scale_optimizer.Step(applied, op, (), None)
    loss_scale_optimizer.keep_step(self, step)
    return op, applied

  def _agree(self, grads: Sequence[Any]) -> Sequence[Any]:
    """Returns gradients that are finite if those of all workers are."""
    agreement = vars(self).get(graph_weights.AGREEMENT)
    if agreement is None:
      return grads
    finite = agreement(gradients.all_replicas_finite(grads))
    return [tf.where(finite, 0.0, math.nan)]

  def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
    if self._skipped_steps is not None and name == "loss_scale":
      return None  # TensorFlow then asks `_deferred_dependencies`.
    return super()._lookup_dependency(name, *args, **kwargs)

  @property
  def _deferred_dependencies(self) -> Any:
    others = super()._deferred_dependencies
    if self._skipped_steps is None:
      return others
    return _skipped_steps.Deferred(self._skipped_steps, others)

  def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
    children = super()._trackable_children(*args, **kwargs)
    if self._skipped_steps is not None:
      children = {**children, **self._skipped_steps.list_children()}
    return children

  @classmethod
  def from_config(
    cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
  ) -> LossScaleOptimizer:
    """Makes an optimizer from a config of any release.

    Args:
      config: `{'optimizer', 'loss_scale'}`, of TensorFlow 2.0 to 2.3, or
        `{'inner_optimizer', 'dynamic', 'initial_scale',
        'dynamic_growth_steps'}`, of later ones.
      custom_objects: More classes for Keras to find: name -> class.

    Returns:
      The optimizer. It wraps a legacy optimizer, unless the config is of a
      newer optimizer.

    Raises:
      TypeError: A subclass does not take the entries of the config.
      ValueError: `config` has other entries.
    """
    config = dict(config)
    if {"optimizer", "loss_scale"} <= set(config):
      inner = config.pop("optimizer")
      loss_scale = _deserialize(config.pop("loss_scale"))
    elif {"inner_optimizer", "dynamic", "initial_scale"} <= set(config):
      inner = config.pop("inner_optimizer")
      loss_scale = config.pop("initial_scale")
      steps = config.pop("dynamic_growth_steps", None)
      if config.pop("dynamic"):
        # Keras wrote None for its default.
        loss_scale = {
          "class_name": "DynamicLossScale",
          "config": {
            "initial_loss_scale": loss_scale,
            "increment_period": 2000 if steps is None else steps,
            "multiplier": 2.0,
          },
        }
    else:
      raise ValueError(
        "A LossScaleOptimizer's config has 'optimizer' and 'loss_scale', or "
        "'inner_optimizer', 'dynamic' and 'initial_scale', but got "
        f"{config!r}. A subclass whose get_config() returns something else "
        "must have a from_config() of its own."
      )
    inner = _keras2.make_optimizer(inner, custom_objects)
    return _make(cls, inner, loss_scale, config)


def _make(
  cls: type[LossScaleOptimizer],
  optimizer: Any,
  loss_scale: Any,
  others: dict[str, Any],
) -> LossScaleOptimizer:
  """Makes an optimizer of a class whose `__init__` may have other parameters.

  Args:
    cls: LossScaleOptimizer or a subclass.
    optimizer: The optimizer to wrap.
    loss_scale: Its loss scale.
    others: The other entries of the config, which a subclass may have added.

  Returns:
    The optimizer.

  Raises:
    TypeError: `cls` does not take these arguments.
  """
  signature = inspect.signature(cls.__init__)
  try:
    signature.bind(None, optimizer=optimizer, loss_scale=loss_scale, **others)
  except TypeError:
    pass  # The parameters may have other names.
  else:
    return cls(optimizer=optimizer, loss_scale=loss_scale, **others)
  try:
    signature.bind(None, optimizer, loss_scale, **others)
  except TypeError:
    made = None
  else:
    made = cls(optimizer, loss_scale, **others)
  if made is None or made.inner_optimizer is not optimizer:
    also = f", and {', '.join(map(repr, others))}" if others else ""
    raise TypeError(
      f"{cls.__qualname__}.__init__{signature} does not take the entries "
      f"of its config: 'optimizer' and 'loss_scale'{also}. Give "
      f"{cls.__qualname__} a get_config() and a from_config() of its own."
    )
  return made


def _deserialize(loss_scale: Any) -> Any:
  """Makes the loss scale of a config of TensorFlow 2.0 to 2.3.

  The error messages begin as those of TensorFlow 2.4 to 2.8 did.

  Raises:
    ValueError: `loss_scale` is no FixedLossScale or DynamicLossScale, or its
      multiplier is not 2.
  """
  names = ("FixedLossScale", "DynamicLossScale")
  if isinstance(loss_scale, dict) and (
    loss_scale.get("class_name", names[0]) not in names
  ):
    raise ValueError(
      "Serialized LossScaleOptimizers with a LossScale that is neither a "
      "FixedLossScale nor a DynamicLossScale can no longer be deserialized: "
      f"got {loss_scale!r}."
    )
  scale = scales.find_loss_scale(loss_scale)
  if getattr(scale, "multiplier", 2) != 2:
    raise ValueError(
      "Cannot deserialize LossScaleOptimizer with a DynamicLossScale whose "
      f"multiplier is not 2. Got DynamicLossScale: {scale!r}. The loss scale "
      "of Keras doubles and halves."
    )
  return scale


def _find_arguments(loss_scale: Any) -> dict[str, Any]:
  """Returns a loss scale as the arguments of Keras's own class."""
  numbers = scales.find_numbers(loss_scale)
  arguments: dict[str, Any] = {
    "dynamic": numbers.dynamic,
    "initial_scale": numbers.initial_scale,
  }
  if numbers.dynamic:
    arguments["dynamic_growth_steps"] = numbers.growth_steps
  return arguments


graph_rewrite.register_loss_scale_wrapper(
  _keras2.LegacyOptimizer, LossScaleOptimizer, _keras2.BaseLossScaleOptimizer
)
graph_rewrite.register_loss_scale_wrapper(
  _keras2.Optimizer, LossScaleOptimizer, _keras2.BaseLossScaleOptimizer
)
