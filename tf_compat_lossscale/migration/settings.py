# SPDX-License-Identifier: Apache-2.0
"""Reads where a project's packages lie, and its console scripts.

`setup.py`, `setup.cfg` and `pyproject.toml` tell. None of them is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import configparser
import os
import re
import sys
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import search_paths

_FILES = ("setup.py", "setup.cfg", "pyproject.toml")
# `name = package.module:function`, with quotation marks or without.
_SCRIPT = re.compile(
  r"([\w.-]+)[\"']?\s*=\s*[\"']?([A-Za-z_][\w.]*)\s*:\s*[A-Za-z_][\w.]*"
)
_LARGEST = 1 << 20  # Bytes.


class Settings(NamedTuple):
  """What the files of a folder tell.

  Attributes:
    packages: Pairs of a package and its folder; the package "" stands for all
      packages in the folder.
    scripts: Console script -> the module that it calls.
  """

  packages: tuple[tuple[str, str], ...] = ()
  scripts: Mapping[str, str] = {}


def read(folder: str) -> Settings:
  """Returns what the files of a folder tell; a file may be missing or wrong."""
  packages: dict[tuple[str, str], None] = {}
  scripts: dict[str, str] = {}
  for name in _FILES:
    path = os.path.join(folder, name)
    try:
      text = documents.load_start(path, _LARGEST).decode("utf-8")
    except UnicodeDecodeError:
      continue  # No tool could read the file.
    if not text:
      continue
    scripts.update(_SCRIPT.findall(text))
    for package, place in _READERS[name](path, text):
      full = os.path.abspath(os.path.join(folder, place))
      if os.path.isdir(full) and (package or full != folder):
        packages[package, full] = None
  return Settings(tuple(packages), scripts)


def _read_setup(path: str, text: str) -> Iterator[tuple[str, str]]:
  """Yields packages and folders of `setup.py`."""
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


def _read_cfg(path: str, text: str) -> Iterator[tuple[str, str]]:
  """Yields packages and folders of `setup.cfg`."""
  parser = configparser.RawConfigParser(strict=False)
  try:
    parser.read_string(text, path)
  except configparser.Error:
    return
  for line in re.split(
    r"[\n,]", parser.get("options", "package_dir", fallback="")
  ):
    package, sign, place = line.partition("=")
    if sign:
      yield package.strip(), place.strip()
  where = parser.get("options.packages.find", "where", fallback="")
  yield from _list_roots(where.split())


def parse_toml(text: str) -> dict[str, Any]:
  """Returns the table that a text in TOML stands for.

  Raises:
    ImportError: Python 3.10 needs tomli, which the extra [migrate] has.
    ValueError: The text is no TOML.
  """
  if sys.version_info >= (3, 11):
    import tomllib
  else:
    import tomli as tomllib
  return tomllib.loads(text)


def _read_toml(path: str, text: str) -> Iterator[tuple[str, str]]:
  """Yields packages and folders of `pyproject.toml`."""
  try:
    tool = parse_toml(text).get("tool", {})
  except (ImportError, ValueError):
    return
  yield from _list_pairs(_follow(tool, "setuptools", "package-dir"))
  where = _follow(tool, "setuptools", "packages", "find", "where")
  yield from _list_roots(where if isinstance(where, list) else [])
  packages = _follow(tool, "poetry", "packages")
  for each in packages if isinstance(packages, list) else []:
    yield from _list_roots([_follow(each, "from")])


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


def _follow(value: Any, *keys: str) -> Any:
  """Returns what keys lead to; None if one of them is missing."""
  for key in keys:
    value = value.get(key) if isinstance(value, dict) else None
  return value


_READERS = {
  "setup.py": _read_setup,
  "setup.cfg": _read_cfg,
  "pyproject.toml": _read_toml,
}
