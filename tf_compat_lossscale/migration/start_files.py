# SPDX-License-Identifier: Apache-2.0
"""Finds the files of a project that start its programs."""

from __future__ import annotations

import os

from tf_compat_lossscale.migration import outlines
from tf_compat_lossscale.migration import trees

_NEVER = ("setup.py", "__init__.py")


def find_entries(group: trees.Group) -> list[outlines.Outline]:
  """Returns the files that start programs.

  These are files that ask for `__main__`, tests, notebooks, modules that a
  console script of `setup.py` calls, and scripts that no file imports. A module
  of a package that only defines things starts nothing.
  """
  return [
    outline
    for outline in group.files
    if outline.path in group.called
    or (
      os.path.basename(outline.path) not in _NEVER
      and (outline.starts or _is_script(outline, group))
    )
  ]


def is_imported_at_start(path: str, group: trees.Group) -> bool:
  """Returns whether programs start with an import of a file.

  Then `__name__` is not "__main__" there.
  """
  return (
    path in group.called
    or outlines.is_test(path)
    or os.path.basename(path) == "__init__.py"
  )


def _is_script(outline: outlines.Outline, group: trees.Group) -> bool:
  """Returns whether a file is a script that no other file imports."""
  if outline.path in group.imported:
    return False
  return outline.acts and not _is_in_package(outline.path)


def _is_in_package(path: str) -> bool:
  """Returns whether a file belongs to a package."""
  return os.path.exists(os.path.join(os.path.dirname(path), "__init__.py"))
