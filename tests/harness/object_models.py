# SPDX-License-Identifier: Apache-2.0
"""Builds optimizers that are saved and restored by object."""

import contextlib

import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1
INNER = {
  "sgd": lambda: tf1.train.GradientDescentOptimizer(0.1),
  "adam": lambda: tf1.train.AdamOptimizer(0.1),
  "momentum": lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
  "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.1),
  "adagrad": lambda: tf1.train.AdagradOptimizer(0.1),
}
WRAPPERS = {
  "plain": lambda opt: opt,
  "fixed": lambda opt: tfl.MixedPrecisionLossScaleOptimizer(opt, 4.0),
  "dynamic": lambda opt: tfl.MixedPrecisionLossScaleOptimizer(
    opt, tfl.DynamicLossScale(8.0, 100)
  ),
  "contrib": lambda opt: tfl.contrib.LossScaleOptimizer(
    opt, tfl.contrib.ExponentialUpdateLossScaleManager(16.0, 100)
  ),
}


class Model:
  """A model of optimizers with two variables each.

  Args:
    spec: (kind of optimizer, kind of wrapper) for each optimizer.
    session: The session of the graph, or None to run eagerly.
  """

  def __init__(self, spec, session=None):
    self.spec, self.session, self.objects, self.parts = spec, session, {}, []
    for i, (inner, wrapper) in enumerate(spec):
      w = tf1.Variable(np.ones(2, "f"), name="w", use_resource=True)
      b = tf1.Variable(np.ones(3, "f"), name="b", use_resource=True)
      opt = INNER[inner]()
      outer = WRAPPERS[wrapper](opt)
      self.parts.append((outer, opt, w, b))
      self.objects |= {f"opt{i}": outer, f"w{i}": w, f"b{i}": b}

  def train(self):
    """Trains a step eagerly, or builds it and initializes; returns `self`."""
    for outer, _, w, b in self.parts:
      self._minimize(outer, w, b)
    if self.session:
      self.session.run(tf1.global_variables_initializer())
    return self

  def _minimize(self, outer, w, b):
    def loss():
      return tf.reduce_sum(w * w) + tf.reduce_sum(b)

    outer.minimize(loss if self.session is None else loss(), var_list=[w, b])

  def roles(self):
    """Returns role -> variable; "0/w/m" is slot m of w of optimizer 0."""
    roles = {}
    for i, (outer, opt, w, b) in enumerate(self.parts):
      inner, wrapper = self.spec[i]
      roles |= {f"{i}/w": w, f"{i}/b": b}
      for name in opt.get_slot_names():
        for v, variable in (("w", w), ("b", b)):
          slot = opt.get_slot(variable, name)
          if slot is not None:
            roles[f"{i}/{v}/{name}"] = slot
      if inner == "adam":
        for name, power in zip(("b1", "b2"), opt._get_beta_accumulators()):
          if power is not None:
            roles[f"{i}/{name}"] = power
      if wrapper in ("dynamic", "contrib"):
        weights = getattr(outer._loss_scale, "manager", outer._loss_scale)
        names = ("scale", "good", "bad")
        for key, weight in weights._weights.items():
          (name,) = (n for n in names if n in key)
          roles[f"{i}/{name}"] = weight
    return roles

  def values(self):
    """Returns role -> value, the same for all elements of the variable."""
    result = {}
    for role, variable in self.roles().items():
      value = np.ravel(
        self.session.run(variable) if self.session else variable.numpy()
      )
      assert (value == value[0]).all(), role
      result[role] = float(value[0])
    return result

  def stamp(self, start):
    """Sets each variable to a different value; the lowest is `start`."""
    for i, (_, variable) in enumerate(sorted(self.roles().items())):
      value = np.full(variable.shape, start + i, variable.dtype.as_numpy_dtype)
      if self.session:
        op = variable.initializer
        self.session.run(op, {op.inputs[1]: value})
      else:
        variable.assign(value)
    return self

  def save(self, folder):
    """Saves the model by object; returns the path."""
    scope = self.session.as_default if self.session else contextlib.nullcontext
    with scope():
      return tf.train.Checkpoint(**self.objects).save(str(folder / "ckpt"))

  def restore(self, path, **kwargs):
    """Restores the model by object; returns the report."""
    return checkpoint.restore(self.session, path, self.objects, **kwargs)
