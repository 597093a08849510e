# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale explain`: says what a code of `scan` means."""

from __future__ import annotations

import argparse

from tf_compat_lossscale.cli import errors

SUMMARY = "say what a code of `scan`, such as LS101, means"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Says what a code of `scan` means, why the code has to change, and what "
    "`migrate` does. `tf-lossscale scan --list` lists the codes."
  )
  parser.add_argument("codes", nargs="+", metavar="CODE", help="such as LS101")


def execute(arguments: argparse.Namespace) -> int:
  """Prints the texts of the codes and returns the exit status."""
  from tf_compat_lossscale.migration import rules
  from tf_compat_lossscale.migration import scanner

  codes = [code.upper() for code in arguments.codes]
  try:
    rules.check_codes(codes)
  except rules.CodeError as error:
    raise errors.Mistake(str(error)) from None
  for rule in rules.select_rules(codes, ()):
    states = ", ".join(scanner.find_states(rule))
    print(f"{rule.code} {rule.name} [{states}]\n\n{rule.summary}\n")
    print(f"{rule.explanation}\n")
    before, after = rule.examples[0]
    shown = {"Before:": before, "After:": after}
    if before == after:
      shown = {"Stays, for you to change:": before}
    for title, text in shown.items():
      print(title + "".join(f"\n    {x}" for x in text.splitlines()) + "\n")
  return 0
