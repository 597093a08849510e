# SPDX-License-Identifier: Apache-2.0
"""Tests the BUILD and MODULE.bazel files, and what they build.

`make bazel` runs Bazel 4. No Bazel from 7 on runs here. Instead, these tests
load the files themselves: Python executes them, with functions that note what
they are given.
"""

import functools
import pathlib
import re

import helpers
import project_files
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale import _lazy

pytestmark = pytest.mark.any_release
_EXAMPLES = ("examples/bazel_consumer", "examples/bazel_pypi")
_RULES_PYTHON = "@rules_python//python:defs.bzl"

_RULES = ("alias", "filegroup", "genrule", "label_flag")
# The functions of a MODULE.bazel file.
_FUNCTIONS = (
  *("module", "bazel_dep", "local_path_override", "archive_override"),
  *("git_override", "register_toolchains", "use_extension", "use_repo"),
)
_ENVIRONMENTS_PYTHON = "@rules_python//python/runtime_env_toolchains:all"


class Module:
  """A MODULE.bazel file: the calls in it, also of tags of extensions."""

  def __init__(self, text):
    self._calls = []
    scope = {name: functools.partial(self._note, name) for name in _FUNCTIONS}
    exec(text, {"__builtins__": {"True": True, "False": False}, **scope})

  def _note(self, function, /, *args, **values):
    self._calls.append((function, args, values))
    return self

  def __getattr__(self, tag):
    return functools.partial(self._note, tag)

  def find(self, *names):
    """Returns (positional arguments, others) of the calls of functions."""
    return [call[1:] for call in self._calls if call[0] in names]

  def find_deps(self):
    """Returns the version of each module that this one depends on."""
    found = [values for _, values in self.find("bazel_dep")]
    return {values["name"]: values["version"] for values in found}


def read_module(folder):
  """Returns the module whose MODULE.bazel is in a folder."""
  return Module((helpers.ROOT / folder / "MODULE.bazel").read_text("utf-8"))


class Repository:
  """The BUILD files of a repository, loaded when a target is asked for.

  Args:
    root: The folder.
    name: What labels of this repository begin with: "@@" for the main one.
  """

  def __init__(self, root, name):
    self.root, self.name = pathlib.Path(root), name
    self.packages = {}

  def find(self, label):
    """Returns the kind and the attributes of the target with a label."""
    package, _, name = label.removeprefix("//").partition(":")
    if package not in self.packages:
      self.packages[package] = self._load(package)
    return self.packages[package].get(name)

  def _load(self, package):
    targets = {}
    folder = self.root / package
    defaults = {}

    def rule(kind):
      def call(**values):
        assert values["name"] not in targets, values["name"]
        values.setdefault("visibility", defaults.get("visibility", []))
        targets[values["name"]] = (kind, values)

      return call

    def set_package(*, default_visibility):
      defaults["visibility"] = default_visibility

    def load(bzl, *names):
      if bzl == _RULES_PYTHON:
        scope.update({name: rule(name) for name in names})
      else:
        file = self.root / bzl.removeprefix("//").replace(":", "/").lstrip("/")
        inner = {**scope, "native": Native, "Label": self._format_label}
        exec(file.read_text("utf-8"), inner)
        scope.update({name: inner[name] for name in names})

    class Native:
      genrule = staticmethod(rule("genrule"))

    def match(patterns):
      for pattern in patterns:  # Pathlib's "**" are folders, Bazel's are files.
        pattern += "/*" if pattern.endswith("**") else ""
        yield from filter(pathlib.Path.is_file, folder.glob(pattern))

    def glob(patterns, exclude=()):
      found = [*{*match(patterns)} - {*match(exclude)}]
      return sorted(str(path.relative_to(folder)) for path in found)

    scope = {
      **{kind: rule(kind) for kind in _RULES},
      "exports_files": lambda names: None,
      "glob": glob,
      "licenses": lambda kinds: None,
      "load": load,
      "package": set_package,
    }
    scope["__builtins__"] = {
      "len": len,
      "str": str,
      "True": True,
      "False": False,
    }
    exec((folder / "BUILD").read_text("utf-8"), scope)
    return targets

  def _format_label(self, label):
    return f"{self.name}{label}"


_ROOT_REPOSITORY = "@tf_compat_lossscale"


def expand(label, package):
  """Returns a label with its package and its name spelled out."""
  repository, slashes, rest = label.partition("//")
  if repository.startswith("@") and not slashes:  # "@name" is "@name//:name".
    return f"{repository}//:{repository[1:]}"
  if not slashes:
    return f"//{package}:{label.removeprefix(':')}"
  if ":" not in rest:
    rest += f":{rest.rpartition('/')[2]}"
  return f"{repository}//{rest}"


def query(folder, target, flags=(), name="@@tf_compat_lossscale+"):
  """Returns the labels and the sources that a target of a module needs.

  Args:
    folder: The module's folder.
    target: The label of the target.
    flags: Values of label flags, by their labels.
    name: What the labels of the package's repository begin with.
  """
  flags = dict(flags)
  here = Repository(helpers.ROOT / folder, "@@")
  ours = Repository(helpers.ROOT, name)
  labels, files, queue = set(), set(), [target]
  while queue:
    label = queue.pop()
    if label in labels:
      continue
    labels.add(label)
    repository, _, rest = label.partition("//")
    if repository not in ("", _ROOT_REPOSITORY):
      continue  # A wheel.
    owner = ours if repository else here
    package = rest.partition(":")[0]
    found = owner.find(f"//{rest}")
    assert found, f"{label} does not exist"
    kind, values = found
    needed = list(values.get("deps", []))
    if kind == "alias":
      needed.append(values["actual"])
    if kind == "label_flag":
      needed.append(flags.get(label, values["build_setting_default"]))
    for source in values.get("srcs", []):
      if (owner.root / package / source).is_file():
        files.add(owner.root / package / source)
      else:  # The output of a rule.
        needed.append(source if source.startswith(":") else f":{source}")
    for other in needed:
      other = expand(other, package)
      if other.startswith("//"):
        other = f"{repository}{other}"
      queue.append(other)
  ours = [path for path in files if path.is_relative_to(helpers.ROOT)]
  return labels, {path.relative_to(helpers.ROOT).as_posix() for path in ours}


def read_flags(folder):
  """Returns the label flags that the module's .bazelrc sets."""
  text = (helpers.ROOT / folder / ".bazelrc").read_text("utf-8")
  return dict(re.findall(r"^build --(@\S+)=(@\S+)$", text, re.MULTILINE))


def list_targets(folder):
  """Returns the labels of a module's own rules."""
  repository = Repository(helpers.ROOT / folder, "@@")
  assert repository.find("//:none") is None
  return [f"//:{name}" for name in repository.packages[""]]


def test_our_module_asks_nothing_of_those_that_depend_on_it():
  module = read_module(".")
  ((_, own),) = module.find("module")
  assert own == {"name": "tf_compat_lossscale", "version": tfl.__version__}
  ((args, values),) = module.find("register_toolchains")
  assert (args, values) == ((_ENVIRONMENTS_PYTHON,), {"dev_dependency": True})
  assert not module.find("local_path_override", "use_extension", "git_override")
  ((name, version),) = module.find_deps().items()
  assert name == "rules_python"
  deps = (helpers.ROOT / "deps.bzl").read_text("utf-8")
  assert f"{name}-{version}.tar.gz" in deps


@pytest.mark.parametrize("folder", _EXAMPLES)
def test_an_example_depends_on_this_version(folder):
  module = read_module(folder)
  assert module.find("module")[0][1]["name"] == pathlib.Path(folder).name
  assert module.find_deps()["tf_compat_lossscale"] == tfl.__version__
  ((_, values),) = module.find("local_path_override")
  assert values == {"module_name": "tf_compat_lossscale", "path": "../.."}


def test_the_two_ways_to_a_python():
  environment, wheels = map(read_module, _EXAMPLES)
  assert environment.find("register_toolchains") == [
    ((_ENVIRONMENTS_PYTHON,), {})
  ]
  assert not wheels.find("register_toolchains")
  ((_, parse),) = wheels.find("parse")
  assert parse["python_version"] == "3.11"
  assert parse["hub_name"] != "pypi"  # rules_python 2.2 reserves that name.
  assert wheels.find("use_repo")[-1][0][-1] == parse["hub_name"]
  lock = parse["requirements_lock"].removeprefix("//:")
  text = (helpers.ROOT / _EXAMPLES[1] / lock).read_text("utf-8")
  names = re.findall(r"^([a-z\d-]+)==\S+", text, re.MULTILINE)
  hub = f"@{parse['hub_name']}//"
  for label in read_flags(_EXAMPLES[1]).values():
    assert label.removeprefix(hub).replace("_", "-") in names, label


@pytest.mark.parametrize("folder", _EXAMPLES)
def test_what_an_example_builds(folder):
  flags = read_flags(folder)
  reached = set()
  for target in list_targets(folder):
    labels, files = query(folder, target, flags)
    reached |= labels
    assert "tools/bazel_init.py" not in files
    assert "tf_compat_lossscale/__init__.py" in files or target == "//:none"
  wheels = {label for label in reached if "wheels//" in label}
  if folder == "examples/bazel_pypi":
    assert {f"{x}:{x.rpartition('/')[2]}" for x in flags.values()} >= wheels
    assert "@bazel_pypi_wheels//tensorflow:tensorflow" in wheels
    assert "@tf_compat_lossscale//third_party:from_environment" not in reached
  else:
    assert "@tf_compat_lossscale//third_party:from_environment" in reached
    assert not wheels


@pytest.mark.parametrize(
  ("target", "has", "lacks"),
  [
    ("api", {"keras", "checkpoint", "programs"}, {"cli", "migration"}),
    ("gradients", {"_core"}, {"loss_scale.py"}),
    ("loss_scale", {"gradients.py"}, {"loss_scale_optimizer.py"}),
    ("loss_scale_optimizer", {"gradients.py"}, {"contrib.py"}),
  ],
)
def test_what_a_target_brings(target, has, lacks):
  _, files = query(_EXAMPLES[0], f"//:{target}_test")
  modules = {path.split("/")[1] for path in files if "lossscale/" in path}
  if target != "api":
    lacks |= {"keras", "checkpoint", "cli", "programs", "migration"}
  assert has <= modules and not lacks & modules


@pytest.mark.parametrize(
  ("name", "is_needed"),
  [
    ("@tf_compat_lossscale", True),  # A WORKSPACE, in Bazel 4 to 7.
    ("", True),  # This WORKSPACE itself, in Bazel 4.
    ("@", True),  # The same in Bazel 7, without bzlmod.
    ("@@tf_compat_lossscale", True),  # A WORKSPACE beside a MODULE.bazel.
    ("@@tf_compat_lossscale+", False),  # Bazel 8 and later.
    ("@@tf_compat_lossscale~", False),  # Bazel 7.
    ("@@", False),  # This module itself.
  ],
)
def test_where_the_folder_is_in_the_way(name, is_needed):
  _, files = query(_EXAMPLES[0], "//:api_test", name=name)
  assert ("tools/bazel_init.py" in files) == is_needed


def read_stanzas(file):
  """Returns the stanzas of docs/bazel.md that go into a file of that name."""
  page = (helpers.ROOT / "docs/bazel.md").read_text("utf-8")
  pattern = rf"^```\w+\n# {re.escape(file)}\b(.*?)^```$"
  return re.findall(pattern, page, re.DOTALL | re.MULTILINE)


def test_stanzas_of_the_documentation(tmp_path):
  first, *others, wheels = (
    Module(f"#{text}") for text in read_stanzas("MODULE.bazel")
  )
  overrides = ("local_path_override", "archive_override", "git_override")
  assert sum(len(x.find(*overrides)) for x in (first, *others, wheels)) == 2
  assert [args for args, _ in first.find("register_toolchains")] == [
    (_ENVIRONMENTS_PYTHON,)
  ]
  lines = "".join(read_stanzas(".bazelrc")).splitlines()
  flags = dict(re.findall(r"^build --(@\S+)=(@\S+)$", "\n".join(lines), re.M))
  hub = wheels.find("use_repo")[-1][0][-1]
  ours = read_flags(_EXAMPLES[1])
  assert {k: v.replace(f"@{hub}//", "") for k, v in flags.items()} == {
    k: v.replace("@bazel_pypi_wheels//", "") for k, v in ours.items()
  }
  (build,) = read_stanzas("BUILD")
  (tmp_path / "BUILD").write_text(f"#{build}")
  (tmp_path / "train.py").touch()
  labels, _ = query(tmp_path, "//:train")
  assert "@tf_compat_lossscale//tf_compat_lossscale:loss_scale" in labels


def test_targets_of_the_documentation():
  page = (helpers.ROOT / "docs/bazel.md").read_text("utf-8")
  named = set(re.findall(r"`//:([a-z_-]+)`", page))
  repository = Repository(helpers.ROOT, "@@")
  repository.find("//:none")
  public = {
    name
    for name, (_, rule) in repository.packages[""].items()
    if rule["visibility"] == ["//visibility:public"]
    and not rule.get("testonly")
  }
  assert named | {"tf_compat_lossscale"} == public


_ROOMS = [
  path.parent.relative_to(helpers.ROOT).as_posix()
  for package in ("tf1_contrib", "tf_compat_lossscale")
  for path in sorted((helpers.ROOT / package).rglob("BUILD"))
]
# `programs` loads this package by the names in its table.
_BY_NAME = {"//tf1_contrib:tf1_contrib"}
# Every target of the modules at the top has these.
_COMMON_DEPS = {f"//third_party:{x}" for x in ("absl", "numpy", "tensorflow")}


def find_label(name):
  """Returns the label of the target that an imported name is in, or None."""
  top, *rest = name.split(".")
  third_party = (helpers.ROOT / "third_party" / "BUILD").read_text("utf-8")
  if f'"{top}"' in third_party:
    return f"//third_party:{top}"
  if top == "tf1_contrib":
    return "//tf1_contrib:tf1_contrib"
  if top != tfl.__name__:
    return None  # Python's own, or a package that is missing in most places.
  wing = rest[0] if rest else "package"
  if f"{top}/{wing}" in _ROOMS:
    return f"//{top}/{wing}:{wing}"
  is_module = (helpers.ROOT / top / f"{wing}.py").exists()
  is_target = is_module and wing not in ("_lazy", "_requirements", "_version")
  return f"//{top}:{wing if is_target else 'package'}"


@pytest.mark.parametrize("package", _ROOMS)
def test_deps_are_the_imports(package):
  repository = Repository(helpers.ROOT, "@@")
  assert repository.find(f"//{package}:none") is None
  sources = set()
  for name, (kind, values) in repository.packages[package].items():
    assert kind == "py_library"
    own = f"//{package}:{name}"
    listed = {expand(dep, package) for dep in values["deps"]}
    paths = [helpers.ROOT / package / source for source in values["srcs"]]
    imported = {x for path in paths for x in project_files.imported_names(path)}
    needed = {find_label(name) for name in imported} - {None, own}
    needed -= {f"//{tfl.__name__}:package"}
    listed -= {f"//{tfl.__name__}:package", "//:bazel_init"}
    assert needed - listed == set(), own
    common = {*_COMMON_DEPS, f"//{tfl.__name__}/_core:_core"}
    assert listed - needed - _BY_NAME <= common, own
    sources.update(paths)
  folder = helpers.ROOT / package
  inside = (
    folder.glob("*.py") if package == tfl.__name__ else folder.rglob("*.py")
  )
  assert sources == set(inside)


def test_public_targets_are_the_public_modules():
  text = (helpers.ROOT / tfl.__name__ / "__init__.py").read_text("utf-8")
  modules = re.findall(r"^  from \w+ import (\w+) as \1$", text, re.MULTILINE)
  assert len(modules) >= 12
  repository = Repository(helpers.ROOT, "@@")
  _, whole = repository.find("//:tf_compat_lossscale")
  assert set(whole["deps"]) == {
    *(f":{name}" for name in modules),
    "//tf_compat_lossscale/programs",
  }
  consumer = helpers.ROOT / _EXAMPLES[0]
  build = (consumer / "BUILD").read_text("utf-8")
  program = (consumer / "wings_test.py").read_text("utf-8")
  for name in modules:
    assert repository.find(f"//:{name}")[0] == "alias"
    assert f'        "{name}": [' in build
    assert f"  def test_{name}(self):\n" in program
    assert f'load("{name}")' in program


def test_every_test_has_a_rule():
  repository = Repository(helpers.ROOT, "@@")
  assert repository.find("//tests:none") is None
  rules = repository.packages["tests"].values()
  found = {source for kind, rule in rules for source in rule["srcs"]}
  folder = helpers.ROOT / "tests"
  kept = ("goldens/", "programs/legacy/", "programs/projects/")
  everything = {p.relative_to(folder).as_posix() for p in folder.rglob("*.py")}
  assert found == {x for x in everything if not x.startswith(kept)}
  # Under Bazel, each test finds no file of another.
  if (helpers.ROOT / ".git").exists():
    text = (folder / "BUILD").read_text("utf-8")
    for name in re.findall(r'^    "(\w+(?:/\w+)*_test)",$', text, re.MULTILINE):
      assert f"{name}.py" in found, name


def test_a_missing_name_needs_no_other_target(monkeypatch):
  packages = (*_lazy._LAZY_PACKAGES, ".no_such_package")
  monkeypatch.setattr(_lazy, "_LAZY_PACKAGES", packages)
  with pytest.raises(AttributeError, match=r"did you mean .*\.describe"):
    _ = tfl.describe


if __name__ == "__main__":
  helpers.main()
