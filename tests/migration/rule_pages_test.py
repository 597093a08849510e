# SPDX-License-Identifier: Apache-2.0
"""Tests the page of codes, and that rules say what they must."""

import re

import helpers
import pytest
import rule_pages

from tf_compat_lossscale.migration import rules

pytestmark = pytest.mark.any_release


def test_the_page_is_that_of_the_rules():
  text = rule_pages.PAGE.read_text("utf-8")
  assert text == rule_pages.format_page(), "run: python tools/rule_pages.py"
  codes = {rule.code for rule in rules.list_rules()}
  assert set(re.findall(r"\bLS\d{3}\b", text)) == codes
  links = set(re.findall(r"\(#(\w+)\)", text))
  assert links == {code.lower() for code in codes}
  assert {*re.findall(r"^## (\w+)$", text, re.MULTILINE)} == codes


@pytest.mark.parametrize("rule", rules.list_rules(), ids=lambda rule: rule.code)
def test_a_rule_says_what_it_is_and_shows_it(rule):
  assert re.fullmatch(r"LS\d{3}", rule.code)
  assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
  assert re.fullmatch(r"[A-Z`].{10,}\.", rule.summary), "one sentence"
  assert len(rule.explanation) > 80
  assert rule.examples


if __name__ == "__main__":
  helpers.main()
