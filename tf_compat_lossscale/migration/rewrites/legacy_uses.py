# SPDX-License-Identifier: Apache-2.0
"""Finds the legacy names in a source, and what each is called here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
import re
from typing import Any
from typing import NamedTuple

import tf_compat_lossscale
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.programs import sources

_PACKAGE = "tf_compat_lossscale"
# The places of names that may follow an object of which the source does not
# tell whether it is TensorFlow.
_WORDS = re.compile(
  r"tensorflow\..*(oss_?[sS]cale|mixed_precision|experimental)"
)
_PLACES = re.compile(
  r"\.((?:compat\.v1\.)?(?:train\.experimental|contrib\.mixed_precision"
  r"|(?:keras\.)?mixed_precision\.experimental)\.\w+)$"
)
_MOST_PARTS = 6  # Of compat.v1.keras.mixed_precision.experimental.Policy.
_LAST = {name for names in legacy_names.NAMES_IN.values() for name in names}


class LegacyUse(NamedTuple):
  """An occurrence of a legacy name.

  Attributes:
    name: The full name, such as "tensorflow.train.experimental.LossScale".
    node: The node of the name, without attributes that follow it.
    form: As of `sources.Use`; besides, "follows" (an expression that begins
      with an imported legacy name, and so changes with the import) and
      "unknown" (an expression whose first part may be TensorFlow).
  """

  name: str
  node: Any
  form: str

  @property
  def written(self) -> str:
    """The name as the source has it."""
    if isinstance(self.node, ast.alias):
      return self.node.name
    return sources.unparse(self.node)

  @property
  def now(self) -> str:
    """The full name in this package."""
    place = legacy_names.find_place(self.name)
    module = legacy_names.find_module_home(place) if place else None
    if module is not None:
      return module
    if place in legacy_names.NAMES_IN:
      return _PACKAGE
    home = legacy_names.find_home(self.name)
    last = legacy_names.get_current_name(self.name.rpartition(".")[2])
    if home and last not in tf_compat_lossscale.__all__:
      return f"{_PACKAGE}.{home}.{last}"
    return f"{_PACKAGE}.{last}"


def find_legacy_uses(source: sources.Source) -> Iterator[LegacyUse]:
  """Yields the legacy names in a source, in the order of lines."""
  for use in source.uses:
    if use.form == "store" or not _WORDS.match(use.name):
      continue
    if use.form == "expression":
      yield from _find_in_expression(source, use)
    elif use.form in ("star", "text"):
      place = legacy_names.find_place(use.name)
      if place in legacy_names.NAMES_IN or legacy_names.find_home(use.name):
        yield LegacyUse(use.name, use.node, use.form)
    elif legacy_names.find_home(use.name):
      yield LegacyUse(use.name, use.node, use.form)
  for node in source.unknown:
    yield from _find_in_unknown(node)


def _find_in_expression(
  source: sources.Source, use: sources.Use
) -> Iterator[LegacyUse]:
  """Yields the longest legacy name that `a.b.c` begins with, if it has one."""
  name, node = use.name, use.node
  while not legacy_names.find_home(name):
    if not isinstance(node, ast.Attribute):
      return
    name, node = name.rpartition(".")[0], node.value
  root: ast.AST = node
  while isinstance(root, ast.Attribute):
    root = root.value
  bound = source.resolve(root)
  follows = bound is not None and legacy_names.find_home(bound)
  yield LegacyUse(name, node, "follows" if follows else "expression")


def _find_in_unknown(node: ast.AST) -> Iterator[LegacyUse]:
  """Yields `x.train.experimental.LossScale` of an object that is unknown."""
  attributes = []
  while isinstance(node, ast.Attribute):
    attributes.append(node)
    node = node.value
  for i, attribute in enumerate(
    attributes if isinstance(node, ast.Name) else ()
  ):
    if attribute.attr in _LAST:
      parts = [each.attr for each in attributes[i : i + _MOST_PARTS]]
      match = _PLACES.search(".".join(["", *reversed(parts)]))
      if match and legacy_names.find_home(f"tensorflow.{match[1]}"):
        yield LegacyUse(f"tensorflow.{match[1]}", attribute, "unknown")
        return
