"""What would have to change in old sources, and the rewrite that does it."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import os
import re
from typing import NamedTuple

from tf_compat_lossscale.legacy import names as legacy_names
from tf_compat_lossscale.legacy import sources as legacy_sources

_PACKAGE = "tf_compat_lossscale"
_SHORT = "tfl"
_SKIPPED = ("__pycache__", "node_modules", "site-packages")


class Finding(NamedTuple):
  """A place in a source that needs this package.

  Attributes:
    path: The file.
    line: Counted from 1.
    column: Counted from 1, in characters.
    name: The name as written.
    now: What it is called now, in full.
    edit: What to write instead, in words.
    note: What is known to behave differently, or "".
  """

  path: str
  line: int
  column: int
  name: str
  now: str
  edit: str
  note: str


class CodeBase(NamedTuple):
  """Sources that were read together.

  Attributes:
    sources: Those that could be read and speak of TensorFlow.
    errors: A line for each that could not be read.
  """

  sources: tuple[legacy_sources.Source, ...]
  errors: tuple[str, ...]

  @property
  def touched(self) -> tuple[legacy_sources.Source, ...]:
    """The sources that need an edit.

    Where a program uses legacy names, all its TensorFlow 1 modules have to
    become programs of TensorFlow 2 with it.
    """
    if not any(source.uses for source in self.sources):
      return ()
    return tuple(s for s in self.sources if s.uses or s.tensorflow1)

  @property
  def needs_keras_2(self) -> bool:
    """Whether any of what needs an edit uses Keras."""
    return any(source.keras for source in self.touched)

  def findings(self) -> Iterator[Finding]:
    """What has to change, file by file and line by line."""
    for source in self.touched:
      found = [_finding(source.path, use) for use in source.uses]
      if source.tensorflow1:
        found += [
          _import_finding(source.path, use)
          for use in source.imports
          if use.name == "tensorflow"
        ]
      yield from sorted(found, key=lambda f: (f.line, f.column))


def read(paths: Iterable[str]) -> CodeBase:
  """Reads files, and all Python files in folders.

  Args:
    paths: Files and folders. Hidden folders in these, virtual environments and
      installed packages are left out.

  Returns:
    What was found in them.

  Raises:
    FileNotFoundError: One of `paths` is not there.
  """
  sources, errors = [], []
  files: dict[str, None] = {}  # In order, and each once.
  for path in paths:
    if not os.path.exists(path):
      raise FileNotFoundError(f"{path!r} is not there")
    files.update(dict.fromkeys(_files(path)))
  for path in files:
    try:
      source = legacy_sources.parse(path)
    except legacy_sources.SourceError as error:
      errors.append(str(error))
      continue
    if source.imports:
      sources.append(source)
  return CodeBase(tuple(sources), tuple(errors))


def _files(path: str) -> Iterator[str]:
  if not os.path.isdir(path):
    yield path
    return
  for folder, folders, files in os.walk(path):
    folders[:] = sorted(
      name
      for name in folders
      if not name.startswith(".")
      and name not in _SKIPPED
      and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
    )
    yield from (
      os.path.join(folder, name)
      for name in sorted(files)
      if name.endswith(".py")
    )


def _finding(path: str, use: legacy_sources.Use) -> Finding:
  short = use.now.replace(_PACKAGE, _SHORT, 1)
  package, _, last = use.now.rpartition(".")
  edit = {
    "expression": short,
    "follows": f"none: it follows the import; it is {short} now",
    "from": f"from {package} import {last}" if package else f"import {last}",
    "import": f"import {use.now}",
    "text": f"by hand, since the name is in a string: {use.now}",
  }[use.form]
  if use.written.endswith("*"):
    edit = f"from {use.now} import *"
  note = legacy_names.NOTES.get(use.now.partition(".")[2], "")
  return Finding(
    path, use.line, use.column + 1, use.written, use.now, edit, note
  )


def _import_finding(path: str, use: legacy_sources.Use) -> Finding:
  now = "tensorflow.compat.v1"
  return Finding(
    path,
    use.line,
    use.column + 1,
    "import tensorflow",
    now,
    f"import {now}, and disable_v2_behavior()",
    "this is TensorFlow 1 code",
  )


def rewrite(
  source: legacy_sources.Source, keras_2: bool
) -> tuple[bytes, bytes]:
  """The text of a source, as it is and as it should be.

  Args:
    source: What `read` found in the file.
    keras_2: Whether the program uses Keras, which must then be Keras 2.

  Returns:
    The file's bytes now, and edited: comments, layout, encoding and line ends
    are kept.

  Raises:
    ImportError: libcst is not installed.
  """
  try:
    from tf_compat_lossscale.legacy import rewriter as _rewriter
  except ImportError as error:
    if (error.name or "").partition(".")[0] != "libcst":
      raise
    raise ImportError(
      "rewriting sources needs libcst: pip install libcst", name="libcst"
    ) from None
  with open(source.path, "rb") as file:
    before = file.read()
  return before, _rewriter.rewrite(before, source, keras_2)


def diff(path: str, before: bytes, after: bytes) -> str:
  """A unified diff of two texts of a file."""
  import difflib  # Slow to load, like tempfile below, for the command line.

  encoding = "utf-8"
  match = re.match(rb"(?:.*\n)?.*coding[=:]\s*([-\w.]+)", before)
  if match:
    encoding = match[1].decode("ascii")
  old, new = (
    text.decode(encoding, "replace").splitlines(keepends=True)
    for text in (before, after)
  )
  name = path.lstrip("/")
  result = []
  for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"):
    result.append(line)
    if not line.endswith("\n"):
      result.append("\n\\ No newline at end of file\n")
  return "".join(result)


def write(path: str, data: bytes) -> None:
  """Puts new text in a file: all of it or, if that fails, nothing."""
  import tempfile

  path = os.path.realpath(path)
  descriptor, temporary = tempfile.mkstemp(
    prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path)
  )
  try:
    with os.fdopen(descriptor, "wb") as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.chmod(temporary, os.stat(path).st_mode & 0o7777)
    os.replace(temporary, path)
  except BaseException:
    os.unlink(temporary)
    raise
