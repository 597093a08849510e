"""Loss scales: what a loss is multiplied by, and how that number changes.

The rule of dynamic scaling is that of Micikevicius et al., "Mixed Precision
Training" (ICLR 2018), section 3.2, in the form that TensorFlow 1.14 gave it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale._core import arguments as _arguments
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core.tf import control_flow

_FLOAT32_OVERFLOWS = float(2**128 - 2**103)  # Rounded, it is infinity.


class LossScale(graph_weights.GraphWeights, metaclass=abc.ABCMeta):
  """What a loss is multiplied by, so that float16 gradients do not vanish.

  Scaling changes nothing mathematically: gradients are divided by the same
  number before they are applied. In between, every gradient is that much
  larger, and what would have been rounded to zero in float16 survives.

  A subclass of one's own defines `__call__`, `update` and `get_config`. Its
  state goes into `_add_weight` (in `__init__`) and is read by `_get_weight`.
  """

  def __init__(self) -> None:
    """Makes a loss scale without weights."""
    super().__init__()

  @abc.abstractmethod
  def __call__(self) -> tf.Tensor:
    """Returns the current loss scale, a float32 scalar."""

  @abc.abstractmethod
  def update(self, grads: Any) -> tuple[Any, bool | tf.Tensor]:
    """Lets the loss scale react to the gradients of a step.

    Under a `tf.distribute` strategy this is called in cross-replica context.

    Args:
      grads: A nest of unscaled gradients: tensors, IndexedSlices, None, or
        per-replica values of these.

    Returns:
      A pair: what to run for the update to happen (None when eager, where it
      has happened), and whether the gradients should be applied: a bool scalar
      tensor, or a Python bool where that is known without looking.
    """

  @abc.abstractmethod
  def get_config(self) -> dict[str, Any]:
    """Returns the arguments that make an equal loss scale, as plain numbers."""

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> LossScale:
    """Makes a loss scale from what `get_config` returned."""
    return cls(**config)


class FixedLossScale(LossScale):
  """A loss scale that stays what it is, whatever the gradients are."""

  def __init__(self, loss_scale_value: float) -> None:
    """Makes a fixed loss scale.

    Args:
      loss_scale_value: A finite number of at least 1.

    Raises:
      ValueError: It is not.
    """
    super().__init__()
    self._loss_scale_value = _arguments.scale(
      "loss_scale_value", loss_scale_value
    )

  def __call__(self) -> tf.Tensor:
    return tf.constant(self._loss_scale_value, tf.float32)

  def update(self, grads: Any) -> tuple[Any, bool]:
    """Changes nothing.

    Returns:
      A pair: an op that does nothing (None when eager), and the Python bool
      True, so that no cond need be built.
    """
    del grads
    return tf.no_op(), True

  def __repr__(self) -> str:
    return f"FixedLossScale({self._loss_scale_value})"

  def get_config(self) -> dict[str, Any]:
    return {"loss_scale_value": self._loss_scale_value}


class DynamicLossScale(LossScale):
  """A loss scale that stays as high as the gradients allow.

  The whole rule, with `scale` and `good_steps` as the weights
  `current_loss_scale` (float32) and `good_steps` (int64):

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

  def __init__(
    self,
    initial_loss_scale: float = 2**15,
    increment_period: int = 2000,
    multiplier: float = 2.0,
  ) -> None:
    """Makes a dynamic loss scale, with its weights in the current graph.

    Args:
      initial_loss_scale: Where to start, at least 1. Better too high than too
        low: going down takes one step a division, going up a whole period a
        multiplication. The default is about half of float16's largest number.
      increment_period: How many consecutive steps with finite gradients make
        the scale grow, at least 1.
      multiplier: By what the scale grows, and is divided; above 1.

    Raises:
      ValueError: An argument is no such number.
    """
    super().__init__()
    self._initial_loss_scale = _arguments.scale(
      "initial_loss_scale", initial_loss_scale
    )
    self._increment_period = _arguments.steps(
      "increment_period", increment_period
    )
    self._multiplier = _arguments.multiplier("multiplier", multiplier)
    self._add_weight("current_loss_scale", self._initial_loss_scale, tf.float32)
    self._add_weight("good_steps", 0, tf.int64)

  @property
  def initial_loss_scale(self) -> float:
    """The scale that a new graph starts from."""
    return self._initial_loss_scale

  @property
  def increment_period(self) -> int:
    """How many consecutive finite steps make the scale grow."""
    return self._increment_period

  @property
  def multiplier(self) -> float:
    """By what the scale is multiplied or divided."""
    return self._multiplier

  @property
  def _current_loss_scale(self) -> tf.Variable:
    return self._get_weight("current_loss_scale")

  @property
  def _num_good_steps(self) -> tf.Variable:
    return self._get_weight("good_steps")

  def __call__(self) -> tf.Tensor:
    return tf.convert_to_tensor(self._get_weight("current_loss_scale"))

  def update(self, grads: Any) -> tuple[tf.Tensor | None, tf.Tensor]:
    """Applies the rule above, once for all replicas.

    Args:
      grads: A nest of unscaled gradients. Those of all replicas count: one
        that is not finite makes the step a bad one for every replica.

    Returns:
      A pair: None when eager, else a tensor that depends on the update; and a
      bool scalar, True if all gradients are finite.

    Raises:
      ValueError: In a replica context of a `tf.distribute` strategy.
    """
    finite = gradients.all_replicas_finite(grads)
    # Checkpoints go by variable names, and those of the inner optimizer by the
    # cond that it is applied in: the second of a graph, `cond_1`, since in
    # TensorFlow 1 the update was the first.
    with self._exclusively(), tf.name_scope("cond"):
      update = count_step(
        finite,
        self._num_good_steps,
        self._increment_period,
        self._current_loss_scale,
        lambda scale: self._end_run(finite, scale),
      )
      if tf.executing_eagerly():
        return None, finite
      # A tensor, not an op: callers pass it to `tf.identity`.
      with tf.control_dependencies([update]):
        return tf.identity(finite, name="update"), finite

  def _end_run(
    self, finite: tf.Tensor, scale: tf.Tensor
  ) -> tf.Operation | None:
    """Begins to count anew, then makes the scale grow or shrink."""
    new_scale = choose(
      finite,
      lambda: grown(scale, self._multiplier),
      lambda: tf.maximum(scale / self._multiplier, 1.0),
    )
    with tf.control_dependencies([tf.group(self._num_good_steps.assign(0))]):
      return tf.group(self._current_loss_scale.assign(new_scale))

  def __repr__(self) -> str:
    now = ""
    if tf.executing_eagerly() and self._weights:
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


def get(identifier: Any) -> LossScale | None:
  """Makes a loss scale of what users pass for one.

  Args:
    identifier: None; a real number, NumPy's too, for a fixed loss scale; the
      string 'dynamic'; a LossScale; or a config: what `get_config` returned,
      as it is or in the form `{'class_name': …, 'config': …}`.

  Returns:
    A loss scale (`identifier` itself if it is one), or None for None.

  Raises:
    ValueError: It is none of these, or a number that no scale can be.
  """
  if identifier is None or isinstance(identifier, LossScale):
    return identifier
  if isinstance(identifier, str) and identifier == "dynamic":
    return DynamicLossScale()
  if isinstance(identifier, dict):
    return _from_config(identifier)
  if _arguments.is_number(identifier):
    return FixedLossScale(identifier)
  raise ValueError(
    "A loss scale must be None, 'dynamic', a number of at least 1, a LossScale "
    f"of this package or the config of one, but got {identifier!r} of type "
    f"{type(identifier).__name__}."
  )


def _from_config(config: dict[str, Any]) -> LossScale:
  classes = {cls.__name__: cls for cls in (FixedLossScale, DynamicLossScale)}
  cls, arguments = classes.get(config.get("class_name")), config.get("config")
  if "class_name" not in config:
    fixed = "loss_scale_value" in config
    cls, arguments = FixedLossScale if fixed else DynamicLossScale, config
  if cls is None or not arguments:
    raise ValueError(
      f"A loss scale's config must name one of {', '.join(classes)} and give "
      f"its arguments, but got {config!r}."
    )
  try:
    return cls.from_config(arguments)
  except TypeError as error:
    raise ValueError(
      f"A loss scale's config does not fit {cls.__name__}: {error}; got "
      f"{config!r}."
    ) from error


def choose(
  condition: tf.Tensor, if_true: Callable[[], Any], if_false: Callable[[], Any]
) -> Any:
  """One of two nests of scalars, without a cond: both cost next to nothing.

  Args:
    condition: A bool scalar.
    if_true: Returns what it is when that is True.
    if_false: Returns what it is otherwise; called all the same in graphs.

  Returns:
    The nest.
  """
  if tf.executing_eagerly():
    return if_true() if condition else if_false()
  return tf.nest.map_structure(
    lambda a, b: tf.where(condition, a, b), if_true(), if_false()
  )


def count_step(
  finite: tf.Tensor,
  good_steps: tf.Variable,
  period: int,
  scale: tf.Variable,
  end_run: Callable[[tf.Tensor], Any],
) -> Any:
  """Counts a good step, or ends the run of good steps.

  Good steps are counted by adding, since an assignment would lose those that
  other workers count meanwhile. `end_run` must set `good_steps` to 0 before it
  writes `scale`, and `scale` is read before `good_steps` here. So a worker that
  reads a scale that has just grown reads the new count, too, and does not make
  the scale grow again; workers that read the same old scale write the same new
  one. This is no lock: a worker that is delayed between reading and writing may
  overwrite what another one has written, as in TensorFlow's own.

  Args:
    finite: A bool scalar: whether the step is a good one.
    good_steps: An integer scalar variable: the good steps so far.
    period: How many good steps make a run that is complete.
    scale: A float32 scalar variable: the loss scale.
    end_run: Called with the scale if the step is bad or completes the run.

  Returns:
    What `tf.cond` returns for an op; eagerly nothing of use.
  """

  def goes_on() -> tf.Tensor:
    return tf.logical_and(finite, tf.convert_to_tensor(good_steps) + 1 < period)

  def count() -> tf.Operation | None:
    return tf.group(good_steps.assign_add(1, read_value=False))

  def look_again() -> Any:
    # No read itself, which a v2 cond cannot take from the variable's device.
    seen = tf.identity(tf.convert_to_tensor(scale))
    with tf.control_dependencies([seen]):
      still = goes_on()
    return control_flow.cond(still, count, lambda: end_run(seen))

  # Read no sooner than the gradients are known: with several workers, the step
  # may have been a long one.
  with tf.control_dependencies([finite]):
    first = goes_on()
  return control_flow.cond(first, count, look_again)


def grown(scale: tf.Tensor, factor: float) -> tf.Tensor:
  """Returns a loss scale times a factor, or the scale if float32 has no more.

  No infinity is computed on the way: `tf.debugging.enable_check_numerics` makes
  an op fail for one.

  Args:
    scale: A float32 scalar.
    factor: A number above 1, finite in float32.

  Returns:
    A float32 scalar.
  """
  wide = tf.cast(scale, tf.float64)  # Where the product is exact.
  product = wide * tf.cast(tf.constant(factor, tf.float32), tf.float64)
  fits = product < _FLOAT32_OVERFLOWS
  return tf.cast(tf.where(fits, product, wide), tf.float32)
