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
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import operator
import os
import re
import sys
import tokenize
from typing import Any
from typing import NamedTuple
from typing import TypeVar
import warnings

_Node = TypeVar("_Node", bound=ast.AST)

_DEPTH = 20_000
_MOST_LOOKUPS = 100  # Assignments may lead from name to name.
_MOST_PARTS = 64  # `a.b.c…` may have any number of parts.
_MODULE_IN_TEXT = re.compile(r"tensorflow(\.[a-zA-Z_]\w*)+")
_QUESTIONS = ("getattr", "hasattr")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)
_LISTS_OF_NAMES = (ast.Global, ast.Nonlocal)
# Fields that say nothing about names.
_PLAIN_FIELDS = ("ctx", "kind", "kwd_attrs", "op", "ops", "type_comment")


class SourceError(Exception):
  """An error for a source that cannot be read; the message is one line."""


class Use(NamedTuple):
  """An occurrence of a name of a module.

  Attributes:
    name: The full name, such as "tensorflow.compat.v1.Session" for `tf.Session`
      after `import tensorflow.compat.v1 as tf`. The name of a relative import
      begins with dots.
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
  def written(self) -> str:
    """The name as the source has it, such as "tf.Session"."""
    if isinstance(self.node, ast.alias):
      return self.node.name
    return unparse(self.node)


@dataclasses.dataclass(eq=False)
class Source:
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
    nodes: The nodes of the tree. Of `a.b.c`, the whole and the root.
  """

  path: str
  text: str
  tree: ast.Module
  uses: list[Use] = dataclasses.field(default_factory=list)
  unknown: list[ast.Attribute] = dataclasses.field(default_factory=list)
  modules: list[str] = dataclasses.field(default_factory=list)
  nodes: list[ast.AST] = dataclasses.field(default_factory=list)
  _full: dict[ast.AST, str | None] = dataclasses.field(default_factory=dict)

  def resolve(self, node: ast.AST | None) -> str | None:
    """Returns the full name of an expression in the source.

    Args:
      node: Such as `tf.train` or `getattr(tf, "train")`, wherever it stands.

    Returns:
      Such as "tensorflow.train"; None if the expression is no module's name.
    """
    return _resolve(node, self._full.get)

  def list_nodes(self, kind: type[_Node]) -> list[_Node]:
    """Returns the nodes of a class."""
    return self._nodes_by_class.get(kind, [])

  @functools.cached_property
  def _nodes_by_class(self) -> dict[type[ast.AST], list[Any]]:
    """Class -> the nodes of the class."""
    found: dict[type[ast.AST], list[Any]] = {}
    for node in self.nodes:
      found.setdefault(node.__class__, []).append(node)
    return found


def read(path: str) -> Source:
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
  except (SyntaxError, UnicodeDecodeError, ValueError) as error:
    raise _explain(path, error) from None
  return read_text(path, text)


def read_text(path: str, text: str) -> Source:
  """Reads the text of a file.

  Args:
    path: The file, for messages.
    text: The text.

  Raises:
    SourceError: This Python cannot parse the text.
  """
  try:
    with warnings.catch_warnings(), allow_depth():
      warnings.simplefilter("ignore")  # Of "\\d" in a string, and others.
      source = Source(path, text, ast.parse(text, path))
  except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
    raise _explain(path, error) from None
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
  names: list[str] = []
  while isinstance(node, ast.Attribute):
    names.append(node.attr)
    node = node.value
  if not isinstance(node, ast.Name):
    return None
  return ".".join([node.id, *reversed(names)])


def unparse(node: ast.AST) -> str:
  """Returns the code of a node, as `ast.unparse`; `a.b.c` takes less time."""
  return find_dotted_name(node) or ast.unparse(node)


def join(module: str, name: str) -> str:
  """Returns the dotted name of a member of a module, which may be relative."""
  return f"{module}{'' if module.endswith('.') else '.'}{name}"


def asks_for_main(statement: ast.AST) -> bool:
  """Returns whether a statement is `if __name__ == "__main__":`."""
  if not isinstance(statement, ast.If):
    return False
  nodes: list[ast.AST] = [statement.test]
  words = set()
  for node in nodes:  # The list grows meanwhile.
    nodes += list_children(node)
    words.add(getattr(node, "id", None) or getattr(node, "value", None))
  return {"__name__", "__main__"} <= {w for w in words if isinstance(w, str)}


def list_children(node: ast.AST) -> list[ast.AST]:
  """Returns the nodes right below a node, in the order of the source.

  The nodes that tell which operator there is, or whether a name is read or set,
  are left out.
  """
  found: list[ast.AST] = []
  for field in node._fields:
    value = getattr(node, field) if field not in _PLAIN_FIELDS else None
    if isinstance(value, ast.AST):
      found.append(value)
    elif isinstance(value, list):
      found += [each for each in value if isinstance(each, ast.AST)]
  return found


class _Scope:
  """The names that a module, class or function binds."""

  def __init__(self, node: ast.AST, parent: _Scope | None):
    self.node, self.parent = node, parent
    # Name -> what it may stand for: full names, or expressions.
    self.values: dict[str, list[str | ast.expr]] = {}
    self.found: dict[str, str | None] = {}

  def bind(self, name: str, value: str | ast.expr | None = None) -> None:
    """Notes that a name is bound; to None, if to nothing that matters."""
    values = self.values.setdefault(name, [])
    if value is not None:
      values.append(value)

  def resolve(self, name: str) -> str | None:
    """Returns the full name of the first value that has one, or None."""
    if name in self.found:
      return self.found[name]
    scope: _Scope | None = self
    while scope is not None and (
      name not in scope.values
      or (scope is not self and isinstance(scope.node, ast.ClassDef))
    ):
      scope = scope.parent
    if scope is None:
      return self.found.setdefault(name, None)
    scope.found[name] = None  # `tf = tf` asks again.
    found = None
    for value in scope.values[name][:_MOST_LOOKUPS]:
      full = value if isinstance(value, str) else scope.resolve_node(value)
      if full is not None:
        found = full
        break
    self.found[name] = scope.found[name] = found
    return found

  def resolve_node(self, node: ast.AST) -> str | None:
    """Returns the full name of an expression in this scope, or None."""
    return _resolve(node, lambda root: self.resolve(root.id))


def _collect(source: Source) -> None:
  """Fills the lists of a source.

  A scope is read whole before the scopes inside it, because a function may use
  what its module binds below it.
  """
  waiting = [(_Scope(source.tree, None), list_children(source.tree))]
  root: ast.expr
  for scope, nodes in waiting:  # The list grows meanwhile.
    found: list[tuple[ast.expr, ast.AST, list[str]]] = []
    for node in nodes:  # This one, too.
      kind = node.__class__
      if kind is ast.Name:
        assert isinstance(node, ast.Name)
        if node.ctx.__class__ is not ast.Load:
          scope.values.setdefault(node.id, [])
        found.append((node, node, []))
      elif kind is ast.Attribute:
        assert isinstance(node, ast.Attribute)
        root, names = node, list[str]()  # As `_split`, without a call.
        while isinstance(root, ast.Attribute):
          names.append(root.attr)
          root = root.value
        found.append((node, root, names[::-1]))
        if root.__class__ is not ast.Name:
          nodes.append(root)
      elif kind is ast.Constant:
        assert isinstance(node, ast.Constant)
        text = node.value
        if text.__class__ is str and _MODULE_IN_TEXT.fullmatch(text):
          source.uses.append(Use(text, node, "text"))
      elif kind in _SCOPES:
        inner = _Scope(node, scope)
        outside, inside = _enter(inner)
        nodes += outside
        waiting.append((inner, inside))
        if not isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
          scope.bind(node.name)  # type: ignore[attr-defined]
      else:
        if kind is ast.Import or kind is ast.ImportFrom:
          _collect_import(source, scope, node)
        elif kind is ast.Assign:
          target = node.targets[0]  # type: ignore[attr-defined]
          if isinstance(target, ast.Name):
            scope.bind(target.id, node.value)  # type: ignore[attr-defined]
        elif kind is ast.Call:
          assert isinstance(node, ast.Call)
          if getattr(node.func, "id", "") in _QUESTIONS:
            found.append((node, node, []))
        for field in node._fields:  # As `list_children`, without a call.
          value = getattr(node, field) if field not in _PLAIN_FIELDS else None
          if isinstance(value, ast.AST):
            nodes.append(value)
          elif isinstance(value, list) and kind not in _LISTS_OF_NAMES:
            nodes += filter(None, value)  # `{**a}` has no node for its key.
    source.nodes += nodes
    _collect_expressions(source, scope, found)
  place = operator.attrgetter("node.lineno", "node.col_offset")
  source.uses.sort(key=place)
  source.unknown.sort(key=operator.attrgetter("lineno", "col_offset"))


def _collect_import(source: Source, scope: _Scope, node: ast.AST) -> None:
  """Adds the names that an import statement names, and binds them."""
  if isinstance(node, ast.Import):
    for alias in node.names:
      source.modules.append(alias.name)
      source.uses.append(Use(alias.name, alias, "import"))
      first = alias.name.partition(".")[0]
      scope.bind(alias.asname or first, alias.name if alias.asname else first)
  elif isinstance(node, ast.ImportFrom):
    module = "." * node.level + (node.module or "")
    source.modules.append(module)
    for alias in node.names:
      if alias.name == "*":
        source.uses.append(Use(module, node, "star"))
        continue
      full = join(module, alias.name)
      source.modules.append(full)
      source.uses.append(Use(full, alias, "from"))
      scope.bind(alias.asname or alias.name, full)


def _collect_expressions(
  source: Source,
  scope: _Scope,
  found: Sequence[tuple[ast.expr, ast.AST, list[str]]],
) -> None:
  """Adds the uses that names, `a.b.c` and questions are.

  Args:
    source: The source.
    scope: The scope that the expressions are in.
    found: The expressions, each with its root and the names after that.
  """
  for node, root, names in found:
    if node is root and isinstance(node, ast.Call):
      for function in _QUESTIONS:
        full = _resolve_question(
          node, function, lambda root: scope.resolve(root.id)
        )
        if full is not None:
          source.uses.append(Use(full, node, function))
      continue
    if isinstance(root, ast.Name):
      if root.id in scope.found:
        full = scope.found[root.id]
      else:
        full = scope.resolve(root.id)
      source._full[root] = full
    else:
      full = scope.resolve_node(root)
    if full is not None:
      name = ".".join([full, *names[:_MOST_PARTS]])
      is_read = node.ctx.__class__ is ast.Load  # type: ignore[attr-defined]
      if is_read or names:
        form = "expression" if is_read else "store"
        source.uses.append(Use(name, node, form))
    elif isinstance(node, ast.Attribute):
      source.unknown.append(node)


def _enter(scope: _Scope) -> tuple[list[ast.AST], list[ast.AST]]:
  """Binds what a scope's node itself binds, and divides the nodes below it.

  Returns:
    The nodes that are evaluated in the scope around it, such as decorators and
    defaults; and those inside.
  """
  node = scope.node
  if isinstance(node, ast.ClassDef):
    return [*node.decorator_list, *node.bases, *node.keywords], [*node.body]
  if isinstance(node, _FUNCTIONS):
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    every += [each for each in (given.vararg, given.kwarg) if each]
    outside: list[ast.AST | None] = [*given.defaults, *given.kw_defaults]
    for each in every:
      scope.bind(each.arg)
      outside.append(each.annotation)
    if isinstance(node, ast.Lambda):
      return [*filter(None, outside)], [node.body]
    outside += [*node.decorator_list, node.returns]
    return [*filter(None, outside)], [*node.body]
  inside = []
  for child in list_children(node):
    inside += (
      list_children(child) if isinstance(child, ast.comprehension) else [child]
    )
  first = node.generators[0].iter  # type: ignore[attr-defined]
  return [first], [each for each in inside if each is not first]


def _split(node: ast.AST) -> tuple[ast.AST, list[str]]:
  """Returns the root `a` of `a.b.c`, and the names after it."""
  names: list[str] = []
  while isinstance(node, ast.Attribute):
    names.append(node.attr)
    node = node.value
  return node, names[::-1]


def _resolve(
  node: ast.AST | None, find: Callable[[ast.Name], str | None]
) -> str | None:
  """Returns the full name of an expression, or None.

  Args:
    node: The expression.
    find: A function that returns the full name of the root.
  """
  if node is None:
    return None
  root, names = _split(node)
  full = None
  if isinstance(root, ast.Name):
    full = find(root)
  elif isinstance(root, ast.Call) and root.args:
    full = _resolve_question(root, "getattr", find)
    if find_dotted_name(root.func) == "importlib.import_module" and root.args:
      full = _get_text(root.args[0])
  return full and ".".join([full, *names[:_MOST_PARTS]])


def _resolve_question(
  node: ast.Call, function: str, find: Callable[[ast.Name], str | None]
) -> str | None:
  """Returns the full name that `getattr(a.b, "c")` asks for, or None."""
  if not isinstance(node.func, ast.Name) or node.func.id != function:
    return None
  name = _get_text(node.args[1]) if len(node.args) > 1 else None
  owner = name and _resolve(node.args[0], find)
  return owner and f"{owner}.{name}"


def _get_text(node: ast.AST) -> str | None:
  value = node.value if isinstance(node, ast.Constant) else None
  return value if isinstance(value, str) else None


def _explain(path: str, error: Exception) -> SourceError:
  """Returns the error for a text that is not Python."""
  line = getattr(error, "lineno", None) or 1
  reason = getattr(error, "msg", None) or str(error) or "too deep"
  return SourceError(f"{path}:{line}: cannot be parsed: {reason}")
