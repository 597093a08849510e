# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.learn`."""

from __future__ import annotations


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
