# SPDX-License-Identifier: Apache-2.0
"""Chooses a program's TensorFlow and its Keras by its source."""

from __future__ import annotations

from typing import NamedTuple

from tf_compat_lossscale.programs import command_words
from tf_compat_lossscale.programs import keras_optimizers
from tf_compat_lossscale.programs import program_modules
from tf_compat_lossscale.programs import source_facts


class RunError(Exception):
  """An error for a program that cannot be run; the message is one line."""


class Choice(NamedTuple):
  """The TensorFlow and the Keras that a program runs on.

  Attributes:
    tensorflow: 1 or 2: the TensorFlow that `import tensorflow` gives.
    keras: 2 or 3: the Keras that `tf.keras` is; None to leave it as it is.
    reason: The reason for the choice, in words.
    found: The name that decided about TensorFlow, and where it is; "" if there
      is none.
    uses_keras: Whether the program uses Keras, or modules built on Keras.
    optimizers: "legacy" or "new": the classes that `tf.keras.optimizers` has;
      None to leave them as they are.
  """

  tensorflow: int
  keras: int | None
  reason: str = ""
  uses_keras: bool = False
  optimizers: str | None = None
  found: str = ""

  def __str__(self) -> str:
    keras = f" --keras{self.keras}" if self.keras else ""
    return f"--tf{self.tensorflow}{keras}"


def read_program(
  files: command_words.Files,
) -> program_modules.Program | None:
  """Reads the program that a command runs; None if the command has no file."""

  def read(path: str) -> source_facts.Source:
    if files.code is not None and path == files.program:
      return source_facts.read_text(path, files.code)
    return source_facts.read_source(path)

  if not files.program and not files.collected:
    return None
  return program_modules.Program(
    files.program,
    [*files.search, *program_modules.find_python_path()],
    read,
    program_modules.Memory(files.packages),
    files.collected,
  )


def choose_for(
  program: program_modules.Program | None,
  tensorflow: int | None = None,
  keras: int | None = None,
  optimizers: str | None = None,
) -> Choice:
  """Chooses a program's TensorFlow and Keras by its source.

  Args:
    program: The program; None if it has no file.
    tensorflow: 1 or 2 to use that TensorFlow; None to decide by the source.
    keras: 2 or 3 to use that Keras; None to decide by the source.
    optimizers: "legacy" or "new" to have these optimizers of Keras 2; None to
      decide by the source.

  Returns:
    The choice. `which_tensorflow` decides about TensorFlow. A program gets
    Keras 2 if it gets TensorFlow 1, uses a legacy name, `tf.estimator` or a
    name that Keras 3 lacks, or asks for Keras 2's legacy optimizers. It gets
    the legacy optimizers if it gets Keras 2.

  Raises:
    RunError: Legacy optimizers are asked for with Keras 3.
  """
  if optimizers == keras_optimizers.LEGACY and keras == 3:
    raise RunError(
      "--keras-optimizers=legacy needs Keras 2, because Keras 3 has no legacy "
      "optimizers: use --keras2 instead of --keras3"
    )
  read = program.sources if program is not None else []
  reason = found = ""
  if program is not None and tensorflow is None:
    tensorflow, found = _decide(program)
    # There is nothing to say of a program that does not import TensorFlow. If
    # nothing can be read, Python will say why.
    if any(source.imports for source in read):
      if not found and any(source.estimators for source in read):
        found = "no name in it tells; --tf1 if it is older"
      shown = f" ({found})" if found else ""
      reason = f"TensorFlow {tensorflow} code{shown}"
  tensorflow = tensorflow or 2
  legacy = any(source.needs_keras_2 for source in read)
  wants_legacy = optimizers == keras_optimizers.LEGACY
  if keras is None and (tensorflow == 1 or legacy or wants_legacy):
    keras = 2
  if optimizers is None and keras == 2:
    optimizers = keras_optimizers.LEGACY
  uses_keras = any(source.keras for source in read)
  return Choice(tensorflow, keras, reason, uses_keras, optimizers, found)


def _decide(program: program_modules.Program) -> tuple[int, str]:
  """Returns the TensorFlow that a program means, and the reason."""
  if not any(s.tensorflow1 or s.compat_v1 for s in program.sources):
    return 2, ""
  from tf_compat_lossscale.programs import old_which

  with source_facts.allow_depth():
    return old_which.decide(program)
