# SPDX-License-Identifier: Apache-2.0
"""Tests the rules of the project's files: licenses, links, versions."""

import re
import shutil
import subprocess
import sys

import command_calls
import helpers
import pytest
import release_texts

import tf_compat_lossscale as tfl
from tf_compat_lossscale import _releases
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


def text_files():
  """Yields (path, text) of the text files that git tracks."""
  if not (helpers.ROOT / ".git").exists():
    pytest.skip("this is no git checkout, so nothing says what is tracked")
  if shutil.which("git") is None:
    pytest.skip("git is not installed")
  listed = subprocess.run(
    # In a container, another user than the tests' may own the checkout.
    ["git", "-c", "safe.directory=*", "ls-files", "-z"],
    capture_output=True,
    check=True,
    cwd=helpers.ROOT,
  )
  for name in listed.stdout.decode("utf-8").split("\0"):
    path = helpers.ROOT / name
    if path.is_file():
      data = path.read_bytes()
      if b"\0" not in data:
        yield path, data.decode("utf-8", "replace")


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
  files = [
    (path.relative_to(helpers.ROOT), text) for path, text in text_files()
  ]
  sources = [(path, text) for path, text in files if is_source(path)]
  assert len(sources) > 100
  missing = [p for p, text in sources if _LICENSE not in text.splitlines()[:2]]
  assert not missing, f"begin with {_LICENSE!r}, or have it after a line #!"


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


def test_commands_in_pages_are_there(capsys):
  makefile = (helpers.ROOT / "Makefile").read_text("utf-8")
  targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
  phony = set(re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split())
  assert phony == targets
  _, printed, _ = command_calls.call(capsys, "--help")
  commands = set(re.findall(r"^    ([a-z]+) ", printed, re.MULTILINE))
  assert len(commands) >= 5
  for path in pages():
    text = path.read_text("utf-8") if path.stem != "CHANGELOG" else ""
    for program, known in (("make", targets), ("tf-lossscale", commands)):
      for word in re.findall(rf"(?:^|[`/]){program} ([a-z]+)", text, re.M):
        assert word in known, f"{path.name}: {program} {word}"
  page = (_REFERENCE / "command-line.md").read_text("utf-8")
  for command in commands:
    assert f"\n{{help {command}}}\n" in page, command


def test_tests_that_settings_name_exist():
  for name in (".ci/run", ".pre-commit-config.yaml", "pyproject.toml"):
    text = (helpers.ROOT / name).read_text("utf-8")
    found = re.findall(r"\btests/[\w/]+(?:\.py)?", text)
    assert found
    for path in found:
      assert (helpers.ROOT / path).exists(), f"{name}: {path}"


@pytest.mark.parametrize("owner", [tfl, checkpoint, keras, policies])
def test_documents_name_every_public_name(owner):
  paths = (helpers.ROOT / "README.md", *_DOCS.glob("*.md"))
  documents = "".join(p.read_text("utf-8") for p in paths)
  reference = "".join(p.read_text("utf-8") for p in _REFERENCE.glob("*.md"))
  assert f"::: {owner.__name__}\n" in reference
  for name in owner.__all__:
    if not name.startswith("__") and owner is not checkpoint:
      assert re.search(rf"\b{name}\b", documents), name


def test_the_newest_change_is_of_this_version():
  text = (helpers.ROOT / "CHANGELOG.md").read_text("utf-8")
  sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
  assert all(re.fullmatch(r"\S+ \(\d{4}-\d\d-\d\d\)", s) for s in sections)
  assert sections[0].split()[0] == tfl.__version__


# An absolute path of one machine, written so that it does not match itself. A
# path with a part that the shell or the program fills in does not match.
_MACHINE_PATH = re.compile(
  r"(?<![\w.~$})*-])"
  r"/(?:home|Users|root|tmp|var/(?:folders|tmp)|private|work|workspace|builds|"
  r"mnt|media|Volumes|scratch|data|srv|opt)/[\w.]"
  r"|(?<!\w)[A-Z]:(?:/|\\\\|\\(?![nrt]))\w"
)


def test_no_file_names_a_folder_of_one_machine():
  found = [
    f"{path.relative_to(helpers.ROOT)}:{number}: {line.strip()[:100]}"
    for path, text in text_files()
    for number, line in enumerate(text.splitlines(), 1)
    if _MACHINE_PATH.search(line)
  ]
  assert not found, "name a path relatively, or as /path/to/it"


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


def test_texts_have_the_supported_releases(monkeypatch):
  for path, text in release_texts.list_texts().items():
    assert path.read_text("utf-8") == text, "run tools/release_texts.py"
  monkeypatch.setattr(_releases, "NEWEST", (2, 99))
  monkeypatch.setattr(_releases, "TESTED", (*_releases.TESTED, "2.99.0"))
  texts = release_texts.list_texts()
  readme = texts[helpers.ROOT / "README.md"]
  assert "| 2.12 to 2.99 |" in readme and "2.21.0 and 2.99.0, by" in readme
  assert "tf_keras==2.99.*" in texts[helpers.ROOT / "docs" / "keras.md"]
