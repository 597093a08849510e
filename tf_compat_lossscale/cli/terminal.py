# SPDX-License-Identifier: Apache-2.0
"""Output for a terminal or a pipe: color and progress for a terminal alone."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import io
import logging
import os
import re
import shutil
import sys
import textwrap
import threading
import time
from typing import Any
from typing import TextIO

from tf_compat_lossscale._core import stderr

# Characters that would break a line or move the terminal's cursor.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
# Work that takes longer is shown, and its counts so often, in seconds.
_LONG = 2.0
_PAUSE = 0.5

_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}

# A piece of a line: its text and its style in rich's words, "" for none.
Part = tuple[str, str]


class Printer:
  """A writer of lines to standard output or standard error.

  Attributes:
    is_terminal: Whether a person reads the lines, not a program.
  """

  def __init__(self, stream: TextIO):
    self.is_terminal = stream.isatty()
    self._stream = stream
    self._console = _make_console(stream)
    if isinstance(stream, io.TextIOWrapper):
      # A path may hold bytes that are no text, and a pipe may take ASCII alone.
      stream.reconfigure(errors="backslashreplace")

  def print(self, *parts: Part | str, wraps: bool = True) -> None:
    """Prints a line, which a terminal may wrap at blanks."""
    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    pairs = [(escape(text), style) for text, style in pairs]
    wraps = wraps and self.is_terminal
    if self._console is None:
      line = "".join(text for text, _ in pairs)
      # Python 3.10 has no fallback for a terminal that says 0.
      width = shutil.get_terminal_size().columns or 80
      print(fill(line, width) if wraps else line, file=self._stream)
      return
    from rich.text import Text

    styled = Text.assemble(*pairs)
    self._console.print(styled, soft_wrap=not wraps, highlight=False)

  def write_bytes(self, data: bytes) -> None:
    """Writes bytes as they are."""
    if isinstance(self._stream, io.TextIOWrapper):
      self._stream.flush()
      self._stream.buffer.write(data)
      self._stream.buffer.flush()
    else:
      self._stream.write(data.decode("utf-8", "replace"))

  def print_diff(self, diff: bytes) -> None:
    """Prints a diff: in a pipe as it is, on a terminal in color."""
    if self._console is None or not self.is_terminal:
      self.write_bytes(diff)
      return
    for line in diff.decode("utf-8", "replace").rstrip("\n").split("\n"):
      is_header = line.startswith(("--- ", "+++ "))
      style = "bold" if is_header else _DIFF_STYLES.get(line[:1], "")
      self.print((line, style), wraps=False)


def fill(text: str, width: int) -> str:
  """Returns a text in lines of a width, which end at blanks."""
  return textwrap.fill(
    text, width, break_long_words=False, break_on_hyphens=False
  )


def escape(text: str) -> str:
  """Returns a text with escapes for what would break or move the line."""
  return _CONTROL.sub(lambda x: x[0].encode("unicode_escape").decode(), text)


def number(count: int, noun: str) -> str:
  """Returns a number with a noun, such as "1 file" and "2 files"."""
  return f"{count} {noun}{'' if count == 1 else 's'}"


def _make_console(stream: TextIO) -> Any:
  """Returns rich's console for a stream; None if there is to be no color.

  The user's variables decide, but that a report's file stays plain.
  """
  has_color = stream.isatty() and os.environ.get("TERM") != "dumb"
  if os.environ.get("FORCE_COLOR"):
    has_color |= stream in (sys.stdout, sys.stderr)
  if os.environ.get("NO_COLOR") or not has_color:
    return None
  try:
    from rich.console import Console
  except ImportError:
    return None  # The plain text says the same.
  return Console(file=stream, force_terminal=True)


@contextlib.contextmanager
def allow_closed_pipe() -> Iterator[None]:
  """Ends a block without an error if the reader, such as `head`, has ended.

  So a command keeps the exit status that says what it found.
  """
  try:
    yield
    sys.stdout.flush()
  except BrokenPipeError:
    drop_output()


def drop_output() -> None:
  """Drops what standard output cannot take, such as that of a full disk.

  Otherwise Python tries again at its end, and prints a second error.
  """
  try:
    sys.stdout.flush()
  except OSError:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
  """Keeps what TensorFlow logs from the terminal, now and later.

  The block should import TensorFlow, which writes to stderr meanwhile, and
  reads then what else it may write.
  """
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  logging.getLogger("tensorflow").setLevel(logging.ERROR)
  with stderr.drop():
    yield


@contextlib.contextmanager
def show_progress(what: str) -> Iterator[Callable[[int, int], None]]:
  """Says on stderr what takes long, if stderr is a terminal.

  Yields a function that takes how many pieces of work are done, and how many
  there are, and shows both. The block should print nothing.
  """
  if not sys.stderr.isatty():
    yield lambda done, total: None
    return
  what, shown = escape(what), ""
  due = time.monotonic() + _LONG

  def show(line: str) -> None:
    nonlocal shown
    before, shown = shown, line
    print(f"\r{line.ljust(len(before))}", end="", file=sys.stderr, flush=True)

  def count(done: int, total: int) -> None:
    nonlocal due
    now = time.monotonic()
    if now > due:
      due = now + _PAUSE
      timer.cancel()
      show(f"{what}: {done} of {total}")

  timer = threading.Timer(_LONG, show, [f"{what} ..."])
  timer.daemon = True
  timer.start()
  try:
    yield count
  finally:
    timer.cancel()
    timer.join()
    if shown:  # What follows begins at an empty line.
      print(f"\r{' ' * len(shown)}\r", end="", file=sys.stderr, flush=True)
