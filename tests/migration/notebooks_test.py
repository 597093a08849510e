# SPDX-License-Identifier: Apache-2.0
"""Tests how notebooks are read, and edited byte for byte."""

import ast
import codecs
import copy
import json
import time

import helpers
import hypothesis
from hypothesis import strategies as st
import pytest

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import lexing
from tf_compat_lossscale.migration import notebook_magics
from tf_compat_lossscale.migration.edits import Edit

pytestmark = pytest.mark.any_release


def notebook_of(*sources, **metadata):
  """Returns a notebook of code cells, as Python objects."""
  cells = [
    {
      "cell_type": "code",
      "execution_count": None,
      "metadata": {},
      "outputs": [],
      "source": source,
    }
    for source in sources
  ]
  return {"cells": cells, "metadata": metadata, "nbformat": 4}


def read(notebook, **style):
  style = {"indent": 1, "ensure_ascii": False} | style
  data = json.dumps(notebook, **style).encode("utf-8")
  return documents.read("x.ipynb", data + b"\n")


def code_of(*sources):
  return read(notebook_of(*sources)).text


def lines_of(text):
  return text.splitlines(keepends=True)


# What is Python, and what is not.


@pytest.mark.parametrize(
  ("source", "code"),
  [
    ("x = 1", "x = 1"),
    ("%matplotlib inline\nx", "#                 \nx"),
    ("if x:\n  %cd x\n  y", "if x:\n  0    \n  y"),
    ("!pip install \\\n  x\ny", "#             \n   \ny"),
    ("x = !ls 'a\ny", "x = 0     \ny"),
    ("x, y = %env A\n", "x, y = 0     \n"),
    ("\n  if x:\n    y\n  z", "\n \fif x:\n \f  y\n \fz"),
    ("\t%cd x\n\ty\nz", "\f0    \n\fy\nz"),
    ("?f\nf??\nx.f?\n", "# \n#  \n#   \n"),
    ("f?", "# "),
    (";f x\n,f x\n/f x", "#   \n#   \n#   "),
    ("%time x = f(1)", "#             "),
    ("y = %timeit -n 3 -o f(1)", "y = 0                   "),
    ("if x:\n  %time x; y", "if x:\n  0         "),
    ("%time f(\n%pwd", "#       \n#   "),
    ("%%time\nx", "#     \nx"),
    ("\n%%capture out\nx\n%pwd", "\n#            \nx\n#   "),
    ("%%bash\nls\n", "      \n  \n"),
    ("%%writefile x.py\nx = 1", " " * 16 + "\n" + " " * 5),
    ("x = '''\n%d\n'''", "x = '''\n%d\n'''"),
    ("x = (y\n  % z)\n!ls", "x = (y\n  % z)\n#  "),
    ("x = y \\\n  % z\n!ls", "x = y \\\n  % z\n#  "),
    ('x = """\n!ls\n"""\n!ls', 'x = """\n!ls\n"""\n#  '),
    ("x = '?'  # what?\n!ls", "x = '?'  # what?\n#  "),
    ("!echo 'don\n'''?'''\n", "#         \n'''?'''\n"),
    ("await x\nx;", "await x\nx;"),
    ("x = (", "     "),
    ("  x = 1", " \fx = 1"),
    ("print 'x'", "         "),
    ("\ud800", " "),
    ("x\r\n!ls\r\ny", "x\r\n#  \r\ny"),
  ],
)
def test_what_is_python(source, code):
  # A notebook can have half of a character, but escaped.
  document = read(notebook_of(source), ensure_ascii="\ud800" in source)
  assert document.text == code
  ast.parse(document.text)
  (cell,) = document.cells
  unread = not code.strip()
  assert bool(cell.code.error) == unread
  assert document.locate(len(source))[0] == 1


def test_unread_cells_have_reasons():
  sources = ["%%bash\nls", "x", "x = (", "%x\nx y"]
  notebook = notebook_of(*sources)
  notebook["cells"].insert(1, {"cell_type": "markdown", "source": ["# x"]})
  document = read(notebook)
  assert [cell.number for cell in document.cells] == [1, 3, 4, 5]
  magic, python, *broken = document.cells
  assert (magic.code.error, magic.code.is_broken) == ("%%bash", False)
  assert (python.code.error, python.code.is_broken) == ("", False)
  assert [cell.code.is_broken for cell in broken] == [True, True]
  assert broken[0].code.error.startswith("line 1: ")
  assert broken[1].code.error.startswith("line 2: ")
  assert document.locate(document.text.index("x")) == (3, 1, 1)


def test_positions_are_those_in_cells():
  document = read(notebook_of("a\nb", "", "ä; c\n", ["d\n", "e"]))
  for name, place in {
    "a": (1, 1, 1),
    "b": (1, 2, 1),
    "c": (3, 1, 4),
    "d": (4, 1, 1),
    "e": (4, 2, 1),
  }.items():
    assert document.locate(document.text.index(name)) == place
  assert document.locate(len(document.text)) == (4, 2, 2)
  assert read(notebook_of()).locate(0) == (None, 1, 1)


@pytest.mark.thorough
@pytest.mark.parametrize(
  "text",
  [
    f"x = {'(' * 100_000}{')' * 100_000} y",
    f"from {' ' * 50_000} x y\nprint x",
    f"x = {'`' * 100_000}",
    f"print {'x.' * 50_000}x",
    f"x = y ' {'?' * 50_000}\n{'?' * 50_000} y",
    f"{' ' * 50_000}= {'!' * 50_000} x",
  ],
)
def test_no_cell_takes_long(text):
  start = time.process_time()
  notebook_magics.read_code(text)
  assert time.process_time() - start < 20  # A second here.


_PIECES = (
  *("print x", "import tensorflow as tf", "(", ")", "'", '"""', "'''", "#"),
  *("\\", "\n", "\r\n", "\r", "\f", "tf.a.b", " ", ".", "ur'x'", "0777", "ä"),
  *("from tensorflow import (", "as", ",", ";", ":", "except x, y", "x = tf.a"),
)


@hypothesis.settings(deadline=None, max_examples=400)
@hypothesis.given(st.lists(st.sampled_from(_PIECES), max_size=25).map("".join))
def test_any_text_has_statements(text):
  at = 0
  while at < len(text):
    end = lexing.find_statement_end(text, at)
    assert at < end <= len(text)
    at = end


# What is no notebook of Python.


@pytest.mark.parametrize(
  ("data", "reason"),
  [
    (b"", "Expecting value: line 1"),
    (b'{"cells": [}', "Expecting value: line 1 column 12"),
    (b"[]", "it is no JSON object"),
    (b"{}", "it has no list of cells"),
    (b'{"cells": [1]}', "cell 1 is no JSON object"),
    (b'{"cells": [{"cell_type": "code"}]}', "cell 1 has no source"),
    (b'{"worksheets": [1]}', "it has no list of cells"),
    (b'{"cells": [{"cell_type": "code", "source": [1]}]}', "cell 1 has no sou"),
    (b'{"cells": []\xe9}', "'utf-8' codec can't decode"),
    (b"[" * 100_000, "maximum recursion depth"),
    (
      b'{"cells": [], "metadata": {"kernelspec": {"language": "R"}}}',
      "its language is R",
    ),
    (
      b'{"cells": [], "metadata": {"language_info": {"name": "julia"}}}',
      "its language is julia",
    ),
  ],
)
def test_what_is_no_notebook(data, reason):
  with pytest.raises(documents.DocumentError) as caught:
    documents.read("x.ipynb", data)
  (line,) = str(caught.value).splitlines()
  assert line.startswith(f"x.ipynb: not a Python notebook: {reason}")


def test_older_notebooks():
  cells = [
    {"cell_type": "markdown", "source": "x"},
    {"cell_type": "code", "language": "python", "input": ["a\n", "b"]},
    {"cell_type": "code", "language": "ruby", "input": "c"},
  ]
  sheets = [{"cells": cells}, {"cells": cells[1:2]}]
  document = read({"metadata": {"name": ""}, "worksheets": sheets})
  assert document.text == "a\nb\na\nb"
  assert [cell.number for cell in document.cells] == [2, 1]
  new = json.loads(document.replace([Edit(6, 6, "x")]))
  assert new["worksheets"][0]["cells"] == cells
  assert new["worksheets"][1]["cells"][0]["input"] == ["a\n", "xb"]


# Edits.


def edit(notebook, *edits, **style):
  """Returns the lines that edits remove and add in a notebook's file."""
  document = read(notebook, **style)
  before = read(notebook, **style).replace([]).decode().split("\n")
  after = document.replace([Edit(*each) for each in edits]).decode().split("\n")
  while before and after and before[0] == after[0]:
    before, after = before[1:], after[1:]
  while before and after and before[-1] == after[-1]:
    before, after = before[:-1], after[:-1]
  return [line.strip() for line in before], [line.strip() for line in after]


def test_lines_are_strings_of_their_own():
  notebook = notebook_of(lines_of("import a\nimport b\nb.c"))
  for edits, before, after in (
    ([(7, 8, "d")], ['"import a\\n",'], ['"import d\\n",']),
    ([(9, 9, "x\n")], [], ['"x\\n",']),
    ([(9, 9, "x\n"), (9, 9, "y\n")], [], ['"x\\n",', '"y\\n",']),
    ([(0, 0, "x\n")], [], ['"x\\n",']),
    ([(8, 8, "\nx")], [], ['"x\\n",']),
    ([(0, 9, "")], ['"import a\\n",'], []),
    ([(9, 18, "x\ny\n")], ['"import b\\n",'], ['"x\\n",', '"y\\n",']),
    ([(9, 17, "x\ny")], ['"import b\\n",'], ['"x\\n",', '"y\\n",']),
    (
      [(8, 9, "; ")],
      ['"import a\\n",', '"import b\\n",'],
      ['"import a; import b\\n",'],
    ),
    ([(21, 21, "\nx")], ['"b.c"'], ['"b.c\\n",', '"x"']),
    ([(18, 21, "'ä\"\\'")], ['"b.c"'], ['"\'ä\\"\\\\\'"']),
    ([(9, 18, "x")], ['"import b\\n",', '"b.c"'], ['"xb.c"']),
    ([(17, 21, "")], ['"import b\\n",', '"b.c"'], ['"import b"']),
  ):
    found = edit(notebook, *edits)
    # An insertion between equal lines is one either way.
    assert found == (before, after), edits


def test_the_style_of_the_file_stays():
  source = ["x = 'ä'\n", "y"]
  assert edit(notebook_of(source), (5, 6, "ü"))[1] == ["\"x = 'ü'\\n\","]
  found = edit(notebook_of(source), (5, 6, "ü\U0001f600"), ensure_ascii=True)
  assert found[1] == ["\"x = '\\u00fc\\ud83d\\ude00'\\n\","]
  with_emoji = notebook_of("'\U0001f600\t'+x")
  assert edit(with_emoji, (5, 6, "y"), ensure_ascii=True)[1] == [
    '"source": "\'\\ud83d\\ude00\\t\'+y"'
  ]
  mixed = json.dumps(notebook_of("x # €", name="NAME"), ensure_ascii=False)
  mixed = mixed.replace("NAME", "\\u20ac").encode()
  document = documents.read("x.ipynb", mixed)
  assert '"ä # €"'.encode() in document.replace([Edit(0, 1, "ä")])
  escaped = notebook_of("x = '\\\\u1234'")  # No escape of JSON.
  assert "ä" in edit(escaped, (0, 1, "ä"))[1][0]
  uneven = json.dumps(notebook_of(["x\n", "y\n", "z"]))
  uneven = uneven.replace('"y', ' "y').encode()
  document = documents.read("x.ipynb", uneven)
  for offset, new in (
    (0, b'["a\\n",  "x\\n",  "y\\n", "z"]'),
    (4, b'["x\\n",  "y\\n", "a\\n", "z"]'),
  ):
    assert new in document.replace([Edit(offset, offset, "a\n")])
  one_line = read(notebook_of(["x"]), indent=None)
  assert b'["y\\n", "x"]' in one_line.replace([Edit(0, 0, "y\n")])
  parts = read(notebook_of(["ab", "+c"]), indent=None)
  assert b'["x", "+c"]' in parts.replace([Edit(0, 2, "x")])
  text = read(notebook_of("x\ny"), indent=None)
  assert b'"x\\nz\\ny"' in text.replace([Edit(1, 1, "\nz")])
  empty = read(notebook_of([]), indent=None)
  assert b'["y\\n", "z"]' in empty.replace([Edit(0, 0, "y\n"), Edit(0, 0, "z")])


@pytest.mark.parametrize(
  ("edits", "reason"),
  [
    ((0, 0, "y\n"), "cell 1:1:1: cannot be edited: there is a magic"),
    ((7, 7, "y"), None),
    ((5, 9, ""), "cell 1:1:6: cannot be edited: there is a magic"),
    ((9, 9, "y\n"), None),
    ((9, 9, "y"), "cell 1:3:1: cannot be edited: there is a magic"),
    ((12, 12, "y\n"), "cell 1:3:4: cannot be edited: there is a magic"),
    ((12, 12, "\ny"), None),
    ((13, 13, "y"), "cell 3:1:1: cannot be edited: the cell is not Python"),
    ((21, 22, ""), "cell 4:1:1: cannot be edited: there is a magic"),
    ((27, 28, "y"), "cell 4:1:7: cannot be edited: there is a magic"),
    ((27, 30, ""), "cell 4:1:7: cannot be edited: the edit would span two"),
    ((29, 29, "y"), None),
  ],
)
def test_what_no_edit_can_change(edits, reason):
  notebook = notebook_of("%%time\nx\n!ls", "%%bash\n", "!ls;  x", "x")
  notebook["cells"].insert(1, {"cell_type": "raw", "source": "x"})
  document = read(notebook)
  assert [cell.start for cell in document.cells] == [0, 13, 21, 29]
  if reason is None:
    assert document.replace([Edit(*edits)])
    return
  with pytest.raises(documents.DocumentError) as caught:
    document.replace([Edit(*edits), Edit(30, 30, "y")])
  assert str(caught.value).startswith(f"x.ipynb:{reason}")


def test_an_edit_of_a_whole_line_leaves_the_end_of_the_cell():
  document = read(notebook_of(["x\n", "y"], "z"), indent=None)
  for text, new in (("", b'["x\\n", ""]'), ("a\n", b'["x\\n", "a"]')):
    assert new in document.replace([Edit(2, 4, text)])
  ends = read(notebook_of(["x\r\n", "y\r\n"], "z"), indent=None)
  new = ends.replace([Edit(6, 6, "a\r\n")])
  assert b'["x\\r\\n", "y\\r\\n", "a\\r\\n"]' in new


def test_edits_have_the_indent_of_their_cell():
  document = read(notebook_of("  a = 1\r\n  if b:\n    c"))
  ast.parse(document.text)
  start = document.text.index("a")
  edits = [
    Edit(start, start, "x\ny\n"),
    Edit(start, start + 1, "d"),
    Edit(start + 7, start + 7, " \fz\n\n"),
  ]
  (cell,) = json.loads(document.replace(edits))["cells"]
  assert "".join(cell["source"]) == (
    "  x\n  y\n  d = 1\r\n  z\n\n  if b:\n    c"
  )


def test_a_byte_order_mark_stays():
  data = codecs.BOM_UTF8 + json.dumps(notebook_of("x")).encode()
  document = documents.read("x.ipynb", data)
  assert document.replace([Edit(0, 1, "y")]) == data.replace(b'"x"', b'"y"')


def test_a_notebook_without_code_takes_no_edit():
  with pytest.raises(documents.DocumentError, match=r"^x.ipynb: .* no code"):
    read(notebook_of()).replace([Edit(0, 0, "x")])


# Random notebooks.

_LINES = (
  *("x = 1", "'\U0001f600ä' + y", "# z", "", "if x:\n  %pwd\n  y", "!ls"),
  *(
    "x = !ls",
    '"""\n%s\n""" % x',
    "f(\n  x)",
    "\\\n x",
    "a?",
    "z\f",
    "\t# \x7f",
  ),
  *("'\\\\u1234\\\"/'", "%time f(x)", "%matplotlib inline"),
)


@st.composite
def notebooks(draw):
  """Draws a notebook and the bytes of its file."""
  cells = []
  for _ in range(draw(st.integers(1, 4))):
    lines = draw(st.lists(st.sampled_from(_LINES), max_size=5))
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    source = end.join(lines) + draw(st.sampled_from(["", "", end]))
    if draw(st.integers(0, 9)) == 0:
      source = draw(st.sampled_from(["%%bash\n", "%%time\n"])) + source
    if draw(st.booleans()):
      source = lines_of(source) if draw(st.booleans()) else source.split("\f")
    kind = draw(st.sampled_from(["code", "code", "code", "markdown"]))
    cell = {"cell_type": kind, "source": source, "outputs": [{"é": '"\\'}]}
    keys = draw(st.permutations(sorted(cell)))
    cells.append({key: cell[key] for key in keys})
  notebook = {"nbformat": 4, "cells": cells, "x": ["source", {"source": "y"}]}
  separators = draw(st.sampled_from([None, (",", ":"), (" ,\n", " : ")]))
  text = json.dumps(
    notebook,
    indent=draw(st.sampled_from([None, 0, 1, 2, "\t"])),
    ensure_ascii=draw(st.booleans()),
    separators=separators,
  )
  if draw(st.booleans()):
    text = text.replace("\n", "\r\n").replace("/", "\\/")
  if draw(st.booleans()):
    text = text.replace("x", "\\u0078")
  text += draw(st.sampled_from(["", "\n", "\r\n"]))
  mark = draw(st.sampled_from([b"", b"", codecs.BOM_UTF8]))
  return notebook, mark + text.encode("utf-8")


_NEW = st.sampled_from(
  ["", "z", "\n", "import z\n", "\nz\n", "z\r\nz", "ü\U0001f600", "\\"]
)


def join(source):
  return "".join(source)


class Spanned(str):
  """A string in JSON text; `span` are the offsets of what is in its quotes."""

  span: tuple[int, int]


def parse_with_spans(raw):
  """Parses JSON text by the standard library, and keeps where strings are."""

  def parse_string(text, start, strict):
    value, end = json.decoder.scanstring(text, start, strict)
    spanned = Spanned(value)
    spanned.span = (start, end - 1)
    return spanned, end

  decoder = json.JSONDecoder()
  decoder.parse_string = parse_string
  decoder.scan_once = json.scanner.py_make_scanner(decoder)
  return decoder.decode(raw)


def find_in_json(raw, source, offset):
  """Returns where a character of a source can be in the JSON text, in order."""
  found = []
  for literal in [source] if isinstance(source, str) else source:
    if 0 <= offset <= len(literal):
      start, end = literal.span
      for at in range(start, end + 1):
        try:
          part, _ = json.decoder.scanstring(f'{raw[start:at]}"', 0)
        except ValueError:  # In an escape sequence.
          continue
        if part == literal[:offset]:
          found.append(at)
          break
    offset -= len(literal)
  return found


def check_bytes(before, after, edit, cell_start, place):
  """Checks that an edit changed the JSON text in its place alone."""
  before, after = (text.removeprefix("\ufeff") for text in (before, after))
  codes = [c for c in parse_with_spans(before)["cells"] if is_code(c)]
  source = codes[place]["source"]
  if not source:
    return
  start = find_in_json(before, source, edit.start - cell_start)[0]
  end = find_in_json(before, source, edit.end - cell_start)[-1]
  assert after.startswith(before[:start])
  assert after.endswith(before[end:])
  assert len(after) >= start + len(before) - end


def is_code(cell):
  return cell["cell_type"] == "code"


@pytest.mark.thorough
@hypothesis.settings(deadline=None, max_examples=400)
@hypothesis.given(notebooks(), st.data())
def test_all_else_in_the_file_stays(drawn, data):
  notebook, before = drawn
  document = documents.read("x.ipynb", before)
  ast.parse(document.text)
  wanted = copy.deepcopy(notebook)
  codes = [cell for cell in wanted["cells"] if is_code(cell)]
  sources = [join(cell["source"]) for cell in codes]
  assert sources == [cell.source for cell in document.cells]
  offsets = st.integers(0, len(document.text))
  spans = data.draw(st.lists(offsets, min_size=2, max_size=8).map(sorted))
  made = []
  for start, end in reversed(list(zip(spans[::2], spans[1::2]))):
    edit = Edit(
      start, data.draw(st.sampled_from([start, end])), data.draw(_NEW)
    )
    inside = [
      c for c in document.cells if c.start <= start and edit.end <= c.end
    ]
    try:
      after = document.replace([edit])
    except documents.DocumentError as error:
      assert not inside or "magic" in str(error) or "not Python" in str(error)
      continue
    if not inside:
      continue  # The end of a whole line, which is tested above.
    place, at = document.cells.index(inside[0]), inside[0].start
    check_bytes(before.decode(), after.decode(), edit, at, place)
    source = sources[place]
    sources[place] = source[: start - at] + edit.text + source[edit.end - at :]
    made.insert(0, edit)
  result = json.loads(document.replace(made))
  new = [cell for cell in result["cells"] if is_code(cell)]
  assert [join(cell["source"]) for cell in new] == sources
  for cell, old in zip(new, codes):
    assert type(cell["source"]) is type(old["source"])
    cell["source"] = old["source"]
  assert result == wanted


if __name__ == "__main__":
  helpers.main()
