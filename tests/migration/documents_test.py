# SPDX-License-Identifier: Apache-2.0
"""Tests how Python sources are read, and edited byte for byte."""

import codecs
import os
import tokenize

import helpers
import hypothesis
from hypothesis import strategies as st
import pytest

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.migration.edits import Edit

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


def edits_of(text, spans, news):
  """Returns edits that do not overlap."""
  offsets = sorted(offset % (len(text) + 1) for offset in spans)
  pairs = zip(offsets[::2], offsets[1::2])
  return [Edit(*pair, new) for pair, new in zip(pairs, news)]


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
  edits = edits_of(text, spans, news)
  for start, end, new in edits:
    wanted += (text[at:start] + new).encode(encoding)
    at = end
  wanted += text[at:].encode(encoding)
  shift = len(declared)
  edits = [Edit(shift + e.start, shift + e.end, e.text) for e in edits]
  assert document.replace(edits) == wanted
  assert document.replace([]) == mark + (declared + text).encode(encoding)


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(
  st.text(st.sampled_from("ab\r\n\f\x0b\x1c\x85\u2028ß\U0001f600"), max_size=30)
)
def test_positions(text):
  document = read(text.encode("utf-8"))
  line = column = 1
  for offset, character in enumerate(text):
    assert document.locate(offset) == (None, line, column)
    column += 1
    if character == "\n" or (
      character == "\r" and text[offset + 1 :][:1] != "\n"
    ):
      line, column = line + 1, 1


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(
  st.lists(
    st.sampled_from(
      [
        *(b"# coding: latin-1", b"# vim: set fileencoding=utf8 :"),
        *(b"\n", b"\r", b"\f", b"x = 1", b"\xc3\xa4", b"\xe4", b"#"),
        *(b"'coding: latin-1'", b"# coding: nonsense", codecs.BOM_UTF8),
      ]
    ),
    max_size=6,
  ).map(b"".join)
)
def test_the_encoding_is_that_of_python(data):
  with_newlines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
  try:
    encoding, _ = tokenize.detect_encoding(
      iter(with_newlines.splitlines(keepends=True)).__next__
    )
    text = data.decode(encoding)
  except (SyntaxError, UnicodeDecodeError):
    assert "cannot be read" in error_of("x.py", data)
  else:
    assert read(data).text == text


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
    (b"# coding: undefined\n", "x.py: cannot be read: not text in the declare"),
    (
      b"# coding: raw_unicode_escape\n'\\ud800'",
      "x.py: cannot be read: not text in the declared encoding (raw_unicode",
    ),
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
  ("data", "new", "message"),
  [
    (
      b"# coding: latin-1\nx\n",
      "'\u20ac'",
      "x.py: cannot be edited: iso-8859-1 would change bytes outside the "
      "edits, or lacks a character",
    ),
    (
      # Two escape sequences where one will do.
      b"# coding: iso2022_jp\nx # \x1b$B\x1b$B4A\x1b(B\n",
      "y",
      "x.py: cannot be edited: iso2022_jp would change bytes outside the edits",
    ),
    (
      b"# coding: unicode_escape\n\nx = '\\t'\n",
      "y",
      "x.py: cannot be edited: unicode_escape would change bytes",
    ),
  ],
)
def test_edits_that_an_encoding_cannot_take(data, new, message):
  document = read(data)
  offset = document.text.index("\n") + 1
  with pytest.raises(documents.DocumentError) as caught:
    document.replace([Edit(offset, offset + 1, new)])
  assert str(caught.value).startswith(message)
  assert document.replace([]) == data


def test_the_declared_encoding_stays_declared():
  document = read(b"#!/usr/bin/python\n# coding: latin-1\nx = '\xe9'\n")
  edit = Edit(18, 18, "import y\n")
  with pytest.raises(documents.DocumentError, match=r"first two lines"):
    document.replace([edit])
  same = Edit(18, 18, "# coding: latin-1\n")
  assert document.replace([same]).endswith(b"-1\nx = '\xe9'\n")


def test_kinds_of_files(tmp_path):
  for name, data in {
    "a.py": b"x",
    "b.PYW": b"x",
    "run": b"#!/usr/bin/env python3\nx",
    "c.py": b"",
  }.items():
    path = tmp_path / name
    path.write_bytes(data)
    assert trees.read(str(path)).text == data.decode()
  for name, data in {
    "README.md": b"# python\n",
    "run.sh": b"#!/bin/sh\npython x.py\n",
    "a.pyc": b"",
  }.items():
    path = tmp_path / name
    path.write_bytes(data)
    assert error_of(str(path)) == (
      f"{path}: neither Python (.py) nor a notebook (.ipynb)"
    )
  assert trees.read("-", b"{1}").text == "{1}"
  assert trees.read("-", b'{"cells": []}').text == ""


def test_what_is_no_file(tmp_path, monkeypatch):
  paths = {
    name: tmp_path / f"{name}.py"
    for name in ("folder", "pipe", "loop", "dangling", "missing", "denied")
  }
  paths["folder"].mkdir()
  os.mkfifo(paths["pipe"])
  paths["loop"].symlink_to(paths["loop"])
  paths["dangling"].symlink_to("nothing")
  paths["denied"].write_bytes(b"x")
  paths["device"] = tmp_path / "device.py"
  paths["device"].symlink_to("/dev/zero")
  paths["name"] = "a\nb\udce9\0.py"

  def deny(path, mode):
    raise PermissionError(13, "Permission denied", path)

  # The superuser may read everything.
  monkeypatch.setattr("builtins.open", deny)
  reasons = {
    "folder": "a folder",
    "pipe": "not a regular file",
    "loop": "Too many levels of symbolic links",
    "dangling": "the link leads to nothing",
    "missing": "there is no such file",
    "denied": "Permission denied",
    "device": "not a regular file",
  }
  for name, reason in reasons.items():
    assert error_of(str(paths[name])) == f"{paths[name]}: {reason}"
  assert error_of(paths["name"]).startswith("a\\nb\\udce9\\x00.py: ")


def test_a_huge_binary_is_not_read(tmp_path):
  path = tmp_path / "huge.py"
  with path.open("wb") as file:
    file.truncate(1 << 40)
  assert error_of(str(path)) == f"{path}: a binary file, not text"


if __name__ == "__main__":
  helpers.main()
