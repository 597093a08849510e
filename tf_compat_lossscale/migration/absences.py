# SPDX-License-Identifier: Apache-2.0
"""Lists the names in a file that today's TensorFlow lacks."""

from __future__ import annotations

import ast
from typing import Any

from tf_compat_lossscale.programs import hints
from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import source_facts
from tf_compat_lossscale.programs import uses
from tf_compat_lossscale.programs import version_checks
from tf_compat_lossscale.programs.missing_names import Absence as Absence
from tf_compat_lossscale.programs.missing_names import (
  find_absence as find_absence,
)
from tf_compat_lossscale.programs.missing_names import MISSING as MISSING
from tf_compat_lossscale.programs.missing_names import RESTORED as RESTORED


def list_absences(
  source: source_facts.Source,
  tensorflow: int | None,
  release: tuple[int, int] | None,
) -> list[tuple[uses.Use, Absence]]:
  """Returns the uses of names that TensorFlow lacks.

  Uses that the program guards, by `try` or by asking for the release, are left
  out: such code works without the name.

  Args:
    source: The file.
    tensorflow: As of `find_absence`.
    release: As of `find_absence`.
  """
  found = _list_ports(source)
  for use in source.names:
    absence = find_absence(use.name, tensorflow, release)
    if absence is not None and use.form not in ("method", "call"):
      found.append((use, absence))
  if not found:
    return []
  guarded = _find_guarded_lines(source)
  return [each for each in found if each[0].line not in guarded]


def _list_ports(
  source: source_facts.Source,
) -> list[tuple[uses.Use, Absence]]:
  """Returns the imports of packages that exist for one hardware alone."""
  found = []
  for node in source.import_statements:
    for module in scopes.list_modules(node):
      package = module.partition(".")[0]
      hint = hints.PORTS.get(package)
      if hint is not None:
        use = uses.Use(node.lineno, package, module, None, "import", node)
        found.append((use, Absence(package, MISSING, hint)))
        break
  return found


def _find_guarded_lines(source: source_facts.Source) -> set[int]:
  """Returns the lines of code that runs only if TensorFlow has its names."""
  guarded: list[Any] = []
  for tried in source.list_nodes(ast.Try):
    if version_checks.tries_names(tried):
      guarded += [*tried.body, *tried.handlers]
  ifs: list[ast.If | ast.IfExp] = [*source.list_nodes(ast.If)]
  ifs += source.list_nodes(ast.IfExp)
  for node in ifs:
    if source.checks.is_version_check(node.test, source.scope):
      guarded.append(node)
  return {
    line for part in guarded for line in range(part.lineno, part.end_lineno + 1)
  }
