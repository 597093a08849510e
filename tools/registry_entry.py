# SPDX-License-Identifier: Apache-2.0
"""Writes what a Bazel registry has for a release of this package.

  PROJECT_URL=https://example.org/owner/project \\
    python tools/registry_entry.py ARCHIVE URL MAINTAINER REGISTRY

The form is that of the Bazel Central Registry. ARCHIVE is the release's source
archive (.tar.gz, one folder in it), URL is the address to download it from,
MAINTAINER is the name of an account, REGISTRY is a checkout of the registry.
Its folder `modules/tf_compat_lossscale` gets the release, and the version is
added to `metadata.json` there. MODULE.bazel is that of the archive.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import re
import sys
import tarfile
from typing import Any
from typing import NoReturn
import zlib

_NAME = "tf_compat_lossscale"
# The example that brings its own TensorFlow: the registry's machines have none.
_TEST_MODULE = "examples/bazel_pypi"
# What others depend on: all of the API, and the first part of it.
_TARGETS = (_NAME, "mixed_precision")
_HOST = "https://github.com/"  # The Central Registry has a short form for it.
_PRESUBMIT = """\
matrix:
  platform: [debian11, ubuntu2204, macos_arm64, windows]
  bazel: [7.x, 8.x, 9.x]
tasks:
  verify_targets:
    name: Build the targets that others depend on
    platform: ${{{{ platform }}}}
    bazel: ${{{{ bazel }}}}
    build_targets:
{targets}
bcr_test_module:
  module_path: {test_module}
  matrix:
    platform: [debian11, ubuntu2204, macos_arm64]
    bazel: [7.x, 8.x, 9.x]
  tasks:
    run_test_module:
      name: Train on TensorFlow's wheel
      platform: ${{{{ platform }}}}
      bazel: ${{{{ bazel }}}}
      build_targets:
      - //...
      test_targets:
      - //...
"""


def fail(message: str) -> NoReturn:
  """Ends the program with one line on standard error and status 2."""
  print(f"registry_entry.py: {message}", file=sys.stderr)
  sys.exit(2)


def read_archive(path: pathlib.Path) -> tuple[str, str]:
  """Returns an archive's one folder, and the text of the MODULE.bazel in it."""
  try:
    with tarfile.open(path) as archive:
      names = archive.getnames()
      folders = {name.split("/")[0] for name in names}
      if len(folders) != 1:
        fail(
          f"{path} has {sorted(folders)[:3]} at its top: expected one folder"
        )
      (folder,) = folders
      for needed in ("MODULE.bazel", f"{_TEST_MODULE}/MODULE.bazel"):
        if f"{folder}/{needed}" not in names:
          fail(
            f"{path} has no {folder}/{needed}: expected an archive of the "
            "whole repository, as git archive makes it; an sdist is not one"
          )
      member = archive.extractfile(f"{folder}/MODULE.bazel")
      text = member.read().decode("utf-8") if member else ""
  except OSError as error:
    fail(f"{path}: {error.strerror or error}: expected a .tar.gz archive")
  except (EOFError, KeyError, ValueError, tarfile.TarError, zlib.error):
    fail(f"{path} is damaged or no archive: expected a .tar.gz archive")
  return folder, text


def format_metadata(
  known: str | None, project: str, maintainer: str, version: str
) -> str:
  """Returns the text of metadata.json with a version more.

  Args:
    known: Today's text; None if the module is new.
    project: The address of the repository.
    maintainer: The name of the maintainer's account.
    version: The version to add.
  """
  place = project
  if project.startswith(_HOST):
    place = f"github:{project.removeprefix(_HOST)}"
  values: dict[str, Any] = {
    "homepage": project,
    "maintainers": [{"github": maintainer}],
    "repository": [place],
    "versions": [],
    "yanked_versions": {},
  }
  if known is not None:
    values = _parse_metadata(known)
  values["versions"].append(version)
  return json.dumps(values, indent=4) + "\n"


def _parse_metadata(text: str) -> dict[str, Any]:
  try:
    values = json.loads(text)
    if not isinstance(values["versions"], list):
      raise TypeError
  except (KeyError, TypeError, ValueError):
    fail("the registry's metadata.json has no list of versions")
  return values


def format_presubmit() -> str:
  """Returns the text of presubmit.yml."""
  targets = "\n".join(f"    - '@{_NAME}//:{name}'" for name in _TARGETS)
  return _PRESUBMIT.format(targets=targets, test_module=_TEST_MODULE)


def write_entry(
  archive: pathlib.Path,
  url: str,
  maintainer: str,
  registry: pathlib.Path,
  project: str,
) -> pathlib.Path:
  """Adds a release to a registry; returns the release's folder."""
  project = project.strip().rstrip("/")
  if not project.startswith("https://"):
    fail(f"PROJECT_URL is {project!r}: expected the repository's https address")
  if not url.startswith(f"{project}/"):
    fail(f"the archive's address is {url!r}: expected one below {project}/")
  if not re.fullmatch(r"[-a-zA-Z0-9]+", maintainer):
    fail(f"the maintainer is {maintainer!r}: expected the name of an account")
  if not (registry / "modules").is_dir():
    fail(f"{registry} has no folder modules: expected a registry's checkout")
  strip_prefix, module = read_archive(archive)
  version = re.search(r'^ +version = "(.+)",$', module, re.MULTILINE)
  if not version:
    fail(f"{archive}: its MODULE.bazel names no version")
  home = registry / "modules" / _NAME
  folder = home / version[1]
  if folder.exists():
    fail(f"{folder} is there already: a registry's releases do not change")
  digest = hashlib.sha256(archive.read_bytes()).digest()
  source = {
    "integrity": f"sha256-{base64.b64encode(digest).decode()}",
    "strip_prefix": strip_prefix,
    "url": url,
  }
  metadata = home / "metadata.json"
  known = metadata.read_text("utf-8") if metadata.exists() else None
  text = format_metadata(known, project, maintainer, version[1])
  folder.mkdir(parents=True)
  (folder / "MODULE.bazel").write_text(module, "utf-8")
  (folder / "source.json").write_text(json.dumps(source, indent=4) + "\n")
  (folder / "presubmit.yml").write_text(format_presubmit(), "utf-8")
  metadata.write_text(text, "utf-8")
  return folder


def main() -> None:
  """Writes the files and names their folder."""
  if len(sys.argv) != 5:
    fail("expected ARCHIVE URL MAINTAINER REGISTRY")
  archive, url, maintainer, registry = sys.argv[1:]
  project = os.environ.get("PROJECT_URL", "")
  paths = pathlib.Path(archive), pathlib.Path(registry)
  print(write_entry(paths[0], url, maintainer, paths[1], project))


if __name__ == "__main__":
  main()
