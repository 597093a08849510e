# SPDX-License-Identifier: Apache-2.0
"""Tests that private names of others are used behind the doors to them.

A table has a reason for each private name that is used elsewhere.
"""

import ast

import helpers
import pytest

pytestmark = pytest.mark.any_release

_PACKAGES = [helpers.ROOT / "tf_compat_lossscale", helpers.ROOT / "tf1_contrib"]

# Names with an underscore that Python documents as public.
_PYTHONS = {"_asdict", "_exit", "_fields", "_make", "_replace"}

_OWN = "an attribute of this package's own class, without a public name yet"

# These may use any private name of TensorFlow and of Keras 2.
_DOORS = ("_core.tf", "keras._keras2")
# Module or wing -> private names of foreign objects -> the reason of their use.
# Move a use behind a door rather than add a row.
_USES = {
  "_core.optimizer_kinds": {
    "_agg_helper": "what adds up the gradients of Horovod's passes",
    "_backward_passes_per_step": "the passes of Horovod's Adasum",
  },
  "accumulation": {
    "_create_non_slot_variable": "makes the number of micro-batches",
    "_get_non_slot_variable": "finds the number of micro-batches",
    "_get_or_make_slot_with_initializer": "makes a sum in float32",
    "_loss_scale": _OWN,
    "_optimizer": _OWN,
  },
  "keras.optimizer_states": {
    "_trainable_variables": "the weights of the slots of Keras 3's optimizers",
  },
  "programs.import_hooks": {
    "_getframe": "tells `find_spec` and `from a import b` from `import a.b`",
  },
  "programs.tensorflow1": {
    "_getframe": "tells which module asks for a name, and is told accordingly",
  },
  "programs.old_methods": {
    "_SEED_GENERATOR": "seeds the initializers of Keras 2",
  },
  # What subclasses of `tf.train.Optimizer` inherit. TensorFlow documents these
  # names for subclasses, and has no public ones.
  "tf1_contrib": {
    "_beta1_t": "AdamOptimizer's rate of decay, as a tensor",
    "_beta2_t": "AdamOptimizer's rate of decay, as a tensor",
    "_epsilon_t": "AdamOptimizer's epsilon, as a tensor",
    "_get_beta_accumulators": "AdamOptimizer's powers of the rates of decay",
    "_lr_t": "AdamOptimizer's learning rate, as a tensor",
    "_set_device": "moves an op of Python to the CPU",
    "_zeros_slot": "makes a slot of zeros",
  },
  "keras": {
    "_track_trackable": "names a child as the checkpoints of old releases do",
  },
}


def name_of(path):
  """Returns the dotted name of a module, without that of the package."""
  name = ".".join(path.relative_to(helpers.ROOT).with_suffix("").parts)
  return name.removeprefix("tf_compat_lossscale.")


def is_name(node, *names):
  """Returns whether a node is a variable of one of these names."""
  return isinstance(node, ast.Name) and node.id in names


def is_private(name):
  """Returns whether a name is private: not `__name__`, not in `_PYTHONS`."""
  is_dunder = name.startswith("__") and name.endswith("__")
  return name.startswith("_") and not is_dunder and name not in {"_", *_PYTHONS}


def parse(source):
  """Returns the tree of a module, without what only type checkers read."""
  tree = ast.parse(source)
  for node in ast.walk(tree):
    if isinstance(node, ast.If) and is_name(node.test, "TYPE_CHECKING"):
      node.body = [ast.Pass()]
  return tree


def defined_names(tree):
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
      and is_name(node.value, "self", "cls")
    ):
      names.add(node.attr)
  return names


def used_names(tree):
  """Yields the private names that a module uses as attributes.

  Yields:
    Pairs of the name and whether its object is `self`, `cls` or `super()`.
  """
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute):
      owner, name = node.value, node.attr
    elif (
      isinstance(node, ast.Call)
      and is_name(node.func, "getattr", "hasattr", "setattr", "delattr")
      and isinstance(node.args[1], ast.Constant)
    ):
      owner, name = node.args[0], node.args[1].value
    else:
      continue
    if is_private(name):
      yield name, ast.unparse(owner) in ("self", "cls", "super()")


def foreign_names(sources):
  """Returns the private names that modules use and do not define.

  Args:
    sources: The text of each module of the package.

  Returns:
    Module -> the private names that the module uses but does not define. A name
    on `self`, `cls` or `super()` is left out if any other module defines it.
  """
  trees = {module: parse(source) for module, source in sources.items()}
  defined = {module: defined_names(tree) for module, tree in trees.items()}
  everything = set().union(*defined.values())
  return {
    module: {
      name
      for name, is_own in used_names(tree)
      if name not in (everything if is_own else defined[module])
    }
    for module, tree in trees.items()
  }


def find_place(module, places):
  """Returns the longest of some places that a module is in, or None."""
  fits = [x for x in places if f"{module}.".startswith(f"{x}.")]
  return max(fits, key=len, default=None)


def test_the_table_lists_what_is_used():
  uses = foreign_names(
    {
      name_of(path): path.read_text("utf-8")
      for package in _PACKAGES
      for path in sorted(package.rglob("*.py"))
    }
  )
  used = {
    (find_place(module, _USES) or module, name)
    for module, names in uses.items()
    if find_place(module, _DOORS) is None
    for name in names
  }
  listed = {(place, name) for place, names in _USES.items() for name in names}
  assert not used - listed, "use a public name, or move the use behind a door"
  assert not listed - used, "remove the row"


if __name__ == "__main__":
  helpers.main()
