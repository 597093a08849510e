# SPDX-License-Identifier: Apache-2.0
"""Reads where a project's packages lie, and what its console scripts call.

`setup.py` tells. It is not run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from collections.abc import Iterator
import os
import re
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import search_paths

# `name = package.module:function`, with quotation marks or without.
_SCRIPT = re.compile(
  r"[\w.-]+[\"']?\s*=\s*[\"']?([A-Za-z_][\w.]*)\s*:\s*[A-Za-z_][\w.]*"
)
_LARGEST = 1 << 20  # Bytes.


class Settings(NamedTuple):
  """What the `setup.py` of a folder tells.

  Attributes:
    packages: Pairs of a package and its folder; the package "" stands for all
      packages in the folder.
    called: The modules that console scripts call.
  """

  packages: tuple[tuple[str, str], ...] = ()
  called: tuple[str, ...] = ()


def read(folder: str) -> Settings:
  """Returns what the `setup.py` of a folder tells; it may be missing."""
  path = os.path.join(folder, "setup.py")
  try:
    text = documents.load_start(path, _LARGEST).decode("utf-8")
  except UnicodeDecodeError:
    return Settings()  # Python could not read the file.
  packages: dict[tuple[str, str], None] = {}
  for package, place in _read_packages(path, text):
    full = os.path.abspath(os.path.join(folder, place))
    if os.path.isdir(full) and (package or full != folder):
      packages[package, full] = None
  return Settings(tuple(packages), tuple(_SCRIPT.findall(text)))


def _read_packages(path: str, text: str) -> Iterator[tuple[str, str]]:
  """Yields packages and their folders."""
  try:
    tree = ast.parse(text)
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    return
  nodes = scopes.list_parts(tree)
  values = search_paths.Values(path, nodes)
  for node in nodes:
    if isinstance(node, ast.keyword) and node.arg == "package_dir":
      yield from _list_pairs(values.find(node.value))
    elif isinstance(node, ast.Dict):
      for key, value in zip(node.keys, node.values):
        if isinstance(key, ast.Constant) and key.value == "package_dir":
          yield from _list_pairs(values.find(value))
    elif isinstance(node, ast.Call):
      function = scopes.unparse(node.func).rpartition(".")[2]
      if function in ("find_packages", "find_namespace_packages"):
        where = [word.value for word in node.keywords if word.arg == "where"]
        for each in [*node.args[:1], *where]:
          yield from _list_roots([values.find(each)])


def _list_pairs(value: Any) -> Iterator[tuple[str, str]]:
  """Yields packages and folders of `package_dir`."""
  if isinstance(value, dict):
    for package, place in value.items():
      if isinstance(package, str) and isinstance(place, str):
        yield package, place


def _list_roots(value: Iterable[Any]) -> Iterator[tuple[str, str]]:
  """Yields the folders of a list, each with all the packages in it."""
  for place in value:
    if isinstance(place, str) and place:
      yield "", place
