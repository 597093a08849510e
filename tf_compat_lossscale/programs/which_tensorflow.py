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
from collections.abc import Iterable
from collections.abc import Iterator
import functools
import os
import re
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.programs import sources
from tf_compat_lossscale.programs import tensorflow_names

_TENSORFLOW, _V1 = "tensorflow.", "tensorflow.compat.v1"
_OUR_KERAS = "tf_compat_lossscale.keras"

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
# Names that TensorFlow 1.15 has, too, but hardly any program of its time uses;
# and what `migrate` makes of them.
_RATHER_2 = re.compile(
  rf"{_OUR_KERAS}\b|GradientTape|function|compat\.v2\b|keras\.mixed_precision\b"
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
_asks_release = functools.lru_cache(1 << 16)(_ASKS.fullmatch)
_asks = functools.lru_cache(1 << 14)(_ASKING_WORDS.search)


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
  signs: tuple[Sign, ...] = ()


def decide(files: Iterable[sources.SourceFile]) -> Decision:
  """Decides which TensorFlow some files mean; without signs, none tells."""
  signs: dict[tuple[int, str], Sign] = {}
  leaves_eager = False
  for source in files:
    for sign in find_signs(source):
      signs.setdefault((sign.tensorflow, sign.name), sign)
    leaves_eager |= any(_LEAVES_EAGER.fullmatch(u.name) for u in source.uses)
  found = sorted(signs.values(), key=lambda sign: -sign.weight)
  one = [sign for sign in found if sign.tensorflow == 1]
  two = [sign for sign in found if sign.tensorflow == 2]
  weight = sum(sign.weight for sign in one) - sum(sign.weight for sign in two)
  is_graph = bool(one) and not two and not leaves_eager
  if weight > 0 or (weight == 0 and is_graph):
    return Decision(1, (*one, *two))
  return Decision(2, (*two, *(sign for sign in one if sign.weight)))


def decide_silent(files: Iterable[sources.SourceFile]) -> Decision:
  """Decides for files without a name that tells.

  They mean TensorFlow 1 if they turn TensorFlow 2's behavior off, as what
  `migrate` has edited does.
  """
  for source in files:
    for use in source.uses:
      if use.name == f"{_V1}.disable_v2_behavior" and use.form == "expression":
        place = use.written, source.path, use.line
        return Decision(1, (Sign(1, 0, "disable_v2_behavior", *place),))
  return Decision(2)


def find_signs(
  source: sources.SourceFile, guarded: bool = False
) -> Iterator[Sign]:
  """Yields the names in a file that say TensorFlow 1 or 2, each once.

  Those behind a question, such as `if hasattr(tf, "Session")`, work on both:
  with `guarded`, these alone are yielded, else the others.
  """
  uses = _list_uses(source)
  methods = [x for x in source.unknown if x.attr in tensorflow_names.METHODS]
  asked = find_asked_lines(source) if uses or methods else set()
  first: dict[str, sources.Use] = {}
  for use in uses:
    if (use.only_asks or use.line in asked) == guarded:
      first.setdefault(use.name, use)
  graph: dict[str, sources.Use] = {}
  seen = set[tuple[int, str]]()
  for full, use in first.items():
    for sign in _weigh(full):
      if sign[::2] not in seen:
        seen.add(sign[::2])
        written = use.written if "." in use.written else full
        yield Sign(*sign, written, source.path, use.line)
    if match := _NOT_EAGER.fullmatch(full):
      graph.setdefault(match[1], use)
  for node in methods:
    if (node.lineno in asked) == guarded:
      written = f".{node.attr}"
      yield Sign(1, 4, f"data{written}", written, source.path, node.lineno)
  imports = any(name.startswith(_V1) for name in source.modules)
  # Other files may use a session to convert a model, but hardly both.
  if imports or {"placeholder", "Session"} <= graph.keys():
    for name, use in graph.items():
      written = f"{use.written} without disable_v2_behavior()"
      yield Sign(1, 0, name, written, source.path, use.line)


@functools.lru_cache(1)  # As below.
def _list_uses(source: sources.SourceFile) -> list[sources.Use]:
  """Returns the uses of TensorFlow's names that a file does not assign.

  Beside plain `tensorflow`, `tfl.keras` counts: edits move no file to another.
  """
  assigned = {use.name for use in source.uses if use.form == "store"}
  starts = (_TENSORFLOW, *[_OUR_KERAS] * ("tensorflow" in source.modules))
  return [
    use
    for use in (*source.uses, *_find_behind_tf(source))
    if use.name.startswith(starts)
    and use.form not in ("store", "text")
    and use.name not in assigned
  ]


def _find_behind_tf(source: sources.SourceFile) -> Iterator[sources.Use]:
  """Yields the uses of a `tf` that comes from a module of the program.

  It is TensorFlow in `from lib.env import tf` and `from lib.env import *`.
  """
  for use in source.uses:
    before, found, name = use.name.partition(".tf.")
    if found and not before.startswith("tensorflow"):
      yield use._replace(name=_TENSORFLOW + name)
  has_stars = any(use.form == "star" for use in source.uses)
  for node in source.unknown if has_stars else ():
    root, names = sources.split(node)
    if getattr(root, "id", "") == "tf":
      yield sources.Use(".".join(["tensorflow", *names]), node, "expression")


@functools.lru_cache(1 << 16)
def _weigh(full: str) -> list[tuple[int, int, str]]:
  """Returns what a name says: the TensorFlow, the weight, and its part."""
  found = list[tuple[int, int, str]]()
  if full.startswith(f"{_V1}."):
    return found
  name = full.removeprefix(_TENSORFLOW)
  if only_1 := tensorflow_names.find_name(name, 1):
    found.append((1, 4 if _GRAPH.fullmatch(only_1) else 1, only_1))
  if only_2 := tensorflow_names.find_name(name, 2):
    found.append((2, 2, only_2))
  elif match := _RATHER_2.match(name):
    found.append((2, 1, match[0]))
  return found


@functools.lru_cache(1)  # More would keep the syntax trees of other files.
def find_asked_lines(source: sources.SourceFile) -> set[int]:
  """Returns the lines of code that depends on which TensorFlow there is.

  Such code is behind a test for a name or the version of TensorFlow, or in a
  `try` that expects TensorFlow to lack a module or a name.
  """
  asking: set[ast.AST] = {
    use.node
    for use in source.uses
    if _asks_release(use.name)
    or (use.only_asks and use.name.startswith(_TENSORFLOW))
  }
  asking.update([x for x in source.list_nodes(ast.Name) if _asks(x.id)])
  asking.update([x for x in source.list_nodes(ast.Attribute) if _asks(x.attr)])
  tests = source.list_nodes(ast.If, ast.IfExp, ast.BoolOp) if asking else []
  nodes: list[Any] = [
    node
    for node in tests
    if not asking.isdisjoint(ast.walk(getattr(node, "test", node)))
  ]
  nodes += [x for x in source.list_nodes(ast.Try) if _expects_other(source, x)]
  return {i for node in nodes for i in range(node.lineno, node.end_lineno + 1)}


def _expects_other(source: sources.SourceFile, node: ast.Try) -> bool:
  """Returns whether a `try` expects TensorFlow to lack a module or a name.

  Only a body without blocks counts for AttributeError: any object may raise it.
  """
  caught = " ".join(sources.unparse(x.type) for x in node.handlers if x.type)
  forms = set[str]()
  if re.search("ImportError|ModuleNotFoundError", caught):
    forms |= {"import", "from", "star"}
  has_blocks = any(hasattr(statement, "body") for statement in node.body)
  if "AttributeError" in caught and not has_blocks:
    forms.add("expression")
  lines = range(node.lineno, (node.body[-1].end_lineno or 0) + 1)
  return any(
    use.form in forms and use.line in lines and use.name.startswith(_TENSORFLOW)
    for use in source.uses
  )
