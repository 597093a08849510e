# SPDX-License-Identifier: Apache-2.0
"""Reads which of TensorFlow's names each function of a module uses.

A module is read as units: code that runs as a whole. `which_tensorflow` finds
the units that a program reaches, and weighs the names in them.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import re
from typing import NamedTuple

from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import source_facts
from tf_compat_lossscale.programs import tensorflow_names
from tf_compat_lossscale.programs import version_checks

# Decorators after which other code may call the function.
_REGISTERS = re.compile(
  r"regist|route|command|task|hook|app\b|fixture|main|cli|config|gin\b|hydra"
)
# The reader looks at these nodes; of other nodes, at those below them alone.
_LOOKED_AT = frozenset(
  [
    *(ast.If, ast.Try, ast.Import, ast.ImportFrom, ast.Attribute, ast.Name),
    *(ast.Constant, ast.IfExp, ast.BoolOp, ast.Call),
    *scopes.SCOPES,
  ]
)
# Functions by which a program finds functions of its own by their names.
_DYNAMIC = {"globals", "locals", "vars", "eval", "exec", "fire.Fire", "Fire"}
_INDIRECT = {*_DYNAMIC, "getattr", "run", "main"}


class Found(NamedTuple):
  """A use of one of TensorFlow's names.

  Attributes:
    name: The full name, such as "tensorflow.compat.v1.Session".
    written: The name as written, such as "tf.Session".
    line: The line of the use.
    is_guarded: Whether the program uses the name only if TensorFlow has it.
    is_call_of_1: Whether the name is that of a function whose arguments only
      TensorFlow 1 takes.
    is_import: Whether the program imports the name there.
  """

  name: str
  written: str
  line: int
  is_guarded: bool
  is_call_of_1: bool = False
  is_import: bool = False


class Unit:
  """Code that runs as a whole: a module's statements, a class, a function.

  Attributes:
    name: The name of the function or class; "" for a module.
    is_method: Whether the unit belongs to a class.
    references: Names that the unit uses: "f", or "module.f".
    followed: Those of them that may name units of the program, sorted.
    attributes: The attributes of objects that the unit uses.
    imports: The dotted names of modules that the unit imports; relative names
      begin with dots.
    bases: For a class, its bases as references.
    methods: For a class, its methods.
    is_called: Whether other code may call the unit: a decorator registers it,
      or it is a method such as `__init__`.
    is_dynamic: Whether the unit may call any function of its module.
  """

  def __init__(self, name: str, is_method: bool = False):
    self.name, self.is_method = name, is_method
    self._found: dict[tuple[str, bool, bool, bool], Found] = {}
    self.references: set[str] = set()
    self.followed: list[str] = []
    self.attributes: set[str] = set()
    self.imports: list[str] = []
    self.bases: set[str] = set()
    self.methods: list[Unit] = []
    self.is_called = is_method and name[:2] == name[-2:] == "__"
    self.is_dynamic = False

  @property
  def found(self) -> Collection[Found]:
    """The uses of TensorFlow's names; of equal ones, the first."""
    return self._found.values()

  def add(self, use: Found) -> None:
    """Adds a use of one of TensorFlow's names."""
    key = use.name, use.is_guarded, use.is_call_of_1, use.is_import
    self._found.setdefault(key, use)


@dataclasses.dataclass(eq=False)
class Module:
  """The units of a module.

  Attributes:
    path: The file.
    body: The unit of the module's own statements.
    dead: The unit of statements that never run, such as those in `if 0:`.
    units: The functions, classes and methods.
    registered: The functions and classes that other code may call.
    named: For each name, the functions and classes that have it.
    bindings: For each name that an import binds, the dotted name of the module
      or of the member of a module.
    asks_for_main: Whether the module is another one if it is the program.
  """

  path: str
  body: Unit
  dead: Unit
  units: tuple[Unit, ...]
  registered: tuple[Unit, ...]
  named: dict[str, list[Unit]]
  bindings: dict[str, set[str]]
  asks_for_main: bool


def read_module(source: source_facts.Source, is_main: bool) -> Module:
  """Reads a module.

  Args:
    source: The file.
    is_main: Whether the module is the program itself, whose `__name__` is
      "__main__".
  """
  reader = _Reader(source, is_main)
  return Module(
    source.path,
    reader.body,
    reader.dead,
    tuple(reader.units),
    tuple(u for u in reader.units if u.is_called and not u.is_method),
    reader.named,
    reader.bindings,
    reader.asks_for_main,
  )


class _Reader:
  """Reads the units of a file."""

  def __init__(self, source: source_facts.Source, is_main: bool):
    self._is_main, self.asks_for_main = is_main, False
    self._source, self._checks = source, source.checks
    # The calls whose arguments only TensorFlow 1 takes -> the functions.
    self._calls_of_1 = {
      use.node: use.name for use in source.names if use.form == "call"
    }
    self.body, self.dead = Unit(""), Unit("")
    self.units: list[Unit] = []
    self.named: dict[str, list[Unit]] = {}
    self.bindings: dict[str, set[str]] = {}
    for node in source.import_statements:
      for name, full in scopes.list_bindings(node):
        self.bindings.setdefault(name, set()).add(full)
    self._read(source.tree.body, self.body, source.scope, False)
    for unit in (self.body, self.dead, *self.units):
      unit.followed = sorted(
        name for name in unit.references if "." in name or name in self.named
      )

  def _read(
    self,
    nodes: Iterable[ast.AST],
    unit: Unit,
    scope: scopes.Scope,
    guarded: bool,
  ) -> None:
    """Reads statements or expressions in their order."""
    for node in nodes:
      if node.__class__ not in _LOOKED_AT:
        self._read(scopes.list_children(node), unit, scope, guarded)
      elif isinstance(node, ast.Name):
        if not scope.resolve_name(node.id):
          unit.references.add(node.id)
          unit.references.update(self.bindings.get(node.id, ()))
      elif isinstance(node, ast.Attribute):
        self._read_attribute(node, unit, scope, guarded)
      elif isinstance(node, ast.Constant):
        name = source_facts.find_module_name(node)
        if name is not None:
          unit.imports.append(name)
          unit.references.add(name)
      elif isinstance(node, ast.Call):
        self._read_call(node, unit, guarded)
        self._read(scopes.list_children(node), unit, scope, guarded)
      elif isinstance(node, ast.If):
        self._read_if(node, unit, scope, guarded)
        # `if tf.executing_eagerly(): …; return` guards the lines after it.
        guarded = guarded or (
          isinstance(node.body[-1], ast.Return)
          and self._checks.is_version_check(node.test, scope)
        )
      elif isinstance(node, ast.Try):
        self._read_try(node, unit, scope, guarded)
      elif isinstance(node, (ast.Import, ast.ImportFrom)):
        self._read_import(node, unit, guarded)
      elif isinstance(node, (*scopes.FUNCTIONS, ast.ClassDef)):
        self._read_definition(node, unit, scope, guarded)
      elif isinstance(node, (ast.IfExp, ast.BoolOp)):
        test = node.test if isinstance(node, ast.IfExp) else node
        asks = self._checks.is_version_check(test, scope)
        parts = scopes.list_children(node)
        self._read(parts, unit, scope, guarded or asks)
      else:
        inner = self._source.enter(node, scope)
        self._read(scopes.list_children(node), unit, inner, guarded)

  def _read_if(
    self, node: ast.If, unit: Unit, scope: scopes.Scope, guarded: bool
  ) -> None:
    """Reads an `if` with its branches."""
    known = version_checks.find_constant(node.test, self._is_main)
    otherwise = version_checks.find_constant(node.test, not self._is_main)
    self.asks_for_main |= known is not otherwise
    guarded = guarded or self._checks.is_version_check(node.test, scope)
    self._read([node.test], unit, scope, True)
    body = self.dead if known is False else unit
    self._read(node.body, body, scope, guarded)
    orelse = self.dead if known is True else unit
    self._read(node.orelse, orelse, scope, guarded)

  def _read_try(
    self, node: ast.Try, unit: Unit, scope: scopes.Scope, guarded: bool
  ) -> None:
    """Reads a `try` with its handlers."""
    tries = guarded or version_checks.tries_names(node)
    self._read(node.body, unit, scope, tries)
    for handler in node.handlers:
      self._read(handler.body, unit, scope, tries)
    self._read(node.orelse, unit, scope, guarded)
    self._read(node.finalbody, unit, scope, guarded)

  def _read_import(
    self, node: ast.Import | ast.ImportFrom, unit: Unit, guarded: bool
  ) -> None:
    """Reads an import, of TensorFlow or of other modules."""
    names = scopes.list_modules(node)
    if isinstance(node, ast.ImportFrom):
      names += [full for _, full in scopes.list_bindings(node)]
    for name in names:
      if scopes.if_tensorflow(name):
        unit.add(Found(name, name, node.lineno, guarded, is_import=True))
      else:
        unit.imports.append(name)

  def _read_definition(
    self,
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
    unit: Unit,
    scope: scopes.Scope,
    guarded: bool,
  ) -> None:
    """Reads a function or a class as a unit of its own."""
    inner = unit
    if not isinstance(scope.node, scopes.FUNCTIONS):
      # What a function defines for itself belongs to the function.
      inner = Unit(node.name, isinstance(scope.node, ast.ClassDef))
      self.units.append(inner)
      if inner.is_method:
        unit.methods.append(inner)
      else:
        self.named.setdefault(node.name, []).append(inner)
    for decorator in node.decorator_list:
      self._read([decorator], unit, scope, guarded)
      inner.is_called |= bool(_REGISTERS.search(scopes.unparse(decorator)))
    own = self._source.enter(node, scope)
    if isinstance(node, ast.ClassDef):
      for base in node.bases:
        # Names of TensorFlow are used when the class statement runs. A base
        # class of the program is used when the class is used.
        found = Unit("")
        self._read([base], found, scope, guarded)
        for use in found.found:
          unit.add(use)
        inner.bases |= found.references or {"*"}
        inner.references |= found.references
        inner.attributes |= found.attributes
    else:
      for default in (*node.args.defaults, *node.args.kw_defaults):
        if default is not None:
          self._read([default], unit, scope, guarded)
    if inner is not unit:
      guarded = False  # Its callers decide whether it runs.
    if isinstance(node, ast.ClassDef):
      # A class's own statements run where the class is made.
      for statement in node.body:
        is_unit = isinstance(statement, (*scopes.FUNCTIONS, ast.ClassDef))
        self._read([statement], inner if is_unit else unit, own, guarded)
    else:
      self._read(node.body, inner, own, guarded)

  def _read_attribute(
    self, node: ast.Attribute, unit: Unit, scope: scopes.Scope, guarded: bool
  ) -> None:
    """Reads `a.b.c`: a name of TensorFlow, or a reference."""
    attributes, root = scopes.list_attributes(node)
    owners = scope.resolve_all(root)
    if owners and isinstance(node.ctx, ast.Store):
      return
    if owners:
      names = [scopes.add_attributes(owner, attributes) for owner in owners]
      # Of two modules that a name may be, compat.v1 is in both releases.
      name = max(names, key=lambda name: name.startswith("tensorflow.compat."))
      written = scopes.unparse(node)
      unit.add(Found(name, written, node.lineno, guarded))
      return
    method = tensorflow_names.METHODS.get(node.attr)
    if method:
      unit.add(Found(method, f".{node.attr}", node.lineno, guarded))
    parts = [each.attr for each in attributes]
    unit.attributes.update(parts)
    if not isinstance(root, ast.Name):
      self._read([root], unit, scope, guarded)
      return
    unit.references.add(root.id)
    for target in self.bindings.get(root.id, ()):
      unit.references.add(".".join([target, *reversed(parts)]))

  def _read_call(self, node: ast.Call, unit: Unit, guarded: bool) -> None:
    """Reads calls with arguments of TensorFlow 1, and of unnamed functions."""
    name = self._calls_of_1.get(node)
    if name is not None:
      written = f"{scopes.unparse(node.func)}(…)"
      unit.add(Found(name, written, node.lineno, guarded, True))
    last = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
    if last in _INDIRECT:
      self._read_indirect(scopes.unparse(node.func), node, unit)

  def _read_indirect(self, function: str, node: ast.Call, unit: Unit) -> None:
    """Reads a call by which a program runs functions that are not named.

    Args:
      function: The function that is called.
      node: The call.
      unit: The unit with the call.
    """
    if function in _DYNAMIC and not (function == "vars" and node.args):
      unit.is_dynamic |= "Fire" not in function or not node.args
    if function == "getattr" and len(node.args) > 1:
      if isinstance(node.args[1], ast.Constant):
        unit.attributes.add(str(node.args[1].value))
      else:
        for target in self.bindings.get(scopes.unparse(node.args[0]), ()):
          unit.references.add(f"{target}.*")
    if function.endswith("app.run") and not node.args:
      unit.references.add("main")
    if function.endswith("test.main") or function == "unittest.main":
      unit.is_dynamic = True
