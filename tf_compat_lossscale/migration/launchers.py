# SPDX-License-Identifier: Apache-2.0
"""Reads files that start programs: shell scripts, Dockerfiles and the like.

Such a file tells three things: which of NVIDIA's environment variables are on,
which folders PYTHONPATH names, and which Python files the file starts. All are
found by patterns; nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import functools
import itertools
import os
import re
from typing import NamedTuple

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.migration import comments
from tf_compat_lossscale.migration import documents
from tf_compat_lossscale.migration import edits
from tf_compat_lossscale.programs import program_modules

_SUFFIXES = (
  *(".sh", ".bash", ".zsh", ".ksh", ".csh", ".tcsh", ".fish", ".env", ".envrc"),
  *(".slurm", ".sbatch", ".pbs", ".qsub", ".lsf", ".bsub", ".sub", ".job"),
  *(".yml", ".yaml", ".mk", ".bat", ".cmd", ".ps1", ".dockerfile", ".def"),
)
_NAMES = re.compile(
  r"(?:dockerfile|containerfile|makefile|\.env)(?:[._-].*)?"
  r"|(?:gnumakefile|singularity|jenkinsfile|procfile|justfile)"
)
_SHEBANG = re.compile(
  rb"#![^\r\n]*\b(?:ba|z|k|c|tc|da|a|fi)?sh\b|#!/usr/bin/make"
)
# A longer file is no script; the rest of it is not looked at.
_LONGEST = 1 << 20

_SWITCH = (
  rf"(?P<name>{legacy_names.MIXED_PRECISION}(?:_LOSS_SCALING|_GRAPH_REWRITE)?)"
)
_VALUE = r"[\"'\\]*(?P<value>(?:\$\{[^}\n]*\}|[^\s\"'\\,;&|)\]}])*)"
# `NAME=1`, `NAME: "1"`, `${NAME:=1}`, `NAME ?= 1`; no `$NAME`, no `NAME == 1`.
_SET = (
  re.compile(
    r"(?:(?<=\$\{)(?=\w+:?=)|(?<!\$\{)(?<![\w$%!-]))"
    rf"{_SWITCH}(?!\w)[\"']?[ \t]*(?:[?:+]?=(?!=)|:(?!=))[ \t]*{_VALUE}"
  ),
  # `ENV NAME 1`, `setenv NAME 1`, `set -gx NAME 1`, `%env NAME 1`.
  re.compile(
    r"(?:\bENV|\bsetenv|\bset(?:[ \t]+--?\w+)+|%(?:set_)?env)[ \t]+"
    rf"{_SWITCH}[ \t]+(?![=:]){_VALUE}"
  ),
  # `- name: NAME` and `value: "1"` of Kubernetes.
  re.compile(
    rf"\bname[\"']?[ \t]*:[ \t]*[\"']?{_SWITCH}[\"']?[\s,]+[\"']?value[\"']?"
    rf"[ \t]*:[ \t]*{_VALUE}"
  ),
)
# A value that the file computes may be 1.
_ON = re.compile(r"1|true|.*[$%{`].*", re.IGNORECASE)
_PATH = re.compile(
  r"(?<![\w$%{])PYTHONPATH[\"']?[ \t]*(?:[?:+]?=|:(?!=)|[ \t])[ \t]*"
  r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|(?:\$\([^)\n]{0,200}\)|`[^`\n]{0,200}`|[^\s;&|\"'])*)"
)
# What the shell computes at the start of a path: the folder of something.
_COMPUTED = re.compile(
  r"\$\((?:[^()\n]|\([^()\n]{0,200}\)){0,200}\)|`[^`\n]{0,200}`"
  r"|\$\{[^}\n]{0,200}\}|\$\w+|%~?\w+%?"
)
_WORD = re.compile(r"[^\s\"'`;|&()<>=,\[\]:#]+")
_MODULE = re.compile(r"(?<=\s)-m[\"', \t]*([A-Za-z_][\w.]*)")
_PYTHON = re.compile(r"py", re.IGNORECASE)
_CD = re.compile(
  r"(?:\b(?:cd|pushd|WORKDIR)|working[-_]dir(?:ectory)?:|-C)[ \t]+[\"']?"
  r"([^\s\"';&|]+)"
)
_COMMENT = re.compile(r"(?m)(?:^|(?<=[ \t]))#[^\n]*")
_BATCH_COMMENT = re.compile(r"(?mi)^[ \t]*@?(?:rem\b|::)[^\n]*")
_DIRECTIVE = re.compile(r"#(?:SBATCH|PBS|BSUB|\$)[ \t]")
_MAGIC = re.compile(r"[ \t]*%(?:set_)?env\b")
_TALK = re.compile(r"[ \t]*@?(?:echo|printf)\b[^>]*")
# Commands that do not run the Python files that they name.
_TOOLS = re.compile(
  r"\b(?:pip3?|black|flake8|pylint|isort|yapf|ruff|mypy|rm|cp|mv|chmod|ls|git"
  r"|sed|grep|COPY|ADD)\b"
)


class Setting(NamedTuple):
  """A place that turns one of NVIDIA's variables on.

  Attributes:
    line: The line, counted from 1.
    start: The offset in the text.
    column: The column, counted from 1.
    name: The variable.
    words: The Python files and modules that the same command names.
    is_own: Whether a notebook sets the variable for itself, by `%env`.
  """

  line: int
  start: int
  column: int
  name: str
  words: tuple[str, ...]
  is_own: bool = False


class Launcher(NamedTuple):
  """A file that may start programs.

  Attributes:
    path: The file's absolute path.
    settings: The places that turn one of NVIDIA's variables on.
    folders: Folders that PYTHONPATH names, as written; "" stands before what
      the shell computes.
    places: Folders that it changes to.
    words: The Python files that it names, and "-m MODULE".
    others: All words: one may be the name of another launcher or of a console
      script.
  """

  path: str
  settings: tuple[Setting, ...] = ()
  folders: tuple[str, ...] = ()
  places: tuple[str, ...] = ()
  words: tuple[str, ...] = ()
  others: frozenset[str] = frozenset()


def has_name(path: str) -> bool:
  """Returns whether a name is that of a file that may start programs."""
  name = os.path.basename(path).lower()
  return name.endswith(_SUFFIXES) or _NAMES.fullmatch(name) is not None


def is_script(head: bytes) -> bool:
  """Returns whether a file that begins so is a script for a shell."""
  return _SHEBANG.match(head) is not None


def read(path: str) -> Launcher:
  """Returns what a file says; an empty launcher if the file is binary."""
  data = documents.load_start(path, _LONGEST)
  if b"\0" in data:
    return Launcher(path)
  text = data.decode("utf-8", "replace").replace("\r\n", "\n")
  return read_text(path, text.replace("\r", "\n"))


def read_notebook(path: str, data: bytes) -> Launcher:
  """Returns what the magics and shell commands of a notebook tell.

  Args:
    path: The notebook.
    data: Its bytes.
  """
  if b"TF_ENABLE_AUTO" not in data and b"PYTHONPATH" not in data:
    return Launcher(path)
  try:
    notebook = documents.read(path, data)
  except documents.DocumentError:
    return Launcher(path)  # The scan reports the error.
  settings: list[Setting] = []
  cells: list[Launcher] = []
  for cell in getattr(notebook, "cells", ()):
    if cell.code.error and not cell.code.error.startswith("%%"):
      continue  # The cell is no shell script either.
    text, end = "", 0
    for blank in cell.code.blanks:
      text += re.sub(r"[^\n]", " ", cell.source[end : blank.start])
      shell = cell.source[blank.start : blank.end].replace("\r", " ")
      text += re.sub(r"(?m)^([ \t]*)(?:!|%%\w*)", _as_blank, shell)
      end = blank.end
    cells.append(read_text(path, text))
    for each in cells[-1].settings:
      words = each.words or (() if each.is_own else cells[-1].words)
      start = each.start + cell.start
      settings.append(each._replace(start=start, words=words))
  return Launcher(
    path,
    tuple(settings),
    tuple(folder for each in cells for folder in each.folders),
    tuple(place for each in cells for place in each.places),
    tuple(word for each in cells for word in each.words),
  )


def _as_blank(match: re.Match[str]) -> str:
  """Returns blanks of the length of a match."""
  return " " * len(match[0])


def read_text(path: str, text: str) -> Launcher:
  """Returns what a text tells.

  Args:
    path: The file that has the text.
    text: The text, with line ends of one character.
  """
  code = _blank(path, text)
  folders = tuple(
    folder
    for match in _PATH.finditer(code)
    for folder in _split(match["value"])
  )
  words = tuple(dict.fromkeys(_list_words(code)))
  has_switch = legacy_names.MIXED_PRECISION in text  # In few files.
  settings = tuple(_list_settings(text, code)) if has_switch else ()
  return Launcher(
    path,
    settings,
    folders,
    tuple(_CD.findall(code)),
    words,
    frozenset(map(_clean, _WORD.findall(code))),
  )


def _blank(path: str, text: str) -> str:
  """Returns a text without comments, in which each command is one line.

  The offsets stay.
  """

  def blank(match: re.Match[str]) -> str:
    return match[0] if _DIRECTIVE.match(match[0]) else " " * len(match[0])

  code = _COMMENT.sub(blank, text)
  if path.lower().endswith((".bat", ".cmd")):
    code = _BATCH_COMMENT.sub(blank, code)
  return re.sub(r"[\\^`]\n", "  ", code)


def _list_settings(text: str, code: str) -> Iterator[Setting]:
  """Yields the places that turn a variable on, in order."""
  found: dict[int, Setting] = {}
  lines = edits.Text(text)
  commands = edits.Text(code)  # Continued lines are one line there.

  @functools.cache
  def read_command(line: int) -> tuple[bool, tuple[str, ...], bool]:
    """Returns whether a command only prints, its files, and if it is %env."""
    command = commands.get_line(line)
    return (
      _TALK.fullmatch(command) is not None,
      tuple(dict.fromkeys(_list_words(command))),
      _MAGIC.match(command) is not None,
    )

  @functools.cache
  def is_ignored(line: int) -> bool:
    """Returns whether a comment ignores the findings of a line."""
    said = comments.read_line(lines.get_line(line))
    return comments.is_ignored("LS205", 1, said)

  for match in (m for pattern in _SET for m in pattern.finditer(code)):
    start = match.start("name")
    line, column = lines.find_position(start)
    talks, words, is_own = read_command(commands.find_position(start)[0])
    if not talks and _ON.fullmatch(match["value"]) and not is_ignored(line):
      name = match["name"]
      found[start] = Setting(line, start, column, name, words, is_own)
  yield from (found[start] for start in sorted(found))


def _list_words(code: str) -> Iterator[str]:
  """Yields the Python files that commands name, and "-m MODULE"."""
  for line in code.split("\n"):
    if ".py" not in line and "-m" not in line:
      continue
    for command in re.split(r"&&|\|\||;", line):
      tool = _TOOLS.search(command)
      for word in _WORD.findall(command):
        if word.endswith(".py") and not (
          tool and tool.start() < command.index(word)
        ):
          yield word
      for match in _MODULE.finditer(command):
        if _PYTHON.search(command, 0, match.start()):
          yield f"-m {match[1]}"


def _split(value: str) -> Iterator[str]:
  """Yields the folders of a value of PYTHONPATH; "" for what is computed."""
  plain = _COMPUTED.sub("\0", value.strip("\"'"))
  for part in re.split(r"[:;]", plain):
    folder = part.replace("\0", "").strip("/\\ ") if "\0" in part else part
    if folder and not folder.isspace():
      yield folder


def _clean(word: str) -> str:
  """Returns the path of a word, without what the shell computes before."""
  return _COMPUTED.sub("", word)


def list_ends(word: str) -> Iterator[str]:
  """Yields the relative paths that a path may be, the longest first.

  A container has its own root, and a variable may hold any folder.
  """
  plain = _clean(word)
  parts = [part for part in plain.split("/") if part and part != "."]
  is_open = plain != word or plain.startswith("/")
  for i in range(len(parts) if is_open else 1):
    yield "/".join(parts[i:])


class Tree:
  """The launchers of a tree, and the Python files that they start.

  Attributes:
    bases: Launcher -> the folders in which it may run, the likeliest first.

  Args:
    launchers: The launchers.
    known: The paths of the Python files.
    find_root: A function that returns the folder of the project around a
      folder.
    find_modules: A function that takes a folder and a module, and returns the
      files that Python runs for the module.
    find_script: A function that takes a folder and the name of a console
      script, and returns its module's files.
  """

  def __init__(
    self,
    launchers: Iterable[Launcher],
    known: Iterable[str],
    find_root: Callable[[str], str],
    find_modules: Callable[[str, str], list[str]],
    find_script: Callable[[str], Mapping[str, list[str]]],
  ):
    self._launchers = {each.path: each for each in launchers}
    self._known = frozenset(known)
    self._find_modules, self._find_script = find_modules, find_script
    # Launcher -> the folder of its project.
    self._roots = {
      path: find_root(os.path.dirname(path)) for path in self._launchers
    }
    self.bases = {
      path: self._find_bases(each) for path, each in self._launchers.items()
    }
    self._by_name: dict[str, list[str]] = {}
    for path in (*self._known, *self._launchers):
      self._by_name.setdefault(os.path.basename(path), []).append(path)
    self._mentions = {
      path: list(self._find_mentions(each))
      for path, each in self._launchers.items()
    }

  def _find_bases(self, launcher: Launcher) -> list[str]:
    """Returns the folders in which a launcher may run, the likeliest first."""
    folder, root = os.path.dirname(launcher.path), self._roots[launcher.path]
    around = [folder]
    # Without a sign of the project's root, it may be in a folder of scripts.
    count = 2 if root == folder else 5
    while len(around) < count and (root == folder or around[-1] != root):
      around.append(os.path.dirname(around[-1]))
    inside = [
      os.path.normpath(os.path.join(base, end))
      for place in launcher.places
      for base in around
      for end in list_ends(place)
    ]
    return list(dict.fromkeys([*filter(os.path.isdir, inside), *around]))

  def list_started(self, launcher: Launcher) -> list[str]:
    """Returns the Python files that a launcher starts, also by others."""
    found = self._follow([launcher.path])
    if not found:  # Others may read it first, as `source` does.
      found = self._follow(
        path
        for path, mentioned in self._mentions.items()
        if launcher.path in mentioned
      )
    return found

  def find_files(
    self, launcher: Launcher, words: Iterable[str]
  ) -> Iterator[str]:
    """Yields the Python files that words of a launcher name."""
    bases = self.bases[launcher.path]
    for word in words:
      if word.startswith("-m "):
        module = word.removeprefix("-m ")
        runs = [f"{module}.__main__", module.removesuffix(".__init__")]
        found = (
          files[-1]
          for base in bases
          for name in runs
          if (files := self._find_modules(base, name))
          and program_modules.is_file_of(files[-1], name.split("."))
        )
        yield from itertools.islice(found, 1)
      else:
        yield from self._find_file(launcher, word, self._known)

  def _follow(self, paths: Iterable[str]) -> list[str]:
    """Returns the Python files that launchers start, and those they start."""
    found: dict[str, None] = {}
    seen, waiting = set[str](), list(paths)
    while waiting:
      path = waiting.pop(0)
      if path in seen:
        continue
      seen.add(path)
      launcher = self._launchers[path]
      found.update(dict.fromkeys(self.find_files(launcher, launcher.words)))
      found.update(dict.fromkeys(self._find_scripts(launcher)))
      waiting += self._mentions[path]
    return list(found)

  def _find_scripts(self, launcher: Launcher) -> Iterator[str]:
    """Yields the files of the console scripts that a launcher names."""
    for base in self.bases[launcher.path]:
      for name, files in self._find_script(base).items():
        if name in launcher.others:
          yield from files[-1:]

  def _find_mentions(self, launcher: Launcher) -> Iterator[str]:
    """Yields the other launchers that a launcher names."""
    for word in sorted(launcher.others):
      if word.rpartition("/")[2] in self._by_name and not word.endswith(".py"):
        for path in self._find_file(launcher, word, self._launchers):
          if path != launcher.path:
            yield path

  def _find_file(
    self,
    launcher: Launcher,
    word: str,
    files: Container[str],
  ) -> Iterator[str]:
    """Yields the file that a word names, if there is one."""
    for end in list_ends(word):
      for base in self.bases[launcher.path]:
        path = os.path.normpath(os.path.join(base, end))
        if path in files:
          yield path
          return
    root = os.path.join(self._roots[launcher.path], "")
    below = [
      path
      for path in self._by_name.get(os.path.basename(word), ())
      if path in files and path.startswith(root) and path.endswith(f"/{end}")
    ]
    if len(below) == 1:
      yield below[0]
