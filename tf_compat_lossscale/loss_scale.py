# SPDX-License-Identifier: Apache-2.0
"""Loss scales: factors for a loss, and the rules by which they change.

The rule of dynamic scaling is that of Micikevicius et al., "Mixed Precision
Training" (ICLR 2018), section 3.2, in the form that TensorFlow 1.14 gave it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
import functools
import importlib
import inspect
from typing import Any
from typing import Literal
from typing import overload
from typing import TypeAlias
from typing import TypeVar

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import pair_checks
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale._core.tf import control_flow

__all__ = [
  "DynamicLossScale",
  "FixedLossScale",
  "Identifier",
  "LossScale",
  "get",
  "get_loss_scale_weights",
]
__dir__ = functools.partial(sorted, __all__)


# The package's own loss scales, which a config may name -> the module of each.
# `policies` is loaded if a program uses it: it stands above this module.
BUILT_IN = {
  "FixedLossScale": __name__,
  "DynamicLossScale": __name__,
  "GrowthBackoff": "tf_compat_lossscale.policies",
}
_DYNAMIC = "dynamic"
# The smallest float64 number that is an infinity once it is rounded to float32.
_FLOAT32_OVERFLOWS = float(2**128 - 2**103)


_Scale = TypeVar("_Scale", bound="LossScale")


class LossScale(graph_weights.GraphWeights, metaclass=abc.ABCMeta):
  """A factor for the loss that keeps small gradients above zero in float16.

  Scaling changes nothing mathematically: the gradients are divided by the same
  factor before they are applied. In between, every gradient is that much
  larger, and small gradients are not rounded to zero.

  A subclass defines `__call__`, `update` and `get_config`. It adds its state by
  `_add_weight` in `__init__` and reads the state by `_get_weight`.
  """

  @abc.abstractmethod
  def __call__(self) -> tf.Tensor:
    """Returns the current loss scale, a float32 scalar."""

  @abc.abstractmethod
  def update(self, grads: Any) -> tuple[Any, bool | tf.Tensor]:
    """Updates the loss scale by the gradients of a step.

    Under a `tf.distribute` strategy, optimizers call this method in
    cross-replica context.

    Args:
      grads: A nest of unscaled gradients: tensors, IndexedSlices, None, or
        per-replica values of these.

    Returns:
      A pair: an op or tensor that does the update (None when eager: the update
      has happened), and whether the gradients should be applied. The second
      item is a bool scalar tensor, or a Python bool if the answer does not
      depend on the gradients.
    """

  @abc.abstractmethod
  def get_config(self) -> dict[str, Any]:
    """Returns the arguments of the constructor, as plain Python numbers."""

  @classmethod
  def from_config(cls: type[_Scale], config: dict[str, Any]) -> _Scale:
    """Creates a loss scale from the arguments that `get_config` returned."""
    return cls(**config)


# What stands for a loss scale; `get` says what each means.
Identifier: TypeAlias = (
  LossScale | arguments.Number | Literal["dynamic"] | dict[str, Any]
)


class FixedLossScale(LossScale):
  """A loss scale that never changes.

  `update` answers that the gradients should be applied, also those that are
  not finite.
  """

  def __init__(self, loss_scale_value: arguments.Number) -> None:
    """Creates a fixed loss scale.

    Args:
      loss_scale_value: The factor: at least 1, and finite in float32.

    Raises:
      ValueError: `loss_scale_value` is no such number.
    """
    super().__init__()
    self._loss_scale_value = arguments.check_scale(
      "loss_scale_value", loss_scale_value
    )

  def __call__(self) -> tf.Tensor:
    """Returns the loss scale, a float32 scalar constant."""
    return tf.constant(self._loss_scale_value, tf.float32)

  def update(self, grads: Any) -> tuple[Any, bool]:
    """Changes nothing.

    Args:
      grads: Any nest; not looked at.

    Returns:
      A pair: an op that does nothing (None when eager), and the Python bool
      True, so that the optimizer builds no cond.
    """
    del grads
    return tf.no_op(), True

  def __repr__(self) -> str:
    return f"FixedLossScale({self._loss_scale_value})"

  def get_config(self) -> dict[str, Any]:
    return {"loss_scale_value": self._loss_scale_value}


class DynamicLossScale(LossScale):
  """A loss scale that is kept as high as the gradients allow.

  The state is two scalar variables in each graph, `current_loss_scale`
  (float32, here `scale`) and `good_steps` (int64). The whole rule:

  ```
  if all gradients are finite:
    if good_steps + 1 >= increment_period:
      if scale * multiplier is finite:
        scale = scale * multiplier
      good_steps = 0
    else:
      good_steps = good_steps + 1
  else:
    scale = max(scale / multiplier, 1)
    good_steps = 0
  ```
  """

  _is_unread = True

  def __init__(
    self,
    initial_loss_scale: arguments.Number = 2**15,
    increment_period: arguments.Whole = 2000,
    multiplier: arguments.Number = 2.0,
  ) -> None:
    """Creates a dynamic loss scale, and its variables in the current graph.

    Args:
      initial_loss_scale: The first scale, at least 1. A value that is too high
        is better than one that is too low: each division takes one step, each
        multiplication a whole period. The default is about half of float16's
        largest number.
      increment_period: The number of consecutive steps with finite gradients
        after which the scale grows; whole, at least 1.
      multiplier: The factor by which the scale grows or shrinks; above 1.

    Raises:
      ValueError: An argument is no such number.
    """
    super().__init__()
    self._initial_loss_scale = _check_initial(initial_loss_scale)
    self._increment_period = arguments.check_steps(
      "increment_period", increment_period
    )
    self._multiplier = arguments.check_growth("multiplier", multiplier)
    graph_weights.forget(self, "_current_loss_scale", "_num_good_steps")
    self._add_weight("current_loss_scale", self._initial_loss_scale, tf.float32)
    self._add_weight("good_steps", 0, tf.int64)

  @property
  def initial_loss_scale(self) -> float:
    """The scale from which a new graph starts."""
    return self._initial_loss_scale

  @property
  def increment_period(self) -> int:
    """The number of consecutive finite steps after which the scale grows."""
    return self._increment_period

  @property
  def multiplier(self) -> float:
    """The factor by which the scale grows or shrinks."""
    return self._multiplier

  @graph_weights.DefaultProperty
  def current_loss_scale(self) -> tf.Variable:
    """The current graph's loss scale, a float32 scalar variable.

    Inside a `tf.function`, in a replica and when eager, that is the eager
    variable. A graph that has not used this loss scale yet gets its variables
    now, as by its first use in training.
    """
    return self._current_loss_scale

  @graph_weights.DefaultProperty
  def good_steps(self) -> tf.Variable:
    """The current graph's count of good steps, an int64 scalar variable.

    Good steps are consecutive steps with finite gradients since the scale last
    changed or could have grown.
    """
    return self._num_good_steps

  # Programs read and set the next two by TensorFlow's own names for them.
  _current_loss_scale = graph_weights.make_weight_property("current_loss_scale")
  _num_good_steps = graph_weights.make_weight_property("good_steps")

  def __call__(self) -> tf.Tensor:
    """Returns the current loss scale, a float32 scalar tensor."""
    current = self._current_loss_scale
    return tf.convert_to_tensor(current)

  def update(self, grads: Any) -> tuple[tf.Tensor | None, tf.Tensor]:
    """Applies the rule above, once for all replicas.

    Args:
      grads: A nest of unscaled gradients. If a gradient of any replica is not
        finite, the step is bad for every replica.

    Returns:
      A pair: a tensor that depends on the update (None when eager), and a bool
      scalar, True if all gradients are finite.

    Raises:
      ValueError: In a replica context of a `tf.distribute` strategy.
    """
    finite = gradients.all_replicas_finite(grads)
    update = count_step(
      finite,
      self._num_good_steps,
      self._increment_period,
      self._current_loss_scale,
      self._end_run,
    )
    return update, finite

  def _end_run(
    self, finite: tf.Tensor, scale: tf.Tensor
  ) -> tf.Operation | None:
    """Sets the count to 0, then makes the scale grow or shrink."""
    grown = grow(scale, self._multiplier)
    shrunk = tf.maximum(scale / self._multiplier, 1.0)
    new_scale = tf.where(finite, grown, shrunk)
    reset = to_op(self._num_good_steps.assign(0, read_value=False))
    with tf.control_dependencies([] if reset is None else [reset]):
      return to_op(self._current_loss_scale.assign(new_scale, read_value=False))

  def __repr__(self) -> str:
    now = ""
    if tf.executing_eagerly() and self._tracked_weights:
      now = (
        f"current_loss_scale={self._current_loss_scale.numpy()}, "
        f"num_good_steps={self._num_good_steps.numpy()}, "
      )
    return (
      f"DynamicLossScale({now}initial_loss_scale={self.initial_loss_scale}, "
      f"increment_period={self.increment_period}, "
      f"multiplier={self.multiplier})"
    )

  def get_config(self) -> dict[str, Any]:
    return {
      "initial_loss_scale": self.initial_loss_scale,
      "increment_period": self.increment_period,
      "multiplier": self.multiplier,
    }


def _check_initial(value: Any) -> float:
  """Checks a first scale, and says which class takes one below 1."""
  try:
    return arguments.check_scale("initial_loss_scale", value)
  except ValueError as error:
    if not arguments.is_number(value) or not 0 < value < 1:
      raise
    raise ValueError(
      f"{error} For a scale below 1, use tf_compat_lossscale.policies."
      f"GrowthBackoff({value}, min_loss_scale=...)."
    ) from None


def to_op(assigned: Any) -> tf.Operation | None:
  """Returns the op of an assignment, of all replicas; None when eager."""
  return assigned if isinstance(assigned, tf.Operation) else tf.group(assigned)


def count_step(
  finite: tf.Tensor,
  good_steps: tf.Variable,
  period: int,
  scale: tf.Variable,
  end_run: Callable[[tf.Tensor, tf.Tensor], Any],
) -> Any:
  """Counts a good step, or ends the run of good steps.

  ```
  if finite and good_steps < period - 1:
    good_steps += 1
  else:
    end_run(finite, scale)
  ```

  The count is added to, because an assignment would lose the steps that other
  workers count meanwhile. Before the run ends, `scale` is read, then
  `good_steps` is looked at once more. `end_run` must set `good_steps` to 0
  before it writes `scale`. So a worker that reads a scale that has just grown
  reads the new count, too, and does not make the scale grow again. Workers that
  read the same old scale write the same new scale. This is no lock: a worker
  that is delayed between reading and writing may overwrite what another worker
  has written, as in TensorFlow's own loss scale.

  Args:
    finite: A bool scalar: whether the step is good.
    good_steps: An integer scalar variable: the consecutive good steps so far.
    period: The number of consecutive good steps that complete a run.
    scale: A float32 scalar variable: the loss scale.
    end_run: Called with `finite` and the value of `scale` if the step is bad or
      completes the run; returns an op in graphs.

  Returns:
    A tensor that depends on the update; None when eager: it has happened.
  """

  v1 = pair_checks.has_ref_variable([good_steps, scale])  # A program's own.

  def goes_on() -> tf.Tensor:
    return tf.logical_and(finite, tf.convert_to_tensor(good_steps) < period - 1)

  def count() -> tf.Operation | None:
    return to_op(good_steps.assign_add(1, read_value=False))

  def look_again() -> Any:
    # The identity is no read op. A v2 cond cannot take a read op from the
    # variable's device.
    seen = tf.identity(tf.convert_to_tensor(scale))
    with tf.control_dependencies([seen]):
      still = goes_on()
    end = functools.partial(end_run, finite, seen)
    return control_flow.cond(still, count, end, v1)

  # Name-based checkpoints depend on cond names. In TensorFlow 1 the update's
  # cond was `cond` and the apply's `cond_1`, so we reserve `cond` here.
  with graph_weights.LOCK, tf.name_scope("cond"):
    # With several workers, the step may take long. So the count is read after
    # the gradients are known.
    with tf.control_dependencies([finite]):
      first = goes_on()
    update = control_flow.cond(first, count, look_again, v1)
    if tf.executing_eagerly():
      return None
    # A tensor, not an op, because programs pass the update to `tf.identity`.
    with tf.control_dependencies([update]):
      return tf.identity(finite, name="update")


def grow(
  scale: tf.Tensor, factor: Any, dtype: tf.DType = tf.float32
) -> tf.Tensor:
  """Multiplies a loss scale by a factor, unless the product is not finite.

  No op computes an infinity on the way, because
  `tf.debugging.enable_check_numerics` makes such an op fail.

  The factor is above 1 and finite in float32; a program may have set a tensor
  instead. It is rounded to the dtype: float32, or float64 for a factor that
  float32 does not have.

  Returns:
    The product or, if float32 has no such number, `scale`: a float32 scalar.
  """
  wide = tf.cast(scale, tf.float64)  # The product is exact in float64.
  if isinstance(factor, (int, float)):
    rounded = tf.constant(float(dtype.as_numpy_dtype(factor)), tf.float64)
  else:
    rounded = tf.cast(tf.cast(factor, dtype), tf.float64)
  product = wide * rounded
  fits = product < _FLOAT32_OVERFLOWS
  return tf.cast(tf.where(fits, product, wide), tf.float32)


def get_loss_scale_weights(loss_scale: LossScale) -> Any:
  """Returns the variables of a loss scale in the current graph.

  TensorFlow 1.14 to 2.8 had this function in the private module of loss scales.
  """
  return graph_weights.list_weights(loss_scale).values()


@overload
def get(identifier: None) -> None: ...


@overload
def get(identifier: _Scale) -> _Scale: ...


@overload
def get(identifier: Literal["dynamic"]) -> DynamicLossScale: ...


@overload
def get(identifier: arguments.Number) -> FixedLossScale: ...


@overload
def get(identifier: dict[str, Any]) -> Any: ...


def get(identifier: Identifier | None) -> LossScale | None:
  """Returns the loss scale that an argument stands for.

  Args:
    identifier: None; a real number, of Python or NumPy, for a fixed loss scale;
      the string 'dynamic' for a `DynamicLossScale` with its defaults; a
      LossScale; or a config: the dict that `get_config` returned, as it is or
      in the form `{'class_name': …, 'config': …}`.

  Returns:
    A loss scale (`identifier` itself if it is a loss scale), or None for None.

  Raises:
    ValueError: `identifier` is none of these, or is a number below 1 or not
      finite in float32.
  """
  return None if identifier is None else make(identifier, ("None",))


def make(identifier: Any, also: tuple[str, ...] = ()) -> LossScale:
  """Returns the loss scale that an argument of `get` other than None means.

  The message has what the caller allows beside loss scales, as Python writes
  it.

  Raises:
    ValueError: As `get` raises it; also if `identifier` is None.
  """
  if isinstance(identifier, LossScale):
    return identifier
  if isinstance(identifier, str) and identifier == _DYNAMIC:
    return DynamicLossScale()
  if isinstance(identifier, dict):
    return _from_config(identifier)
  if arguments.is_number(identifier):
    return FixedLossScale(identifier)
  words = (*also, repr(_DYNAMIC))
  shown = wrong_values.show(identifier, [word.strip("'") for word in words])
  is_told = isinstance(identifier, str) or wrong_values.is_called(identifier)
  kind = "" if is_told else f" of type {type(identifier).__name__}"
  raise ValueError(
    f"A loss scale must be {', '.join(words)}, a number of at least 1, a "
    f"LossScale of this package or the config of one, but got {shown}{kind}."
    f"{_explain(identifier)}"
  )


def _explain(value: Any) -> str:
  """Returns a sentence on an object that is no loss scale; "" if none helps."""
  if isinstance(value, type):
    return ""
  if isinstance(value, tf.compat.v1.train.Optimizer):
    return " Pass the optimizer first, then the loss scale."
  if callable(getattr(value, "update_loss_scale", None)):
    return (
      " This is a manager of tf.contrib: pass its to_loss_scale(), or wrap the "
      "optimizer in contrib.LossScaleOptimizer."
    )
  name = type(value).__name__
  if name in BUILT_IN and callable(getattr(value, "get_config", None)):
    return f" Use this package's {name}, or pass the other one's get_config()."
  return ""


def _from_config(config: dict[str, Any]) -> LossScale:
  """Returns the loss scale of a config, with or without its class's name."""
  name, given = config.get("class_name"), config.get("config")
  if "class_name" not in config:
    fixed = "loss_scale_value" in config
    name, given = "FixedLossScale" if fixed else "DynamicLossScale", config
  if name not in BUILT_IN or not given:
    meant = "" if name in BUILT_IN else wrong_values.suggest(name, BUILT_IN)
    raise ValueError(
      f"A loss scale's config must name one of {', '.join(BUILT_IN)} and give "
      f"its arguments, but got {config!r}{meant}."
    )
  cls: type[LossScale] = getattr(importlib.import_module(BUILT_IN[name]), name)
  try:
    return cls.from_config(given)
  except TypeError as error:
    known = inspect.signature(cls).parameters
    wrong = next((key for key in given if key not in known), None)
    raise ValueError(
      f"A loss scale's config does not fit {cls.__name__}: {error}"
      f"{wrong_values.suggest(wrong, known)}; got {config!r}."
    ) from error
