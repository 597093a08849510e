# SPDX-License-Identifier: Apache-2.0
"""Finds TensorFlow and other packages, and imports none of them."""

from __future__ import annotations

from collections.abc import Sequence
import importlib.machinery
import os
import re


def find_folder(package: str) -> str | None:
  """Returns a package's folder, or None if it is not installed."""
  spec = find_spec(package)
  if spec is None or spec.origin is None:
    return None
  return os.path.dirname(spec.origin)


def find_spec(
  name: str, path: Sequence[str] | None = None
) -> importlib.machinery.ModuleSpec | None:
  """Returns the spec of a module, or None; imports nothing.

  Args:
    name: The module's dotted name.
    path: The folders to search; by default `sys.path`.

  Returns:
    The spec, whose name is the last part of `name`.
  """
  folders, spec = path, None
  for i, part in enumerate(name.split(".")):
    if i and folders is None:
      return None
    # Of `a.b`, "b" is asked for: the finder would look for "a", imported, if a
    # folder has no `__init__.py`.
    spec = importlib.machinery.PathFinder.find_spec(part, folders)
    folders = spec.submodule_search_locations if spec is not None else None
  return spec


def find_release() -> tuple[int, int] | None:
  """Returns TensorFlow's (major, minor), or None if it is not installed.

  The release is read off a folder's name, because importing TensorFlow is slow.
  """
  folder = find_folder("tensorflow")
  if folder is None:
    return None
  for entry in os.listdir(os.path.dirname(folder)):
    match = re.fullmatch(
      r"(?:tensorflow(?:_cpu|_gpu|_intel|_rocm|_macos|_cpu_aws)?|tf_nightly\w*)"
      r"-(\d+)\.(\d+)\..*\.dist-info",
      entry,
    )
    if match:
      return int(match[1]), int(match[2])
  return None
