# SPDX-License-Identifier: Apache-2.0
"""The options that name policies: `--like` and `--policy`."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import itertools
import math
import re
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale import policies
from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.policies import checks

DEFAULT = "default"
# Arguments that are several words, and arguments that are true or false.
_LISTS = ("refill", "overflow_reset")
_FLAGS = {"consecutive_hysteresis": {"true": True, "false": False}}
_POWER = re.compile(r"([\d.]+)(?:\*\*|\^)(-?\d+)")


class Policy(NamedTuple):
  """A rule to simulate.

  Attributes:
    system: The system that the rule is like; None for `GrowthBackoff`.
    changes: The changed arguments, as the command line has them.
    rule: The rule.
  """

  system: str | None
  changes: dict[str, str]
  rule: policies.GrowthBackoffRule

  @property
  def title(self) -> str:
    """The policy in words."""
    name = f"like {self.system}" if self.system else "GrowthBackoff"
    return ", ".join([name, *map("=".join, self.changes.items())])


def make_policies(likes: list[str], texts: list[str]) -> list[Policy]:
  """Returns the policies of the command line.

  Args:
    likes: The values of `--like`.
    texts: The values of `--policy`.

  Raises:
    Mistake: A name or a value is wrong.
  """
  parts = itertools.chain.from_iterable(text.split(",") for text in texts)
  shared = _split_changes("--policy", parts)
  found = []
  for like in likes or [DEFAULT]:
    name, *own = (part.strip() for part in like.split(","))
    changes = shared | _split_changes(f"--like={name}", own)
    system = None if name == DEFAULT else name
    option = f"--like={name}" if likes else "--policy"
    rule = _make_rule(option, system, changes)
    found.append(Policy(system, changes, rule))
  return found


def _split_changes(option: str, parts: Iterable[str]) -> dict[str, str]:
  """Returns the names and the values of parts of the form NAME=VALUE."""
  changes: dict[str, str] = {}
  for part in parts:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if not name or not equals:
      raise errors.Mistake(f"{option}: {part!r} is not of the form NAME=VALUE")
    if changes.setdefault(name, value) != value:
      raise errors.Mistake(
        f"{option} sets {name} twice: {changes[name]} and {value}"
      )
  return changes


def _make_rule(
  option: str, system: Any, changes: dict[str, str]
) -> policies.GrowthBackoffRule:
  """Returns the rule of a system, or of `GrowthBackoff`, with changes."""
  try:
    values = {name: _parse(name, text) for name, text in changes.items()}
    if system is not None:
      return policies.find_rule(system, **values)
    fields = dataclasses.fields(policies.GrowthBackoffRule)
    known = [field.name for field in fields]
    checks.check_names("GrowthBackoff", values, known)
    return policies.GrowthBackoffRule(**values)
  except (TypeError, ValueError) as error:
    message = str(error).rstrip(".")
    raise errors.Mistake(f"{option}: {message}") from None


def _parse(name: str, text: str) -> Any:
  """Returns the value of an argument.

  A text that is neither a number nor None is returned as it is: the rule knows
  which words are allowed.

  Raises:
    ValueError: The text must be true or false, and is not.
  """
  is_none = text.lower() == "none"
  if name in _LISTS:
    return () if is_none else tuple(text.split("+"))
  if name in _FLAGS:
    if text.lower() not in _FLAGS[name]:
      raise ValueError(f"{name} must be true or false, but got {text!r}")
    return _FLAGS[name][text.lower()]
  if is_none:
    return None
  for parse in (int, float, _parse_power):
    try:
      return parse(text)
    except (OverflowError, ValueError):
      continue
  return text


def _parse_power(text: str) -> float:
  """Returns the value of a power such as 2**16 or 2^16."""
  match = _POWER.fullmatch(text)
  if match is None:
    raise ValueError(text)
  return math.pow(float(match[1]), int(match[2]))
