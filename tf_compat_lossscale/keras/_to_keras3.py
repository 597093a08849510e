"""Takes a loss scale and its counter from Keras 2 on to Keras 3."""

from __future__ import annotations

from collections.abc import Mapping
import importlib
import inspect
from typing import Any
from typing import NamedTuple

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale.keras import _keras2


class State(NamedTuple):
  """A dynamic loss scale's state, in plain numbers.

  Attributes:
    loss_scale: The current scale.
    counter: How many finite steps it has had since it changed.
    growth_steps: How many of these make it grow.
  """

  loss_scale: float
  counter: int
  growth_steps: int


def to_keras3(optimizer_or_state: Any, optimizer: Any = None) -> Any:
  """Takes a loss scale on to Keras 3, with its counter.

  Args:
    optimizer_or_state: A dynamic LossScaleOptimizer, of this module or of Keras
      2; a DynamicLossScale, or an optimizer that has one; or a dict of
      'loss_scale', 'good_steps' and, if not 2000, 'growth_steps', as they are
      read off a checkpoint.
    optimizer: The Keras 3 optimizer to wrap; by default one like that which is
      wrapped in the first, without its slots.

  Returns:
    A `keras.optimizers.LossScaleOptimizer` of Keras 3.

  Raises:
    ImportError: Keras 3 is not installed.
    TypeError: The first argument is none of these.
    ValueError: The loss scale is fixed: set `loss_scale_factor` of a Keras 3
      optimizer to it, which does the same. Or there is no optimizer to wrap.
  """
  given = optimizer_or_state
  inner = getattr(given, "inner_optimizer", None)
  if isinstance(given, _keras2.BaseLossScaleOptimizer):
    if not given.dynamic:
      raise ValueError(_fixed(given.initial_scale))
    state = State(
      float(given.loss_scale),
      int(given.dynamic_counter),
      int(given.dynamic_growth_steps),
    )
  elif isinstance(given, dict) and {"loss_scale", "good_steps"} <= set(given):
    state = State(
      float(given["loss_scale"]),
      int(given["good_steps"]),
      int(given.get("growth_steps", 2000)),
    )
  else:
    scale = getattr(given, "_loss_scale", given)
    if isinstance(scale, loss_scale_lib.FixedLossScale):
      raise ValueError(_fixed(scale.get_config()["loss_scale_value"]))
    if not isinstance(scale, loss_scale_lib.DynamicLossScale):
      raise TypeError(
        "to_keras3() takes a LossScaleOptimizer, a DynamicLossScale or a dict "
        f"of 'loss_scale' and 'good_steps', but got {given!r}."
      )
    if scale.multiplier != 2:
      raise ValueError(
        f"Keras 3's loss scale doubles and halves, but got {scale!r}."
      )
    state = State(
      float(scale()), int(scale._num_good_steps), scale.increment_period
    )
  if optimizer is None:
    if inner is None:
      raise ValueError(
        "Name the Keras 3 optimizer to wrap: to_keras3(…, optimizer=…)."
      )
    optimizer = _optimizer_like(inner)
  return _going_on(state, optimizer)


def _fixed(scale: float) -> str:
  return (
    "Keras 3 has no LossScaleOptimizer with a fixed loss scale: give its "
    f"optimizer loss_scale_factor={scale} instead, which does the same."
  )


def _going_on(state: State, optimizer: Any) -> Any:
  """A Keras 3 LossScaleOptimizer that goes on from a state.

  Args:
    state: Where it goes on from.
    optimizer: The Keras 3 optimizer to wrap.

  Returns:
    The optimizer. Its counter is set when it is built.

  Raises:
    ImportError: Keras 3 is not installed.
    TypeError: `optimizer` is none of Keras 3.
  """
  keras = _keras3()
  if not isinstance(optimizer, keras.optimizers.Optimizer):
    raise TypeError(
      "optimizer must be an optimizer of Keras 3 (keras.optimizers.…), but got "
      f"{optimizer!r}."
    )
  wrapped = keras.optimizers.LossScaleOptimizer(
    optimizer,
    initial_scale=state.loss_scale,
    dynamic_growth_steps=state.growth_steps,
  )
  build = wrapped.build

  def build_and_count(*args: Any, **kwargs: Any) -> None:
    del wrapped.build  # From now on it is the class's again.
    build(*args, **kwargs)
    wrapped.step_counter.assign(state.counter)

  wrapped.build = build_and_count
  return wrapped


def _optimizer_like(optimizer: Any) -> Any:
  """The Keras 3 optimizer that does what one of Keras 2 does, anew.

  Raises:
    ImportError: Keras 3 is not installed.
    ValueError: It has none of that name, or it cannot do what this one does.
  """
  keras = _keras3()
  config = dict(optimizer.get_config())
  name = type(optimizer).__name__
  cls = getattr(keras.optimizers, name, None)
  if cls is None:
    raise ValueError(
      f"Keras 3 has no optimizer of the name {name!r}: pass one as optimizer=…."
    )
  known = set(inspect.signature(cls).parameters)
  # What says nothing of the mathematics, or is written otherwise in Keras 3.
  ignored = {"is_legacy_optimizer", "jit_compile", "name", *known}
  lost = {
    key: value
    for key, value in config.items()
    if key not in ignored and value not in (None, 0, False)
  }
  if lost:
    raise ValueError(
      f"Keras 3's {name} does not take {lost!r}: pass an optimizer of your "
      "choice as optimizer=…."
    )
  arguments = {  # Numbers are NumPy's there, which Keras 3 does not take.
    key: getattr(value, "item", lambda value=value: value)()
    for key, value in config.items()
    if key in known and key != "name"
  }
  rate = arguments.get("learning_rate")
  if isinstance(rate, Mapping):
    arguments["learning_rate"] = keras.optimizers.schedules.deserialize(
      {"class_name": rate["class_name"], "config": rate["config"]}
    )
  return cls(**arguments)


def _keras3() -> Any:
  """Keras 3.

  Raises:
    ImportError: It is not installed.
  """
  try:
    keras = importlib.import_module("keras")
  except ImportError:
    keras = None
  if keras is None or not keras.__version__.startswith("3."):
    release = ".".join(tf.__version__.split(".")[:2])
    raise ImportError(
      "Keras 3 is not installed: it comes with TensorFlow 2.16 and later, but "
      f"this is TensorFlow {release}."
    )
  return keras
