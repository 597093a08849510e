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
_WORDS = re.compile(
  r"tensorflow\..*(oss_?[sS]cale|mixed_precision|experimental)"
)
# The names that may follow an object of which the source does not tell whether
# it is TensorFlow, or a name of TensorFlow in a text.
_NAME = (
  r"\.((?:compat\.v1\.)?(?:train\.experimental|contrib\.mixed_precision"
  r"|(?:keras\.)?mixed_precision\.experimental|mixed_precision)\.\w+)"
)
_PLACES = re.compile(rf"{_NAME}$")
_IN_PLACES = ("experimental", "mixed_precision")  # Each has one of them.
_IN_TEXT = re.compile(rf"\w{_NAME}")
# NVIDIA's variables.
SWITCHES = (
  legacy_names.MIXED_PRECISION,
  legacy_names.LOSS_SCALING,
  legacy_names.GRAPH_REWRITE,
)
_MOST_PARTS = 6  # Of compat.v1.keras.mixed_precision.experimental.Policy.
_READERS = ("get", "getenv", "pop")  # Of an environment variable.
_RUNS_TEXT = ("compile", "eval", "exec")
_LAST = {name for names in legacy_names.NAMES_IN.values() for name in names}


class LegacyUse(NamedTuple):
  """An occurrence of a legacy name.

  Attributes:
    name: The full name, such as "tensorflow.train.experimental.LossScale".
    node: The node of the name, without attributes that follow it.
    form: As of `sources.Use`; besides, "follows" (an expression that begins
      with an imported legacy name, and so changes with the import), "unknown"
      (an expression whose first part may be TensorFlow) and "module" (a module
      whose names are here, as a value).
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


def find_legacy_uses(source: sources.SourceFile) -> Iterator[LegacyUse]:
  """Yields the legacy names in a source."""
  for use in source.uses:
    yield from _find_in_use(source, use)
  yield from _find_modules(source)
  yield from _find_behind_objects(source)
  yield from _find_in_code(source)


def _find_in_use(
  source: sources.SourceFile, use: sources.Use
) -> Iterator[LegacyUse]:
  """Yields the legacy name that a use is or begins with, if there is one."""
  name, node, form = use
  if form == "expression" and not name.startswith("tensorflow"):
    yield from _find_in_unknown(name, node)
  elif form == "store" or not _WORDS.match(name):
    return
  elif form == "expression":
    if not _is_bare(name):
      yield from _find_in_expression(source, use)
  elif legacy_names.find_home(name) or (
    form in ("star", "text") and _is_bare(name)
  ):
    yield LegacyUse(name, node, form)


def _is_bare(name: str) -> bool:
  """Returns whether a name is a module of which only some names are here."""
  is_place = legacy_names.find_place(name) in legacy_names.NAMES_IN
  return is_place and not legacy_names.find_home(name)


def _find_in_expression(
  source: sources.SourceFile, use: sources.Use
) -> Iterator[LegacyUse]:
  """Yields the longest legacy name that `a.b.c` begins with, if it has one."""
  name, node = use.name, use.node
  while not legacy_names.find_home(name):
    if not isinstance(node, ast.Attribute):
      return
    name, node = name.rpartition(".")[0], node.value
  bound = source.resolve(sources.split(node)[0])
  follows = bound is not None and legacy_names.find_home(bound)
  yield LegacyUse(name, node, "follows" if follows else "expression")


def _find_modules(source: sources.SourceFile) -> Iterator[LegacyUse]:
  """Yields modules as values, unless the source tells what becomes of them.

  That is so after `E = tf.train.experimental`, and in `getattr(tf.train,
  "experimental").LossScale`.
  """
  modules = [
    use
    for use in source.uses
    if use.form in ("expression", "getattr")
    and not isinstance(use.node, ast.Name)
    and _WORDS.match(use.name)
    and _is_bare(use.name)
  ]
  told = set[ast.AST]()
  if modules:
    for node in source.list_nodes(ast.Assign):
      if isinstance(node.targets[0], ast.Name):
        told.add(node.value)
    for use in source.uses:
      if isinstance(use.node, ast.Call):
        told.add(use.node.args[0])  # `getattr(tf.train.experimental, "x")`
      root, names = sources.split(use.node)
      if names:
        told.add(root)
  for use in modules:
    if use.node not in told:
      yield LegacyUse(use.name, use.node, "module")


def _find_behind_objects(source: sources.SourceFile) -> Iterator[LegacyUse]:
  """Yields the legacy names behind objects that are no module's name."""
  if not any(word in source.text for word in _IN_PLACES):
    return
  stars = [
    f"{use.name}."
    for use in source.uses
    if use.form == "star"
    and use.name.startswith("tensorflow")
    and not _WORDS.match(use.name)
  ]
  for node in source.unknown:
    root, names = sources.split(node)
    if isinstance(root, ast.Name) and not _LAST.isdisjoint(names):
      for below in ["", *stars]:
        name = below + ".".join([root.id, *names])
        yield from _find_in_unknown(name, node)


def _find_in_unknown(name: str, node: ast.AST) -> Iterator[LegacyUse]:
  """Yields `x.train.experimental.LossScale` of an object that is unknown."""
  while isinstance(node, ast.Attribute):
    if node.attr in _LAST:
      first, *rest = name.rsplit(".", _MOST_PARTS)
      match = _PLACES.search(".".join([first[-_MOST_PARTS:], *rest]))
      for start in ("tensorflow", "tensorflow.compat.v1"):
        full = f"{start}.{match[1]}" if match else ""
        if legacy_names.find_home(full):
          yield LegacyUse(full, node, "unknown")
          return
    name, node = name.rpartition(".")[0], node.value


def _find_in_code(source: sources.SourceFile) -> Iterator[LegacyUse]:
  """Yields the texts with a legacy name that `eval` and the like run."""
  if "eval" not in source.text and "exec" not in source.text:
    return
  for call in source.list_nodes(ast.Call):
    if getattr(call.func, "id", "") in _RUNS_TEXT and call.args:
      for node in ast.walk(call.args[0]):
        text = node.value if isinstance(node, ast.Constant) else None
        match = _IN_TEXT.search(text) if isinstance(text, str) else None
        if match and legacy_names.find_home(f"tensorflow.{match[1]}"):
          yield LegacyUse(f"tensorflow.{match[1]}", node, "text")


def find_switches(source: sources.SourceFile) -> Iterator[tuple[str, ast.AST]]:
  """Yields the strings and keywords that name NVIDIA's variables.

  What only reads a variable, such as `os.getenv`, turns nothing on.
  """
  read = set[ast.AST]()
  for call in source.list_nodes(ast.Call):
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    read |= {*call.args[:1]} if name in _READERS else set()
  read |= {node.left for node in source.list_nodes(ast.Compare)}
  for node in source.list_nodes(ast.Subscript):
    if not isinstance(node.ctx, ast.Store):
      read.add(node.slice)
  for text in source.list_nodes(ast.Constant):
    if text.value in SWITCHES and text not in read:
      yield str(text.value), text
  for word in source.list_nodes(ast.keyword):  # Of `update(NAME="1")`.
    if word.arg in SWITCHES:
      yield str(word.arg), word
