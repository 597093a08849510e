# SPDX-License-Identifier: Apache-2.0
"""Gradients of a loss that the optimizer's loss scale did not scale.

The program passes the gradients of `tf.gradients`, of a `GradientTape` or of
the inner optimizer to `apply_gradients` of the optimizer that has the loss
scale. So the loss is never scaled, small float16 gradients become 0, and a
dynamic loss scale changes for nothing. TensorFlow 1 trained such programs
without a word.

Compute the gradients by `compute_gradients` of the optimizer that has the loss
scale; with Keras, by `get_scaled_loss` and `get_unscaled_gradients`. Or
multiply the loss by the loss scale, and divide the gradients by it. The place
is left to you.

`scan` follows names within a function, and attributes within a file. It says
nothing if a name on the way from the loss to `apply_gradients` speaks of a
scale. A program that runs warns once, also of what `scan` cannot see: see
[training](../training.md#a-loss-that-is-not-scaled).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from collections.abc import Iterator

from tf_compat_lossscale.migration import files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import scopes

_WRAPPERS = (
  "LossScaleOptimizer",
  "MixedPrecisionLossScaleOptimizer",
  "NPULossScaleOptimizer",
  "NPUOptimizer",
  "enable_mixed_precision_graph_rewrite",
)
_COMPUTE = "compute_gradients"
_EXAMPLE = """\
import tensorflow.compat.v1 as tf
import tf_compat_lossscale as tfl
tf.disable_v2_behavior()

w = tf.get_variable("w", initializer=[1.0, 2.0])
loss = tf.reduce_sum(w * w)
opt = tfl.MixedPrecisionLossScaleOptimizer(tf.train.AdamOptimizer(), "dynamic")
grads = tf.gradients(loss, [w])
train_op = opt.apply_gradients(zip(grads, [w]))
"""


@rules.rule("LS601", "bypassed-scale", (_EXAMPLE, _EXAMPLE))
def find(file: files.File) -> Iterator[findings.Finding]:
  """Yields the calls of `apply_gradients` that bypass a loss scale."""
  text = file.document.text
  if "apply_gradients" not in text or not any(w in text for w in _WRAPPERS):
    return
  code = _Code(file)
  for call, place in code.applied:
    optimizer = scopes.find_dotted_name(call.func.value)  # type: ignore[attr-defined]
    inner = code.find_inner(optimizer, place) if optimizer else None
    if optimizer is None or inner is None:
      continue
    source = code.find_bypass(call, place, optimizer, inner)
    if source is not None:
      yield file.make(
        "LS601",
        call.func,
        f"{optimizer}.apply_gradients",
        _advise(optimizer, source),
        findings.BY_HAND,
        "the loss is never multiplied by the loss scale",
      )


def _advise(optimizer: str, source: ast.Call) -> str:
  """Returns what to do.

  Args:
    optimizer: The optimizer that has the loss scale.
    source: The call that computes the gradients.
  """
  shown = f"{scopes.unparse(source.func)}(…)"
  if scopes.unparse(source.func).endswith(".gradient"):  # Of a tape.
    return f"scale the loss, and unscale the gradients of {shown}"
  return f"{optimizer}.{_COMPUTE}(loss) instead of {shown}"


# The functions around a node, the outermost first.
_Place = tuple[ast.AST, ...]


class _Code:
  """The assignments and calls of a file, with the functions around them.

  Attributes:
    applied: The calls of a method `apply_gradients`, each with its place.
  """

  def __init__(self, file: files.File) -> None:
    """Reads a file."""
    self._root = file.source.scope
    self.applied: list[tuple[ast.Call, _Place]] = []
    # Name -> (place, value); a name with a dot counts in the whole file.
    self._values: dict[str, list[tuple[_Place, ast.AST]]] = {}
    self._own: set[str] = set()
    self._computed: list[tuple[str, _Place]] = []
    for node in file.source.nodes:
      place = file.source.functions_around[node]
      if isinstance(node, ast.ClassDef):
        self._own.add(node.name)
      elif isinstance(node, ast.Assign):
        for target in node.targets:
          self._assign(target, node.value, place)
      elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        if node.value is not None:
          self._assign(node.target, node.value, place)
      elif isinstance(node, ast.NamedExpr):
        self._assign(node.target, node.value, place)
      elif isinstance(node, (ast.For, ast.comprehension)):
        self._assign(node.target, node.iter, place)
      elif isinstance(node, ast.Call):
        self._collect_call(node, place)

  def _assign(self, target: ast.AST, value: ast.AST, place: _Place) -> None:
    """Adds a value to those of each name in a target."""
    if isinstance(target, (ast.Tuple, ast.List)):
      for each in target.elts:
        self._assign(each, value, place)
      return
    if isinstance(target, (ast.Starred, ast.Subscript)):
      self._assign(target.value, value, place)
      return
    name = scopes.find_dotted_name(target)
    if name is not None:
      self._values.setdefault(name, []).append((place, value))

  def _collect_call(self, call: ast.Call, place: _Place) -> None:
    """Adds a call, if it applies or computes gradients, or fills a list."""
    if not isinstance(call.func, ast.Attribute):
      return
    owner = scopes.find_dotted_name(call.func.value)
    if owner is None:
      return
    if call.func.attr == "apply_gradients" and (call.args or call.keywords):
      self.applied.append((call, place))
    elif call.func.attr in (_COMPUTE, "minimize"):
      self._computed.append((owner, place))
    elif call.func.attr in ("append", "extend", "insert") and call.args:
      self._values.setdefault(owner, []).append((place, call.args[-1]))

  def _list_values(self, name: str, place: _Place) -> Iterator[ast.AST]:
    """Yields the values that a name may have at a place."""
    for there, value in self._values.get(name, ()):
      if "." in name or place[: len(there)] == there:
        yield value

  def find_inner(self, optimizer: str, place: _Place) -> set[str] | None:
    """Returns what an optimizer wraps: dotted names; None if no loss scale."""
    inner: set[str] = set()
    is_wrapper = False
    for value in self._list_values(optimizer, place):
      if not isinstance(value, ast.Call):
        continue
      name = scopes.unparse(value.func).rpartition(".")[2]
      if name not in _WRAPPERS or name in self._own:
        continue
      if name == "NPUOptimizer" and not _may_scale(value):
        continue
      is_wrapper = True
      given = [*value.args, *(each.value for each in value.keywords)]
      inner |= {x for x in map(scopes.find_dotted_name, given) if x}
    return inner - {optimizer} if is_wrapper else None

  def find_bypass(
    self, call: ast.Call, place: _Place, optimizer: str, inner: set[str]
  ) -> ast.Call | None:
    """Returns the call that computes gradients past a loss scale, or None.

    Args:
      call: The call of `apply_gradients`.
      place: Its place.
      optimizer: The optimizer, a dotted name.
      inner: What it wraps.
    """
    if any(
      owner == optimizer and ("." in owner or place[:1] == there[:1])
      for owner, there in self._computed
    ):
      return None
    found: ast.Call | None = None
    given = [*call.args, *(each.value for each in call.keywords)]
    waiting: list[ast.AST] = [given[0]]
    known: set[str] = set()
    for node in waiting:  # The list grows meanwhile.
      for part in scopes.list_parts(node):
        if any("scal" in word.lower() for word in _list_words(part)):
          return None
        if isinstance(part, ast.Call):
          if self._computes(part, place, inner):
            found = found or part
          elif getattr(part.func, "attr", None) == _COMPUTE:
            return None
        name = scopes.find_dotted_name(part)
        if name is not None and name not in known:
          known.add(name)
          waiting += self._list_values(name, place)
    return found

  def _computes(self, call: ast.Call, place: _Place, inner: set[str]) -> bool:
    """Returns whether a call computes gradients of a loss as it is."""
    if not isinstance(call.func, ast.Attribute):
      return False
    owner = scopes.find_dotted_name(call.func.value)
    if call.func.attr == _COMPUTE:
      return owner in inner
    if owner is None:
      return False
    if call.func.attr == "gradients":
      full = self._root.resolve(call.func) or ""
      return full.startswith("tensorflow.")
    return call.func.attr == "gradient" and len(call.args) > 1


def _may_scale(call: ast.Call) -> bool:
  """Returns whether a call of `NPUOptimizer` may ask for a loss scale."""
  given = [x.value for x in call.keywords if x.arg == "is_loss_scale"]
  return any(
    not isinstance(each, ast.Constant) or each.value
    for each in given or call.args[3:4]
  )


def _list_words(node: ast.AST) -> Iterable[str]:
  """Returns the names and the text that a node itself has."""
  if isinstance(node, ast.Name):
    return (node.id,)
  if isinstance(node, ast.Attribute):
    return (node.attr,)
  if isinstance(node, ast.keyword):
    return (node.arg or "",)
  if isinstance(node, ast.Constant) and isinstance(node.value, str):
    return (node.value,)
  return ()
