# SPDX-License-Identifier: Apache-2.0
"""The addresses of the pages of codes, if the pages are published."""

from __future__ import annotations

import importlib.metadata

_PACKAGE = __name__.partition(".")[0]


def find_site() -> str | None:
  """Returns where the pages are, if the installed package names the place.

  Whoever builds the package names it by `DOCUMENTATION_URL`.
  """
  try:
    metadata = importlib.metadata.metadata(_PACKAGE)
  except importlib.metadata.PackageNotFoundError:
    return None
  for line in metadata.get_all("Project-URL") or ():
    label, _, url = line.partition(",")
    if label.strip().lower() == "documentation":
      return url.strip()
  return None


def make_url(site: str, code: str) -> str:
  """Returns the address of a code's page.

  Args:
    site: What `find_site` returned.
    code: The code, such as LS101.
  """
  return f"{site.rstrip('/')}/codes/{code}.html"
