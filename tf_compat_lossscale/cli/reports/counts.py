# SPDX-License-Identifier: Apache-2.0
"""Counts of findings by state."""

from __future__ import annotations

from collections.abc import Iterable

from tf_compat_lossscale.migration import findings as findings_lib


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


def number(count: int, noun: str) -> str:
  """Returns a number with a noun, such as "1 file" and "2 files"."""
  return f"{count} {noun}{'' if count == 1 else 's'}"
