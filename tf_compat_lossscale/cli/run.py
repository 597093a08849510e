# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale run`: runs a program of an older TensorFlow, unchanged."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import os

from tf_compat_lossscale._core import installation
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.cli import errors

SUMMARY = "run a program of an older TensorFlow, unchanged"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.usage = (
    f"{parser.prog} [options] (SCRIPT | -m MODULE | -c CODE) [ARGS...]"
  )
  parser.description = (
    "Runs a program of an older TensorFlow as Python would, with the legacy "
    "names in place. Without an option, the program's source decides which "
    "TensorFlow and Keras the program gets."
  )
  parser.add_releases("tf", (1, 2), "`import tensorflow` is TensorFlow {}")
  parser.add_releases("keras", (2, 3), "`tf.keras` is Keras {}")
  parser.add_argument(
    "--keras-optimizers",
    choices=("new", "legacy"),
    help="whether `tf.keras.optimizers.Adam` and the others of Keras 2 are the "
    "classes of TensorFlow 2.11 and later, or those of earlier releases "
    "(default: legacy, if the program gets Keras 2 by an option or its source)",
  )
  parser.add_argument(
    "--watch",
    metavar="DIR",
    help="write the loss scales of the program's sessions to DIR, "
    "for `tf-lossscale doctor DIR`, `plot DIR` and TensorBoard",
  )
  parser.add_flag(
    "--float16-on-cpu",
    "compute on CPUs in float16, too, if the graph rewrite is on: slow, "
    "but overflows and loss scales are real; a line says what was converted",
  )
  parser.add_flag(
    "--explain",
    "print the choice, the names that decided with their lines, and what "
    "is missing; run nothing",
  )
  parser.add_flag("--quiet", "do not print what was decided")


def split_words(argv: Sequence[str]) -> tuple[list[str], list[str]]:
  """Splits a command before the name of the program that it runs, if any.

  argparse would take the program's options for those of `run`.
  """
  words = list(argv)
  command = next(
    (i for i, word in enumerate(words) if not word.startswith("-")), 0
  )
  if words[command : command + 1] != ["run"]:
    return words, []
  for i in range(command + 1, len(words)):
    if words[i - 1] in ("--keras-optimizers", "--watch"):
      continue  # This word is its value.
    if words[i] in ("-", "-m", "-c") or not words[i].startswith("-"):
      return words[:i], words[i:]
  return words, []


def execute(arguments: argparse.Namespace) -> int:
  """Runs the program in place of this process, or explains what would run."""
  from tf_compat_lossscale.programs import launch

  program = arguments.program
  if program in ([], ["-m"], ["-c"]):
    raise errors.Mistake("name a SCRIPT, -m MODULE, or -c CODE")
  options = launch.Choice(
    arguments.tf, arguments.keras, arguments.keras_optimizers
  )
  try:
    if arguments.explain:
      print(launch.explain(program, options))
      return 0
    if arguments.watch is not None:
      os.environ[legacy_names.WATCH] = os.path.abspath(arguments.watch)
    if arguments.float16_on_cpu:
      os.environ[legacy_names.FLOAT16_ON_CPU] = "1"
      if (installation.find_release() or (0, 0)) >= (2, 21):
        # oneDNN's gradients of convolutions take 30 times as long in float16.
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    launch.run(program, options, arguments.quiet)
  except launch.RunError as error:
    raise errors.Mistake(str(error)) from None
