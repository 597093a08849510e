# SPDX-License-Identifier: Apache-2.0
"""Builds the package, with absolute links if the project's place is known.

This source names no host, because it does not know where it is published.
Whoever publishes the package sets two variables of the environment:

  PROJECT_URL=https://example.org/owner/project
  DOCUMENTATION_URL=https://example.org/pages

Package indexes show the README. There, relative links lead nowhere: they become
absolute, or plain text if their place is not known.
"""

import os
import pathlib
import re

_README = pathlib.Path(__file__).absolute().parent / "README.md"
_BRANCH = "main"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.DOTALL | re.MULTILINE)


def make_urls(project: str, documentation: str) -> dict[str, str]:
  """Returns the addresses for the package's metadata.

  Args:
    project: The address of the repository; "" if it is not known.
    documentation: The address of the pages; "" if it is not known.
  """
  urls = {}
  if project:
    urls["Homepage"] = urls["Source"] = project
    urls["Issues"] = f"{project}/issues"
    urls["Changelog"] = f"{project}/blob/{_BRANCH}/CHANGELOG.md"
  if documentation:
    urls["Documentation"] = documentation
  return urls


def make_links_absolute(text: str, project: str, documentation: str) -> str:
  """Returns a Markdown text without relative links.

  Args:
    text: The text. Code in it stays as it is.
    project: As `make_urls` takes it.
    documentation: As `make_urls` takes it.
  """

  def replace(match: re.Match[str]) -> str:
    bang, words, target = match.groups()
    path, hash_, anchor = target.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
      return match[0]
    page = re.fullmatch(r"docs/(.+)\.md", path)
    if page and documentation:
      url = f"{documentation}/{page[1]}.html"
    elif project:
      url = f"{project}/{'raw' if bang else 'blob'}/{_BRANCH}/{path}"
    else:
      return words
    return f"{bang}[{words}]({url}{hash_}{anchor})"

  # Every second part is code.
  parts = _CODE.split(text)
  parts[::2] = [_LINK.sub(replace, part) for part in parts[::2]]
  return "".join(parts)


if __name__ == "__main__":
  import setuptools  # Tests read this file where there is none.

  _project, _documentation = (
    os.environ.get(name, "").strip().rstrip("/")
    for name in ("PROJECT_URL", "DOCUMENTATION_URL")
  )
  setuptools.setup(
    long_description=make_links_absolute(
      _README.read_text("utf-8"), _project, _documentation
    ),
    long_description_content_type="text/markdown",
    project_urls=make_urls(_project, _documentation),
  )
