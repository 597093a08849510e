# SPDX-License-Identifier: Apache-2.0
"""Tests how notebooks are read, edited and written."""

import ast
import codecs
import json

import pytest

from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import scanner
from tf_compat_lossscale.migration import trees
from tf_compat_lossscale.migration.documents import Edit

pytestmark = pytest.mark.any_release

_EDITED = scanner.ScanOptions(edited=(findings.MIGRATE,))


def notebook_of(*sources, **metadata):
  cells = [{"cell_type": "code", "source": source} for source in sources]
  return {"cells": cells, "metadata": metadata, "nbformat": 4}


def write(notebook):
  """Returns the bytes that Jupyter writes."""
  return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def read(notebook):
  return trees.read("x.ipynb", write(notebook))


@pytest.mark.parametrize(
  ("source", "text"),
  [
    ("x = 1", "x = 1"),
    ("%time x = 1", "0   ; x = 1"),
    ("%timeit -n 10 x", "0           ; x"),
    ("%time for x in y: x", "#                  "),
    ("%tensorflow_version 1.x", "#                      "),
    ("%matplotlib inline\nx", "#                 \nx"),
    ("!ls\nx", "#  \nx"),
    ("x?", "# "),
    ("if x:\n  %pwd\n  y", "if x:\n  0   \n  y"),
    ("x = !ls", "x = 0  "),
    ("x = %pwd y", "x = 0     "),
    ("!pip install \\\n  x\ny", "#            \\\n   \ny"),
    ("'''\n%s\n''' % x", "'''\n%s\n''' % x"),
    ("%%time\nx = !ls", "#     \nx = 0  "),
    ("%%bash\nls *", "      \n    "),
  ],
)
def test_magics_are_blank(source, text):
  document = read(notebook_of(source))
  assert document.text == text
  ast.parse(text)
  assert not document.errors
  assert document.replace([]) == document.data


def test_cells_that_are_not_python_have_a_line_each():
  notebook = notebook_of("x = (", "x", "%x\nx y")
  notebook["cells"].insert(1, {"cell_type": "markdown", "source": ["# x"]})
  document = read(notebook)
  first, second = document.errors
  assert first.startswith("x.ipynb:cell 1: cannot be parsed: line 1: ")
  assert second.startswith("x.ipynb:cell 4: cannot be parsed: line 2: ")
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
  assert read(notebook_of()).locate(0) == (None, 1, 1)


@pytest.mark.parametrize(
  ("data", "reason"),
  [
    (b"", "no JSON: line 1, column 1"),
    (b'{"cells": [}', "no JSON: line 1, column 12"),
    (b"[]", "it has no list of cells"),
    (b'{"cells": [{"cell_type": "code"}]}', "it is not as Jupyter writes"),
    (b'{"worksheets": [1]}', "its format is older than 4: open and save it"),
    (b"[" * 100_000, "it is not as Jupyter writes it"),
    (b'{"cells": [], "metadata": {"kernelspec": {"language": "R"}}}', "its l"),
    (
      b'{"cells": [], "metadata": {"language_info": {"name": "julia"}}}',
      "its language is julia",
    ),
  ],
)
def test_what_is_no_notebook(data, reason):
  with pytest.raises(documents.DocumentError) as caught:
    trees.read("x.ipynb", data)
  (line,) = str(caught.value).splitlines()
  assert line.startswith(f"x.ipynb: not a Python notebook: {reason}")


def test_a_notebook_is_written_as_jupyter_does():
  outputs = [{"data": {"text/plain": ['"é\\/"\n']}, "output_type": "x"}]
  notebook = notebook_of("import a\nb", ["c\n", "d"], language="ä")
  notebook["cells"][1]["outputs"] = outputs
  document = read(notebook)
  at = document.text.index("d")
  data = document.replace([Edit(0, 8, "x\ny"), Edit(at, at + 1, "e\nü")])
  notebook["cells"][0]["source"] = "x\ny\nb"
  notebook["cells"][1]["source"] = ["c\n", "e\n", "ü"]
  assert data == write(notebook)


@pytest.mark.parametrize("indent", [None, 1, 2, "\t"])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_the_indent_of_a_file_stays(indent, end, mark):
  notebook = notebook_of("x")
  before = json.dumps(notebook, indent=indent) + end
  document = trees.read("x.ipynb", mark + before.encode())
  after = document.replace([Edit(0, 1, "y")])
  assert after == mark + before.replace('"x"', '"y"').encode()


# Before %%time, in it, in a line with "!", and in %%bash.
@pytest.mark.parametrize("start, end", [(0, 0), (3, 4), (9, 10), (13, 13)])
def test_magics_take_no_edit(start, end):
  document = read(notebook_of("%%time\nx\n!ls", "%%bash\n", "x"))
  with pytest.raises(documents.DocumentError, match="there is a magic"):
    document.replace([Edit(start, end, "y\n")])
  assert document.replace([Edit(7, 8, "y")])


def test_a_notebook_is_migrated_as_one_file():
  notebook = notebook_of(
    ["%matplotlib inline\n", "!pip install x\n", "import tensorflow as tf"],
    "%%bash\nls",
    "%time scale = tf.train.experimental.FixedLossScale(8)\ntf.Session()",
  )
  report = scanner.scan_text(write(notebook), "x.ipynb", _EDITED)
  (change,) = report.changes
  assert not change.left and not report.errors
  assert report.reason == "tf.Session, x.ipynb cell 3 line 2"
  assert [
    "".join(cell["source"]) for cell in json.loads(change.after)["cells"]
  ] == [
    "%matplotlib inline\n!pip install x\nimport tf_compat_lossscale as "
    "tfl\nimport tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()",
    "%%bash\nls",
    "%time scale = tfl.FixedLossScale(8)\ntf.Session()",
  ]
  again = scanner.scan_text(change.after, "x.ipynb", _EDITED)
  assert not again.changes


def test_lines_that_ask_for_an_old_tensorflow():
  notebook = notebook_of(
    "%tensorflow_version 1.x\n!pip install -q 'tensorflow-gpu==1.15'",
    "%%bash\npip install tensorflow==2.3 x",
    "!pip install tensorflow==2.15 tensorflow_hub==0.1\n%tensorflow_version 2",
    "import tensorflow as tf\ntf.train.experimental.LossScale",
  )
  report = scanner.scan_text(write(notebook), "x.ipynb", _EDITED)
  found = [f for f in report.findings if f.code == "LS305"]
  assert [(f.cell, f.line) for f in found] == [(1, 1), (1, 2), (2, 2), (3, 2)]
  assert {f.state for f in found} == {findings.BY_HAND}
  # Without other names, such a line tells which TensorFlow there is.
  assert b"import tensorflow.compat.v1 as tf" in report.changes[0].after
