# SPDX-License-Identifier: Apache-2.0
"""The states that findings of a rule have, read off the rule's examples."""

from __future__ import annotations

from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.migration import scanner

# So that the result does not depend on the installed TensorFlow.
_TARGET = (2, 21)


def find_states(rule: rules.Rule) -> tuple[str, ...]:
  """Returns the states that findings of a rule have, of all its examples.

  If an example has no finding, because it is about what is installed here, the
  findings are left to the user.
  """
  found: set[str] = set()
  for number, (before, _) in enumerate(rule.examples):
    report = scanner.scan_text(
      before.encode("utf-8"),
      f"example{number}.py",
      scanner.Options(select=(rule.code,), target=_TARGET),
    )
    found |= {finding.state for finding in report.findings}
  return tuple(state for state in findings.STATES if state in found) or (
    findings.BY_HAND,
  )
