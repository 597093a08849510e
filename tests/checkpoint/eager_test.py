# SPDX-License-Identifier: Apache-2.0
"""Tests restores into eager variables and objects."""

import helpers
import numpy as np
import pytest
import saved_graphs
from saved_graphs import dynamic
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1

path = saved_graphs.path


def test_eagerly_by_name(path):
  kernel = tf.Variable([5.0, 5.0], name="dense/kernel")
  scale = dynamic(2.0)
  objects = {"kernel": kernel, "scale": scale}
  report = checkpoint.restore(None, path, objects)
  assert kernel.numpy().tolist() == [1, 2] and float(scale()) == 64.0
  assert len(report.restored) == 3
  with pytest.raises(ValueError, match="needs the objects"):
    checkpoint.restore(None, path)


_OPTIMIZERS = {
  "plain": lambda: tf1.train.AdamOptimizer(0.1),
  "dynamic": lambda: tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale(8.0, 2)
  ),
  "fixed": lambda: tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.AdamOptimizer(0.1), 4.0
  ),
  "contrib": lambda: tfl.contrib.LossScaleOptimizer(
    tf1.train.AdamOptimizer(0.1),
    tfl.contrib.ExponentialUpdateLossScaleManager(16.0, 2),
  ),
}


def train_eagerly(kind, steps, path=None):
  """Trains eagerly, and restores before that if there is a path.

  Returns:
    The `tf.train.Checkpoint`, the weight and the report of the restore.
  """
  w = tf.Variable([1.0, -1.0])
  opt = _OPTIMIZERS[kind]()
  root = tf.train.Checkpoint(optimizer=opt, w=w)
  report = path and checkpoint.restore(None, path, {"optimizer": opt, "w": w})
  for _ in range(steps):
    opt.minimize(lambda: tf.reduce_sum(w * w), var_list=[w])
  return root, w, report


@pytest.fixture(scope="module")
def saved_eagerly(tmp_path_factory):
  """Saves after three steps; returns kind -> (path, weight after eight)."""
  folder, saved = tmp_path_factory.mktemp("eagerly"), {}
  for kind in _OPTIMIZERS:
    root, *_ = train_eagerly(kind, 3)
    path = root.save(str(folder / kind))
    _, w, _ = train_eagerly(kind, 8)
    saved[kind] = path, w.numpy()
  return saved


@pytest.mark.parametrize("source", list(_OPTIMIZERS))
@pytest.mark.parametrize("target", list(_OPTIMIZERS))
def test_eagerly_by_object(source, target, saved_eagerly):
  """Checks training, whose first step creates slots with restored values."""
  path, expected = saved_eagerly[source]
  _, w, report = train_eagerly(target, 5, path)
  np.testing.assert_allclose(w.numpy(), expected, rtol=1e-6)
  dynamics = {"dynamic": 2, "contrib": 3}  # The number of variables.
  is_new = target in dynamics and source not in dynamics
  # compat.v1 does not count bad steps.
  has_bad = target == "contrib" and source == "dynamic"
  assert len(report.initialized) == (dynamics[target] if is_new else has_bad)
  # Bad steps are of no use to a DynamicLossScale.
  unused = [key for key in report.unused if "bad_steps" not in key]
  is_unused = any("loss_scale" in key for key in unused)
  assert is_unused == (source in dynamics and target not in dynamics)


def test_by_object_what_is_not_there(tmp_path):
  root, *_ = train_eagerly("dynamic", 1)
  path = root.save(str(tmp_path / "ckpt"))
  w, other = tf.Variable([5.0, 5.0]), tf.Variable(1.0)
  with pytest.raises(checkpoint.CheckpointError, match=r"ww .*nearest: w"):
    checkpoint.restore(None, path, {"w": w, "ww": other})
  assert w.numpy().tolist() == [5, 5]
  checkpoint.restore(None, path, {"w": w})
  assert w.numpy().tolist() != [5, 5]
  with pytest.raises(ValueError, match="by name"):
    checkpoint.restore(None, path, {"w": w}, what="weights")


def test_by_object_of_another_shape(tmp_path):
  w = tf.Variable([1.0, 2.0])
  path = tf.train.Checkpoint(w=w).save(str(tmp_path / "ckpt"))
  for other in (tf.Variable([5.0]), tf.Variable([5.0, 5.0], dtype=tf.float64)):
    with pytest.raises(checkpoint.CheckpointError, match="but float32"):
      checkpoint.restore(None, path, {"w": other})
    assert other.numpy()[0] == 5


if __name__ == "__main__":
  helpers.main()
