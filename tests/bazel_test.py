# SPDX-License-Identifier: Apache-2.0
"""Tests that each Bazel target depends on exactly what its source imports."""

import ast
import re

import build_files
import helpers
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale import _lazy
from tf_compat_lossscale._core import legacy_names

pytestmark = pytest.mark.any_release
_PACKAGES = [path.rpartition("/")[0] for path in build_files.paths()]
_FOLDERS = [*filter(None, _PACKAGES), "benchmarks"]
_CONSUMER = "examples/bazel_consumer"


def rules(package):
  """Yields (kind, attributes) of each rule in a package's BUILD file."""
  text = (helpers.ROOT / package / "BUILD").read_text("utf-8")
  for node in ast.parse(text).body:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
      kind = node.value.func
      if isinstance(kind, ast.Name):
        values = {}
        for keyword in node.value.keywords:
          try:
            values[keyword.arg] = ast.literal_eval(keyword.value)
          except ValueError:
            continue  # The value is a call, such as glob().
        yield kind.id, values


def absolute(label, package):
  """Returns a label with its package and its name spelled out."""
  if label.startswith(":"):
    return f"//{package}{label}"
  if ":" not in label:
    return f"{label}:{label.rpartition('/')[2]}"
  return label


@pytest.mark.parametrize("path", build_files.paths())
def test_deps_are_the_imports(path):
  actual = (helpers.ROOT / path).read_text("utf-8")
  wanted = build_files.format_file(path)
  assert actual == wanted, "run: python tools/build_files.py"


@pytest.mark.parametrize("package", ["", *_FOLDERS])
def test_the_rules_that_are_used_are_loaded(package):
  text = (helpers.ROOT / package / "BUILD").read_text("utf-8")
  statement = r'load\("@rules_python//python:defs.bzl", (.*)\)'
  loaded = re.findall(r'"(\w+)"', " ".join(re.findall(statement, text)))
  used = {kind for kind, _ in rules(package) if kind.startswith("py_")}
  assert used == set(loaded)


def test_what_a_module_imports(monkeypatch, tmp_path):
  monkeypatch.setattr(build_files, "ROOT", tmp_path)
  folder = tmp_path / "tf_compat_lossscale"
  (folder / "wing").mkdir(parents=True)
  (folder / "wing" / "__init__.py").touch()
  (folder / "wing" / "other.py").touch()
  (folder / "low.py").touch()
  path = folder / "wing" / "module.py"
  path.write_text(
    "from typing import TYPE_CHECKING\n"
    "import os, numpy as np\n"
    "from tf_compat_lossscale import low, name\n"
    "from tf_compat_lossscale.wing.other import function\n"
    "if TYPE_CHECKING:\n"
    "  import tensorflow\n"
  )
  label = "//tf_compat_lossscale/wing:module"
  deps = build_files.find_deps([path], "tf_compat_lossscale/wing", label)
  assert sorted(deps) == [
    "//tf_compat_lossscale/wing:other",
    "//tf_compat_lossscale/wing:package",
    "//tf_compat_lossscale:low",
    "//tf_compat_lossscale:package",
    "//third_party:numpy",
  ]


@pytest.mark.parametrize("package", _FOLDERS)
def test_every_source_has_a_target(package):
  listed = [s for _, rule in rules(package) for s in rule.get("srcs", [])]
  sources = {path.name for path in (helpers.ROOT / package).glob("*.py")}
  assert sources <= set(listed)
  kinds = {
    rule["name"]: kind for kind, rule in rules(package) if "name" in rule
  }
  for source in sources:
    if source.endswith("_test.py"):
      assert kinds[source[: -len(".py")]] == "py_test"


@pytest.mark.parametrize("package", _FOLDERS)
def test_names_of_rules_are_unique(package):
  found = [values["name"] for _, values in rules(package) if "name" in values]
  assert len(found) == len(set(found))


def closure(label):
  """Returns the labels of a target and of all targets that it depends on."""
  by_label = {
    f"//{package}:{rule['name']}": (package, rule)
    for package in _PACKAGES
    for _, rule in rules(package)
    if "name" in rule
  }
  found, queue = set(), [label]
  while queue:
    label = queue.pop()
    if label not in found:
      found.add(label)
      package, rule = by_label.get(label, ("", {}))
      needed = [*rule.get("deps", []), *filter(None, [rule.get("actual")])]
      queue += [absolute(dep, package) for dep in needed]
  return found


def lazy_names(package):
  """Returns the names that a package loads when used, with their modules."""
  path = helpers.ROOT / package / "__init__.py"
  for node in ast.walk(ast.parse(path.read_text("utf-8"))):
    is_call = isinstance(node, ast.Call) and len(node.args) == 2
    if is_call and getattr(node.func, "id", "") == "load_lazily":
      return ast.literal_eval(node.args[1])
  return {}


_API = lazy_names("tf_compat_lossscale")
_WINGS = [name for name, home in _API.items() if home is None]


def sources(label):
  """Returns the dotted names of the modules in a target's closure."""
  found = set()
  for package in _PACKAGES:
    for _, rule in rules(package):
      if f"//{package}:{rule.get('name')}" in label:
        for source in rule.get("srcs", []):
          path = f"{package}/{source}".removesuffix(".py")
          found.add(path.removesuffix("/__init__").replace("/", "."))
  return found


def test_the_whole_has_every_public_name():
  assert len(_WINGS) >= 12
  everything = closure("//:tf_compat_lossscale")
  assert {f"//:{name}" for name in _WINGS} <= everything
  modules = sources(everything)
  for name, home in _API.items():
    assert f"tf_compat_lossscale.{home or name}" in modules, name
  for row in legacy_names.TABLE:
    assert f"tf_compat_lossscale.{row.home}" in modules, row


@pytest.mark.parametrize("wing", _WINGS)
def test_a_public_module_has_a_target_that_others_may_name(wing):
  (rule,) = [rule for _, rule in rules("") if rule.get("name") == wing]
  assert "visibility" not in rule  # The file's default is public.
  modules = sources(closure(f"//:{wing}"))
  package = f"tf_compat_lossscale.{wing}"
  assert package in modules
  folder = helpers.ROOT / "tf_compat_lossscale" / wing
  if folder.is_dir():
    homes = lazy_names(f"tf_compat_lossscale/{wing}")
    assert homes
    for name, home in homes.items():
      assert f"{package}.{home or name}" in modules, name


def test_the_consumer_uses_every_public_target():
  text = (helpers.ROOT / _CONSUMER / "BUILD").read_text("utf-8")
  program = (helpers.ROOT / _CONSUMER / "wings_test.py").read_text("utf-8")
  for wing in _WINGS:
    assert f'        "{wing}": [' in text
    assert f"  def test_{wing}(self):\n" in program
    assert f'load("{wing}")' in program
  assert 'deps = ["@tf_compat_lossscale"],' in text


def test_a_missing_name_needs_no_other_target(monkeypatch):
  packages = (*_lazy._LAZY_PACKAGES, ".no_such_package")
  monkeypatch.setattr(_lazy, "_LAZY_PACKAGES", packages)
  with pytest.raises(AttributeError, match=r"did you mean .*\.describe"):
    _ = tfl.describe


@pytest.mark.parametrize("name", ["loss_scale", "loss_scale_optimizer"])
def test_the_core_stands_alone(name):
  reached = closure(f"//tf_compat_lossscale:{name}")
  assert "//tf_compat_lossscale:gradients" in reached
  for label in reached:
    for word in ("keras", "contrib", "checkpoint", "cli", "programs"):
      assert word not in label, label


def test_versions_are_in_step():
  module = (helpers.ROOT / "MODULE.bazel").read_text("utf-8")
  deps = (helpers.ROOT / "deps.bzl").read_text("utf-8")
  assert f'version = "{tfl.__version__}"' in module
  found = re.findall(r'name = "(rules_\w+)", version = "(.+)"', module)
  assert found
  for name, version in found:
    assert f"{name}-{version}.tar.gz" in deps


if __name__ == "__main__":
  helpers.main()
