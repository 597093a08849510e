# SPDX-License-Identifier: Apache-2.0
"""Tests that each Bazel target depends on exactly what its source imports."""

import ast
import re

import build_files
import helpers
import pytest

import tf_compat_lossscale as tfl

pytestmark = pytest.mark.any_release
_TEXTS = build_files.format_all()
_PACKAGES = [name.removesuffix("/BUILD") for name in _TEXTS]


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


@pytest.mark.parametrize(("name", "text"), list(_TEXTS.items()))
def test_deps_are_the_imports(name, text):
  actual = (helpers.ROOT / name).read_text("utf-8")
  assert actual == text, "run: python tools/build_files.py"


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


@pytest.mark.parametrize("package", [*_PACKAGES, "benchmarks"])
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


@pytest.mark.parametrize("package", [*_PACKAGES, "benchmarks"])
def test_names_of_rules_are_unique(package):
  found = [values["name"] for _, values in rules(package) if "name" in values]
  assert len(found) == len(set(found))


def test_public_targets():
  names = {rule.get("name") for _, rule in rules(".")}
  assert names >= {
    *("tf_compat_lossscale", "loss_scale", "loss_scale_optimizer"),
    *("mixed_precision", "contrib", "keras", "checkpoint", "tf-lossscale"),
  }


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
      queue += [absolute(dep, package) for dep in rule.get("deps", [])]
  return found


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
  for name, version in re.findall(
    r'name = "(rules_\w+)", version = "(.+)"', module
  ):
    assert f"{name}-{version}.tar.gz" in deps


if __name__ == "__main__":
  helpers.main()
