# SPDX-License-Identifier: Apache-2.0
"""Decides whether a program means TensorFlow 1 or 2 by the names that it uses.

The names in code that the program reaches are weighed. Names behind a question
such as `hasattr(tf, "Session")` do not count: such code works on both.
"""

from __future__ import annotations

from collections.abc import Iterable
import os
import re
from typing import NamedTuple

from tf_compat_lossscale.programs import program_modules
from tf_compat_lossscale.programs import reach
from tf_compat_lossscale.programs import source_facts
from tf_compat_lossscale.programs import tensorflow_names
from tf_compat_lossscale.programs import unit_names

_PLAIN = "tensorflow."
_COMPAT_V1 = "tensorflow.compat.v1."

# Names without which a TensorFlow 1 program cannot work, and which a TensorFlow
# 2 program has no use for. Other names of TensorFlow 1 are easily overlooked in
# helpers.
_GRAPH = re.compile(
  r"(Interactive)?Session|placeholder(_with_default)?|get_variable|app"
  r"|variable_scope|global_variables_initializer|contrib|ConfigProto"
  r"|train\.(\w*Optimizer|Monitored\w*Session|Saver|get_or_create_global_step"
  r"|Supervisor|create_global_step)|layers|enable_eager_execution"
  r"|data\.make_\w+_iterator"
)
# Names by which a program that imports tensorflow.compat.v1 works in a graph.
# All of them raise an error in eager mode.
_NOT_EAGER = re.compile(
  r"placeholder(_with_default)?|(Interactive)?Session|sparse_placeholder"
  r"|train\.(Monitored\w*Session|Supervisor)"
)
_OFF = re.compile(r"disable_(v2_behavior|eager_execution)")
# Names that TensorFlow 1.15 has, too, but hardly any program of its time uses.
_RATHER_2 = re.compile(
  r"GradientTape|function|compat\.v2\b|keras\.mixed_precision\b"
  r"|config\.(?!experimental|optimizer)|data\.AUTOTUNE|distribute\.\w+Strategy"
  r"|summary\.experimental|keras\.Model|keras\.optimizers\.schedules"
)

_GRAPH_WEIGHT = 4
_ALONE_WEIGHT = 2


class Verdict(NamedTuple):
  """A decision with its reason.

  Attributes:
    tensorflow: 1 or 2.
    reason: The name that decided, and where it is; "" if there is none.
  """

  tensorflow: int
  reason: str = ""


class _Weighed(NamedTuple):
  """A name that says which TensorFlow a program means."""

  weight: int
  found: unit_names.Found
  path: str

  def describe(self, more: str = "") -> str:
    """Returns the name and where it is."""
    file = os.path.basename(self.path)
    return f"{self.found.written}{more}, {file} line {self.found.line}"


_Names = dict[str, tuple[int, unit_names.Found]]


class Signs(NamedTuple):
  """What the names in a unit say about TensorFlow.

  Attributes:
    one: Name that only TensorFlow 1 has -> its weight and its first use.
    two: Name that says TensorFlow 2 -> the same.
    graph: Name of `tensorflow.compat.v1` that works in a graph alone -> its
      first use.
    leaves_eager: Whether the unit turns TensorFlow 2's behavior off, or makes a
      graph of its own.
    has_plain: Whether the unit uses plain TensorFlow, too.
    acts: Whether the unit does more than to import TensorFlow.
  """

  one: _Names
  two: _Names
  graph: dict[str, unit_names.Found]
  leaves_eager: bool
  has_plain: bool
  acts: bool


_Told = list[tuple[str, Signs]]  # Of units, each with its file.


def decide(program: program_modules.Program) -> Verdict:
  """Decides which TensorFlow a program means."""
  if not any(map(_may_mean_1, program.sources)):
    return Verdict(2)  # To find what the program reaches takes longer.
  told = _list_signs(program, reach.find_reached(program))
  if not any(signs.acts for _, signs in told):
    # The program finds its functions in ways that the search cannot follow, or
    # does nothing yet but import, as a module of a library does.
    modules = reach.read_modules(program)
    units = (
      (module, unit)
      for module in modules
      for unit in (module.body, module.dead, *module.units)
    )
    told = _list_signs(program, units)
  one = _weigh((path, signs.one) for path, signs in told)
  two = _weigh((path, signs.two) for path, signs in told)
  if one and sum(w.weight for w in one) > sum(w.weight for w in two):
    return Verdict(1, _find_heaviest(one).describe())
  graph = _find_graph_of_compat_v1(told, bool(two))
  if graph is not None:
    return Verdict(1, graph.describe(" without tf.disable_v2_behavior()"))
  return Verdict(2, _find_heaviest(two).describe() if one else "")


def _may_mean_1(source: source_facts.Source) -> bool:
  """Returns whether a file has a name that may say TensorFlow 1."""
  return bool(source.tensorflow1) or any(
    use.name.startswith(_COMPAT_V1)
    and _NOT_EAGER.fullmatch(use.name.removeprefix(_COMPAT_V1))
    for use in source.names
  )


def _list_signs(
  program: program_modules.Program,
  units: Iterable[tuple[unit_names.Module, unit_names.Unit]],
) -> _Told:
  """Returns the signs in units; remembers them for other programs."""
  known = program.memory.signs
  told = []
  for module, unit in units:
    if not unit.found:
      continue
    if unit not in known:
      known[unit] = _read_signs(unit)
    told.append((module.path, known[unit]))
  return told


def _read_signs(unit: unit_names.Unit) -> Signs:
  """Returns the signs in a unit."""
  one: _Names = {}
  two: _Names = {}
  graph: dict[str, unit_names.Found] = {}
  leaves_eager = False
  for use in unit.found:
    of_v1 = use.name.startswith(_COMPAT_V1)
    below = use.name.removeprefix(_COMPAT_V1).removeprefix(_PLAIN)
    if _OFF.fullmatch(below) or below in ("Graph", "wrap_function"):
      leaves_eager = True
    if use.is_guarded or not use.name.startswith(_PLAIN):
      continue
    if of_v1 and _NOT_EAGER.fullmatch(below):
      graph.setdefault(below, use)
    plain = use.name.removeprefix(_PLAIN)
    only_1 = tensorflow_names.find_tensorflow_1_name(plain)
    if use.is_call_of_1:
      only_1 = f"{plain}()"
    if only_1 is not None:
      weight = _GRAPH_WEIGHT if _GRAPH.fullmatch(only_1) else 1
      one.setdefault(only_1, (weight, use))
    rather_2 = None if of_v1 else _find_name_of_2(plain)
    if rather_2 is not None:
      name, weight = rather_2
      two.setdefault(name, (weight, use))
  return Signs(
    one,
    two,
    graph,
    leaves_eager,
    any(use.name == "tensorflow" for use in unit.found),
    any(not use.is_import and use.name != "tensorflow" for use in unit.found),
  )


def _find_name_of_2(name: str) -> tuple[str, int] | None:
  """Returns the part of a name that says TensorFlow 2, with its weight."""
  found = tensorflow_names.find_tensorflow_2_name(name)
  if found is not None:
    return found, _ALONE_WEIGHT
  match = _RATHER_2.match(name)
  return (match[0], 1) if match else None


def _weigh(told: Iterable[tuple[str, _Names]]) -> list[_Weighed]:
  """Returns the names in files that say TensorFlow 1, or 2, each once."""
  found: dict[str, _Weighed] = {}
  for path, names in told:
    for name, (weight, use) in names.items():
      found.setdefault(name, _Weighed(weight, use, path))
  return list(found.values())


def _find_graph_of_compat_v1(told: _Told, says_2: bool) -> _Weighed | None:
  """Returns a use of a graph by a program that stays eager, or None.

  Such a program imports `tensorflow.compat.v1` and ran on TensorFlow 1.15,
  where that module has TensorFlow 1's behavior without being asked.

  Args:
    told: The signs in the program.
    says_2: Whether a name says TensorFlow 2.
  """
  if any(signs.leaves_eager for _, signs in told):
    return None
  graph: dict[bool, _Weighed] = {}
  # These modules have plain TensorFlow, too. They may use sessions to convert a
  # model, but hardly a placeholder and a session both.
  both = {path for path, signs in told if signs.has_plain}
  seen = {True: set[str](), False: set[str]()}
  for path, signs in told:
    for name, use in signs.graph.items():
      graph.setdefault(path in both, _Weighed(1, use, path))
      seen[path in both].add(name.removeprefix("Interactive"))
  if False in graph:
    return graph[False]
  is_graph = {"placeholder", "Session"} <= seen[True] and not says_2
  return graph[True] if is_graph else None


def _find_heaviest(weighed: list[_Weighed]) -> _Weighed:
  """Returns the name that weighs most, the first of several."""
  return max(weighed, key=lambda each: each.weight)
