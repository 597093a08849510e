# SPDX-License-Identifier: Apache-2.0
"""Reads the state of a loss scale and of its optimizer, in plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import contrib
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.keras import _keras2


class State(NamedTuple):
  """A dynamic loss scale's state, in plain numbers.

  Attributes:
    loss_scale: The current scale.
    good_steps: The number of finite steps since the scale changed; fewer than
      `growth_steps`.
    growth_steps: The number of finite steps that make the scale grow.
    iterations: The number of steps that the optimizer has done; 0 if it is not
      known.
  """

  loss_scale: float
  good_steps: int
  growth_steps: int
  iterations: int


def read_state(given: Any) -> State:
  """Reads the state of a loss scale and of its optimizer.

  Args:
    given: The first argument of `to_keras3`.

  Returns:
    The state. If the count of good steps has reached `growth_steps`, it is
    lowered to `growth_steps - 1`: either way the scale grows at the next finite
    step.

  Raises:
    TypeError: `given` has no loss scale of a known class.
    ValueError: The loss scale is fixed, has no counterpart in Keras 3 or a
      value that is not allowed, or it is in a graph without a session.
  """
  loss_scale, good_steps, growth_steps, iterations = _read(given)
  growth_steps = arguments.check_steps("growth_steps", growth_steps)
  return State(
    arguments.check_scale("loss_scale", loss_scale, at_least_1=False),
    min(
      arguments.check_steps("good_steps", good_steps, at_least=0),
      growth_steps - 1,
    ),
    growth_steps,
    arguments.check_steps("iterations", iterations, at_least=0),
  )


def read_value(value: Any) -> np.ndarray:
  """Reads a variable or tensor, in a graph by the default session.

  Raises:
    ValueError: There is no session for the current graph.
  """
  if tf.executing_eagerly():
    return np.asarray(tf.convert_to_tensor(value))
  session = tf.compat.v1.get_default_session()
  if session is None or session.graph is not tf.compat.v1.get_default_graph():
    raise ValueError(
      f"The value of {value!r} is in a session, but this graph has no default "
      "session: call to_keras3() within `with "
      "session.as_default():`, or pass the numbers as a dict of 'loss_scale', "
      "'good_steps', 'growth_steps' and 'iterations'."
    )
  return np.asarray(session.run(tf.convert_to_tensor(value)))


def _read(given: Any) -> tuple[Any, Any, Any, Any]:
  if isinstance(given, Mapping):
    return _read_dict(given)
  if isinstance(given, _keras2.BaseLossScaleOptimizer):
    if not given.dynamic:
      raise _refuse_fixed(given.initial_scale)
    return (
      read_value(given.loss_scale),
      read_value(given.dynamic_counter),
      given.dynamic_growth_steps,
      read_value(given.inner_optimizer.iterations),
    )
  scale = given
  if not isinstance(
    given, (contrib.LossScaleManager, loss_scale_lib.LossScale)
  ):
    scale = getattr(given, "_loss_scale", given)
    # Contrib's optimizer has a manager in place of a loss scale.
    scale = getattr(given, "_loss_scale_manager", scale)
  if isinstance(scale, loss_scale_lib.FixedLossScale):
    raise _refuse_fixed(scale.get_config()["loss_scale_value"])
  if isinstance(scale, contrib.FixedLossScaleManager):
    raise _refuse_fixed(scale.to_loss_scale().get_config()["loss_scale_value"])
  if isinstance(scale, contrib.ExponentialUpdateLossScaleManager):
    return _read_manager(scale)
  if not isinstance(scale, loss_scale_lib.DynamicLossScale):
    raise TypeError(
      "to_keras3() takes a LossScaleOptimizer, a DynamicLossScale, an "
      "ExponentialUpdateLossScaleManager or a dict of 'loss_scale' and "
      f"'good_steps', but got {wrong_values.show(given)}."
    )
  if scale.multiplier != 2:
    raise ValueError(
      f"Keras 3's loss scale doubles and halves, but got {scale!r}."
    )
  good_steps = read_value(scale._num_good_steps)
  return read_value(scale()), good_steps, scale.increment_period, 0


def _read_dict(given: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
  needed = {"loss_scale", "good_steps"}
  unknown = set(given) - needed - {"growth_steps", "iterations"}
  missing = needed - set(given)
  if unknown or missing:
    raise ValueError(
      "A loss scale's state is a dict of 'loss_scale', 'good_steps' and, if "
      "they are not 2000 and 0, 'growth_steps' and 'iterations', but got "
      f"{dict(given)!r}, which has {_join(unknown)} too many and "
      f"{_join(missing)} too few."
    )
  return (
    given["loss_scale"],
    given["good_steps"],
    given.get("growth_steps", 2000),
    given.get("iterations", 0),
  )


def _read_manager(
  manager: contrib.ExponentialUpdateLossScaleManager,
) -> tuple[Any, Any, Any, Any]:
  like = manager.to_loss_scale()
  if not isinstance(like, loss_scale_lib.DynamicLossScale) or (
    like.multiplier != 2
  ):
    raise ValueError(
      "Keras 3's loss scale doubles, and halves at every step that is not "
      "finite: to_keras3() needs incr_ratio=2, decr_ratio=0.5 and "
      "decr_every_n_nan_or_inf=1, but got a manager with incr_ratio="
      f"{manager._incr_ratio}, decr_ratio={manager._decr_ratio} and "
      f"decr_every_n_nan_or_inf={manager._decr_every_n_nan_or_inf}."
    )
  return (
    read_value(manager.get_loss_scale()),
    read_value(manager._num_good_steps),
    like.increment_period,
    0,
  )


def _join(keys: set[Any]) -> str:
  return ", ".join(sorted(map(repr, keys))) or "none"


def _refuse_fixed(scale: float) -> ValueError:
  """Makes the error for a loss scale that is fixed."""
  return ValueError(
    "Keras 3 has no LossScaleOptimizer with a fixed loss scale: give its "
    f"optimizer loss_scale_factor={scale} instead, which does the same."
  )
