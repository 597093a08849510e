# SPDX-License-Identifier: Apache-2.0
"""Tests `migrate` on random sources: all names move, all else stays."""

import ast
import io
import json
import os
import re
import tokenize
import warnings

import fake_worlds
import helpers
import hypothesis
from hypothesis import strategies as st
import pytest
import random_sources

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import scanner
from tf_compat_lossscale.migration import trees

pytestmark = pytest.mark.any_release

_EXAMPLES = os.environ.get("MIGRATION_EXAMPLES")
_SETTINGS = hypothesis.settings(
  deadline=None,
  max_examples=int(_EXAMPLES or 200),
  derandomize=_EXAMPLES is None,
  report_multiple_bugs=False,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
_OPTIONS = scanner.Options(target=(2, 21), edited=(findings.MIGRATE,))


def run(source, is_old):
  """Returns the world in which a source ran."""
  world = fake_worlds.World(is_old)
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # The source's own.
    world.run(source)
  return world


def migrate(path):
  """Writes the edits of a file; returns the report, and findings left."""
  report = scanner.scan([str(path)], _OPTIONS)
  left = []
  for change in report.changes:
    whole_files.replace_file(change.path, change.after)
    left += change.left
  return report, left


@pytest.mark.thorough
@_SETTINGS
@hypothesis.given(random_sources.sources())
def test_random_sources(tmp_path, source):
  check_migration(tmp_path, source)


def check_migration(folder, source):
  """Checks what `migrate` makes of a source."""
  try:
    old = run(source, is_old=True)
  except (SyntaxError, NameError, AttributeError, TypeError):
    hypothesis.reject()  # Not every mixture is a program.
  path = folder / "source.py"
  path.write_bytes(source)
  project, left = migrate(path)
  found = project.findings
  after = path.read_bytes()
  ast.parse(after)
  # What is gone, and what is reported, is all that there was.
  again, left_again = migrate(path)
  assert path.read_bytes() == after
  assert {f.state for f in again.findings} <= {findings.BY_HAND} or left
  assert [f.name for f in left_again] == [f.name for f in left]
  check_layout(source, after, found)
  hypothesis.event(f"{bool(found)} found, {has_work(project, left)} left")
  if not project.uses_loss_scaling:
    assert not old.legacy
  elif not has_work(project, left):
    assert run(after, is_old=False).seen == old.seen


_MAGICS = ("%matplotlib inline", "%%bash\nls", "!pip install tf", "%%html\n<p>")


@st.composite
def notebooks(draw):
  """Draws the cells of a notebook."""
  cells = []
  for _ in range(draw(st.integers(1, 4))):
    if draw(st.integers(0, 3)) == 0:
      cells.append(draw(st.sampled_from(_MAGICS)))
    source = "\n".join(draw(random_sources.uses()))
    if draw(st.integers(0, 3)) == 0:
      source = f"%time 1\n{source}\n!ls"
    cells.append(source)
  return cells


@pytest.mark.thorough
@_SETTINGS
@hypothesis.given(notebooks(), st.booleans())
def test_random_notebooks(tmp_path, sources, is_list):
  try:
    old = run(join_cells(sources), is_old=True)
  except (SyntaxError, NameError, AttributeError, TypeError):
    hypothesis.reject()
  cells = [
    {
      "cell_type": "code",
      "metadata": {"ä": "\\/"},
      "source": split_lines(source) if is_list else source,
    }
    for source in sources
  ]
  notebook = {"cells": cells, "metadata": {}, "nbformat": 4}
  path = tmp_path / "notebook.ipynb"
  path.write_text(json.dumps(notebook, indent=1), "utf-8")
  project, left = migrate(path)
  after = json.loads(path.read_text("utf-8"))
  new = ["".join(cell["source"]) for cell in after["cells"]]
  for cell, before in zip(after["cells"], cells):
    cell["source"] = before["source"]
  assert after == notebook
  for source, changed in zip(sources, new):
    assert (source in _MAGICS) == (changed in _MAGICS)
  if not project.uses_loss_scaling:
    assert not old.legacy
  elif not has_work(project, left):
    assert run(join_cells(new), is_old=False).seen == old.seen
  written = path.read_bytes()
  again, _ = migrate(path)
  assert path.read_bytes() == written
  assert {f.state for f in again.findings} <= {findings.BY_HAND} or left


def join_cells(sources):
  """Returns the Python of cells."""
  lines = "\n".join(s for s in sources if not s.startswith("%%"))
  return re.sub(r"(?m)^[%!].*$", "", lines).encode()


def has_work(project, left):
  """Returns whether there is something left to do by hand."""
  states = [finding.state for finding in project.findings]
  return bool(left) or findings.BY_HAND in states


def check_layout(before, after, found):
  """Checks that comments, and lines outside findings, are still there."""
  old = trees.read("x.py", before)
  new = trees.read("x.py", after)
  assert is_in_order(list_comments(old.text), list_comments(new.text))
  changed = find_changed_lines(old.text, found)
  lines = split_lines(old.text)
  stay = [line for i, line in enumerate(lines, 1) if i not in changed]
  if stay and len(lines) not in changed:
    stay[-1] = stay[-1].rstrip("\r\n")  # New lines can follow the last.
  new_lines = split_lines(new.text)
  assert is_in_order(stay, [*new_lines, stay[-1] if stay else ""])


def find_changed_lines(text, found):
  """Returns the numbers of the lines of statements with findings."""
  changed = set()
  for finding in found:
    changed.update(range(finding.line, finding.end_line + 1))
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, (ast.Import, ast.ImportFrom)):
      changed.update(range(node.lineno, node.end_lineno + 1))
  return changed


def split_lines(text):
  """Returns the lines of a text with their ends."""
  return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def is_in_order(some, others):
  """Returns whether a list has all of another list, in order."""
  rest = iter(others)
  return all(each in rest for each in some)


def list_comments(text):
  """Returns the comments in a text."""
  lines = io.StringIO(text, newline=None)
  return [
    token.string
    for token in tokenize.generate_tokens(lines.readline)
    if token.type == tokenize.COMMENT
  ]


if __name__ == "__main__":
  helpers.main()
