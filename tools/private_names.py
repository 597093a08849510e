# SPDX-License-Identifier: Apache-2.0
"""The private names of others that the package uses outside of its doors.

`tests/repository/house_test.py` finds the uses in the sources, and compares
them with the list. `surface.py` asks whether a TensorFlow has the names.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import pathlib
import re

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_ASKING = ("getattr", "hasattr", "setattr", "delattr")
# Names with an underscore that Python documents as public.
_PYTHONS = {"_", "_asdict", "_exit", "_fields", "_make", "_replace"}
_OWN = "an attribute of this package's own class, without a public name yet"
_HEAD = "the head that tf.contrib.estimator's function made"
_BY_STRING = "tensorflow.python"

# These may use any private name of TensorFlow and of Keras 2.
DOORS = ("_core.tf.", "keras._keras2.")
# Short name -> a class that others own, as a target of a table.
OWNERS = {
  "Adam": "py.training.adam.AdamOptimizer",
  "Keras": "keras2.optimizers.legacy.optimizer_v2.OptimizerV2",
  "Operation": "py.framework.ops.Operation",
  "Optimizer": "py.training.optimizer.Optimizer",
  "Trackable": "py.trackable.base.Trackable",
}
# Module or wing -> private names -> the reason of their use. A class of
# `OWNERS` comes before the name if there is one. "tensorflow.python" stands for
# strings with that name, by which modules are imported. Move a use behind a
# door rather than add a row.
USES: dict[str, dict[str, str]] = {
  "_core.graph_weights": {
    "_add_weight": "TensorFlow 1's loss scales had it: subclasses call it",
  },
  "_core.legacy_names": {_BY_STRING: "places of old releases"},
  "_core.optimizer_kinds": {
    _BY_STRING: "tells TensorFlow's own optimizers from those of a program",
    "_agg_helper": "what adds up the gradients of Horovod's passes",
    "_backward_passes_per_step": "the passes of Horovod's Adasum",
  },
  "accumulation": {
    "Optimizer._create_non_slot_variable": "makes the number of micro-batches",
    "Optimizer._get_non_slot_variable": "finds the number of micro-batches",
    "Optimizer._get_or_make_slot_with_initializer": (
      "makes slots of sums, outside of the optimizer's own names"
    ),
    "_loss_scale": _OWN,
    "_optimizer": _OWN,
  },
  "contrib": {"_add_weight": _OWN},
  "keras": {
    "Trackable._lookup_dependency": "finds the optimizer that was not wrapped",
    "Trackable._track_trackable": (
      "names a child as the checkpoints of old releases do"
    ),
    "Trackable._trackable_children": "lists children as old releases did",
  },
  "keras.optimizer_states": {
    "_trainable_variables": "the weights of the slots of Keras 3's optimizers",
  },
  "loss_scale": {"_add_weight": _OWN},
  "loss_scale_optimizer": {
    "Trackable._lookup_dependency": "finds the optimizer that was not wrapped",
    "Trackable._trackable_children": "lists children as old releases did",
  },
  "migration.rewrites.tensorflow_core": {_BY_STRING: "an example of the rule"},
  "policies": {"_add_weight": _OWN},
  "programs.import_hooks": {
    "_getframe": "tells `find_spec` and `from a import b` from `import a.b`",
  },
  "programs.missing_names": {_BY_STRING: "tells private names from others"},
  "programs.old_keras": {
    _BY_STRING: "TensorFlow 1's layers, made from Keras 2"
  },
  "programs.old_methods": {
    _BY_STRING: "the module that TensorBoard's error comes from",
    "_GetNdArray": "what an assertion of a test compares",
    "_SEED_GENERATOR": "seeds the initializers of Keras 2",
    "_unconditional_loss": "marks the losses of a layer's weights",
  },
  "programs.tables": {_BY_STRING: "old modules; `surface.py` asks the targets"},
  "programs.tensorflow1": {
    _BY_STRING: "the wrapper that TensorFlow's modules have",
    "_getframe": "tells which module asks for a name, and is told accordingly",
  },
  # What subclasses of `tf.train.Optimizer` override and inherit. TensorFlow
  # documents these names for subclasses, and has no public ones.
  "tf1_contrib": {
    "Adam._beta1": "the start of AdaMaxOptimizer's power",
    "Adam._beta1_t": "the rate of decay, as a tensor",
    "Adam._beta2_t": "the rate of decay, as a tensor",
    "Adam._epsilon_t": "epsilon, as a tensor",
    "Adam._get_beta_accumulators": "the powers of the rates of decay",
    "Adam._lr_t": "the learning rate, as a tensor",
    "Operation._set_device": "moves an op of Python to the CPU",
    "Optimizer._apply_dense": "the rule for reference variables",
    "Optimizer._apply_sparse": "the same for rows",
    "Optimizer._create_non_slot_variable": "makes AdaMaxOptimizer's power",
    "Optimizer._create_slots": "makes the slots",
    "Optimizer._finish": "changes the power after a step",
    "Optimizer._prepare": "makes tensors of numbers",
    "Optimizer._resource_apply_dense": "the rule for resource variables",
    "Optimizer._resource_apply_sparse": "the same for rows",
    "Optimizer._use_locking": "whether kernels lock",
    "Optimizer._zeros_slot": "makes a slot of zeros",
    "_binary_logistic_head_with_sigmoid_cross_entropy_loss": _HEAD,
    "_multi_class_head_with_softmax_cross_entropy_loss": _HEAD,
    "_regression_head": _HEAD,
  },
}


def read_modules() -> dict[str, ast.Module]:
  """Returns the package's modules and those of tf1_contrib, parsed."""
  found = {}
  for folder in ("tf_compat_lossscale", "tf1_contrib"):
    for path in sorted((_ROOT / folder).rglob("*.py")):
      name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
      name = name.removeprefix("tf_compat_lossscale.")
      found[name] = ast.parse(path.read_text("utf-8"))
  return found


def list_defined(tree: ast.AST) -> set[str]:
  """Returns the names that a module defines or sets on its own objects."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
      names.add(node.name)
    elif isinstance(node, ast.alias):
      names.add(node.asname or node.name)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      names.add(node.id)
    elif (
      isinstance(node, ast.Attribute)
      and isinstance(node.ctx, ast.Store)
      and ast.unparse(node.value) in ("self", "cls")
    ):
      names.add(node.attr)
  return names


def list_private(tree: ast.AST) -> Iterator[tuple[str, bool]]:
  """Yields the private names that a module uses as attributes.

  Yields:
    Pairs of the name and whether its object is `self`, `cls` or `super()`.
  """
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute):
      owner, name = node.value, node.attr
    elif (
      isinstance(node, ast.Call)
      and ast.unparse(node.func) in _ASKING
      and isinstance(node.args[1], ast.Constant)
    ):
      owner, name = node.args[0], node.args[1].value
    else:
      continue
    is_dunder = name.startswith("__") and name.endswith("__")
    if name.startswith("_") and not is_dunder and name not in _PYTHONS:
      yield name, ast.unparse(owner) in ("self", "cls", "super()")


def list_door(tree: ast.AST) -> Iterator[str]:
  """Yields the names of TensorFlow that a door uses.

  A name is a target as the tables have it, or "." and an attribute, if the
  attribute's owner is not known.
  """
  aliases = {}
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom):
      for alias in node.names:
        aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    elif isinstance(node, ast.Constant):
      if re.fullmatch(rf"{_BY_STRING}(\.\w+)+", str(node.value)):
        yield node.value
    elif isinstance(node, ast.Call) and "find_private" in ast.unparse(
      node.func
    ):
      yield "py." + ".".join(ast.literal_eval(each) for each in node.args)
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute):
      first, _, rest = ast.unparse(node).partition(".")
      if aliases.get(first, "").startswith(f"{_BY_STRING}."):
        yield f"{aliases[first]}.{rest.partition('.')[0]}"
  own = list_defined(tree)
  yield from (f".{name}" for name, _ in list_private(tree) if name not in own)


def _list_members(tree: ast.AST) -> Iterator[str]:
  """Yields the names that the classes of a module define."""
  for node in ast.walk(tree):
    if isinstance(node, ast.ClassDef):
      for statement in node.body:
        yield from list_defined(statement)


def _names_module(tree: ast.AST) -> bool:
  """Returns whether strings or attributes name a private module.

  Docstrings do not count.
  """
  documents = {
    node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)
  }
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute) and re.fullmatch(
      r"(tf|tensorflow)\.python", ast.unparse(node)
    ):
      return True
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    if is_text and _BY_STRING in node.value and node not in documents:
      return True
  return False


def find_uses(
  trees: Mapping[str, ast.AST], inherited: Collection[str]
) -> set[tuple[str, str]]:
  """Returns the uses outside of the doors: pairs of a key of `USES` and a name.

  Args:
    trees: Name of a module -> the parsed module.
    inherited: The private names that base classes of the package's classes
      define, if others own the classes. To define such a name is a use.
  """
  defined = {module: list_defined(tree) for module, tree in trees.items()}
  everything = set().union(*defined.values())
  found = set()
  for module, tree in trees.items():
    if f"{module}.".startswith(DOORS):
      continue
    fits = [x for x in USES if f"{module}.".startswith(f"{x}.")]
    place = max(fits, key=len, default=module)
    names = {name for name in _list_members(tree) if name in inherited}
    for name, is_own in list_private(tree):
      if name in inherited or name not in (
        everything if is_own else defined[module]
      ):
        names.add(name)
    names |= {_BY_STRING} if _names_module(tree) else set()
    found |= {(place, name) for name in names}
  return found


def list_uses() -> set[tuple[str, str]]:
  """Returns the pairs that `USES` has, without the owners."""
  return {
    (place, name.rpartition(".")[2] if name != _BY_STRING else name)
    for place, names in USES.items()
    for name in names
  }
