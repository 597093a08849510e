# SPDX-License-Identifier: Apache-2.0
"""Tests which findings and which files are chosen."""

import types

import helpers
import pytest

from tf_compat_lossscale.migration import excludes
from tf_compat_lossscale.migration import rules

pytestmark = pytest.mark.any_release


@pytest.fixture
def two_rules(monkeypatch):
  listed = [types.SimpleNamespace(code=code) for code in ("LS101", "LS203")]
  monkeypatch.setattr(rules, "list_rules", lambda: listed)


@pytest.mark.usefixtures("two_rules")
def test_codes_are_checked():
  rules.check_codes(["LS101", "LS2", "LS"])
  rules.check_codes([])
  for word in ("LS3", "LS1011", "", "ls101"):
    with pytest.raises(rules.CodeError) as error:
      rules.check_codes(["LS101", word])
    assert str(error.value).startswith(f"there is no code {word!r}: expected ")
    assert "LS101, LS203" in str(error.value)


@pytest.mark.parametrize(
  ("select", "ignore", "selected"),
  [
    ((), (), True),
    (("LS1",), (), True),
    (("LS2",), (), False),
    (("LS2", "LS101"), (), True),
    ((), ("LS101",), False),
    ((), ("LS",), False),
    ((), ("LS2",), True),
    (("LS1",), ("LS101",), False),
    (("LS101",), ("LS1",), True),
    (("LS101",), ("LS101",), False),
  ],
)
def test_the_longest_word_decides(select, ignore, selected):
  assert rules.is_selected("LS101", select, ignore) == selected


@pytest.mark.parametrize(
  ("pattern", "path", "excluded"),
  [
    ("build", "src/build", True),
    ("build", "src/build/", True),
    ("build/", "src/build", True),
    ("build", "src/rebuild", False),
    ("*_pb2.py", "src/a/model_pb2.py", True),
    ("src/build", "src/build", True),
    ("./src/build/", "src/build", True),
    ("src/*.py", "src/a.py", True),
    ("/src", "src", False),
    ("../*/a.py", "b/a.py", True),
    ("build", "other/src.py", False),
  ],
)
def test_excluded_paths(pattern, path, excluded, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  patterns = excludes.make_absolute(["unused", pattern])
  monkeypatch.chdir("/")
  is_excluded = excludes.make_matcher(patterns)
  assert is_excluded(f"{tmp_path}/{path}") == excluded
  assert not excludes.make_matcher([])(path)


if __name__ == "__main__":
  helpers.main()
