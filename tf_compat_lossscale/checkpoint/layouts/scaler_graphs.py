# SPDX-License-Identifier: Apache-2.0
"""Reads the rules of other systems' loss scalers from the graphs beside them.

A checkpoint has a scaler's variables alone. The graph shows what the program
did with them, and the constants of its rule:

    scale = Minimum(scale / factor, upper)     after an overflow
    scale = Minimum(scale * factor, upper)     after a window of good steps
    FloorMod(iteration - last_overflow, window) == 0
    Less(normal_steps, window)                 in tf_cnn_benchmarks
    overflows / (iteration - last_change) > tolerance         in THUMT

So the graph also proves which of several unnamed variables is which.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from typing import NamedTuple

from tf_compat_lossscale.checkpoint.files import graph_def

_PASSES = {
  "Identity",
  "Switch",
  "RefSwitch",
  "RefIdentity",
  "ReadVariableOp",
  "Enter",
  "RefEnter",
  "Cast",
}
_ASSIGNS = {"Assign", "AssignVariableOp"}
_QUOTIENTS = {"RealDiv", "Div"}
_FINITENESS = {"CheckNumerics", "IsFinite", "IsInf", "IsNan"}
_RECIPROCALS = {"Inv", "Reciprocal"}
_MODULI = {"FloorMod", "Mod"}
_LONGEST = 64  # The ops that pass on a value, one after another, at most.


class Update(NamedTuple):
  """An op that multiplies or divides a variable, and assigns the result.

  Attributes:
    variable: The variable.
    op: The name of the op that assigns.
    factor: The factor; below 1 if the value falls.
    lower: The lower bound of the result; None if there is none.
    upper: The upper bound of the result; None if there is none.
    divisor: The number by which the value is divided; None for a product.
  """

  variable: str
  op: str
  factor: float
  lower: float | None
  upper: float | None
  divisor: float | None


class Constants(NamedTuple):
  """The constants of a scaler's rule; None if no graph shows one.

  Attributes:
    window: The number of good steps before the scale grows.
    growth: The factor by which the scale grows.
    divisor: The number by which the scale is divided after an overflow.
    lower: The lower bound of the scale; None also if it has none.
    upper: The upper bound of the scale; None also if it has none.
    tolerance: The share of overflows above which the scale falls.
    places: The number of ops by which the scale falls in a step.
    has_own_floor: Whether an op of its own keeps the scale at its minimum.
    are_known: Whether a graph was read at all.
  """

  window: int | None = None
  growth: float | None = None
  divisor: float | None = None
  lower: float | None = None
  upper: float | None = None
  tolerance: float | None = None
  places: int = 1
  has_own_floor: bool = False
  are_known: bool = False


class Period(NamedTuple):
  """An op that compares a count of good steps with a window.

  Attributes:
    op: The op's name.
    iteration: The variable that counts the steps.
    last: The variable that has the count of the last overflow; None if
      `iteration` counts from there.
    window: The number of steps; None if the graph has no constant for it.
  """

  op: str
  iteration: str
  last: str | None
  window: int | None


class Tolerance(NamedTuple):
  """An op that compares the share of overflows with a limit.

  Attributes:
    overflows: The variable that counts the overflows.
    limit: The limit; None if the graph has no constant for it.
  """

  overflows: str
  limit: float | None


class Power(NamedTuple):
  """A variable that is assigned a clipped power of 2.

  Attributes:
    variable: The variable.
    origins: The variables from which the exponent is computed.
    lower: The lower bound of the power; None if there is none.
    upper: The upper bound of the power; None if there is none.
  """

  variable: str
  origins: frozenset[str]
  lower: float | None
  upper: float | None


class ScalerGraph:
  """The ops of a graph from which the rules of loss scalers are read.

  Attributes:
    updates: Variable -> the ops that multiply or divide the variable.
    tolerances: The ops that compare a share of overflows with a limit.
    counted: The variables to which an op adds 1, and none another constant.
    miscounted: The variables to which an op adds another constant than 1.
  """

  def __init__(self, nodes: list[graph_def.NodeDef]) -> None:
    """Finds the ops.

    Raises:
      ValueError, KeyError: The graph is damaged.
    """
    self._nodes = {node.name: node for node in nodes}
    self._order = nodes
    self._assignments = list(self._find_assignments())
    self.updates: dict[str, list[Update]] = {}
    for update in self._find_updates():
      self.updates.setdefault(update.variable, []).append(update)
    self._periods: dict[str, list[Period]] = {}
    for period in self._find_periods():
      scope = period.op.rpartition("/")[0]
      self._periods.setdefault(scope, []).append(period)
    self.tolerances = list(self._find_tolerances())
    self._floors = dict(self._find_floors())
    steps = self._find_steps()
    self.counted = frozenset(v for v, found in steps.items() if found == {1})
    self.miscounted = frozenset(v for v, found in steps.items() if found - {1})
    self._divisors = frozenset(self._find_divisors())
    self._checks_finiteness = any(node.op in _FINITENESS for node in nodes)

  def _get(self, tensor: str) -> graph_def.NodeDef | None:
    """Returns the op of a tensor."""
    return self._nodes.get(tensor.partition(":")[0])

  def _find_source(self, tensor: str) -> graph_def.NodeDef | None:
    """Returns the op whose value a tensor is, past ops that pass it on."""
    node = self._get(tensor)
    for _ in range(_LONGEST):
      if node is None or node.op not in _PASSES or not node.inputs:
        return node
      node = self._get(node.inputs[0])
    return None

  def _find_variable(self, tensor: str) -> str | None:
    """Returns the variable whose value a tensor is."""
    node = self._find_source(tensor)
    return node.name if node and node.op in graph_def.VARIABLES else None

  def _find_target(self, tensor: str) -> str | None:
    """Returns the variable that an op assigns to.

    In TensorFlow 1, an op may assign to the result of another one.
    """
    for _ in range(_LONGEST):
      node = self._find_source(tensor)
      if node is None or not node.op.startswith("Assign") or not node.inputs:
        break
      tensor = node.inputs[0]
    return self._find_variable(tensor)

  def _find_number(self, tensor: str) -> float | int | None:
    """Returns the constant whose value a tensor is."""
    node = self._find_source(tensor)
    return graph_def.find_number(node) if node else None

  def _find_computed(self, tensor: str) -> graph_def.NodeDef | None:
    """Returns the op that computes a tensor; None for variables."""
    node = self._find_source(tensor)
    return None if node is None or node.op in graph_def.VARIABLES else node

  def _find_assignments(
    self,
  ) -> Iterator[tuple[graph_def.NodeDef, str, graph_def.NodeDef]]:
    """Yields each op that assigns, its variable and the op of the value."""
    for node in self._order:
      if node.op in _ASSIGNS and len(node.inputs) >= 2:
        variable = self._find_target(node.inputs[0])
        value = self._find_computed(node.inputs[1])
        if variable and value:
          yield node, variable, value

  def _clip(
    self, node: graph_def.NodeDef
  ) -> tuple[graph_def.NodeDef | None, float | None, float | None]:
    """Returns the op that is clipped, and its lower and upper bound."""
    found: graph_def.NodeDef | None = node
    lowers: list[float] = []
    uppers: list[float] = []
    for _ in range(_LONGEST):
      if found is None or len(found.inputs) < 2:
        break
      inputs = list(found.inputs)
      if found.op == "ClipByValue" and len(inputs) == 3:
        pairs = [(lowers, inputs[1]), (uppers, inputs[2])]
      elif found.op in ("Minimum", "Maximum"):
        if self._find_number(inputs[1]) is None:
          inputs.reverse()
        bounds = uppers if found.op == "Minimum" else lowers
        pairs = [(bounds, inputs[1])]
      else:
        break
      for bounds, tensor in pairs:
        number = self._find_number(tensor)
        if number is not None:
          bounds.append(number)
      found = self._find_computed(inputs[0])
    return found, max(lowers, default=None), min(uppers, default=None)

  def _find_updates(self) -> Iterator[Update]:
    for assign, variable, value in self._assignments:
      found, lower, upper = self._clip(value)
      if found is None or len(found.inputs) != 2:
        continue
      inputs = list(found.inputs)
      if found.op == "Mul" and self._find_variable(inputs[0]) != variable:
        inputs.reverse()
      if self._find_variable(inputs[0]) != variable:
        continue
      number = self._find_number(inputs[1])
      if not number:
        continue
      if found.op == "Mul":
        yield Update(variable, assign.name, number, lower, upper, None)
      elif found.op in _QUOTIENTS:
        yield Update(variable, assign.name, 1 / number, lower, upper, number)

  def _find_floors(self) -> Iterator[tuple[str, float]]:
    """Yields each variable that is assigned its own maximum with a number."""
    for _, variable, value in self._assignments:
      if value.op == "Maximum" and len(value.inputs) == 2:
        for here, other in (value.inputs, value.inputs[::-1]):
          bound = self._find_number(other)
          if bound is not None and self._find_variable(here) == variable:
            yield variable, bound

  def _find_difference(self, tensor: str) -> tuple[str, str] | None:
    """Returns the variables whose difference a tensor is."""
    node = self._find_computed(tensor)
    if node is None or node.op != "Sub" or len(node.inputs) != 2:
      return None
    first, second = map(self._find_variable, node.inputs)
    return (first, second) if first and second else None

  def _find_other_remainders(self) -> Iterator[str]:
    """Yields each op whose result must be another number than 0."""
    for node in self._order:
      if node.op == "Equal" and len(node.inputs) == 2:
        for here, other in (node.inputs, node.inputs[::-1]):
          source = self._find_computed(here)
          if source is not None and self._find_number(other):
            yield source.name

  def _find_periods(self) -> Iterator[Period]:
    others = set(self._find_other_remainders())
    for node in self._order:
      if len(node.inputs) != 2:
        continue
      if node.op in _MODULI:
        counts = self._find_difference(node.inputs[0])
        if counts and node.name not in others:
          window = self._find_number(node.inputs[1])
          if not isinstance(window, int) or window < 1:
            window = None
          yield Period(node.name, *counts, window)
      elif node.op == "Less":
        count = self._find_variable(node.inputs[0])
        window = self._find_number(node.inputs[1])
        if count and isinstance(window, int):
          yield Period(node.name, count, None, window)

  def _find_tolerances(self) -> Iterator[Tolerance]:
    for node in self._order:
      if node.op != "Greater" or len(node.inputs) != 2:
        continue
      share = self._find_computed(node.inputs[0])
      if share is None or share.op not in _QUOTIENTS:
        continue
      overflows = self._find_variable(share.inputs[0])
      if overflows and self._find_difference(share.inputs[1]):
        yield Tolerance(overflows, self._find_number(node.inputs[1]))

  def find_rule(self, variable: str) -> tuple[str, Constants] | None:
    """Returns how a variable falls and grows.

    Each replica may have such updates of its own, which then must be alike.

    Returns:
      The name of the first op by which the variable falls, and the constants of
      the updates; None if the variable does not fall, does not grow, or does so
      in several ways; or if the graph neither checks whether values are finite
      nor divides by it: a learning rate may fall and grow, too.
    """
    if not self._checks_finiteness and variable not in self._divisors:
      return None
    own = self.updates.get(variable, [])
    falls = [update for update in own if update.factor < 1]
    grows = [update for update in own if update.factor > 1]
    for updates in (falls, grows):
      if len({each._replace(op="") for each in updates}) != 1:
        return None
    fall, floor = falls[0], self._floors.get(variable)
    has_own_floor = fall.lower is None and floor is not None
    return fall.op, Constants(
      growth=grows[0].factor,
      divisor=fall.divisor or 1 / fall.factor,
      lower=floor if has_own_floor else fall.lower,
      upper=grows[0].upper,
      places=len(falls),
      has_own_floor=has_own_floor,
      are_known=True,
    )

  def find_period(
    self, op: str, accept: Callable[[Period], bool]
  ) -> Period | None:
    """Returns the accepted period in the innermost scope around an op.

    Returns:
      The period; None if there is none, or several.
    """
    scope = op
    for _ in range(_LONGEST):
      scope = scope.rpartition("/")[0]
      inner = [each for each in self._periods.get(scope, []) if accept(each)]
      if inner or not scope:
        return inner[0] if len(inner) == 1 else None
    return None

  def find_powers(self, variables: Collection[str]) -> Iterator[Power]:
    """Yields each of some variables that is assigned a clipped power of 2."""
    for _, variable, value in self._assignments:
      if variable not in variables:
        continue
      found, lower, upper = self._clip(value)
      if found is None or found.op != "Pow":
        continue
      if self._find_number(found.inputs[0]) == 2:
        origins = self._find_origins(found.inputs[1])
        yield Power(variable, origins, lower, upper)

  def _find_origins(self, tensor: str) -> frozenset[str]:
    """Returns the variables from whose values a tensor is computed."""
    names = [tensor.partition(":")[0]]
    seen = set(names)
    found = set()
    for name in names:
      node = self._nodes.get(name)
      if node is None:
        continue
      if node.op in graph_def.VARIABLES:
        found.add(name)
        continue
      for each in node.inputs:
        head = each.partition(":")[0]
        if head not in seen:
          seen.add(head)
          names.append(head)
    return frozenset(found)

  def _find_steps(self) -> dict[str, set[float | int]]:
    """Returns the constants that ops add to each variable."""
    steps: dict[str, set[float | int]] = {}
    for node in self._order:
      if node.op in ("AssignAdd", "AssignAddVariableOp"):
        variable = self._find_target(node.inputs[0])
        number = self._find_number(node.inputs[1])
        if variable and number is not None:
          steps.setdefault(variable, set()).add(number)
    return steps

  def _find_divisors(self) -> Iterator[str]:
    """Yields each variable by which an op divides."""
    for node in self._order:
      if node.op in _QUOTIENTS or node.op in _RECIPROCALS:
        variable = self._find_variable(node.inputs[-1])
        if variable:
          yield variable
