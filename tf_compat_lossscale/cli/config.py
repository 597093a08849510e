# SPDX-License-Identifier: Apache-2.0
"""The table [tool.tf-lossscale] of pyproject.toml."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import os
import re
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.cli import errors

FILE = "pyproject.toml"
# A file without this word is not parsed, so that its mistakes do not matter.
_WORD = "tf-lossscale"
TABLE = f"tool.{_WORD}"
_HEADER = re.compile(rf"tool\s*\.\s*[\"']?{_WORD}")
_TARGET = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")
_OLDEST = (2, 12)


class Config(NamedTuple):
  """What the table says.

  Attributes:
    folder: The folder of the file; the working directory if there is no table.
    paths: The files and folders to read, relative to `folder`.
    exclude: Patterns of paths, relative to `folder`.
    select: Codes, or beginnings of codes.
    ignore: The same.
    target: The TensorFlow release to move to, as (2, 15); None for that of the
      environment.
  """

  folder: str = "."
  paths: tuple[str, ...] = ()
  exclude: tuple[str, ...] = ()
  select: tuple[str, ...] = ()
  ignore: tuple[str, ...] = ()
  target: tuple[int, int] | None = None


def find_config(paths: Sequence[str]) -> Config:
  """Returns the table of the nearest pyproject.toml that has the table.

  Args:
    paths: Files and folders. The search begins at the folder that they have in
      common, or at the working directory if there are none, and goes upward.

  Raises:
    Mistake: The file cannot be read, or the table is wrong.
  """
  folder = _find_common_folder(paths)
  while True:
    path = os.path.join(folder, FILE)
    if os.path.isfile(path):
      table = _read_table(os.path.relpath(path))
      if table is not None:
        return _check_table(os.path.relpath(path), folder, table)
    parent = os.path.dirname(folder)
    if parent == folder:
      return Config()
    folder = parent


def parse_release(text: str) -> tuple[int, int]:
  """Returns a TensorFlow release such as "2.15" as a pair of numbers.

  Raises:
    ValueError: The text is no release that this package runs on.
  """
  match = _TARGET.fullmatch(text)
  release = (int(match[1]), int(match[2])) if match else None
  if release is None or release[0] != _OLDEST[0] or release < _OLDEST:
    raise ValueError(
      f"{text!r} is no TensorFlow release from 2.12 on, such as 2.15"
    )
  return release


def _find_common_folder(paths: Sequence[str]) -> str:
  """Returns the folder that contains all paths."""
  if not paths:
    return os.getcwd()
  try:
    common = os.path.commonpath([os.path.abspath(path) for path in paths])
  except ValueError:  # On Windows, paths may be on several drives.
    return os.getcwd()
  return common if os.path.isdir(common) else os.path.dirname(common)


def _read_table(path: str) -> dict[str, Any] | None:
  """Returns the table of a file; None if the file does not have it."""
  try:
    with open(path, encoding="utf-8") as file:
      text = file.read()
  except (OSError, UnicodeDecodeError) as error:
    raise errors.Mistake(f"{path}: {errors.as_line(error)}") from None
  if _WORD not in text:
    return None
  from tf_compat_lossscale.migration import settings

  try:
    tool = settings.parse_toml(text).get("tool", {})
  except ImportError:
    if not _HEADER.search(text):
      return None
    raise errors.Mistake(
      f"{path}: to read [{TABLE}], Python 3.10 needs tomli: pip install tomli"
    ) from None
  except ValueError as error:
    raise errors.Mistake(
      f"{path}: this is no TOML: {errors.as_line(error)}"
    ) from None
  table = tool.get(_WORD) if isinstance(tool, dict) else None
  if table is not None and not isinstance(table, dict):
    raise errors.Mistake(f"{path}: {TABLE}: expected a table, got {table!r}")
  return table


def _check_table(path: str, folder: str, table: dict[str, Any]) -> Config:
  """Returns the configuration of a table.

  Raises:
    Mistake: A key is unknown, or its value is of a wrong type.
  """
  values: dict[str, Any] = {}
  for key, value in table.items():
    check = _CHECKS.get(key)
    if check is None:
      raise errors.Mistake(
        f"{path}: [{TABLE}] has no key {key!r}: expected one of "
        f"{', '.join(_CHECKS)}{wrong_values.suggest(key, _CHECKS)}"
      )
    try:
      values[key] = check(value)
    except ValueError as error:
      raise errors.Mistake(f"{path}: [{TABLE}] {key}: {error}") from None
  return Config(folder, **values)


def _check_strings(value: object) -> tuple[str, ...]:
  """Returns a list of strings as a tuple."""
  if not isinstance(value, list) or not all(
    isinstance(item, str) and item for item in value
  ):
    raise ValueError(f"expected a list of strings, got {value!r}")
  return tuple(value)


def _check_codes(value: object) -> tuple[str, ...]:
  """Returns a list of codes as a tuple."""
  from tf_compat_lossscale.migration import rules

  words = _check_strings(value)
  rules.check_codes(words)
  return words


def _check_target(value: object) -> tuple[int, int]:
  """Returns a release as a pair of numbers."""
  if not isinstance(value, str):
    raise ValueError(f'expected a string such as "2.15", got {value!r}')
  return parse_release(value)


_CHECKS: dict[str, Callable[[object], Any]] = {
  "paths": _check_strings,
  "exclude": _check_strings,
  "select": _check_codes,
  "ignore": _check_codes,
  "target": _check_target,
}
