# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.learn`."""

from __future__ import annotations


class ModeKeys:
  """The modes of a model; those of `tf.estimator` have the same values."""

  TRAIN = "train"
  EVAL = "eval"
  INFER = "infer"
