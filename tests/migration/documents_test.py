# SPDX-License-Identifier: Apache-2.0
"""Tests how Python sources are read, and edited byte for byte."""

import codecs

import hypothesis
from hypothesis import strategies as st
import pytest

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.migration.documents import Edit

pytestmark = pytest.mark.any_release

# A codec, and characters that it has.
_CODECS = {
  "utf-8": "aß\u20ac\U0001f600\u2028",
  "latin-1": "aß\xa0\x85",
  "cp1252": "aß\u20ac",
  "koi8-r": "aд",
  "shift_jis": "a日",
  "gbk": "a日",
  "euc-jp": "a日",
  "big5": "a日",
}


def read(data, path="x.py"):
  return trees.read(path, data)


def error_of(*args):
  """Returns the one line that `trees.read` raises."""
  with pytest.raises(documents.DocumentError) as caught:
    trees.read(*args)
  (line,) = str(caught.value).splitlines()
  return line


@st.composite
def sources(draw):
  """Draws an encoding, the bytes before the text, and the text."""
  encoding = draw(st.sampled_from(sorted(_CODECS)))
  mark, declared = b"", ""
  if encoding == "utf-8" and draw(st.booleans()):
    mark = codecs.BOM_UTF8
  ends = ["\n", "\r\n", "\r"]
  if encoding != "utf-8" or draw(st.booleans()):
    declared = draw(st.sampled_from(["", "#!/usr/bin/python\n", "\f\r\n"]))
    declared += f"# -*- coding: {encoding} -*-{draw(st.sampled_from(ends))}"
  pieces = [*ends, *_CODECS[encoding], "\f", "\t", "# x", "'''", '"', "\\"]
  text = "".join(draw(st.lists(st.sampled_from(pieces), max_size=30)))
  return encoding, mark, declared, text


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(
  sources(),
  st.lists(st.integers(0, 999), max_size=6),
  st.lists(st.sampled_from(["", "x", "import y\r\n", "a\n"]), min_size=3),
)
def test_bytes_outside_edits_stay(source, spans, news):
  encoding, mark, declared, text = source
  document = read(mark + (declared + text).encode(encoding))
  assert document.text == declared + text
  wanted, at = mark + declared.encode(encoding), 0
  offsets = sorted(offset % (len(text) + 1) for offset in spans)
  edits, shift = [], len(declared)
  for start, end, new in zip(offsets[::2], offsets[1::2], news):
    wanted += (text[at:start] + new).encode(encoding)
    edits.append(Edit(shift + start, shift + end, new))
    at = end
  wanted += text[at:].encode(encoding)
  assert document.replace(edits) == wanted
  assert document.replace([]) == mark + (declared + text).encode(encoding)


@pytest.mark.parametrize(
  ("data", "message"),
  [
    (b"x = 1\ny = '\xe9'\n", "x.py:2: cannot be read: byte 0xe9 is not utf-8"),
    (b"x\rx\r\n'\xe9'\n", "x.py:3: cannot be read: byte 0xe9 is not utf-8"),
    (b"'\xe9'", "x.py: cannot be read: not UTF-8, and no other encoding is"),
    (
      b"# coding: nonsense\n",
      "x.py: cannot be read: unknown encoding: nonsense",
    ),
    (b"# coding: rot13\n", "x.py: cannot be read: not text in the declared"),
    (
      codecs.BOM_UTF8 + b"# coding: latin-1\n",
      "x.py: cannot be read: encoding",
    ),
    (codecs.BOM_UTF16_LE + "x".encode("utf-16-le"), "x.py: a binary file"),
    (b"# coding: latin-1\nx\0\n", "x.py: a binary file, not text"),
  ],
)
def test_bytes_that_are_no_text(data, message):
  assert error_of("x.py", data).startswith(message)


@pytest.mark.parametrize(
  "data",
  [
    b"# coding: latin-1\nx\n",  # It has no euro sign.
    # Two escape sequences where one will do.
    b"# coding: iso2022_jp\nx # \x1b$B\x1b$B4A\x1b(B\n",
    b"# coding: unicode_escape\n\nx = '\\t'\n",
  ],
)
def test_edits_that_an_encoding_cannot_take(data):
  document = read(data)
  offset = document.text.index("\n") + 1
  with pytest.raises(documents.DocumentError, match="bytes outside the edits"):
    document.replace([Edit(offset, offset + 1, "'\u20ac'")])
  assert document.replace([]) == data


def test_kinds_of_files():
  for name in ("a.py", "b.PYW", "-"):
    assert read(b"x", name).text == "x"
  assert read(b"#!/usr/bin/env python3\nx", "run").text.endswith("x")
  assert read(b'{"cells": []}', "-").text == ""
  for name in ("README.md", "run.sh", "a.pyc"):
    assert error_of(name, b"#!/bin/sh\n") == (
      f"{name}: neither Python (.py) nor a notebook (.ipynb)"
    )
