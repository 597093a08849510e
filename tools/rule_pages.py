# SPDX-License-Identifier: Apache-2.0
"""Writes docs/codes/index.md, the page of the codes of `scan`.

  python tools/rule_pages.py

The page is made of the texts and examples of the rules.
"""

from __future__ import annotations

import difflib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).absolute().parent.parent
sys.path.insert(0, str(ROOT))

from tf_compat_lossscale.migration import rules  # noqa: E402
from tf_compat_lossscale.migration import scanner  # noqa: E402

PAGE = ROOT / "docs" / "codes" / "index.md"
_HEAD = """\
# Codes

What [`tf-lossscale scan`](../migrate.md) finds has a code. `migrate --write`
makes an edit marked *migrate*, and with `--offered` an edit that is *offered*.
What is to do *by hand* is left to you. `tf-lossscale scan --list` prints this
table.

| code | name | what it is | what `migrate` does |
|---|---|---|---|
"""


def format_page() -> str:
  """Returns the text of the page."""
  rows = "".join(map(_format_row, rules.list_rules()))
  shown: set[str] = set()
  sections = [_format_section(rule, shown) for rule in rules.list_rules()]
  return _HEAD + rows + "".join(sections)


def _format_row(rule: rules.Rule) -> str:
  states = ", ".join(scanner.find_states(rule))
  summary = rule.summary.replace("|", "&#124;")
  return f"| {_link(rule.code)} | {rule.name} | {summary} | {states} |\n"


def _link(code: str) -> str:
  """Returns a link to the section of a code."""
  (rule,) = rules.select_rules([code], ())
  return f"[{code}](#{code.lower()}-{rule.name})"


def _format_section(rule: rules.Rule, shown: set[str]) -> str:
  """Returns the explanation of a rule, and what its first example changes.

  Args:
    rule: The rule.
    shown: The lines of the changes of earlier rules, to which those of this
      rule are added. A change that shows nothing new is left out.
  """
  text = re.sub(r"\bLS\d{3}\b", lambda m: _link(m[0]), rule.explanation)
  section = f"\n## {rule.code}: {rule.name}\n\n{text}\n"
  before, after = rule.examples[0]
  lines = difflib.ndiff(before.splitlines(), after.splitlines())
  changed = [line for line in lines if line[0] in "-+"]
  if not shown.issuperset(changed):
    shown.update(changed)
    section += "\n".join(["\n```diff", *changed, "```\n"])
  return section


if __name__ == "__main__":
  PAGE.write_text(format_page(), "utf-8")
