# SPDX-License-Identifier: Apache-2.0
"""The environment variables by which NVIDIA's TensorFlow 1 lowers precision.

NVIDIA's builds of TensorFlow 1.14 and 1.15 read three variables:

```
TF_ENABLE_AUTO_MIXED_PRECISION=1                a loss scale, and the rewrite
TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING=1   a loss scale alone
TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE=1  the graph rewrite alone
```

The second and the third, if they are set, overrule the first. TensorFlow's own
builds ignore all three. `honor_environment` makes this TensorFlow read them.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import os
import sys
import threading
from typing import Any
from typing import Final

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import contrib
from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale import scaled_steps
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core import step_records
from tf_compat_lossscale._core import wrapped_optimizers
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale._core.tf import rewrite
from tf_compat_lossscale._core.tf import tracking

__all__ = [
  "asks_for_loss_scale",
  "asks_for_rewrite",
  "find_steps",
  "honor_environment",
  "ignore_environment",
  "list_scaled",
]


def __dir__() -> list[str]:
  """Returns the names of the API."""
  return sorted(__all__)


_Optimizer: Final = tf.compat.v1.train.Optimizer
_STEPS = wrapped_optimizers.STEPS_BY_ENVIRONMENT  # It holds a `_Steps`.
_Method = Callable[..., Any]

_log: Final = patching.UndoLog()
_is_honored = False
_LOCK = threading.Lock()  # Several threads may use one optimizer.
_printed: set[str] = set()  # The lines that this process has printed.
_quiet = False


def asks_for_loss_scale() -> bool:
  """Returns whether the environment asks for loss scales of optimizers."""
  value = os.environ.get(legacy_names.LOSS_SCALING)
  if value is None:
    value = os.environ.get(legacy_names.MIXED_PRECISION)
  return value == "1"


def asks_for_rewrite() -> bool:
  """Returns whether the environment asks for the graph rewrite.

  NVIDIA's builds read this in C++, where "true" is as good as "1", and an empty
  value counts as none.
  """
  value = os.environ.get(legacy_names.GRAPH_REWRITE)
  value = value or os.environ.get(legacy_names.MIXED_PRECISION, "")
  return value.lower() in ("1", "true")


def honor_environment(quiet: bool = False) -> None:
  """Makes this process obey NVIDIA's variables from now on.

  Each `tf.compat.v1.train.Optimizer` that is created while the environment asks
  for loss scaling gets a `DynamicLossScale()` of its own. Its methods
  `compute_gradients` and `apply_gradients` then do what those of
  `MixedPrecisionLossScaleOptimizer` do, with the same names of variables. In
  object-based checkpoints the loss scale is the optimizer's child `loss_scale`.
  An optimizer whose class overrides one of the two methods without a call of
  `super()` goes without that half, as in NVIDIA's builds. A copy by `copy.copy`
  has its own attributes and shares the loss scale; `copy.deepcopy` copies both.

  The graph rewrite is turned on now, or when an optimizer or a session is
  created while the environment asks for the rewrite. So a program may set the
  variables itself. Optimizers of Keras do not change. A second call changes
  nothing but `quiet`.

  Args:
    quiet: Whether to print no line to stderr when the environment first turns
      something on.
  """
  global _is_honored, _quiet
  _is_honored, _quiet = True, quiet
  for owner, name, method in _METHODS:
    if not _log.has_set(method):
      _log.set(owner, name, functools.wraps(getattr(owner, name))(method))
  _rewrite_if_asked()


def ignore_environment() -> None:
  """Takes back `honor_environment`.

  Graphs that are built do not change. Optimizers that have a loss scale no
  longer use it in later calls. The graph rewrite stays as it is. If another
  program has replaced a method since, its replacement stays.
  """
  global _is_honored
  _is_honored = False
  _log.undo()


def _get_own(method: _Method) -> _Method:
  """Returns the method that `method` took the place of."""
  return vars(method)["__wrapped__"]


def find_steps(optimizer: Any) -> Any:
  """Returns the object that does the steps of an optimizer with a loss scale.

  Args:
    optimizer: Any object.

  Returns:
    An object with `loss_scale`, `last_step_applied` and `variables()`, by which
    the steps are recorded; None if `honor_environment` gave `optimizer` no loss
    scale.
  """
  steps = getattr(optimizer, _STEPS, None)
  if steps is None or not isinstance(optimizer, _Optimizer):
    return steps
  if steps.owner is not optimizer:
    # A copy of an optimizer has the object of the original.
    with _LOCK:
      steps = getattr(optimizer, _STEPS)
      if steps.owner is not optimizer:
        steps = vars(optimizer)[_STEPS] = _Steps(optimizer, steps.loss_scale)
  return steps


def list_scaled(optimizer: Any, keras: bool = False) -> list[Any]:
  """Returns the optimizers with a loss scale that an optimizer is or wraps.

  There may be several if they have their loss scales by the environment, which
  gives one to a wrapper, too. The wrapper uses its own only if its methods call
  those of `tf.compat.v1.train.Optimizer`.

  Args:
    optimizer: An optimizer.
    keras: Whether the optimizer may be a `keras.LossScaleOptimizer`.

  Returns:
    Optimizers, and what `find_steps` returns for optimizers, the outermost
    first, at least one.

  Raises:
    ValueError: There is no loss scale.
  """

  def is_scaled(each: Any) -> bool:
    if isinstance(each, loss_scale_optimizer.MixedPrecisionLossScaleOptimizer):
      return True
    return keras and optimizer_kinds.is_keras_with_scale(each)

  found: list[Any] = []
  for each in wrapped_optimizers.walk(optimizer, is_scaled, ("optimizer",)):
    own = each if is_scaled(each) else find_steps(each)
    if own is not None and all(own is not x for x in found):
      found.append(own)
  if not found:
    also = "tf_compat_lossscale.keras.LossScaleOptimizer, a " if keras else ""
    raise ValueError(
      f"optimizer must be a {also}MixedPrecisionLossScaleOptimizer, a "
      "contrib.LossScaleOptimizer or an optimizer that wraps one, but got "
      f"{wrong_values.show(optimizer)}"
    )
  return found


def _initialize(self: Any, *args: Any, **kwargs: Any) -> None:
  """Initializes an optimizer, with a loss scale if the environment says so."""
  _get_own(_initialize)(self, *args, **kwargs)
  if not _is_honored:
    return
  _rewrite_if_asked()
  # An attribute that is not the optimizer's own is that of one it wraps.
  if not asks_for_loss_scale() or _STEPS in vars(self):
    return
  if isinstance(self, contrib.LossScaleOptimizer):
    return  # In NVIDIA's builds, too, this class left its base uninitialized.
  if isinstance(self, loss_scale_optimizer.MixedPrecisionLossScaleOptimizer):
    raise ValueError(
      f"{_describe(legacy_names.LOSS_SCALING)} gives every optimizer a "
      "dynamic loss scale, so an optimizer must not be wrapped in a second "
      "one: take the variable "
      f"away (or set {legacy_names.LOSS_SCALING}=0), or remove "
      "MixedPrecisionLossScaleOptimizer and "
      "enable_mixed_precision_graph_rewrite() from the program."
    )
  loss_scale = loss_scale_lib.DynamicLossScale()
  tracking.track(self, loss_scale, "loss_scale")
  vars(self)[_STEPS] = _Steps(self, loss_scale)


def _compute_gradients(self: Any, *args: Any, **kwargs: Any) -> Any:
  """Computes gradients by the scaled loss, if there is a loss scale."""
  steps = find_steps(self)
  if steps is None or not _is_honored:
    return _get_own(_compute_gradients)(self, *args, **kwargs)
  return steps.compose().compute_gradients(*args, **kwargs)


def _apply_gradients(self: Any, *args: Any, **kwargs: Any) -> Any:
  """Applies gradients if they are finite, and if there is a loss scale."""
  steps = find_steps(self)
  if steps is None or not _is_honored:
    return _get_own(_apply_gradients)(self, *args, **kwargs)
  return steps.compose().apply_gradients(*args, **kwargs)


def _make_start() -> _Method:
  """Returns the method that initializes a session, with the graph rewrite."""

  def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
    if _is_honored:
      _rewrite_if_asked()
    _get_own(initialize)(self, *args, **kwargs)

  return initialize


# (class, name of a method, the method that `honor_environment` sets)
_METHODS: tuple[tuple[type, str, _Method], ...] = (
  (_Optimizer, "__init__", _initialize),
  (_Optimizer, "compute_gradients", _compute_gradients),
  (_Optimizer, "apply_gradients", _apply_gradients),
  (tf.compat.v1.Session, "__init__", _make_start()),
  (tf.compat.v1.InteractiveSession, "__init__", _make_start()),
)


class _Steps:
  """The steps of an optimizer that has a loss scale by the environment.

  No checkpoint and no program sees this object: the optimizer's methods call
  it, and `LossScaleHook` watches it.

  Attributes:
    owner: The optimizer; None if a copy of the optimizer has not used this yet.
    loss_scale: The LossScale.
  """

  def __init__(self, owner: Any, loss_scale: Any) -> None:
    self.owner = owner
    self.loss_scale = loss_scale

  @property
  def last_step_applied(self) -> tf.Tensor:
    """Whether the last step was applied: see `step_records`."""
    return step_records.read_last_applied(self)

  def get_name(self) -> str:
    """Returns the name of the optimizer."""
    name: str = self.owner.get_name()
    return name

  def variables(self) -> list[tf.Variable]:
    """Returns the variables of the optimizer, then those of its loss scale."""
    weights = graph_weights.list_weights(self.loss_scale)
    return [*self.owner.variables(), *weights.values()]

  def compose(self) -> scaled_steps.ScaledStep:
    """Returns how the optimizer takes a step, by the methods of its class."""
    apply = scaled_steps.on_each_replica(self._apply_unchecked)
    return scaled_steps.ScaledStep(
      self,
      self.loss_scale,
      functools.partial(_get_own(_compute_gradients), self.owner),
      scaled_steps.update_then_apply(self, self.loss_scale, apply),
    )

  def _apply_unchecked(
    self, grads_and_vars: Any, global_step: Any, name: str | None
  ) -> Any:
    """Applies gradients without a check that they are finite."""
    # The scope of the ops that apply gradients: variables may be named by it.
    # All replicas must pass the same object: TensorFlow compares identities.
    name = name and sys.intern(name.removesuffix("-wrapped"))
    apply = _get_own(_apply_gradients)
    return apply(self.owner, grads_and_vars, global_step, name)

  def __reduce__(self) -> tuple[Any, ...]:
    """Returns what copies are made of: the first use gives them their owner."""
    return _Steps, (None, self.loss_scale)

  def __repr__(self) -> str:
    return f"{self.owner!r} with {self.loss_scale!r}"


def _rewrite_if_asked() -> None:
  """Turns the graph rewrite on if the environment asks for the rewrite."""
  if asks_for_rewrite() and not rewrite.is_rewrite_enabled():
    graph_rewrite.turn_on()
  _announce()


def _announce() -> None:
  """Prints to stderr, once in a process, what the environment turns on."""
  effects = {}
  if asks_for_loss_scale():
    effects["each tf.train.Optimizer has a DynamicLossScale()"] = (
      legacy_names.LOSS_SCALING
    )
  if asks_for_rewrite():
    effects["the graph rewrite is on"] = legacy_names.GRAPH_REWRITE
  settings = dict.fromkeys(map(_describe, effects.values()))
  line = (
    f"tf-lossscale: {' and '.join(settings)}, as in NVIDIA's TensorFlow 1: "
    f"{', and '.join(effects)}"
  )
  if effects and not _quiet and line not in _printed and sys.stderr is not None:
    _printed.add(line)
    print(line, file=sys.stderr, flush=True)


def _describe(switch: str) -> str:
  """Returns the setting that turns a part of mixed precision on."""
  name = switch if os.environ.get(switch) else legacy_names.MIXED_PRECISION
  return f"{name}={os.environ.get(name)}"
