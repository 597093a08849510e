# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale inspect`: describes checkpoints."""

from __future__ import annotations

import argparse

from tf_compat_lossscale.cli import errors

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
    "latest checkpoint) or a SavedModel; also on TensorFlow's file systems, "
    "such as gs://bucket/model.ckpt-10",
  )
  parser.add_argument("--format", choices=("text", "json"), default="text")
  parser.add_argument("--keys", action="store_true", help="list every tensor")
  parser.add_argument(
    "--verify",
    action="store_true",
    help="compare every byte with its checksum, in large tensors too",
  )


def execute(arguments: argparse.Namespace) -> int:
  """Prints the descriptions and returns the exit status."""
  from tf_compat_lossscale import checkpoint
  from tf_compat_lossscale.cli import printing
  from tf_compat_lossscale.cli import terminal

  descriptions = []
  status = 0
  for path in arguments.paths:
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
