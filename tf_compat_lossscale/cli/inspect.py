# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale inspect`: describes checkpoints."""

from __future__ import annotations

import argparse

from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import terminal

SUMMARY = "describe a checkpoint: its writer and its loss scale"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description and arguments to its parser."""
  parser.description = (
    "Describes checkpoints: which API and release wrote them, what their loss "
    "scales are, and how to restore them today. The exit status is 2 if a "
    "checkpoint cannot be read."
  )
  parser.add_argument(
    "paths",
    nargs="+",
    metavar="PATH",
    help="a checkpoint's prefix or index, a folder or its file checkpoint (the "
    "latest checkpoint), a folder of such folders, or a SavedModel; also on "
    "TensorFlow's file systems, such as gs://bucket/model.ckpt-10",
  )
  parser.add_argument("--format", choices=("text", "json"), default="text")
  parser.add_argument("--keys", action="store_true", help="list every tensor")
  parser.add_argument(
    "--verify",
    action="store_true",
    help="read every tensor and compare it with its checksum, also beyond 64 "
    "MiB",
  )


def execute(arguments: argparse.Namespace) -> int:
  """Prints the descriptions and returns the exit status."""
  with terminal.quiet_tensorflow():
    from tf_compat_lossscale import checkpoint
    from tf_compat_lossscale.checkpoint import reading
    from tf_compat_lossscale.cli import printing

  descriptions = []
  status = 0
  for given in arguments.paths:
    for path in reading.expand(given):
      try:
        with terminal.announce(f"Reading {path}"):
          description = checkpoint.describe(path, arguments.verify)
      except checkpoint.CheckpointError as error:
        if arguments.traceback:
          raise
        errors.warn(errors.as_line(error), "inspect")
        status = 2
        continue
      descriptions.append(description)
      if arguments.format == "text":
        if len(descriptions) > 1:
          print()
        printing.show(description, arguments.keys)
  if arguments.format == "json":
    print(printing.as_json(descriptions, arguments.keys))
  return status
