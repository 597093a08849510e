# SPDX-License-Identifier: Apache-2.0
"""Defines the dtype policy of Keras 2 that says how the loss is scaled.

The first use of this module patches `Model.compile` of Keras 2, so that a model
with a `Policy` of this module gets the policy's loss scale. Models with other
policies are compiled as before. `tf_compat_lossscale.uninstall()` takes the
patch back; the next `Policy` or `set_policy` patches again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import Literal

from absl import logging

from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import scales
from tf_compat_lossscale.keras.optimizer import LossScaleOptimizer


class Policy(_keras2.keras.mixed_precision.Policy):
  """A dtype policy that says how `Model.compile` scales the loss.

  If Keras deserializes a layer that had such a policy, the layer gets a policy
  of Keras's own class, without a loss scale.
  """

  def __init__(
    self,
    name: scales.PolicyName,
    loss_scale: scales.Identifier | Literal["auto"] | None = "auto",
  ) -> None:
    """Makes a policy.

    Args:
      name: 'mixed_float16', 'mixed_bfloat16' or a dtype. Of the names of
        TensorFlow 1.14 to 2.0, also 'infer', for the dtype of a layer's first
        input, and 'float16_with_float32_vars', for 'mixed_float16' without a
        loss scale.
      loss_scale: 'auto', which is 'dynamic' for 'mixed_float16' and None for
        others; None, for none; or a loss scale that `LossScaleOptimizer` takes.

    Raises:
      ValueError: `name` is no policy, or `loss_scale` is no loss scale.
    """
    _keras2.wrap_in_compile(_choose_optimizer)
    name, automatic = scales.find_policy(name)
    super().__init__(name)
    self._is_automatic = isinstance(loss_scale, str) and loss_scale == "auto"
    if self._is_automatic:
      loss_scale = automatic
    self._loss_scale = scales.find_loss_scale(loss_scale, ("'auto'", "None"))
    if self._loss_scale is not None and self.compute_dtype not in (
      None,
      "float16",
    ):
      # The words are those of TensorFlow 2.0 to 2.8.
      logging.warning(
        "Creating a Policy with a loss scale is only useful for float16 "
        "policies. You passed loss_scale=%r for policy %s. Consider not "
        "passing any loss_scale instead.",
        loss_scale,
        name,
      )

  @property
  def loss_scale(self) -> Any:
    """The `LossScale` that `Model.compile` gives the optimizer, or None."""
    return self._loss_scale

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments, without a loss scale that is automatic."""
    config = {"name": self.name}
    _, automatic = scales.find_policy(self.name)
    if not self._is_automatic or (automatic and self._loss_scale is None):
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
    """Makes a policy from a config that `get_config` returned."""
    del custom_objects
    return cls(**config)

  def __repr__(self) -> str:
    # `PolicyV1` was the name of this class within TensorFlow 2.4 to 2.8.
    return f'<PolicyV1 "{self.name}", loss_scale={self.loss_scale}>'


def global_policy() -> Any:
  """Returns the policy for layers without a policy of their own."""
  return _keras2.keras.mixed_precision.global_policy()


def set_policy(
  policy: scales.AnyPolicy | scales.PolicyName | None,
) -> None:
  """Sets the policy for layers without a policy of their own.

  Args:
    policy: A Policy of this module or of Keras, the name of one, or None for
      the default.

  Raises:
    TypeError: `policy` is neither a policy nor a name.
    ValueError: The policy is mixed while the graph rewrite is on, or it is no
      floating-point policy, or TensorFlow 2's dtype behavior is off.
  """
  _keras2.wrap_in_compile(_choose_optimizer)
  own = _keras2.keras.mixed_precision
  chosen: Any = policy
  if chosen is not None and not isinstance(chosen, own.Policy):
    is_old = scales.find_policy(chosen)[0] != chosen
    chosen = (Policy if is_old else own.Policy)(chosen)
  if chosen is not None:
    scales.check_floating(chosen)
  own.set_global_policy(chosen)


def get_layer_policy(layer: Any) -> Any:
  """Returns the dtype policy of a layer.

  Raises:
    ValueError: `layer` is no layer of Keras 2.
  """
  if not isinstance(layer, _keras2.keras.layers.Layer):
    raise ValueError(
      f"get_policy can only be called on a layer, but got: {layer!r}, which is "
      f"no layer of Keras 2 ({_keras2.keras.__name__})."
    )
  return layer.dtype_policy


def _choose_optimizer(
  policy: Any, get_optimizer: Callable[[], Any], in_graph: bool
) -> Any:
  """Finds the optimizer that `Model.compile` uses.

  Args:
    policy: The policy of a model.
    get_optimizer: Returns the optimizer; in graphs perhaps a list of them.
    in_graph: Whether the model is in a graph of TensorFlow 1.

  Returns:
    An optimizer, a list of optimizers, or None to leave the choice to Keras.

  Raises:
    ValueError: In a graph, a model cannot train with that optimizer and policy.
  """
  if not isinstance(policy, Policy):
    return None
  optimizer = get_optimizer()
  for each in optimizer if isinstance(optimizer, list) else [optimizer]:
    if in_graph and isinstance(each, _keras2.Optimizer):
      raise _refuse_in_graph(each, policy, "a model is in a graph")
  if policy.loss_scale is None:
    return optimizer
  if in_graph and isinstance(optimizer, list):
    raise ValueError(
      "When a dtype policy with a loss scale is used, you can only pass a "
      f"single optimizer. Using policy {policy} and got optimizers: "
      f"{optimizer}"
    )
  if in_graph and not isinstance(optimizer, _keras2.LegacyOptimizer):
    used = "a dtype policy with a loss scale is used"
    raise _refuse_in_graph(optimizer, policy, used)
  if isinstance(optimizer, _keras2.BaseLossScaleOptimizer):
    return optimizer
  return LossScaleOptimizer(optimizer, policy.loss_scale)


def _refuse_in_graph(optimizer: Any, policy: Policy, when: str) -> ValueError:
  """Makes the error for an optimizer that a graph's model cannot use."""
  return ValueError(
    '"optimizer" must be an instance of tf.keras.optimizers.legacy.Optimizer '
    f"when {when}, but got: {optimizer}. Using policy: {policy}"
  )


_keras2.wrap_in_compile(_choose_optimizer)
