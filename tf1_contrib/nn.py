# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.nn`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

_ALPHA = -1.7580993408473766  # SELU's value far below zero.


def alpha_dropout(
  x: Any,
  keep_prob: Any,
  noise_shape: Any = None,
  seed: int | None = None,
  name: str | None = None,
) -> Any:
  """Returns a tensor in which dropped elements are as SELU's far below zero.

  Mean and variance stay 0 and 1.

  Args:
    x: Floats in any shape, which the result has, too.
    keep_prob: The probability that an element is kept, of shape [].
    noise_shape: The shape of the random choice, which is broadcast to that of
      `x`; by default, each element is chosen by itself.
    seed: The seed of the choice.
    name: The name scope.
  """
  with tf.name_scope(name, "alpha_dropout", [x]):
    x = tf.convert_to_tensor(x, name="x")
    if isinstance(keep_prob, float | int):
      if not 0 < keep_prob <= 1:
        raise ValueError(f"keep_prob is {keep_prob}: it must be in (0, 1]")
      if keep_prob == 1:
        return x
    keep_prob = tf.convert_to_tensor(keep_prob, x.dtype, name="keep_prob")
    shape = tf.shape(x) if noise_shape is None else noise_shape
    noise = tf.random_uniform(shape, seed=seed, dtype=x.dtype)
    kept = tf.floor(keep_prob + noise)
    a = tf.rsqrt(keep_prob + _ALPHA**2 * keep_prob * (1 - keep_prob))
    b = -a * _ALPHA * (1 - keep_prob)
    result = a * (x * kept + _ALPHA * (1 - kept)) + b
    result.set_shape(x.shape)
    return result
