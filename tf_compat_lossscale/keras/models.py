"""Loads models of Keras 2 with the state of their loss scales."""

from __future__ import annotations

import os
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale.keras import _keras2


def is_keras_2(model: Any) -> bool:
  """Returns whether `model` is a model of Keras 2."""
  return isinstance(model, _keras2.keras.Model)


def load_model(path: Any, **kwargs: Any) -> Any:
  """Loads a model as Keras does, and its loss scale with it.

  `tf.keras.models.load_model` starts from the initial loss scale. A SavedModel
  has the current one and its counter, in its variables; here they come back.

  Args:
    path: A SavedModel's folder, or what else Keras loads models from; that has
      no loss scale in it.
    **kwargs: What `tf.keras.models.load_model` takes.

  Returns:
    The model.
  """
  model = _keras2.keras.models.load_model(path, **kwargs)
  optimizer = getattr(model, "optimizer", None)
  variables = os.path.join(os.fspath(path), "variables", "variables")
  if (
    not isinstance(optimizer, _keras2.BaseLossScaleOptimizer)
    or not optimizer.dynamic
  ):
    return model
  if not tf.io.gfile.exists(variables + ".index"):
    return model
  state = optimizer._loss_scale
  for key, variable in (
    ("current_loss_scale", state.current_loss_scale),
    ("good_steps", state.counter),
  ):
    found = [
      name
      for name, _ in tf.train.list_variables(variables)
      if f"/loss_scale/{key}/" in name
    ]
    if len(found) == 1:
      value = tf.train.load_variable(variables, found[0])
      if tf.executing_eagerly():
        variable.assign(value)
      else:
        variable.load(value, _keras2.keras.backend.get_session())
  return model
