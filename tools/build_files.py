# SPDX-License-Identifier: Apache-2.0
"""Writes the BUILD files of the package and the `deps` of those of the tests.

  python tools/build_files.py

In the BUILD file of the root, a public target is written for each public module
of the package, and `//:tf_compat_lossscale` depends on all of the API.

A BUILD file of the package is made anew: a library for each module, which
depends on what the module imports. In the BUILD files of the tests the lists
`deps` change, and each file has a rule: a new one gets a plain rule, and that
of a deleted file goes. Write by hand what else a rule needs, such as `data`.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).absolute().parent.parent
_PACKAGE = "tf_compat_lossscale"
_HARNESS = "tests/harness"  # On the path of all tests.
_THIRD_PARTY = {
  *("absl", "h5py", "hypothesis", "numpy", "pytest", "rich"),
  *("tensorflow", "tf_slim", "tomli"),
}
_HEADER = '''# SPDX-License-Identifier: Apache-2.0
"""The modules. tools/build_files.py writes this file."""

load("@rules_python//python:defs.bzl", "py_library")

package(default_visibility = ["//:__subpackages__"])

licenses(["notice"])
'''
# Files that a module reads when it runs.
_DATA = {
  "tf_compat_lossscale/__init__.py": ["py.typed"],
  "tf_compat_lossscale/programs/launch.py": [":sitecustomize"],
}
# Folders whose modules a module imports by names that it finds when it runs.
_FOUND = {
  "tf_compat_lossscale/migration/scanner.py": (
    "tf_compat_lossscale/migration/rewrites"
  ),
}
# What `install` loads by a name that it makes up when it runs.
_LOADED_BY_NAME = ("//tf_compat_lossscale/keras:keras3_names",)
# The package's own `__init__` needs these, so they are in the same target.
_IN_PACKAGE = ("_lazy", "_requirements", "_version")


def _is_package(folder: pathlib.Path) -> bool:
  return (folder / "__init__.py").exists()


@functools.cache  # Each import from a folder asks for its `__init__`.
def imported_names(path: pathlib.Path, types: bool = False) -> tuple[str, ...]:
  """Returns the dotted names that a module imports.

  Args:
    path: The module.
    types: Whether imports under `if TYPE_CHECKING` count.
  """
  names: list[str] = []
  # Statements alone: expressions have no imports, and most nodes are theirs.
  left: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
  while left:
    node = left.pop()
    if isinstance(node, ast.Import):
      names += (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      names += (f"{node.module}.{alias.name}" for alias in node.names)
    guard = node.test if isinstance(node, ast.If) else None
    if types or getattr(guard, "id", "") != "TYPE_CHECKING":
      left += getattr(node, "body", ())
    for field in ("orelse", "handlers", "finalbody", "cases"):
      left += getattr(node, field, ())
  return tuple(names)


def find_target(name: str, folder: str) -> str | None:
  """Returns the label of the target that has a dotted name.

  Args:
    name: The name, as a module in `folder` imports it.
    folder: The folder of that module, relative to the root.

  Returns:
    The label, or None for a name of Python's own library.
  """
  top, *rest = name.split(".")
  if top in _THIRD_PARTY:
    return f"//third_party:{top}"
  if top == "benchmarks":
    return f"//benchmarks:{rest[0]}"
  if top != _PACKAGE:
    is_here = not folder.startswith(_PACKAGE)
    for place in (folder, _HARNESS, "tools") if is_here else ():
      path = ROOT / place / top
      if path.with_suffix(".py").exists() or _is_package(path):
        return f"//{place}:{top}" if place != "tools" else f"//:{top}"
    return None
  place = top
  while rest:
    leaf = rest.pop(0)
    if (ROOT / place / leaf).is_dir():
      place = f"{place}/{leaf}"
    elif place == top and leaf in _IN_PACKAGE:
      break
    elif (ROOT / place / f"{leaf}.py").exists():
      return f"//{place}:{leaf}"
    else:
      break
  if place == top:
    is_inside = folder.startswith(_PACKAGE)
    return f"//{top}:package" if is_inside else f"//:{top}"
  if lazy_targets(place):
    return f"//{place}:{place.rpartition('/')[2]}"
  return f"//{place}:package"


def lazy_targets(folder: str) -> list[str]:
  """Returns the targets of the names that a package loads when used."""
  path = ROOT / folder / "__init__.py"
  everything = set(imported_names(path, types=True))
  names = everything - set(imported_names(path))
  return sorted({str(find_target(name, folder)) for name in names})


def find_deps(sources: list[pathlib.Path], folder: str, own: str) -> list[str]:
  """Returns the labels that a target needs, without its own."""
  names = {name for path in sources for name in imported_names(path)}
  labels = {find_target(name, folder) for name in names} - {None, own}
  for path in sources:
    found = _FOUND.get(path.relative_to(ROOT).as_posix())
    if found:
      modules = (ROOT / found).glob("[!_]*.py")
      labels |= {f"//{found}:{module.stem}" for module in modules}
  if folder.startswith(_PACKAGE):
    labels.add(f"//{folder}:package")
    if own == f"//{folder}:package":
      parent = folder.rpartition("/")[0]
      labels.add(f"//{parent}:package" if parent else "//:bazel_init")
  return [str(label) for label in labels - {None, own}]


def format_list(name: str, values: list[str], folder: str = "") -> str:
  """Returns `name = [values]`, sorted and indented as buildifier would."""
  shown = set()
  for label in values:
    place, _, leaf = label.rpartition(":")
    if folder and place == f"//{folder}":
      label = f":{leaf}"
    elif place.rpartition("/")[2] == leaf:
      label = place
    shown.add(label)
  if not shown:
    return ""

  def key(label: str) -> tuple[int, list[str]]:
    rank = {":": 1, "/": 2}.get(label[0], 0)
    return rank, label.replace(":", "/:").split("/")

  if len(shown) == 1:
    return f'    {name} = ["{shown.pop()}"],\n'
  lines = "".join(f'        "{x}",\n' for x in sorted(shown, key=key))
  return f"    {name} = [\n{lines}    ],\n"


def format_package(folder: str) -> str:
  """Returns the text of the BUILD file of a folder of the package."""
  text = _HEADER
  lazy = lazy_targets(folder) if folder != _PACKAGE else []
  if lazy:
    leaf = folder.rpartition("/")[2]
    deps = format_list("deps", lazy, folder)
    text += "\n# The whole: the names that the package loads when used.\n"
    text += f'py_library(\n    name = "{leaf}",\n{deps})\n'
  # A folder that is no package, such as programs/_site, has no BUILD file.
  modules = [
    path
    for path in [*(ROOT / folder).glob("*.py"), *(ROOT / folder).glob("*/*.py")]
    if path.parent == ROOT / folder or not _is_package(path.parent)
  ]
  for path in sorted(modules, key=lambda path: path.stem):
    sources = [path]
    if folder == _PACKAGE and path.stem in _IN_PACKAGE:
      continue
    name = path.stem if path.stem != "__init__" else "package"
    if name == "package" and folder == _PACKAGE:
      sources += [path.with_name(f"{stem}.py") for stem in _IN_PACKAGE]
    data = _DATA.get(f"{folder}/{path.name}", [])
    deps = find_deps(sources, folder, f"//{folder}:{name}")
    text += f'\npy_library(\n    name = "{name}",\n'
    text += format_list(
      "srcs", [str(path.relative_to(ROOT / folder)) for path in sources]
    )
    text += format_list("data", data)
    text += format_list("deps", deps, folder) + ")\n"
  inner = [
    f"//{folder}/{path.name}:all_files"
    for path in sorted((ROOT / folder).iterdir())
    if _is_package(path)
  ]
  files = format_list("srcs", ["BUILD", *inner]).rstrip(",\n")
  text += f'\nfilegroup(\n    name = "all_files",\n{files}'
  return text + ' + glob(["**/*.py"]),\n)\n'


def api_targets() -> dict[str, str]:
  """Returns the label of each public module of the package, by its name."""
  source = (ROOT / _PACKAGE / "__init__.py").read_text("utf-8")
  modules = re.findall(r"^  from \w+ import (\w+) as \1$", source, re.MULTILINE)
  found = {}
  for name in modules:
    found[name] = str(find_target(f"{_PACKAGE}.{name}", _PACKAGE))
  return found


def format_root() -> str:
  """Returns the text of the root's BUILD file with today's public targets."""
  text = (ROOT / "BUILD").read_text("utf-8")
  targets = api_targets()
  labels = {*lazy_targets(_PACKAGE), *_LOADED_BY_NAME} - {*targets.values()}
  deps = [f":{name}" for name in targets] + sorted(labels)
  rules = (
    f'py_library(\n    name = "{_PACKAGE}",\n{format_list("deps", deps)})\n'
  )
  for name, label in sorted(targets.items()):
    place, _, leaf = label.rpartition(":")
    short = place if place.rpartition("/")[2] == leaf else label
    rules += f'\nalias(\n    name = "{name}",\n    actual = "{short}",\n)\n'
  text = re.sub(r"^alias\(\n(?:.*\n)*?\)\n\n", "", text, flags=re.MULTILINE)
  pattern = rf'^py_library\(\n    name = "{_PACKAGE}",\n(?:.*\n)*?\)\n'
  return re.sub(pattern, lambda _: rules, text, flags=re.MULTILINE)


def format_tests(folder: str) -> str:
  """Returns the text of a BUILD file of tests with today's rules and `deps`."""
  text = (ROOT / folder / "BUILD").read_text("utf-8")
  missing = {path.name for path in (ROOT / folder).glob("*.py")}

  def rewrite(match: re.Match[str]) -> str:
    rule = match[0]
    name = re.search(r'name = "(.+)"', rule)
    sources = re.findall(r'"(\w+\.py)"', rule)
    if not name or not sources:
      return rule
    missing.difference_update(sources)
    paths = [ROOT / folder / source for source in sources]
    if not all(path.exists() for path in paths):
      return ""
    deps = find_deps(paths, folder, f"//{folder}:{name[1]}")
    rule = re.sub(r"    deps = (\[[^]]*\]),\n", "", rule)
    return rule[:-2] + format_list("deps", deps, folder) + ")\n"

  pattern = r"^\npy_(?:library|test)\(\n(?:.*\n)*?\)\n"
  text = re.sub(pattern, rewrite, text, flags=re.MULTILINE)
  for source in sorted(missing):
    text += re.sub(pattern, rewrite, _format_new_test(source))
  return text


def _format_new_test(source: str) -> str:
  """Returns a rule without `deps` for a file of the tests."""
  name = source.removesuffix(".py")
  if name.endswith("_test"):
    kind, more = "py_test", f'    size = "medium",\n    srcs = ["{source}"],\n'
  else:
    kind = "py_library"
    more = f'    testonly = True,\n    srcs = ["{source}"],\n'
    more += '    imports = ["."],\n'
  return f'\n{kind}(\n    name = "{name}",\n{more})\n'


def paths() -> list[str]:
  """Returns the paths of the BUILD files that this module writes."""
  packages = {path.parent for path in (ROOT / _PACKAGE).rglob("__init__.py")}
  tests = {path.parent for path in (ROOT / "tests").rglob("*_test.py")}
  folders = (
    path.relative_to(ROOT).as_posix()
    for path in (*sorted(packages), *sorted(tests))
  )
  return ["BUILD", *(f"{folder}/BUILD" for folder in folders)]


def format_file(path: str) -> str:
  """Returns the text that a BUILD file should have."""
  folder = path.rpartition("/")[0]
  if not folder:
    return format_root()
  is_package = folder.startswith(_PACKAGE)
  return format_package(folder) if is_package else format_tests(folder)


def main() -> None:
  """Writes the files that are not as they should be, and names them."""
  for name in paths():
    text, path = format_file(name), ROOT / name
    if not path.exists() or path.read_text("utf-8") != text:
      path.write_text(text, "utf-8")
      print(name)


if __name__ == "__main__":
  main()
