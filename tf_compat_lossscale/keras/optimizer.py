"""The optimizer of Keras 2 that scales the loss."""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale import legacy_names
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _skipped_steps

_Base = _keras2.BaseLossScaleOptimizer
_TENSORFLOWS = legacy_names.LOSS_SCALE_MODULE


class _ByKind(type(_Base)):  # type: ignore[misc]
  """Makes, of a class for all optimizers, the one for an optimizer's kind."""

  def __call__(
    cls, optimizer: Any, loss_scale: Any, *args: Any, **kwargs: Any
  ) -> Any:
    return type.__call__(
      cls._for(optimizer), optimizer, loss_scale, *args, **kwargs
    )

  def _for(cls, optimizer: Any) -> type:
    if isinstance(optimizer, _Base):
      raise TypeError(
        "LossScaleOptimizer cannot wrap another LossScaleOptimizer, but got "
        f"{optimizer!r}."
      )
    kinds = {
      _keras2.LegacyOptimizer: _keras2.LossScaleOptimizerOfLegacy,
      _keras2.Optimizer: _keras2.LossScaleOptimizerOfNew,
    }
    for kind, concrete in kinds.items():
      if isinstance(optimizer, kind):
        if issubclass(cls, concrete):
          return cls
        key = f"_{concrete.__name__}"
        if key not in cls.__dict__:
          # Files name the class. They get Keras's name for it, and so load
          # without this package.
          named = concrete if cls is LossScaleOptimizer else cls
          names = {"__module__": named.__module__, "__doc__": cls.__doc__}
          kind_of_it = type(cls)(named.__name__, (cls, concrete), names)
          setattr(cls, key, kind_of_it)
        return cls.__dict__[key]
    raise TypeError(
      "optimizer must be an optimizer of Keras 2 "
      f"({_keras2.keras.__name__}), but got {optimizer!r} of type "
      f"{type(optimizer).__module__}.{type(optimizer).__qualname__}. Where "
      "tf.keras is Keras 3, call tf_compat_lossscale.use_keras_2() before "
      "TensorFlow is imported, or use keras.optimizers.LossScaleOptimizer."
    )


class LossScaleOptimizer(_Base, metaclass=_ByKind):  # type: ignore[misc, valid-type]
  """Wraps a Keras 2 optimizer, and scales the loss for it.

  It is a `tf.keras.mixed_precision.LossScaleOptimizer` of Keras 2 in all, and
  differs in what it is made of: that class does not take a loss scale.

  ```
  opt = LossScaleOptimizer(tf.keras.optimizers.legacy.Adam(), "dynamic")
  with tf.GradientTape() as tape:
    loss = opt.get_scaled_loss(compute_loss())
  grads = opt.get_unscaled_gradients(tape.gradient(loss, variables))
  opt.apply_gradients(zip(grads, variables))
  ```

  `minimize` and `Model.fit` scale and unscale by themselves. Checkpoints are
  those of Keras since TensorFlow 2.3; those of 1.15 to 2.2 restore, too.
  """

  def __init__(self, optimizer: Any, loss_scale: Any) -> None:
    """Wraps an optimizer.

    Args:
      optimizer: A legacy optimizer of Keras 2, or a newer one.
      loss_scale: 'dynamic', a number for a fixed scale, a FixedLossScale, a
        DynamicLossScale whose multiplier is 2, or the config of one of these.

    Raises:
      TypeError: `optimizer` is none, or `loss_scale` is a LossScale of another
        class.
      ValueError: `loss_scale` is none, or its multiplier is not 2.
    """
    super().__init__(optimizer, **_arguments(loss_scale))
    self._skipped_steps = None
    if isinstance(optimizer, _keras2.LegacyOptimizer):
      old_path = _skipped_steps.RestoredAsBaseOptimizer(optimizer)
      self._track_trackable(old_path, "base_optimizer", overwrite=True)
      if self.dynamic:
        self._skipped_steps = _skipped_steps.SkippedSteps(self)

  def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
    """Applies unscaled gradients, if all of them are finite.

    A skipped step is counted in `iterations`. It is not where training goes on
    from a checkpoint of TensorFlow 1.14 to 2.2, which did not count it: Adam's
    bias correction goes by that number. Checkpoints keep that rule with the
    state that it belongs to.

    Args:
      *args: What the method of Keras's own class takes.
      **kwargs: Likewise.

    Returns:
      What that returns.
    """
    if self._skipped_steps is None:
      return super().apply_gradients(*args, **kwargs)
    # A copy for this call alone: other threads may be in here as well.
    copy = object.__new__(type(self))
    counting = _skipped_steps.Counting(self._optimizer, self._skipped_steps)
    copy.__dict__.update(self.__dict__, _optimizer=counting)
    return super(LossScaleOptimizer, copy).apply_gradients(*args, **kwargs)

  def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
    if self._skipped_steps is not None and name == "loss_scale":
      return None  # So that `_deferred_dependencies` is asked.
    return super()._lookup_dependency(name, *args, **kwargs)

  @property
  def _deferred_dependencies(self) -> Any:
    others = super()._deferred_dependencies
    if self._skipped_steps is None:
      return others
    return _skipped_steps.Deferred(self._skipped_steps, others)

  def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
    children = super()._trackable_children(*args, **kwargs)
    if self._skipped_steps is None:
      return children
    return {**children, **self._skipped_steps.children()}

  @classmethod
  def from_config(
    cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
  ) -> LossScaleOptimizer:
    """Makes an optimizer of what some release's `get_config` returned.

    Args:
      config: `{'optimizer', 'loss_scale'}`, of TensorFlow 2.0 to 2.3, or
        `{'inner_optimizer', 'dynamic', 'initial_scale',
        'dynamic_growth_steps'}`, of later ones.
      custom_objects: Classes by name, beside those that Keras knows.

    Returns:
      The optimizer. What was no newer optimizer of Keras 2.11 is a legacy one.

    Raises:
      ValueError: It is no such config.
    """
    config = dict(config)
    if "loss_scale" in config and "optimizer" in config:
      inner, loss_scale = config["optimizer"], config["loss_scale"]
    elif {"inner_optimizer", "dynamic", "initial_scale"} <= set(config):
      inner = config["inner_optimizer"]
      loss_scale = config["initial_scale"]
      if config["dynamic"]:
        loss_scale = {
          "class_name": "DynamicLossScale",
          "config": {
            "initial_loss_scale": loss_scale,
            "increment_period": config["dynamic_growth_steps"],
            "multiplier": 2.0,
          },
        }
    else:
      raise ValueError(
        "A LossScaleOptimizer's config has 'optimizer' and 'loss_scale', or "
        "'inner_optimizer', 'dynamic' and 'initial_scale', but got "
        f"{config!r}."
      )
    return cls(_keras2.optimizer_of_config(inner, custom_objects), loss_scale)


def find_loss_scale(value: Any) -> loss_scale_lib.LossScale | None:
  """`loss_scale.get`, for TensorFlow's own loss scales, too."""
  if any(base.__module__ == _TENSORFLOWS for base in type(value).__mro__):
    cls = getattr(loss_scale_lib, type(value).__name__, None)
    if cls is None or type(value).__module__ != _TENSORFLOWS:
      raise _unusable(value)
    return cls.from_config(value.get_config())
  return loss_scale_lib.get(value)


def _unusable(loss_scale: Any) -> TypeError:
  return TypeError(
    "A LossScale that is neither a FixedLossScale nor a DynamicLossScale "
    f"cannot be used with Keras, but got {loss_scale!r}."
  )


def _arguments(loss_scale: Any) -> dict[str, Any]:
  """Returns what Keras's own class takes in place of a loss scale."""
  is_ours = isinstance(loss_scale, (str, dict))
  # A loss scale that is made here alone leaves no variables in the program.
  with tf.Graph().as_default() if is_ours else contextlib.nullcontext():
    scale = find_loss_scale(loss_scale)
  if scale is None:
    raise ValueError(
      "loss_scale must be 'dynamic', a number, a FixedLossScale or a "
      "DynamicLossScale, but got None: use the optimizer as it is."
    )
  if isinstance(scale, loss_scale_lib.FixedLossScale):
    value = scale.get_config()["loss_scale_value"]
    return {"dynamic": False, "initial_scale": value}
  if not isinstance(scale, loss_scale_lib.DynamicLossScale):
    raise _unusable(scale)
  if scale.multiplier != 2:
    raise ValueError(
      "DynamicLossScale.multiplier must be 2 to be used with Keras, but got "
      f"{scale!r}."
    )
  return {
    "dynamic": True,
    "initial_scale": scale.initial_loss_scale,
    "dynamic_growth_steps": scale.increment_period,
  }


graph_rewrite.register_loss_scale_wrapper(
  _keras2.LegacyOptimizer, LossScaleOptimizer, _Base
)
graph_rewrite.register_loss_scale_wrapper(
  _keras2.Optimizer, LossScaleOptimizer, _Base
)
