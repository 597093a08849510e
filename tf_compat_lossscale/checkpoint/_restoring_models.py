# SPDX-License-Identifier: Apache-2.0
"""Restores Keras's own files into models that exist already."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale.checkpoint import _restoring_objects
from tf_compat_lossscale.checkpoint.description import Description
from tf_compat_lossscale.checkpoint.files import opening
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.report import Report

_INITIAL = "the file has its initial value alone"
_OWN_FORMATS = "Keras 3 restores optimizers from its own formats alone"


def restore_model(
  description: Description, objects: Any, missing: str = "error"
) -> Report:
  """Restores a Keras file into a model.

  Args:
    description: The description of the file.
    objects: The model, or a dict with it as 'model'.
    missing: 'error', or 'initialize' to initialize variables that the file
      does not have. Keras 3 restores its models itself; this has no effect.

  Returns:
    The source of each variable's value.

  Raises:
    CheckpointError: The file does not fit the model, or there is no model.
  """
  model: Any = objects.get("model") if isinstance(objects, dict) else objects
  path = description.path
  if not hasattr(model, "load_weights"):
    raise CheckpointError(
      f"{path}: a Keras file is restored into a Keras model: give it as the "
      "objects, or load it anew with tf_compat_lossscale.keras.load_model()"
    )
  try:
    with opening.make_local(path) as local:
      if not _is_keras_2(model):
        model.load_weights(local)
        # Keras 3 restores the optimizer from its own formats alone.
        keys = sorted(description.keys)
        left = tuple(k for k in keys if k.startswith("optimizer_weights/"))
        restored = {key: key for key in keys if key not in left}
        own = model.optimizer.variables if left and model.optimizer else ()
        kept = {f"optimizer/{v.path}": _OWN_FORMATS for v in own}
        return Report(path, restored=restored, kept=kept, unused=left)
      # Keras 2 restores an optimizer only into a new model. So the file is
      # loaded as a new model, which is saved as a checkpoint and restored from
      # there.
      from tf_compat_lossscale import keras

      saved = tf.train.Checkpoint(model=keras.load_model(local))
  except (ImportError, OSError, ValueError, TypeError, KeyError) as error:
    raise CheckpointError(f"{path}: {' '.join(str(error).split())}") from None
  with tempfile.TemporaryDirectory() as folder:
    prefix = saved.write(os.path.join(folder, "model"))
    try:
      report = _restoring_objects.restore_objects(
        None, Bundle(prefix), {"model": model}, missing
      )
    except CheckpointError as error:  # The message names the temporary file.
      raise CheckpointError(str(error).replace(prefix, path)) from None
  scales = [
    name
    for name in (*report.restored, *report.bridged)
    if "/loss_scale/" in f"/{name}"
  ]
  return dataclasses.replace(
    report,
    path=path,
    restored={k: v for k, v in report.restored.items() if k not in scales},
    bridged={k: v for k, v in report.bridged.items() if k not in scales},
    proofs={k: v for k, v in report.proofs.items() if k not in scales},
    initialized=report.initialized | dict.fromkeys(scales, _INITIAL),
  )


def _is_keras_2(model: Any) -> bool:
  """Returns whether a model is of Keras 2; False if Keras 2 is missing."""
  try:
    from tf_compat_lossscale.keras import models
  except ImportError:
    return False
  return models.is_keras_2(model)
