# SPDX-License-Identifier: Apache-2.0
"""Tests which findings are chosen, by their codes."""

import types

import helpers
import pytest

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
@pytest.mark.usefixtures("two_rules")
def test_the_longest_word_decides(select, ignore, selected):
  found = [rule.code for rule in rules.select_rules(select, ignore)]
  assert ("LS101" in found) == selected


if __name__ == "__main__":
  helpers.main()
