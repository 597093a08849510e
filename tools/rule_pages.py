# SPDX-License-Identifier: Apache-2.0
"""Writes docs/codes/, a page for each code of `scan`, and its navigation.

  python tools/rule_pages.py

A page is made of the rule's docstring and examples. In mkdocs.yml, the lines
that name pages of codes/ change, and nothing else.
"""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).absolute().parent.parent
sys.path.insert(0, str(ROOT))

from tf_compat_lossscale.migration import findings  # noqa: E402
from tf_compat_lossscale.migration import rules  # noqa: E402

_INDEX = """\
# Codes

What [`tf-lossscale scan`](../migrate.md) finds has a code. `migrate` makes an
edit marked *migrate*, and with `--offered` an edit that is *offered*. What is
to do *by hand* is left to you. `tf-lossscale scan --list` prints this table.

| code | name | what it is | what `migrate` does |
|---|---|---|---|
"""
_STATES = {
  findings.MIGRATE: "`migrate` makes the edit.",
  findings.OFFERED: "`migrate --offered` makes the edit: read it afterwards.",
  findings.BY_HAND: "The edit is left to you.",
}
_SOME_STATES = {
  findings.MIGRATE: "`migrate` makes the edit if it can",
  findings.OFFERED: "makes some edits with `--offered` only",
  findings.BY_HAND: "leaves the rest to you",
}


def format_page(rule: rules.Rule) -> str:
  """Returns the page of a rule."""
  parts = [f"# {rule.code}: {rule.name}\n", f"{rule.summary}\n"]
  if rule.explanation:
    parts.append(f"{_link(rule.explanation, rule.code)}\n")
  for before, after in rule.examples:
    if before == after:
      parts += ["## Example\n", _fence(before)]
    else:
      parts += ["## Before\n", _fence(before)]
      parts += ["## After\n", _fence(after)]
  return "\n".join(parts)


def format_index() -> str:
  """Returns the page with the table of codes."""
  rows = "".join(
    f"| [{rule.code}]({rule.code}.md) | {rule.name} | "
    f"{rule.summary.replace('|', '&#124;')} | "
    for rule in rules.list_rules()
  )
  return _INDEX + rows


def format_navigation() -> str:
  """Returns the text of mkdocs.yml with the pages of today's codes."""
  text = (ROOT / "mkdocs.yml").read_text("utf-8")
  lines = "".join(
    f"      - {rule.code} {rule.name}: codes/{rule.code}.md\n"
    for rule in rules.list_rules()
  )
  head = "      - All codes: codes/index.md\n"
  old = re.compile(rf"{re.escape(head)}(?: +- .+: codes/LS\d+\.md\n)*")
  return old.sub(head + lines, text)


def format_all() -> dict[str, str]:
  """Returns the text that each file should have, by its path."""
  texts = {
    f"docs/codes/{rule.code}.md": format_page(rule)
    for rule in rules.list_rules()
  }
  texts["docs/codes/index.md"] = format_index()
  return texts | {"mkdocs.yml": format_navigation()}


def _describe(states: tuple[str, ...]) -> str:
  """Returns what `migrate` does about findings, in a sentence."""
  if len(states) == 1:
    return _STATES[states[0]]
  *others, last = [_SOME_STATES[state] for state in states]
  return f"{', '.join(others)} and {last}."


def _link(text: str, own: str) -> str:
  """Returns a text in which other codes are links to their pages."""
  return re.sub(
    r"\bLS\d{3}\b",
    lambda match: match[0]
    if match[0] == own
    else f"[{match[0]}]({match[0]}.md)",
    text,
  )


def _fence(source: str) -> str:
  """Returns a source as a block of Markdown."""
  return f"```python\n{source.rstrip()}\n```\n"


def main() -> None:
  """Writes the files that are not as they should be, and names them."""
  texts = format_all()
  (ROOT / "docs" / "codes").mkdir(exist_ok=True)
  for path in (ROOT / "docs" / "codes").glob("*.md"):
    if path.relative_to(ROOT).as_posix() not in texts:
      path.unlink()
      print(f"{path.relative_to(ROOT)}: removed")
  for name, text in texts.items():
    path = ROOT / name
    if not path.exists() or path.read_text("utf-8") != text:
      path.write_text(text, "utf-8")
      print(name)


if __name__ == "__main__":
  main()
