# SPDX-License-Identifier: Apache-2.0
"""Tests the pages of codes: each rule has one, and it says what it must."""

import re

import helpers
import pytest
import rule_pages

from tf_compat_lossscale.migration import rules

pytestmark = pytest.mark.any_release

_RULES = rules.list_rules()


@pytest.mark.parametrize("name", list(rule_pages.format_all()))
def test_pages_are_those_of_the_rules(name):
  path = helpers.ROOT / name
  text = path.read_text("utf-8") if path.exists() else ""
  assert text == rule_pages.format_all()[name], (
    "run: python tools/rule_pages.py"
  )


def test_there_are_no_other_pages():
  names = {
    path.relative_to(helpers.ROOT).as_posix()
    for path in (helpers.ROOT / "docs" / "codes").iterdir()
  }
  assert names == set(rule_pages.format_all()) - {"mkdocs.yml"}


@pytest.mark.parametrize("rule", _RULES, ids=lambda rule: rule.code)
def test_a_rule_says_what_it_is_and_shows_it(rule):
  assert re.fullmatch(r"LS\d{3}", rule.code)
  assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
  assert re.fullmatch(r"[A-Z`].{10,}\.", rule.summary), "one sentence"
  assert len(rule.explanation) > 80
  assert rule.examples


def test_codes_in_pages_exist():
  codes = {rule.code for rule in _RULES}
  assert len(codes) == len(_RULES) > 5
  for rule in _RULES:
    assert set(re.findall(r"\bLS\d+\b", rule.explanation)) <= codes


def test_other_codes_become_links():
  rule = rules.Rule(
    *("LS101", "x", None, (), "Summary.", "See LS101, LS102 and LS1.")
  )
  page = rule_pages.format_page(rule)
  assert "See LS101, [LS102](LS102.md) and LS1.\n" in page


if __name__ == "__main__":
  helpers.main()
