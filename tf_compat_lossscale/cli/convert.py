# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale convert`: writes a checkpoint again in another layout."""

from __future__ import annotations

import argparse
import collections
from collections.abc import Callable
from collections.abc import Iterator
import functools
import re
import sys
from typing import Any
from typing import TYPE_CHECKING

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.cli.terminal import number

if TYPE_CHECKING:
  from tf_compat_lossscale.checkpoint import Conversion

# The first '=' that is not escaped separates the names.
_PAIR = re.compile(r"((?:[^=\\]|\\.|\\\Z)*)=(.*)", re.DOTALL)
SUMMARY = "write a checkpoint again in the layout of another API or release"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Writes a checkpoint again in another layout. The source is never changed; "
    "the destination appears whole or not at all."
  )
  parser.add_argument("source", metavar="SRC", help="a checkpoint")
  parser.add_argument(
    "destination", metavar="DST", help="the prefix of the new checkpoint"
  )
  parser.add_argument(
    "--to",
    required=True,
    metavar="LAYOUT",
    help="saver (variables by name, as compat.v1 has them under TensorFlow 1's "
    "control flow), saver-v2 (the same under TensorFlow 2's), contrib, fp32 "
    "(without loss scales), weights (the model's variables alone, by name), or "
    "npz or safetensors (these as one file)",
  )
  repair = parser.add_mutually_exclusive_group()
  repair.add_argument(
    "--set-loss-scale",
    type=float,
    metavar="X",
    help="set every loss scale to X and its counters to 0",
  )
  repair.add_argument(
    "--reset", action="store_true", help="the same as --set-loss-scale=32768"
  )
  add_map(
    parser,
    "take the variable HERE of DST from the variable THERE of SRC, or all of "
    "scope HERE/ from scope THERE/, also --map=HERE/= and --map==THERE/;",
  )
  parser.add_flag(
    "--same-order",
    "say that both programs make their optimizers in one order, and that "
    "all that has the name of a loss scale is one; this decides, too",
  )
  parser.add_flag(
    "--masters",
    "write float32 masters in the place of float16 weights (for weights, "
    "npz and safetensors, as are the next three)",
  )
  parser.add_flag("--averages", "write moving averages in the place of weights")
  for name, verb in (("include", "write only"), ("exclude", "leave out")):
    parser.add_argument(
      f"--{name}",
      action="append",
      default=[],
      metavar="PATTERN",
      help=f"{verb} tensors whose whole names match a pattern of a shell, such "
      "as 'bert/encoder/*', in quotes; may be given several times",
    )
  parser.add_flag(
    "--dry-run",
    "write nothing; list what would be written and dropped, with bytes",
  )
  parser.add_flag("--overwrite", "replace DST if it exists")


class _Mapping(argparse.Action):
  """The action of an option whose values make a dictionary."""

  def __call__(
    self,
    parser: argparse.ArgumentParser,
    namespace: argparse.Namespace,
    values: Any,
    option_string: str | None = None,
  ) -> None:
    here, there = values
    mapping = {**getattr(namespace, self.dest)}
    if mapping.setdefault(here, there) != there:
      message = f"{here} is named twice: {mapping[here]} and {there}"
      raise argparse.ArgumentError(self, message)
    setattr(namespace, self.dest, mapping)


def add_map(parser: errors.Parser, what: str) -> None:
  """Adds the option --map to a parser; `what` says what a pair does."""
  parser.add_argument(
    "--map",
    action=_Mapping,
    default={},
    type=_parse_pair,
    metavar="HERE=THERE",
    help=f"{what} may be given several times. A name may have "
    r"\=, \\, \n, \r, \t, \xHH and \uHHHH for a character, as inspect prints "
    "it",
  )


def execute(arguments: argparse.Namespace) -> int:
  """Converts the checkpoint and returns the exit status."""
  with terminal.quiet_tensorflow():
    from tf_compat_lossscale.checkpoint import CheckpointError
    from tf_compat_lossscale.checkpoint import convert

  try:
    work = f"Writing {arguments.destination}"
    if arguments.dry_run:
      work = f"Reading {arguments.source}"
    with terminal.show_progress(work) as show:
      conversion = convert(
        arguments.source,
        arguments.destination,
        arguments.to,
        set_loss_scale=arguments.set_loss_scale,
        reset=arguments.reset,
        mapping=arguments.map,
        same_order=arguments.same_order,
        overwrite=arguments.overwrite,
        progress=functools.partial(_count_bytes, show),
        masters=arguments.masters,
        averages=arguments.averages,
        include=arguments.include,
        exclude=arguments.exclude,
        dry_run=arguments.dry_run,
      )
  except CheckpointError as error:
    raise errors.Mistake(str(error)) from error
  printer = terminal.Printer(sys.stdout)
  list_lines = _list_tensors if arguments.dry_run else _summarize
  for line in list_lines(conversion):
    printer.print(line)
  if conversion.unproven:
    printer.print(
      "note: kept, though nothing tells whether the model has it: "
      f"{', '.join(conversion.unproven)}"
    )
  for note in conversion.notes:
    printer.print(f"note: {note}")
  return 0


def _summarize(conversion: Conversion) -> Iterator[str]:
  """Yields what was written, and what was changed."""
  tensors = number(len(conversion.written), "tensor")
  yield (
    f"{conversion.path}: written, {tensors}, {conversion.size:,} bytes, "
    f"{len(conversion.renamed)} renamed"
  )
  dropped = conversion.dropped
  if conversion.reasons:  # One line, since slots are many.
    kinds = collections.Counter(
      re.split(" (?:of|by) ", why)[0] for why in conversion.reasons.values()
    )
    listed = ", ".join(f"{n} x {kind}" for kind, n in kinds.most_common())
    dropped = (f"{number(len(conversion.reasons), 'tensor')} ({listed})",)
  for action, names in (
    ("dropped", dropped),
    ("added", conversion.added),
    ("set", conversion.changed),
  ):
    if names:
      yield f"{action}: {', '.join(names)}"


def _list_tensors(conversion: Conversion) -> Iterator[str]:
  """Yields what would be written and dropped, with sizes in bytes."""
  for name, spec in sorted(conversion.written.items()):
    origin = conversion.renamed.get(name)
    whence = f", from {origin}" if origin else ""
    yield f"write {name}: {spec}, {spec.size:,} bytes{whence}"
  lost = 0
  for name in sorted(conversion.dropped):
    size = conversion.sizes.get(name, 0)
    why = conversion.reasons.get(name)
    yield f"drop {name}: {size:,} bytes{f', {why}' if why else ''}"
    lost += size
  tensors = number(len(conversion.written), "tensor")
  yield (
    f"{conversion.path}: not written (dry run); {tensors}, "
    f"{conversion.size:,} bytes; {len(conversion.dropped)} dropped, {lost:,} "
    "bytes"
  )


def _count_bytes(
  show: Callable[[int, int], None], total: int
) -> Callable[[int], None]:
  """Returns a function that takes further bytes, and shows all so far."""
  done = 0

  def add(size: int) -> None:
    nonlocal done
    done += size
    show(done, total)

  return add


def _parse_pair(text: str) -> tuple[str, str]:
  """Returns the two names of an argument of the form HERE=THERE."""
  match = _PAIR.fullmatch(text)
  if not match:
    raise argparse.ArgumentTypeError(f"{text!r} is not of the form HERE=THERE")
  try:
    here, there = map(_unescape, match.groups())
  except UnicodeDecodeError as error:
    raise argparse.ArgumentTypeError(f"{text!r}: {error.reason}") from None
  return here, there


def _unescape(name: str) -> str:
  """Returns a name whose characters may be written as Python's escapes."""
  plain = re.sub(r"\\(=)|\\.", lambda m: "=" if m[1] else m[0], name)
  return plain.encode("latin-1", "backslashreplace").decode("unicode_escape")
