# SPDX-License-Identifier: Apache-2.0
"""Tests the rules of the package's structure."""

import ast
import functools
import importlib
import inspect
import json
import re

import helpers
import private_names
import processes
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
  ("_releases", "_version"),
  ("_requirements",),
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
  added = json.loads(processes.run_forked("-c", code).splitlines()[-1])
  assert "tf_compat_lossscale.graph_rewrite" in added
  assert "tf_compat_lossscale.cli" not in added
  for name in added:
    assert name.startswith(("tf_compat_lossscale", "tensorflow")), name


def test_the_package_alone_and_the_command_line_need_no_tensorflow():
  statement = "import tf_compat_lossscale, tf_compat_lossscale.cli"
  code = _ADDED.format(before="", statement=statement)
  added = json.loads(processes.run_python("-c", code))
  assert not [name for name in added if name.startswith("tensorflow")]


_INHERITED = """
import contextlib, importlib, inspect, json, pkgutil, sys
import tf1_contrib
import tf_compat_lossscale as tfl

tfl.install()
found = set()
for package in (tf1_contrib, tfl):
  for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if info.name.endswith(("__main__", "sitecustomize")):
      continue
    with contextlib.suppress(ImportError):  # One needs Keras 3.
      importlib.import_module(info.name)
    for cls in vars(sys.modules.get(info.name, tfl)).values():
      if inspect.isclass(cls) and cls.__module__ == info.name:
        for base in cls.__mro__:
          if base.__module__.startswith(("tensorflow", "keras", "tf_keras")):
            found |= {n for n, v in vars(base).items() if callable(v)}
print(json.dumps([n for n in found if n[0] == "_" and n[-2:] != "__"]))
"""


@functools.cache
def list_inherited():
  """Returns the private methods of TensorFlow's and Keras's base classes."""
  printed = processes.run_forked("-c", _INHERITED, **helpers.KERAS_2)
  return frozenset(json.loads(printed.splitlines()[-1]))


def test_the_table_lists_the_private_names_that_are_used():
  modules = private_names.read_modules()
  used = private_names.find_uses(modules, list_inherited())
  listed, how = private_names.list_uses(), "use a public name, or a door"
  assert not used - listed, f"{how}: {sorted(used - listed)}"
  assert not listed - used, f"remove the rows: {sorted(listed - used)}"


@pytest.mark.parametrize(
  ("planted", "name"),
  [
    (
      'importlib.import_module("tensorflow.python.ops.math_ops")',
      "tensorflow.python",
    ),
    (
      "class Mine(_Window):\n  def _restore_slot_variable(self, *args): pass",
      "_restore_slot_variable",
    ),
    (
      "def f(opt):\n  return opt._restore_slot_variable",
      "_restore_slot_variable",
    ),
    ('def _slots(opt):\n  return getattr(opt, "_slots_of")', "_slots_of"),
    ("import tensorflow as tf\ntf.python.ops.math_ops", "tensorflow.python"),
  ],
)
def test_a_planted_use_is_found(planted, name):
  trees = private_names.read_modules()
  trees["accumulation"].body += ast.parse(planted).body
  found = private_names.find_uses(trees, list_inherited())
  assert ("accumulation", name) in found


_GONE = """
import sys
sys.path.insert(0, "tools")
import private_names
import surface
private_names.USES["policies"]["Optimizer._gone"] = "a test"
surface.tables.TABLE.names["tensorflow.python"]["old"] = "py.ops.math_ops.gone"
sys.exit(surface.main([]))
"""


def test_the_surface_tells_what_is_gone():
  """Checks that no private name is gone but for those that the test adds."""
  done = processes.complete_forked("-c", _GONE, cwd=helpers.ROOT)
  lines = done.stdout.splitlines()
  assert done.returncode == 1 and len(lines) == 3, done
  assert lines[0].startswith("Optimizer._gone: gone, used by policies: ")
  assert lines[1].startswith("py.ops.math_ops.gone: gone, used by tensorflow.")


def test_marked_tests_are_there():
  """Checks the names in a BUILD file, of which Bazel would say nothing."""
  build = (helpers.TESTS / "BUILD").read_text("utf-8")
  names = re.findall(r'^    "(\S+_test)",$', build, re.MULTILINE)
  assert len(names) >= 4
  for name in names:
    assert (helpers.TESTS / f"{name}.py").exists(), name
