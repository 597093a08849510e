# SPDX-License-Identifier: Apache-2.0
"""Decides which TensorFlow a program means, by the names that it uses.

The names in the file that starts the program decide. If it has none that tell,
those in the modules that it imports do, level by level. A program that imports
`tensorflow.compat.v1`, uses a session or a placeholder, and never turns eager
mode off, ran on TensorFlow 1.15, where that module has TensorFlow 1's behavior
without being asked. Ties and silence are TensorFlow 2.
"""

from __future__ import annotations

import ast
import bisect
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import os
import re
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.programs import program_files
from tf_compat_lossscale.programs import sources
from tf_compat_lossscale.programs import tensorflow_names

_TENSORFLOW, _V1 = "tensorflow.", "tensorflow.compat.v1"

# Names without which a TensorFlow 1 program cannot work, and which a TensorFlow
# 2 program has no use for: they weigh 4. Others are easily overlooked.
_GRAPH = re.compile(
  r"(Interactive)?Session|placeholder(_with_default)?|get_variable|app"
  r"|variable_scope|global_variables_initializer|contrib|ConfigProto"
  r"|train\.(\w*Optimizer|Monitored\w*Session|Saver|get_or_create_global_step"
  r"|Supervisor|create_global_step)|layers|enable_eager_execution"
  r"|data\.make_\w+_iterator"
)
# Names of `tensorflow.compat.v1` that raise an error in eager mode.
_NOT_EAGER = re.compile(
  r"tensorflow\.compat\.v1\.((sparse_)?placeholder(_with_default)?"
  r"|(Interactive)?Session|train\.(Monitored\w*Session|Supervisor))"
)
_LEAVES_EAGER = re.compile(
  r"tensorflow\.(compat\.v1\.)?disable_(v2_behavior|eager\w+)"
)
# Names that TensorFlow 1.15 has, too, but hardly any program of its time uses.
_RATHER_2 = re.compile(
  r"GradientTape|function|compat\.v2\b|keras\.mixed_precision\b"
  r"|config\.(?!experimental|optimizer)|data\.AUTOTUNE|distribute\.\w+Strategy"
  r"|summary\.experimental|keras\.Model|keras\.optimizers\.schedules"
)
# What asks which TensorFlow there is: names of TensorFlow, and words that
# programs call a flag of their own.
_ASKS = re.compile(
  r"tensorflow\.([\w.]+\.)?(__version__|(GIT_)?VERSION|executing_eagerly)\b.*"
)
_ASKING_WORDS = re.compile(
  r"(?i:(tf|tensorflow)_?(v|version)?_?[12]\b|\bis_?v[12]\b|tf_version)"
)
# Errors that tell of a missing module or name.
_OF_IMPORTS = ("ImportError", "ModuleNotFoundError")
_OF_NAMES = "AttributeError"
_METHODS = tensorflow_names.METHODS


class Sign(NamedTuple):
  """A use of a name that says which TensorFlow a program means.

  Attributes:
    tensorflow: 1 or 2.
    weight: How much the name says; 0 for names of `tensorflow.compat.v1`.
    name: The part of the name that says it, below `tensorflow`.
    written: The name as the source has it.
    path, line: Where that is; lines are counted from 1.
  """

  tensorflow: int
  weight: int
  name: str
  written: str
  path: str
  line: int

  def __str__(self) -> str:
    return f"{self.written}, {os.path.basename(self.path)} line {self.line}"


class Decision(NamedTuple):
  """The TensorFlow that a program means (1 or 2), and the names that decided.

  The names that say most come first, those of the other TensorFlow last.
  """

  tensorflow: int
  signs: Sequence[Sign] = ()


def decide(program: program_files.Program) -> Decision:
  """Decides which TensorFlow a program means."""
  for level in program.levels:
    decision = decide_for(level)
    if decision.signs:
      return decision
  return Decision(2)


def decide_for(files: Iterable[sources.Source]) -> Decision:
  """Decides which TensorFlow some files mean; without signs, none tells."""
  signs: dict[tuple[int, str], Sign] = {}
  leaves_eager = False
  for source in files:
    for sign in find_signs(source):
      signs.setdefault((sign.tensorflow, sign.name), sign)
    for use in source.uses:
      leaves_eager |= bool(_LEAVES_EAGER.fullmatch(use.name))
  found = sorted(signs.values(), key=lambda sign: -sign.weight)
  one = [sign for sign in found if sign.tensorflow == 1]
  two = [sign for sign in found if sign.tensorflow == 2]
  weight = sum(sign.weight for sign in one) - sum(sign.weight for sign in two)
  is_graph = bool(one) and not two and not leaves_eager
  if weight > 0 or (weight == 0 and is_graph):
    return Decision(1, [*one, *two])
  return Decision(2, [*two, *(sign for sign in one if sign.weight)])


def find_signs(source: sources.Source) -> Iterator[Sign]:
  """Yields the names in a file that say TensorFlow 1 or 2.

  Names behind a question such as `hasattr(tf, "Session")` do not count: such
  code works on both.
  """
  assigned = {use.name for use in source.uses if use.form == "store"}
  uses = [
    use
    for use in source.uses
    if use.name.startswith(_TENSORFLOW)
    and use.form not in ("store", "hasattr", "text")
    and use.name not in assigned
  ]
  if not uses and not any(name in source.text for name in _METHODS):
    return
  asked = find_asked_lines(source)
  if asked:
    uses = [use for use in uses if use.line not in asked]
  for use in uses:
    for sign in _weigh(use.name):
      written = use.written if "." in use.written else use.name
      yield Sign(*sign, written, source.path, use.line)
  for attribute in source.unknown:
    name = _METHODS.get(attribute.attr, "")
    if name and attribute.lineno not in asked:
      part, written = name.removeprefix(_TENSORFLOW), f".{attribute.attr}"
      yield Sign(1, 4, part, written, source.path, attribute.lineno)
  yield from _find_graph_of_compat_v1(source, uses)


def _weigh(full: str) -> Iterator[tuple[int, int, str]]:
  """Yields the TensorFlow that a name says, its weight, and the part of it."""
  if full.startswith(f"{_V1}."):
    return
  name = full.removeprefix(_TENSORFLOW)
  only_1 = tensorflow_names.find_name(name, 1)
  if only_1 is not None:
    yield 1, 4 if _GRAPH.fullmatch(only_1) else 1, only_1
  only_2 = tensorflow_names.find_name(name, 2)
  if only_2 is not None:
    yield 2, 2, only_2
  elif match := _RATHER_2.match(name):
    yield 2, 1, match[0]


def _find_graph_of_compat_v1(
  source: sources.Source, uses: Sequence[sources.Use]
) -> Iterator[Sign]:
  """Yields the uses of a graph that is one in TensorFlow 1.15 alone."""
  matches = [(_NOT_EAGER.fullmatch(use.name), use) for use in reversed(uses)]
  graph = {match[1]: use for match, use in matches if match}
  imports = any(name.startswith(_V1) for name in source.modules)
  # Other files may use a session to convert a model, but hardly both.
  if imports or {"placeholder", "Session"} <= graph.keys():
    for name, use in graph.items():
      written = f"{use.written} without disable_v2_behavior()"
      yield Sign(1, 0, name, written, source.path, use.line)


def find_asked_lines(source: sources.Source) -> set[int]:
  """Returns the lines of code that depends on which TensorFlow there is.

  Such code is behind a test for a name or the version of TensorFlow, or in a
  `try` that expects TensorFlow to lack a module or a name.
  """
  lines: set[int] = set()
  places = sorted(_list_asking_places(source))
  nodes: list[Any] = []
  for kind in (ast.If, ast.IfExp, ast.BoolOp) if places else ():
    nodes += source.list_nodes(kind)
  for node in nodes:
    test = node if isinstance(node, ast.BoolOp) else node.test
    first = bisect.bisect_left(places, (test.lineno, test.col_offset))
    end = test.end_lineno, test.end_col_offset
    if first < len(places) and places[first] < end:
      lines.update(range(node.lineno, node.end_lineno + 1))
  for node in source.list_nodes(ast.Try):
    if _expects_other(source, node):
      lines.update(range(node.lineno, (node.end_lineno or 0) + 1))
  return lines


def _list_asking_places(source: sources.Source) -> Iterator[tuple[int, int]]:
  """Yields (line, column) of what asks which TensorFlow there is."""
  for use in source.uses:
    is_question = use.form == "hasattr" and use.name.startswith(_TENSORFLOW)
    if is_question or _ASKS.fullmatch(use.name):
      yield use.line, use.node.col_offset  # type: ignore[attr-defined]
  for name in source.list_nodes(ast.Name):
    if _ASKING_WORDS.search(name.id):
      yield name.lineno, name.col_offset
  for attribute in source.list_nodes(ast.Attribute):
    if _ASKING_WORDS.search(attribute.attr):
      yield attribute.lineno, attribute.col_offset


def _expects_other(source: sources.Source, node: ast.Try) -> bool:
  """Returns whether a `try` expects TensorFlow to lack a module or a name.

  Only a body without blocks counts for AttributeError: any object may raise it.
  """
  caught = " ".join(
    sources.unparse(each.type) for each in node.handlers if each.type
  )
  forms: tuple[str, ...] = ()
  if any(error in caught for error in _OF_IMPORTS):
    forms = "import", "from", "star"
  if _OF_NAMES in caught and not any(hasattr(x, "body") for x in node.body):
    forms = *forms, "expression"
  last = node.body[-1].end_lineno or 0
  return any(
    use.form in forms and node.lineno <= use.line <= last
    for use in (source.uses if forms else ())
    if use.name.startswith(_TENSORFLOW)
  )
