# SPDX-License-Identifier: Apache-2.0
"""Chooses the TensorFlow and the Keras of a program."""

from tf_compat_lossscale.programs import launch
from tf_compat_lossscale.programs import program_files


def choose(*words, **chosen):
  """Returns the choice for a program.

  Args:
    *words: The program's file, or `-c CODE`, and so on.
    **chosen: What `tf-lossscale run` was told.
  """
  program = program_files.read_program([str(word) for word in words])
  return launch.choose(program, launch.Choice(**chosen))
