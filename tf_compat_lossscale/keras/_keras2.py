"""Keras 2, and the parts of it that have no public name.

`keras` is `tf.keras` where that is Keras 2, else the package tf_keras. Nothing
here imports Keras 3.
"""

from __future__ import annotations

from collections.abc import Callable
import copy
import functools
import importlib
import sys
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import _tf
from tf_compat_lossscale import which_keras


def _find() -> Any:
  release = tuple(map(int, tf.__version__.split(".")[:2]))
  if release < (2, 16):
    return tf.keras
  try:
    return importlib.import_module("tf_keras")
  except ImportError as error:
    if error.name != "tf_keras":
      raise
    raise ImportError(
      "tf_compat_lossscale.keras needs Keras 2, which is not installed: "
      + which_keras.how_to_install(release),
      name="tf_keras",
    ) from None


keras = _find()

LegacyOptimizer = keras.optimizers.legacy.Optimizer
Optimizer = keras.optimizers.Optimizer

# What `keras.mixed_precision.LossScaleOptimizer` is: a class of which there are
# two, one for either kind of optimizer. They have no names of their own.
BaseLossScaleOptimizer = keras.mixed_precision.LossScaleOptimizer
_module = sys.modules[BaseLossScaleOptimizer.__module__]
LossScaleOptimizerOfLegacy = _module.LossScaleOptimizer
LossScaleOptimizerOfNew = _module.LossScaleOptimizerV3


def register_like(cls: type, other: type) -> None:
  """Has Keras name `cls` in files as it names `other`.

  `keras.utils.register_keras_serializable` gives a name to a single class.
  """
  module = sys.modules[keras.utils.get_registered_name.__module__]
  names = module._GLOBAL_CUSTOM_NAMES
  if other in names:
    names[cls] = names[other]


def optimizer_of_config(config: Any, custom_objects: Any = None) -> Any:
  """Makes an optimizer of what any Keras 2 wrote of one.

  What releases up to 2.10 wrote are legacy optimizers now; newer ones say which
  kind they are.

  Args:
    config: `{'class_name': …, 'config': …}`, or an optimizer.
    custom_objects: Classes by name, beside those that Keras knows.

  Returns:
    An optimizer.

  Raises:
    ValueError: `config` is none of these.
  """
  if isinstance(config, (LegacyOptimizer, Optimizer)):
    return config
  if not isinstance(config, dict) or "class_name" not in config:
    raise ValueError(
      "An optimizer's config has 'class_name' and 'config', but got "
      f"{config!r}."
    )
  arguments = config.get("config", {})
  is_new = "is_legacy_optimizer" in arguments or "jit_compile" in arguments
  legacy = bool(arguments.get("is_legacy_optimizer", not is_new))
  return keras.optimizers.deserialize(
    copy.deepcopy(config),  # Keras writes in it.
    custom_objects=custom_objects,
    use_legacy_format="registered_name" not in config,
    use_legacy_optimizer=legacy,
  )


def wrap_in_compile(
  wrap: Callable[[Any, Callable[[], Any], bool], Any],
) -> None:
  """Has `Model.compile` ask `wrap` for the optimizer of a model.

  Keras decides by the name of the model's policy alone, and has no place for a
  policy that knows of a loss scale.

  Args:
    wrap: Takes a model's policy, a function that gives the optimizer, and
      whether that is for a graph of TensorFlow 1, where it may give a list of
      optimizers. Returns what to use, or None to leave that to Keras.
  """
  model = keras.Model
  v1 = importlib.import_module(
    model.__module__.replace(".training", ".training_v1")
  ).Model
  get_optimizer, set_optimizer = model._get_optimizer, v1._set_optimizer

  @functools.wraps(get_optimizer)
  def _get_optimizer(self: Any, optimizer: Any) -> Any:
    def wrapped(one: Any) -> Any:
      get = functools.partial(keras.optimizers.get, one)
      own = wrap(self.dtype_policy, get, False)
      return get_optimizer(self, one) if own is None else own

    return tf.nest.map_structure(wrapped, optimizer)

  @functools.wraps(set_optimizer)
  def _set_optimizer(self: Any, optimizer: Any) -> None:
    def get(one: Any = optimizer) -> Any:
      if isinstance(one, (list, tuple)):
        return [get(each) for each in one]
      if isinstance(one, Optimizer):
        return one  # Keras fails in making it a legacy one.
      # By a name, graphs mean the legacy optimizer.
      legacy = {"use_legacy_optimizer": True} if isinstance(one, str) else {}
      return keras.optimizers.get(one, **legacy)

    own = wrap(self._dtype_policy, get, True)
    if own is None:
      set_optimizer(self, optimizer)
    else:
      self.optimizer = own

  model._get_optimizer = _get_optimizer
  v1._set_optimizer = _set_optimizer


class RestoredAsBaseOptimizer(_tf.Trackable):
  """Lets an optimizer take what TensorFlow 1.14 to 2.2 saved for it.

  They had the wrapped optimizer below the loss-scale one, as `base_optimizer`;
  since 2.3 it is in its place. This stands at the old path, has nothing to
  save, and hands what a checkpoint has for it to the optimizer.
  """

  def __init__(self, optimizer: Any) -> None:
    self._optimizer = optimizer
    self.was_restored = False

  def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {}

  def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
    self.was_restored = True
    return self._optimizer._lookup_dependency(name, *args, **kwargs)

  @property
  def _deferred_dependencies(self) -> Any:
    # What the optimizer has not made yet, it will look for here.
    return self._optimizer._deferred_dependencies

  def get_slot_names(self) -> list[str]:
    return self._optimizer.get_slot_names()

  def _create_or_restore_slot_variable(self, *args: Any, **kwargs: Any) -> Any:
    return self._optimizer._create_or_restore_slot_variable(*args, **kwargs)


class NotCounting:
  """An optimizer, but for steps counted by others than itself."""

  def __init__(self, optimizer: Any) -> None:
    self._optimizer = optimizer

  @property
  def iterations(self) -> NotCounting:
    return self

  def assign_add(self, *args: Any, **kwargs: Any) -> tf.Operation | None:
    return tf.no_op()

  def __getattr__(self, name: str) -> Any:
    return getattr(self._optimizer, name)
