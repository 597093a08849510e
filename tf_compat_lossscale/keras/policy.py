"""The dtype policy of Keras 2 that says how the loss is scaled.

To import this module teaches `Model.compile` of Keras 2 about the loss scale of
a `Policy` of this module; models with other policies notice nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from absl import logging

from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras.optimizer import find_loss_scale
from tf_compat_lossscale.keras.optimizer import LossScaleOptimizer


class Policy(_keras2.keras.mixed_precision.Policy):
  """A dtype policy that says how `Model.compile` is to scale the loss.

  Where Keras deserializes a layer with it, the layer has a policy of Keras's
  own, without a loss scale.
  """

  def __init__(self, name: str, loss_scale: Any = "auto") -> None:
    """Makes a policy.

    Args:
      name: 'mixed_float16', 'mixed_bfloat16' or a dtype.
      loss_scale: 'auto', which is 'dynamic' for 'mixed_float16' and None for
        others; None, for none; or what `LossScaleOptimizer` takes.

    Raises:
      ValueError: `name` or `loss_scale` is none.
    """
    super().__init__(name)
    self._is_automatic = isinstance(loss_scale, str) and loss_scale == "auto"
    if self._is_automatic:
      loss_scale = "dynamic" if name == "mixed_float16" else None
    self._loss_scale = find_loss_scale(loss_scale)
    if self._loss_scale is not None and self.compute_dtype not in (
      None,
      "float16",
    ):
      logging.warning(
        "A loss scale is of use to float16 policies alone, but got "
        "loss_scale=%r for the policy %r: consider to leave it out.",
        loss_scale,
        name,
      )

  @property
  def loss_scale(self) -> loss_scale_lib.LossScale | None:
    """What `Model.compile` wraps the optimizer with; None for nothing."""
    return self._loss_scale

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments, without a loss scale that is automatic."""
    config = {"name": self.name}
    if not self._is_automatic:
      scale = self._loss_scale
      config["loss_scale"] = scale and {
        "class_name": type(scale).__name__,
        "config": scale.get_config(),
      }
    return config

  @classmethod
  def from_config(
    cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
  ) -> Policy:
    """Makes a policy of what `get_config` returned."""
    del custom_objects
    return cls(**config)

  def __repr__(self) -> str:
    return f'<Policy "{self.name}", loss_scale={self.loss_scale}>'


def global_policy() -> Any:
  """Returns the policy of layers that are given none."""
  return _keras2.keras.mixed_precision.global_policy()


def set_policy(policy: Any) -> None:
  """Sets the policy of layers that are given none.

  Args:
    policy: A Policy of this module or of Keras, the name of one, or None for
      the default.

  Raises:
    ValueError: It is a mixed one while the graph rewrite is on, no
      floating-point one, or TensorFlow 2's dtype behavior is off.
  """
  _keras2.keras.mixed_precision.set_global_policy(policy)


def get_layer_policy(layer: Any) -> Any:
  """Returns the dtype policy of a layer.

  Raises:
    ValueError: `layer` is no layer of Keras 2.
  """
  if not isinstance(layer, _keras2.keras.layers.Layer):
    raise ValueError(
      f"get_policy can only be called on a layer, but got: {layer!r}"
    )
  return layer.dtype_policy


def _wrap(policy: Any, get_optimizer: Callable[[], Any]) -> Any:
  """What `Model.compile` uses for an optimizer; None leaves it to Keras."""
  if not isinstance(policy, Policy):
    return None
  optimizer = get_optimizer()
  if policy.loss_scale is None or isinstance(
    optimizer, _keras2.BaseLossScaleOptimizer
  ):
    return optimizer
  return LossScaleOptimizer(optimizer, policy.loss_scale)


_keras2.wrap_in_compile(_wrap)
