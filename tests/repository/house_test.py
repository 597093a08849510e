# SPDX-License-Identifier: Apache-2.0
"""Tests the rules of the package's structure, and that no paths are local."""

import ast
import inspect
import json
import re

import helpers
import project_files
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import contrib
from tf_compat_lossscale import distributed
from tf_compat_lossscale import gradients
from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale import monitoring
from tf_compat_lossscale import policies

_PACKAGE = helpers.ROOT / "tf_compat_lossscale"
_MODULES = sorted(_PACKAGE.rglob("*.py"))

# A wing (a module or subpackage) imports only wings of earlier rows.
_WINGS = (
  ("_requirements", "_version"),
  ("_lazy",),
  ("_core.legacy_names",),
  ("_core",),
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
  """Returns the dotted name of a module within the package."""
  return ".".join(path.relative_to(_PACKAGE).with_suffix("").parts)


def wing_of(name):
  """Returns the row of `_WINGS` that a module belongs to."""
  while name:
    for row, wings in enumerate(_WINGS):
      if name in wings:
        return row
    name = name.rpartition(".")[0]
  return None


def imported_names(path):
  """Returns all names that a module imports, also for its types."""
  return project_files.imported_names(path, types=True)


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
  """Returns the imports of modules of the package for which a function says so.

  Args:
    is_wrong: Takes the name of a module and that of a module that it imports.
  """
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
def test_modules_say_what_they_are():
  for path in _MODULES:
    assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), path


@pytest.mark.any_release
def test_pieces_of_contrib_are_leaves():
  for path in sorted((helpers.ROOT / "tf1_contrib").glob("*.py")):
    for name in imported_names(path):
      assert not name.startswith(("tensorflow.python", tfl.__name__)), path


def public_functions():
  owners = (
    tfl,
    checkpoint,
    contrib,
    distributed,
    gradients,
    graph_rewrite,
    monitoring,
    policies,
  )
  for owner in owners:
    for name in dir(owner):
      value = getattr(owner, name)
      if name.startswith("_"):
        continue
      if inspect.isclass(value) and value.__module__.startswith(tfl.__name__):
        for method_name, method in vars(value).items():
          if inspect.isfunction(method) and not method_name.startswith("__"):
            yield f"{name}.{method_name}", method
      elif inspect.isfunction(value):
        yield name, value


@pytest.mark.any_release
@pytest.mark.parametrize(
  "function", [pytest.param(f, id=name) for name, f in public_functions()]
)
def test_signatures_are_typed_and_documented(function):
  parameters = [
    p
    for name, p in inspect.signature(function).parameters.items()
    if name != "self"
  ]
  for parameter in parameters:
    assert parameter.annotation is not inspect.Parameter.empty, parameter
  assert "return" in function.__annotations__
  trivial = {"get_config", "update"}  # The base class documents these.
  assert function.__doc__ or function.__name__ in trivial


def modules_added_by(statement, run, after=""):
  """Returns the modules that `statement` loads, if `after` has run before.

  Args:
    statement: The statement.
    run: `helpers.run_python`, or `helpers.run_forked` if what the fork server
      has loaded does not count.
    after: What to run before.
  """
  code = f"""
import json, sys
{after}
before = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
  return json.loads(run("-c", code).splitlines()[-1])


def test_names_bring_no_keras_and_little_else():
  added = modules_added_by(
    "from tf_compat_lossscale import *",
    helpers.run_forked,
    after="import tensorflow",
  )
  assert "tf_compat_lossscale.graph_rewrite" in added
  assert not [name for name in added if name.startswith(("keras", "tf_keras"))]
  assert "tf_compat_lossscale.cli" not in added
  for name in added:
    assert name.startswith(("tf_compat_lossscale", "tensorflow")), name


def test_the_package_alone_and_the_command_line_need_no_tensorflow():
  for statement in (
    "import tf_compat_lossscale",
    "import tf_compat_lossscale.cli",
  ):
    added = modules_added_by(statement, helpers.run_python)
    assert not [name for name in added if name.startswith("tensorflow")]


def test_names_are_loaded_when_used():
  assert set(tfl.__all__) <= set(dir(tfl))
  for name in tfl.__all__:
    assert getattr(tfl, name) is not None
  assert tfl.loss_scale.get is tfl.get
  with pytest.raises(AttributeError, match="LossScales"):
    tfl.LossScales  # noqa: B018


# An absolute path of one machine: in a folder of users, of temporary files or
# of additions to a system, or on a drive of Windows. A path with a part that
# the shell or the program fills in, such as a variable, does not match. The
# pattern is written so that it does not match itself.
_MACHINE_PATH = re.compile(
  r"(?<![\w.~$})*-])"
  r"/(?:home|Users|root|tmp|var/(?:folders|tmp)|private|work|workspace|builds|"
  r"mnt|media|Volumes|scratch|data|srv|opt)/[\w.]"
  r"|(?<!\w)[A-Z]:(?:/|\\\\|\\(?![nrt]))\w"
)


@pytest.mark.any_release
def test_no_file_names_a_folder_of_one_machine():
  files = list(project_files.text_files())
  found = [
    f"{path.relative_to(helpers.ROOT)}:{number}: {line.strip()[:100]}"
    for path, text in files
    for number, line in enumerate(text.splitlines(), 1)
    if _MACHINE_PATH.search(line)
  ]
  assert not found, "name a path relatively, or as /path/to/it"
  assert len(files) > 100


@pytest.mark.any_release
def test_what_a_folder_of_one_machine_is():
  # The slash stands apart, because the test above reads this file, too.
  for path in ("/" + "tmp/models/x", "/" + "home/me", "C" + ":\\Users\\me"):
    assert _MACHINE_PATH.search(f"it is in {path}")
  for path in ("/dev/null", "~/work/x", "/job:worker", "/tmp/$USER", "C:\n"):
    assert not _MACHINE_PATH.search(f"it is in {path}")


if __name__ == "__main__":
  helpers.main()
