# SPDX-License-Identifier: Apache-2.0
"""Tests the BUILD and MODULE.bazel files, and the entry of a registry.

`make bazel` runs Bazel 4: the example workspace there has a test for each
target. No Bazel from 7 on runs here, so Python executes the BUILD files, with
functions that note what they are given.
"""

import base64
import functools
import hashlib
import json
import re
import tarfile

import helpers
import project_files
import pytest
import registry_entry

import tf_compat_lossscale as tfl

pytestmark = pytest.mark.any_release
_CONSUMER, _PYPI = "examples/bazel_consumer", "examples/bazel_pypi"
_PYTHON_RULES = "@rules_python//python:defs.bzl"
_RULES = ("alias", "filegroup", "genrule", "label_flag")


def read(name):
  return (helpers.ROOT / name).read_text("utf-8")


def execute(bzl, rule, repository="@@"):
  """Executes a .bzl file; returns the names that it defines.

  Args:
    bzl: The file, from the root.
    rule: Takes a kind, and returns a function that notes a target.
    repository: What labels of this repository begin with.
  """

  class Native:
    genrule = staticmethod(rule("genrule"))

  scope = {"native": Native, "Label": lambda label: f"{repository}{label}"}
  scope |= {"load": lambda bzl, *names: None, "py_library": rule("py_library")}
  exec(read(bzl), scope)
  return scope


@functools.cache
def load(package):
  """Returns {name: (kind, attributes)} of a package's targets."""
  targets, defaults = {}, {}
  folder = helpers.ROOT / package

  def rule(kind):
    def note(**values):
      assert values["name"] not in targets, values["name"]
      targets[values["name"]] = (kind, {**defaults, **values})

    return note

  def load_bzl(bzl, *names):
    if bzl == _PYTHON_RULES:
      found = {name: rule(name) for name in names}
    else:
      found = execute(
        bzl.removeprefix("//").replace(":", "/").lstrip("/"), rule
      )
    scope.update({name: found[name] for name in names})

  def glob(patterns, exclude=()):
    found = set()
    for pattern in patterns:  # Pathlib's "**" are folders, Bazel's are files.
      found |= set(folder.glob(pattern + "/*" * pattern.endswith("**")))
    return sorted(str(p.relative_to(folder)) for p in found if p.is_file())

  scope = {kind: rule(kind) for kind in _RULES}
  scope |= {
    "exports_files": lambda names: None,
    "glob": glob,
    "licenses": lambda kinds: None,
    "load": load_bzl,
    "package": lambda default_visibility: defaults.update(
      visibility=default_visibility
    ),
  }
  exec((folder / "BUILD").read_text("utf-8"), scope)
  return targets


def expand(label, package):
  """Returns a label of this repository with its package and name."""
  if not label.startswith("//"):
    return f"//{package}:{label.removeprefix(':')}"
  return label if ":" in label else f"{label}:{label.rpartition('/')[2]}"


def test_versions_are_the_same_everywhere():
  own = f'version = "{tfl.__version__}"'
  assert own in read("MODULE.bazel") and own in read("docs/bazel.md")
  assert "dev_dependency = True" in read("MODULE.bazel")  # The toolchains.
  for folder in (_CONSUMER, _PYPI):
    assert f'"tf_compat_lossscale", {own}' in read(f"{folder}/MODULE.bazel")
  rules = r'"rules_python", version = "(.+)"\)'
  (version,) = re.findall(rules, read("MODULE.bazel"))
  assert f"rules_python-{version}.tar.gz" in read("deps.bzl")
  # `py_repositories` fetches the rules_cc that works in a WORKSPACE.
  assert re.findall('name = "(.+)"', read("deps.bzl")) == ["rules_python"]


def read_stanzas(file):
  """Returns the stanzas of docs/bazel.md that go into a file of that name."""
  pattern = rf"^```\w+\n# {re.escape(file)}\b.*?\n(.*?)^```$"
  return re.findall(pattern, read("docs/bazel.md"), re.DOTALL | re.MULTILINE)


def test_the_page_sets_what_the_examples_set():
  stanzas = "\n".join(read_stanzas("MODULE.bazel"))
  for folder in (_CONSUMER, _PYPI):
    for call in re.findall(
      r"^\w[\w.]*\(", read(f"{folder}/MODULE.bazel"), re.M
    ):
      assert call == "module(" or f"\n{call}" in stanzas, call


def list_flags(text):
  """Returns {label flag: package of the hub} of the lines of a .bazelrc."""
  flags = re.findall(r"^build --@tf_\w+//(\S+)=@\w+//(\w+)$", text, re.M)
  return {f"//{flag}": package for flag, package in flags}


def test_all_that_the_package_needs_can_be_a_wheel():
  flags = list_flags(read(f"{_PYPI}/.bazelrc"))
  assert flags == list_flags("\n".join(read_stanzas(".bazelrc")))
  needed = {
    dep
    for room in _ROOMS
    for _, values in load(room).values()
    for dep in values["deps"]
    if dep.startswith("//third_party:")
  }
  assert set(flags) <= needed <= {*flags, "//third_party:rich"}
  lock = read(f"{_PYPI}/requirements_lock.txt")
  for package in flags.values():
    assert re.search(rf"^{package.replace('_', '-')}==", lock, re.M), package


def test_targets_that_others_name_are_there():
  texts = [read(f"{_PYPI}/BUILD"), *read_stanzas("BUILD")]
  labels = re.findall(r'"@tf_compat_lossscale(//.*)"', "".join(texts))
  assert labels
  for label in labels:
    package, _, name = expand(label, "").removeprefix("//").partition(":")
    assert name in load(package), label
  named = set(re.findall(r"`//:([a-z_-]+)`", read("docs/bazel.md")))
  public = {
    name
    for name, (_, rule) in load("").items()
    if rule["visibility"] == ["//visibility:public"]
    and not rule.get("testonly")
  }
  assert named | {"tf_compat_lossscale"} == public


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
  made = {}
  scope = execute(
    "tools/bazel_init.bzl",
    lambda kind: lambda **values: made.update({kind: values}),
    name,
  )
  scope["bazel_init"]("init", "tools/bazel_init.py", None)
  assert ("genrule" in made) == bool(made["py_library"]["srcs"]) == is_needed


_ROOMS = [
  path.parent.relative_to(helpers.ROOT).as_posix()
  for package in ("tf1_contrib", "tf_compat_lossscale")
  for path in sorted((helpers.ROOT / package).rglob("BUILD"))
]


def find_label(name):
  """Returns the label of the target that an imported name is in, or None."""
  top, *rest = name.split(".")
  if top in load("third_party"):
    return f"//third_party:{top}"
  if top == "tf1_contrib":
    return "//tf1_contrib:tf1_contrib"
  if top != tfl.__name__:
    return None  # Python's own, or a package that is missing in most places.
  wing = rest[0] if rest else "package"
  if f"{top}/{wing}" in _ROOMS:
    return f"//{top}/{wing}:{wing}"
  return f"//{top}:{wing if wing in load(top) else 'package'}"


@pytest.mark.parametrize("package", _ROOMS)
def test_a_room_lists_what_it_imports(package):
  """Checks what `make bazel` runs no program for: `cli`, `migration` and more.

  A target may list more, such as the modules that a table names.
  """
  sources = set()
  for name, (_, values) in load(package).items():
    paths = [helpers.ROOT / package / source for source in values["srcs"]]
    imported = {x for path in paths for x in project_files.imported_names(path)}
    needed = {find_label(x) for x in imported} - {None, f"//{package}:{name}"}
    listed = {expand(dep, package) for dep in values["deps"]}
    assert needed - listed <= {f"//{tfl.__name__}:package"}, name
    sources.update(paths)
  folder = helpers.ROOT / package
  is_top = package == tfl.__name__
  assert sources == set((folder.glob if is_top else folder.rglob)("*.py"))


def test_public_targets_are_the_public_modules():
  text = read(f"{tfl.__name__}/__init__.py")
  modules = re.findall(r"^  from \w+ import (\w+) as \1$", text, re.MULTILINE)
  assert len(modules) >= 12
  _, whole = load("")["tf_compat_lossscale"]
  assert set(whole["deps"]) == {
    *(f":{name}" for name in modules),
    "//tf_compat_lossscale/programs",
  }
  for name in modules:
    assert load("")[name][0] == "alias"
    assert f'        "{name}": [' in read(f"{_CONSUMER}/BUILD")
    assert f"  def test_{name}(self):\n" in read(f"{_CONSUMER}/wings_test.py")


# The entry of the Bazel Central Registry, by tools/registry_entry.py.

_PROJECT = "https://github.com/owner/tf_compat_lossscale"
_URL = f"{_PROJECT}/releases/download/v1/source.tar.gz"
_FILES = ("MODULE.bazel", "examples/bazel_pypi/MODULE.bazel")


def make_archive(path, files=_FILES):
  with tarfile.open(path, "w:gz", dereference=True) as archive:
    for name in files:
      archive.add(helpers.ROOT / name, f"source-1/{name}")
  return path


@pytest.fixture
def registry(tmp_path):
  (tmp_path / "registry" / "modules").mkdir(parents=True)
  return tmp_path / "registry"


def write(registry, archive=None, url=_URL, maintainer="me", project=_PROJECT):
  archive = archive or make_archive(registry.parent / "source.tar.gz")
  return registry_entry.write_entry(archive, url, maintainer, registry, project)


def test_a_registrys_entry(registry):
  home = registry / "modules" / "tf_compat_lossscale"
  home.mkdir()
  known = {"homepage": _PROJECT, "maintainers": [{"github": "me"}]}
  known |= {"repository": ["github:owner/tf_compat_lossscale"]}
  known |= {"versions": [tfl.__version__], "yanked_versions": {}}
  folder = write(registry)
  assert folder == home / tfl.__version__
  assert json.loads((home / "metadata.json").read_text()) == known
  assert (folder / "MODULE.bazel").read_text() == read("MODULE.bazel")
  digest = hashlib.sha256((registry.parent / "source.tar.gz").read_bytes())
  assert json.loads((folder / "source.json").read_text()) == {
    "integrity": f"sha256-{base64.b64encode(digest.digest()).decode()}",
    "strip_prefix": "source-1",
    "url": _URL,
  }
  presubmit = (folder / "presubmit.yml").read_text()
  assert presubmit.count("${{ platform }}") == 2
  assert f"\n  module_path: {_PYPI}\n" in presubmit
  named = re.findall(r"'@tf_compat_lossscale//:(\w+)'$", presubmit, re.M)
  assert "tf_compat_lossscale" in named and set(named) <= set(load("."))
  folder.rename(home / "0.0.1")  # A further release keeps what is known.
  known |= {"homepage": "h", "versions": ["0.0.1"]}
  (home / "metadata.json").write_text(json.dumps(known))
  write(registry)
  known["versions"].append(tfl.__version__)
  assert json.loads((home / "metadata.json").read_text()) == known


@pytest.mark.parametrize(
  ("changed", "words"),
  [
    ({"project": ""}, "PROJECT_URL is ''"),
    ({"url": "https://elsewhere/a.tar.gz"}, "expected one below"),
    ({"maintainer": "me@here"}, "the maintainer is 'me@here'"),
    ({"archive": _FILES[:1]}, "has no source-1/examples"),
    ({"archive": ()}, "expected a .tar.gz"),
    ({}, "is there already"),
  ],
)
def test_entries_that_are_refused(registry, capsys, changed, words):
  if not changed:
    write(registry)
  elif "archive" in changed:
    path = registry.parent / "a.tar.gz"
    path.write_text("no archive")
    if files := changed["archive"]:
      make_archive(path, files)
    changed = {"archive": path}
  before = sorted(registry.rglob("*"))
  with pytest.raises(SystemExit) as exit_:
    write(registry, **changed)
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith("registry_entry.py: ") and words in line
  assert sorted(registry.rglob("*")) == before
