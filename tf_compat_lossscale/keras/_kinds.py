# SPDX-License-Identifier: Apache-2.0
"""Lets one class wrap both kinds of optimizers that Keras 2 has.

Keras 2 has legacy optimizers and newer ones, and a loss-scale optimizer class
for each kind. A class `C` of this package stands for both. The kind of an
instance is known when `OfAKind.__init__` gets the optimizer to wrap, which a
subclass may make itself. The instance's class then becomes a subclass of both
`C` and Keras's class for that kind.

Two plain classes, one for each kind, could replace `LossScaleOptimizer` itself,
but not the classes that programs derive from it:

* `class Mine(LossScaleOptimizer)` wraps an optimizer of either kind, and the
  program expects `isinstance(optimizer, Mine)` to hold for both.
* Keras checks `isinstance(optimizer, …)` for its own two classes, which have no
  common base with the methods of an optimizer. So an object of `Mine` needs a
  class that is derived from both `Mine` and one of Keras's classes. That class
  can only be made when the program's class is known.
* The metaclass of Keras's classes demands that the first argument of every
  subclass is an optimizer. A subclass with other parameters needs another
  metaclass in any case.
"""

from __future__ import annotations

from typing import Any

from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale.keras import _keras2

_Base = _keras2.BaseLossScaleOptimizer
_KINDS = {
  _keras2.LegacyOptimizer: _keras2.LossScaleOptimizerOfLegacy,
  _keras2.Optimizer: _keras2.LossScaleOptimizerOfNew,
}


class ByKind(type(_Base)):  # type: ignore[misc]
  """The metaclass that makes a subclass for each kind of optimizer."""

  def __call__(cls, *args: Any, **kwargs: Any) -> Any:
    # Keras's own metaclass demands that the first argument is an optimizer.
    made = type.__call__(cls, *args, **kwargs)
    if isinstance(made, cls) and not isinstance(made, tuple(_KINDS.values())):
      raise TypeError(
        f"{cls.__qualname__}.__init__ must call super().__init__(optimizer, "
        "loss_scale), but it wrapped no optimizer."
      )
    return made

  def of_kind(cls, optimizer: Any) -> type:
    """Returns the subclass of `cls` for the kind of an optimizer.

    Raises:
      TypeError: `optimizer` is no optimizer of Keras 2, or wraps another, or
        `cls` is made for optimizers of the other kind.
    """
    if isinstance(optimizer, _Base):
      raise TypeError(
        "LossScaleOptimizer cannot wrap another LossScaleOptimizer, but got "
        f"{optimizer!r}."
      )
    for kind, concrete in _KINDS.items():
      if isinstance(optimizer, kind):
        # A class for one kind leads to the class for the other kind.
        origin = cls.__dict__.get("_of_any_kind", cls)
        return origin._derive(concrete)
    raise TypeError(
      "optimizer must be an optimizer of Keras 2 "
      f"({_keras2.keras.__name__}), but got "
      f"{optimizer_kinds.show(optimizer)}."
      f"{optimizer_kinds.advise_for_keras(optimizer)} If "
      "tf.keras is Keras 3, call tf_compat_lossscale.use_keras_2() before "
      "TensorFlow is imported, or use keras.optimizers.LossScaleOptimizer."
    )

  def _derive(cls, concrete: type) -> type:
    """Returns the subclass of `cls` and of a class of Keras; makes it once."""
    if issubclass(cls, concrete):
      return cls
    if issubclass(cls, tuple(_KINDS.values())):
      raise TypeError(
        f"{cls.__qualname__} is based on a class for the other kind of "
        f"optimizers than {concrete.__qualname__} is: base it on "
        "tf_compat_lossscale.keras.LossScaleOptimizer, which is for both."
      )
    key = f"_{concrete.__name__}"
    if key not in cls.__dict__:
      # Files get Keras's name for the class, so they load without this package.
      named = concrete if OfAKind in cls.__bases__ else cls
      names = {
        "__doc__": cls.__doc__,
        "__module__": named.__module__,
        "__qualname__": named.__qualname__,
        "_of_any_kind": cls,
      }
      make: Any = type(cls)
      made = make(named.__name__, (cls, concrete), names)
      _keras2.register_like(made, cls)
      setattr(cls, key, made)
    return cls.__dict__[key]


class OfAKind(
  _Base,  # type: ignore[misc, valid-type]
  metaclass=ByKind,
):
  """A loss-scale optimizer of the same kind as the optimizer that it wraps.

  Subclasses call its `__init__` with the optimizer to wrap and with the other
  arguments of Keras's own class.
  """

  def __init__(self, optimizer: Any, **kwargs: Any) -> None:
    cls = type(self).of_kind(optimizer)
    # Keras's `__setattr__` needs an optimizer that is wrapped.
    object.__setattr__(self, "__class__", cls)
    super().__init__(optimizer, **kwargs)

  def __getattr__(self, name: str) -> Any:
    """Returns an attribute of the wrapped optimizer."""
    inner = vars(self).get("_optimizer")
    return optimizer_kinds.read_of_wrapped(self, inner, name)
