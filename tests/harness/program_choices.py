# SPDX-License-Identifier: Apache-2.0
"""Chooses the TensorFlow and the Keras of a program that is a file."""

from tf_compat_lossscale.programs import choosing
from tf_compat_lossscale.programs import command_words


def choose(path, search=(), **chosen):
  """Returns the choice for a program.

  Args:
    path: The program's file.
    search: The folders of its own modules.
    **chosen: What `tf-lossscale run` was told.
  """
  files = command_words.Files(path, search=search)
  return choosing.choose_for(choosing.read_program(files), **chosen)
