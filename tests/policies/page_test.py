# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/policies.md says what the policies are."""

import dataclasses
import inspect
import math
import re

import helpers
import plot_policies
import pytest

from tf_compat_lossscale import policies

pytestmark = pytest.mark.any_release

_PAGE = (helpers.ROOT / "docs" / "policies.md").read_text("utf-8")
# The columns that a table of systems has. All other arguments are in the last.
_COLUMNS = (
  *("initial_loss_scale", "growth_factor", "backoff_factor"),
  *("growth_interval", "min_loss_scale", "max_loss_scale", "hysteresis"),
  *("refill", "at_minimum"),
)
_DEFAULTS = policies.GrowthBackoffRule().get_config()


def format_value(value):
  """Returns a value as the page has it."""
  if value is None:
    return "none"
  if isinstance(value, list):
    return ", ".join(value)
  if isinstance(value, float):
    mantissa, exponent = math.frexp(value)
    is_power = mantissa == 0.5 and abs(exponent - 1) > 1
    return f"2^{exponent - 1}" if is_power else f"{value:g}"
  return str(value)


def format_row(name):
  """Returns a row of the table of systems."""
  rule = policies.find_rule(name)
  config = rule.get_config()
  cells = {column: format_value(config[column]) for column in _COLUMNS}
  if not rule.counts_hysteresis:
    cells["refill"] = ""
  others = [
    f"`{argument}={tuple(value) if isinstance(value, list) else value!r}`"
    for argument, value in config.items()
    if argument not in _COLUMNS and value != _DEFAULTS[argument]
  ]
  row = " | ".join([name, *cells.values(), ", ".join(others)])
  return f"| {row} |".replace("|  |", "| |")


def rows_after(heading):
  """Returns the rows of the first table after a heading, without its head."""
  lines = _PAGE[_PAGE.index(f"\n## {heading}\n") :].splitlines()
  start = next(i for i, line in enumerate(lines) if line.startswith("|---"))
  rows = lines[start + 1 :]
  return rows[: next(i for i, line in enumerate(rows) if line[:1] != "|")]


def test_the_table_of_systems_is_that_of_the_rules():
  expected = [format_row(name) for name in policies.list_names()]
  assert rows_after("Like another system") == expected, (
    "write into docs/policies.md:\n" + "\n".join(expected)
  )


def test_the_table_of_arguments_has_each_with_its_default():
  rows = [
    re.match(r"\| `(\w+)` \| (.*?) \| ", row).groups()
    for row in rows_after("GrowthBackoff")
  ]
  fields = [
    field.name for field in dataclasses.fields(policies.GrowthBackoffRule)
  ]
  assert [name for name, _ in rows] == fields
  assert list(inspect.signature(policies.GrowthBackoff).parameters) == fields
  for name, cell in rows:
    default = getattr(policies.GrowthBackoffRule(), name)
    if default is None or isinstance(default, (str, tuple)):
      assert cell == f"`{default!r}`".replace("'", '"')
    else:
      assert cell == format_value(default)


def test_the_default_of_log_normals_maximum():
  assert policies.LogNormalRule().max_loss_scale == 2.0**24
  assert "The default `max_loss_scale` is 2^24." in _PAGE


def test_the_comparison_has_each_policy():
  for name in plot_policies.POLICIES:
    assert _PAGE.count(f"\n| {name} | ") == len(plot_policies.DATA), name
  assert f" network {plot_policies.STEPS} steps " in _PAGE


if __name__ == "__main__":
  helpers.main()
