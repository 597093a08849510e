# SPDX-License-Identifier: Apache-2.0
"""Tests restores by object into objects that are laid out otherwise."""

import helpers
import numpy as np
from object_models import WRAPPERS
import pytest
from slot_programs import minimize
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.keras import _keras2

tf1 = tf.compat.v1
k2 = _keras2.keras
legacy = k2.optimizers.legacy
if helpers.RELEASE >= (2, 16):
  import keras as k3
else:
  k3 = None


def nvidia(optimizer):
  """Gives an optimizer a loss scale as NVIDIA's TensorFlow 1 did."""
  tracking.track(optimizer, tfl.DynamicLossScale(8.0), "loss_scale")
  return optimizer


def wrap_in_keras(optimizer):
  return k2.mixed_precision.LossScaleOptimizer(optimizer)


V1 = WRAPPERS | {"nvidia": nvidia}
KERAS = {"plain": lambda optimizer: optimizer, "wrapped": wrap_in_keras}
# A family of optimizers -> the optimizer, and wrappers to exchange it in.
FAMILIES = {
  "v1": (lambda: tf1.train.AdamOptimizer(0.1), V1),
  "legacy": (lambda: legacy.Adam(0.1), KERAS),
  "newer": (lambda: k2.optimizers.Adam(0.1), KERAS),
}
if k3 is not None:
  of_keras_3 = KERAS | {"wrapped": k3.optimizers.LossScaleOptimizer}
  FAMILIES["keras3"] = (lambda: k3.optimizers.Adam(0.1), of_keras_3)


class Nest(tf.Module):
  """Objects within a module, in which an optimizer lies deeper."""

  def __init__(self, optimizer):
    super().__init__()
    self.w = tf.Variable([1.0, 2.0])
    self.training = tf.Module()
    self.training.optimizers = [optimizer]

  def train(self, steps):
    (optimizer,) = self.training.optimizers
    loss = lambda: tf.reduce_sum(self.w**3)  # noqa: E731
    for _ in range(steps):
      minimize(optimizer, loss, [self.w])
    return self.w.numpy()


@pytest.mark.parametrize(
  ("family", "there", "here"),
  [
    (family, there, here)
    for family, (_, wrappers) in FAMILIES.items()
    for there in wrappers
    for here in wrappers
  ],
)
def test_deep_in_a_module(family, there, here, tmp_path):
  make, wrappers = FAMILIES[family]
  old, new = (Nest(wrappers[each](make())) for each in (there, here))
  old.train(3)
  path = tf.train.Checkpoint(model=old).save(str(tmp_path / "c"))
  before = new.w.numpy()
  with pytest.raises(checkpoint.CheckpointError, match="is not built"):
    checkpoint.restore(None, path, {"model": new})
  np.testing.assert_array_equal(new.w, before)
  new.train(1)
  report = checkpoint.restore(None, path, {"model": new})
  if family != "v1":
    assert bool(report.initialized) == (there == "plain" and here == "wrapped")
  np.testing.assert_allclose(new.train(4), old.train(4), rtol=1e-6)
  if family != "v1":
    assert np.asarray(new.training.optimizers[0].iterations) == 7


@pytest.mark.skipif(k3 is None, reason="Keras 3 comes with TensorFlow 2.16")
@pytest.mark.parametrize(
  ("there", "here", "name"),
  [
    ("momentum", "use_ema", "_model_variables_moving_average/0"),
    ("use_ema", "momentum", "momentums/0"),
    ("use_ema", "gradient_accumulation_steps", "_accumulated_gradients/0"),
  ],
)
def test_numbers_in_a_list_do_not_decide(there, here, name, tmp_path):
  """Checks that a momentum is no average of weights, nor the other way round.

  Keras lists all variables of an optimizer, and each is number 2 in its list.
  """
  values = {"momentum": 0.9, "use_ema": True, "gradient_accumulation_steps": 2}

  def make(option):
    w = k3.Variable(np.zeros(2, "f"), name="w")
    optimizer = k3.optimizers.SGD(0.1, **{option: values[option]})
    optimizer.build([w])
    return w, optimizer

  w, optimizer = make(there)
  optimizer.apply([tf.constant([1.0, 2.0])], [w])
  old = tf.train.Checkpoint(w=w, optimizer=optimizer)
  path = old.save(str(tmp_path / "c"))
  w, optimizer = make(here)
  objects = {"w": w, "optimizer": optimizer}
  with pytest.raises(
    checkpoint.CheckpointError, match=f"{name}.* is not in it"
  ):
    checkpoint.restore(None, path, objects)
  report = checkpoint.restore(None, path, objects, missing="initialize")
  assert f"optimizer/{name}" in report.kept
  assert not optimizer.variables[-1].numpy().any()


@pytest.mark.parametrize("release", ["1.15.5", "2.0.4", "2.4.4"])
def test_a_plain_optimizer_from_a_golden_of_keras(release):
  path = helpers.GOLDENS / f"tf-{release}/keras_dynamic_adam/object/ckpt-1"
  reader = tf.train.load_checkpoint(str(path))
  shapes = reader.get_variable_to_shape_map()
  slots = {
    name: next(k for k in shapes if f"/{name}/.OPTIM" in k and "/m/" in k)
    for name in ("kernel", "bias")
  }
  model, layer = tf.Module(), tf.Module()
  setattr(model, "layer_with_weights-0", layer)
  for name, key in slots.items():
    setattr(layer, name, tf.Variable(tf.zeros(shapes[key])))
  weights = [layer.kernel, layer.bias]
  optimizer = legacy.Adam(0.1)
  optimizer.apply_gradients([(tf.zeros_like(w), w) for w in weights])
  checkpoint.restore(None, path, {"optimizer": optimizer, "model": model})
  for name, key in slots.items():
    np.testing.assert_array_equal(
      optimizer.get_slot(getattr(layer, name), "m"), reader.get_tensor(key)
    )


@pytest.mark.parametrize(
  ("there", "here"),
  [
    ("v1", "legacy"),
    ("legacy", "v1"),
    ("legacy", "newer"),
    ("newer", "legacy"),
    ("rmsprop", "v1"),
  ],
)
def test_other_kinds_are_refused(there, here, tmp_path):
  """Checks that no slot goes to an optimizer for which it means another.

  RMSProp's momentum, for instance, is not Momentum's.
  """
  make = {
    "v1": lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
    "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.1, momentum=0.5),
    "legacy": lambda: legacy.SGD(0.1, 0.9),
    "newer": lambda: k2.optimizers.SGD(0.1, 0.9),
  }

  def build(kind):
    w, optimizer = tf.Variable([1.0, 2.0]), make[kind]()
    optimizer.apply_gradients([(tf.ones_like(w), w)])
    return {"optimizer": optimizer, "w": w}

  path = tf.train.Checkpoint(**build(there)).save(str(tmp_path / "c"))
  new = build(here)
  before = new["w"].numpy()
  what = "RMSProp .*in it" if there == "rmsprop" else "here, but"
  for missing in ("error", "initialize"):
    with pytest.raises(checkpoint.CheckpointError, match=what):
      checkpoint.restore(None, path, new, missing=missing)
  np.testing.assert_array_equal(new["w"], before)


def test_lists_and_tuples_are_walked(tmp_path):
  a, b = tf.Variable(1.0, name="a"), tf.Variable(2.0, name="b")
  path = tf.train.Checkpoint(w=[a, (b,)]).save(str(tmp_path / "c"))
  c, d = tf.Variable(0.0), tf.Variable(0.0)
  report = checkpoint.restore(None, path, {"w": [c, (d,)]})
  assert (float(c), float(d)) == (1, 2)
  assert set(report.restored) == {"w/0", "w/1/0"}


def test_a_restore_that_places_nothing_is_refused(tmp_path):
  w, x = tf.Variable(1.0), tf.Variable(2.0)
  path = tf.train.Checkpoint(w=w).save(str(tmp_path / "c"))
  with pytest.raises(checkpoint.CheckpointError, match="w, save_counter"):
    checkpoint.restore(
      None, path, {"x": tfl.DynamicLossScale(), "y": x}, missing="initialize"
    )
  assert float(x) == 2


def test_by_object_what_is_not_there(tmp_path):
  w = tf.Variable([1.0, -1.0])
  path = tf.train.Checkpoint(w=w).save(str(tmp_path / "c"))
  w, other = tf.Variable([5.0, 5.0]), tf.Variable(1.0)
  with pytest.raises(checkpoint.CheckpointError, match=r"ww .*nearest: w"):
    checkpoint.restore(None, path, {"w": w, "ww": other})
  assert w.numpy().tolist() == [5, 5]
  checkpoint.restore(None, path, {"w": w})
  assert w.numpy().tolist() != [5, 5]
  with pytest.raises(ValueError, match="by name"):
    checkpoint.restore(None, path, {"w": w}, what="weights")
  with pytest.raises(ValueError, match="missing must be 'error' or"):
    checkpoint.restore(None, path, {"w": w}, missing="keep")


def test_by_object_of_another_shape(tmp_path):
  w = tf.Variable([1.0, 2.0])
  path = tf.train.Checkpoint(w=w).save(str(tmp_path / "ckpt"))
  for other in (tf.Variable([5.0]), tf.Variable([5.0, 5.0], dtype=tf.float64)):
    with pytest.raises(checkpoint.CheckpointError, match="but float32"):
      checkpoint.restore(None, path, {"w": other})
    assert other.numpy()[0] == 5


def test_slots_are_cast(tmp_path):
  def make(dtype):
    w = tf.Variable([1.0, 2.0], dtype=dtype)
    optimizer = tf1.train.MomentumOptimizer(0.1, 0.9)
    optimizer.apply_gradients([(tf.zeros_like(w), w)])
    return {"optimizer": optimizer, "w": w}

  old, new = make(tf.float16), make(tf.float32)
  old["optimizer"].get_slot(old["w"], "momentum").assign([3.0, 4.0])
  path = tf.train.Checkpoint(**old).save(str(tmp_path / "c"))
  new["w"].assign([0.0, 0.0])
  with pytest.raises(checkpoint.CheckpointError, match="cast=True"):
    checkpoint.restore(None, path, new)
  assert new["w"].numpy().tolist() == [0, 0]
  checkpoint.restore(None, path, new, cast=True)
  slot = new["optimizer"].get_slot(new["w"], "momentum")
  assert slot.numpy().tolist() == [3, 4]
  assert new["w"].numpy().tolist() == [1, 2]


def test_layers_that_are_not_built(tmp_path):
  """Checks that a layer's weights are not left out in silence."""
  layers = [k2.layers.Dense(2), k2.layers.Dense(2)]
  layers[0].build([None, 3])
  w = tf.Variable(1.0)
  objects = {"kernel": w, "layer": layers[1]}
  saved = tf.train.Checkpoint(kernel=w, layer=layers[0])
  path = saved.save(str(tmp_path / "c"))
  with pytest.raises(checkpoint.CheckpointError, match=r"layer .*not built"):
    checkpoint.restore(None, path, objects)
  layers[1].build([None, 3])
  checkpoint.restore(None, path, objects)
  np.testing.assert_array_equal(layers[1].kernel, layers[0].kernel)
