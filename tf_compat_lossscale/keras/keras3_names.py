# SPDX-License-Identifier: Apache-2.0
"""Holds the names of `tf.keras.mixed_precision.experimental`, for Keras 3.

`tf_compat_lossscale.install()` uses these names if `tf.keras` is Keras 3. Keras
3 scales the loss by a rule of its own: it wraps the optimizer of a
'mixed_float16' model in a dynamic loss scale that begins at 2**15 and doubles
after 2000 finite steps. This module accepts the loss scales that Keras 3 has.
Other loss scales need Keras 2, and raise an error that says so (`_ON_KERAS_2`).

Importing this module imports Keras 3. It does not need tf_keras.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale._core.tf import rewrite
from tf_compat_lossscale.keras import keras3_optimizer
from tf_compat_lossscale.keras import scales

_ON_KERAS_2 = (
  "tf.keras is Keras 3 here. To run the program on Keras 2, as it was written, "
  "call tf_compat_lossscale.use_keras_2() before TensorFlow is imported, or "
  "set TF_USE_LEGACY_KERAS=1, or run it by `python -m tf_compat_lossscale run`."
)
# The loss scale that Keras 3 gives a 'mixed_float16' model.
_DYNAMIC = scales.Numbers(True, 2.0**15, 2000)


_keras = which_keras.import_keras_3()
_own = _keras.mixed_precision


class _AnyPolicy(type(_own.DTypePolicy)):  # type: ignore[misc]
  """The metaclass that makes every dtype policy of Keras 3 a `Policy`."""

  def __instancecheck__(cls, instance: Any) -> bool:
    wanted = _own.DTypePolicy if cls is Policy else cls
    return type.__instancecheck__(wanted, instance)


class Policy(_own.DTypePolicy, metaclass=_AnyPolicy):  # type: ignore[name-defined]
  """A dtype policy of Keras 3 that says how Keras 3 scales the loss."""

  def __init__(self, name: str, loss_scale: Any = "auto") -> None:
    """Makes a policy.

    Args:
      name: 'mixed_float16', 'mixed_bfloat16' or a dtype.
      loss_scale: 'auto', or the loss scale that Keras 3 has for that policy:
        'dynamic' or `DynamicLossScale()` for 'mixed_float16', None for others.

    Raises:
      TypeError: `name` is no string, or `loss_scale` a LossScale of another
        class.
      ValueError: `name` is no policy, or Keras 3 cannot scale the loss so.
    """
    found, automatic = scales.find_policy(_check_name(name))
    if found == "_infer":
      raise ValueError(
        "The policy 'infer' of TensorFlow 1.14 to 2.0 took the dtype of a "
        "layer's first input, which Keras 3 does not do: name the dtype, such "
        f"as Policy('float32'). {_ON_KERAS_2}"
      )
    super().__init__(found)
    if isinstance(loss_scale, str) and loss_scale == "auto":
      # Keras 3 scales the loss of every mixed_float16 model.
      loss_scale = automatic
    name = found
    scale = scales.find_loss_scale(loss_scale, ("'auto'", "None"))
    numbers = None if scale is None else scales.find_numbers(scale)
    if numbers != (_DYNAMIC if name == "mixed_float16" else None):
      raise _refuse_policy(name, loss_scale, numbers)
    self._loss_scale = scale

  @property
  def loss_scale(self) -> loss_scale_lib.LossScale | None:
    """The loss scale that `Model.compile` uses, or None."""
    return self._loss_scale

  def __eq__(self, other: object) -> bool:
    return isinstance(other, _own.DTypePolicy) and self.name == other.name

  __hash__ = None  # type: ignore[assignment]  # As Keras's own.

  def __reduce__(self) -> tuple[Any, ...]:
    return _make_policy, (self.name,)

  def __repr__(self) -> str:
    # `PolicyV1` was the name of this class within TensorFlow 2.4 to 2.8.
    return f'<PolicyV1 "{self.name}", loss_scale={self.loss_scale}>'


def _make_policy(name: str) -> Policy:
  return Policy(name)


def _check_name(name: Any) -> str:
  """Checks the name of a policy as Keras 2 does, and returns it."""
  if isinstance(name, tf.DType):
    raise TypeError(
      "'name' must be a string, not a DType. Instead, pass DType.name. Got: "
      f"{name.name}"
    )
  if not isinstance(name, str):
    raise TypeError(f"'name' must be a string, but got: {name!r}")
  return name


def _refuse_policy(
  name: str, loss_scale: Any, numbers: scales.Numbers | None
) -> ValueError:
  """Makes the error for a loss scale that Keras 3 does not have."""
  if numbers is None:
    instead = (
      f"use Policy({name!r}), and compile the model with auto_scale_loss=False"
    )
  elif numbers.dynamic:
    instead = (
      f"use Policy({name!r}, 'auto'), and compile the model with "
      "keras.optimizers.LossScaleOptimizer(optimizer, "
      f"initial_scale={numbers.initial_scale}, "
      f"dynamic_growth_steps={numbers.growth_steps})"
    )
  else:
    instead = f"use Policy({name!r}, 'auto'), and " + _advise_fixed(numbers)
  return ValueError(
    f"Keras 3 does not scale the loss of a {name!r} model by "
    f"loss_scale={loss_scale!r}: {instead}. {_ON_KERAS_2}"
  )


def _advise_fixed(numbers: scales.Numbers) -> str:
  """Returns the advice for a loss scale that is fixed."""
  return (
    "give the model's optimizer of Keras 3 "
    f"loss_scale_factor={numbers.initial_scale}, and compile the model with "
    "auto_scale_loss=False"
  )


def global_policy() -> Any:
  """Returns Keras 3's policy for layers without a policy of their own."""
  return _own.dtype_policy()


def set_policy(policy: Any) -> None:
  """Sets Keras 3's policy for layers without a policy of their own.

  Args:
    policy: A Policy of this module or a dtype policy of Keras 3, the name of
      one, or None for the default, `keras.config.floatx()`.

  Raises:
    TypeError: `policy` is none of these.
    ValueError: `policy` is mixed while the graph rewrite is on, or it is no
      floating-point policy.
  """
  if policy is None:
    policy = _keras.config.floatx()
  if any(
    cls.__module__.startswith("tf_keras.") for cls in type(policy).__mro__
  ):
    raise TypeError(
      f"{policy!r} is a policy of Keras 2: set it by "
      f"tf_compat_lossscale.keras.set_policy(). {_ON_KERAS_2}"
    )
  if not isinstance(policy, _own.DTypePolicy):
    policy = Policy(policy)
  mixed = policy.compute_dtype != policy.variable_dtype
  if mixed and rewrite.is_rewrite_enabled():
    raise ValueError(
      f'The global dtype policy cannot be set to "{policy.name}", because the '
      "mixed precision graph rewrite has already been enabled. Both would "
      "lower precision: call disable_mixed_precision_graph_rewrite() first."
    )
  scales.check_floating(policy)
  _own.set_dtype_policy(policy)
  # As Keras 2 does, so that the graph rewrite cannot be enabled meanwhile.
  tf.__internal__.train.set_using_mixed_precision_policy(mixed)


def get_layer_policy(layer: Any) -> Any:
  """Returns the dtype policy of a layer of Keras 3.

  Raises:
    ValueError: `layer` is no layer of Keras 3.
  """
  if not isinstance(layer, _keras.layers.Layer):
    raise ValueError(
      f"get_policy can only be called on a layer, but got: {layer!r}, which is "
      "no layer of Keras 3. For layers of Keras 2 there is "
      "tf_compat_lossscale.keras.get_layer_policy()."
    )
  return layer.dtype_policy


_Base = _keras.optimizers.LossScaleOptimizer


class _AnyLossScaleOptimizer(type(_Base)):  # type: ignore[misc]
  """The metaclass that makes Keras 3's own class a `LossScaleOptimizer`."""

  def __instancecheck__(cls, instance: Any) -> bool:
    wanted = _Base if cls is LossScaleOptimizer else cls
    return type.__instancecheck__(wanted, instance)


class LossScaleOptimizer(
  keras3_optimizer.Keras3LossScaleOptimizer, metaclass=_AnyLossScaleOptimizer
):
  """Keras 3's LossScaleOptimizer, made of a loss scale.

  Unlike in Keras 2, the loss scale may fall below 1, and skipped steps do not
  count in `iterations`.
  """

  def __init__(self, optimizer: Any, loss_scale: Any) -> None:
    """Wraps an optimizer.

    Args:
      optimizer: An optimizer of Keras 3.
      loss_scale: 'dynamic', a DynamicLossScale whose multiplier is 2, or the
        config of one.

    Raises:
      TypeError: `optimizer` is no optimizer of Keras 3, or `loss_scale` is a
        LossScale of another class.
      ValueError: `loss_scale` is no loss scale, or fixed, or its multiplier is
        not 2.
    """
    keras3_optimizer.check_inner(optimizer, _ON_KERAS_2)
    numbers = scales.find_numbers(loss_scale)
    if numbers.growth_steps is None:
      raise ValueError(
        "Keras 3 has no LossScaleOptimizer with a fixed loss scale, but got "
        f"loss_scale={loss_scale!r}: {_advise_fixed(numbers)}, which does the "
        f"same. {_ON_KERAS_2}"
      )
    super().__init__(
      optimizer,
      initial_scale=numbers.initial_scale,
      dynamic_growth_steps=numbers.growth_steps,
    )

  @property
  def loss_scale(self) -> Any:
    """Raises AttributeError: Keras 3 has no such property."""
    raise AttributeError(
      "Keras 3's LossScaleOptimizer has no loss_scale: its value is the "
      f"variable optimizer.dynamic_scale. {_ON_KERAS_2}"
    )

  @classmethod
  def from_config(
    cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
  ) -> Any:
    """Makes an optimizer of a config that `get_config` of Keras 3 returned.

    Raises:
      ValueError: `config` is not of Keras 3.
    """
    if "inner_optimizer" not in config:
      raise ValueError(
        "The config of a LossScaleOptimizer of Keras 3 has 'inner_optimizer', "
        f"but got {config!r}. {_ON_KERAS_2}"
      )
    own = _Base.from_config(dict(config), custom_objects)
    scale = loss_scale_lib.DynamicLossScale(
      own.initial_scale, own.dynamic_growth_steps
    )
    made = cls(own.inner_optimizer, scale)
    made.name = own.name
    return made


# Files name the classes. With Keras's names, files load without this package.
Policy.__module__, Policy.__name__ = "keras", "DTypePolicy"
LossScaleOptimizer.__module__ = "keras.optimizers"
