# SPDX-License-Identifier: Apache-2.0
"""Tests the comments that silence findings."""

import textwrap

import helpers
import pytest

from tf_compat_lossscale.migration import comments

pytestmark = pytest.mark.any_release

_ONE = frozenset(["LS101"])
_TWO = frozenset(["LS101", "LS203"])


@pytest.mark.parametrize(
  ("comment", "codes"),
  [
    ("# lossscale: ignore", None),
    ("#lossscale:ignore", None),
    ("# Lossscale: ignore, as TensorFlow has it.", None),
    ("# lossscale: ignore[LS101]", _ONE),
    ("# lossscale: ignore [ls101]", _ONE),
    ("# lossscale: ignore[LS101,LS203]", _TWO),
    ("# lossscale: ignore[ LS101, LS203 ] because", _TWO),
    ("# noqa  # lossscale: ignore[LS101]  # type: ignore", _ONE),
    ("# lossscale: ignore[]", frozenset()),
  ],
)
def test_what_a_comment_ignores(comment, codes):
  assert comments.read_comments(f"x = 1\ny = 2  {comment}\n").ignored == {
    2: codes
  }


@pytest.mark.parametrize(
  "comment",
  [
    "# lossscale: ignore[LS101",
    "# lossscale: ignored",
    "# lossscale: ignore-all",
    "# lossscale: skip",
  ],
)
def test_what_is_no_such_comment_is_a_mistake(comment):
  found = comments.read_comments(f"x = 1\ny = 2  {comment}\n")
  assert not found.ignored
  ((line, message),) = found.mistakes
  assert line == 2 and comment in message


def test_unknown_codes_are_named():
  text = "x = 1  # lossscale: ignore[LS101, LS9, LS2]\n"
  found = comments.read_comments(text, ["LS101", "LS203"])
  assert found.mistakes == ((1, "there is no code 'LS9' to ignore"),)
  assert comments.read_comments(text).mistakes == ()


@pytest.mark.parametrize(
  ("text", "lines"),
  [
    # Strings are no comments.
    ('x = "# lossscale: ignore"\n', []),
    ('"""\n# lossscale: ignore\n"""\n', []),
    # A comment speaks for its own line.
    ("f(\n  1,  # lossscale: ignore\n  2,\n)\n", [2]),
    ("# lossscale: ignore\nx = 1\n", [1]),
    # The first lines cannot have a comment.
    ("x = 1 + \\\n  2 + \\\n  3  # lossscale: ignore\n", [1, 2, 3]),
    ('f("""\n\n""")  # lossscale: ignore\n', [1, 2, 3]),
    ('y = 0\nf(f"""\n{x}\n""")  # lossscale: ignore\n', [2, 3, 4]),
    ('x = \\\n"""\n"""  # lossscale: ignore\n', [1, 2, 3]),
    ("y = 2  # a\\\nx = 1  # lossscale: ignore\n", [2]),
    # Line ends and form feeds.
    ("x = 1\r\ny = 2  # lossscale: ignore\r\n", [2]),
    ("x = 1\ry = 2  # lossscale: ignore\r", [2]),
    ("x = 1\n\x0c\ny = 2  # lossscale: ignore", [3]),
    # Python 2, and what is no Python at all.
    ("print 'x'\nx = `1`\nexec 'y'  # lossscale: ignore\n", [3]),
    ("x = 0777  # lossscale: ignore\nf(x  # lossscale: ignore\n", [1, 2]),
    ("x = '\n  y = 1  # lossscale: ignore\n z = 2\n", [2]),
    ("if x:\n    y\n  z\nx  # lossscale: ignore\n", [4]),
  ],
)
def test_the_lines_that_a_comment_speaks_for(text, lines):
  assert sorted(comments.read_comments(text).ignored) == lines


def test_two_comments_for_one_line():
  text = textwrap.dedent(
    '''\
    f("""
    """, """  # no comment
    """)  # lossscale: ignore[LS101]
    '''
  )
  assert comments.read_comments(text).ignored == {1: _ONE, 2: _ONE, 3: _ONE}


def test_whether_a_finding_is_ignored():
  ignored = {1: None, 2: _ONE, 3: frozenset(["LS1"]), 4: frozenset()}
  assert [comments.is_ignored("LS101", line, ignored) for line in range(6)] == [
    *(False, True, True, True, False, False)
  ]
  assert not comments.is_ignored("LS203", 2, ignored)


if __name__ == "__main__":
  helpers.main()
