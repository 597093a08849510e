# SPDX-License-Identifier: Apache-2.0
"""Finds the functions that a program reaches from its first line on.

Code that nothing reaches says little about a program: a helper for another
TensorFlow may lie beside the code that runs. A function is reached if code that
is reached names it. A method is reached if its class is, and if reached code
names the method, or if the class has a base class that is not the program's,
which may call the method. All code of a file of tests is reached.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_compat_lossscale.programs import program_modules
from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import unit_names

_DEEPEST = 8  # `from a import x` in b, `from b import x` in c, and so on.


def find_reached(
  program: program_modules.Program,
) -> list[tuple[unit_names.Module, unit_names.Unit]]:
  """Returns the units that a program reaches, each with its module."""
  return _Search(program).find()


def read_modules(program: program_modules.Program) -> list[unit_names.Module]:
  """Returns the modules of a program, read unit by unit."""
  return [
    unit_names.read_module(source, is_main=source.path == program.main)
    for source in program.sources
  ]


class _Search:
  """A search for the units that a program reaches."""

  def __init__(self, program: program_modules.Program):
    self._program = program
    self._sources = {source.path: source for source in program.sources}
    self._modules: dict[str, unit_names.Module] = {}
    self._reached: dict[int, tuple[unit_names.Module, unit_names.Unit]] = {}
    self._waiting: list[tuple[unit_names.Module, unit_names.Unit]] = []
    self._attributes: set[str] = set()
    # Methods of reached classes that no reached code has named so far.
    self._unnamed: dict[
      str, list[tuple[unit_names.Module, unit_names.Unit]]
    ] = {}

  def find(self) -> list[tuple[unit_names.Module, unit_names.Unit]]:
    """Returns the units that are reached."""
    for path in (self._program.main, *self._program.collected):
      if path not in self._sources:
        continue  # It cannot be read.
      first = self._read(path)
      self._reach(first, first.body)
      if path != self._program.main:
        for unit in first.units:
          self._reach(first, unit)
    while self._waiting:
      module, unit = self._waiting.pop()
      for name in unit.imports:
        for path in self._program.find_files(name, module.path):
          if path in self._sources:
            imported = self._read(path)
            self._reach(imported, imported.body)
      for reference in sorted(unit.references):
        self._follow(module, reference)
      if unit is module.body or unit.is_dynamic:
        for other in module.units:
          if unit.is_dynamic or (other.registered and other.owner is None):
            self._reach(module, other)
    return list(self._reached.values())

  def _read(self, path: str) -> unit_names.Module:
    """Returns the module in a file; reads it at the first call."""
    if path not in self._modules:
      is_main = path == self._program.main
      source = self._sources[path]
      self._modules[path] = unit_names.read_module(source, is_main)
    return self._modules[path]

  def _reach(self, module: unit_names.Module, unit: unit_names.Unit) -> None:
    """Notes that a unit is reached."""
    if id(unit) in self._reached:
      return
    self._reached[id(unit)] = (module, unit)
    self._waiting.append((module, unit))
    has_other_base = any(
      base == "*"
      or not (base == "object" or self._find_reference(module, base))
      for base in unit.bases
    )
    for method in unit.methods:
      name = method.name
      if (
        has_other_base
        or method.registered
        or name in self._attributes
        or (name.startswith("__") and name.endswith("__"))
      ):
        self._reach(module, method)
      else:
        self._unnamed.setdefault(name, []).append((module, method))

  def _follow(self, module: unit_names.Module, reference: str) -> None:
    """Reaches the units that a reference may mean."""
    name = reference[1:]
    if reference.startswith(".") and name.isidentifier():
      self._attributes.add(name)
      for found in self._unnamed.pop(name, ()):
        self._reach(*found)
    for found in self._find_reference(module, reference):
      self._reach(*found)

  def _find_reference(
    self, module: unit_names.Module, reference: str
  ) -> list[tuple[unit_names.Module, unit_names.Unit]]:
    """Returns what `_find` returns; remembers it for other programs."""
    key = id(module), reference
    memory = self._program.memory.references
    if key not in memory:
      memory[key] = module, self._find(module, reference)
    return memory[key][1]

  def _find(
    self, module: unit_names.Module, reference: str, depth: int = 0
  ) -> list[tuple[unit_names.Module, unit_names.Unit]]:
    """Returns the functions and classes that a reference names.

    Args:
      module: The module that has the reference.
      reference: Such as "f", "package.module.f" or ".module.f".
      depth: How many imports led here.
    """
    first, *rest = reference.split(".") if reference[:1] != "." else [""]
    own = [(module, unit) for unit in module.named.get(first, ())]
    if own or depth > _DEEPEST:
      return own
    if depth and first in module.bindings:
      found = []
      for target in module.bindings[first]:
        full = ".".join([target, *rest])
        if full != reference:
          found += self._find(module, full, depth + 1)
      if found:
        return found
    return [
      found
      for other, member in self._split(module, reference)
      for found in self._find_member(other, member, depth + 1)
    ]

  def _find_member(
    self, module: unit_names.Module, member: str, depth: int
  ) -> list[tuple[unit_names.Module, unit_names.Unit]]:
    """Returns the units that a member of a module is; "*" means all."""
    if member == "*":
      return [(module, unit) for unit in module.units if unit.owner is None]
    found = self._find(module, member, depth)
    for star in module.bindings.get("*", ()) if not found else ():
      origin = star.removesuffix("*").rstrip(".") or star.removesuffix("*")
      dotted = scopes.join(origin, member)
      if depth <= _DEEPEST:
        found += self._find(module, dotted, depth + 1)
    return found

  def _split(
    self, module: unit_names.Module, reference: str
  ) -> Iterator[tuple[unit_names.Module, str]]:
    """Yields the modules that a reference begins with, and the rest of it."""
    parts = reference.split(".")
    for i in range(min(len(parts) - 1, scopes.MOST_PARTS), 0, -1):
      name = ".".join(parts[:i])
      if not name.strip("."):
        name += "."
      files = [
        path
        for path in self._program.find_files(name, module.path)
        if path in self._sources
        and path != module.path
        and program_modules.is_file_of(path, parts[:i])
      ]
      if files:
        yield self._read(files[-1]), ".".join(parts[i:])
        return
