# SPDX-License-Identifier: Apache-2.0
"""Tests the rules of the project's files: licenses, links, versions."""

import re
import shutil
import subprocess
import sys

import command_calls
import helpers
import project_files
import pytest

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import keras
from tf_compat_lossscale import policies

pytestmark = pytest.mark.any_release

_LICENSE = "# SPDX-License-Identifier: Apache-2.0"
_DOCS = helpers.ROOT / "docs"
_REFERENCE = _DOCS / "api"
# These folders hold old programs and their results, which must not change.
_KEPT = (
  *("examples/legacy/", "tests/goldens/"),
  *("tests/programs/legacy/", "tests/programs/projects/"),
)


def pages():
  """Returns the paths of all Markdown files of the project."""
  return [*helpers.ROOT.glob("*.md"), *_DOCS.rglob("*.md")]


def is_source(path):
  """Returns whether a path relative to the project is of a source file."""
  if path.as_posix().startswith(_KEPT):
    return False
  named = path.name in ("BUILD", "Makefile", "WORKSPACE", "bazel", "run")
  return named or path.suffix in (".bazel", ".bzl", ".py", ".sh")


def test_sources_name_their_license():
  missing, count = [], 0
  for path, text in project_files.text_files():
    path = path.relative_to(helpers.ROOT)
    if is_source(path):
      count += 1
      if _LICENSE not in text.splitlines()[:2]:
        missing.append(path.as_posix())
  assert count > 100
  assert not missing, (
    f"begin with {_LICENSE!r}, after a line #! if there is one"
  )


def links():
  """Yields (page, target, anchor) for each relative link of all pages."""
  for path in pages():
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
      if "://" not in link:
        name, _, anchor = link.partition("#")
        yield path, path.parent / name if name else path, anchor


def anchors_of(path):
  """Returns the anchors that Markdown renderers make of a page's headings."""
  headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
  words = [re.sub(r"[^\w\s-]", "", text).strip().lower() for text in headings]
  return {re.sub(r"\s", "-", text) for text in words}


def test_links_lead_somewhere():
  found = list(links())
  assert len(found) > 30
  for page, target, anchor in found:
    assert target.exists(), f"{page.name}: {target}"
    if anchor:
      assert anchor in anchors_of(target), f"{page.name}: #{anchor}"


def test_pages_and_navigation_are_the_same():
  navigation = (helpers.ROOT / "mkdocs.yml").read_text("utf-8")
  listed = set(re.findall(r"^ +- .+: (\S+\.md)$", navigation, re.MULTILINE))
  assert listed == {
    p.relative_to(_DOCS).as_posix() for p in _DOCS.rglob("*.md")
  }


def test_commands_in_pages_are_in_the_makefile():
  makefile = (helpers.ROOT / "Makefile").read_text("utf-8")
  targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
  phony = set(re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split())
  assert phony == targets
  for path in pages():
    for line in re.findall(
      r"(?:^|`)make ([a-z]+)", path.read_text("utf-8"), re.M
    ):
      assert line in targets, f"{path.name}: make {line}"


def test_tests_that_settings_name_exist():
  for name in (".ci/run", ".pre-commit-config.yaml", "pyproject.toml"):
    text = (helpers.ROOT / name).read_text("utf-8")
    found = re.findall(r"\btests/[\w/]+(?:\.py)?", text)
    assert found
    for path in found:
      assert (helpers.ROOT / path).exists(), f"{name}: {path}"


@pytest.mark.parametrize(
  "owner",
  [tfl, checkpoint, keras, policies],
  ids=lambda module: module.__name__,
)
def test_documents_name_every_public_name(owner):
  readme = (helpers.ROOT / "README.md").read_text("utf-8")
  documents = readme + "".join(p.read_text("utf-8") for p in _DOCS.glob("*.md"))
  reference = "".join(p.read_text("utf-8") for p in _REFERENCE.glob("*.md"))
  assert re.search(rf"^::: {re.escape(owner.__name__)}$", reference, re.M)
  for name in owner.__all__:
    if not name.startswith("__") and owner is not checkpoint:
      assert re.search(rf"\b{name}\b", documents), name


def test_the_reference_has_every_command(capsys):
  page = (_REFERENCE / "command-line.md").read_text("utf-8")
  _, printed, _ = command_calls.call(capsys, "--help")
  commands = re.findall(r"^    ([a-z]+) ", printed, re.MULTILINE)
  assert len(commands) >= 5
  for command in commands:
    assert f"\n{{help {command}}}\n" in page, command


def test_the_newest_change_is_of_this_version():
  text = (helpers.ROOT / "CHANGELOG.md").read_text("utf-8")
  sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
  assert all(re.fullmatch(r"\S+ \(\d{4}-\d\d-\d\d\)", s) for s in sections)
  assert sections[0].split()[0] == tfl.__version__
  module = (helpers.ROOT / "MODULE.bazel").read_text("utf-8")
  assert f'version = "{tfl.__version__}"' in module
  page = (_DOCS / "bazel.md").read_text("utf-8")
  assert f'version = "{tfl.__version__}"' in page


_CASES = """
import pytest

@pytest.mark.parametrize("seed", range(9))
def test_seeds(seed): pass

@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize("name", ["adam", "sgd", "ftrl"])
def test_product(mode, name): pass

@pytest.mark.parametrize("given, expected", [(1, 2), (1, 3), (2, 3)])
def test_rows(given, expected): pass
"""


def test_quick_tests_have_every_value(tmp_path):
  shutil.copy(helpers.ROOT / "tests" / "conftest.py", tmp_path)
  (tmp_path / "cases_test.py").write_text(_CASES)
  command = [sys.executable, "-m", "pytest", "-q", "--collect-only"]
  command += ["-m", "not thorough", "-c", "none.ini", "cases_test.py"]
  (tmp_path / "none.ini").write_text("[pytest]\n")
  done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
  found = dict.fromkeys(("seeds", "product", "rows"), ())
  for name, values in re.findall(r"::test_(\w+)\[(.+)\]", done.stdout):
    found[name] += (values,)
  assert found["seeds"] == ("0", "1")
  assert len(found["product"]) == len(found["rows"]) == 3  # A row is a value.
  assert {v for case in found["product"] for v in case.split("-")} == {
    *("graph", "eager", "adam", "sgd", "ftrl")
  }


if __name__ == "__main__":
  helpers.main()
