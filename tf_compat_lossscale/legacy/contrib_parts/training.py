# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.training`: `HParams` and its parser."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import json
import numbers
import re
from typing import Any
from typing import NamedTuple

_ASSIGNMENT = re.compile(
  r"(?P<name>[a-zA-Z][\w\.]*)(?:\[\ *(?P<index>\d+)\ *\])?\s*=\s*"
  r"(?:(?P<value>[^,\[]*)|\[(?P<values>[^\]]*)\])(?:$|,\s*)"
)


class _Type(NamedTuple):
  """A hyperparameter's type: the type of its elements, if it is a list."""

  type: type
  is_list: bool


class HParams:
  """Hyperparameters as attributes, each with the type of its first value."""

  def __init__(
    self, hparam_def: Any = None, model_structure: Any = None, **kwargs: Any
  ):
    """Sets hyperparameters.

    Args:
      hparam_def: Must be None. TensorFlow 1 read a protocol buffer here.
      model_structure: A value that `get_model_structure` returns.
      **kwargs: The hyperparameters.
    """
    if hparam_def:
      raise ValueError(
        "HParams got hparam_def, whose protocol buffer went with tf.contrib: "
        "pass the hyperparameters by name"
      )
    self._hparam_types: dict[str, _Type] = {}
    self._model_structure = model_structure
    for name, value in kwargs.items():
      self.add_hparam(name, value)

  def add_hparam(self, name: str, value: Any) -> None:
    """Adds a hyperparameter whose name is new and no method's name."""
    if getattr(self, name, None) is not None:
      raise ValueError(f"Hyperparameter name is reserved: {name}")
    if isinstance(value, list | tuple):
      if not value:
        raise ValueError(
          f"Multi-valued hyperparameters cannot be empty: {name}"
        )
      self._hparam_types[name] = _Type(type(value[0]), True)
    else:
      self._hparam_types[name] = _Type(type(value), False)
    setattr(self, name, value)

  def set_hparam(self, name: str, value: Any) -> None:
    """Sets a hyperparameter that exists to a value of its type.

    Raises:
      KeyError: There is no such hyperparameter.
      ValueError: The value is of another type.
    """
    kind, is_list = self._hparam_types[name]
    if isinstance(value, list) != is_list:
      must = "Must pass" if is_list else "Must not pass"
      values = "multi" if is_list else "single"
      raise ValueError(f"{must} a list for {values}-valued parameter: {name}")
    setattr(self, name, _cast_value(name, kind, value))

  def del_hparam(self, name: str) -> None:
    """Removes a hyperparameter, if it is there."""
    if hasattr(self, name):
      delattr(self, name)
      del self._hparam_types[name]

  def parse(self, values: str) -> HParams:
    """Sets hyperparameters from a text such as `a=1,b=[2,3]`."""
    types = {name: kind.type for name, kind in self._hparam_types.items()}
    return self.override_from_dict(parse_values(values, types))

  def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
    """Sets hyperparameters from a dict."""
    for name, value in values_dict.items():
      self.set_hparam(name, value)
    return self

  def set_from_map(self, values_map: Mapping[str, Any]) -> HParams:
    """Sets hyperparameters; an older name of `override_from_dict`."""
    return self.override_from_dict(values_map)

  def set_model_structure(self, model_structure: Any) -> None:
    """Sets the value that `get_model_structure` returns."""
    self._model_structure = model_structure

  def get_model_structure(self) -> Any:
    """Returns the value of `set_model_structure`."""
    return self._model_structure

  def to_json(
    self, indent: Any = None, separators: Any = None, sort_keys: bool = False
  ) -> str:
    """Returns the hyperparameters as JSON, by the arguments of `json.dumps`."""
    return json.dumps(
      self.values(), indent=indent, separators=separators, sort_keys=sort_keys
    )

  def parse_json(self, values_json: str) -> HParams:
    """Sets hyperparameters from JSON."""
    return self.override_from_dict(json.loads(values_json))

  def values(self) -> dict[str, Any]:
    """Returns the hyperparameters as a dict."""
    return {name: getattr(self, name) for name in self._hparam_types}

  def get(self, key: str, default: Any = None) -> Any:
    """Returns a hyperparameter, or the default if there is no such.

    Raises:
      ValueError: The default is of another type than the hyperparameter.
    """
    if key not in self._hparam_types:
      return default
    kind, is_list = self._hparam_types[key]
    if default is not None:
      if isinstance(default, list) != is_list:
        raise ValueError(
          f"Hparam {key!r} is {'' if is_list else 'not '}a list, and the "
          f"default {default!r} is {'not ' if is_list else ''}one"
        )
      _cast_value(key, kind, default)
    return getattr(self, key)

  def __contains__(self, key: str) -> bool:
    return key in self._hparam_types

  def __str__(self) -> str:
    return ",".join(f"{name}={value}" for name, value in self.values().items())

  def __repr__(self) -> str:
    return f"{type(self).__name__}({sorted(self.values().items())})"


def _cast_value(name: str, kind: type, value: Any) -> Any:
  """Returns a value, or each value of a list, as a type.

  Raises:
    ValueError: The conversion would lose something, or change the meaning.
  """
  if isinstance(value, list):
    return [_cast_value(name, kind, element) for element in value]
  if type(value) is kind or kind is type(None):
    return value
  texts = (str, bytes)
  if (
    (issubclass(kind, texts) and not isinstance(value, texts))
    or issubclass(kind, bool) != isinstance(value, bool)
    or (
      issubclass(kind, numbers.Integral)
      and not isinstance(value, numbers.Integral)
    )
    or (
      issubclass(kind, numbers.Number) and not isinstance(value, numbers.Number)
    )
  ):
    raise ValueError(
      f"Could not cast hparam {name!r} of type {kind.__name__!r} from value "
      f"{value!r}"
    )
  return kind(value)


def parse_values(
  values: str, type_map: Mapping[str, type], ignore_unknown: bool = False
) -> dict[str, Any]:
  """Reads values from a text such as `a=1,b=[2,3],c[0]=4`.

  Args:
    values: The text.
    type_map: The type of each name, or of each element of a list.
    ignore_unknown: Whether names without a type are left out.

  Returns:
    Name -> value, or list of values, or dict of index -> value.

  Raises:
    ValueError: The text is malformed, or a name is unknown or there twice.
  """
  found: dict[str, Any] = {}
  for match in _find_assignments(values):
    name = match["name"]
    if name not in type_map:
      if ignore_unknown:
        continue
      raise ValueError(f"Unknown hyperparameter type for {name}")
    kind = type_map[name]
    parse: Callable[[str], Any] = _parse_bool if kind is bool else kind
    written = match["value"] if match["values"] is None else match["values"]
    try:
      if match["values"] is None:
        value = parse(written)
      else:
        value = [parse(text) for text in re.split("[ ,]", written) if text]
    except ValueError:
      raise ValueError(
        f"Could not parse hparam {name!r} of type {kind.__name__!r} with value "
        f"{written!r} in {values}"
      ) from None
    _add_value(found, match, value, values)
  return found


def _find_assignments(values: str) -> Iterator[re.Match[str]]:
  """Yields the assignments of a text."""
  position = 0
  while position < len(values):
    match = _ASSIGNMENT.match(values, position)
    if not match:
      raise ValueError(f"Malformed hyperparameter value: {values[position:]}")
    position = match.end()
    yield match


def _parse_bool(text: str) -> bool:
  """Returns the bool that a text such as "true" or "0" means."""
  if text.lower() in ("true", "false") and text[1:].islower():
    return text.lower() == "true"
  return bool(int(text))


def _add_value(
  found: dict[str, Any], match: re.Match[str], value: Any, values: str
) -> None:
  """Adds the value of an assignment.

  Raises:
    ValueError: The name has a value, or a list is assigned to an element.
  """
  name, index = match["name"], match["index"]
  if index is None:
    target, key = found, name
  elif isinstance(value, list):
    raise ValueError("Assignment of a list to a list index.")
  else:
    target, key = found.setdefault(name, {}), int(index)
  if not isinstance(target, dict) or key in target:
    raise ValueError(f"Multiple assignments to variable {name!r} in {values}")
  target[key] = value
