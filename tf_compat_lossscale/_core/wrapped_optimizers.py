# SPDX-License-Identifier: Apache-2.0
"""Optimizers that wrap optimizers: Horovod's, `SyncReplicasOptimizer`, ours.

`walk` finds what is wrapped. `Delegating` reads and sets the attributes of what
is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import functools
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import optimizers

# The attributes in which optimizers of TensorFlow and of Horovod hold the one
# that they wrap; some are properties.
_NAMES = ("_optimizer", "_opt")
# Some objects make a new optimizer at each access, which would never end.
_MOST = 64
# The attribute by which NVIDIA's environment variables give an optimizer, and
# that optimizer alone, a loss scale.
STEPS_BY_ENVIRONMENT = "_steps_by_environment"
# A wrapper has no attribute of these names on behalf of another optimizer: what
# tells optimizers apart, what TensorFlow keeps for each, and dunder names.
_NEVER = frozenset({*_NAMES, STEPS_BY_ENVIRONMENT, *optimizers.STATE})
_NEVER_BEGINNING = ("__", "_self_")
# A wrapper has this attribute as long as its constructor runs.
_MAKING = "_is_being_made"
# The names that were deleted through a wrapper: what is wrapped had them.
_DELETED = "_deleted_names"
_RATES = ("lr", "_lr", "learning_rate", "_learning_rate")


class Delegating:
  """A base class of wrappers that have the attributes of what they wrap.

  Programs read, set and delete `optimizer._lr` whether the optimizer is wrapped
  or not. An attribute of the wrapper itself goes first. If neither has an
  attribute, setting it adds it to the wrapper, unless it was deleted from what
  is wrapped: `mock.patch.object` deletes before it restores. What a constructor
  sets, also that of a subclass, is the wrapper's own, as in TensorFlow 1.15.
  """

  # The instance attribute that holds what is wrapped.
  _WRAPPED = "_optimizer"

  def __init_subclass__(cls, **kwargs: Any) -> None:
    super().__init_subclass__(**kwargs)
    owner = next(each for each in cls.__mro__ if "__init__" in vars(each))
    if owner is cls or not issubclass(owner, Delegating):
      cls.__init__ = _mark(cls.__init__)  # type: ignore[method-assign]

  def __getattr__(self, name: str) -> Any:
    """Returns an attribute of what is wrapped.

    Raises:
      AttributeError: Neither has it, or the name is private to each.
    """
    if _is_of_class(self, name):  # A property has raised the error.
      return super().__getattribute__(name)
    inner = _find_wrapped(self, name)
    if inner is not None:
      try:
        return getattr(inner, name)
      except AttributeError:
        pass
    raise AttributeError(_explain(self, inner, name), name=name, obj=self)

  def __setattr__(self, name: str, value: Any) -> None:
    inner = _find_other(self, name)
    deleted = vars(self).get(_DELETED, ())
    if inner is not None and (hasattr(inner, name) or name in deleted):
      setattr(inner, name, value)
    else:
      super().__setattr__(name, value)

  def __delattr__(self, name: str) -> None:
    inner = _find_other(self, name)
    if inner is None:
      super().__delattr__(name)
    elif hasattr(inner, name):
      delattr(inner, name)
      vars(self).setdefault(_DELETED, set()).add(name)
    else:
      message = _explain(self, inner, name)
      raise AttributeError(message, name=name, obj=self)

  def __dir__(self) -> list[str]:
    """Returns the names of all attributes, also of what is wrapped."""
    own = list(super().__dir__())
    inner = _find_wrapped(self, "")
    names = [] if inner is None else dir(inner)
    return sorted({*own, *(x for x in names if _may_delegate(x))})


def _mark(init: Callable[..., None]) -> Callable[..., None]:
  """Returns an `__init__` that marks a wrapper as long as it runs.

  A metaclass could do the same, but would hide the constructors' parameters,
  and a program's subclass could have no other metaclass.
  """

  @functools.wraps(init)
  def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
    own = vars(self)
    is_outermost = _MAKING not in own
    own[_MAKING] = True
    try:
      init(self, *args, **kwargs)
    finally:
      if is_outermost:
        own.pop(_MAKING, None)

  return __init__


def _is_of_class(wrapper: Any, name: str) -> bool:
  """Returns whether the wrapper's class defines a name."""
  return any(name in vars(cls) for cls in type(wrapper).__mro__)


def _may_delegate(name: str) -> bool:
  return name not in _NEVER and not name.startswith(_NEVER_BEGINNING)


def _find_wrapped(wrapper: Any, name: str) -> Any:
  """Returns what is wrapped; None if a name is private or nothing is wrapped.

  Copies ask for attributes before the copy has any.
  """
  if not _may_delegate(name):
    return None
  return vars(wrapper).get(wrapper._WRAPPED)


def _find_other(wrapper: Any, name: str) -> Any:
  """Returns what is wrapped; None if the wrapper itself has the name."""
  own = vars(wrapper)
  if _MAKING in own or name in own or _is_of_class(wrapper, name):
    return None
  return _find_wrapped(wrapper, name)


def _explain(wrapper: Any, inner: Any, name: str) -> str:
  """Returns the error for an attribute that neither has."""
  message = f"{type(wrapper).__name__!r} object has no attribute {name!r}"
  if inner is None:
    return message
  kin = _RATES if name in _RATES else (f"_{name}", name.lstrip("_"))
  found = [other for other in kin if other != name and hasattr(inner, other)]
  advice = f". There is {found[0]!r}" if found else ""
  kind = type(inner).__name__
  return f"{message}, and the {kind} that it wraps has none{advice}."


def walk(
  optimizer: Any,
  is_end: Callable[[Any], bool] = lambda _: False,
  further: tuple[str, ...] = (),
) -> Iterator[Any]:
  """Yields an optimizer, then the optimizers within, the outermost first.

  Args:
    optimizer: An optimizer, or an object that wraps one.
    is_end: Whether to leave out what is within an optimizer.
    further: Names of further attributes that may hold a wrapped optimizer. A
      program's property of that name is evaluated.
  """
  waiting = [optimizer]
  for each in waiting:  # The list grows meanwhile.
    yield each
    for x in [] if is_end(each) else _list_inner(each, further):
      is_new = all(x is not y for y in waiting)  # It may refer to itself.
      if is_new and len(waiting) < _MOST:
        waiting.append(x)


def _list_inner(optimizer: Any, further: tuple[str, ...]) -> list[Any]:
  """Returns the optimizers that an optimizer holds in its attributes."""
  found = [getattr(optimizer, name, None) for name in (*_NAMES, *further)]
  own = list(getattr(optimizer, "__dict__", {}).values())
  found += [x for x in own if isinstance(x, tf.compat.v1.train.Optimizer)]
  return [x for x in found if x is not None]
