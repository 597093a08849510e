# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.learn`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf


class ModeKeys:
  """The modes of a model; those of `tf.estimator` have the same values."""

  TRAIN = "train"
  EVAL = "eval"
  INFER = "infer"

  @classmethod
  def validate(cls, key: str) -> None:
    """Checks that `key` is a mode.

    Raises:
      ValueError: `key` is no mode.
    """
    if key not in (cls.TRAIN, cls.EVAL, cls.INFER):
      raise ValueError(
        f"the mode must be one of {cls.TRAIN!r}, {cls.EVAL!r} and "
        f"{cls.INFER!r}, but is {key!r}"
      )


def replace_monitors_with_hooks(
  monitors_or_hooks: Iterable[Any] | None, estimator: Any
) -> list[Any]:
  """Returns the hooks among monitors and hooks.

  Programs call this for an Estimator, whatever they give it.

  Args:
    monitors_or_hooks: Objects of `tf.train.SessionRunHook`, or None.
    estimator: The Estimator that the monitors were for. It is not used.

  Raises:
    TypeError: One of them is no hook. Nothing has the monitors of TensorFlow 1.
  """
  hooks = list(monitors_or_hooks or ())
  for hook in hooks:
    if not isinstance(hook, tf.train.SessionRunHook):
      raise TypeError(
        f"{hook!r} is no tf.train.SessionRunHook, and the monitors of "
        "tf.contrib.learn are gone: give a hook"
      )
  return hooks
