"""Keras 2, and the parts of it that have no public name.

`keras` is `tf.keras` where that is Keras 2, else the package tf_keras. Nothing
here imports Keras 3.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import copy
import functools
import importlib
import sys
from typing import Any

import tensorflow.compat.v2 as tf

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


def hyperparameters(optimizer: Any) -> dict[str, Any]:
  """Returns hyperparameters as an optimizer keeps them, not their values now.

  `get_config` calls a function and returns a number, which does not show that
  the number changes.
  """
  if isinstance(optimizer, LegacyOptimizer):
    return dict(optimizer._hyper)
  return {"learning_rate": optimizer._learning_rate}


def slots(optimizer: Any, lists: Sequence[str]) -> dict[Any, dict[str, Any]]:
  """Returns an optimizer's slots: a variable's key -> name -> slot.

  Args:
    optimizer: A legacy optimizer, whose slots have names; or a newer one, which
      keeps a list for each kind of slot.
    lists: The attributes that such lists are.

  Returns:
    The slots, by the names that a legacy optimizer gives them, or by the list.
    Variables come in the order in which the optimizer was given them.
  """
  if isinstance(optimizer, LegacyOptimizer):
    return {key: dict(named) for key, named in optimizer._slots.items()}
  found: dict[Any, dict[str, Any]] = {}
  for key, index in getattr(optimizer, "_index_dict", {}).items():
    held = {name: getattr(optimizer, name, ()) for name in lists}
    found[key] = {name: held[name][index] for name in lists if held[name]}
  return found


def slot_key(optimizer: Any, variable: tf.Variable) -> Any:
  """Returns what `slots` calls a variable."""
  if isinstance(optimizer, LegacyOptimizer):
    module = sys.modules[LegacyOptimizer.__module__]
    return module._var_key(variable)
  return optimizer._var_key(variable)


def exclusions(optimizer: Any) -> tuple[list[Any], list[str]]:
  """Returns what `exclude_from_weight_decay` was told: keys and name patterns.

  An optimizer without weight decay has no exclusions.
  """
  if not getattr(optimizer, "weight_decay", None):
    return [], []
  return (
    list(getattr(optimizer, "_exclude_from_weight_decay", ())),
    list(getattr(optimizer, "_exclude_from_weight_decay_names", ())),
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


def object_graph(reader: Any) -> Any:
  """Returns the graph of objects that a checkpoint describes.

  `tf.train.CheckpointView` is public and shows no slots. The class of the
  message has no public name.

  Args:
    reader: What `tf.train.load_checkpoint` returned.
  """
  module = importlib.import_module(
    "tensorflow.core.protobuf.trackable_object_graph_pb2"
  )
  return module.TrackableObjectGraph.FromString(
    reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
  )


# What stands for an optimizer that a SavedModel has: it has no name of its own.
_RESTORED = tuple(
  sys.modules[cls.__module__].RestoredOptimizer
  for cls in (LegacyOptimizer, Optimizer)
)


def can_train(value: Any) -> bool:
  """Returns whether `value` is an optimizer, and no stand-in for one."""
  kinds = (LegacyOptimizer, Optimizer)
  return isinstance(value, kinds) and not isinstance(value, _RESTORED)


def compile_as_saved(model: Any) -> None:
  """Compiles a model that is part of a loaded one, if it was compiled then.

  Keras does so for the whole, and leaves its parts without an optimizer that
  can train. There is no public way to what a part was compiled with.

  A model trains what is trainable when it is compiled. So a part that is frozen
  now, such as the discriminator of a GAN, was not yet when it was compiled.
  """
  attributes = getattr(model, "_serialized_attributes", None) or {}
  config = attributes.get("metadata", {}).get("training_config")
  if not isinstance(model, keras.Model) or config is None:
    return
  utils = importlib.import_module(
    keras.Model.__module__.replace(
      ".engine.training", ".saving.legacy.saving_utils"
    )
  )
  layers = [
    layer
    for layer in (model, *model.submodules)
    if isinstance(layer, keras.layers.Layer)
  ]
  was = [layer.trainable for layer in layers]
  if not model.trainable:
    model.trainable = True
  model.compile(
    **utils.compile_args_from_training_config(config), from_serialized=True
  )
  for layer, trainable in zip(layers, was):  # A layer's own are after it.
    layer.trainable = trainable


def create_weights(optimizer: Any, variables: list[Any]) -> None:
  """Makes a legacy optimizer's variables; `minimize` alone does so publicly."""
  optimizer._create_all_weights(variables)


def slot_of(optimizer: Any, variable: Any, name: str) -> Any:
  """Returns a legacy optimizer's slot; None if there is none.

  `get_slot` fails then, with a KeyError that does not say for what.
  """
  if variable is None or name not in optimizer.get_slot_names():
    return None
  try:
    return optimizer.get_slot(variable, name)
  except KeyError:
    return None


def trains_as_keras(model: Any) -> bool:
  """Returns whether `fit` trains all of a model's trainable variables."""
  return type(model).train_step is keras.Model.train_step
