# SPDX-License-Identifier: Apache-2.0
"""The log of a run's loss scale: a row for a step, and the keys of its line.

`KEYS` is the schema of `loss_scale.jsonl`, whose every line is a JSON object.
A key with a slash is also the tag of a scalar in TensorBoard's event files.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any
from typing import NamedTuple

# The file of JSON lines, in the folder of a run.
NAME = "loss_scale.jsonl"
# Names of keys that several modules need.
SCALE = "loss_scale/value"
GOOD_STEPS = "loss_scale/good_steps"
SKIPPED = "loss_scale/skipped_total"

_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class LogError(ValueError):
  """A log that is missing or damaged; the message names the file."""


class MissingLogError(LogError):
  """There is no log at a path, but one may come."""


class Blame(NamedTuple):
  """A gradient that was not finite; a line has these fields as keys.

  Attributes:
    name: The variable's name.
    inf: How many of its elements were infinite.
    nan: How many of its elements were NaN.
    size: How many elements it has.
    largest: The largest magnitude of its finite elements, unscaled.
  """

  name: str
  inf: int
  nan: int
  size: int
  largest: float

  def describe(self) -> str:
    """Returns the gradient in words, for a message."""
    return (
      f"{self.name}: {self.inf} inf, {self.nan} NaN of {self.size}, "
      f"largest finite {self.largest:.3g}"
    )


class Underflow(NamedTuple):
  """How small the scaled gradients of a step were.

  Attributes:
    zeros: The share of zeros among all elements, from 0 to 1.
    largest: The largest magnitude among the scaled gradients.
    gradients: Name -> (share of zeros, largest scaled magnitude), for the
      gradients with most zeros.
    lost: The share of elements that became 0 because the scale is too low; None
      if the log, of an older release, does not tell.
    unscaling: Of the elements that are not 0 before they are unscaled, the
      share that is 0 afterwards.
  """

  zeros: float
  largest: float
  gradients: Mapping[str, tuple[float, float]]
  lost: float | None = None
  unscaling: float = 0.0


class Row(NamedTuple):
  """A step, as a log tells of it.

  Attributes:
    step: The number of the attempted step, counted from 1.
    applied: Whether the gradients were applied; None if the log does not tell.
    loss_scale: The loss scale after the step.
    good_steps: The loss scale's counter of finite steps, or None.
    skipped_total: How many steps were skipped so far, or None.
    global_step: The global step, or None.
    time: The time in seconds since the epoch, or None.
    blame: The gradients that were not finite; None if nobody looked. A line
      has them only if they differ from those of the line before.
    underflow: How small the gradients were; None if nobody looked.
    config: The configuration of the loss scale, if a session began with this
      step.
    stuck: The message, if the run was found stuck at this step.
    gradients: How many gradients were looked at, if some were not finite.
    bypassed: True in the first line of a session that is written since it is
      known that the loss was not scaled; None elsewhere.
  """

  step: int
  applied: bool | None
  loss_scale: float
  good_steps: int | None = None
  skipped_total: int | None = None
  global_step: int | None = None
  time: float | None = None
  blame: tuple[Blame, ...] | None = None
  underflow: Underflow | None = None
  config: Mapping[str, Any] | None = None
  stuck: str | None = None
  gradients: int | None = None
  bypassed: bool | None = None

  @property
  def skipped_rate(self) -> float | None:
    """The share of steps that were skipped so far, or None."""
    total = self.skipped_total
    return None if total is None else total / self.step


@dataclasses.dataclass(frozen=True)
class RunLog:
  """The log of a run.

  The steps between two rows were applied and did not change the loss scale.

  Attributes:
    source: The file, or the folder with event files.
    rows: The rows in the order of their steps.
    restarts: How many times the run was started again, as far as the log tells.
    config: The newest configuration of the loss scale; empty if unknown.
  """

  source: str
  rows: Sequence[Row]
  restarts: int = 0
  config: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def steps(self) -> int:
    """How many steps the run attempted from the first row to the last."""
    return self.rows[-1].step - self.rows[0].step + 1 if self.rows else 0

  @property
  def skipped(self) -> int:
    """How many of these steps were skipped."""
    return sum(row.applied is False for row in self.rows)

  def select(self, first: int | None, last: int | None) -> RunLog:
    """Returns the log of some steps.

    Args:
      first: The first step; None for the begin of the log.
      last: The last step; None for the end of the log.
    """
    rows = [
      row
      for row in self.rows
      if (first is None or row.step >= first)
      and (last is None or row.step <= last)
    ]
    restarts = sum(row.config is not None for row in rows[1:])
    return dataclasses.replace(self, rows=rows, restarts=restarts)


class Key(NamedTuple):
  """A key of a line.

  Attributes:
    field: The attribute of `Row`.
    read: Returns the attribute for a key and its value. Raises a ValueError if
      the value is wrong. None if readers do not need the key.
    write: Returns the value for an attribute.
  """

  field: str
  read: Callable[[str, Any], Any] | None
  write: Callable[[Any], Any] = lambda value: value


def encode(row: Row) -> dict[str, Any]:
  """Returns the object of a line for a row; what is None is left out."""
  values = ((name, key, getattr(row, key.field)) for name, key in KEYS.items())
  return {
    name: key.write(value) for name, key, value in values if value is not None
  }


def decode(line: Mapping[str, Any]) -> Row:
  """Returns the row of a line's object.

  Raises:
    ValueError: A value is wrong; the message names its key.
  """
  found: dict[str, Any] = {"applied": None}
  for name, value in line.items():
    key = KEYS.get(name)
    if value is not None and key is not None and key.read is not None:
      found[key.field] = key.read(name, value)
  if "step" not in found:
    _read_step("step", None)
  if "loss_scale" not in found:
    _read_number(SCALE, None)
  return Row(**found)


def to_json(number: float) -> float | str:
  """Returns a number as JSON has it: JSON has no infinities and no NaN."""
  return number if math.isfinite(number) else str(number)


def _read_step(key: str, value: Any) -> int:
  if type(value) is not int or value < 0:
    raise ValueError(f"`{key}` must be a whole number from 0 on")
  return value


def _read_flag(key: str, value: Any) -> bool:
  if type(value) is not bool:
    raise ValueError(f"`{key}` must be true or false")
  return value


def _read_count(key: str, value: Any) -> int:
  if type(value) is int:
    return value
  if isinstance(value, float) and value.is_integer():
    return int(value)
  raise ValueError(f"`{key}` must be a whole number")


def _read_number(key: str, value: Any) -> float:
  """Returns a number; words stand for those that are not finite."""
  if type(value) is float:
    return value
  if isinstance(value, str):
    value = _WORDS.get(value)
  if isinstance(value, (int, float)) and not isinstance(value, bool):
    try:
      return float(value)
    except OverflowError:  # JSON has whole numbers of any size.
      return math.inf if value > 0 else -math.inf
  raise ValueError(f"`{key}` must be a number, or 'inf', '-inf' or 'nan'")


def _read_text(key: str, value: Any) -> str:
  if not isinstance(value, str):
    raise ValueError(f"`{key}` must be a text")
  return value


def _read_object(key: str, value: Any) -> dict[str, Any]:
  if not isinstance(value, dict):
    raise ValueError(f"`{key}` must be an object")
  return value


def _read_blame(key: str, value: Any) -> tuple[Blame, ...]:
  if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
    raise ValueError(f"`{key}` must be a list of objects")
  return tuple(
    Blame(
      _read_text("name", item.get("name")),
      _read_count("inf", item.get("inf", 0)),
      _read_count("nan", item.get("nan", 0)),
      _read_count("size", item.get("size", 0)),
      _read_number("largest", item.get("largest", "nan")),
    )
    for item in value
  )


def _write_blame(blame: Sequence[Blame]) -> list[dict[str, Any]]:
  return [x._asdict() for x in blame]


def _read_underflow(key: str, value: Any) -> Underflow:
  gradients = value.get("gradients", {}) if isinstance(value, dict) else None
  if not isinstance(gradients, dict) or not all(
    isinstance(pair, list) and len(pair) == 2 for pair in gradients.values()
  ):
    raise ValueError(
      f"`{key}` must be an object, and its `gradients` pairs by name"
    )
  return Underflow(
    _read_number("zeros", value.get("zeros")),
    _read_number("largest", value.get("largest")),
    {
      name: (_read_number("zeros", zeros), _read_number("largest", largest))
      for name, (zeros, largest) in gradients.items()
    },
    None if "lost" not in value else _read_number("lost", value["lost"]),
    _read_number("unscaling", value.get("unscaling", 0.0)),
  )


def _write_underflow(seen: Underflow) -> dict[str, Any]:
  return {
    "zeros": seen.zeros,
    "largest": to_json(seen.largest),
    "lost": seen.lost,
    "unscaling": seen.unscaling,
    "gradients": {
      name: [zeros, to_json(largest)]
      for name, (zeros, largest) in seen.gradients.items()
    },
  }


# In the order that lines have. Few lines have a key below "time".
KEYS: Mapping[str, Key] = {
  "step": Key("step", _read_step),
  "applied": Key("applied", _read_flag),
  SCALE: Key("loss_scale", _read_number, to_json),
  GOOD_STEPS: Key("good_steps", _read_count),
  SKIPPED: Key("skipped_total", _read_count),
  "loss_scale/skipped_rate": Key("skipped_rate", None),
  "global_step": Key("global_step", _read_count),
  "time": Key("time", _read_number),
  "gradients": Key("gradients", _read_count),
  "blame": Key("blame", _read_blame, _write_blame),
  "underflow": Key("underflow", _read_underflow, _write_underflow),
  "config": Key("config", _read_object, dict),
  "stuck": Key("stuck", _read_text),
  "bypassed": Key("bypassed", _read_flag),
}
TAGS = tuple(name for name in KEYS if "/" in name)
