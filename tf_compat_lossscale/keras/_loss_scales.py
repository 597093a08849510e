# SPDX-License-Identifier: Apache-2.0
"""Loss scales within optimizers of Keras 2: arguments, configs and state."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale._core import finite
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core.tf import autograph
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import graphs
from tf_compat_lossscale.keras import _keras2

_TENSORFLOWS = legacy_names.LOSS_SCALE_MODULE


def find(
  value: Any, also: tuple[str, ...] = ()
) -> loss_scale_lib.LossScale | None:
  """Returns the loss scale that an argument stands for.

  In a graph, a loss scale that this function makes leaves no variables in that
  graph: it makes its variables in each graph that uses it.

  Args:
    value: An argument of `loss_scale.get`, a loss scale of TensorFlow's own, or
      what an optimizer's `loss_scale` returned.
    also: What the caller allows beside loss scales, for the message.

  Returns:
    A loss scale of this package, or None for None.

  Raises:
    TypeError: `value` is a LossScale of a class that is based on TensorFlow's.
    ValueError: `value` is no loss scale.
  """
  if isinstance(value, ScaleRead):
    return value.read_from
  if value is None or isinstance(value, loss_scale_lib.LossScale):
    return value
  in_graph = graphs.find_graph() is not None
  with tf.Graph().as_default() if in_graph else contextlib.nullcontext():
    if not any(cls.__module__ == _TENSORFLOWS for cls in type(value).__mro__):
      return loss_scale_lib.make(value, also)
    cls = getattr(loss_scale_lib, type(value).__name__, None)
    if cls is None or type(value).__module__ != _TENSORFLOWS:
      raise TypeError(
        f"{value!r} is of a class of TensorFlow's loss scales that optimizers "
        f"do not take: base {type(value).__name__} on "
        "tf_compat_lossscale.LossScale."
      )
    return cls.from_config(value.get_config())


def find_for_optimizer(value: Any) -> loss_scale_lib.LossScale:
  """Returns the loss scale that an optimizer is to have.

  Optimizers with a loss scale that Keras's own class could have do not share
  it: as in TensorFlow 2.4 to 2.8, each has one of its own.

  Raises:
    TypeError: As `find` raises it.
    ValueError: `value` is None or no loss scale. The messages begin as those of
      TensorFlow 2.4 to 2.8 did.
  """
  try:
    scale = find(value)
  except ValueError as error:
    raise ValueError(f"Invalid value passed to loss_scale. {error}") from error
  if scale is None:
    raise ValueError(
      "loss_scale cannot be None: it must be 'dynamic', a number or a "
      "LossScale. To have none, use the optimizer as it is."
    )
  return copy(scale) if is_keras_own(scale) else scale


def copy(scale: loss_scale_lib.LossScale) -> loss_scale_lib.LossScale:
  """Returns a new loss scale with the same arguments, in the current graph.

  A loss scale of a program's own class is returned as it is.
  """
  if not _is_built_in(scale):
    return scale
  return type(scale).from_config(scale.get_config())


def _is_built_in(scale: Any) -> bool:
  """Returns whether a loss scale is of one of the package's own classes."""
  cls = type(scale)
  return loss_scale_lib.BUILT_IN.get(cls.__name__) == cls.__module__


def is_keras_own(scale: Any) -> bool:
  """Returns whether Keras's own optimizer could have a LossScale."""
  if type(scale) is loss_scale_lib.DynamicLossScale:
    return scale.multiplier == 2
  return is_fixed(scale)


def is_fixed(scale: Any) -> bool:
  """Returns whether a loss scale never changes and skips no step."""
  return type(scale) is loss_scale_lib.FixedLossScale


def to_config(scale: loss_scale_lib.LossScale) -> dict[str, Any]:
  """Returns the config of a loss scale, with the name of its class."""
  name = _keras2.keras.utils.get_registered_name(type(scale))
  return {"class_name": name, "config": scale.get_config()}


def from_config(config: Any, custom_objects: Any = None) -> Any:
  """Returns the loss scale of an optimizer's config.

  The config is what `to_config` returned, as TensorFlow 2.0 to 2.3 wrote it,
  too; or another argument of `find`.

  Raises:
    ValueError: `config` is of a class that is not known, or its arguments do
      not fit.
  """
  if not isinstance(config, dict) or "class_name" not in config:
    return find(config)
  name = config["class_name"]
  if name in loss_scale_lib.BUILT_IN:
    return find(config)
  cls = _keras2.keras.utils.get_registered_object(name, custom_objects)
  if cls is None:
    raise ValueError(
      f"the loss scale of the config {config!r} is of a class that is not "
      f"known: pass custom_objects={{{name!r}: ...}}, or decorate the class "
      "with tf.keras.utils.register_keras_serializable()."
    )
  return cls.from_config(config.get("config", {}))


class State(_keras2.State):
  """A loss scale in the place of the state of Keras's own optimizer.

  Keras checks the class, and calls `update` once in each step. So the loss
  scale's own rule decides.

  Attributes:
    scale: The LossScale.
    names: The names of the variables of the step that is being built.
    grads: The gradients of that step, once `update` has got them.
  """

  def __init__(self, optimizer: Any, scale: Any, names: Any = ()) -> None:
    self._optimizer = optimizer
    self.scale = scale
    self.names = list(names)
    self.grads: Any = ()

  @property
  def initial_loss_scale(self) -> Any:
    return self._find("initial_loss_scale", "_loss_scale_value")

  @property
  def growth_steps(self) -> Any:
    return self._find("increment_period", "growth_interval")

  @property
  def multiplier(self) -> Any:
    return self._find("multiplier", "growth_factor")

  @property
  def current_loss_scale(self) -> tf.Tensor:
    return tf.cast(autograph.convert(self.scale)(), tf.float32)

  @property
  def counter(self) -> Any:
    return getattr(self.scale, "good_steps", None)

  def __call__(self) -> tf.Tensor:
    return self.current_loss_scale

  def _find(self, *names: str) -> Any:
    """Returns the first of some attributes that the loss scale has, or None."""
    found = (getattr(self.scale, name, None) for name in names)
    return next((value for value in found if value is not None), None)

  def update(self, grads: Any) -> tuple[Any, Any]:
    """Updates the loss scale by the gradients of a step.

    Returns:
      An op, and whether to apply the gradients, as `LossScale.update` does.
    """
    self.grads = grads
    all_finite = None
    agreements = (
      vars(each).get(graph_weights.AGREEMENT)
      for each in (self._optimizer, self.scale)
    )
    agreement = next(filter(None, agreements), None)
    if agreement is not None:
      all_finite = agreement(self._are_finite(grads))
    elif not tf.distribute.in_cross_replica_context():
      all_finite = self._are_finite(grads)
    named = gradients.NamedGradients(grads, self.names, all_finite)
    op, answer = autograph.convert(self.scale.update)(named)
    step = loss_scale_optimizer.Step(answer, op, (), None)
    loss_scale_optimizer.keep_step(self._optimizer, step)
    op = self._optimizer.finish_update(op, answer)
    return tf.no_op() if op is None else op, answer

  def _are_finite(self, grads: Any) -> tf.Tensor:
    if tf.distribute.in_cross_replica_context():
      return gradients.all_replicas_finite(grads)
    return gradients.all_finite(grads)  # Keras has added them up before.


class SkipNotes:
  """What an optimizer keeps of the steps that it skips, for a callback.

  Attributes:
    scale: The optimizer's LossScale.
    value: The variable that changes with the scale, if there is one.
    rule: The optimizer's `SkippedSteps`, if it has one.
    vectors: Names of trained variables -> an int64 variable, which a skipped
      step alone writes: how many there were, and 1 for each gradient at fault.
  """

  def __init__(self, scale: loss_scale_lib.LossScale) -> None:
    self.scale = scale
    is_own = _is_built_in(scale)
    self.value = getattr(scale, "current_loss_scale", None) if is_own else None
    self.rule: Any = None
    self.vectors: dict[tuple[str, ...], tf.Variable] = {}

  def list_variables(self) -> dict[str, tf.Variable]:
    """Returns what only functions of a SavedModel need: name -> variable."""
    variables = list(self.vectors.values())
    if self.rule is not None:
      variables.append(self.rule.number)
    return {f"skip_note_{i}": each for i, each in enumerate(variables)}

  def write(self, state: State) -> None:
    """Adds a note of the step that `state` was updated by; in no session."""
    unwrap = tf.distribute.get_strategy().experimental_local_results
    key = tuple(state.names)
    # In a branch of a `tf.function`, the initial value would be lost.
    with tf.init_scope():
      if not tf.executing_eagerly():
        return
      if key not in self.vectors:
        zeros = np.zeros(1 + len(key), np.int64)
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.vectors[key] = tf.Variable(zeros, False, aggregation=once)
    vector = self.vectors[key]
    with tf.name_scope(control_flow.NAME_SCOPE):
      found = [vector[0] + 1]
      for grad in map(unwrap, state.grads):
        values = [getattr(x, "values", x) for x in grad]
        found.append(tf.cast(~finite.are_elements_finite(values), tf.int64))
      vector.assign(tf.stack(found))


class ScaleRead:
  """What an optimizer's `loss_scale` returns: a tensor and a LossScale.

  In a graph it is a tensor, of a subclass of its class. Eagerly it cannot be:
  TensorFlow refuses subclasses of eager tensors. There it is an object that
  TensorFlow takes for a tensor, as it takes a variable.

  Attributes:
    read_from: The LossScale, which has the attributes that a tensor lacks.
  """

  def __call__(self) -> tf.Tensor:
    return self.read_from()

  def __getattr__(self, name: str) -> Any:
    return getattr(self.read_from, name)


class _EagerRead(ScaleRead, tf.__internal__.types.Tensor):
  """Stands for an eager tensor, and does what the tensor does."""

  def __init__(self, value: Any, scale: loss_scale_lib.LossScale) -> None:
    self.value, self.read_from = value, scale

  dtype = property(lambda self: self.value.dtype)
  shape = property(lambda self: self.value.shape)

  def __getattr__(self, name: str) -> Any:
    owner = self.value if hasattr(self.value, name) else self.read_from
    return getattr(owner, name)

  def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
    return tf.convert_to_tensor(self.value, dtype, name=name)

  def __array__(self, *args: Any, **kwargs: Any) -> Any:
    return np.asarray(self.value, *args, **kwargs)


def _delegate(name: str) -> Any:
  return lambda self, *args: getattr(self.value, name)(*args)


# Python looks for these in the class.
_SPECIAL = "abs bool float format hash index int reduce repr round str"
_SPECIAL_NAMES = {f"__{name}__" for name in _SPECIAL.split(" ")}
for _name in _SPECIAL_NAMES | set(tf.Tensor.OVERLOADABLE_OPERATORS):
  setattr(_EagerRead, _name, _delegate(_name))


@functools.cache
def _derive(cls: type) -> type:
  return type(cls.__name__, (ScaleRead, cls), {})


def mark_read(value: Any, scale: loss_scale_lib.LossScale) -> Any:
  """Makes a tensor that was just read from a loss scale a `ScaleRead`."""
  if tf.executing_eagerly():
    return _EagerRead(value, scale)
  if not isinstance(value, ScaleRead):
    value.__class__ = _derive(value.__class__)
  value.read_from = scale
  return value
