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
from typing import Protocol
from typing import TypeAlias

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _loss_scales
from tf_compat_lossscale.keras.optimizer import LossScaleOptimizer

# Policies whose layers computed in the dtype of their first input.
_OF_FIRST_INPUT = ("infer_float32_vars", "infer_with_float32_vars")

PolicyName: TypeAlias = Literal[
  "_infer",
  "mixed_float16",
  "mixed_bfloat16",
  "bfloat16",
  "bool",
  "complex128",
  "complex64",
  "float16",
  "float32",
  "float64",
  "int16",
  "int32",
  "int64",
  "int8",
  "string",
  "uint16",
  "uint32",
  "uint64",
  "uint8",
  "bfloat16_with_float32_vars",
  "float16_with_float32_vars",
  "float32_with_float32_vars",
  "infer",
]


class AnyPolicy(Protocol):
  """A dtype policy of this package or of Keras."""

  @property
  def compute_dtype(self) -> Any:
    """The dtype in which a layer computes."""


class Policy(_keras2.keras.mixed_precision.Policy):
  """A dtype policy that says how `Model.compile` scales the loss.

  If Keras deserializes a layer that had such a policy, the layer gets a policy
  of Keras's own class, without a loss scale.
  """

  def __init__(
    self,
    name: PolicyName,
    loss_scale: loss_scale_lib.Identifier | Literal["auto"] | None = "auto",
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
    name, automatic = _find_policy(name)
    super().__init__(name)
    self._is_automatic = isinstance(loss_scale, str) and loss_scale == "auto"
    if self._is_automatic:
      loss_scale = automatic
    self._loss_scale = _loss_scales.find(loss_scale, ("'auto'", "None"))
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
    _, automatic = _find_policy(self.name)
    if not self._is_automatic or (automatic and self._loss_scale is None):
      scale = self._loss_scale
      config["loss_scale"] = scale and _loss_scales.to_config(scale)
    return config

  @classmethod
  def from_config(
    cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
  ) -> Policy:
    """Makes a policy from a config that `get_config` returned."""
    config = dict(config)
    if isinstance(config.get("loss_scale"), dict):
      scale = _loss_scales.from_config(config["loss_scale"], custom_objects)
      config["loss_scale"] = scale
    return cls(**config)

  def __repr__(self) -> str:
    # `PolicyV1` was the name of this class within TensorFlow 2.4 to 2.8.
    return f'<PolicyV1 "{self.name}", loss_scale={self.loss_scale}>'


def global_policy() -> Any:
  """Returns the policy for layers without a policy of their own."""
  return _keras2.keras.mixed_precision.global_policy()


def set_policy(
  policy: AnyPolicy | PolicyName | None,
) -> None:
  """Sets the policy for layers without a policy of their own.

  Args:
    policy: A Policy of this module or of Keras; the name of one, for a Policy
      of this module; or None for the default.

  Raises:
    TypeError: `policy` is neither a policy nor a name.
    ValueError: The policy is mixed while the graph rewrite is on, or it is no
      floating-point policy, or TensorFlow 2's dtype behavior is off.
  """
  _keras2.wrap_in_compile(_choose_optimizer)
  own = _keras2.keras.mixed_precision
  chosen: Any = policy
  if chosen is not None:
    chosen = chosen if isinstance(chosen, own.Policy) else Policy(chosen)
    dtype = chosen.compute_dtype
    if dtype is not None and not tf.as_dtype(dtype).is_floating:
      raise ValueError(
        "set_policy can only be used to set the global policy to "
        'floating-point policies, such as "float32" and "mixed_float16", but '
        f"got policy: {chosen.name}"
      )
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


def _find_policy(name: Any) -> tuple[Any, Literal["dynamic"] | None]:
  """Returns a policy's name in Keras 2, and the loss scale that 'auto' means.

  Raises:
    ValueError: No Keras of today has that policy of TensorFlow 1.14 to 2.0.
  """
  if name in _OF_FIRST_INPUT:
    raise ValueError(
      f"The policy {name!r} of TensorFlow 1.14 to 2.0 computed in the dtype of "
      "a layer's first input, with float32 variables, and no Keras of today "
      "has it. Name the policy for the dtype of your inputs: "
      "Policy('mixed_float16', loss_scale=None), Policy('mixed_bfloat16') or "
      "Policy('float32')."
    )
  if name == "infer":
    return "_infer", None  # Keras 2 still has it by that name.
  if isinstance(name, str) and name.endswith("_with_float32_vars"):
    compute = name.removesuffix("_with_float32_vars")
    if compute in ("float16", "bfloat16"):
      return f"mixed_{compute}", None
    if compute == "float32":
      return compute, None
  return name, "dynamic" if name == "mixed_float16" else None


def _choose_optimizer(
  policy: Any, get_optimizer: Callable[[], Any], in_graph: bool
) -> Any:
  """Finds the optimizer that `Model.compile` uses; see `wrap_in_compile`.

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
  # The models of a policy do not share its loss scale, as in TensorFlow 2.4.
  return LossScaleOptimizer(optimizer, _loss_scales.copy(policy.loss_scale))


def _refuse_in_graph(optimizer: Any, policy: Policy, when: str) -> ValueError:
  return ValueError(
    '"optimizer" must be an instance of tf.keras.optimizers.legacy.Optimizer '
    f"when {when}, but got: {optimizer}. Using policy: {policy}"
  )


_keras2.wrap_in_compile(_choose_optimizer)
