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
from collections.abc import Iterable
import functools
import os
import sys
from typing import Any
from typing import Final

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import contrib
from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import pair_checks
from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale._core.tf import rewrite
from tf_compat_lossscale._core.tf import tracking

__all__ = [
  "asks_for_loss_scale",
  "asks_for_rewrite",
  "find_loss_scale",
  "honor_environment",
  "ignore_environment",
  "list_scaled",
  "say_ignored",
]
__dir__ = functools.partial(sorted, __all__)


_Optimizer: Final = tf.compat.v1.train.Optimizer
_Method = Callable[..., Any]

_log: Final = patching.UndoLog()
_is_honored = False
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
  A loss scale that the program gives an optimizer itself, by
  `MixedPrecisionLossScaleOptimizer` or `enable_mixed_precision_graph_rewrite`,
  takes the place of that by the environment.

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
  return vars(method)["__wrapped__"]


def find_loss_scale(optimizer: Any) -> loss_scale_lib.LossScale | None:
  """Returns the loss scale that `honor_environment` gave an object, or None."""
  found: loss_scale_lib.LossScale | None = None
  if isinstance(optimizer, _Optimizer):
    # An attribute that is not the optimizer's own is that of one it wraps.
    found = vars(optimizer).get(optimizer_kinds.BY_ENVIRONMENT)
  return found


def list_scaled(optimizer: Any, keras: bool = False) -> list[tuple[Any, Any]]:
  """Returns the optimizers with a loss scale that an optimizer is or wraps.

  There may be several if they have their loss scales by the environment, which
  gives one to a wrapper, too. The wrapper uses its own only if its methods call
  those of `tf.compat.v1.train.Optimizer`. With `keras`, the optimizer may be a
  `keras.LossScaleOptimizer`.

  Returns:
    Pairs of an optimizer and its loss scale, the outermost first, at least one.

  Raises:
    ValueError: There is no loss scale.
  """
  scaled = loss_scale_optimizer.MixedPrecisionLossScaleOptimizer
  found: list[tuple[Any, Any]] = []
  for each in optimizer_kinds.walk(optimizer):
    if isinstance(each, scaled) or (
      keras and optimizer_kinds.is_keras_with_scale(each)
    ):
      return [*found, (each, each.loss_scale)]
    own = find_loss_scale(each)
    if own is not None:
      found.append((each, own))
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
  if not asks_for_loss_scale() or find_loss_scale(self) is not None:
    return
  if isinstance(self, contrib.LossScaleOptimizer):
    return  # In NVIDIA's builds, too, this class left its base uninitialized.
  if isinstance(self, loss_scale_optimizer.MixedPrecisionLossScaleOptimizer):
    return  # It takes the scale of the optimizer in it away.
  vars(self)[optimizer_kinds.BY_ENVIRONMENT] = loss_scale_lib.DynamicLossScale()
  tracking.track(self, find_loss_scale(self), "loss_scale")


def _compute_gradients(self: Any, *args: Any, **kwargs: Any) -> Any:
  """Computes gradients by the scaled loss, if there is a loss scale."""
  compute = functools.partial(_get_own(_compute_gradients), self)
  loss_scale = find_loss_scale(self)
  if loss_scale is None or not _is_honored:
    return compute(*args, **kwargs)
  scaled, factor = loss_scale_optimizer.compute_scaled(
    loss_scale, compute, *args, **kwargs
  )
  pairs = loss_scale_optimizer.unscale(scaled, factor)
  loss_scale_optimizer.keep_computed(self, pairs)
  return pairs


def _apply_gradients(
  self: Any, grads_and_vars: Any, global_step: Any = None, name: Any = None
) -> Any:
  """Applies gradients if they are finite, and if there is a loss scale."""
  loss_scale = find_loss_scale(self)
  if loss_scale is None or not _is_honored:
    return _get_own(_apply_gradients)(self, grads_and_vars, global_step, name)

  def apply(pairs: Any, global_step: Any, _: str) -> Any:
    # The scope of the ops that apply gradients: variables may be named by it.
    return _get_own(_apply_gradients)(self, pairs, global_step, name)

  step = functools.partial(
    loss_scale_optimizer.update_and_apply, self, loss_scale, apply, False
  )
  pairs = pair_checks.read(grads_and_vars)
  # A wrapper and the optimizer within may share the work: one computes, and the
  # other applies.
  if not loss_scale_optimizer.has_computed(tf.compat.v1.get_default_graph()):
    loss_scale_optimizer.warn_if_unread(self, loss_scale, pairs)
  return loss_scale_optimizer.take_step(step, pairs, global_step, name)


def _variables(self: Any) -> list[tf.Variable]:
  """Returns what Keras initializes: in a graph, the loss scale's, too."""
  found: list[tf.Variable] = _get_own(_variables)(self)
  loss_scale = find_loss_scale(self)
  if loss_scale is None or not _is_honored or tf.executing_eagerly():
    return found
  return [*found, *graph_weights.list_weights(loss_scale).values()]


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
  (_Optimizer, "variables", _variables),
  (tf.compat.v1.Session, "__init__", _make_start()),
  (tf.compat.v1.InteractiveSession, "__init__", _make_start()),
)


def _rewrite_if_asked() -> None:
  if asks_for_rewrite() and not rewrite.is_rewrite_enabled():
    graph_rewrite.turn_on()
  _announce()


def _announce() -> None:
  """Prints to stderr, once in a process, what the environment turns on."""
  effects = {}
  if asks_for_loss_scale():
    effects[legacy_names.LOSS_SCALING] = (
      "each tf.train.Optimizer has a DynamicLossScale()"
    )
  if asks_for_rewrite():
    effects[legacy_names.GRAPH_REWRITE] = "the graph rewrite is on"
  line = (
    f"tf-lossscale: {_show_settings(effects)}, as in NVIDIA's TensorFlow 1: "
    f"{', and '.join(effects.values())}"
  )
  if effects and not _quiet and line not in _printed and sys.stderr is not None:
    _printed.add(line)
    print(line, file=sys.stderr, flush=True)


def say_ignored() -> None:
  """Prints a line if the environment asks for something, and gets nothing."""
  if asks_for_loss_scale() or asks_for_rewrite():
    switches = (legacy_names.LOSS_SCALING, legacy_names.GRAPH_REWRITE)
    print(
      f"tf-lossscale: {_show_settings(filter(os.environ.get, switches))} has "
      "no effect on TensorFlow 2 code, as in NVIDIA's TensorFlow 2: use a "
      "Keras policy, or run --tf1 if the program is older",
      file=sys.stderr,
      flush=True,
    )


def _show_settings(switches: Iterable[str]) -> str:
  """Returns the settings that turn parts of mixed precision on."""
  common = legacy_names.MIXED_PRECISION  # It stands for those that are not set.
  names = [x if os.environ.get(x) else common for x in switches] or [common]
  return " and ".join(f"{x}={os.environ.get(x)}" for x in dict.fromkeys(names))
