# SPDX-License-Identifier: Apache-2.0
"""Reads sources: the legacy names that they use, and signs of TensorFlow 1."""

from __future__ import annotations

import ast
import collections
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import re
import sys
import tokenize
from typing import Any
from typing import TypeVar
import warnings

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import tensorflow_names
from tf_compat_lossscale.programs import uses as uses_lib
from tf_compat_lossscale.programs import version_checks

_Node = TypeVar("_Node", bound=ast.AST)

_DEPTH = 20_000
_METHODS = tensorflow_names.METHODS
_DOTTED = re.compile(r"[a-zA-Z_]\w*(\.[a-zA-Z_]\w*)+")

# The collector looks at these nodes; of other nodes, at those below them alone.
_LOOKED_AT = frozenset(
  [
    *(ast.Import, ast.ImportFrom, ast.Attribute, ast.Constant, ast.Call),
    *scopes.SCOPES,
  ]
)
# Methods of Keras 2's loss-scale optimizer that Keras 3's lacks -> the name
# that a call of one is counted as.
_KERAS_2_METHODS = {
  name: f"tensorflow.keras.mixed_precision.LossScaleOptimizer.{name}"
  for name in ("get_scaled_loss", "get_unscaled_gradients")
}
# Every source that uses a name of TensorFlow, or of an object that may be
# TensorFlow, has one of these words.
_MENTIONS = re.compile(
  r"tensorflow|LossScale|loss_scale|mixed_precision"
  rf"|{'|'.join((*_METHODS, *_KERAS_2_METHODS))}"
)

_ASKING = ("getattr", "hasattr")
# What Keras 3 lacks, and the private modules, which are of Keras 2.
_KERAS_2 = re.compile(
  r"python\.keras\b|keras\.((\w+\.)?experimental|estimator"
  r"|backend\.(function|(set_)?learning_phase|placeholder|[gs]et_session)"
  r"|layers\.(AbstractRNNCell|DenseFeatures|LocallyConnected\dD)"
  r"|metrics\.(MeanRelativeError|MeanTensor)|models\.model_from_config"
  rf"|mixed_precision\.LossScaleOptimizer\.({'|'.join(_KERAS_2_METHODS)}))\b"
)
# TensorFlow 2 implements these with Keras.
_KERAS = frozenset(["keras", "layers", "nn.rnn_cell", "python.keras"])

# The names in the table of legacy names; `get` is too common a name.
_LAST_PARTS = frozenset(
  name
  for found in legacy_names.NAMES_IN.values()
  for name in found
  if name != "get"
)
_PLACES = re.compile(
  r"\.((?:compat\.v1\.)?(?:train\.experimental|contrib\.mixed_precision"
  r"|(?:keras\.)?mixed_precision\.experimental)\.\w+)$"
)
# `compat.v1.keras.mixed_precision.experimental.LossScale` has six parts.
_MOST_IN_PLACE = 6


@dataclasses.dataclass(eq=False)
class Source:
  """The facts that were read from a file of Python code.

  Attributes:
    path: The file.
    tree: The syntax tree.
    uses: The uses of legacy names, in order.
    tensorflow1: The uses, on plain `tensorflow`, of names that TensorFlow 2 has
      in `tf.compat.v1` alone.
    keras: The uses of Keras, and of modules built on Keras.
    imports: The imports of TensorFlow or of members of TensorFlow.
    modules: The dotted names of all imported modules; relative names begin with
      dots. Strings that may name modules are among them.
    estimators: The uses of `tf.estimator`, which is built on Keras 2.
    compat_v1: Whether the file uses `tensorflow.compat.v1`.
    names: All uses of TensorFlow's names, in order. Some may be uses of another
      object's names.
    units: Whether a program starts with the file -> the `Module` that
      `unit_names` reads.
  """

  path: str
  tree: ast.Module
  uses: list[uses_lib.Use] = dataclasses.field(default_factory=list)
  tensorflow1: list[uses_lib.Use] = dataclasses.field(default_factory=list)
  keras: list[uses_lib.Use] = dataclasses.field(default_factory=list)
  imports: list[uses_lib.Use] = dataclasses.field(default_factory=list)
  modules: list[str] = dataclasses.field(default_factory=list)
  estimators: list[uses_lib.Use] = dataclasses.field(default_factory=list)
  compat_v1: bool = False
  names: list[uses_lib.Use] = dataclasses.field(default_factory=list)
  units: dict[bool, Any] = dataclasses.field(default_factory=dict)
  _scopes: dict[ast.AST, scopes.Scope] = dataclasses.field(default_factory=dict)

  @functools.cached_property
  def needs_keras_2(self) -> bool:
    """Whether a name in the file says Keras 2."""
    if self.uses or self.estimators:
      return True
    # This package's optimizer for Keras 3 has the methods, too.
    has_ours = "tf_compat_lossscale" in self.modules
    return any(
      _KERAS_2.match(use.name.partition(".")[2].removeprefix("compat.v2."))
      for use in self.keras
      if not (has_ours and use.form == "method")
    )

  @functools.cached_property
  def nodes(self) -> list[ast.AST]:
    """All nodes of the tree, those near its root first."""
    return scopes.list_parts(self.tree)

  @functools.cached_property
  def _nodes_by_class(self) -> dict[type[ast.AST], list[Any]]:
    """Class -> the nodes of the class, in the order of `nodes`."""
    found: dict[type[ast.AST], list[Any]] = collections.defaultdict(list)
    for node in self.nodes:
      found[node.__class__].append(node)
    return found

  def list_nodes(self, kind: type[_Node]) -> list[_Node]:
    """Returns the nodes of a class, in the order of `nodes`."""
    return self._nodes_by_class.get(kind, [])

  @functools.cached_property
  def import_statements(self) -> list[ast.Import | ast.ImportFrom]:
    """All import statements, those in functions, too."""
    return [*self.list_nodes(ast.Import), *self.list_nodes(ast.ImportFrom)]

  @functools.cached_property
  def words(self) -> set[str]:
    """The names, and the last parts of the names, in the file."""
    return {
      *(node.id for node in self.list_nodes(ast.Name)),
      *(node.attr for node in self.list_nodes(ast.Attribute)),
      *(node.name.rpartition(".")[2] for node in self.list_nodes(ast.alias)),
    }

  @functools.cached_property
  def folders(self) -> list[str]:
    """The folders that the file adds to Python's path."""
    if {"sys", "sys.path", "site"}.isdisjoint(self.modules):
      return []
    from tf_compat_lossscale.programs import search_paths  # Seldom needed.

    return search_paths.find_folders(self.path, self.nodes)

  @functools.cached_property
  def scope(self) -> scopes.Scope:
    """The names that the module binds."""
    return scopes.Scope(self.tree, None)

  def enter(self, node: ast.AST, around: scopes.Scope) -> scopes.Scope:
    """Returns the scope of a node in `scopes.SCOPES`.

    Args:
      node: The node.
      around: The scope that the node is in.
    """
    if node not in self._scopes:
      self._scopes[node] = scopes.Scope(node, around)
    return self._scopes[node]

  @functools.cached_property
  def checks(self) -> version_checks.Checks:
    """The code that asks which TensorFlow there is."""
    assignments = self.list_nodes(ast.Assign)
    return version_checks.Checks(self.words, assignments, self.scope)


def find_module_name(node: ast.Constant) -> str | None:
  """Returns a constant that may be the dotted name of a module, or None.

  A name such as `train.py` is a file's: the program starts that file, and the
  new process decides for itself.
  """
  name = node.value
  if not isinstance(name, str) or "." not in name or name.endswith(".py"):
    return None
  return name if _DOTTED.fullmatch(name) else None


class _UseCollector:
  """Collects the uses of TensorFlow's names in a source."""

  def __init__(self, source: Source, text: str):
    self._source = source
    self._assigned: set[str] = set()
    if _MENTIONS.search(text):
      self._walk(source.tree.body, source.scope)
    else:
      self._walk_imports()
    # A program that assigns `tf.Session` has a Session of its own.
    source.tensorflow1 = [
      use for use in source.tensorflow1 if use.name not in self._assigned
    ]

  def _walk(self, nodes: Iterable[ast.AST], scope: scopes.Scope) -> None:
    """Collects the uses in nodes, and in all nodes below them."""
    for node in nodes:
      kind = node.__class__
      if kind is ast.Name:  # Such are most nodes.
        continue
      if kind not in _LOOKED_AT:
        self._walk(scopes.list_children(node), scope)
      elif isinstance(node, ast.Attribute):
        self._collect_attributes(node, scope)
      elif isinstance(node, ast.Constant):
        self._collect_text(node)
      elif isinstance(node, ast.Call):
        self._collect_call(node, scope)
        self._walk(scopes.list_children(node), scope)
      elif isinstance(node, ast.Import):
        self._collect_import(node)
      elif isinstance(node, ast.ImportFrom):
        self._collect_import_from(node)
      else:
        outside, inside = scopes.split(node)
        self._walk(outside, scope)
        self._walk(inside, self._source.enter(node, scope))

  def _walk_imports(self) -> None:
    """Collects the modules that a file without TensorFlow imports."""
    for node in self._source.nodes:
      if isinstance(node, ast.Import):
        self._collect_import(node)
      elif isinstance(node, ast.ImportFrom):
        self._collect_import_from(node)
      elif isinstance(node, ast.Constant):
        self._collect_text(node)

  def _collect_import(self, node: ast.Import) -> None:
    """Adds the modules of an `import`, and a use for each of TensorFlow's."""
    for alias in node.names:
      self._source.modules.append(alias.name)
      if scopes.if_tensorflow(alias.name):
        self._add(alias, alias.name, alias.name, "import")

  def _collect_import_from(self, node: ast.ImportFrom) -> None:
    """Adds the modules of a `from … import`, and uses for TensorFlow's."""
    module = scopes.get_module(node)
    self._source.modules.append(module)
    for alias in node.names:
      full = scopes.join(module, alias.name)
      self._source.modules.append(full)
      if not scopes.if_tensorflow(module):
        continue
      if alias.name == "*":
        self._add(node, f"from {module} import *", module, "star")
      else:
        self._add(alias, alias.name, full, "from")

  def _collect_attributes(
    self, node: ast.Attribute, scope: scopes.Scope
  ) -> None:
    """Adds the uses in `a.b.c`, which is looked at as a whole.

    If it is TensorFlow's, that is one use: of the longest legacy name in it, or
    of all of it.
    """
    attributes, root = scopes.list_attributes(node)
    given = next(iter(scope.resolve_all(root)), None)
    if given is None:
      far = len(attributes) - scopes.MOST_PARTS
      for i, part in enumerate(attributes):
        if part.attr in _METHODS:
          self._add(part, f".{part.attr}", _METHODS[part.attr], "method")
        elif part.attr in _KERAS_2_METHODS:
          full = _KERAS_2_METHODS[part.attr]
          self._add(part, f".{part.attr}", full, "method")
        elif part.attr in _LAST_PARTS and i >= far:
          last = [each.attr for each in attributes[i : i + _MOST_IN_PLACE]]
          self._collect_unknown(part, ".".join(["", *reversed(last)]))
      self._walk([root], scope)
      return
    full = scopes.add_attributes(given, attributes)
    if isinstance(node.ctx, ast.Store):
      self._assigned.add(full)
      return
    name = full
    for part in attributes[-scopes.MOST_PARTS :]:
      if uses_lib.find_home(name):
        # The root's full name is from an import or an assignment.
        form = "follows" if uses_lib.find_home(given) else "expression"
        self._add(part, scopes.unparse(part), name, form)
        return
      name = name.rpartition(".")[0]
    self._add(node, scopes.unparse(node), full, "expression")

  def _collect_call(self, node: ast.Call, scope: scopes.Scope) -> None:
    """Adds a use for `getattr(a, "b")`, or for a call of TensorFlow 1's."""
    if isinstance(node.func, ast.Name) and node.func.id in _ASKING:
      self._collect_question(node, scope)
      return
    function = scope.resolve(node.func)
    name = function and tensorflow_names.find_tensorflow_1_call(function, node)
    if name:
      self._add(node, name, f"tensorflow.{name}", "call")

  def _collect_question(self, node: ast.Call, scope: scopes.Scope) -> None:
    """Adds a use for `getattr(a, "b")` or `hasattr(a, "b")`."""
    full = scope.resolve(node) or scope.resolve_asked(node)
    if full is not None:
      if uses_lib.find_home(full):
        self._add(node, scopes.unparse(node), full, "getattr")
    elif node.args:
      owner = scope.resolve(node.args[0]) or ""
      if legacy_names.find_place(owner) in legacy_names.NAMES_IN:
        self._add(node, scopes.unparse(node), owner, "text")

  def _collect_unknown(self, node: ast.Attribute, last: str) -> None:
    """Adds a use for `x.train.experimental.LossScale`, if `x` is unknown.

    Args:
      node: The attribute.
      last: Its last attributes, each after a dot.
    """
    match = _PLACES.search(last)
    if match is not None:
      written = scopes.unparse(node)
      self._add(node, written, f"tensorflow.{match[1]}", "unknown")

  def _collect_text(self, node: ast.Constant) -> None:
    """Adds the module that a string may name, and a use for a legacy name."""
    name = find_module_name(node)
    if name is None:
      return
    self._source.modules.append(name)
    if scopes.if_tensorflow(name):
      self._add(node, scopes.unparse(node), name, "text")

  def _add(self, node: Any, written: str, name: str, form: str) -> None:
    """Adds a use to every list that it belongs to."""
    place = legacy_names.find_place(name)
    if place is None:
      return
    home = uses_lib.find_home(name)
    if form in ("star", "text") and not home and place in legacy_names.NAMES_IN:
      home = next(iter(legacy_names.NAMES_IN[place].values()))
    use = uses_lib.Use(node.lineno, written, name, home, form, node)
    if form == "text" and not home:
      return
    self._source.names.append(use)
    if form == "unknown":
      return
    if use.home:
      self._source.uses.append(use)
    if form in ("import", "from", "star"):
      self._source.imports.append(use)
    parts = place.module.split(".")
    starts = {parts[0], ".".join(parts[:2])}
    plain = name == f"tensorflow.{place.module}"
    if form == "call" or (
      plain and tensorflow_names.find_tensorflow_1_name(place.module)
    ):
      self._source.tensorflow1.append(use)
    self._source.compat_v1 |= place.space == "v1"
    if starts & _KERAS:
      self._source.keras.append(use)
    if "estimator" in starts:
      self._source.estimators.append(use)


@contextlib.contextmanager
def allow_depth() -> Iterator[None]:
  """Allows functions to walk deep trees: a sum of 1,000 terms is as deep."""
  limit = sys.getrecursionlimit()
  sys.setrecursionlimit(max(limit, _DEPTH))
  try:
    yield
  finally:
    sys.setrecursionlimit(limit)


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
  except OSError as error:
    raise SourceError(f"{path}: {error.strerror}") from None
  except (SyntaxError, UnicodeDecodeError, ValueError) as error:
    raise _explain(path, error) from None
  return read_text(path, text)


def parse(path: str, text: str) -> ast.Module:
  """Returns the syntax tree of a text.

  Raises:
    SourceError: This Python cannot parse the text.
  """
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # Of "\\d" in a string, and others.
      return ast.parse(text, path)
  except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
    raise _explain(path, error) from None


def read_text(path: str, text: str) -> Source:
  """Reads the text of a file.

  Raises:
    SourceError: This Python cannot parse the text.
  """
  source = Source(path, parse(path, text))
  try:
    with allow_depth():
      _UseCollector(source, text)
  except RecursionError:
    raise SourceError(
      f"{path}:1: cannot be read: its code is nested too deeply"
    ) from None
  return source


def _explain(path: str, error: Exception) -> SourceError:
  """Returns the error for a text that is not Python."""
  line = getattr(error, "lineno", None) or 1
  reason = getattr(error, "msg", None) or str(error) or "too deep"
  return SourceError(f"{path}:{line}: cannot be parsed: {reason}")
