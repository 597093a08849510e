# SPDX-License-Identifier: Apache-2.0
"""Tests that a registry's entry has the form that the Central Registry asks."""

import base64
import hashlib
import json
import re
import tarfile

import helpers
import pytest
import registry_entry

import tf_compat_lossscale as tfl

pytestmark = pytest.mark.any_release
_PROJECT = "https://github.com/owner/tf_compat_lossscale"
_URL = f"{_PROJECT}/releases/download/v1/source.tar.gz"
_FILES = ("MODULE.bazel", "examples/bazel_pypi/MODULE.bazel")


def make_archive(path, files=_FILES, folder="source-1"):
  with tarfile.open(path, "w:gz", dereference=True) as archive:
    for name in files:
      archive.add(helpers.ROOT / name, f"{folder}/{name}")
  return path


@pytest.fixture
def registry(tmp_path):
  (tmp_path / "registry" / "modules").mkdir(parents=True)
  return tmp_path / "registry"


def write(registry, archive=None, url=_URL, maintainer="me", project=_PROJECT):
  archive = archive or make_archive(registry.parent / "source.tar.gz")
  return registry_entry.write_entry(archive, url, maintainer, registry, project)


def test_the_files(registry):
  folder = write(registry)
  assert folder.name == tfl.__version__
  names = {path.name for path in folder.iterdir()}
  assert names == {"MODULE.bazel", "presubmit.yml", "source.json"}
  module = (helpers.ROOT / "MODULE.bazel").read_bytes()
  assert (folder / "MODULE.bazel").read_bytes() == module

  source = json.loads((folder / "source.json").read_text())
  digest = hashlib.sha256((registry.parent / "source.tar.gz").read_bytes())
  kind, _, value = source.pop("integrity").partition("-")
  assert (kind, base64.b64decode(value)) == ("sha256", digest.digest())
  assert source == {"strip_prefix": "source-1", "url": _URL}

  metadata = json.loads((folder.parent / "metadata.json").read_text())
  assert metadata == {
    "homepage": _PROJECT,
    "maintainers": [{"github": "me"}],
    "repository": ["github:owner/tf_compat_lossscale"],
    "versions": [tfl.__version__],
    "yanked_versions": {},
  }


def test_the_presubmit(registry):
  text = (write(registry) / "presubmit.yml").read_text()
  assert text.count("  bazel: [7.x, 8.x, 9.x]\n") == 2
  assert text.count("${{ platform }}") == text.count("${{ bazel }}") == 2
  assert re.findall(r"^(\w+):", text, re.MULTILINE) == [
    *("matrix", "tasks", "bcr_test_module")
  ]
  (place,) = re.findall(r"^  module_path: (\S+)$", text, re.MULTILINE)
  assert (helpers.ROOT / place / "MODULE.bazel").exists()
  assert "py_test(" in (helpers.ROOT / place / "BUILD").read_text()
  named = re.findall(r"^    - '@tf_compat_lossscale//:(\w+)'$", text, re.M)
  assert "tf_compat_lossscale" in named
  build = (helpers.ROOT / "BUILD").read_text()
  for name in named:
    assert f'    name = "{name}",\n' in build


def test_a_further_release_keeps_what_is_known(registry):
  home = registry / "modules" / "tf_compat_lossscale"
  home.mkdir()
  known = {"homepage": "h", "maintainers": [{"github": "a", "name": "A"}]}
  known |= {"repository": ["r"], "versions": ["0.0.1"], "yanked_versions": {}}
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
  ],
)
def test_wrong_words(registry, capsys, changed, words):
  check_refused(registry, capsys, words, **changed)


def check_refused(registry, capsys, words, **changed):
  before = sorted(registry.rglob("*"))
  with pytest.raises(SystemExit) as exit_:
    write(registry, **changed)
  assert exit_.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith("registry_entry.py: ") and words in line
  assert sorted(registry.rglob("*")) == before


def test_wrong_archives(registry, capsys, tmp_path):
  sdist = make_archive(tmp_path / "a.tar.gz", _FILES[:1])
  check_refused(registry, capsys, "has no source-1/examples", archive=sdist)
  text = tmp_path / "b.tar.gz"
  text.write_text("no archive")
  check_refused(registry, capsys, "expected a .tar.gz", archive=text)


def test_a_release_does_not_change(registry, capsys):
  write(registry)
  check_refused(registry, capsys, "is there already")


if __name__ == "__main__":
  helpers.main()
