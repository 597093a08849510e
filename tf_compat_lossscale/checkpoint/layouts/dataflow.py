"""Finds the variables whose updates depend on a given variable.

A name such as `beta1_power_1` does not tell its optimizer. The graph does: the
op that updates a weight has that optimizer's power as an input.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import re
from typing import NamedTuple

from tf_compat_lossscale.checkpoint.files import graph_def as _graph_def
from tf_compat_lossscale.checkpoint.files import wire as _wire

_LARGEST = 1_000_000  # Ops, with those of functions once for each call.
# Ops that hand a variable on, instead of its value.
_PASS_RESOURCE = {"Identity", "Switch", "Merge", "Enter", "Exit"}
_PASS_REFERENCE = {f"Ref{op}" for op in _PASS_RESOURCE}
_JOIN = ""  # The op type that stands for a function's argument or result.
_UPDATES = re.compile(
  r"(Resource)?(Sparse)?Apply\w+|Assign(Add|Sub)?(VariableOp)?"
  r"|(Resource)?Scatter(Nd)?(Update|Add|Sub|Mul|Div|Min|Max)"
  r"|(Resource)?StridedSliceAssign"
)
_CONDS = {"If", "StatelessIf", "Case", "StatelessCase"}
_LOOPS = {"While", "StatelessWhile"}
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}


class _Function(NamedTuple):
  arguments: list[str]
  results: list[str]  # The tensors in it that it returns.
  result_names: list[str]
  nodes: list[_graph_def.NodeDef]


class Flow:
  """The data flow of a graph.

  Attributes:
    nodes: The ops of the graph itself, without those of its functions.
    variables: The names of its variables, in the order of their creation.
    conds: The scopes of conds of TensorFlow 1's control flow, `a/cond_1`.
  """

  def __init__(self, graph_def: memoryview) -> None:
    """Reads a graph.

    Args:
      graph_def: An encoded GraphDef.

    Raises:
      ValueError: It is none, or too large.
    """
    self._types: list[str] = []
    self._inputs: list[list[int]] = []
    self._where: list[str] = []  # The cond of TensorFlow 2 that it runs in.
    self._library: dict[str, _Function] = {}
    nodes: list[_graph_def.NodeDef] = []
    for tag, value in _wire.fields(graph_def):
      if tag == 1:
        nodes.append(_graph_def.parse_node(_wire.part(value)))
      elif tag == 2:
        for inner, function in _wire.fields(_wire.part(value)):
          if inner == 1:
            self._add_function(_wire.part(function))
    self.nodes = nodes
    self.conds = frozenset(
      node.name.rpartition("/")[0] for node in nodes if _is_pivot(node)
    )
    find = self._add_nodes(nodes, {}, (), "")
    self._ids = {
      node.name: find(node.name)
      for node in nodes
      if node.op in _graph_def.VARIABLES
    }
    self.variables = list(self._ids)
    self._consumers: list[list[int]] = [[] for _ in self._types]
    for number, inputs in enumerate(self._inputs):
      for producer in inputs:
        self._consumers[producer].append(number)
    self._handles = self._find_handles()

  def _add_function(self, data: memoryview) -> None:
    name = ""
    arguments: list[str] = []
    result_names: list[str] = []
    nodes: list[_graph_def.NodeDef] = []
    returned: dict[str, str] = {}
    for tag, value in _wire.fields(data):
      if tag == 1:
        for inner, field in _wire.fields(_wire.part(value)):
          if inner == 1:
            name = _wire.text(field)
          elif inner in (2, 3):
            argument = dict(_wire.fields(_wire.part(field)))[1]
            known = arguments if inner == 2 else result_names
            known.append(_wire.text(argument))
      elif tag == 3:
        nodes.append(_graph_def.parse_node(_wire.part(value)))
      elif tag == 4:
        pair = dict(_wire.fields(_wire.part(value)))
        returned[_wire.text(pair[1])] = _wire.text(pair[2])
    results = [returned[result] for result in result_names]
    self._library[name] = _Function(arguments, results, result_names, nodes)

  def _add(self, op: str, where: str, inputs: Sequence[int] = ()) -> int:
    if len(self._types) >= _LARGEST:
      raise ValueError("the graph has too many ops")
    self._types.append(op)
    self._where.append(where)
    self._inputs.append(list(inputs))
    return len(self._types) - 1

  def _add_nodes(
    self,
    nodes: list[_graph_def.NodeDef],
    arguments: dict[str, int],
    predicates: tuple[int, ...],
    where: str,
  ) -> Callable[[str], int]:
    """Adds ops, those of functions that they call included.

    Args:
      nodes: The ops of a graph or function.
      arguments: Name of an argument -> its number.
      predicates: What decides whether these ops run.
      where: The outermost cond of TensorFlow 2 that they are in.

    Returns:
      Finds the number of a tensor by its name. All outputs of an ordinary op
      have one number.
    """
    outputs = {name: [number] for name, number in arguments.items()}
    calls = []
    named: dict[str, list[str]] = {}  # Op -> its outputs, if these have names.
    for node in nodes:
      functions = self._called(node)
      if functions:
        entries, outputs[node.name] = self._call(
          node, functions, predicates, where
        )
        calls.append((node, entries))
        if node.op in self._library:
          named[node.name] = self._library[node.op].result_names
      else:
        outputs[node.name] = [self._add(node.op, where)]

    def find(name: str) -> int:
      head, *rest = name.split(":")
      numbers = outputs[head]
      if len(numbers) == 1 or not rest:
        return numbers[0]
      if rest[0] in named.get(head, ()):
        return numbers[named[head].index(rest[0])]
      return numbers[int(rest[-1])]

    called = {node.name for node, _ in calls}
    for node in nodes:
      if node.name not in called:
        inputs = self._inputs[outputs[node.name][0]]
        inputs += map(find, node.inputs)
        if _UPDATES.fullmatch(node.op):
          inputs += predicates
    for node, entries in calls:
      for name, numbers in zip(node.inputs, entries):
        for number in numbers:
          self._inputs[number].append(find(name))
    return find

  def _called(self, node: _graph_def.NodeDef) -> list[str]:
    """The functions that an op calls; none if it is an ordinary op."""
    if node.op in self._library:
      return [node.op]
    if node.op in _LOOPS:
      known = _graph_def.functions(node)
      return [known["cond"][0], known["body"][0]]
    if node.op in _CONDS or node.op in _CALLS:
      return [
        name for names in _graph_def.functions(node).values() for name in names
      ]
    return []

  def _call(
    self,
    node: _graph_def.NodeDef,
    functions: list[str],
    predicates: tuple[int, ...],
    where: str,
  ) -> tuple[list[list[int]], list[int]]:
    """Adds the ops of the functions that an op calls.

    Returns:
      For each input of the op the numbers that it goes to, and the outputs.
    """
    if node.op in _LOOPS:
      entries = [self._add(_JOIN, where) for _ in node.inputs]
      (test, *_) = self._body(functions[0], entries, predicates, where)
      results = self._body(functions[1], entries, (*predicates, test), where)
      for entry, result in zip(entries, results):
        self._inputs[entry].append(result)
      return [[entry] for entry in entries], entries
    if node.op not in _CONDS:
      entries = [self._add(_JOIN, where) for _ in node.inputs]
      results = self._body(functions[0], entries, predicates, where)
      return [[entry] for entry in entries], results
    predicate = self._add(_JOIN, where)
    branches = [
      [self._add(_JOIN, where) for _ in node.inputs[1:]] for _ in functions
    ]
    inside = where or node.name
    joined = [
      self._add(_JOIN, where, [*values, predicate])
      for values in zip(
        *(
          self._body(name, entries, (*predicates, predicate), inside)
          for name, entries in zip(functions, branches)
        )
      )
    ]
    return [[predicate], *map(list, zip(*branches))], joined or [predicate]

  def _body(
    self,
    name: str,
    entries: list[int],
    predicates: tuple[int, ...],
    where: str,
  ) -> list[int]:
    self._add(_JOIN, where)  # A call counts, though its function be empty.
    function = self._library[name]
    arguments = dict(zip(function.arguments, entries))
    find = self._add_nodes(function.nodes, arguments, predicates, where)
    return list(map(find, function.results))

  def _find_handles(self) -> dict[int, int]:
    """What hands a variable on: number -> the variable's."""
    handles = {number: number for number in self._ids.values()}
    queue = list(handles)
    for number in queue:
      variable = handles[number]
      passing = (
        _PASS_REFERENCE
        if self._types[variable] in _graph_def.REFERENCES
        else _PASS_RESOURCE
      )
      for consumer in self._consumers[number]:
        op = self._types[consumer]
        if consumer not in handles and (op == _JOIN or op in passing):
          handles[consumer] = variable
          queue.append(consumer)
    return handles

  def find_dependents(self, names: Collection[str]) -> Dependents:
    """Finds the variables whose updates depend on the values of others.

    Args:
      names: Variables of the graph.

    Returns:
      What depends on each of them.
    """
    bits = {self._ids[name]: 1 << i for i, name in enumerate(names)}
    read = 1 << len(names)  # The bit of any variable at all.
    masks = [0] * len(self._types)
    queue = []
    for number, variable in self._handles.items():
      for consumer in self._consumers[number]:
        if consumer not in self._handles:
          masks[consumer] |= bits.get(variable, 0) | read
          queue.append(consumer)
    waiting = set(queue)
    for number in queue:  # Which grows meanwhile.
      waiting.discard(number)
      mask = masks[number]
      for consumer in self._consumers[number]:
        if masks[consumer] | mask != masks[consumer]:
          masks[consumer] |= mask
          if consumer not in waiting:
            waiting.add(consumer)
            queue.append(consumer)
    updates: dict[int, int] = {}
    always: dict[int, int] = {}  # What every such update depends on.
    where: dict[int, str] = {}
    for number, op in enumerate(self._types):
      if not _UPDATES.fullmatch(op):
        continue
      inputs = self._inputs[number]
      updated = [self._handles[i] for i in inputs if i in self._handles]
      applies = "Apply" in op
      mask = read if applies else 0
      for producer in inputs:
        mask |= masks[producer]
      for variable in updated if applies else updated[:1]:
        updates[variable] = updates.get(variable, 0) | mask
        if mask:
          always[variable] = always.get(variable, -1) & mask
          where.setdefault(variable, self._where[number])
    by_number = {number: name for name, number in self._ids.items()}
    return Dependents(
      {
        name: frozenset(
          by_number[variable]
          for variable, mask in updates.items()
          if mask & bits[self._ids[name]] and variable != self._ids[name]
        )
        for name in names
      },
      {
        name: frozenset(
          by_number[variable]
          for variable, mask in always.items()
          if mask & bits[self._ids[name]]
        )
        for name in names
      },
      frozenset(by_number[v] for v, mask in updates.items() if mask & read),
      {by_number[v]: cond for v, cond in where.items() if cond},
    )


class Dependents(NamedTuple):
  """What depends on variables' values.

  Attributes:
    of: Variable -> the variables whose updates depend on it.
    all_of: Variable -> the variables whose every update, except initialization,
      depends on it.
    trained: The variables that are updated by ops that read a variable, or by
      an optimizer's op.
    conds: Variable -> the cond of TensorFlow 2's control flow in which it is
      updated.
  """

  of: dict[str, frozenset[str]]
  all_of: dict[str, frozenset[str]]
  trained: frozenset[str]
  conds: dict[str, str]


def _is_pivot(node: _graph_def.NodeDef) -> bool:
  """Whether an op is the predicate of a cond of TensorFlow 1's control flow."""
  return node.op == "Identity" and node.name.rpartition("/")[2] == "pred_id"
