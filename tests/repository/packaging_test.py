# SPDX-License-Identifier: Apache-2.0
"""Tests the metadata of the package: extras, groups, addresses."""

import re
import runpy

import helpers
import pytest

pytestmark = pytest.mark.any_release

_PROJECT = "https://example.org/o/p"
_PAGES = "https://pages.example.org"
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MADE = runpy.run_path(str(helpers.ROOT / "setup.py"), run_name="made")


def make_absolute(text, project=_PROJECT, documentation=_PAGES):
  return _MADE["make_links_absolute"](text, project, documentation)


def read_settings():
  tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
  return tomllib.loads((helpers.ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("[a](docs/x.md#y)", f"[a]({_PAGES}/x.html#y)"),
    ("[a](LICENSE), [b](#c)", f"[a]({_PROJECT}/blob/main/LICENSE), [b](#c)"),
    ("![a](docs/x.png)", f"![a]({_PROJECT}/raw/main/docs/x.png)"),
    ("[a](https://b.example/docs/x.md)", "[a](https://b.example/docs/x.md)"),
    ("`[a](b)` [c](d)", f"`[a](b)` [c]({_PROJECT}/blob/main/d)"),
    ("```\n[a](b)\n```\n", "```\n[a](b)\n```\n"),
  ],
)
def test_links(text, expected):
  assert make_absolute(text) == expected


def test_no_relative_link_is_left_of_the_readme():
  readme = (helpers.ROOT / "README.md").read_text("utf-8")
  assert len(_LINK.findall(readme)) > 10
  for known in ((_PROJECT, _PAGES), (_PROJECT, ""), ("", _PAGES), ("", "")):
    text = make_absolute(readme, *known)
    assert not [x for x in _LINK.findall(text) if not re.match("https://|#", x)]
    assert "Checkpoints" in text


def test_addresses():
  urls = _MADE["make_urls"](_PROJECT, _PAGES)
  assert urls["Documentation"] == _PAGES and urls["Source"] == _PROJECT
  assert urls["Changelog"] == f"{_PROJECT}/blob/main/CHANGELOG.md"
  assert _MADE["make_urls"]("", "") == {}


def test_what_needs_tensorflow_is_for_pythons_that_it_has_wheels_for():
  project = read_settings()["project"]
  assert "version" in project["dynamic"] and project["authors"][0]["name"]
  for extra in ("tensorflow", "keras"):
    (requirement,) = project["optional-dependencies"][extra]
    assert requirement.endswith("; python_version < '3.14'")
  pythons = [
    c.rpartition(" ")[2]
    for c in project["classifiers"]
    if c.startswith("Programming Language :: Python :: 3.")
  ]
  assert pythons == ["3.10", "3.11", "3.12", "3.13", "3.14"]


if __name__ == "__main__":
  helpers.main()
