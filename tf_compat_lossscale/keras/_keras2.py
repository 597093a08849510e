# SPDX-License-Identifier: Apache-2.0
"""Imports Keras 2, and reaches the parts of it that have no public name.

`keras` is `tf.keras` if that is Keras 2, else the package tf_keras. This module
does not import Keras 3.
"""

from __future__ import annotations

from collections.abc import Callable
import copy
import functools
import importlib
import sys
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import _releases
from tf_compat_lossscale._core import installation
from tf_compat_lossscale._core import patching


def _find_keras() -> Any:
  """Returns Keras 2.

  Raises:
    ImportError: Keras 2 is not installed.
  """
  release = tuple(map(int, tf.__version__.split(".")[:2]))
  if release < _releases.WITH_KERAS_3:
    return tf.keras
  try:
    return importlib.import_module("tf_keras")
  except ImportError as error:
    if error.name != "tf_keras":
      raise
    raise ImportError(
      "tf_compat_lossscale.keras needs Keras 2, which is not installed: "
      + installation.make_command("tf_keras", release),
      name="tf_keras",
    ) from None


keras: Any = _find_keras()

LegacyOptimizer = keras.optimizers.legacy.Optimizer
# `keras.optimizers.Optimizer` may be the legacy class: `install` can do that.
Optimizer = keras.optimizers.experimental.Optimizer

# The public class is abstract. Keras has a subclass for each kind of optimizer,
# and neither has a public name.
BaseLossScaleOptimizer = keras.mixed_precision.LossScaleOptimizer
_module = sys.modules[BaseLossScaleOptimizer.__module__]
LossScaleOptimizerOfLegacy = _module.LossScaleOptimizer
LossScaleOptimizerOfNew = _module.LossScaleOptimizerV3
# The state of a dynamic loss scale; and a node of a checkpoint, which restores
# slots that TensorFlow 2.2 saved there.
State: Any = _module._DynamicLossScaleState
RestoresSlots: Any = _module.FakeOptimizerForRestoration

# Keras notes calls of `get_scaled_loss` and `get_unscaled_gradients`, and warns
# at each step without them.
CALLED = dict.fromkeys(
  ("_loss_has_been_scaled", "_gradients_have_been_unscaled"), True
)


class _TellsSkips:
  """Stands for a wrapped optimizer within Keras's `apply_gradients`."""

  def __init__(self, optimizer: Any, on_skip: Callable[[], None]) -> None:
    self._wrapped, self._on_skip = optimizer, on_skip

  def __getattr__(self, name: str) -> Any:
    if name == "iterations":  # Only the branch of a skipped step reads it.
      self._on_skip()
    return getattr(self._wrapped, name)


def tell_skips(optimizer: Any, state: Any, on_skip: Callable[[], None]) -> Any:
  """Returns a twin for one step, whose branch that skips calls `on_skip`."""
  wrapped = _TellsSkips(optimizer.inner_optimizer, on_skip)
  twin = object.__new__(type(optimizer))
  twin.__dict__.update(vars(optimizer), _loss_scale=state, _optimizer=wrapped)
  return twin


def initialize_in_sessions(variable: tf.Variable) -> None:
  """Makes Keras initialize a variable of a graph before it runs a session."""
  _module.backend.track_variable(variable)


def register_like(cls: type, other: type) -> None:
  """Makes Keras write `cls` in files under the name of `other`.

  `keras.utils.register_keras_serializable` gives a name to a single class.
  """
  module = sys.modules[keras.utils.get_registered_name.__module__]
  names = module._GLOBAL_CUSTOM_NAMES
  if other in names:
    names[cls] = names[other]


def make_optimizer(config: Any, custom_objects: Any = None) -> Any:
  """Makes an optimizer from a config that any release of Keras 2 wrote.

  A config of a release up to 2.10 gives a legacy optimizer; a config of a later
  release says which kind its optimizer is. An optimizer is returned as it is.

  Raises:
    ValueError: `config` is neither a config nor an optimizer.
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


def count_products(optimizer: Any) -> None:
  """Makes a newer Nadam go on after its `iterations`.

  It counts, in plain Python and not in a variable, how often its product of
  momentums was computed. If the count lags behind, Nadam multiplies the product
  anew for each variable. A checkpoint of Keras does not have that count.
  """
  if hasattr(optimizer, "_u_product_counter"):
    optimizer._u_product_counter = int(tf.identity(optimizer.iterations)) + 1


def find_slots(optimizer: Any, variable: tf.Variable) -> dict[str, Any]:
  """Returns the slots that a legacy optimizer has for a variable, by name."""
  module = sys.modules[LegacyOptimizer.__module__]
  return dict(optimizer._slots.get(module._var_key(variable), {}))


def find_index(optimizer: Any, variable: tf.Variable) -> int | None:
  """Returns the place of a weight in the lists of a newer optimizer.

  None if the optimizer does not train the weight.
  """
  if not isinstance(optimizer, Optimizer):
    return None
  indexes: dict[Any, int] = getattr(optimizer, "_index_dict", {})
  return indexes.get(optimizer._var_key(variable))


_Wrap = Callable[[Any, Callable[[], Any], bool], Any]

_log = patching.UndoLog()
_wrap: _Wrap | None = None  # What `wrap_in_compile` got.


def wrap_in_compile(wrap: _Wrap) -> None:
  """Makes `Model.compile` ask `wrap` for the optimizer of a model.

  Keras looks at the name of the model's policy alone, and ignores a policy's
  loss scale. A second call replaces the function to ask.

  `wrap` takes a model's policy, a function that returns the optimizer, and
  whether the model is in a graph of TensorFlow 1, where the function may return
  a list. It returns the optimizer to use, or None to leave the choice to Keras.
  """
  global _wrap
  _wrap = wrap
  model = keras.Model
  v1 = importlib.import_module(
    model.__module__.replace(".training", ".training_v1")
  ).Model
  for cls, method in ((model, _get_optimizer), (v1, _set_optimizer)):
    if not _log.has_set(method):
      own = getattr(cls, method.__name__)
      _log.set(cls, method.__name__, functools.wraps(own)(method))


def is_wrapped_in_compile() -> bool:
  """Returns whether `Model.compile` asks a function of this package."""
  return _wrap is not None


def restore_compile() -> None:
  """Takes back `wrap_in_compile`.

  If a program has wrapped a method since, the method stays, and behaves as
  Keras's own.
  """
  global _wrap
  _wrap = None
  _log.undo()


def _get_optimizer(self: Any, optimizer: Any) -> Any:
  """Stands for the method of `keras.Model`."""
  own, wrap = vars(_get_optimizer)["__wrapped__"], _wrap
  if wrap is None:
    return own(self, optimizer)

  def choose(given: Any) -> Any:
    get = functools.partial(keras.optimizers.get, given)
    chosen = wrap(self.dtype_policy, get, False)
    return own(self, given) if chosen is None else chosen

  return tf.nest.map_structure(choose, optimizer)


def _set_optimizer(self: Any, optimizer: Any) -> None:
  """Stands for the method of the model for TensorFlow 1."""

  def get(given: Any = optimizer) -> Any:
    if isinstance(given, (list, tuple)):
      return [get(each) for each in given]
    if isinstance(given, Optimizer):
      return given  # Keras would fail to convert it to a legacy optimizer.
    # In graphs, a name means the legacy optimizer.
    legacy = {"use_legacy_optimizer": True} if isinstance(given, str) else {}
    return keras.optimizers.get(given, **legacy)

  chosen = None if _wrap is None else _wrap(self._dtype_policy, get, True)
  if chosen is None:
    vars(_set_optimizer)["__wrapped__"](self, optimizer)
  else:
    self.optimizer = chosen


def read_object_graph(reader: Any) -> Any:
  """Returns the object graph of a checkpoint, as a TrackableObjectGraph.

  `tf.train.CheckpointView` is public but shows no slots. The class of the
  message has no public name. `tf.train.load_checkpoint` makes the reader.
  """
  module = importlib.import_module(
    "tensorflow.core.protobuf.trackable_object_graph_pb2"
  )
  return module.TrackableObjectGraph.FromString(
    reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
  )


# Keras loads some optimizers of SavedModels as objects of these classes, which
# hold variables but cannot train. They have no public names.
_RESTORED = tuple(
  sys.modules[cls.__module__].RestoredOptimizer
  for cls in (LegacyOptimizer, Optimizer)
)


def can_train(value: Any) -> bool:
  """Returns whether `value` is an optimizer that can train."""
  kinds = (LegacyOptimizer, Optimizer)
  return isinstance(value, kinds) and not isinstance(value, _RESTORED)


def compile_as_saved(model: Any) -> None:
  """Compiles a model within a loaded model, if it was compiled when saved.

  Keras compiles the outer model alone, so the inner models have no optimizer
  that can train. The arguments of their `compile` have no public name.

  `compile` fixes which variables a model trains. So an inner model that is
  frozen now, such as the discriminator of a GAN, was compiled before it was
  frozen.
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
  # Outer layers first: `trainable` of a layer also sets its inner layers.
  for layer, trainable in zip(layers, was):
    layer.trainable = trainable


def create_weights(optimizer: Any, variables: list[Any]) -> None:
  """Makes an optimizer's variables.

  For legacy optimizers the public way is `minimize`, which also takes a step.
  """
  if isinstance(optimizer, Optimizer):
    optimizer.build(variables)
  else:
    optimizer._create_all_weights(variables)


def has_weights(optimizer: Any) -> bool:
  """Returns whether an optimizer has made its slots, if it needs any."""
  inner = getattr(optimizer, "inner_optimizer", optimizer)
  if isinstance(inner, Optimizer):
    return bool(getattr(inner, "_built", False))
  return bool(inner._slots) or int(tf.identity(inner.iterations)) > 0
