"""The command line, `tf-lossscale`: thin subcommands over the package.

Errors are one line on stderr, and exit status 2.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import os
import sys
from typing import NoReturn

from tf_compat_lossscale import _requirements
from tf_compat_lossscale._version import __version__
from tf_compat_lossscale.legacy import migrate as source_edits
from tf_compat_lossscale.legacy import run as launcher


class _Mistake(Exception):
  """What the user should know, in a line; the exit status is then 2."""


class _Parser(argparse.ArgumentParser):
  """Says what is wrong in one line, not under a page of usage."""

  def error(self, message: str) -> NoReturn:
    self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line.

  Args:
    argv: The arguments; by default those of the process.

  Returns:
    The exit status.
  """
  parser = _Parser(
    prog="tf-lossscale",
    description="TensorFlow's deprecated loss-scaling API, standing alone.",
  )
  commands = parser.add_subparsers(
    dest="command", required=True, metavar="COMMAND"
  )
  version = commands.add_parser(
    "version", help="print the versions of this package and what it runs on"
  )
  version.set_defaults(function=_version)
  run = commands.add_parser(
    "run",
    usage="%(prog)s [options] SCRIPT [ARGS...] | [options] -m MODULE [ARGS...]",
    help="run a program of an older TensorFlow as it stands",
    description="Runs a program of an older TensorFlow as Python would, with "
    "the legacy names in place. What it needs is read off its source, unless "
    "it is given here.",
  )
  tensorflow = run.add_mutually_exclusive_group()
  keras = run.add_mutually_exclusive_group()
  for group, name, release, what in (
    (tensorflow, "tf", 1, "`import tensorflow` is TensorFlow 1"),
    (tensorflow, "tf", 2, "`import tensorflow` is TensorFlow 2"),
    (keras, "keras", 2, "`tf.keras` is Keras 2"),
    (keras, "keras", 3, "`tf.keras` is Keras 3"),
  ):
    group.add_argument(
      f"--{name}{release}",
      dest=name,
      action="store_const",
      const=release,
      help=what,
    )
  run.add_argument("--quiet", action="store_true", help="say nothing of that")
  run.set_defaults(function=_run)
  scan = commands.add_parser(
    "scan",
    help="list what in old sources needs this package",
    description="Lists the legacy names in Python sources and what to write "
    "instead. The exit status is 0 if there is none, 1 if there is one, and "
    "2 when there is none but a file could not be read.",
  )
  scan.add_argument("paths", nargs="+", metavar="PATH", help="a file or folder")
  scan.add_argument("--format", choices=("text", "json"), default="text")
  scan.set_defaults(function=_scan)
  migrate = commands.add_parser(
    "migrate",
    help="rewrite old sources to use this package",
    description="Shows, as a unified diff, what `scan` found to change.",
  )
  migrate.add_argument(
    "paths", nargs="+", metavar="PATH", help="a file or folder"
  )
  migrate.add_argument(
    "--write", action="store_true", help="change the files instead"
  )
  migrate.set_defaults(function=_migrate)
  _add_inspect(
    commands.add_parser(
      "inspect",
      help="say what wrote a checkpoint, and what its loss scale is",
      description="Says what wrote checkpoints, what their loss scales are, "
      "and what to do with them today.",
    )
  )
  _add_convert(
    commands.add_parser(
      "convert",
      help="write a checkpoint anew, in the layout of another API or release",
      description="Writes a checkpoint anew in another layout. The source is "
      "never changed; the destination appears whole or not at all.",
    )
  )
  argv = list(sys.argv[1:] if argv is None else argv)
  program: list[str] = []
  if argv[:1] == ["run"]:  # What follows the program's name is the program's.
    own = next(
      (i for i, word in enumerate(argv[1:], 1) if _names_program(word)),
      len(argv),
    )
    argv, program = argv[:own], argv[own:]
  arguments = parser.parse_args(argv)
  arguments.program = program
  try:
    status = arguments.function(arguments)
    sys.stdout.flush()
  except BrokenPipeError:  # The reader has seen enough, as `head` does.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    status = 0
  except _Mistake as error:
    commands.choices[arguments.command].error(str(error))
  except ImportError as error:
    try:
      _requirements.explain(error)
    except ImportError as clearer:
      commands.choices[arguments.command].error(str(clearer))
    raise
  except KeyboardInterrupt:
    print("tf-lossscale: interrupted", file=sys.stderr)
    status = 130  # 128 and the number of SIGINT, as shells have it.
  return status


def _add_inspect(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
    "paths",
    nargs="+",
    metavar="PATH",
    help="a checkpoint's prefix or index, a folder (its latest), a SavedModel, "
    "an .h5 or a .keras file",
  )
  parser.add_argument("--format", choices=("text", "json"), default="text")
  parser.add_argument("--keys", action="store_true", help="list every tensor")
  parser.add_argument(
    "--verify",
    action="store_true",
    help="compare every byte with its checksum, of large ones too",
  )
  parser.set_defaults(function=_inspect)


def _add_convert(parser: argparse.ArgumentParser) -> None:
  parser.add_argument("source", metavar="SRC", help="a checkpoint")
  parser.add_argument("destination", metavar="DST", help="the new one's prefix")
  parser.add_argument(
    "--to",
    required=True,
    metavar="LAYOUT",
    help="saver (variables by name, as compat.v1 has them under TensorFlow 1's "
    "control flow), saver-v2 (TensorFlow 2's), contrib, object "
    "(tf.train.Checkpoint), keras2 (as Keras 2.3 and later has them) or fp32 "
    "(without loss scales)",
  )
  repair = parser.add_mutually_exclusive_group()
  repair.add_argument(
    "--set-loss-scale",
    type=float,
    metavar="X",
    help="what every loss scale is to be; its counters become 0",
  )
  repair.add_argument(
    "--reset", action="store_true", help="the same as --set-loss-scale=32768"
  )
  parser.add_argument(
    "--template",
    metavar="CHECKPOINT",
    help="an object-based checkpoint of the same model, for object and keras2 "
    "from variables by name",
  )
  parser.add_argument(
    "--map",
    action="append",
    default=[],
    type=_pair,
    metavar="HERE=THERE",
    help="the variable HERE of DST is THERE of SRC, where nothing proves which "
    "of several it is; may be given several times",
  )
  parser.add_argument(
    "--overwrite", action="store_true", help="replace DST if it exists"
  )
  parser.set_defaults(function=_convert)


def _pair(text: str) -> tuple[str, str]:
  here, equals, there = text.partition("=")
  if not here or not equals or not there:
    raise argparse.ArgumentTypeError(f"{text!r} is not of the form HERE=THERE")
  return here, there


def _names_program(word: str) -> bool:
  return word == "-m" or word == "-" or not word.startswith("-")


def _run(arguments: argparse.Namespace) -> NoReturn:
  program = arguments.program
  if not program or program == ["-m"]:
    raise _Mistake("name a SCRIPT, or -m MODULE")
  try:
    launcher.run(program, arguments.tf, arguments.keras, arguments.quiet)
  except launcher.LaunchError as error:
    raise _Mistake(str(error)) from None


def _inspect(arguments: argparse.Namespace) -> int:
  # Not at the top, so that `run` starts as fast as it can.
  from tf_compat_lossscale import checkpoint
  from tf_compat_lossscale.checkpoint import printing

  descriptions = []
  status = 0
  for path in arguments.paths:
    try:
      found = checkpoint.describe(path, arguments.verify)
    except checkpoint.CheckpointError as error:
      print(f"tf-lossscale inspect: {_line(error)}", file=sys.stderr)
      status = 2
      continue
    descriptions.append(found)
    if arguments.format == "text":
      if len(descriptions) > 1:
        print()
      printing.show(found, arguments.keys)
  if arguments.format == "json":
    print(printing.as_json(descriptions, arguments.keys))
  return status


def _convert(arguments: argparse.Namespace) -> int:
  from tf_compat_lossscale import checkpoint
  from tf_compat_lossscale.checkpoint import printing

  try:
    with printing.progress(f"Writing {arguments.destination}") as progress:
      done = checkpoint.convert(
        arguments.source,
        arguments.destination,
        arguments.to,
        set_loss_scale=arguments.set_loss_scale,
        reset=arguments.reset,
        template=arguments.template,
        mapping=_mapping(arguments.map),
        overwrite=arguments.overwrite,
        progress=progress,
      )
  except checkpoint.CheckpointError as error:
    raise _Mistake(_line(error)) from None
  print(f"{done.path}: written, {len(done.renamed)} tensors renamed")
  for what, names in (
    ("dropped", done.dropped),
    ("added", done.added),
    ("set", done.changed),
  ):
    if names:
      print(f"{what}: {', '.join(names)}")
  return 0


def _mapping(pairs: list[tuple[str, str]]) -> dict[str, str]:
  mapping: dict[str, str] = {}
  for here, there in pairs:
    if mapping.setdefault(here, there) != there:
      raise _Mistake(f"--map names {here} twice: {mapping[here]} and {there}")
  return mapping


def _line(error: Exception) -> str:
  """An error in a line, whatever a path or a library put into it."""
  return " ".join(str(error).split())


def _read(arguments: argparse.Namespace) -> source_edits.CodeBase:
  try:
    return source_edits.read(arguments.paths)
  except FileNotFoundError as error:
    raise _Mistake(str(error)) from None


def _scan(arguments: argparse.Namespace) -> int:
  code = _read(arguments)
  findings = list(code.findings())
  if arguments.format == "json":
    import json

    report = {
      "findings": [finding._asdict() for finding in findings],
      "unreadable": list(code.errors),
    }
    print(json.dumps(report, indent=2))
  else:
    for f in findings:
      note = f" ({f.note})" if f.note else ""
      print(f"{f.path}:{f.line}:{f.column}: {f.name} -> {f.edit}{note}")
    _print_errors(code)
  return 1 if findings else 2 if code.errors else 0


def _migrate(arguments: argparse.Namespace) -> int:
  code = _read(arguments)
  keras_2 = code.needs_keras_2  # Of the whole, and so asked once.
  for source in code.touched:
    try:
      before, after = source_edits.rewrite(source, keras_2)
      if before == after:
        continue
      if arguments.write:
        source_edits.write(source.path, after)
        print(f"{source.path}: rewritten")
      else:
        print(source_edits.diff(source.path, before, after), end="")
    except OSError as error:
      raise _Mistake(f"{source.path}: {error.strerror}") from None
    except ImportError as error:
      raise _Mistake(str(error)) from None
  for finding in code.findings():
    if finding.edit.startswith("by hand"):
      where = f"{finding.path}:{finding.line}"
      print(f"{where}: {finding.name}: {finding.edit}", file=sys.stderr)
  _print_errors(code)
  return 2 if code.errors else 0


def _print_errors(code: source_edits.CodeBase) -> None:
  for error in code.errors:
    print(f"tf-lossscale: {error}", file=sys.stderr)


def _version(arguments: argparse.Namespace) -> int:
  del arguments
  import importlib.metadata  # Slow to load, and of use here alone.
  import platform

  print(f"tf_compat_lossscale {__version__}")
  for package in ("tensorflow", "tf_keras", "absl-py"):
    try:
      print(package, importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
      print(package, "is not installed")
  print("Python", platform.python_version())
  return 0
