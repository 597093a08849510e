# SPDX-License-Identifier: Apache-2.0
"""Finds the variables whose updates depend on the value of a given variable.

The name `beta1_power_1` does not tell which optimizer the variable belongs to.
The graph does: the op that updates a weight has the power among its inputs.

    beta1_power_1 -> ReadVariableOp -> ApplyAdam(w1, ..., beta1_power_1, ...)

The method:

1. Number all ops. A function's ops are numbered anew for each call, and its
   arguments and results get numbers of their own: joins, ops that pass on all
   their inputs. A cond of TensorFlow 2 is a call of two functions whose results
   are joined; a While's results are also inputs of its functions.
2. Mark the handles: ops that pass on a variable itself, and not its value.
3. Give each asked variable a bit. The op that reads a handle gets its
   variable's bit; each op gets the bits of its inputs. Ops come after their
   inputs, and the ops of a loop get their bits together (a loop's results are
   its own inputs).
4. An op that updates a variable has the bits of all variables on which the
   update depends. Inside of conds, the predicates count as inputs, since they
   decide whether the update happens: so a weight depends on its loss scale.
5. An optimizer updates each weight in a name scope `update_WEIGHT`, within the
   name scope of one application: `Adam/update_w/ResourceApplyAdam`. All updates
   of one application have the bits of each of them. Otherwise nothing in a
   sparse update of Adam's slots shows the powers.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import re
from typing import NamedTuple

from tf_compat_lossscale.checkpoint.files import graph_def as graphs

# The largest number of ops; a function's ops count for each call.
_LARGEST = 1_000_000
_MOST_INPUTS = 10_000_000  # The number of inputs of all ops, at most.
_MOST_PARTS = 100  # Of an op's name. Each part may be where a scope ends.
_BATCH = 1024  # The number of variables whose bits are spread at a time.
# Ops whose output is the variable itself if their input is.
_PASS_RESOURCE = {"Identity", "Switch", "Merge", "Enter", "Exit"}
_PASS_REFERENCE = {f"Ref{op}" for op in _PASS_RESOURCE}
_JOIN = ""  # The op type that stands for a function's argument or result.
_UPDATES = re.compile(
  r"(Resource)?(Sparse)?Apply\w+|Assign(Add|Sub)?(VariableOp)?"
  r"|(Resource)?Scatter(Nd)?(Update|Add|Sub|Mul|Div|Min|Max)"
  r"|(Resource)?StridedSliceAssign"
)
# Of `tf.compat.v1.train.MomentumOptimizer`; the third input is the rate.
_MOMENTUM = re.compile(r"(Resource)?(Sparse)?ApplyMomentum")
# Ops that pass on the value of their first input.
_PASS_VALUE = {*_PASS_RESOURCE, "Cast", "ReadVariableOp", "RefSwitch"}
_CONDS = {"If", "StatelessIf", "Case", "StatelessCase"}
_LOOPS = {"While", "StatelessWhile"}
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
# Ops that a program feeds; the types are their default names, too.
PLACEHOLDERS = {"Placeholder", "PlaceholderWithDefault"}
# The scope of an update if the optimizer does not name the weight: in replicas.
_ANONYMOUS_UPDATE = re.compile(r"update(_\d+)?")


class DataFlow:
  """The data flow of a graph.

  Attributes:
    nodes: The ops of the graph itself, without those of its functions.
    variables: The names of its variables, in the order of their creation.
    conds: The scopes of the conds of TensorFlow 1's control flow: `a/cond_1`.
  """

  def __init__(self, graph: graphs.Graph) -> None:
    """Numbers the graph's ops.

    Raises:
      ValueError: The graph is too large.
    """
    self._types: list[str] = []
    self._nodes: dict[int, graphs.NodeDef] = {}  # Without ops of type `_JOIN`.
    self._bodies: list[int] = []  # The call that each op is in.
    self._body = 0
    self._inputs: list[list[int]] = []
    self._where: list[str] = []  # The cond of TensorFlow 2 around each op.
    self._inputs_left = _MOST_INPUTS
    self._library = graph.library
    self.nodes = nodes = graph.nodes
    self.conds = frozenset(
      node.name.rpartition("/")[0] for node in nodes if is_pivot(node)
    )
    find = self._add_nodes(nodes, {}, (), "")
    self._ids = {
      node.name: find(node.name)
      for node in nodes
      if node.op in graphs.VARIABLES
    }
    self.variables = list(self._ids)
    self._consumers: list[list[int]] = [[] for _ in self._types]
    for number, inputs in enumerate(self._inputs):
      for producer in inputs:
        self._consumers[producer].append(number)
    self._handles = self._find_handles()
    self._applications = self._find_applications()

  @property
  def size(self) -> int:
    """The number of ops. A function's ops count for each call."""
    return len(self._types)

  def _add(self, op: str, where: str, inputs: Sequence[int] = ()) -> int:
    """Numbers an op of type `op` in the cond `where`; returns the number."""
    if len(self._types) >= _LARGEST:
      raise ValueError("the graph has too many ops")
    self._count_inputs(len(inputs))
    self._types.append(op)
    self._where.append(where)
    self._bodies.append(self._body)
    self._inputs.append(list(inputs))
    return len(self._types) - 1

  def _count_inputs(self, count: int) -> None:
    """Counts inputs: few functions may be called with many, very often."""
    self._inputs_left -= count
    if self._inputs_left < 0:
      raise ValueError("the graph has too many inputs of ops")

  def _add_nodes(
    self,
    nodes: list[graphs.NodeDef],
    arguments: dict[str, int],
    predicates: tuple[int, ...],
    where: str,
  ) -> Callable[[str], int]:
    """Numbers ops, and the ops of functions that they call.

    Args:
      nodes: The ops of a graph or function.
      arguments: Name of an argument -> its number.
      predicates: The numbers of the tensors that decide whether the ops run.
      where: The outermost cond of TensorFlow 2 around the ops.

    Returns:
      A function from a tensor's name to its number. All outputs of an ordinary
      op have one number.
    """
    outputs = {name: [number] for name, number in arguments.items()}
    calls = []
    named: dict[str, dict[str, int]] = {}  # Call -> the names of its outputs.
    for node in nodes:
      functions = self._find_called(node)
      if functions:
        entries, outputs[node.name] = self._add_call(
          node, functions, predicates, where
        )
        calls.append((node, entries))
        if node.op in self._library:
          named[node.name] = self._library[node.op].result_names
      else:
        outputs[node.name] = [self._add(node.op, where)]
        self._nodes[outputs[node.name][0]] = node

    def find(name: str) -> int:
      head, *rest = name.split(":")
      numbers = outputs[head]
      if len(numbers) == 1 or not rest:
        return numbers[0]
      if rest[0] in named.get(head, ()):
        return numbers[named[head][rest[0]]]
      return numbers[int(rest[-1])]

    called = {node.name for node, _ in calls}
    for node in nodes:
      if node.name not in called:
        self._count_inputs(len(node.inputs) + len(predicates))
        inputs = self._inputs[outputs[node.name][0]]
        inputs += map(find, node.inputs)
        if _UPDATES.fullmatch(node.op):
          inputs += predicates
    for node, entries in calls:
      for name, numbers in zip(node.inputs, entries):
        for number in numbers:
          self._inputs[number].append(find(name))
    return find

  def _find_called(self, node: graphs.NodeDef) -> list[str]:
    """Returns the names of the functions that an op calls, if any."""
    if node.op in self._library:
      return [node.op]
    if node.op in _LOOPS:
      known = graphs.find_functions(node)
      return [known["cond"][0], known["body"][0]]
    if node.op in _CONDS or node.op in _CALLS:
      return [
        name for names in graphs.find_functions(node).values() for name in names
      ]
    return []

  def _add_call(
    self,
    node: graphs.NodeDef,
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
      (test, *_) = self._add_body(functions[0], entries, predicates, where)
      results = self._add_body(
        functions[1], entries, (*predicates, test), where
      )
      for entry, result in zip(entries, results):
        self._inputs[entry].append(result)
      return [[entry] for entry in entries], entries
    if node.op not in _CONDS:
      entries = [self._add(_JOIN, where) for _ in node.inputs]
      results = self._add_body(functions[0], entries, predicates, where)
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
          self._add_body(name, entries, (*predicates, predicate), inside)
          for name, entries in zip(functions, branches)
        )
      )
    ]
    return [[predicate], *map(list, zip(*branches))], joined or [predicate]

  def _add_body(
    self,
    name: str,
    entries: list[int],
    predicates: tuple[int, ...],
    where: str,
  ) -> list[int]:
    # Even a call of an empty function counts, so that a graph of nested calls
    # cannot take forever.
    outer, self._body = self._body, self._add(_JOIN, where)
    function = self._library[name]
    self._count_inputs(len(function.arguments) + len(function.results))
    arguments = dict(zip(function.arguments, entries))
    find = self._add_nodes(function.nodes, arguments, predicates, where)
    self._body = outer
    return list(map(find, function.results))

  def _find_handles(self) -> dict[int, str]:
    """Returns number of a handle -> name of its variable."""
    handles = {number: name for name, number in self._ids.items()}
    queue = list(handles)
    for number in queue:
      variable = handles[number]
      passing = (
        _PASS_REFERENCE
        if self._types[self._ids[variable]] in graphs.REFERENCES
        else _PASS_RESOURCE
      )
      for consumer in self._consumers[number]:
        op = self._types[consumer]
        if consumer not in handles and (op == _JOIN or op in passing):
          handles[consumer] = variable
          queue.append(consumer)
    return handles

  def find_dependents(self, names: Collection[str]) -> Dependents:
    """Finds the variables whose updates depend on the values of given ones.

    Args:
      names: The given variables, by name.
    """
    names = list(dict.fromkeys(names))
    parts = [
      self._find_dependents(names[at : at + _BATCH])
      for at in range(0, len(names), _BATCH)
    ] or [self._find_dependents([])]
    return Dependents(
      {k: v for part in parts for k, v in part.of.items()},
      {k: v for part in parts for k, v in part.all_of.items()},
      parts[0].trained,
      parts[0].conds,
    )

  def _find_dependents(self, names: Sequence[str]) -> Dependents:
    """Finds the dependents of up to `_BATCH` variables, each with a bit."""
    bits = {name: 1 << i for i, name in enumerate(names)}
    read = 1 << len(names)  # The bit for any variable of the graph.
    masks = self._spread_bits(bits, read)
    updates: dict[str, int] = {}  # Variable -> the bits of all its updates.
    always: dict[str, int] = {}  # Variable -> the bits that every update has.
    where: dict[str, str] = {}
    together: dict[tuple[int, str], int] = {}  # Application -> its bits.
    found = list(self._find_updates(masks, read))
    for number, _, mask in found:
      if number in self._applications:
        key = self._applications[number]
        together[key] = together.get(key, 0) | mask
    for number, variable, mask in found:
      whole = together.get(self._applications.get(number, (-1, "")), 0)
      updates[variable] = updates.get(variable, 0) | mask | whole
      if mask:  # Otherwise the update assigns a constant: an initialization.
        always[variable] = always.get(variable, -1) & mask
        where.setdefault(variable, self._where[number])
    return Dependents(
      {
        name: frozenset(
          variable
          for variable, mask in updates.items()
          if mask & bits[name] and variable != name
        )
        for name in names
      },
      {
        name: frozenset(
          variable for variable, mask in always.items() if mask & bits[name]
        )
        for name in names
      },
      frozenset(v for v, mask in updates.items() if mask & read),
      {v: cond for v, cond in where.items() if cond},
    )

  def _list_updated(self, number: int) -> list[str]:
    """Returns the variables that an op updates."""
    op = self._types[number]
    if not _UPDATES.fullmatch(op):
      return []
    updated = [
      self._handles[i] for i in self._inputs[number] if i in self._handles
    ]
    return updated if "Apply" in op else updated[:1]

  def _find_applications(self) -> dict[int, tuple[int, str]]:
    """Returns number of an update -> the call and scope of its application."""
    known = set(self._ids)
    found = {}
    for number, node in self._nodes.items():
      if not _UPDATES.fullmatch(node.op):
        continue
      scope = _find_application(node.name, known)
      if scope is not None:
        found[number] = (self._bodies[number], scope)
    return found

  def find_applications(self) -> list[Application]:
    """Finds the applications of gradients by optimizers."""
    updates: dict[tuple[int, str], list[int]] = {}
    for number, key in self._applications.items():
      updates.setdefault(key, []).append(number)
    return [
      Application(
        # In a cond of TensorFlow 2, an op's name has no scope.
        f"{self._where[numbers[0]].rpartition('/')[0]}/{scope}".lstrip("/"),
        frozenset(v for n in numbers for v in self._list_updated(n)),
        tuple(numbers),
      )
      for (_, scope), numbers in updates.items()
    ]

  def find_origins(self, applications: Sequence[Application]) -> Origins:
    """Finds out what the updates of an optimizer are computed from.

    Args:
      applications: All of the optimizer's applications of gradients.
    """
    variables, placeholders = set(), set()
    types: dict[str, int] = {}
    updates = [number for each in applications for number in each.updates]
    queue, seen = list(updates), set(updates)
    for number in queue:  # The queue grows meanwhile.
      if number in self._handles:
        variables.add(self._handles[number])
        continue
      node = self._nodes.get(number)
      if node is not None:
        types[node.op] = types.get(node.op, 0) + 1
        if node.op in PLACEHOLDERS:
          placeholders.add(node.name)
      for producer in self._inputs[number]:
        if producer not in seen:
          seen.add(producer)
          queue.append(producer)
    return Origins(
      frozenset(variables),
      frozenset(placeholders),
      frozenset(
        setting
        for each in applications
        for setting in self._find_settings(each.updates)
      ),
      frozenset(types.items()),
      frozenset(
        self._find_setting(self._inputs[number][2])
        for number in updates
        if _MOMENTUM.fullmatch(self._types[number])
      ),
    )

  def _find_setting(self, number: int) -> float | str | None:
    """Returns the constant or variable whose value an op passes on, or None."""
    seen = set()
    while number not in seen:
      seen.add(number)
      if number in self._handles:
        return self._handles[number]
      node = self._nodes.get(number)
      if node is not None and node.op == "Const":
        return _find_real(node)
      inputs = self._inputs[number]
      is_argument = node is None and len(set(inputs)) == 1
      if not is_argument and (node is None or node.op not in _PASS_VALUE):
        return None
      number = inputs[0]
    return None

  def find_initial(self, variable: str) -> float | None:
    """Returns the constant from which a scalar variable starts, or None."""
    assign = self._by_name.get(f"{variable}/Assign")
    if assign is None or assign.op not in ("Assign", "AssignVariableOp"):
      return None
    target, source = (name.partition(":")[0] for name in assign.inputs[:2])
    node = self._by_name.get(source)
    return _find_real(node) if node and target == variable else None

  @functools.cached_property
  def _by_name(self) -> dict[str, graphs.NodeDef]:
    """Name -> op, of the graph itself."""
    return {node.name: node for node in self.nodes}

  def _find_settings(self, updates: Sequence[int]) -> Iterator[float]:
    """Yields the floating-point scalars that updates are computed with.

    These are constants in the scope of the application, or inputs of the
    updates themselves.

    Args:
      updates: All updates of one application.
    """
    body, scope = self._applications[updates[0]]
    queue, seen = list(updates), set(updates)
    for number in queue:  # The queue grows meanwhile.
      for producer in self._inputs[number]:
        if producer in seen or producer in self._handles:
          continue
        seen.add(producer)
        node = self._nodes.get(producer)
        is_own = self._bodies[producer] == body and (
          node is not None and node.name.startswith(f"{scope}/")
        )
        if node is not None and node.op == "Const":
          value = _find_real(node)
          if value is not None:
            yield value
        elif is_own or node is None or node.op in _PASS_RESOURCE:
          queue.append(producer)

  def _spread_bits(self, bits: dict[str, int], read: int) -> list[int]:
    """Spreads bits from variables to all ops that depend on their values.

    Args:
      bits: Variable -> its bit.
      read: The bit for any variable.
    """
    masks = [0] * len(self._types)
    for number, variable in self._handles.items():
      for consumer in self._consumers[number]:
        if consumer not in self._handles:
          masks[consumer] |= bits.get(variable, 0) | read
    for loop in self._order:
      mask = 0
      for number in loop:
        mask |= masks[number]
      for number in loop:
        masks[number] = mask
        for consumer in self._consumers[number]:
          masks[consumer] |= mask
    return masks

  @functools.cached_property
  def _order(self) -> list[list[int]]:
    """The ops that read variables, and all that depend on them, in order.

    Each op comes after its inputs. The ops of a loop, of which each depends on
    all others, come together: Tarjan's strongly connected components.
    """
    index: dict[int, int] = {}  # Op -> its position in the order of visits.
    lowest: dict[int, int] = {}
    stack: list[int] = []
    done: set[int] = set()
    result: list[list[int]] = []
    for handle in self._handles:
      work = [(handle, iter(self._consumers[handle]))]
      if handle in index:
        continue
      index[handle] = lowest[handle] = len(index)
      stack.append(handle)
      while work:
        number, consumers = work[-1]
        for consumer in consumers:
          if consumer not in index:
            index[consumer] = lowest[consumer] = len(index)
            stack.append(consumer)
            work.append((consumer, iter(self._consumers[consumer])))
            break
          if consumer not in done:
            lowest[number] = min(lowest[number], index[consumer])
        else:
          work.pop()
          if work:
            parent = work[-1][0]
            lowest[parent] = min(lowest[parent], lowest[number])
          if lowest[number] == index[number]:
            at = len(stack) - 1
            while stack[at] != number:
              at -= 1
            result.append(stack[at:])
            done.update(stack[at:])
            del stack[at:]
    return result[::-1]

  def _find_updates(
    self, masks: list[int], read: int
  ) -> Iterator[tuple[int, str, int]]:
    """Yields the updates of variables.

    Yields:
      (number of the op, the variable, the op's bits). An optimizer's
      op reads the variable itself.
    """
    for number, op in enumerate(self._types):
      updated = self._list_updated(number)
      if not updated:
        continue
      mask = read if "Apply" in op else 0
      for producer in self._inputs[number]:
        mask |= masks[producer]
      for variable in updated:
        yield number, variable, mask


class Application(NamedTuple):
  """The ops by which an optimizer applies gradients once.

  Attributes:
    scope: The name scope of the ops, without a slash: `train/Adam_1`.
    variables: The variables that the ops update: weights and slots.
    updates: The numbers of the ops.
  """

  scope: str
  variables: frozenset[str]
  updates: tuple[int, ...]


class Origins(NamedTuple):
  """All that the updates of an optimizer are computed from.

  Attributes:
    variables: The names of variables.
    placeholders: The names of placeholders.
    settings: The scalars that the updates are computed with, such as a
      learning rate.
    types: Pairs of an op's type and how many such ops there are.
    rates: The learning rates of MomentumOptimizer: values, or the names of
      variables; None for a rate that is neither.
  """

  variables: frozenset[str]
  placeholders: frozenset[str]
  settings: frozenset[float]
  types: frozenset[tuple[str, int]]
  rates: frozenset[float | str | None]


class Dependents(NamedTuple):
  """The variables that depend on given variables.

  Attributes:
    of: Given variable -> the variables whose updates depend on it.
    all_of: Given variable -> the variables whose every update, except for
      initialization, depends on it.
    trained: The variables that are updated by ops that read a variable, or by
      an optimizer's op.
    conds: Variable -> the cond of TensorFlow 2's control flow in which it is
      updated.
  """

  of: dict[str, frozenset[str]]
  all_of: dict[str, frozenset[str]]
  trained: frozenset[str]
  conds: dict[str, str]


def is_pivot(node: graphs.NodeDef) -> bool:
  """Returns whether an op is the predicate of a TensorFlow 1 cond."""
  return node.op == "Identity" and node.name.rpartition("/")[2] == "pred_id"


def _find_application(name: str, variables: Collection[str]) -> str | None:
  """Returns the scope in which an optimizer applies gradients; None if unknown.

  Args:
    name: An op that updates a variable: `train/Adam/update_a/w/Assign`.
    variables: The names of all variables: `a/w`.

  Returns:
    For instance `train/Adam`.
  """
  parts = name.split("/")
  if len(parts) > _MOST_PARTS:
    return None
  for i in range(1, len(parts) - 1):
    if not parts[i].startswith("update_"):
      continue
    for j in range(i + 1, len(parts)):
      weight = "/".join(parts[i:j]).removeprefix("update_")
      # The scope has a number if the optimizer applied gradients twice there.
      if weight in variables or re.sub(r"_\d+$", "", weight) in variables:
        return "/".join(parts[:i])
  for i in range(1, len(parts) - 1):
    if _ANONYMOUS_UPDATE.fullmatch(parts[i]):
      return "/".join(parts[:i])
  return None


def _find_real(node: graphs.NodeDef) -> float | None:
  """Returns the value of a floating-point scalar constant, or None."""
  number = graphs.find_number(node)
  return number if isinstance(number, float) else None
