"""Reads programs: which legacy names they use, and whether for TensorFlow 1."""

from __future__ import annotations

import ast
import re
import tokenize
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.legacy import names as legacy_names

# What `tf.compat.v1` has and TensorFlow 2's own namespace has not: enough of
# it that hardly a TensorFlow 1 program does without.
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
# TensorFlow 2 has Keras behind these.
_KERAS = frozenset(["keras", "layers", "nn.rnn_cell"])


class Use(NamedTuple):
  """A place in a source that speaks of something of TensorFlow's.

  Attributes:
    line: Counted from 1.
    column: Counted from 0, in characters; with `line`, where it starts.
    written: The name as written there.
    name: That name in full, such as "tensorflow.train.experimental.LossScale".
    home: The module of this package that has it; None for TensorFlow's own.
    form: "expression", "import" (`import a.b`), "from" (`from a import b`),
      "follows" (from a name that an import gave, so that it changes with the
      import) or "text" (in a string).
  """

  line: int
  column: int
  written: str
  name: str
  home: str | None
  form: str

  @property
  def now(self) -> str:
    """What it is called now, in full."""
    where = legacy_names.locate(self.name)
    module = home_of_module(where) if where else None
    if module is not None:
      return module
    last = legacy_names.current_name(self.name.rpartition(".")[2])
    if self.home in ("keras", "contrib"):
      return f"tf_compat_lossscale.{self.home}.{last}"
    return f"tf_compat_lossscale.{last}"


class Source(NamedTuple):
  """What was read in a file.

  Attributes:
    path: The file.
    uses: The legacy names in it, in order.
    tensorflow1: What in it TensorFlow 2 has in `tf.compat.v1` alone, used on
      plain `tensorflow`.
    keras: What in it is, or is built on, Keras.
    imports: Where it imports TensorFlow, or something of it.
    modules: Modules that it imports, by dotted name; relative ones with dots.
  """

  path: str
  uses: tuple[Use, ...]
  tensorflow1: tuple[Use, ...]
  keras: tuple[Use, ...]
  imports: tuple[Use, ...]
  modules: tuple[str, ...]


def home_of_module(where: tuple[str, str]) -> str | None:
  """The module here that is all that a TensorFlow module was, or None.

  `train.experimental` has more than what is here, so it has no such home.
  """
  homes = set(legacy_names.NAMES_IN.get(where, {}).values())
  if not homes or where[1] == "train.experimental":
    return None
  home = homes.pop()
  if where[1].startswith("python.training") or home in ("keras", "contrib"):
    return f"tf_compat_lossscale.{home}"
  return "tf_compat_lossscale"


def home_of(name: str) -> str | None:
  """The module here that has a name of TensorFlow's, or that is a module."""
  where = legacy_names.locate(name)
  if where is None:
    return None
  module, _, last = name.rpartition(".")
  inside = legacy_names.locate(module)
  names = legacy_names.NAMES_IN.get(inside, {}) if inside else {}
  return names.get(last) or home_of_module(where)


class _Scope:
  """The names bound in a module, class or function."""

  def __init__(self, node: ast.AST, parent: _Scope | None):
    self.node, self.parent = node, parent
    # name -> how it was bound: a full name, an expression, or None.
    self.bound: dict[str, list[str | ast.expr | None]] = {}
    self.resolving: set[str] = set()

  def bind(self, name: str, value: str | ast.expr | None) -> None:
    self.bound.setdefault(name, []).append(value)

  def lookup(self, name: str) -> str | None:
    """The full name that `name` stands for, if it is one of TensorFlow's."""
    scope: _Scope | None = self
    while scope is not None:
      hidden = scope is not self and isinstance(scope.node, ast.ClassDef)
      if name in scope.bound and not hidden:
        return scope._resolve(name)
      scope = scope.parent
    return None

  def _resolve(self, name: str) -> str | None:
    if name in self.resolving:
      return None
    self.resolving.add(name)
    try:
      for value in self.bound[name]:
        full = value if isinstance(value, str) else self.full_name(value)
        if full is not None:  # Of several, as in try and except, the first.
          return full
      return None
    finally:
      self.resolving.discard(name)

  def full_name(self, node: ast.AST | None) -> str | None:
    """What an expression such as `a.b.c` is called in full."""
    if isinstance(node, ast.Name):
      return self.lookup(node.id)
    if isinstance(node, ast.Attribute):
      owner = self.full_name(node.value)
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


class _Reader:
  """Walks a tree and notes what speaks of TensorFlow."""

  def __init__(self, text: str, tree: ast.Module):
    self._lines = re.split("\r\n|\r|\n", text)
    self.uses: list[Use] = []
    self.tensorflow1: list[Use] = []
    self.keras: list[Use] = []
    self.imports: list[Use] = []
    self.modules: list[str] = []
    self._set: set[str] = set()
    module = _Scope(tree, None)
    _bind_all(tree, module)
    self._walk(tree, module)
    # A program that sets `tf.Session` brings its own.
    self.tensorflow1 = [
      use for use in self.tensorflow1 if use.name not in self._set
    ]

  def _walk(self, node: ast.AST, scope: _Scope) -> None:
    for child in ast.iter_child_nodes(node):
      if isinstance(child, ast.Import):
        self._import(child)
      elif isinstance(child, ast.ImportFrom):
        self._import_from(child)
      elif isinstance(child, ast.Attribute) and scope.full_name(child):
        self._chain(child, scope)
      elif isinstance(child, _SCOPES):
        inner = _Scope(child, scope)
        _bind_all(child, inner)
        self._walk(child, inner)
      else:
        if isinstance(child, ast.Call):
          self._call(child, scope)
        self._walk(child, scope)

  def _import(self, node: ast.Import) -> None:
    for alias in node.names:
      self.modules.append(alias.name)
      if _of_tensorflow(alias.name):
        self._note(alias, alias.name, alias.name, "import")

  def _import_from(self, node: ast.ImportFrom) -> None:
    module = "." * node.level + (node.module or "")
    self.modules.append(module)
    for alias in node.names:
      full = f"{module}{'' if module.endswith('.') else '.'}{alias.name}"
      self.modules.append(full)
      if not _of_tensorflow(module):
        continue
      if alias.name == "*":
        self._note(node, f"from {module} import *", module, "from")
      else:
        self._note(alias, alias.name, full, "from")

  def _chain(self, node: ast.Attribute, scope: _Scope) -> None:
    """Notes an expression such as `a.b.c`, or the part of it that matters."""
    full = scope.full_name(node)
    assert full is not None
    if isinstance(node.ctx, ast.Store):
      self._set.add(full)
      return
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
      root = root.value
    given = scope.full_name(root) or ""  # By an import, or an assignment.
    part: ast.expr = node
    while isinstance(part, ast.Attribute):
      name = scope.full_name(part) or ""
      if home_of(name):
        form = "follows" if home_of(given) else "expression"
        self._note(part, ast.unparse(part), name, form)
        return
      part = part.value
    self._note(node, ast.unparse(node), full, "expression")

  def _call(self, node: ast.Call, scope: _Scope) -> None:
    """Notes `getattr(module, "name")` and `import_module("name")`."""
    function = ast.unparse(node.func)
    last = node.args[-1] if node.args else None
    if not isinstance(last, ast.Constant) or not isinstance(last.value, str):
      return
    name = last.value
    if function == "getattr":
      name = f"{scope.full_name(node.args[0])}.{name}"
    elif function not in ("importlib.import_module", "import_module"):
      return
    if home_of(name):
      self._note(node, ast.unparse(node), name, "text")

  def _note(self, node: Any, written: str, name: str, form: str) -> None:
    """Files what is known of a name under what it is."""
    # Before Python 3.12, what is in an f-string has a place that may not be.
    line = "".join(self._lines[node.lineno - 1 : node.lineno]).encode("utf-8")
    column = len(line[: node.col_offset].decode("utf-8", "ignore"))
    where = legacy_names.locate(name)
    if where is None:
      return
    use = Use(node.lineno, column, written, name, home_of(name), form)
    if use.home:
      self.uses.append(use)
    if form in ("import", "from"):
      self.imports.append(use)
    parts = where[1].split(".")
    starts = {parts[0], ".".join(parts[:2])}
    if name == f"tensorflow.{where[1]}" and starts & _TENSORFLOW1:
      self.tensorflow1.append(use)
    if starts & _KERAS:
      self.keras.append(use)


def _of_tensorflow(name: str) -> str | None:
  return name if name.partition(".")[0] == "tensorflow" else None


def _bind_all(node: ast.AST, scope: _Scope) -> None:
  """Binds what a scope binds, without the scopes inside it."""
  for child in ast.iter_child_nodes(node):
    if isinstance(child, ast.Import):
      for alias in child.names:
        first = alias.name.partition(".")[0]
        full = alias.name if alias.asname else first
        scope.bind(alias.asname or first, _of_tensorflow(full))
    elif isinstance(child, ast.ImportFrom):
      for alias in child.names:
        full = "" if child.level else f"{child.module}.{alias.name}"
        scope.bind(alias.asname or alias.name, _of_tensorflow(full))
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
  """Why a source cannot be read; one line."""


def parse(path: str) -> Source:
  """Reads a file.

  Raises:
    SourceError: It cannot be read, or is no Python of today.
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
  reader = _Reader(text, tree)
  return Source(
    path,
    tuple(reader.uses),
    tuple(reader.tensorflow1),
    tuple(reader.keras),
    tuple(reader.imports),
    tuple(reader.modules),
  )
