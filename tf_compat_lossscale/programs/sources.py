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
# Fields of nodes that have none below them, or none that matters.
_NO_NODES = (
  *("arg", "asname", "attr", "conversion", "ctx", "is_async", "kind", "level"),
  *("module", "op", "ops", "simple", "type_comment"),
)

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
    name = root.id
    if name in self._found:
      return self._found[name]
    scope: _Scope | None = self
    while scope is not None and (
      name not in scope.values
      or (scope is not self and isinstance(scope.node, ast.ClassDef))
    ):
      scope = scope.parent
    self._found[name] = None  # `tf = tf` asks again.
    if scope is self:
      found = (
        value if isinstance(value, str) else _resolve(value, self.find)
        for value in self.values[name]
      )
      self._found[name] = next(filter(None, found), None)
    elif scope is not None:
      self._found[name] = scope.find(root)
    return self._found[name]


class _Fields(dict[type, list[str]]):
  """Class of nodes -> the fields that may have nodes which matter."""

  def __missing__(self, kind: type) -> list[str]:
    fields = [x for x in getattr(kind, "_fields", ()) if x not in _NO_NODES]
    return self.setdefault(kind, fields)


_FIELDS = _Fields()


def _collect(source: SourceFile) -> None:
  """Fills the lists of a source.

  A scope is read whole before the scopes inside it, because a function may use
  what its module binds below it.
  """
  all_nodes = source.nodes
  waiting = [(_Scope(source.tree, None), list[Any](source.tree.body))]
  for scope, nodes in waiting:  # The list grows meanwhile.
    names: list[ast.Name] = []
    attributes: list[tuple[ast.Attribute, ast.AST]] = []  # With their roots.
    for node in nodes:  # This list, too. Most of the time goes here.
      kind = type(node)
      all_nodes[kind].append(node)
      if kind is ast.Name:
        names.append(node)
      elif kind is ast.Attribute:
        root = _find_root(node)
        attributes.append((node, root))
        if type(root) is not ast.Name:
          nodes.append(root)
      elif kind in _SCOPES:
        inner = _Scope(node, scope)
        outside, inside = _enter(inner)
        nodes += outside
        waiting.append((inner, inside))
      elif kind is not ast.Constant:
        if kind in _BINDING:
          _bind(source, scope, node)
        _add_children(node, nodes)
    _collect_uses(source, scope, names, attributes)
  for call in all_nodes[ast.Call]:
    name = getattr(call.func, "id", "")
    if name in _QUESTIONS:
      full = _resolve_question(call, source._full.get)
      source.uses += [Use(full, call, name)] if full else []
  source.uses += [
    Use(node.value, node, "text")
    for node in all_nodes[ast.Constant]
    if type(node.value) is str and _MODULE_IN_TEXT.fullmatch(node.value)
  ]
  place = operator.attrgetter("node.lineno", "node.col_offset")
  source.uses.sort(key=place)
  source.unknown.sort(key=operator.attrgetter("lineno", "col_offset"))


def _add_children(node: ast.AST, nodes: list[Any]) -> None:
  """Adds what is below a node; some of that is no node."""
  for field in _FIELDS[type(node)]:
    value = getattr(node, field)
    if type(value) is list:
      nodes += value
    elif value is not None:
      nodes.append(value)


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


def _collect_uses(
  source: SourceFile,
  scope: _Scope,
  names: list[ast.Name],
  attributes: list[tuple[ast.Attribute, ast.AST]],
) -> None:
  """Adds the uses that names and `a.b.c` in a scope are, or notes the latter.

  Each `a.b.c` comes with its root.
  """
  for node in names:
    if type(node.ctx) is not ast.Load:
      scope.bind(node.id)
  roots = {x.id: x for _, x in attributes if type(x) is ast.Name}
  roots.update((x.id, x) for x in names)
  known = {x: full for x, root in roots.items() if (full := scope.find(root))}
  for node in names if known else ():
    if node.id in known:
      source._full[node] = full = known[node.id]
      if type(node.ctx) is ast.Load:
        full = legacy_names.leave_folders(full)
        source.uses.append(Use(full, node, "expression"))
  for attribute, root in attributes:
    if type(root) is ast.Name:
      full = source._full[root] = known.get(root.id)
    else:
      full = _resolve_root(root, scope.find)
    if full is None:
      source.unknown.append(attribute)
      continue
    form = "expression" if type(attribute.ctx) is ast.Load else "store"
    full = legacy_names.leave_folders(".".join([full, *split(attribute)[1]]))
    source.uses.append(Use(full, attribute, form))


def _enter(scope: _Scope) -> tuple[list[ast.AST], list[ast.AST]]:
  """Binds the names of a scope's node, and divides the nodes below it.

  Returns:
    The nodes that are evaluated in the scope around it, such as decorators and
    defaults; and those inside.
  """
  node: Any = scope.node
  if isinstance(node, _COMPREHENSIONS):
    first, *others = node.generators
    values = [getattr(node, x) for x in node._fields if x != "generators"]
    return [first.iter], [*values, first.target, *first.ifs, *others]
  if isinstance(node, ast.ClassDef):
    outside = [*node.bases, *node.keywords, *node.decorator_list]
  else:
    args = node.args
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    named += filter(None, (args.vararg, args.kwarg))
    for each in named:
      scope.bind(each.arg)
    outside = [*args.defaults, *args.kw_defaults]
    outside += [each.annotation for each in named]
    if isinstance(node, ast.Lambda):
      return [*filter(None, outside)], [node.body]
    outside += [*node.decorator_list, node.returns]
  assert scope.parent is not None
  scope.parent.bind(node.name)
  return [*filter(None, outside)], list(node.body)


def _find_root(node: ast.AST) -> ast.AST:
  """Returns the root `a` of `a.b.c`."""
  while type(node) is ast.Attribute:
    node = node.value
  return node


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
