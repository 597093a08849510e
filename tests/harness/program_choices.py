# SPDX-License-Identifier: Apache-2.0
"""Chooses the TensorFlow and the Keras of a program that is a file."""

from tf_compat_lossscale.programs import launch
from tf_compat_lossscale.programs import program_files


def choose(path, **chosen):
  """Returns the choice for a program.

  Args:
    path: The program's file.
    **chosen: What `tf-lossscale run` was told.
  """
  program = program_files.read_program([str(path)])
  return launch.choose(program, launch.RunOptions(**chosen))
