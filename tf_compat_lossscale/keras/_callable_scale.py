# SPDX-License-Identifier: Apache-2.0
"""What `optimizer.loss_scale` of Keras 2 is: a tensor that can be called.

In TensorFlow 2.0 to 2.3 the property was a `LossScale`; since 2.4 it has been a
tensor. Programs of both kinds get an object that is enough of each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core import scale_uses

_OPERATORS = (
  *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv"),
  *("floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow", "neg", "abs"),
  *("lt", "le", "gt", "ge", "eq", "ne"),
)


class CallableScale:
  """The value of a loss scale, which can be called and asked as a `LossScale`.

  The value is that of the moment in which the program read the property. A call
  returns the value of the moment of the call, a plain tensor.
  """

  __array_priority__ = 200  # NumPy leaves operators to this class.
  __hash__ = None  # type: ignore[assignment]  # As tensors have it.

  def __init__(self, optimizer: Any, tensor: Any) -> None:
    """Holds a value.

    Args:
      optimizer: The loss-scale optimizer of Keras 2.
      tensor: Its loss scale, a float32 scalar.
    """
    self._optimizer = optimizer
    self._tensor = tf.convert_to_tensor(tensor)

  def __call__(self) -> tf.Tensor:
    """Returns the loss scale as it is now, a float32 scalar tensor."""
    with scale_uses.ignore_reads():
      return tf.convert_to_tensor(self._optimizer.loss_scale)

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments of the class that has the same rule."""
    if not self._optimizer.dynamic:
      return {"loss_scale_value": self.initial_loss_scale}
    return {
      "initial_loss_scale": self.initial_loss_scale,
      "increment_period": self.increment_period,
      "multiplier": self.multiplier,
    }

  def update(self, grads: Any) -> tuple[Any, Any]:
    """Updates the loss scale by gradients, as `LossScale.update` does."""
    if not self._optimizer.dynamic:
      return tf.no_op(), True
    result: tuple[Any, Any] = self._optimizer._loss_scale.update(grads)
    return result

  @property
  def initial_loss_scale(self) -> float:
    """The first value."""
    return float(self._optimizer.initial_scale)

  @property
  def increment_period(self) -> int:
    """The number of finite steps after which the scale doubles."""
    return int(self._optimizer.dynamic_growth_steps)

  @property
  def multiplier(self) -> float:
    """The factor by which the scale grows or shrinks."""
    return 2.0

  @property
  def _current_loss_scale(self) -> Any:
    return self._optimizer._loss_scale.current_loss_scale

  @property
  def _num_good_steps(self) -> Any:
    return self._optimizer.dynamic_counter

  def __getattr__(self, name: str) -> Any:
    if name.startswith("__") or name in ("_tensor", "_optimizer"):
      raise AttributeError(name)
    return getattr(self._tensor, name)

  def _as_graph_element(self) -> tf.Tensor:
    """Returns the tensor; `Session.run` asks for it."""
    return self._tensor

  def __float__(self) -> float:
    return float(self._tensor)

  def __int__(self) -> int:
    return int(self._tensor)

  def __bool__(self) -> bool:
    return bool(self._tensor)

  def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
    return np.asarray(self._tensor, dtype)

  def __format__(self, spec: str) -> str:
    return format(self._tensor, spec)

  def __str__(self) -> str:
    return str(self._tensor)

  def __repr__(self) -> str:
    return repr(self._tensor)


def _make_operator(name: str) -> Any:
  """Returns the method by which an operator works as that of a tensor."""

  def operate(self: CallableScale, *others: Any) -> Any:
    values = [x._tensor if isinstance(x, CallableScale) else x for x in others]
    return getattr(self._tensor, name)(*values)

  return operate


def _convert(
  value: CallableScale, dtype: Any = None, name: Any = None, as_ref: Any = False
) -> Any:
  """Returns the tensor; TensorFlow asks for a dtype."""
  del name, as_ref
  return tf.convert_to_tensor(value._tensor, dtype)


for _name in _OPERATORS:
  setattr(CallableScale, f"__{_name}__", _make_operator(f"__{_name}__"))
loss_scale_lib.LossScale.register(CallableScale)
tf.register_tensor_conversion_function(CallableScale, _convert)
