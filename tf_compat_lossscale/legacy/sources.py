# SPDX-License-Identifier: Apache-2.0
"""Reads sources: the legacy names that they use, and signs of TensorFlow 1."""

from __future__ import annotations

import ast
import re
import tokenize
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.legacy import names
from tf_compat_lossscale.legacy.names import Place

# Names that `tf.compat.v1` has and TensorFlow 2's own namespace does not.
# Nearly every TensorFlow 1 program uses one of them.
_TENSORFLOW1_NAMES = """
  AUTO_REUSE ConfigProto FIFOQueue FixedLenFeature GraphKeys InteractiveSession
  Print Session TFRecordReader VarLenFeature add_to_collection all_variables app
  assign assign_add assign_sub contrib div enable_eager_execution examples flags
  get_collection get_default_graph get_default_session get_variable
  get_variable_scope gfile global_variables global_variables_initializer
  initialize_all_variables layers local_variables local_variables_initializer
  log logging parse_single_example placeholder placeholder_with_default
  python_io random_normal random_uniform read_file reset_default_graph
  set_random_seed tables_initializer to_float to_int32 to_int64
  trainable_variables truncated_normal variable_scope
  data.make_initializable_iterator data.make_one_shot_iterator
  losses.absolute_difference losses.add_loss losses.compute_weighted_loss
  losses.get_losses losses.get_regularization_loss losses.get_total_loss
  losses.hinge_loss losses.huber_loss losses.log_loss losses.mean_squared_error
  losses.sigmoid_cross_entropy losses.softmax_cross_entropy
  losses.sparse_softmax_cross_entropy
  metrics.accuracy metrics.auc metrics.mean metrics.precision metrics.recall
  nn.bidirectional_dynamic_rnn nn.dynamic_rnn nn.rnn_cell nn.static_rnn
  nn.xw_plus_b
  summary.FileWriter summary.merge summary.merge_all
  train.AdadeltaOptimizer train.AdagradOptimizer train.AdamOptimizer
  train.CheckpointSaverHook train.FtrlOptimizer train.GradientDescentOptimizer
  train.LoggingTensorHook train.MomentumOptimizer train.MonitoredSession
  train.MonitoredTrainingSession train.Optimizer train.RMSPropOptimizer
  train.Saver train.Scaffold train.SessionManager train.SessionRunHook
  train.SingularMonitoredSession train.StopAtStepHook train.Supervisor
  train.SyncReplicasOptimizer train.cosine_decay train.create_global_step
  train.exponential_decay train.get_global_step
  train.get_or_create_global_step train.global_step train.init_from_checkpoint
  train.inverse_time_decay train.piecewise_constant train.polynomial_decay
"""
_TENSORFLOW1 = frozenset(_TENSORFLOW1_NAMES.split())
# TensorFlow 2 implements these with Keras.
_KERAS = frozenset(["keras", "layers", "nn.rnn_cell"])


class Use(NamedTuple):
  """An occurrence of one of TensorFlow's names in a source.

  Attributes:
    line: The line where the occurrence starts, counted from 1.
    column: The column where it starts, counted from 0, in characters.
    written: The name as written.
    name: The full name, such as "tensorflow.train.experimental.LossScale".
    home: The module of this package that defines the name; None if this package
      does not have it.
    form: "expression", "import" (`import a.b`), "from" (`from a import b`),
      "follows" (an expression that begins with an imported legacy name, and so
      changes with the import) or "text" (in a string).
  """

  line: int
  column: int
  written: str
  name: str
  home: str | None
  form: str

  @property
  def now(self) -> str:
    """The full name in this package."""
    place = names.find_place(self.name)
    module = find_module_home(place) if place else None
    if module is not None:
      return module
    last = names.get_current_name(self.name.rpartition(".")[2])
    if self.home in ("keras", "contrib"):
      return f"tf_compat_lossscale.{self.home}.{last}"
    return f"tf_compat_lossscale.{last}"


class Source(NamedTuple):
  """The facts that were read from a file of Python code.

  Attributes:
    path: The file.
    uses: The uses of legacy names, in order.
    tensorflow1: The uses, on plain `tensorflow`, of names that TensorFlow 2 has
      in `tf.compat.v1` alone.
    keras: The uses of Keras, and of modules built on Keras.
    imports: The imports of TensorFlow or of members of TensorFlow.
    modules: The dotted names of all imported modules; relative names begin with
      dots.
    estimators: The uses of `tf.estimator`, which is built on Keras 2.
  """

  path: str
  uses: tuple[Use, ...]
  tensorflow1: tuple[Use, ...]
  keras: tuple[Use, ...]
  imports: tuple[Use, ...]
  modules: tuple[str, ...]
  estimators: tuple[Use, ...] = ()


def find_module_home(place: Place) -> str | None:
  """Returns the module of this package that has all names of a place, or None.

  `train.experimental` had more than this package has: its result is None.
  """
  homes = set(names.NAMES_IN.get(place, {}).values())
  if not homes or place.module == "train.experimental":
    return None
  home = homes.pop()
  private = place.module.startswith("python.training")
  if private or home in ("keras", "contrib"):
    return f"tf_compat_lossscale.{home}"
  return "tf_compat_lossscale"


def find_home(name: str) -> str | None:
  """Returns the module of this package that has or replaces `name`, or None."""
  place = names.find_place(name)
  if place is None:
    return None
  module, _, last = name.rpartition(".")
  parent = names.find_place(module)
  homes = names.NAMES_IN.get(parent, {}) if parent else {}
  return homes.get(last) or find_module_home(place)


class _Scope:
  """The names bound in a module, class or function."""

  def __init__(self, node: ast.AST, parent: _Scope | None):
    self.node, self.parent = node, parent
    # For each name, its values: full names, expressions, or None for others.
    self.values: dict[str, list[str | ast.expr | None]] = {}
    self.resolving: set[str] = set()

  def bind(self, name: str, value: str | ast.expr | None) -> None:
    """Adds a value to those of a name."""
    self.values.setdefault(name, []).append(value)

  def resolve_name(self, name: str) -> str | None:
    """Returns the full name that `name` stands for, if it is TensorFlow's."""
    scope: _Scope | None = self
    while scope is not None:
      hidden = scope is not self and isinstance(scope.node, ast.ClassDef)
      if name in scope.values and not hidden:
        return scope._resolve_own_name(name)
      scope = scope.parent
    return None

  def _resolve_own_name(self, name: str) -> str | None:
    """Resolves a name that is bound in this very scope."""
    if name in self.resolving:
      return None
    self.resolving.add(name)
    try:
      for value in self.values[name]:
        full = (
          value if isinstance(value, str) else self.resolve_expression(value)
        )
        if full is not None:  # The first of several, as in try and except.
          return full
      return None
    finally:
      self.resolving.discard(name)

  def resolve_expression(self, node: ast.AST | None) -> str | None:
    """Returns the full name of an expression such as `a.b.c`."""
    if isinstance(node, ast.Name):
      return self.resolve_name(node.id)
    if isinstance(node, ast.Attribute):
      owner = self.resolve_expression(node.value)
      return f"{owner}.{node.attr}" if owner else None
    return None


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (
  ast.Module,
  ast.ClassDef,
  *_FUNCTIONS,
  ast.Lambda,
  ast.ListComp,
  ast.SetComp,
  ast.DictComp,
  ast.GeneratorExp,
)


class _UseCollector:
  """Collects the uses of TensorFlow's names in a syntax tree."""

  def __init__(self, text: str, tree: ast.Module):
    self._lines = re.split("\r\n|\r|\n", text)
    self.uses: list[Use] = []
    self.tensorflow1: list[Use] = []
    self.keras: list[Use] = []
    self.imports: list[Use] = []
    self.modules: list[str] = []
    self.estimators: list[Use] = []
    self._assigned: set[str] = set()
    module = _Scope(tree, None)
    _bind_all(tree, module)
    self._walk(tree, module)
    # A program that assigns `tf.Session` has a Session of its own.
    self.tensorflow1 = [
      use for use in self.tensorflow1 if use.name not in self._assigned
    ]

  def _walk(self, node: ast.AST, scope: _Scope) -> None:
    """Collects the uses in all nodes below `node`."""
    for child in ast.iter_child_nodes(node):
      if isinstance(child, ast.Import):
        self._collect_import(child)
      elif isinstance(child, ast.ImportFrom):
        self._collect_import_from(child)
      elif isinstance(child, ast.Attribute) and scope.resolve_expression(child):
        self._collect_attribute(child, scope)
      elif isinstance(child, _SCOPES):
        inner = _Scope(child, scope)
        _bind_all(child, inner)
        self._walk(child, inner)
      else:
        if isinstance(child, ast.Call):
          self._collect_call(child, scope)
        self._walk(child, scope)

  def _collect_import(self, node: ast.Import) -> None:
    """Adds the modules of an `import`, and a use for each of TensorFlow's."""
    for alias in node.names:
      self.modules.append(alias.name)
      if _if_tensorflow(alias.name):
        self._add(alias, alias.name, alias.name, "import")

  def _collect_import_from(self, node: ast.ImportFrom) -> None:
    """Adds the modules of a `from … import`, and uses for TensorFlow's."""
    module = "." * node.level + (node.module or "")
    self.modules.append(module)
    for alias in node.names:
      full = f"{module}{'' if module.endswith('.') else '.'}{alias.name}"
      self.modules.append(full)
      if not _if_tensorflow(module):
        continue
      if alias.name == "*":
        self._add(node, f"from {module} import *", module, "from")
      else:
        self._add(alias, alias.name, full, "from")

  def _collect_attribute(self, node: ast.Attribute, scope: _Scope) -> None:
    """Adds a use for the longest legacy name in `a.b.c`, or for all of it."""
    full = scope.resolve_expression(node)
    assert full is not None
    if isinstance(node.ctx, ast.Store):
      self._assigned.add(full)
      return
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
      root = root.value
    # The root's full name, from an import or an assignment.
    given = scope.resolve_expression(root) or ""
    part: ast.expr = node
    while isinstance(part, ast.Attribute):
      name = scope.resolve_expression(part) or ""
      if find_home(name):
        form = "follows" if find_home(given) else "expression"
        self._add(part, ast.unparse(part), name, form)
        return
      part = part.value
    self._add(node, ast.unparse(node), full, "expression")

  def _collect_call(self, node: ast.Call, scope: _Scope) -> None:
    """Adds a use for `getattr(module, "name")` or `import_module("name")`."""
    function = ast.unparse(node.func)
    last = node.args[-1] if node.args else None
    if not isinstance(last, ast.Constant) or not isinstance(last.value, str):
      return
    name = last.value
    if function == "getattr":
      name = f"{scope.resolve_expression(node.args[0])}.{name}"
    elif function not in ("importlib.import_module", "import_module"):
      return
    if find_home(name):
      self._add(node, ast.unparse(node), name, "text")

  def _add(self, node: Any, written: str, name: str, form: str) -> None:
    """Adds a use to every list that it belongs to."""
    # Before Python 3.12, the position of a node in an f-string may be outside
    # the text.
    line = "".join(self._lines[node.lineno - 1 : node.lineno]).encode("utf-8")
    column = len(line[: node.col_offset].decode("utf-8", "ignore"))
    place = names.find_place(name)
    if place is None:
      return
    use = Use(node.lineno, column, written, name, find_home(name), form)
    if use.home:
      self.uses.append(use)
    if form in ("import", "from"):
      self.imports.append(use)
    parts = place.module.split(".")
    starts = {parts[0], ".".join(parts[:2])}
    if name == f"tensorflow.{place.module}" and starts & _TENSORFLOW1:
      self.tensorflow1.append(use)
    if starts & _KERAS:
      self.keras.append(use)
    if "estimator" in starts:
      self.estimators.append(use)


def _if_tensorflow(name: str) -> str | None:
  """Returns a full name if it is TensorFlow's, or None."""
  return name if name.partition(".")[0] == "tensorflow" else None


def _bind_all(node: ast.AST, scope: _Scope) -> None:
  """Binds the names of a scope, without those of the scopes inside it."""
  for child in ast.iter_child_nodes(node):
    if isinstance(child, ast.Import):
      for alias in child.names:
        first = alias.name.partition(".")[0]
        full = alias.name if alias.asname else first
        scope.bind(alias.asname or first, _if_tensorflow(full))
    elif isinstance(child, ast.ImportFrom):
      for alias in child.names:
        full = "" if child.level else f"{child.module}.{alias.name}"
        scope.bind(alias.asname or alias.name, _if_tensorflow(full))
    elif isinstance(child, ast.Assign) and len(child.targets) == 1:
      if isinstance(child.targets[0], ast.Name):
        scope.bind(child.targets[0].id, child.value)
    elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
      scope.bind(child.id, None)
    elif isinstance(child, ast.arg):
      scope.bind(child.arg, None)
    elif isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
      scope.bind(child.name, None)
    if not isinstance(child, _SCOPES):
      _bind_all(child, scope)


class SourceError(Exception):
  """An error for a source that cannot be read; the message is one line."""


def read_source(path: str) -> Source:
  """Reads a file.

  Raises:
    SourceError: The file cannot be read, or this Python cannot parse it.
  """
  try:
    with tokenize.open(path) as file:
      text = file.read()
    tree = ast.parse(text, path)
  except OSError as error:
    raise SourceError(f"{path}: {error.strerror}") from None
  except (SyntaxError, UnicodeDecodeError, ValueError) as error:
    line = getattr(error, "lineno", None) or 1
    reason = getattr(error, "msg", None) or str(error)
    raise SourceError(f"{path}:{line}: cannot be parsed: {reason}") from None
  collector = _UseCollector(text, tree)
  return Source(
    path,
    tuple(collector.uses),
    tuple(collector.tensorflow1),
    tuple(collector.keras),
    tuple(collector.imports),
    tuple(collector.modules),
    tuple(collector.estimators),
  )
