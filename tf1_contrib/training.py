# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.training`: `HParams`, and who has which variable."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import json
import numbers
import re
from typing import Any
from typing import NamedTuple
from typing import NoReturn

# Types of hyperparameters that are alike: a hyperparameter of one of them takes
# a value of any. A bool is an integer in Python, so it comes first.
_ALIKE: tuple[tuple[type, ...], ...] = (
  (bool,),
  (str, bytes),
  (numbers.Integral,),
  (numbers.Number,),
)
_ASSIGNMENT = re.compile(
  r"([^\W\d_][\w.]*)(?:\[ *(\d+) *\])?\s*=\s*"
  r"(?:\[([^]]*)\]|([^[,]*))(?:,\s*|\Z)"
)
_FORM = "write assignments such as a=1 or b=[2,3], separated by commas"


class _Assignment(NamedTuple):
  """An assignment in a text, such as `b[0]=2`.

  Attributes:
    name: The hyperparameter.
    element: The index of an element of a list, or None.
    written: The value, or the values of a list.
  """

  name: str
  element: int | None
  written: str | list[str]


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
      **kwargs: The hyperparameters; see `add_hparam`.

    Raises:
      ValueError: `hparam_def` is given, or `add_hparam` raises the error.
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
    """Adds a hyperparameter whose name is new and no method's name.

    Args:
      name: The name.
      value: The value, or a list or tuple of values. The type of a list is the
        type of its first element.

    Raises:
      ValueError: The name is taken, or the list is empty.
    """
    if getattr(self, name, None) is not None:
      raise ValueError(
        f"HParams has an attribute {name!r} already: give the hyperparameter "
        "another name"
      )
    is_list = isinstance(value, list | tuple)
    if is_list and not value:
      raise ValueError(
        f"The hyperparameter {name!r} got an empty list, which does not tell "
        "the type of its elements: start with an element"
      )
    self._hparam_types[name] = _Type(
      type(value[0] if is_list else value), is_list
    )
    setattr(self, name, value)

  def set_hparam(self, name: str, value: Any) -> None:
    """Sets a hyperparameter that exists to a value of its type.

    Args:
      name: The name.
      value: The value, or a list (not a tuple) if the hyperparameter is a list
        or tuple.

    Raises:
      KeyError: There is no such hyperparameter.
      ValueError: The value is of another type.
    """
    kind, is_list = self._hparam_types[name]
    _check_form(name, is_list, value)
    setattr(self, name, _convert(name, kind, value))

  def del_hparam(self, name: str) -> None:
    """Removes a hyperparameter, if it is there."""
    if self._hparam_types.pop(name, None) is not None:
      delattr(self, name)

  def parse(self, values: str) -> HParams:
    """Sets hyperparameters from a text such as `a=1,b=[2,3]`.

    Returns:
      This object.

    Raises:
      ValueError: The text is malformed, sets one element of a list, or has a
        name that is unknown or there twice, or a value of another type.
    """
    types = {name: kind.type for name, kind in self._hparam_types.items()}
    return self.override_from_dict(parse_values(values, types))

  def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
    """Sets hyperparameters from a dict of name -> value.

    Returns:
      This object.

    Raises:
      KeyError: There is no such hyperparameter.
      ValueError: A value is of another type.
    """
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
    """Returns the hyperparameters as JSON, by the arguments of `json.dumps`.

    Raises:
      TypeError: JSON cannot hold a value.
    """
    return json.dumps(
      self.values(), indent=indent, separators=separators, sort_keys=sort_keys
    )

  def to_proto(self, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises an error: the protocol buffer went with tf.contrib."""
    raise NotImplementedError(
      "HParams.to_proto and from_proto went with tf.contrib: use to_json() and "
      "parse_json()"
    )

  from_proto = to_proto

  def parse_json(self, values_json: str) -> HParams:
    """Sets hyperparameters from the text of a JSON object.

    Returns:
      This object.

    Raises:
      KeyError: There is no such hyperparameter.
      ValueError: The text is no JSON, or a value is of another type.
    """
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
      _check_form(key, is_list, default)
      _convert(key, kind, default)
    return getattr(self, key)

  def __contains__(self, key: str) -> bool:
    return key in self._hparam_types

  def __str__(self) -> str:
    return ",".join(f"{name}={value}" for name, value in self.values().items())

  def __repr__(self) -> str:
    return f"{type(self).__name__}({sorted(self.values().items())})"


def _check_form(name: str, is_list: bool, value: Any) -> None:
  """Raises a ValueError if a list meets a single value."""
  if isinstance(value, list) != is_list:
    wanted = "a list" if is_list else "a single value, no list"
    raise ValueError(
      f"The hyperparameter {name!r} holds {wanted}, but got {value!r}"
    )


def _convert(name: str, kind: type, value: Any) -> Any:
  """Returns a value, or each value of a list, as a type."""
  if isinstance(value, list):
    return [_convert(name, kind, element) for element in value]
  if kind in (type(None), type(value)):
    return value
  alike = next(
    (types for types in _ALIKE if issubclass(kind, types)), (object,)
  )
  is_bool = isinstance(value, bool)
  if (is_bool and bool not in alike) or not isinstance(value, alike):
    raise ValueError(
      f"The hyperparameter {name!r} is of type {kind.__name__}, but got "
      f"{value!r} of type {type(value).__name__}"
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
  for assignment in _split_assignments(values):
    name = assignment.name
    if name in type_map:
      _add_value(found, assignment, _parse(type_map[name], assignment))
    elif not ignore_unknown:
      raise ValueError(
        f"{values!r} sets {name!r}, which is no hyperparameter: there are "
        f"{', '.join(sorted(type_map)) or 'none'}"
      )
  return found


def _split_assignments(text: str) -> Iterator[_Assignment]:
  at = 0
  while at < len(text):
    match = _ASSIGNMENT.match(text, at)
    if match is None:
      raise ValueError(f"{text[at:]!r} cannot be read: {_FORM}")
    name, index, several, one = match.groups()
    written = one if several is None else re.findall(r"[^ ,]+", several)
    yield _Assignment(name, int(index) if index else None, written)
    at = match.end()


def _parse(kind: type, assignment: _Assignment) -> Any:
  name, _, written = assignment
  parse: Callable[[str], Any] = _parse_bool if kind is bool else kind
  try:
    if isinstance(written, list):
      return [parse(text) for text in written]
    return parse(written)
  except ValueError:
    raise ValueError(
      f"The hyperparameter {name!r} is of type {kind.__name__}, but got "
      f"{written!r}"
    ) from None


def _parse_bool(text: str) -> bool:
  """Returns the bool that a text such as "true" or "0" means."""
  known = {"true": True, "True": True, "false": False, "False": False}
  return known[text] if text in known else bool(int(text))


def _add_value(
  found: dict[str, Any], assignment: _Assignment, value: Any
) -> None:
  name, element, _ = assignment
  if element is not None and isinstance(value, list):
    raise ValueError(f"{name}[{element}] is one element, but got {value}")
  target: Any = found if element is None else found.setdefault(name, {})
  key = name if element is None else element
  if not isinstance(target, dict) or key in target:
    raise ValueError(f"The hyperparameter {name!r} is set twice")
  target[key] = value


class GreedyLoadBalancingStrategy:
  """A `ps_strategy` of `tf.train.replica_device_setter`: least load first."""

  def __init__(self, num_tasks: int, load_fn: Callable[[Any], float]) -> None:
    """Takes the number of servers, and what returns the load of an op."""
    self._loads, self._load_fn = [0.0] * num_tasks, load_fn

  def __call__(self, op: Any) -> int:
    """Returns the number of the server for an op."""
    task = self._loads.index(min(self._loads))
    self._loads[task] += self._load_fn(op)
    return task


def byte_size_load_fn(op: Any) -> int:
  """Returns the size of an op's one output in bytes.

  Raises:
    ValueError: There is not one output, or its shape is not known.
  """
  if len(op.outputs) != 1:
    raise ValueError(f"{op.name} must have one output, not {len(op.outputs)}")
  output = op.outputs[0]
  output.shape.assert_is_fully_defined()
  # In TensorFlow 1 these have a size, and today it is 0.
  size = {"string": 8, "resource": 1, "variant": 1}.get(output.dtype.name)
  return output.shape.num_elements() * (size or output.dtype.size)
