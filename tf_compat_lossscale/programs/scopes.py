# SPDX-License-Identifier: Apache-2.0
"""Resolves the names in a syntax tree that stand for TensorFlow's names."""

from __future__ import annotations

import ast
from collections.abc import Sequence

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (
  ast.Module,
  ast.ClassDef,
  *FUNCTIONS,
  ast.Lambda,
  ast.ListComp,
  ast.SetComp,
  ast.DictComp,
  ast.GeneratorExp,
)
# No name of a module, or of TensorFlow, has more parts. `a.b.c…` may have any
# number.
MOST_PARTS = 64
# Assignments may lead from name to name, on many ways.
_MOST_LOOKUPS = 200
# Nodes below which nothing is bound, or only names of a scope of its own.
_BIND_NOTHING = frozenset(
  [
    *SCOPES,
    ast.Attribute,
    ast.Call,
    ast.Constant,
    ast.Import,
    ast.ImportFrom,
    ast.Name,
    ast.Return,
  ]
)
# Those of them that do not bind a name themselves either.
_IDLE = _BIND_NOTHING - {
  ast.Import,
  ast.ImportFrom,
  ast.Name,
  *FUNCTIONS,
  ast.ClassDef,
}
# Fields that have no nodes, or only such as tell which operator there is, or
# whether a name is read or set.
_PLAIN_FIELDS = frozenset(
  [
    *("arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind"),
    *("kwd_attrs", "level", "module", "name", "op", "ops", "rest", "simple"),
    *("type_comment", "type_ignores"),
  ]
)
# Classes of nodes without nodes below them, whatever their fields' names are.
_LEAVES = frozenset([ast.Constant, ast.Global, ast.Nonlocal])


def _list_fields(kind: type[ast.AST]) -> tuple[str, ...]:
  """Returns the fields of a class of nodes that may have nodes."""
  if kind in _LEAVES:
    return ()
  plain = _PLAIN_FIELDS
  if kind.__name__ == "TypeAlias":  # Its name is a node.
    plain -= {"name"}
  return tuple(field for field in kind._fields if field not in plain)


# Class of nodes -> the fields that may have nodes, in the order of the source.
_FIELDS = {
  kind: _list_fields(kind)
  for kind in vars(ast).values()
  if isinstance(kind, type) and issubclass(kind, ast.AST)
}


def list_children(node: ast.AST) -> list[ast.AST]:
  """Returns the nodes right below a node, in the order of the source.

  The nodes that tell which operator there is, or whether a name is read or set,
  are left out. This takes a fifth of the time of `ast.iter_child_nodes`.
  """
  found: list[ast.AST] = []
  for field in _FIELDS[node.__class__]:
    value = getattr(node, field)
    if value.__class__ is list:
      found += filter(None, value)  # `{**a}` has no node for its key.
    elif value is not None:
      found.append(value)
  return found


def list_attributes(node: ast.AST) -> tuple[list[ast.Attribute], ast.AST]:
  """Returns the attributes in `a.b.c`, the last one first, and the root `a`."""
  attributes: list[ast.Attribute] = []
  while isinstance(node, ast.Attribute):
    attributes.append(node)
    node = node.value
  return attributes, node


def add_attributes(name: str, attributes: Sequence[ast.Attribute]) -> str:
  """Returns the full name of `a.b.c`; of many attributes, the first ones.

  Args:
    name: The full name of `a`.
    attributes: The attributes, the last one first.
  """
  parts = [each.attr for each in reversed(attributes[-MOST_PARTS:])]
  return ".".join([name, *parts])


def find_dotted_name(node: ast.AST) -> str | None:
  """Returns the dotted name that `a.b.c` is; None for other expressions."""
  attributes, root = list_attributes(node)
  if not isinstance(root, ast.Name):
    return None
  return ".".join([root.id, *(each.attr for each in reversed(attributes))])


def unparse(node: ast.AST) -> str:
  """Returns the code of a node, as `ast.unparse`; `a.b.c` takes less time."""
  return find_dotted_name(node) or ast.unparse(node)


def split(node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
  """Returns the nodes right below a scope's node in two parts.

  Returns:
    The nodes that are evaluated in the scope around it, such as decorators,
    defaults and bases; and the others.
  """
  outside: list[ast.AST] = []
  if isinstance(node, (*FUNCTIONS, ast.Lambda)):
    outside += node.args.defaults
    outside += [each for each in node.args.kw_defaults if each is not None]
  if isinstance(node, FUNCTIONS):
    arguments = [
      *(*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs),
      *(node.args.vararg, node.args.kwarg),
    ]
    outside += [a.annotation for a in arguments if a and a.annotation]
    outside += [node.returns] if node.returns is not None else []
  if isinstance(node, ast.ClassDef):
    outside += [*node.bases, *node.keywords]
  if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
    outside += node.decorator_list
  if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
    outside.append(node.generators[0].iter)
  if isinstance(node, ast.GeneratorExp):
    outside.append(node.generators[0].iter)
  taken = {id(each) for each in outside}
  inside = []
  for child in list_children(node):
    if isinstance(child, ast.arguments):
      continue
    if isinstance(child, ast.comprehension):
      inside += [c for c in list_children(child) if id(c) not in taken]
    elif id(child) not in taken:
      inside.append(child)
  return outside, inside


def list_parts(node: ast.AST) -> list[ast.AST]:
  """Returns a node and all nodes below it, those near it first."""
  nodes: list[ast.AST] = [node]
  for each in nodes:  # The list grows meanwhile.
    if _FIELDS[each.__class__]:
      nodes += list_children(each)
  return nodes


def get_module(node: ast.ImportFrom) -> str:
  """Returns the dotted name of the module in `from … import`."""
  return "." * node.level + (node.module or "")


def list_modules(node: ast.AST) -> list[str]:
  """Returns the dotted names of the modules that an import statement names.

  Relative names begin with dots. Other nodes name none.
  """
  if isinstance(node, ast.Import):
    return [alias.name for alias in node.names]
  return [get_module(node)] if isinstance(node, ast.ImportFrom) else []


def list_bindings(node: ast.Import | ast.ImportFrom) -> list[tuple[str, str]]:
  """Returns the names that an import binds, each with what it stands for.

  Returns:
    (name, dotted name) for each. Relative names begin with dots.
  """
  if isinstance(node, ast.ImportFrom):
    module = get_module(node)
    return [
      (alias.asname or alias.name, join(module, alias.name))
      for alias in node.names
    ]
  return [
    (alias.asname, alias.name)
    if alias.asname
    else (alias.name.partition(".")[0],) * 2
    for alias in node.names
  ]


def asks_for_main(statement: ast.stmt) -> bool:
  """Returns whether a statement is `if __name__ == "__main__":`."""
  if not isinstance(statement, ast.If):
    return False
  words = [
    str(getattr(part, "id", None) or getattr(part, "value", ""))
    for part in list_parts(statement.test)
    if isinstance(part, (ast.Name, ast.Constant))
  ]
  return any("__name__" in word for word in words) and any(
    "__main__" in word for word in words
  )


def join(module: str, name: str) -> str:
  """Returns the dotted name of a member of a module."""
  return f"{module}{'' if module.endswith('.') else '.'}{name}"


class Scope:
  """The names bound in a module, class or function."""

  def __init__(self, node: ast.AST, parent: Scope | None):
    self.node, self.parent = node, parent
    # For each name, its values: full names, expressions, or None for others.
    self._values: dict[str, list[str | ast.expr | None]] = {}
    self._resolving: set[str] = set()
    # The lookups of one expression, in all scopes of a module.
    self._lookups: list[int] = parent._lookups if parent is not None else [0]
    # Name -> what it stands for, if an expression begins with it.
    self._found: dict[str, list[str]] = {}
    self._bind_all(node)

  def _bind(self, name: str, value: str | ast.expr | None) -> None:
    """Adds a value to those of a name."""
    self._values.setdefault(name, []).append(value)

  def _bind_all(self, node: ast.AST) -> None:
    """Binds the names of this scope, without those of the scopes inside it."""
    for child in list_children(node):
      kind = child.__class__
      if kind in _IDLE:
        continue
      if isinstance(child, ast.Name):
        if isinstance(child.ctx, ast.Store):
          self._bind(child.id, None)
      elif isinstance(child, (ast.Import, ast.ImportFrom)):
        for name, full in list_bindings(child):
          self._bind(name, if_tensorflow(full))
      elif isinstance(child, (*FUNCTIONS, ast.ClassDef)):
        self._bind(child.name, None)
      elif isinstance(child, ast.arg):
        self._bind(child.arg, None)
      elif isinstance(child, ast.Assign):
        target, *others = child.targets
        if isinstance(target, ast.Name) and not others:
          self._bind(target.id, child.value)
      if kind not in _BIND_NOTHING:
        self._bind_all(child)

  def resolve(self, node: ast.AST | None) -> str | None:
    """Returns the full name of an expression such as `a.b.c`.

    Returns:
      The first of `resolve_all`, as in `try` before `except`; None if the
      expression is none of TensorFlow's names.
    """
    return next(iter(self.resolve_all(node)), None)

  def resolve_all(self, node: ast.AST | None) -> list[str]:
    """Returns the full names that an expression such as `a.b.c` may have.

    Attributes after the first `MOST_PARTS` are left out.
    """
    if isinstance(node, ast.Name):  # Such are most.
      return self.resolve_name(node.id)
    self._lookups[0] = 0
    return self._resolve(node)

  def resolve_name(self, name: str) -> list[str]:
    """Returns the full names that a name may stand for."""
    found = self._found.get(name)
    if found is None:
      self._lookups[0] = 0
      found = self._resolve_name(name)
    return found

  def _resolve(self, node: ast.AST | None) -> list[str]:
    """Returns what `resolve_all` returns, as a part of a search."""
    if isinstance(node, ast.Name):
      return self._resolve_name(node.id)
    if isinstance(node, ast.Attribute):
      attributes, root = list_attributes(node)
      owners = self._resolve(root)
      return [add_attributes(owner, attributes) for owner in owners]
    if isinstance(node, ast.Call):
      return self._resolve_getattr(node)
    return []

  def resolve_asked(self, node: ast.Call) -> str | None:
    """Returns the full name that `hasattr(a.b, "c")` asks for, or None."""
    self._lookups[0] = 0
    return next(iter(self._resolve_getattr(node, "hasattr")), None)

  def _resolve_getattr(
    self, node: ast.Call, function: str = "getattr"
  ) -> list[str]:
    """Returns the full names that `getattr(a.b, "c")` may have."""
    if not (
      isinstance(node.func, ast.Name)
      and node.func.id == function
      and len(node.args) > 1
      and isinstance(node.args[1], ast.Constant)
      and isinstance(node.args[1].value, str)
    ):
      return []
    name = node.args[1].value
    return [f"{owner}.{name}" for owner in self._resolve(node.args[0])]

  def _resolve_name(self, name: str) -> list[str]:
    """Returns what `resolve_name` returns, as a part of a search."""
    is_first = not self._lookups[0]
    if is_first and name in self._found:
      return self._found[name]
    scope = self._find_owner(name)
    if scope is None:
      found = []
    elif is_first and scope is not self:
      found = scope._resolve_name(name)
    else:
      found = scope._search_own_name(name)
    if is_first:
      self._found[name] = found
    return found

  def _find_owner(self, name: str) -> Scope | None:
    """Returns the scope that binds a name which is used in this scope."""
    scope: Scope | None = self
    while scope is not None:
      hidden = scope is not self and isinstance(scope.node, ast.ClassDef)
      if name in scope._values and not hidden:
        return scope
      scope = scope.parent
    return None

  def _search_own_name(self, name: str) -> list[str]:
    """Returns the full names of a name that is bound in this very scope."""
    self._lookups[0] += 1
    if name in self._resolving or self._lookups[0] > _MOST_LOOKUPS:
      return []
    self._resolving.add(name)
    try:
      found: dict[str, None] = {}
      for value in self._values[name]:
        known = [value] if isinstance(value, str) else self._resolve(value)
        found |= dict.fromkeys(known)
      return list(found)
    finally:
      self._resolving.discard(name)


def if_tensorflow(name: str) -> str | None:
  """Returns a full name if it is TensorFlow's, or None."""
  return name if name.partition(".")[0] == "tensorflow" else None
