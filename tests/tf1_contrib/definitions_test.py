# SPDX-License-Identifier: Apache-2.0
"""Tests pieces of `tf.contrib` against their definitions, in NumPy.

Nothing recorded these on TensorFlow 1.15.5: each test has the definition.
"""

import math

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1_contrib import graph_editor
from tf1_contrib import image
from tf1_contrib import memory_stats
import tf_compat_lossscale as tfl

_PICTURE = np.random.RandomState(0).uniform(1, 9, (2, 5, 7, 3)).astype("f")


@pytest.fixture
def session():
  with tf.Graph().as_default(), tf.Session() as session:
    yield session


def round_half_away(x):
  """Returns the nearest whole number; of two, the one farther from 0."""
  return int(math.copysign(math.floor(abs(x) + 0.5), x))


def warp(picture, row, bilinear=False):
  """Returns a picture [height, width] through a projective transform."""
  a0, a1, a2, b0, b1, b2, c0, c1 = row
  height, width = picture.shape

  def read(y, x):
    inside = 0 <= y < height and 0 <= x < width
    return picture[int(y), int(x)] if inside else 0.0

  result = np.zeros_like(picture)
  for y in range(height):
    for x in range(width):
      k = c0 * x + c1 * y + 1
      u, v = (a0 * x + a1 * y + a2) / k, (b0 * x + b1 * y + b2) / k
      if bilinear:
        left, top = math.floor(u), math.floor(v)
        result[y, x] = sum(
          read(top + i, left + j)
          * abs(1 - i - (v - top))
          * abs(1 - j - (u - left))
          for i in (0, 1)
          for j in (0, 1)
        )
      else:
        result[y, x] = read(round_half_away(v), round_half_away(u))
  return result


def warp_all(pictures, rows, bilinear=False):
  """Returns pictures [N, height, width, channels], each by its row."""
  return np.stack(
    [
      np.stack([warp(p[..., c], row, bilinear) for c in range(p.shape[-1])], -1)
      for p, row in zip(pictures, rows)
    ]
  )


def rotation(angle, height, width):
  """Returns the row that turns a picture about its center."""
  y, x = (height - 1) / 2, (width - 1) / 2
  cos, sin = math.cos(angle), math.sin(angle)
  return (
    *(cos, -sin, x - cos * x + sin * y),
    *(sin, cos, y - sin * x - cos * y, 0, 0),
  )


@pytest.mark.any_release
@pytest.mark.parametrize("bilinear", [False, True])
def test_images_are_rotated_moved_and_warped(bilinear, session):
  mode = "bilinear" if bilinear else "NEAREST"
  angles, moves = (0.3, -1.2), ([1.5, -2.25], [-3.0, 0.75])
  rows = np.float32([[1.1, 0.2, -1.3, 0.1, 0.9, 0.4, 0.01, 0.02]] * 2)
  for found, expected in (
    (image.rotate(_PICTURE, angles, mode), [rotation(a, 5, 7) for a in angles]),
    (image.rotate(_PICTURE, 0.7, mode), [rotation(0.7, 5, 7)] * 2),
    (
      image.translate(_PICTURE, moves, mode),
      [(1, 0, -x, 0, 1, -y, 0, 0) for x, y in moves],
    ),
    (image.transform(_PICTURE, rows, mode), rows),
  ):
    assert found.shape == _PICTURE.shape
    np.testing.assert_allclose(
      session.run(found), warp_all(_PICTURE, expected, bilinear), 1e-4, 1e-4
    )


@pytest.mark.any_release
def test_images_of_other_ranks_dtypes_and_sizes(session):
  small = np.arange(12).reshape(3, 4)
  for dtype in (np.uint8, np.int32, np.int64, np.float16, np.float64):
    moved = session.run(image.translate(small.astype(dtype), [1, 0]))
    assert moved.dtype == dtype
    assert moved.tolist() == [[0, *row[:-1]] for row in small.tolist()]
  turned = session.run(image.rotate(small[:, :3, None], math.pi / 2))
  assert turned[..., 0].tolist() == np.rot90(small[:, :3]).tolist()
  same = [1, 0, 0, 0, 1, 0, 0, 0]
  cut = session.run(image.transform(small, same, output_shape=[2, 5]))
  assert cut.tolist() == [[0, 1, 2, 3, 0], [4, 5, 6, 7, 0]]
  for call in (
    lambda: image.rotate(np.zeros([2]), 1.0),
    lambda: image.rotate(np.zeros([2, 2], bool), 1.0),
    lambda: image.transform(small, 1.0),
  ):
    with pytest.raises(TypeError, match="expected"):
      call()


@pytest.mark.any_release
def test_the_gradient_of_a_rotated_image(session):
  picture = tf.constant(_PICTURE)
  turned = image.rotate(picture, math.pi / 2)
  (grad,) = tf.gradients(turned * tf.constant(_PICTURE), picture)
  back = warp_all(_PICTURE, [rotation(-math.pi / 2, 5, 7)] * 2)
  np.testing.assert_allclose(session.run(grad), back, rtol=1e-6)


@pytest.mark.any_release
@pytest.mark.parametrize(("clip", "factor"), [(1.0, 0.2), (100.0, 1.0)])
def test_gradients_are_clipped_by_their_global_norm(clip, factor, session):
  first, second = tf.get_variable("a", [2]), tf.get_variable("b", [])
  loss = tf.reduce_sum(first * [0.0, 3.0]) + second * 4.0  # The norm is 5.
  inner = tf.train.MomentumOptimizer(0.5, 0.9)
  with tfl.installed():  # tensorflow_estimator imports what TensorFlow lost.
    from tf1_contrib import estimator
  opt = estimator.clip_gradients_by_norm(inner, clip)
  step = tf.train.get_or_create_global_step()
  train = opt.minimize(loss, step)
  session.run(tf.global_variables_initializer())
  before = session.run([first, second])
  session.run(train)
  after = session.run([first, second])
  for x, y, g in zip(before, after, ([0, 3], 4)):
    np.testing.assert_allclose(x - y, 0.5 * factor * np.array(g), 1e-5, 1e-6)
  assert opt.get_name() == "ClipByNormMomentum" and session.run(step) == 1
  assert opt.get_slot_names() == ["momentum"]
  assert opt.get_slot(first, "momentum").op.name == "a/Momentum"


@pytest.mark.any_release
def test_a_walk_goes_where_values_go(session):
  a, b = tf.constant(1.0, name="a"), tf.constant(2.0, name="b")
  c = tf.add(a, b, name="c")
  d = tf.square(c, name="d")
  tf.negative(b, name="e")

  def walk(*args, **kwargs):
    found = graph_editor.get_forward_walk_ops(*args, **kwargs)
    return sorted(op.name for op in found)

  assert walk(a.op) == ["a", "c", "d"]
  assert walk([a.op], inclusive=False) == ["c", "d"]
  assert walk([b]) == ["c", "d", "e"]  # The tensor's consumers begin.
  assert walk([b.op], stop_at_ts=[c]) == ["b", "c", "e"]
  assert walk([b.op], within_ops=[b.op, c.op]) == ["b", "c"]
  assert walk(b.op, within_ops_fn=lambda op: op.type == "Neg") == ["b", "e"]
  assert walk([d.op], within_ops=[a.op]) == []
  with pytest.raises(NotImplementedError, match=r"reroute_ts.*recompute_grad"):
    graph_editor.reroute_ts([a], [b])


@pytest.mark.any_release
def test_memory_of_a_gpu_that_is_not_there(session):
  with tf.device("/gpu:0"), pytest.raises(tf.errors.NotFoundError, match="GPU"):
    memory_stats.MaxBytesInUse()
  with pytest.raises(NotImplementedError, match="nvidia-smi"):
    memory_stats.BytesLimit()


@pytest.mark.any_release
def test_memory_is_measured_at_each_run(session, monkeypatch):
  asked = []

  def measure(device):
    asked.append(device)
    return {"current": 10 * len(asked), "peak": 2**40 + len(asked)}

  monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: [0, 1])
  monkeypatch.setattr(tf.config.experimental, "get_memory_info", measure)
  with tf.device("/gpu:1"):
    peak = memory_stats.MaxBytesInUse()
  assert peak.dtype == tf.int64 and peak.shape == ()
  assert [session.run(peak) - 2**40 for _ in range(2)] == [1, 2]
  assert session.run(memory_stats.BytesInUse()) == 30
  assert asked == ["GPU:1", "GPU:1", "GPU:0"]
