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
    "scales are, and how to restore them today. With --like, takes the "
    "checkpoints for those of an older system; or prints the state of a "
    "checkpoint's loss scale for a system of today instead, as JSON. The exit "
    "status is 2 if a checkpoint cannot be read."
  )
  parser.add_argument(
    "paths",
    nargs="+",
    metavar="PATH",
    help="a checkpoint's prefix or index, a folder or its file checkpoint (the "
    "latest checkpoint), a SavedModel, an .h5, .keras, .npz or .safetensors "
    "file; also on TensorFlow's file systems, such as gs://bucket/model.ckpt-10",
  )
  parser.add_argument("--format", choices=("text", "json"), default="text")
  parser.add_argument("--keys", action="store_true", help="list every tensor")
  parser.add_argument(
    "--verify",
    action="store_true",
    help="compare every byte with its checksum, in large tensors too",
  )
  parser.add_argument(
    "--like",
    type=str.lower,
    metavar="SYSTEM",
    help="openseq2seq, opennmt-tf, tf_cnn_benchmarks or thumt: the system that "
    "wrote the checkpoints, if the MetaGraph, which would prove it, is "
    "missing; or print the state that the loss scale has in deepspeed, keras3, "
    "megatron or torch, with numbers for tensors; see "
    "tf_compat_lossscale.policies.state_dict",
  )
  parser.add_argument(
    "--policy",
    action="append",
    default=[],
    metavar="CHANGES",
    help="with --like: the arguments of the loss scale, if they are not those "
    "of SYSTEM and no MetaGraph proves them: growth_interval=500,hysteresis=4",
  )
  parser.add_argument(
    "--loss-scale",
    metavar="NAME",
    help="with --like: the loss scale that has this variable, if the "
    "checkpoint has several loss scales",
  )


def execute(arguments: argparse.Namespace) -> int:
  """Prints the descriptions and returns the exit status."""
  from tf_compat_lossscale.checkpoint.layouts import scalers

  like = arguments.like
  if like is not None and like not in scalers.LIKE:
    _print_state(arguments)
    return 0
  for option in ("policy", "loss_scale"):
    if getattr(arguments, option):
      option = option.replace("_", "-")
      raise errors.Mistake(
        f"--{option} goes with --like=SYSTEM of deepspeed, keras3, megatron or "
        "torch"
      )
  from tf_compat_lossscale import checkpoint
  from tf_compat_lossscale.cli import printing
  from tf_compat_lossscale.cli import terminal

  descriptions = []
  status = 0
  for path in arguments.paths:
    try:
      with terminal.announce(f"Reading {path}"):
        description = checkpoint.describe(path, arguments.verify, like)
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


def _print_state(arguments: argparse.Namespace) -> None:
  """Prints the state of a checkpoint's loss scale, for another system."""
  import json

  from tf_compat_lossscale import checkpoint
  from tf_compat_lossscale.cli import exchange

  if len(arguments.paths) != 1:
    raise errors.Mistake(
      f"--like takes one checkpoint, but got {len(arguments.paths)}"
    )
  if arguments.keys:
    raise errors.Mistake("--keys does not go with --like")
  (path,) = arguments.paths
  try:
    state = exchange.find_state(
      path,
      arguments.like,
      arguments.policy,
      arguments.loss_scale,
      arguments.verify,
    )
  except checkpoint.CheckpointError as error:
    raise errors.Mistake(str(error)) from error
  print(json.dumps(state))
