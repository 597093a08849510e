# SPDX-License-Identifier: Apache-2.0
"""`tf-lossscale version`: prints versions for a bug report."""

from __future__ import annotations

import argparse

from tf_compat_lossscale._version import __version__
from tf_compat_lossscale.cli import errors

SUMMARY = "print the versions of this package, TensorFlow and Python"


def add_arguments(parser: errors.Parser) -> None:
  """Adds the subcommand's description to its parser."""
  parser.description = (
    "Prints the versions of this package, TensorFlow, Keras 2 and Python."
  )


def execute(arguments: argparse.Namespace) -> int:
  """Prints the versions and returns the exit status."""
  del arguments
  import importlib.metadata  # Slow to import.
  import platform

  print(f"tf_compat_lossscale {__version__}")
  for package in ("tensorflow", "tf_keras", "absl-py"):
    try:
      print(package, importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
      print(package, "is not installed")
  print("Python", platform.python_version())
  return 0
