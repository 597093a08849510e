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
from typing import NamedTuple
from typing import TypeAlias

from tf_compat_lossscale.programs import program_modules
from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import source_facts
from tf_compat_lossscale.programs import unit_names

_Found: TypeAlias = tuple[unit_names.Module, unit_names.Unit]

_DEEPEST = 8  # `from a import x` in b, `from b import x` in c, and so on.


class Links(NamedTuple):
  """Where a unit leads in the programs that import from the same folders.

  Attributes:
    files: The files that its imports run.
    units: The units that its references name, each with its module.
    has_other_base: Whether it is a class that has a base class which is not the
      program's.
  """

  files: list[str]
  units: list[_Found]
  has_other_base: bool


_NOWHERE = Links([], [], False)


def find_reached(program: program_modules.Program) -> list[_Found]:
  """Returns the units that a program reaches, each with its module."""
  return _Search(program).find()


def read_modules(program: program_modules.Program) -> list[unit_names.Module]:
  """Returns the modules of a program, read unit by unit."""
  return [_read_module(program, source) for source in program.sources]


def _read_module(
  program: program_modules.Program, source: source_facts.Source
) -> unit_names.Module:
  """Returns a module of a program; reads it at the first call."""
  is_main = source.path == program.main
  if is_main not in source.units:
    module = unit_names.read_module(source, is_main)
    source.units[is_main] = module
    if not module.asks_for_main:
      source.units[not is_main] = module
  return source.units[is_main]


class _Search:
  """A search for the units that a program reaches."""

  def __init__(self, program: program_modules.Program):
    self._program = program
    self._sources = {source.path: source for source in program.sources}
    self._reached: dict[unit_names.Unit, unit_names.Module] = {}
    self._waiting: list[tuple[unit_names.Module, unit_names.Unit, Links]] = []
    self._seen: set[str] = set()  # Files that code which is reached imports.
    self._attributes: set[str] = set()
    # Methods of reached classes that no reached code has named so far.
    self._unnamed: dict[str, list[_Found]] = {}

  def find(self) -> list[_Found]:
    """Returns the units that are reached."""
    for path in (self._program.main, *self._program.collected):
      if path not in self._sources:
        continue  # It cannot be read.
      first = self._read(path)
      self._reach(first, first.body)
      if path != self._program.main:
        for unit in first.units:
          self._reach(first, unit)
    reached = self._reached
    while self._waiting:
      module, unit, links = self._waiting.pop()
      for path in links.files:
        if path not in self._seen:
          self._seen.add(path)
          if path in self._sources:
            imported = self._read(path)
            self._reach(imported, imported.body)
      self._attributes |= unit.attributes
      if not unit.attributes.isdisjoint(self._unnamed):
        self._name(unit.attributes)
      for its, other in links.units:
        if other not in reached:
          self._reach(its, other)
      if unit is module.body:
        for other in module.registered:
          self._reach(module, other)
      if unit.is_dynamic:
        for other in module.units:
          self._reach(module, other)
    return [(module, unit) for unit, module in reached.items()]

  def _read(self, path: str) -> unit_names.Module:
    """Returns the module in a file."""
    return _read_module(self._program, self._sources[path])

  def _reach(self, module: unit_names.Module, unit: unit_names.Unit) -> None:
    """Notes that a unit is reached."""
    if unit in self._reached:
      return
    self._reached[unit] = module
    links = self._follow(module, unit)
    self._waiting.append((module, unit, links))
    for method in unit.methods:
      if (
        links.has_other_base
        or method.is_called
        or method.name in self._attributes
      ):
        self._reach(module, method)
      else:
        self._unnamed.setdefault(method.name, []).append((module, method))

  def _name(self, attributes: set[str]) -> None:
    """Reaches the methods that code which is reached names."""
    for name in sorted(attributes & self._unnamed.keys()):
      for module, method in self._unnamed.pop(name):
        self._reach(module, method)

  def _follow(self, module: unit_names.Module, unit: unit_names.Unit) -> Links:
    """Returns where a unit leads; remembers that for other programs."""
    if not (unit.imports or unit.followed or unit.bases):
      return _NOWHERE  # Such is every fourth unit.
    known = self._program.folders.links
    if unit not in known:
      files = (
        path
        for name in unit.imports
        for path in self._program.folders.find_files(name, module.path)
      )
      units = {
        found: its
        for reference in unit.followed
        for its, found in self._find(module, reference)
      }
      known[unit] = Links(
        list(dict.fromkeys(files)),
        [(its, found) for found, its in units.items()],
        any(
          base == "*" or not (base == "object" or self._find(module, base))
          for base in unit.bases
        ),
      )
    return known[unit]

  def _find(
    self, module: unit_names.Module, reference: str, depth: int = 0
  ) -> list[_Found]:
    """Returns the functions and classes that a reference names.

    Args:
      module: The module that has the reference.
      reference: Such as "f", "package.module.f" or ".module.f".
      depth: How many imports led here.
    """
    first, dot, rest = reference.partition(".")
    if first in module.named:
      return [(module, unit) for unit in module.named[first]]
    if depth > _DEEPEST:
      return []
    if depth and first in module.bindings:
      found = []
      for target in module.bindings[first]:
        full = f"{target}{dot}{rest}"
        if full != reference:
          found += self._find(module, full, depth + 1)
      if found:
        return found
    if first and not (dot and first in self._program.folders.first_names):
      return []  # Most references are to modules that are installed.
    return [
      found
      for other, member in self._split(module, reference)
      for found in self._find_member(other, member, depth + 1)
    ]

  def _find_member(
    self, module: unit_names.Module, member: str, depth: int
  ) -> list[_Found]:
    """Returns the units that a member of a module is; "*" means all."""
    if member == "*":
      return [(module, unit) for unit in module.units if not unit.is_method]
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
      files = [
        path
        for path in self._program.folders.find_module(name, module.path)
        if path in self._sources and path != module.path
      ]
      if files:
        yield self._read(files[-1]), ".".join(parts[i:])
        return
