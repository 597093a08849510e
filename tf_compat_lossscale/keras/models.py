# SPDX-License-Identifier: Apache-2.0
"""Loads models of Keras 2 with the state of their loss scales."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any
import zipfile

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _saved_models

_ADVICE = (
  "To keep all of it, save a SavedModel: model.save(path, save_format='tf')."
)


def is_keras_2(model: Any) -> bool:
  """Returns whether `model` is a model of Keras 2."""
  return _keras2.is_model(model)


def load_model(
  path: Any, custom_objects: Any = None, compile: bool = True, **kwargs: Any
) -> Any:
  """Loads a model as Keras does, with its optimizers as they were saved.

  `tf.keras.models.load_model` starts with the initial loss scale; if it loads a
  SavedModel, also with new slots and from iteration 0. This function restores
  the loss scale, the slots and the iterations from a SavedModel, for the model
  and the models within it. Other files have no loss scale, and a warning says
  so.

  With `compile=False` no optimizer is loaded. To restore the optimizers later,
  compile the model as it was, then call
  `tf_compat_lossscale.checkpoint.restore(None, path, model)`. Do the same if
  the model's `compile` takes optimizers by other names than Keras's.

  Args:
    path: A SavedModel's folder, an `.h5` or `.keras` file, or an `h5py.File`.
    custom_objects: More classes and functions for Keras to find, by name.
    compile: Whether to compile the model, if it was compiled.
    **kwargs: Other arguments of `tf.keras.models.load_model`.

  Returns:
    The model.

  Raises:
    ImportError: `path` is an HDF5 file, and h5py is not installed.
    OSError: There is no file at `path` that Keras loads.
    ValueError: Keras 3 saved the file.
  """
  _check_generation(path)
  model = _keras2.keras.models.load_model(
    path, custom_objects=custom_objects, compile=compile, **kwargs
  )
  if not compile or not is_keras_2(model):
    return model
  checkpoint = _saved_models.find_checkpoint(path)
  if checkpoint is not None:
    _saved_models.restore_optimizers(model, checkpoint, custom_objects)
  else:
    _set_weights(path, model)
    _warn_of_new_state(path, model)
  return model


def _check_generation(path: Any) -> None:
  """Checks that Keras 3 did not write a `.keras` file.

  Raises:
    ValueError: Keras 3 wrote the file.
  """
  if not isinstance(path, (str, os.PathLike)) or not zipfile.is_zipfile(path):
    return
  with zipfile.ZipFile(path) as file:
    if "metadata.json" not in file.namelist():
      return
    version = str(json.loads(file.read("metadata.json")).get("keras_version"))
  if int(version.split(".")[0]) >= 3:
    raise ValueError(
      f"{os.fspath(path)}: Keras {version} saved this model, and Keras 2 does "
      "not load it. Load it with keras.models.load_model of Keras 3, whose "
      "files have the loss scale, too."
    )


def _set_weights(path: Any, model: Any) -> None:
  """Sets a newer optimizer's weights from an HDF5 file.

  Keras sets the weights of other optimizers, but takes a LossScaleOptimizer for
  an optimizer that is not built.
  """
  optimizer = getattr(model, "optimizer", None)
  if not isinstance(optimizer, _keras2.LossScaleOptimizerOfNew):
    return
  inner = optimizer.inner_optimizer
  import h5py  # Keras imported h5py when it loaded such a file.

  with contextlib.ExitStack() as stack:
    file = path
    if isinstance(path, (str, os.PathLike)):
      data = stack.enter_context(tf.io.gfile.GFile(os.fspath(path), "rb"))
      try:
        file = stack.enter_context(h5py.File(data, "r"))
      except OSError:  # Keras itself sets the weights of a zip file.
        return
    group = file.get("optimizer_weights")
    if group is None:
      return
    names = group.attrs["weight_names"]
    values = [group[name][()] for name in names]
  shapes = [tuple(variable.shape) for variable in inner.variables]
  if shapes == [value.shape for value in values]:
    inner.set_weights(values)


def _warn_of_new_state(path: Any, model: Any) -> None:
  """Logs that a file has no loss scale, if its model has optimizers.

  Args:
    path: The file.
    model: The model that Keras loaded from the file.
  """
  name = getattr(path, "filename", path)  # `path` may be an `h5py.File`.
  optimizers = [
    each.optimizer
    for each in (model, *model.submodules)
    if is_keras_2(each) and _keras2.can_train(getattr(each, "optimizer", None))
  ]
  lost = []
  if any(
    isinstance(each, _keras2.BaseLossScaleOptimizer) and each.dynamic
    for each in optimizers
  ):
    lost.append("dynamic loss scales and their counters")
  if zipfile.is_zipfile(name):
    if any(isinstance(each, _keras2.LegacyOptimizer) for each in optimizers):
      lost.append("iterations and slots of legacy optimizers")
    if not any(
      isinstance(each, _keras2.BaseLossScaleOptimizer) for each in optimizers
    ) and any(
      getattr(layer, "compute_dtype", None) == "float16"
      for layer in (model.submodules if optimizers else ())
    ):
      logging.warning(
        "%s: the loaded optimizer scales no loss, although layers compute in "
        "float16: the file does not say what compile made of the optimizer. "
        "Set the policy that the model was made with before you load it.",
        name,
      )
    with zipfile.ZipFile(name) as file:
      config = json.loads(file.read("config.json"))
    if _is_compiled(config.get("config")):
      logging.warning(
        "%s: models within this one were compiled. Keras does not compile them "
        "for a .keras file, so their optimizers are not loaded. %s",
        name,
        _ADVICE,
      )
  if lost:
    logging.warning(
      "%s: the file has no %s, which start from their initial values. %s",
      name,
      " and no ".join(lost),
      _ADVICE,
    )


def _is_compiled(config: Any) -> bool:
  """Returns whether a model in this part of a config was compiled."""
  if isinstance(config, dict):
    if config.get("compile_config"):
      return True
    config = list(config.values())
  return isinstance(config, list) and any(map(_is_compiled, config))
