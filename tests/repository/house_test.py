# SPDX-License-Identifier: Apache-2.0
"""Tests the rules of the package's structure.

A table has a reason for each private name of others that the package uses
elsewhere than behind its doors.
"""

import ast
import functools
import importlib
import inspect
import json
import re

import helpers
import project_files
import pytest

import tf_compat_lossscale as tfl

_PACKAGE = helpers.ROOT / "tf_compat_lossscale"
_MODULES = sorted(_PACKAGE.rglob("*.py"))
_LEAVES = sorted((helpers.ROOT / "tf1_contrib").glob("*.py"))
# The public modules; "" is the package itself.
_PUBLIC = ["", *sorted(set(dir(tfl)) - set(tfl.__all__))]

# A wing (a module or subpackage) imports only wings of earlier rows.
_WINGS = (
  ("_requirements", "_version"),
  ("_lazy",),
  ("_core.legacy_names",),
  ("_core",),
  ("_step_log",),
  ("gradients",),
  ("loss_scale",),
  ("loss_scale_optimizer", "policies"),
  ("accumulation", "contrib", "graph_rewrite"),
  ("environment",),
  ("distributed", "monitoring"),
  ("keras",),
  ("checkpoint",),
  ("programs",),
  ("migration",),
  ("__init__",),
  ("cli",),
  ("__main__",),
)


def name_of(path):
  """Returns the dotted name of a module, without that of the package."""
  name = ".".join(path.relative_to(helpers.ROOT).with_suffix("").parts)
  return name.removeprefix("tf_compat_lossscale.")


def wing_of(name):
  """Returns the row of `_WINGS` that a module belongs to."""
  while name:
    for row, wings in enumerate(_WINGS):
      if name in wings:
        return row
    name = name.rpartition(".")[0]
  return None


imported_names = functools.partial(project_files.imported_names, types=True)


def imported_modules(path):
  """Yields the names of the package's modules that a module imports."""
  prefix = f"{tfl.__name__}."
  for name in imported_names(path):
    if name.startswith(prefix):
      name = name.removeprefix(prefix)
      while name and not is_module(name):
        name = name.rpartition(".")[0]
      yield name or "__init__"


def is_module(name):
  path = _PACKAGE.joinpath(*name.split("."))
  return path.is_dir() or path.with_suffix(".py").exists()


def find_imports(is_wrong):
  """Returns the imports in the package for which `is_wrong(own, name)`."""
  return [
    f"{name_of(path)} imports {name}"
    for path in _MODULES
    for name in imported_modules(path)
    if is_wrong(name_of(path), name)
  ]


@pytest.mark.any_release
def test_wings():
  def is_wrong(own, name):
    if own.endswith("__init__") and name.startswith(own[: -len("__init__")]):
      return False  # A package loads its own modules when they are used.
    same = wing_of(name) == wing_of(own) is not None
    is_inside = same and not is_sibling(own, name)
    return not (is_inside or wing_of(name) < wing_of(own))

  assert not find_imports(is_wrong)


def is_sibling(one, other):
  """Returns whether two modules are of different wings of the same row."""
  row = _WINGS[wing_of(one)]
  return len(row) > 1 and one.split(".")[0] != other.split(".")[0]


def test_a_name_stands_for_one_module():
  """Checks that a reader of `names.f()` need not ask which `names` is meant."""
  stems = [path.stem for path in _MODULES if not path.stem.startswith("__")]
  assert not {stem for stem in stems if stems.count(stem) > 1}


def test_no_module_imports_itself_by_way_of_others():
  graph = {
    name_of(path): set(imported_modules(path))
    for path in _MODULES
    if path.name != "__init__.py"
  }
  while free := [name for name, names in graph.items() if not names & {*graph}]:
    for name in free:
      del graph[name]
  assert not graph


@pytest.mark.any_release
def test_underscored_modules_stay_in_their_folder():
  def is_wrong(own, name):
    folder, parts = own.rpartition(".")[0], name.split(".")
    homes = [
      "".join(f"{parent}." for parent in parts[:i])
      for i, part in enumerate(parts)
      if part.startswith("_") and not part.startswith("__")
    ]
    return not all(f"{folder}.".startswith(home) for home in homes)

  assert not find_imports(is_wrong)


@pytest.mark.any_release
def test_one_door():
  for path in _MODULES:
    for name in imported_names(path):
      if "_core/tf/" not in path.as_posix():
        assert not name.startswith("tensorflow.python"), path
      assert "training.experimental.loss_scale" not in name, path
      assert "keras" not in name.split(".")[0], path
      assert not name.startswith("tensorflow.keras"), path


@pytest.mark.any_release
def test_pieces_of_contrib_are_leaves():
  for path in _LEAVES:
    for name in imported_names(path):
      assert not name.startswith(("tensorflow.python", tfl.__name__)), path


@pytest.mark.any_release
@pytest.mark.parametrize("name", _PUBLIC)
def test_dir_is_the_api_and_all_of_it_is_documented(name):
  module = importlib.import_module(f"{tfl.__name__}.{name}".rstrip("."))
  modules = [] if name else _PUBLIC[1:]
  assert dir(module) == sorted([*module.__all__, *modules])
  if name == "keras":  # It needs Keras 2.
    return
  functions = []
  for each in module.__all__:
    value = getattr(module, each)
    if inspect.isclass(value) and value.__module__.startswith(tfl.__name__):
      functions += vars(value).values()
    functions.append(value)
  assert dir(module) == sorted([*module.__all__, *modules])
  for function in filter(inspect.isfunction, functions):
    # The base class documents these.
    trivial = function.__name__ in {"get_config", "update"}
    assert function.__doc__ or trivial or function.__name__[0] == "_", function


def test_names_that_are_not_there():
  assert tfl.loss_scale.get is tfl.get
  with pytest.raises(AttributeError, match="LossScales"):
    tfl.LossScales  # noqa: B018
  with pytest.raises(AttributeError, match=r"did you mean .*\.describe"):
    tfl.describe  # noqa: B018


_ADDED = """
import json, sys
{before}
known = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - known)))
"""


def test_names_bring_no_keras_and_little_else():
  code = _ADDED.format(
    before="import tensorflow", statement="from tf_compat_lossscale import *"
  )
  # What the fork server has loaded does not count.
  added = json.loads(helpers.run_forked("-c", code).splitlines()[-1])
  assert "tf_compat_lossscale.graph_rewrite" in added
  assert "tf_compat_lossscale.cli" not in added
  for name in added:
    assert name.startswith(("tf_compat_lossscale", "tensorflow")), name


def test_the_package_alone_and_the_command_line_need_no_tensorflow():
  statement = "import tf_compat_lossscale, tf_compat_lossscale.cli"
  code = _ADDED.format(before="", statement=statement)
  added = json.loads(helpers.run_python("-c", code))
  assert not [name for name in added if name.startswith("tensorflow")]


# Private names of others.

# Names with an underscore that Python documents as public.
_PYTHONS = {"_", "_asdict", "_exit", "_fields", "_make", "_replace"}
_ASKING = ("getattr", "hasattr", "setattr", "delattr")

_OWN = "an attribute of this package's own class, without a public name yet"

# These may use any private name of TensorFlow and of Keras 2.
_DOORS = ("_core.tf.", "keras._keras2.")
# Module or wing -> private names of foreign objects -> the reason of their use.
# Move a use behind a door rather than add a row.
_HEAD = "the head that tf.contrib.estimator's function made"
_USES = {
  "_core.optimizer_kinds": {
    "_agg_helper": "what adds up the gradients of Horovod's passes",
    "_backward_passes_per_step": "the passes of Horovod's Adasum",
  },
  "accumulation": {
    "_create_non_slot_variable": "makes the number of micro-batches",
    "_get_non_slot_variable": "finds the number of micro-batches",
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
    "_GetNdArray": "what an assertion of a test compares",
    "_unconditional_loss": "marks the losses of a layer's weights",
    "_SEED_GENERATOR": "seeds the initializers of Keras 2",
  },
  # What subclasses of `tf.train.Optimizer` inherit. TensorFlow documents these
  # names for subclasses, and has no public ones.
  "tf1_contrib": {
    "_binary_logistic_head_with_sigmoid_cross_entropy_loss": _HEAD,
    "_multi_class_head_with_softmax_cross_entropy_loss": _HEAD,
    "_regression_head": _HEAD,
    "_beta1": "the start of AdaMaxOptimizer's power",
    "_beta1_t": "AdamOptimizer's rate of decay, as a tensor",
    "_beta2_t": "AdamOptimizer's rate of decay, as a tensor",
    "_create_non_slot_variable": "makes AdaMaxOptimizer's power",
    "_epsilon_t": "AdamOptimizer's epsilon, as a tensor",
    "_lr_t": "AdamOptimizer's learning rate, as a tensor",
    "_set_device": "moves an op of Python to the CPU",
    "_use_locking": "whether AdamOptimizer's kernels lock",
    "_zeros_slot": "makes a slot of zeros",
  },
  "keras": {
    "_track_trackable": "names a child as the checkpoints of old releases do",
  },
}


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
      and ast.unparse(node.value) in ("self", "cls")
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
      and ast.unparse(node.func) in _ASKING
      and isinstance(node.args[1], ast.Constant)
    ):
      owner, name = node.args[0], node.args[1].value
    else:
      continue
    is_dunder = name.startswith("__") and name.endswith("__")
    if name.startswith("_") and not is_dunder and name not in _PYTHONS:
      yield name, ast.unparse(owner) in ("self", "cls", "super()")


def test_the_table_lists_the_private_names_that_are_used():
  trees = {
    name_of(path): ast.parse(path.read_text("utf-8"))
    for path in (*_MODULES, *_LEAVES)
  }
  defined = {module: defined_names(tree) for module, tree in trees.items()}
  everything = set().union(*defined.values())
  used = set()
  for module, tree in trees.items():
    if f"{module}.".startswith(_DOORS):
      continue
    fits = [x for x in _USES if f"{module}.".startswith(f"{x}.")]
    place = max(fits, key=len, default=module)
    for name, is_own in used_names(tree):
      if name not in (everything if is_own else defined[module]):
        used.add((place, name))
  listed = {(place, name) for place, names in _USES.items() for name in names}
  assert not (unlisted := used - listed), (
    f"use a public name, or move behind a door: {sorted(unlisted)}"
  )
  assert not listed - used, f"remove the rows: {sorted(listed - used)}"


def test_marked_tests_are_there():
  """Checks the names in a BUILD file, of which Bazel would say nothing."""
  build = (helpers.TESTS / "BUILD").read_text("utf-8")
  names = re.findall(r'^    "(\S+_test)",$', build, re.MULTILINE)
  assert len(names) >= 4
  for name in names:
    assert (helpers.TESTS / f"{name}.py").exists(), name
