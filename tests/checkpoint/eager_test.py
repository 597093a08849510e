# SPDX-License-Identifier: Apache-2.0
"""Tests restores into eager variables, objects and Keras models."""

import os
import re

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


def test_a_keras_file_needs_a_model():
  h5 = helpers.GOLDENS / "tf-2.8.4" / "keras_policy_model" / "model.h5"
  with pytest.raises(checkpoint.CheckpointError, match="load_model"):
    checkpoint.restore(None, h5, {})


def restore_keras_files():
  """Restores Keras files, in a forked process: a process has one Keras."""
  keras, folder = tf.keras, os.environ["FOLDER"]
  keras.mixed_precision.set_global_policy("mixed_float16")

  def made():
    dense = keras.layers.Dense(3, input_shape=(4,), name="dense")
    model = keras.Sequential([dense])
    adam = getattr(keras.optimizers, "legacy", keras.optimizers).Adam
    if os.environ["GENERATION"] == "3":
      adam = keras.optimizers.Adam
    model.compile(adam(0.01), "mse")
    return model

  def fit(model, epochs):
    data = tf.ones([64, 4]), tf.ones([64, 3])
    model.fit(*data, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return model

  trained = fit(made(), 5)
  for name in ("model.h5", "model.keras"):
    if name == "model.keras" and os.environ["GENERATION"] != "3":
      continue  # Such a file has no state of a legacy optimizer.
    path = os.path.join(folder, name)
    trained.save(path)
    model = fit(made(), 1)
    report = checkpoint.restore(None, path, model)
    assert report.restored
    for ours, theirs in zip(model.get_weights(), trained.get_weights()):
      np.testing.assert_array_equal(ours, theirs)
    steps = int(model.optimizer.iterations)
    if report.unused:  # Keras 3 leaves the optimizer of an HDF5 file aside.
      assert (name, os.environ["GENERATION"]) == ("model.h5", "3")
    else:
      assert steps == int(trained.optimizer.iterations), (name, steps)
  if os.environ["GENERATION"] != "3":
    assert any("loss_scale" in key for key in report.initialized)
  other = keras.Sequential([keras.layers.Dense(7, input_shape=(4,))])
  # The error names the file, not the temporary checkpoint of its values.
  with pytest.raises(checkpoint.CheckpointError, match=re.escape(path)):
    checkpoint.restore(None, path, other)


@pytest.mark.thorough
@pytest.mark.parametrize("generation", ["2", "3"])
def test_keras_files(generation, tmp_path):
  if generation == "3" and helpers.RELEASE < (2, 16):
    pytest.skip("Keras 3 is not TensorFlow's before 2.16")
  helpers.run_alone(
    restore_keras_files,
    FOLDER=str(tmp_path),
    GENERATION=generation,
    **(helpers.KERAS_2 if generation == "2" else {}),
  )


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
  assert len(report.initialized) == (dynamics[target] if is_new else 0)
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
