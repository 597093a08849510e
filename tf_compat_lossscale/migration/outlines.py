# SPDX-License-Identifier: Apache-2.0
"""Reads the outline of a file fast, without parsing it.

Most files of a large tree have nothing to do with loss scaling. Their outlines
tell which project they belong to.
"""

from __future__ import annotations

import ast
import codecs
from collections.abc import Iterable
from collections.abc import Iterator
import os
import re
from typing import NamedTuple

from tf_compat_lossscale.programs import scopes
from tf_compat_lossscale.programs import search_paths

# Of a line with the word "import".
_IMPORT = re.compile(
  rb"[ \t]*(?:"
  rb"from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]*"
  rb"(?:\(([^)]*)\)|((?:\\\r?\n|[^\r\n#;])*))"
  rb"|import[ \t]+((?:\\\r?\n|[^\r\n#;])+))"
)
_STRING = re.compile(rb"[\"'](\w+(?:\.\w+)+)[\"']")
_MAIN = re.compile(
  rb"^[ \t]*if\b[^\n]*__name__[^\n]*__main__|^[ \t]*if\b[^\n]*__main__[^\n]*"
  rb"__name__|^#![^\n]*python|^(?:\w+\.)*app\.run\(",
  re.MULTILINE,
)
# Every use of a legacy name, of NVIDIA's switches or of this package has one.
_WORDS = (
  *(b"LossScale", b"loss_scale", b"mixed_precision", b"lossscale"),
  *(b"TF_ENABLE_AUTO", b"train.experimental"),
)
_MODULE = re.compile(rb"train\s+import\s+experimental")
# A file that starts a program has one of these words, as `_MAIN` says.
_STARTS = (b"__main__", b"#!", b"app.run(")
_PATHS = re.compile(rb"\bsys\.path\b|\baddsitedir\b|\bimport path\b")
_ADDS = (b"sys.path", b"addsitedir", b"import path")  # As `_PATHS` says.
_TEST = re.compile(r"test_.*\.py|.*_test\.py|conftest\.py")
# A statement that does more than to define something, after a line end. A
# module that makes no call but those that `migrate` adds stays a module.
_ACTS = re.compile(
  rb"\n(?!(?:def|class|from|import|async|@|#|\"|'|\)|\]|\}|__\w+__\s*="
  rb"|[\w.]+\.(?:disable_v2_behavior|honor_environment|install|use_keras_2)\()"
  rb")\w[\w.]*(?:[^\n=]*=[^\n]*\(|\s*\(|\s[^\n=]*:\s*$)",
  re.MULTILINE,
)


class Outline(NamedTuple):
  """The outline of a file.

  Attributes:
    path: The file's absolute path.
    imports: The dotted names that its imports may mean; relative names begin
      with dots.
    starts: Whether the file starts a program by itself: it asks for
      `__main__`, is a notebook or a test, or has a `#!` line.
    acts: Whether its statements do more than to define something.
    matters: Whether it may use a legacy name, a switch of NVIDIA's or this
      package.
    folders: The folders that it adds to Python's path.
    mentions: Whether it may import TensorFlow.
    must_read: Whether it is read in any case, for its errors.
  """

  path: str
  imports: tuple[str, ...]
  starts: bool
  acts: bool
  matters: bool
  folders: tuple[str, ...] = ()
  mentions: bool = False
  must_read: bool = False


def read(path: str, data: bytes) -> Outline:
  """Returns the outline of a file with this content."""
  data = data.removeprefix(codecs.BOM_UTF8)
  if b"\r" in data:
    data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
  name = os.path.basename(path)
  starts = (
    name.endswith(".ipynb")
    or name == "__main__.py"
    or is_test(path)
    or (_has(data, _STARTS) and _MAIN.search(data) is not None)
  )
  return Outline(
    path,
    tuple(_list_imports(data)),
    starts,
    starts or _ACTS.search(b"\n" + data) is not None,
    b"\0" in data or _has(data, _WORDS) or _MODULE.search(data) is not None,
    _find_folders(path, data)
    if _has(data, _ADDS) and _PATHS.search(data)
    else (),
    b"\0" in data or b"tensorflow" in data,
  )


def _has(data: bytes, words: Iterable[bytes]) -> bool:
  """Returns whether data has one of some words; a pattern takes more time."""
  return any(word in data for word in words)


def is_test(path: str) -> bool:
  """Returns whether a name is that of a file of tests."""
  return _TEST.fullmatch(os.path.basename(path)) is not None


def _find_folders(path: str, data: bytes) -> tuple[str, ...]:
  """Returns the folders that a file adds to Python's path."""
  try:
    tree = ast.parse(data)
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    return ()  # Such as a notebook, or Python 2.
  return tuple(search_paths.find_folders(path, scopes.list_parts(tree)))


def _list_imports(data: bytes) -> list[str]:
  """Returns the dotted names that a file's imports may mean."""
  found: dict[str, None] = {}
  for module, several, plain, names in _find_imports(data):
    if names:
      for name in _split(names):
        found[name] = None
      continue
    origin = module.decode("utf-8", "replace")
    found[origin] = None
    joint = "" if origin.endswith(".") else "."
    for name in _split(several or plain):
      found[f"{origin}{joint}{name}"] = None
  if b"import_module" in data or b"__import__" in data:
    for name in _STRING.findall(data):
      found[name.decode("utf-8", "replace")] = None
  return list(found)


def _find_imports(data: bytes) -> Iterator[tuple[bytes, ...]]:
  """Yields the parts of import statements, as `_IMPORT` has them."""
  end, at = 0, data.find(b"import")
  while at >= 0:
    start = data.rfind(b"\n", 0, at) + 1
    match = _IMPORT.match(data, start) if start >= end else None
    if match is not None:
      end = match.end()
      yield match.groups(b"")
    at = data.find(b"import", max(end, at + 1))


def _split(names: bytes) -> list[str]:
  """Returns the names in a list of names, each perhaps with `as`."""
  text = re.sub(r"#[^\n]*|\\", "", names.decode("utf-8", "replace"))
  words = (part.split() for part in text.split(","))
  return [word[0] for word in words if word]
