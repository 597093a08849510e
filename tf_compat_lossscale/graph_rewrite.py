# SPDX-License-Identifier: Apache-2.0
"""Grappler's auto mixed precision, switched on together with a loss scale."""

from __future__ import annotations

from collections.abc import Callable
import functools
import importlib
from typing import Any

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale._core.tf import rewrite

__all__ = [
  "disable_mixed_precision_graph_rewrite",
  "enable_mixed_precision_graph_rewrite",
  "register_loss_scale_wrapper",
  "turn_on",
]
__dir__ = functools.partial(sorted, __all__)


_OPTION = "auto_mixed_precision"
# The module that registers this package's wrapper for optimizers of Keras 2. It
# loads Keras, so it is loaded for such an optimizer alone.
_KERAS_2 = "tf_compat_lossscale.keras.optimizer"
_Wrapper = Callable[[Any, Any], Any]

# For each base class of optimizers, a function that wraps an optimizer, and the
# class of the wrapped optimizer.
_wrappers: dict[type, tuple[_Wrapper, type]] = {
  tf.compat.v1.train.Optimizer: (
    loss_scale_optimizer.MixedPrecisionLossScaleOptimizer,
    loss_scale_optimizer.MixedPrecisionLossScaleOptimizer,
  ),
}


def register_loss_scale_wrapper(
  optimizer_cls: type, wrapper_fn: _Wrapper, wrapper_cls: type | None = None
) -> None:
  """Registers a wrapper for another family of optimizers.

  Args:
    optimizer_cls: The base class of those optimizers.
    wrapper_fn: Takes an optimizer and the loss scale that the user passed, and
      returns the wrapped optimizer.
    wrapper_cls: The class of the wrapped optimizer; by default `wrapper_fn` is
      that class.

  Raises:
    ValueError: `wrapper_cls` is missing and `wrapper_fn` is no class.
  """
  cls = wrapper_fn if wrapper_cls is None else wrapper_cls
  if not isinstance(cls, type):
    raise ValueError(
      f"wrapper_cls must be given if wrapper_fn is no class, but got "
      f"wrapper_fn={wrapper_fn!r} and wrapper_cls={wrapper_cls!r}."
    )
  _wrappers[optimizer_cls] = (wrapper_fn, cls)


def enable_mixed_precision_graph_rewrite(
  opt: Any,
  loss_scale: loss_scale_lib.Identifier = "dynamic",
) -> Any:
  """Enables the auto mixed precision rewrite and wraps an optimizer for it.

  Sessions and functions created afterwards run some of their float32 ops in
  float16, on devices that are faster in float16. Compute gradients by the
  returned optimizer alone, for no other optimizer scales the loss.

  Args:
    opt: A `tf.compat.v1.train.Optimizer`, or an optimizer of a registered
      family. Keras 2 registers its own optimizers.
    loss_scale: 'dynamic', a number for a fixed loss scale, or a LossScale.

  Returns:
    `opt`, wrapped in an optimizer that scales the loss.

  Raises:
    ValueError: `opt` is wrapped already or of no known family, `loss_scale` is
      no loss scale, or a mixed Keras policy is set. Then nothing is enabled.
  """
  if rewrite.is_mixed_policy_set():
    raise ValueError(
      "The mixed precision graph rewrite cannot be enabled, because the global "
      "Keras dtype Policy has been set to a mixed one: both would lower "
      "precision. Keep the policy and wrap the optimizer in a "
      "LossScaleOptimizer, or set the policy back to 'float32'."
    )
  wrapped = _wrap(opt, loss_scale)
  turn_on()
  return wrapped


def turn_on() -> None:
  """Enables the rewrite for sessions and functions created afterwards."""
  if rewrite.has_plain_session():
    # The words are those of TensorFlow, as are the next ones.
    logging.warning(
      "You already have existing Sessions that do not use mixed precision. "
      "enable_mixed_precision_graph_rewrite() will not affect these Sessions."
    )
  tf.config.optimizer.set_experimental_options({_OPTION: True})
  rewrite.set_rewrite_enabled(True)


def disable_mixed_precision_graph_rewrite() -> None:
  """Disables the rewrite for sessions and functions created afterwards.

  Optimizers that are wrapped already go on to scale the loss. Sessions that
  were created in between keep the rewrite.
  """
  if not rewrite.is_rewrite_enabled():
    logging.warning(
      "disable_mixed_precision_graph_rewrite() called when mixed precision is "
      "already disabled."
    )
  tf.config.optimizer.set_experimental_options({_OPTION: False})
  rewrite.set_rewrite_enabled(False)


def _wrap(opt: Any, loss_scale: Any) -> Any:
  """Returns an optimizer, wrapped by the wrapper of its family."""
  foreign = rewrite.read_wrappers()
  for _, wrapper_cls in [*_wrappers.values(), *foreign.values()]:
    if isinstance(opt, wrapper_cls):
      raise ValueError(
        f'"opt" must not already be an instance of a {wrapper_cls.__name__}. '
        "enable_mixed_precision_graph_rewrite() wraps it: pass the optimizer "
        "that is inside."
      )
  if (
    not isinstance(opt, tuple(_wrappers))
    and isinstance(opt, tuple(foreign))
    and not which_keras.is_keras_3()
  ):
    importlib.import_module(_KERAS_2)
  for optimizer_cls, (wrapper_fn, _) in _wrappers.items():
    if isinstance(opt, optimizer_cls):
      return wrapper_fn(opt, loss_scale)
  for optimizer_cls, (wrapper_fn, _) in foreign.items():
    if isinstance(opt, optimizer_cls):
      return wrapper_fn(opt, _as_tensorflows(loss_scale))
  raise ValueError(
    '"opt" must be an instance of a tf.train.Optimizer or a '
    "tf.keras.optimizers.Optimizer, but got: "
    f"{optimizer_kinds.show_wrong(opt)}"
  )


def _as_tensorflows(loss_scale: Any) -> Any:
  """Returns an equal loss scale of TensorFlow's class, as Keras 2 demands."""
  if not isinstance(loss_scale, loss_scale_lib.LossScale):
    return loss_scale
  cls = getattr(tf.compat.v1.mixed_precision, type(loss_scale).__name__, None)
  if cls is None:
    return loss_scale
  # The variables of TensorFlow's loss scale are of no use: Keras 2 reads the
  # config alone.
  with tf.Graph().as_default():
    return cls.from_config(loss_scale.get_config())
