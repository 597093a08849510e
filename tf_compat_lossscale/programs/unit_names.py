# SPDX-License-Identifier: Apache-2.0
"""Reads which of TensorFlow's names each function of a module uses.

A module is read as units: code that runs as a whole. `which_tensorflow` finds
the units that a program reaches, and weighs the names in them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
import functools
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
    owner: The class of a method; None for other units.
    found: The uses of TensorFlow's names.
    references: Names of the program that the unit uses: "f", or "module.f", or
      ".f" for an attribute of an object.
    imports: The dotted names of modules that the unit imports; relative names
      begin with dots.
    bases: For a class, its bases as references.
    methods: For a class, its methods.
    registered: Whether a decorator may have the unit called.
    is_dynamic: Whether the unit may call any function of its module.
  """

  def __init__(self, name: str, owner: Unit | None = None):
    self.name, self.owner = name, owner
    self.found: list[Found] = []
    self.references: set[str] = set()
    self.imports: list[str] = []
    self.bases: set[str] = set()
    self.methods: list[Unit] = []
    self.registered = False
    self.is_dynamic = False


class Module(NamedTuple):
  """The units of a module.

  Attributes:
    path: The file.
    body: The unit of the module's own statements.
    dead: The unit of statements that never run, such as those in `if 0:`.
    units: The functions, classes and methods.
    named: For each name, the functions and classes that have it.
    bindings: For each name that an import binds, the dotted name of the module
      or of the member of a module.
  """

  path: str
  body: Unit
  dead: Unit
  units: tuple[Unit, ...]
  named: dict[str, list[Unit]]
  bindings: dict[str, set[str]]


@functools.lru_cache(4096)
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
    reader.named,
    reader.bindings,
  )


class _Reader:
  """Reads the units of a file."""

  def __init__(self, source: source_facts.Source, is_main: bool):
    self._is_main = is_main
    self._checks = source.checks
    self.body, self.dead = Unit(""), Unit("")
    self.units: list[Unit] = []
    self.named: dict[str, list[Unit]] = {}
    self.bindings: dict[str, set[str]] = {}
    self._bind_imports(source.nodes)
    self._read_block(source.tree.body, self.body, source.scope, False)

  def _bind_imports(self, nodes: Sequence[ast.AST]) -> None:
    """Fills `bindings` from all imports of the module."""
    for node in nodes:
      if isinstance(node, (ast.Import, ast.ImportFrom)):
        for name, full in scopes.list_bindings(node):
          self.bindings.setdefault(name, set()).add(full)

  def _read_block(
    self,
    statements: Sequence[ast.stmt],
    unit: Unit,
    scope: scopes.Scope,
    guarded: bool,
  ) -> None:
    """Reads statements in their order."""
    for statement in statements:
      self._read(statement, unit, scope, guarded)
      # `if tf.executing_eagerly(): …; return` guards the lines after it.
      if (
        isinstance(statement, ast.If)
        and isinstance(statement.body[-1], ast.Return)
        and self._checks.is_version_check(statement.test, scope)
      ):
        guarded = True

  def _read(
    self, node: ast.AST, unit: Unit, scope: scopes.Scope, guarded: bool
  ) -> None:
    """Reads a statement or an expression."""
    if node.__class__ not in _LOOKED_AT:
      self._read_children(node, unit, scope, guarded)
    elif isinstance(node, ast.Name):
      self._refer(node, unit, scope)
    elif isinstance(node, ast.If):
      self._read_if(node, unit, scope, guarded)
    elif isinstance(node, ast.Try):
      self._read_try(node, unit, scope, guarded)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
      self._read_import(node, unit, guarded)
    elif isinstance(node, (*scopes.FUNCTIONS, ast.ClassDef)):
      self._read_definition(node, unit, scope, guarded)
    elif isinstance(node, ast.Attribute):
      self._read_attribute(node, unit, scope, guarded)
    elif isinstance(node, ast.Constant):
      name = source_facts.find_module_name(node)
      if name is not None:
        unit.imports.append(name)
        unit.references.add(name)
    elif isinstance(node, (ast.IfExp, ast.BoolOp)):
      test = node.test if isinstance(node, ast.IfExp) else node
      guarded = guarded or self._checks.is_version_check(test, scope)
      self._read_children(node, unit, scope, guarded)
    else:
      if isinstance(node, ast.Call):
        self._read_call(node, unit)
        self._read_arguments(node, unit, scope, guarded)
      if isinstance(node, scopes.SCOPES):
        scope = scope.enter(node)
      self._read_children(node, unit, scope, guarded)

  def _read_children(
    self, node: ast.AST, unit: Unit, scope: scopes.Scope, guarded: bool
  ) -> None:
    """Reads the parts of a node: blocks of statements, and expressions."""
    for value in node.__dict__.values():
      if isinstance(value, ast.AST):
        self._read(value, unit, scope, guarded)
      elif isinstance(value, list) and value:
        if isinstance(value[0], ast.stmt):
          self._read_block(value, unit, scope, guarded)
          continue
        for child in value:
          if isinstance(child, ast.AST):
            self._read(child, unit, scope, guarded)

  def _read_if(
    self, node: ast.If, unit: Unit, scope: scopes.Scope, guarded: bool
  ) -> None:
    """Reads an `if` with its branches."""
    known = version_checks.find_constant(node.test, self._is_main)
    guarded = guarded or self._checks.is_version_check(node.test, scope)
    self._read(node.test, unit, scope, True)
    then = self.dead if known is False else unit
    self._read_block(node.body, then, scope, guarded)
    otherwise = self.dead if known is True else unit
    self._read_block(node.orelse, otherwise, scope, guarded)

  def _read_try(
    self, node: ast.Try, unit: Unit, scope: scopes.Scope, guarded: bool
  ) -> None:
    """Reads a `try` with its handlers."""
    tries = guarded or version_checks.tries_names(node)
    self._read_block(node.body, unit, scope, tries)
    for handler in node.handlers:
      self._read_block(handler.body, unit, scope, tries)
    self._read_block(node.orelse, unit, scope, guarded)
    self._read_block(node.finalbody, unit, scope, guarded)

  def _read_import(
    self, node: ast.Import | ast.ImportFrom, unit: Unit, guarded: bool
  ) -> None:
    """Reads an import, of TensorFlow or of other modules."""
    names = scopes.list_modules(node)
    if isinstance(node, ast.ImportFrom):
      names += [full for _, full in scopes.list_bindings(node)]
    for name in names:
      if scopes.if_tensorflow(name):
        use = Found(name, name, node.lineno, guarded, is_import=True)
        unit.found.append(use)
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
      owner = unit if isinstance(scope.node, ast.ClassDef) else None
      inner = Unit(node.name, owner)
      self.units.append(inner)
      if owner is None:
        self.named.setdefault(node.name, []).append(inner)
      else:
        owner.methods.append(inner)
    for decorator in node.decorator_list:
      self._read(decorator, unit, scope, guarded)
      inner.registered |= bool(_REGISTERS.search(scopes.unparse(decorator)))
    own = scope.enter(node)
    if isinstance(node, ast.ClassDef):
      for base in node.bases:
        # Names of TensorFlow are used when the class statement runs. A base
        # class of the program is used when the class is used.
        found = Unit("")
        self._read(base, found, scope, guarded)
        unit.found += found.found
        inner.bases |= found.references or {"*"}
        inner.references |= found.references
    else:
      for default in (*node.args.defaults, *node.args.kw_defaults):
        if default is not None:
          self._read(default, unit, scope, guarded)
    if inner is not unit:
      guarded = False  # Its callers decide whether it runs.
    if isinstance(node, ast.ClassDef):
      # A class's own statements run where the class is made.
      for statement in node.body:
        is_unit = isinstance(statement, (*scopes.FUNCTIONS, ast.ClassDef))
        self._read(statement, inner if is_unit else unit, own, guarded)
    else:
      self._read_block(node.body, inner, own, guarded)

  def _read_attribute(
    self, node: ast.Attribute, unit: Unit, scope: scopes.Scope, guarded: bool
  ) -> None:
    """Reads `a.b.c`: a name of TensorFlow, or a reference."""
    names = scope.resolve_all(node)
    if names and isinstance(node.ctx, ast.Store):
      return
    if names:
      # Of two modules that a name may be, compat.v1 is in both releases.
      name = max(names, key=lambda name: name.startswith("tensorflow.compat."))
      written = scopes.unparse(node)
      unit.found.append(Found(name, written, node.lineno, guarded))
      return
    method = tensorflow_names.METHODS.get(node.attr)
    if method:
      unit.found.append(Found(method, f".{node.attr}", node.lineno, guarded))
    self._refer(node, unit, scope)
    attributes, root = scopes.list_attributes(node)
    unit.references.update(f".{each.attr}" for each in attributes)
    if not isinstance(root, ast.Name):
      self._read(root, unit, scope, guarded)

  def _refer(self, node: ast.expr, unit: Unit, scope: scopes.Scope) -> None:
    """Adds the reference that `a` or `a.b.c` is, if `a` is a plain name."""
    attributes, root = scopes.list_attributes(node)
    if not isinstance(root, ast.Name) or scope.resolve_all(root):
      return
    parts = [each.attr for each in reversed(attributes)]
    for target in self.bindings.get(root.id, {root.id}):
      unit.references.add(".".join([target, *parts]))
    unit.references.add(root.id)

  def _read_arguments(
    self, node: ast.Call, unit: Unit, scope: scopes.Scope, guarded: bool
  ) -> None:
    """Reads a call whose arguments only TensorFlow 1 takes."""
    function = scope.resolve(node.func)
    name = function and tensorflow_names.find_tensorflow_1_call(function, node)
    if name:
      written = f"{scopes.unparse(node.func)}(…)"
      unit.found.append(
        Found(f"tensorflow.{name}", written, node.lineno, guarded, True)
      )

  def _read_call(self, node: ast.Call, unit: Unit) -> None:
    """Reads calls by which a program runs functions that are not named."""
    if not isinstance(node.func, (ast.Name, ast.Attribute)):
      return
    last = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
    if last not in _INDIRECT:
      return
    function = scopes.unparse(node.func)
    if function in _DYNAMIC and not (function == "vars" and node.args):
      unit.is_dynamic |= "Fire" not in function or not node.args
    if function == "getattr" and len(node.args) > 1:
      if isinstance(node.args[1], ast.Constant):
        unit.references.add(f".{node.args[1].value!s}")
      else:
        for target in self.bindings.get(scopes.unparse(node.args[0]), ()):
          unit.references.add(f"{target}.*")
    if function.endswith("app.run") and not node.args:
      unit.references.add("main")
    if function.endswith("test.main") or function == "unittest.main":
      unit.is_dynamic = True
