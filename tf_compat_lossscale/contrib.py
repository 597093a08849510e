# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.mixed_precision`, as TensorFlow 1.12 to 1.15 had it.

Newer programs use `DynamicLossScale` or `policies.GrowthBackoff` for
`ExponentialUpdateLossScaleManager` (`to_loss_scale` returns one of them),
`FixedLossScale` for `FixedLossScaleManager`, and
`MixedPrecisionLossScaleOptimizer` for this module's `LossScaleOptimizer`.
"""

from __future__ import annotations

import abc
import functools
import math
from typing import Any
from typing import Literal
from typing import Protocol

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale import policies
from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import pair_checks
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale._core.tf import autograph
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import graphs

__all__ = [
  "ExponentialUpdateLossScaleManager",
  "FixedLossScaleManager",
  "LossScaleManager",
  "LossScaleOptimizer",
]
__dir__ = functools.partial(sorted, __all__)


class LossScaleManager(graph_weights.GraphWeights, metaclass=abc.ABCMeta):
  """A factor for the loss, and the rule by which the factor changes.

  A subclass defines the two methods. It adds its state by `_add_weight` and
  reads the state by `_get_weight`.
  """

  @abc.abstractmethod
  def get_loss_scale(self) -> tf.Tensor | tf.Variable:
    """Returns the current loss scale, a float32 scalar."""

  @abc.abstractmethod
  def update_loss_scale(self, finite_grads: bool | tf.Tensor) -> Any:
    """Updates the loss scale after a step.

    Args:
      finite_grads: Whether all gradients of the step are finite, a bool scalar.

    Returns:
      An op that does the update; None when eager: the update has happened.
    """


class _Manager(Protocol):
  """An object that has the two methods, whatever its class."""

  def get_loss_scale(self) -> Any:
    """Returns the current loss scale."""

  def update_loss_scale(self, finite_grads: Any, /) -> Any:
    """Updates the loss scale after a step."""


class FixedLossScaleManager(LossScaleManager):
  """A loss scale that never changes. `FixedLossScale` replaced this class."""

  def __init__(self, loss_scale: arguments.Number) -> None:
    """Creates a manager of a fixed loss scale.

    Args:
      loss_scale: The factor: at least 1, and finite in float32.

    Raises:
      ValueError: `loss_scale` is no such number.
    """
    graph_weights.forget(self, "_loss_scale")
    self._fixed_value = arguments.check_scale("loss_scale", loss_scale)

  @graph_weights.DefaultProperty
  def loss_scale(self) -> float:
    """The loss scale, a Python number; what a program has set, if it has."""
    own: float | None = vars(self).get("_loss_scale")
    return self._fixed_value if own is None else own

  @graph_weights.DefaultProperty
  def _loss_scale(self) -> tf.Tensor:
    # Each graph has one tensor: a session may feed it.
    graph = graphs.find_graph()
    if graph is None:
      return self._make_constant()
    return graphs.keep_on_graph(graph, self, self._make_constant)

  def _make_constant(self) -> tf.Tensor:
    with tf.init_scope():
      return tf.constant(self._fixed_value, tf.float32)

  def get_loss_scale(self) -> tf.Tensor:
    """Returns the loss scale, a float32 scalar constant."""
    return self._loss_scale

  def update_loss_scale(self, finite_grads: bool | tf.Tensor) -> Any:
    """Changes nothing."""
    del finite_grads
    return tf.no_op()

  def to_loss_scale(self) -> loss_scale_lib.FixedLossScale:
    """Returns the loss scale that replaced this manager.

    A `MixedPrecisionLossScaleOptimizer` with that loss scale does not look at
    gradients: it also applies gradients that are not finite.
    """
    return loss_scale_lib.FixedLossScale(self.loss_scale)


class ExponentialUpdateLossScaleManager(LossScaleManager):
  """A loss scale that grows after good steps and shrinks after bad steps.

  The state is three scalar variables in each graph: `loss_scale` (float32),
  `good_steps` and `bad_steps` (int32). The whole rule, by TensorFlow 1.15:

  ```
  if all gradients are finite:
    good_steps += 1
    if good_steps >= incr_every_n_steps:
      loss_scale = loss_scale * incr_ratio, unless that is not finite
      good_steps = bad_steps = 0
  else:
    bad_steps += 1
    good_steps = 0
    if bad_steps >= decr_every_n_nan_or_inf:
      loss_scale = max(1, loss_scale * decr_ratio)
      bad_steps = 0
  ```

  Only consecutive good steps make the scale grow. Bad steps add up until the
  scale changes, also if there are good steps in between.
  """

  _is_unread = True

  def __init__(
    self,
    init_loss_scale: arguments.Number,
    incr_every_n_steps: arguments.Whole,
    decr_every_n_nan_or_inf: arguments.Whole = 2,
    incr_ratio: arguments.Number = 2,
    decr_ratio: arguments.Number = 0.8,
  ) -> None:
    """Creates a manager, and its variables in the current graph.

    Args:
      init_loss_scale: The first scale: at least 1, and finite in float32.
      incr_every_n_steps: The number of consecutive steps with finite gradients
        after which the scale grows; whole, at least 1.
      decr_every_n_nan_or_inf: The number of steps with gradients that are not
        finite after which the scale shrinks; whole, at least 1.
      incr_ratio: The factor by which the scale grows; above 1.
      decr_ratio: The factor by which the scale shrinks; between 0 and 1.

    Raises:
      ValueError: An argument is no such number.
    """
    self._init_loss_scale = arguments.check_scale(
      "init_loss_scale", init_loss_scale
    )
    self._incr_every_n_steps = arguments.check_steps(
      "incr_every_n_steps", incr_every_n_steps
    )
    self._decr_every_n_nan_or_inf = arguments.check_steps(
      "decr_every_n_nan_or_inf", decr_every_n_nan_or_inf
    )
    self._incr_ratio = arguments.check_growth("incr_ratio", incr_ratio)
    self._decr_ratio = arguments.check_backoff("decr_ratio", decr_ratio)
    graph_weights.forget(
      self, "_loss_scale", "_num_good_steps", "_num_bad_steps"
    )
    self._add_weight("loss_scale", self._init_loss_scale, tf.float32)
    self._add_weight("good_steps", 0, tf.int32)
    self._add_weight("bad_steps", 0, tf.int32)

  @graph_weights.DefaultProperty
  def loss_scale(self) -> tf.Variable:
    """The current graph's loss scale, a float32 scalar variable."""
    return self._loss_scale

  @graph_weights.DefaultProperty
  def good_steps(self) -> tf.Variable:
    """The current graph's count of good steps, an int32 scalar variable."""
    return self._num_good_steps

  @graph_weights.DefaultProperty
  def bad_steps(self) -> tf.Variable:
    """The current graph's count of bad steps, an int32 scalar variable."""
    return self._num_bad_steps

  # Programs read and set the next three by tf.contrib's own names for them.
  _loss_scale = graph_weights.make_weight_property("loss_scale")
  _num_good_steps = graph_weights.make_weight_property("good_steps")
  _num_bad_steps = graph_weights.make_weight_property("bad_steps")

  def _reset_stats(self) -> tf.Operation | None:
    """Sets both counts to 0, whenever the scale changes."""
    counts = (self._num_good_steps, self._num_bad_steps)
    return tf.group([count.assign(0) for count in counts])

  def get_loss_scale(self) -> tf.Variable:
    """Returns the current graph's loss scale, a float32 scalar variable."""
    return self._loss_scale

  def update_loss_scale(self, finite_grads: bool | tf.Tensor) -> Any:
    """Applies the rule above.

    Args:
      finite_grads: Whether all gradients of the step are finite, a bool scalar.

    Returns:
      An op that does the update; None when eager: the update has happened.
    """
    with tf.name_scope(control_flow.NAME_SCOPE):
      finite = tf.convert_to_tensor(finite_grads)
    update = loss_scale_lib.count_step(
      finite,
      self._num_good_steps,
      self._incr_every_n_steps,
      self._loss_scale,
      self._end_run,
    )
    return None if update is None else update.op

  def _end_run(self, finite: tf.Tensor, scale: tf.Tensor) -> Any:
    """Changes the scale, or counts a bad step that is not enough to do so."""
    bad_steps = tf.convert_to_tensor(self._num_bad_steps) + 1
    return control_flow.cond(
      tf.logical_or(finite, bad_steps >= self._decr_every_n_nan_or_inf),
      lambda: self._change(finite, scale),
      lambda: tf.group(
        self._num_good_steps.assign(0),
        self._num_bad_steps.assign_add(1, read_value=False),
      ),
      pair_checks.has_ref_variable(
        [self._loss_scale, self._num_good_steps, self._num_bad_steps]
      ),
    )

  def _change(self, finite: tf.Tensor, scale: tf.Tensor) -> tf.Operation | None:
    grown = loss_scale_lib.grow(scale, self._incr_ratio)
    shrunk = tf.maximum(scale * self._decr_ratio, 1.0)
    new_scale = tf.where(finite, tf.cast(grown, scale.dtype), shrunk)
    reset = self._reset_stats()
    with tf.control_dependencies([] if reset is None else [reset]):
      return tf.group(self._loss_scale.assign(new_scale))

  def to_loss_scale(self) -> Any:
    """Returns a loss scale with the rule of this manager.

    The new loss scale starts at `init_loss_scale`, with no steps counted. It is
    a `DynamicLossScale` if that class has the rule: every bad step makes the
    scale shrink, by the power of 2 by which it grows. Otherwise it is a
    `GrowthBackoff`.
    """
    # The manager computes in float32.
    growth = float(np.float32(self._incr_ratio))
    backoff = float(np.float32(self._decr_ratio))
    is_exact = math.frexp(growth)[0] == 0.5  # No rounding.
    if (
      self._decr_every_n_nan_or_inf == 1 and backoff == 1 / growth and is_exact
    ):
      return loss_scale_lib.DynamicLossScale(
        self._init_loss_scale, self._incr_every_n_steps, self._incr_ratio
      )
    return policies.GrowthBackoff(
      self._init_loss_scale,
      growth,
      backoff,
      self._incr_every_n_steps,
      hysteresis=self._decr_every_n_nan_or_inf,
      refill=("growth", "backoff"),
    )


class _Managed(loss_scale_lib.LossScale):
  """A manager in the form of a `LossScale`, as the base class needs."""

  def __init__(self, manager: Any) -> None:
    super().__init__()
    self.contrib_manager = manager

  @property
  def _tracked_weights(self) -> dict[str, tf.Variable]:
    return getattr(self.contrib_manager, "_tracked_weights", {})

  def __call__(self) -> tf.Tensor:
    return autograph.convert(self.contrib_manager.get_loss_scale)()

  def update(self, grads: Any) -> tuple[Any, tf.Tensor]:
    finite = gradients.all_replicas_finite(grads)
    update = autograph.convert(self.contrib_manager.update_loss_scale)
    return update(finite), finite

  def get_config(self) -> dict[str, Any]:
    raise NotImplementedError("Managers of loss scales have no config.")


class LossScaleOptimizer(loss_scale_optimizer.MixedPrecisionLossScaleOptimizer):
  """An optimizer that wraps another and applies a manager's loss scale to it.

  A whole step:

  ```
  scale = manager.get_loss_scale()
  grads = gradients(loss * scale) / scale   # compute_gradients
  if all gradients are finite:              # apply_gradients
    opt.apply_gradients(grads)
  manager.update_loss_scale(all gradients are finite)
  ```

  So a fixed loss scale skips steps, too.

  TensorFlow 1.15 made the gradient of an embedding dense by that division, and
  global norms and optimizers such as Momentum depend on it. So does this class,
  unless it is told to keep such gradients sparse.

  In object-based checkpoints the wrapped optimizer is `base_optimizer` and the
  manager is `loss_scale`. A subclass must not use the attributes `_optimizer`
  and `_loss_scale` for something else: TensorFlow 1.15's class had neither.
  """

  def __init__(
    self,
    opt: tf.compat.v1.train.Optimizer,
    loss_scale_manager: _Manager,
    sparse: Literal["dense", "keep"] = "dense",
  ) -> None:
    """Wraps an optimizer.

    Args:
      opt: The `tf.compat.v1.train.Optimizer` that applies the gradients.
      loss_scale_manager: A LossScaleManager, or another object that has its two
        methods.
      sparse: What `compute_gradients` returns for a `tf.IndexedSlices`: "dense"
        for a tensor of the variable's shape, as in TensorFlow 1.15; "keep" for
        an IndexedSlices, which takes the memory of the used rows alone.

    Raises:
      ValueError: `opt` is no such optimizer, `loss_scale_manager` lacks a
        method, or `sparse` is another value.
    """
    self._sparse_gradients = arguments.check_word(
      "sparse", sparse, ("dense", "keep")
    )
    for method in ("get_loss_scale", "update_loss_scale"):
      has_method = callable(getattr(loss_scale_manager, method, None))
      if not has_method or isinstance(loss_scale_manager, type):
        raise ValueError(
          "loss_scale_manager must be a LossScaleManager, but got "
          f"{_show_wrong(loss_scale_manager)}"
        )
    super().__init__(opt, _Managed(loss_scale_manager))

  # A subclass may leave out `super().__init__()`.
  _sparse_gradients: str = "dense"
  _applies_first = True

  def _wrap(
    self,
    opt: tf.compat.v1.train.Optimizer,
    loss_scale: loss_scale_lib.LossScale,
  ) -> None:
    """Sets tf.contrib's own names for what is wrapped: programs use them."""
    assert isinstance(loss_scale, _Managed)
    self._opt = opt
    self._loss_scale_manager = graph_weights.find_owner(loss_scale)

  @graph_weights.DefaultProperty
  def _optimizer(self) -> tf.compat.v1.train.Optimizer:
    return self._opt

  @graph_weights.DefaultProperty
  def _loss_scale(self) -> loss_scale_lib.LossScale:
    return _Managed(self._loss_scale_manager)

  @graph_weights.DefaultProperty
  def loss_scale_manager(self) -> Any:
    """The manager of the loss scale, as the constructor got it."""
    return self._loss_scale_manager

  def compute_gradients(
    self, loss: Any, *args: Any, **kwargs: Any
  ) -> list[tuple[Any, tf.Variable]]:
    """Computes the gradients of a loss by way of the scaled loss.

    The arguments and the result are those of
    `MixedPrecisionLossScaleOptimizer.compute_gradients`. In a graph, a function
    is called at once, as in TensorFlow 1.
    """
    if callable(loss) and not tf.executing_eagerly():
      loss = autograph.convert(loss)()
    return super().compute_gradients(loss, *args, **kwargs)

  def _unscale(
    self, pairs: loss_scale_optimizer.Pairs, factor: tf.Tensor
  ) -> loss_scale_optimizer.Pairs:
    """Returns (gradient, variable) pairs with unscaled gradients.

    Sparse gradients become dense first: in float16, a sum of scaled rows may
    overflow where a sum of unscaled rows does not, and in TensorFlow 1.15 it
    did.
    """
    if self._sparse_gradients == "dense":
      pairs = [(_make_dense(grad, var), var) for grad, var in pairs]
    return loss_scale_optimizer.unscale(pairs, factor)

  def __repr__(self) -> str:
    return f"LossScaleOptimizer({self._opt!r}, {self._loss_scale_manager!r})"


def _show_wrong(value: Any) -> str:
  """Returns what is no manager of a loss scale, and what to do instead."""
  shown = wrong_values.show(value)
  if isinstance(value, type):
    return f"{shown}."
  if value == "dynamic" or isinstance(value, loss_scale_lib.LossScale):
    return (
      f"{shown}. For loss scales that are no managers, there is "
      "MixedPrecisionLossScaleOptimizer."
    )
  if arguments.is_number(value):
    return f"{shown}. Pass FixedLossScaleManager({value})."
  return f"{shown}, which lacks get_loss_scale() or update_loss_scale()."


def _make_dense(grad: gradients.Gradient, var: tf.Variable) -> tf.Tensor | None:
  if not isinstance(grad, tf.IndexedSlices):
    return grad
  shape = tf.shape(var) if grad.dense_shape is None else grad.dense_shape
  dense = tf.math.unsorted_segment_sum(grad.values, grad.indices, shape[0])
  return tf.ensure_shape(dense, var.shape)
