"""Bazel's targets are what the sources import: no more, no less."""

import ast
import re

import helpers
import pytest

import tf_compat_lossscale as tfl

pytestmark = pytest.mark.any_release
_PACKAGES = (
  "tf_compat_lossscale",
  "tf_compat_lossscale/checkpoint",
  "tf_compat_lossscale/keras",
  "tests",
)
_THIRD_PARTY = {
  *("absl", "h5py", "hypothesis", "libcst", "numpy", "pytest", "rich"),
  *("tensorflow", "tf_slim"),
}
_PACKAGE = "//tf_compat_lossscale:package"
_ALL = "//:tf_compat_lossscale"


def rules(package):
  """The rules of a BUILD file, which is Python as far as they go."""
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
            continue  # A glob.
        yield kind.id, values


def absolute(label, package):
  """A label with its package and its name."""
  if label.startswith(":"):
    return f"//{package}{label}"
  if ":" not in label:
    return f"{label}:{label.rpartition('/')[2]}"
  return label


def target_of(name, package):
  """The target that has what is imported by that name; None for Python's."""
  top, *rest = name.split(".")
  if top in _THIRD_PARTY:
    return f"//third_party:{top}"
  if top == "tf_compat_lossscale":
    folder = top
    if rest[:1] in (["checkpoint"], ["keras"]):
      folder, rest = f"{top}/{rest[0]}", rest[1:]
    if rest and rest[0] == "_version":
      return _PACKAGE
    if rest and (helpers.ROOT / folder / f"{rest[0]}.py").exists():
      return f"//{folder}:{rest[0]}"
    if folder != top:
      return absolute(f"//{folder}", package)
    return _PACKAGE if package != "tests" else _ALL
  if top == "benchmarks":
    return f"//benchmarks:{rest[0]}"
  if package == "tests" and (helpers.ROOT / package / f"{top}.py").exists():
    return f"//tests:{top}"
  return None


def libraries():
  for package in _PACKAGES:
    for kind, rule in rules(package):
      if kind in ("py_library", "py_test") and "srcs" in rule:
        yield pytest.param(package, rule, id=f"//{package}:{rule['name']}")


@pytest.mark.parametrize(("package", "rule"), list(libraries()))
def test_deps_are_the_imports(package, rule):
  expected = set()
  for source in rule["srcs"]:
    for name in helpers.imports(helpers.ROOT / package / source, types=False):
      expected.add(target_of(name, package))
  if package == "tf_compat_lossscale/checkpoint":
    expected.add(
      f"//{package}:package" if rule["name"] != "package" else _PACKAGE
    )
  elif package == "tf_compat_lossscale/keras":
    expected.add(_PACKAGE)
  elif package == "tf_compat_lossscale":
    expected.add("//:bazel_init" if rule["name"] == "package" else _PACKAGE)
  expected -= {None, f"//{package}:{rule['name']}"}
  deps = [absolute(label, package) for label in rule.get("deps", [])]
  assert len(deps) == len(set(deps))
  assert set(deps) == expected, sorted(set(deps) ^ expected)


@pytest.mark.parametrize("package", _PACKAGES)
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


def test_public_targets():
  names = {rule.get("name") for _, rule in rules(".")}
  assert names >= {
    *("tf_compat_lossscale", "loss_scale", "loss_scale_optimizer"),
    *("mixed_precision", "contrib", "keras", "checkpoint", "tf-lossscale"),
  }


def closure(label):
  """All that a target of the package depends on, itself included."""
  by_label = {
    f"//{package}:{rule['name']}": (package, rule)
    for package in _PACKAGES[:3]
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
    for word in ("keras", "contrib", "checkpoint", "cli", "launcher", "legacy"):
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
