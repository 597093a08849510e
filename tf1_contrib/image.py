# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.image`: images that are rotated and moved."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

_DTYPES = (tf.uint8, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64)


def rotate(
  images: Any,
  angles: Any,
  interpolation: str = "NEAREST",
  name: str | None = None,
) -> Any:
  """Returns images that are rotated counterclockwise about their centers.

  Args:
    images: As for `transform`.
    angles: Radians, a float [], or [N] for N images.
    interpolation: "NEAREST" or "BILINEAR".
    name: The name scope.

  Returns:
    The images, in shape and dtype of `images`; what was outside is 0.

  Raises:
    TypeError: `images` or `angles` has another dtype or rank.
  """
  with tf.name_scope(name, "rotate"):
    images = tf.convert_to_tensor(images, name="images")
    shape = tf.cast(tf.shape(_make_batch(images)), tf.float32)
    transforms = angles_to_projective_transforms(angles, shape[1], shape[2])
    return transform(images, transforms, interpolation)


def translate(
  images: Any,
  translations: Any,
  interpolation: str = "NEAREST",
  name: str | None = None,
) -> Any:
  """Returns images that are moved.

  Args:
    images: As for `transform`.
    translations: How far, in pixels: floats [2], to the right and down, or
      [N, 2] for N images.
    interpolation: "NEAREST" or "BILINEAR".
    name: The name scope.

  Returns:
    The images, in shape and dtype of `images`; what was outside is 0.

  Raises:
    TypeError: `images` or `translations` has another dtype or rank.
  """
  with tf.name_scope(name, "translate"):
    moves = _make_rows("translations", translations, rank=2)
    x, y = moves[:, 0], moves[:, 1]
    one, zero = tf.ones_like(x), tf.zeros_like(x)
    transforms = tf.stack([one, zero, -x, zero, one, -y, zero, zero], axis=1)
    return transform(images, transforms, interpolation)


def transform(
  images: Any,
  transforms: Any,
  interpolation: str = "NEAREST",
  output_shape: Any = None,
  name: str | None = None,
) -> Any:
  """Returns images through projective transforms.

  Args:
    images: Numbers [N, height, width, channels], [height, width, channels] or
      [height, width].
    transforms: Floats [8], or [N, 8] for N images. The row
      (a0, a1, a2, b0, b1, b2, c0, c1) gives the output's point (x, y) what the
      input has at ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k), with
      k = c0 x + c1 y + 1.
    interpolation: "NEAREST" or "BILINEAR".
    output_shape: Height and width of the result, int32 [2]; by default those
      of `images`.
    name: The name scope.

  Returns:
    The images, in rank and dtype of `images`; what was outside is 0.

  Raises:
    TypeError: `images` or `transforms` has another dtype or rank.
  """
  with tf.name_scope(name, "transform"):
    images = tf.convert_to_tensor(images, name="images")
    batch = _make_batch(images)
    size = tf.shape(batch)[1:3] if output_shape is None else output_shape
    result = tf.raw_ops.ImageProjectiveTransformV3(
      images=batch,
      transforms=_make_rows("transforms", transforms, rank=2),
      output_shape=tf.cast(size, tf.int32),
      fill_value=0.0,
      interpolation=interpolation.upper(),
    )
    result.set_shape([batch.shape[0], None, None, batch.shape[3]])
    if output_shape is None:
      result.set_shape(batch.shape)
    if images.shape.rank < 4:
      result = result[0]
    return result[:, :, 0] if images.shape.rank == 2 else result


def angles_to_projective_transforms(
  angles: Any,
  image_height: Any,
  image_width: Any,
  name: str | None = None,
) -> Any:
  """Returns the transforms, floats [N, 8], that rotate about the center.

  Args:
    angles: Radians, a float [] or floats [N].
    image_height: The images' height, a float [] or [N].
    image_width: Their width.
    name: The name scope.

  Raises:
    TypeError: `angles` has another rank.
  """
  with tf.name_scope(name, "angles_to_projective_transforms"):
    angles = _make_rows("angles", angles, rank=1)
    cos, sin, zero = tf.cos(angles), tf.sin(angles), tf.zeros_like(angles)
    right, bottom = image_width - 1, image_height - 1
    x = (right - (cos * right - sin * bottom)) / 2
    y = (bottom - (sin * right + cos * bottom)) / 2
    return tf.stack([cos, -sin, x, sin, cos, y, zero, zero], axis=1)


def _make_batch(images: Any) -> Any:
  """Returns images as [N, height, width, channels]."""
  if images.dtype.base_dtype not in _DTYPES or images.shape.rank not in (
    2,
    3,
    4,
  ):
    raise TypeError(
      f"images is {images}: numbers [N, height, width, channels], [height, "
      "width, channels] or [height, width] were expected"
    )
  if images.shape.rank == 2:
    images = images[:, :, tf.newaxis]
  return images if images.shape.rank == 4 else images[tf.newaxis]


def _make_rows(name: str, values: Any, rank: int) -> Any:
  """Returns floats of a rank, or of one less, with a first dimension."""
  values = tf.convert_to_tensor(values, tf.float32, name=name)
  if values.shape.rank not in (rank - 1, rank):
    raise TypeError(
      f"{name} is {values}: rank {rank - 1} or {rank} was expected"
    )
  return values if values.shape.rank == rank else values[tf.newaxis]
