# SPDX-License-Identifier: Apache-2.0
"""Tests output for terminals and pipes: progress, diffs, readers that leave."""

import io
import os
import subprocess
import sys
import threading

import helpers
import pseudo_terminals
import pytest

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.cli import main
from tf_compat_lossscale.cli import terminal

pytestmark = pytest.mark.any_release

_DIFF = b"--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+\xfc\n b\n"


@pytest.fixture(autouse=True)
def color(monkeypatch):
  monkeypatch.setenv("TERM", "xterm-256color")
  monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def run(monkeypatch):
  """Returns a function that calls another, and returns what a terminal gets."""

  def run_on_terminal(work, name="stderr"):
    outer, inner = os.openpty()
    with (
      open(inner, "w", encoding="utf-8") as stream,
      monkeypatch.context() as patch,
    ):
      patch.setattr(sys, name, stream)
      work()
    return pseudo_terminals.read_all(outer)

  return run_on_terminal


def test_counts_appear_after_two_seconds_and_go(monkeypatch, run, capsys):
  clock = iter([0.0, 1.9, 2.1, 2.2, 2.7])
  monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))

  def work():
    with (
      pytest.raises(KeyboardInterrupt),
      terminal.show_progress("Reading") as show,
    ):
      for done in range(4):
        show(done, 4)
      raise KeyboardInterrupt

  counts = "\rReading: 1 of 4\rReading: 3 of 4"
  assert run(work) == f"{counts}\r{' ' * 15}\r"
  monkeypatch.undo()
  monkeypatch.setattr(terminal, "_LONG", -1)
  with terminal.show_progress("Reading") as show:
    show(1, 2)
  assert capsys.readouterr() == ("", "")


def take_long():
  """Works until the line that announces the work is shown, if any will be."""
  for thread in threading.enumerate():
    if isinstance(thread, threading.Timer):
      thread.join()


def test_work_without_pieces_is_announced(monkeypatch, run, capsys):
  def work():
    with terminal.show_progress("Reading \x1bx"):
      take_long()

  def fail():
    with pytest.raises(KeyboardInterrupt), terminal.show_progress("Reading"):
      take_long()
      raise KeyboardInterrupt

  monkeypatch.setattr(terminal, "_LONG", 0.01)
  line = "Reading \\x1bx ..."
  assert run(work) == f"\r{line}\r{' ' * len(line)}\r"
  assert run(fail) == f"\rReading ...\r{' ' * 11}\r"
  work()
  assert capsys.readouterr() == ("", "")
  monkeypatch.setattr(terminal, "_LONG", 60)
  monkeypatch.setattr(sys.modules[__name__], "take_long", lambda: None)
  assert run(work) == ""


@pytest.mark.parametrize(
  "command", ["inspect model", "convert --to=saver --dry-run model new"]
)
def test_a_command_that_reads_for_long_says_so(command, monkeypatch, run):
  def slow(*args, **options):
    take_long()
    raise OSError(2, "gone", "x")

  def work():
    with pytest.raises(SystemExit):
      main.main(command.split())

  monkeypatch.setattr(checkpoint, "describe", slow)
  monkeypatch.setattr(checkpoint, "convert", slow)
  monkeypatch.setattr(terminal, "_LONG", 0.01)
  shown = run(work)
  assert "Reading model ..." in shown and "gone" in shown


def test_a_diff_on_a_terminal(run):
  def work():
    terminal.Printer(sys.stdout).print_diff(_DIFF)

  assert run(work, "stdout").splitlines() == [
    "\x1b[1m--- a/x.py\x1b[0m",
    "\x1b[1m+++ b/x.py\x1b[0m",
    "\x1b[36m@@ -1 +1 @@\x1b[0m",
    "\x1b[31m-a\x1b[0m",
    "\x1b[32m+\N{REPLACEMENT CHARACTER}\x1b[0m",
    " b",
  ]


def test_a_diff_in_a_pipe():
  raw = io.BytesIO()
  printer = terminal.Printer(io.TextIOWrapper(raw, "ascii"))
  printer.print("first: ü")
  printer.print_diff(_DIFF)
  assert raw.getvalue() == b"first: \\xfc\n" + _DIFF


@pytest.mark.parametrize("lines", [1, 10**5])
def test_a_reader_that_has_left(lines):
  code = f"""if True:
    import sys
    from tf_compat_lossscale.cli import terminal
    with terminal.allow_closed_pipe():
      for _ in range({lines}):
        print("line")
    sys.exit(3)
  """
  reader, writer = os.pipe()
  os.close(reader)
  done = subprocess.run(
    [sys.executable, "-c", code],
    cwd=helpers.ROOT,
    # Without a buffer there would be nothing left to flush.
    env={**os.environ, "PYTHONUNBUFFERED": ""},
    stdout=writer,
    stderr=subprocess.PIPE,
    timeout=60,
  )
  os.close(writer)
  assert (done.returncode, done.stderr) == (3, b"")
