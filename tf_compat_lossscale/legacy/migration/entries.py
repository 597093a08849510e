# SPDX-License-Identifier: Apache-2.0
"""Finds the files of a project that start its programs."""

from __future__ import annotations

from collections.abc import Iterator
import os
import re

from tf_compat_lossscale.legacy.migration import outlines
from tf_compat_lossscale.legacy.migration import trees

_SETTINGS = ("setup.py", "setup.cfg", "pyproject.toml")
# `name = package.module:function`, with quotation marks or without.
_SCRIPT = re.compile(r"=\s*[\"']?([A-Za-z_][\w.]*)\s*:\s*[A-Za-z_][\w.]*")
_NEVER = ("setup.py", "__init__.py")


def find_entries(group: trees.Group) -> list[outlines.Outline]:
  """Returns the files that start programs.

  These are files that ask for `__main__`, tests, notebooks, modules that a
  console script of `setup.py`, `setup.cfg` or `pyproject.toml` calls, and
  scripts that no file imports. A module of a package that only defines things
  starts nothing.
  """
  scripts = set(_find_scripts(group))
  return [
    outline
    for outline in group.files
    if outline.path in scripts
    or (
      os.path.basename(outline.path) not in _NEVER
      and (outline.starts or _is_script(outline, group))
    )
  ]


def _is_script(outline: outlines.Outline, group: trees.Group) -> bool:
  """Returns whether a file is a script that no other file imports."""
  if outline.path in group.imported:
    return False
  return outline.acts and not _is_in_package(outline.path)


def _is_in_package(path: str) -> bool:
  """Returns whether a file belongs to a package."""
  return os.path.exists(os.path.join(os.path.dirname(path), "__init__.py"))


def find_package_files(path: str) -> list[str]:
  """Returns the `__init__.py` files that run before a module of a package."""
  found: list[str] = []
  folder = os.path.dirname(path)
  while os.path.isfile(init := os.path.join(folder, "__init__.py")):
    found.insert(0, init)
    folder = os.path.dirname(folder)
  return found


def find_import_folder(path: str) -> str:
  """Returns the folder from which Python imports a file by its full name."""
  packages = find_package_files(path)
  first = packages[0] if packages else path
  folder = os.path.dirname(first)
  return os.path.dirname(folder) if packages else folder


def _find_scripts(group: trees.Group) -> Iterator[str]:
  """Yields the files of the modules that console scripts call."""
  paths = {outline.path for outline in group.files}
  for folder in _list_folders(group):
    for name in _SETTINGS:
      try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
          text = file.read()
      except (OSError, UnicodeDecodeError):
        continue  # There is no such file, or none that a tool could read.
      for module in _SCRIPT.findall(text):
        base = os.path.join(*module.split("."))
        for root in trees.list_roots(folder):
          start = os.path.join(root, base)
          for path in (f"{start}.py", os.path.join(start, "__init__.py")):
            if path in paths:
              yield path


def _list_folders(group: trees.Group) -> list[str]:
  """Returns the folders that may hold a project's settings."""
  folders = {os.path.dirname(outline.path) for outline in group.files}
  folder = group.folder
  for _ in range(3):  # Packages of a `src` layout are two folders below.
    folders.add(folder)
    folder = os.path.dirname(folder)
  return sorted(folders)
