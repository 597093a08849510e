# SPDX-License-Identifier: Apache-2.0
"""Reads a source of Python: the names of modules that it uses, and where.

    source = sources.read("train.py")
    for use in source.uses:
      print(use.line, use.written, use.name)   # 7 tf.Session tensorflow.Session

Names are resolved through imports under any alias, through assignments such as
`slim = tf.contrib.slim`, and by the scopes of Python: a parameter called `tf`
is not TensorFlow. Nothing is imported or run.
"""

from __future__ import annotations

import ast
import collections
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import operator
import os
import re
import sys
import tokenize
from typing import Any
from typing import NamedTuple
from typing import TypeVar
import warnings

from tf_compat_lossscale._core import legacy_names

_Node = TypeVar("_Node", bound=ast.AST)
# A function that returns the full name of `a` in `a.b.c`.
_Find = Callable[[ast.Name], str | None]

_DEPTH = 20_000
_MODULE_IN_TEXT = re.compile(r"tensorflow(\.[a-zA-Z_]\w*)+")
_QUESTIONS = ("getattr", "hasattr")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)
_BINDING = (ast.Assign, ast.Import, ast.ImportFrom)


# What Python 3 says of code that Python 2 allows.
_PYTHON_2 = re.compile(
  "Missing parentheses in call to|multiple exception types|leading zeros in"
  "|inconsistent use of tabs"
)
TO_3 = ": if this is Python 2, run 2to3 first"


class SourceError(Exception):
  """An error for a source that cannot be read; the message is one line."""


class Use(NamedTuple):
  """An occurrence of a name of a module.

  Attributes:
    name: The full name, such as "tensorflow.compat.v1.Session" for `tf.Session`
      after `import tensorflow.compat.v1 as tf`. The name of a relative import
      begins with dots. What is written as `tensorflow_core` is "tensorflow".
    node: The node: for imports the `ast.alias` (of `*`, the `ast.ImportFrom`),
      else the whole `a.b.c`, the call of `getattr`, or the string.
    form: "import" (`import a.b`), "from" (`from a import b`), "star" (`from a
      import *`; the name is the module's), "expression" (`a.b.c`), "store"
      (`a.b.c = …` or `del`), "getattr" or "hasattr" (`getattr(a, "b")`), or
      "text" (a string that is the dotted name of a module of TensorFlow).
  """

  name: str
  node: ast.AST
  form: str

  @property
  def line(self) -> int:
    """The line where the occurrence starts, counted from 1."""
    line: int = self.node.lineno  # type: ignore[attr-defined]
    return line

  @property
  def only_asks(self) -> bool:
    """Whether the code works without the name: it is one of a question."""
    has_default = self.form == "getattr" and len(self.node.args) > 2  # type: ignore[attr-defined]
    return self.form == "hasattr" or has_default

  @property
  def written(self) -> str:
    """The name as the source has it, such as "tf.Session"."""
    if isinstance(self.node, ast.alias):
      return self.node.name
    return unparse(self.node)


@dataclasses.dataclass(eq=False)
class SourceFile:
  """What was read from a text of Python code.

  Attributes:
    path: The file, for messages.
    text: The text.
    tree: The syntax tree.
    uses: The uses of names of modules, in the order of lines.
    unknown: The expressions `a.b.c` whose root is no module's name, such as
      `self.opt.get_slot`; the whole chains, in the order of lines.
    modules: The dotted names that imports name; relative ones begin with dots.
      Of `from a import b` they are "a" and "a.b", which may be a module, too.
    nodes: Class -> the nodes of the tree. Of `a.b.c`, the whole; the root if it
      is no name.
  """

  path: str
  text: str
  tree: ast.Module
  uses: list[Use] = dataclasses.field(default_factory=list)
  unknown: list[ast.Attribute] = dataclasses.field(default_factory=list)
  modules: list[str] = dataclasses.field(default_factory=list)
  nodes: dict[type, list[Any]] = dataclasses.field(
    default_factory=lambda: collections.defaultdict(list)
  )
  _full: dict[ast.AST, str | None] = dataclasses.field(default_factory=dict)

  def resolve(self, node: ast.AST | None) -> str | None:
    """Returns the full name of an expression in the source, or None.

    It is "tensorflow.train" for `tf.train` and for `getattr(tf, "train")`.
    """
    return None if node is None else _resolve(node, self._full.get)

  def list_nodes(self, *kinds: type[_Node]) -> list[_Node]:
    """Returns the nodes of some classes."""
    return [node for kind in kinds for node in self.nodes.get(kind, ())]


def read(path: str) -> SourceFile:
  """Reads a file.

  Raises:
    SourceError: The file cannot be read, or this Python cannot parse it.
  """
  if os.path.exists(path) and not os.path.isfile(path):
    # What is read from a pipe is lost for Python.
    raise SourceError(f"{path}: not a regular file")
  try:
    with tokenize.open(path) as file:
      text = file.read()
  except OSError as error:
    raise SourceError(f"{path}: {error.strerror}") from None
  except (SyntaxError, ValueError, LookupError) as error:
    raise _explain(path, error) from None
  return read_text(path, text)


def parse(path: str, text: str) -> ast.Module:
  """Returns the syntax tree of a file's text; the path is for messages.

  Raises:
    SourceError: This Python cannot parse the text.
  """
  try:
    with warnings.catch_warnings(), allow_depth():
      warnings.simplefilter("ignore")  # Of "\\d" in a string, and others.
      return ast.parse(text, path)
  except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
    raise _explain(path, error) from None


def read_text(
  path: str, text: str, tree: ast.Module | None = None
) -> SourceFile:
  """Reads the text of a file, or its syntax tree; errors are as of `parse`."""
  source = SourceFile(path, text, tree or parse(path, text))
  _collect(source)
  return source


@contextlib.contextmanager
def allow_depth() -> Iterator[None]:
  """Allows functions to walk deep trees: a sum of 1,000 terms is as deep."""
  limit = sys.getrecursionlimit()
  sys.setrecursionlimit(max(limit, _DEPTH))
  try:
    yield
  finally:
    sys.setrecursionlimit(limit)


def find_dotted_name(node: ast.AST) -> str | None:
  """Returns `a.b.c` as it is written; None for other expressions."""
  root, names = split(node)
  return ".".join([root.id, *names]) if isinstance(root, ast.Name) else None


def unparse(node: ast.AST) -> str:
  """Returns the code of a node, as `ast.unparse`; `a.b.c` takes less time."""
  return find_dotted_name(node) or ast.unparse(node)


def join(module: str, name: str) -> str:
  """Returns the dotted name of a member of a module, which may be relative."""
  return f"{module}{'' if module.endswith('.') else '.'}{name}"


class _Scope:
  """The names that a module, class or function binds."""

  def __init__(self, node: ast.AST, parent: _Scope | None):
    self.node, self.parent = node, parent
    # Name -> what it may stand for: full names, or expressions.
    self.values: dict[str, list[str | ast.expr]] = {}
    self._found: dict[str, str | None] = {}

  def bind(self, name: str, value: str | ast.expr | None = None) -> None:
    """Notes that a name is bound; to None, if to nothing that matters."""
    values = self.values.setdefault(name, [])
    if value is not None:
      values.append(value)

  def find(self, root: ast.Name) -> str | None:
    """Returns the full name of the first value that has one, or None."""
    name, scope = root.id, self
    while name not in scope.values or (
      scope is not self and isinstance(scope.node, ast.ClassDef)
    ):
      if scope.parent is None:
        return None
      scope = scope.parent
    if name not in scope._found:
      scope._found[name] = None  # `tf = tf` asks again.
      for value in scope.values[name]:
        full = value if isinstance(value, str) else _resolve(value, scope.find)
        if full is not None:
          scope._found[name] = full
          break
    return scope._found[name]


def _collect(source: SourceFile) -> None:
  """Fills the lists of a source.

  A scope is read whole before the scopes inside it, because a function may use
  what its module binds below it.
  """
  nodes: list[Any] = [*source.tree.body]
  waiting = [(_Scope(source.tree, None), nodes)]
  for scope, nodes in waiting:  # The list grows meanwhile.
    # Expressions, each as `split` divides it.
    found: list[tuple[ast.expr, ast.AST, list[str]]] = []
    for node in nodes:  # This list, too.
      kind = type(node)  # Most of the time goes here.
      source.nodes[kind].append(node)
      if kind is ast.Name:
        if type(node.ctx) is not ast.Load:
          scope.bind(node.id)
        found.append((node, node, []))
      elif kind is ast.Attribute:
        root, names = split(node)
        found.append((node, root, names))
        if type(root) is not ast.Name:
          nodes.append(root)
      elif kind in _SCOPES:
        inner = _Scope(node, scope)
        outside, inside = _enter(inner)
        nodes += outside
        waiting.append((inner, inside))
      elif kind is not ast.Constant:
        if kind is ast.Call:
          if getattr(node.func, "id", "") in _QUESTIONS:
            found.append((node, node, []))
        elif kind in _BINDING:
          _bind(source, scope, node)
        nodes += _list_children(node)
    _collect_expressions(source, scope, found)
  source.uses += [
    Use(node.value, node, "text")
    for node in source.nodes[ast.Constant]
    if _MODULE_IN_TEXT.fullmatch(_get_text(node) or "")
  ]
  place = operator.attrgetter("node.lineno", "node.col_offset")
  source.uses.sort(key=place)
  source.unknown.sort(key=operator.attrgetter("lineno", "col_offset"))


def _list_children(node: ast.AST) -> list[ast.AST]:
  """Returns what `ast.iter_child_nodes` yields, in less time."""
  found: list[ast.AST] = []
  for name in node._fields:
    value = getattr(node, name, None)
    if isinstance(value, list):
      found += [each for each in value if isinstance(each, ast.AST)]
    elif isinstance(value, ast.AST):
      found.append(value)
  return found


def _bind(
  source: SourceFile,
  scope: _Scope,
  node: ast.Assign | ast.Import | ast.ImportFrom,
) -> None:
  """Binds the names that a statement binds; adds those that an import names."""
  if isinstance(node, ast.Assign):
    if isinstance(node.targets[0], ast.Name):
      scope.bind(node.targets[0].id, node.value)
    return
  if isinstance(node, ast.Import):
    for alias in node.names:
      name = legacy_names.leave_folders(alias.name)
      source.modules.append(name)
      source.uses.append(Use(name, alias, "import"))
      first = alias.name.partition(".")[0]
      bound = name if alias.asname else legacy_names.leave_folders(first)
      scope.bind(alias.asname or first, bound)
    return
  module = "." * node.level + legacy_names.leave_folders(node.module or "")
  source.modules.append(module)
  for alias in node.names:
    if alias.name == "*":
      source.uses.append(Use(module, node, "star"))
      continue
    full = legacy_names.leave_folders(join(module, alias.name))
    source.modules.append(full)
    source.uses.append(Use(full, alias, "from"))
    scope.bind(alias.asname or alias.name, full)


def _collect_expressions(
  source: SourceFile,
  scope: _Scope,
  found: list[tuple[ast.expr, ast.AST, list[str]]],
) -> None:
  """Adds the uses that expressions in a scope are: names, `a.b.c`, questions.

  Each expression comes with its root, and the names after that.
  """
  for node, root, names in found:
    if isinstance(node, ast.Call):
      full = _resolve_question(node, scope.find)
      if full is not None:
        source.uses.append(Use(full, node, unparse(node.func)))
      continue
    if isinstance(root, ast.Name):
      full = source._full[root] = scope.find(root)
    else:
      full = _resolve_root(root, scope.find)
    if full is not None:
      is_read = isinstance(node.ctx, ast.Load)  # type: ignore[attr-defined]
      if is_read or names:
        form = "expression" if is_read else "store"
        full = legacy_names.leave_folders(".".join([full, *names]))
        source.uses.append(Use(full, node, form))
    elif isinstance(node, ast.Attribute):
      source.unknown.append(node)


def _enter(scope: _Scope) -> tuple[list[ast.AST], list[ast.AST]]:
  """Binds the names of a scope's node, and divides the nodes below it.

  Returns:
    The nodes that are evaluated in the scope around it, such as decorators and
    defaults; and those inside.
  """
  node: Any = scope.node
  if isinstance(node, _COMPREHENSIONS):
    first, *others = node.generators
    inside = [x for x in ast.iter_child_nodes(node) if x not in node.generators]
    return [first.iter], [*inside, first.target, *first.ifs, *others]
  outside: list[ast.AST | None] = []
  if isinstance(node, ast.ClassDef):
    outside += [*node.bases, *node.keywords]
  else:
    for each in ast.iter_child_nodes(node.args):
      if isinstance(each, ast.arg):
        scope.bind(each.arg)
        outside.append(each.annotation)
      else:
        outside.append(each)
  if isinstance(node, ast.Lambda):
    return [*filter(None, outside)], [node.body]
  assert scope.parent is not None
  scope.parent.bind(node.name)
  outside += [*node.decorator_list, getattr(node, "returns", None)]
  return [*filter(None, outside)], [*node.body]


def split(node: ast.AST) -> tuple[ast.AST, list[str]]:
  """Returns the root `a` of `a.b.c`, and the names after it."""
  names: list[str] = []
  while isinstance(node, ast.Attribute):
    names.append(node.attr)
    node = node.value
  return node, names[::-1]


def _resolve(node: ast.AST, find: _Find) -> str | None:
  root, names = split(node)
  full = _resolve_root(root, find)
  return full and ".".join([full, *names])


def _resolve_root(root: ast.AST, find: _Find) -> str | None:
  """Returns the full name of `a` in `a.b.c`, which may be a call, or None."""
  if isinstance(root, ast.Name):
    return find(root)
  if isinstance(root, ast.Call) and root.args:
    function = find_dotted_name(root.func)
    if function == "getattr":
      return _resolve_question(root, find)
    if function == "importlib.import_module":
      return _get_text(root.args[0])
  return None


def _resolve_question(node: ast.Call, find: _Find) -> str | None:
  """Returns the full name that `getattr(a.b, "c")` asks for, or None."""
  name = _get_text(node.args[1]) if len(node.args) > 1 else None
  owner = name and _resolve(node.args[0], find)
  return owner and f"{owner}.{name}"


def _get_text(node: ast.AST) -> str | None:
  value = node.value if isinstance(node, ast.Constant) else None
  return value if isinstance(value, str) else None


def _explain(path: str, error: Exception) -> SourceError:
  line = getattr(error, "lineno", None) or 1
  reason = getattr(error, "msg", None) or str(error) or "too deep"
  return SourceError(advise(f"{path}:{line}: cannot be parsed: {reason}"))


def advise(error: str) -> str:
  """Returns an error, with what to do if the code may be Python 2."""
  return f"{error}{TO_3}" if _PYTHON_2.search(error) else error
