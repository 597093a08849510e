# SPDX-License-Identifier: Apache-2.0
"""Tests copies and pickles of optimizers, before and after a step."""

import copy
import pickle

import helpers
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import keras
from tf_compat_lossscale.keras import _keras2

tf1 = tf.compat.v1
_INF = float("inf")


def scaled():
  return tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.MomentumOptimizer(0.5, 0.5), tfl.DynamicLossScale(8, 100)
  )


def with_manager():
  return contrib.LossScaleOptimizer(
    tf1.train.MomentumOptimizer(0.5, 0.5),
    contrib.ExponentialUpdateLossScaleManager(8, 100, 1, decr_ratio=0.5),
  )


def of_keras(optimizers):
  return keras.LossScaleOptimizer(
    optimizers.SGD(0.5, 0.5), tfl.DynamicLossScale(8, 100)
  )


_MAKERS = {
  "compat.v1": scaled,
  "contrib": with_manager,
  "accumulate": lambda: tfl.accumulate(scaled(), 1),
  "keras_legacy": lambda: of_keras(_keras2.keras.optimizers.legacy),
  "keras_new": lambda: of_keras(_keras2.keras.optimizers),
}
_COPIES = {
  "copy": copy.copy,
  "deepcopy": copy.deepcopy,
  "pickle": lambda opt: pickle.loads(pickle.dumps(opt)),
}
# What Keras itself cannot do with its own loss-scale optimizers.
_REFUSED = {
  "keras_legacy": ("pickle",),
  "keras_new": ("deepcopy", "pickle"),
}


def step(opt, w, factor):
  """Does a step, and returns what it subtracts from a variable."""
  before = float(w)
  opt.minimize(lambda: w * factor, var_list=[w])
  return before - float(w)


def scale_of(opt):
  return float(opt.loss_scale() if callable(opt.loss_scale) else opt.loss_scale)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
  ("name", "way"),
  [
    (name, way)
    for name in _MAKERS
    for way in _COPIES
    if way not in _REFUSED.get(name, ())
  ],
)
def test_copies_train(name, way, used):
  opt, w = _MAKERS[name](), tf.Variable(1.0)
  if used:
    assert step(opt, w, 1.0) == 0.5
  twin = _COPIES[way](opt)
  assert type(twin) is type(opt)
  if used:
    assert bool(twin.last_step_applied)
  assert step(twin, w, _INF) == 0 and not twin.last_step_applied
  assert step(opt, w, 1.0) == (0.75 if used else 0.5) and opt.last_step_applied
  assert not twin.last_step_applied
  assert scale_of(twin) == 4
  assert scale_of(opt) == (4 if way == "copy" else 8)  # It shares its parts.


if __name__ == "__main__":
  helpers.main()
