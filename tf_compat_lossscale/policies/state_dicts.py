# SPDX-License-Identifier: Apache-2.0
"""Exchanges the state of loss scales with other systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.policies import growth_backoff
from tf_compat_lossscale.policies import growth_backoff_rule as rules
from tf_compat_lossscale.policies import state_formats


def state_dict(
  loss_scale: loss_scale_lib.LossScale,
  like: state_formats.System = "torch",
  session: tf.compat.v1.Session | None = None,
) -> dict[str, Any]:
  """Returns the state of a loss scale, as another system saves it.

  - 'torch': the dict that `torch.amp.GradScaler.load_state_dict` takes.
  - 'megatron': the dict that `DynamicGradScaler.load_state_dict` takes. Its
    scale is a float32 tensor of shape [1]; if PyTorch is not installed, a NumPy
    array, of which `torch.from_numpy` makes the tensor.
  - 'deepspeed': the entries of the loss scale in the dict that
    `FP16_Optimizer.load_state_dict` takes: update with them what the
    optimizer's own `state_dict` returns. (ZeRO's optimizers save an object
    instead.) DeepSpeed counts all steps; the dict has the count with which
    DeepSpeed's scale grows at the same step as the loss scale.
  - 'keras3': the entries of the loss scale in the store that
    `LossScaleOptimizer.load_own_variables` takes: update with them what the
    optimizer's own `save_own_variables` writes.

  Spent hysteresis is in Megatron's dict alone. No dict has the other counts of
  a `GrowthBackoff`.

  Args:
    loss_scale: A `GrowthBackoff` or a `DynamicLossScale`.
    like: 'deepspeed', 'keras3', 'megatron' or 'torch'.
    session: In a graph, the session that has the state; by default the default
      session.

  Returns:
    The dict: Python's numbers, NumPy's for Keras, and a tensor for Megatron.

  Raises:
    TypeError: `loss_scale` is of another class.
    ValueError: There is no such system, the loss scale is in a graph without a
      session, or its scale is not usable.
  """
  rule, names = _find_rule(loss_scale)
  values = graph_weights.read_weights(loss_scale, names, session)
  return _to_native(
    like, state_formats.encode(rule, rules.State(**values), like)
  )


def load_state_dict(
  loss_scale: loss_scale_lib.LossScale,
  state: Mapping[str, Any],
  like: state_formats.System = "torch",
  session: tf.compat.v1.Session | None = None,
) -> None:
  """Sets the state of a loss scale to that of another system's loss scale.

  The arguments of the loss scale stay as they are. If those in `state` are
  others, a warning is logged. Counts that the other system does not have become
  0, among them the spent hysteresis, but for Megatron's.

  Args:
    loss_scale: A `GrowthBackoff` or a `DynamicLossScale`.
    state: What the system saves, as `state_dict` has it. Numbers may be arrays
      or tensors of one number. Further entries do not matter.
    like: 'deepspeed', 'keras3', 'megatron' or 'torch'.
    session: In a graph, the session that gets the state; by default the default
      session. No op is added to the graph.

  Raises:
    TypeError: `loss_scale` is of another class.
    ValueError: There is no such system, the loss scale is in a graph without a
      session, or an entry is missing or makes no sense; the message names the
      entry. Nothing has changed.
  """
  rule, names = _find_rule(loss_scale)
  found = state_formats.decode(rule, state, like)
  is_dynamic = isinstance(loss_scale, loss_scale_lib.DynamicLossScale)
  if is_dynamic and found.current_loss_scale < 1:
    raise ValueError(
      "The scale of a DynamicLossScale must be at least 1, but the state like "
      f"{like!r} has {found.current_loss_scale:g}: load the state into a "
      "GrowthBackoff with min_loss_scale=None."
    )
  values = {name: getattr(found, name) for name in names}
  graph_weights.assign_weights(loss_scale, values, session)


def _find_rule(
  loss_scale: Any,
) -> tuple[rules.GrowthBackoffRule, tuple[str, ...]]:
  """Returns the rule of a loss scale, and the names of its weights."""
  if isinstance(loss_scale, growth_backoff.GrowthBackoff):
    return loss_scale.rule, rules.State._fields
  if not isinstance(loss_scale, loss_scale_lib.DynamicLossScale):
    raise TypeError(
      "The state of a loss scale is exchanged for a GrowthBackoff or a "
      f"DynamicLossScale, but got {wrong_values.show(loss_scale)}."
    )
  rule = rules.GrowthBackoffRule(
    initial_loss_scale=loss_scale.initial_loss_scale,
    growth_factor=loss_scale.multiplier,
    backoff_factor=1 / loss_scale.multiplier,
    growth_interval=loss_scale.increment_period,
  )
  return rule, ("current_loss_scale", "good_steps")


def _to_native(like: str, values: dict[str, Any]) -> dict[str, Any]:
  """Returns entries with the types that a system has."""
  if like == "keras3":
    types = {int: np.int64, float: np.float32}
    return {key: types[type(value)](value) for key, value in values.items()}
  if like == "megatron":
    scale = np.array([values["scale"]], np.float32)
    try:
      import torch
    except ImportError:
      return values | {"scale": scale}
    return values | {"scale": torch.from_numpy(scale)}
  return values
