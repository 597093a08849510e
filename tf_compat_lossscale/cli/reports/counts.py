# SPDX-License-Identifier: Apache-2.0
"""Counts of findings by state and by code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tf_compat_lossscale.migration import findings as findings_lib
from tf_compat_lossscale.migration import rules


class CodeCount(NamedTuple):
  """How often a code was found.

  Attributes:
    code: The code.
    name: The rule's name in words.
    total: The number of findings.
    states: State -> how many of them are in that state.
  """

  code: str
  name: str
  total: int
  states: dict[str, int]


def count_states(findings: Iterable[findings_lib.Finding]) -> dict[str, int]:
  """Returns state -> the number of findings, for each state."""
  counts = dict.fromkeys(findings_lib.STATES, 0)
  for finding in findings:
    counts[finding.state] += 1
  return counts


def describe_states(findings: Iterable[findings_lib.Finding]) -> str:
  """Returns the numbers of findings in words, such as "3 applied"."""
  counts = count_states(findings)
  return ", ".join(
    f"{count} {state}" for state, count in counts.items() if count
  )


def count_codes(findings: Iterable[findings_lib.Finding]) -> list[CodeCount]:
  """Returns the codes that were found, the most frequent first."""
  names = {rule.code: rule.name for rule in rules.list_rules()}
  by_code: dict[str, list[findings_lib.Finding]] = {}
  for finding in findings:
    by_code.setdefault(finding.code, []).append(finding)
  rows = [
    CodeCount(code, names.get(code, ""), len(group), count_states(group))
    for code, group in by_code.items()
  ]
  return sorted(rows, key=lambda row: (-row.total, row.code))


def number(count: int, noun: str) -> str:
  """Returns a number with a noun, such as "1 file" and "2 files"."""
  return f"{count} {noun}{'' if count == 1 else 's'}"
