# SPDX-License-Identifier: Apache-2.0
"""Tests how Python 2 is told from broken code."""

import time

import helpers
import hypothesis
from hypothesis import strategies as st
import pytest

from tf_compat_lossscale.migration import lexing
from tf_compat_lossscale.migration import notebook_magics
from tf_compat_lossscale.migration import python2

pytestmark = pytest.mark.any_release


def is_python_2(text):
  return python2.find_line(text) is not None


# CPython 2.7.18 compiles each of these; Python 3 does not.
_PYTHON_2 = (
  "print 'x'",
  "print'x'",
  "print x,",
  "print not x",
  "print u'x' % 1, .5",
  "if x: print x",
  "x = 1; print x",
  "print  \\\n  x",
  "print >>f, 'x'; print x",
  "print {}",
  "print lambda: 1",
  "print `x`",
  "x = '''print\n'''\nprint x",
  "exec 'x = 1'",
  "exec code in globals()",
  "try:\n  pass\nexcept E, e:\n  pass",
  "try:\n  pass\nexcept (A,\n    B), e:\n  pass",
  "try:\n  pass\nexcept a.E, (x, y):\n  pass",
  "raise E, 'x'",
  "raise E(a, b(c)), None, tb",
  "x = 0777",
  "x = 10L",
  "x = 0xFFl",
  "x <> y",
  "x = ur'x'",
  "def f(a, (b, c)): pass",
  "f = lambda (a, b): a",
  "f = lambda x, (a, b): a",
  "if x:\n        y\n\tz",
  "if x:\n        print y\n\tz",
  "x = b'\xe9'",
  "x = 1\rprint x\r",
  "# x\r\nif x:\r\n  print x\r\n",
)

# Neither does Python 2, but for `async`, which older Python 3 took, too.
_BROKEN = (
  "x = (",
  "x = [1, 2\ny = 2",
  "def f(:\n  pass",
  "<<<<<<< HEAD\nx = 1\n=======\n",
  "x = 'abc",
  'x = """abc',
  "print('x'",
  "print(x) y",
  "x = print or",
  "class A\n  pass",
  "if x:\npass",
  "  x",
  "x = 1 +",
  "raise E(a, b) c",
  "f(x for x in y, 1)",
  "# print x\nx y",
  "'print x' x y",
  "x = {'a', print, 'b'",
  "%matplotlib inline",
  "!ls",
  "1.0L0 a",
  "x = 00; y z",
  "print not in x y",
  "print in x y",
  "print if x",
  "f(async=True)",
  "lambda x=(1, 2): x y",
)


@pytest.mark.parametrize("text", _PYTHON_2)
def test_what_python_2_is(text):
  assert is_python_2(text)


@pytest.mark.parametrize("text", _BROKEN)
def test_what_broken_code_is(text):
  assert lexing.find_error(text) is not None
  assert not is_python_2(text)


@pytest.mark.thorough
@pytest.mark.parametrize(
  "text",
  [
    f"x = {'(' * 100_000}{')' * 100_000} y",
    f"from {' ' * 50_000} x y\nprint x",
    f"from {'a.' * 20_000} x y\nprint x",
    f"lambda {'x, ' * 30_000}: x y",
    f"x = {'`' * 100_000}",
    f"print {'x.' * 50_000}x",
    f"x = y ' {'?' * 50_000}\n{'?' * 50_000} y",
    f"{' ' * 50_000}= {'!' * 50_000} x",
  ],
)
def test_nothing_takes_long(text):
  start = time.process_time()
  is_python_2(text)
  notebook_magics.read_code(text)
  assert time.process_time() - start < 20  # A second here.


def test_python_2_after_broken_code_is_broken():
  assert not is_python_2("x = = 1\nprint 'x'")


_PIECES = (
  *("print x", "import tensorflow as tf", "(", ")", "'", '"""', "'''", "#"),
  *("\\", "\n", "\r\n", "\r", "\f", "tf.a.b", " ", ".", "ur'x'", "0777", "ä"),
  *("from tensorflow import (", "as", ",", ";", ":", "except x, y", "x = tf.a"),
)


@hypothesis.settings(deadline=None, max_examples=400)
@hypothesis.given(st.lists(st.sampled_from(_PIECES), max_size=25).map("".join))
def test_any_text_can_be_read(text):
  is_python_2(text)
  at = 0
  while at < len(text):
    end = lexing.find_statement_end(text, at)
    assert at < end <= len(text)
    at = end


if __name__ == "__main__":
  helpers.main()
