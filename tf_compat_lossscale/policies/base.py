# SPDX-License-Identifier: Apache-2.0
"""What the loss scales of this folder have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core import attributes


class Policy(loss_scale_lib.LossScale):
  """A loss scale whose rule exists in plain Python, too.

  Each field of the rule's state is a scalar variable in each graph, with the
  field's name. A subclass defines `update`.
  """

  _is_unread = True

  def __init__(self, rule: Any) -> None:
    """Creates the variables of a rule's state in the current graph.

    Args:
      rule: The rule: an object with `start`, `simulate`, `get_config`, and the
        bounds `lowest` and `highest`.
    """
    super().__init__()
    self._rule = rule
    for name, value in rule.start()._asdict().items():
      dtype = tf.int64 if isinstance(value, int) else self._find_dtype(name)
      self._add_weight(name, value, dtype)

  def _find_dtype(self, name: str) -> tf.DType:
    """Returns the dtype of a weight that holds no whole number."""
    del name
    return tf.float32

  @attributes.DefaultProperty
  def rule(self) -> Any:
    """The rule in plain Python, which needs no TensorFlow."""
    return self._rule

  @attributes.DefaultProperty
  def initial_loss_scale(self) -> float:
    """The scale from which a new graph starts."""
    value: float = self._rule.initial_loss_scale
    return value

  @attributes.DefaultProperty
  def current_loss_scale(self) -> tf.Variable:
    """The current graph's loss scale, a float32 scalar variable."""
    return self._get_weight("current_loss_scale")

  @attributes.DefaultProperty
  def good_steps(self) -> tf.Variable:
    """The current graph's count of good steps, an int64 scalar variable."""
    return self._get_weight("good_steps")

  @attributes.DefaultProperty
  def skipped_steps(self) -> tf.Variable:
    """The steps that were not finite so far, an int64 scalar variable."""
    return self._get_weight("skipped_steps")

  def __call__(self) -> tf.Tensor:
    """Returns the current loss scale, a float32 scalar tensor.

    A scale that another policy left outside of this policy's bounds counts as
    the nearest bound.
    """
    return self._clip(self._read("current_loss_scale"))

  def _read(self, name: str) -> tf.Tensor:
    """Returns the value of a weight."""
    return tf.convert_to_tensor(self._get_weight(name))

  def _clip(self, scale: tf.Tensor) -> tf.Tensor:
    """Returns a scale within the bounds of the rule."""
    if self._rule.lowest is not None:
      scale = tf.maximum(scale, self._rule.lowest)
    if self._rule.highest is not None:
      scale = tf.minimum(scale, self._rule.highest)
    return scale

  def _count_skipped(self, count: int | tf.Tensor) -> tf.Operation | None:
    """Adds to the skipped steps.

    An assignment would lose the steps that other threads count meanwhile.
    """
    return tf.group(self.skipped_steps.assign_add(count, read_value=False))

  def simulate(self, finite: Iterable[Any]) -> list[float]:
    """Returns the loss scale after each step of a run, in plain Python.

    The run starts from the arguments of this policy. Its variables are neither
    read nor changed.

    Args:
      finite: As the rule's `simulate` takes it: for each step, whether all
        gradients are finite.

    Returns:
      The scales, numbers of float32.
    """
    scales: list[float] = self._rule.simulate(finite)
    return scales

  def get_config(self) -> dict[str, Any]:
    config: dict[str, Any] = self._rule.get_config()
    return config

  def __repr__(self) -> str:
    now = ""
    if tf.executing_eagerly() and self._tracked_weights:
      now = f"current_loss_scale={self.current_loss_scale.numpy()}, "
    arguments = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
    return f"{type(self).__name__}({now}{arguments})"
