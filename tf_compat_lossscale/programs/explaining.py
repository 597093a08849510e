# SPDX-License-Identifier: Apache-2.0
"""`run --explain`: says what a program would run on, and why."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import os

from tf_compat_lossscale._core import install_commands
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import choices
from tf_compat_lossscale.programs import hints
from tf_compat_lossscale.programs import missing_names
from tf_compat_lossscale.programs import program_files

_MOST_NAMES = 12


def explain(
  words: Sequence[str], program: program_files.Program, choice: choices.Choice
) -> str:
  """Returns what a program would run on, and why, in lines.

  Args:
    words: SCRIPT, -m MODULE or -c CODE, and the program's arguments.
    program: The program.
    choice: What is chosen for it.
  """
  return "\n".join(
    [
      f"{' '.join(words)}: run with {choice}",
      *_explain_tensorflow(choice),
      *_explain_keras(choice),
      *dict.fromkeys(_list_missing(program, choice)),
    ]
  )


def _explain_tensorflow(choice: choices.Choice) -> Iterator[str]:
  if choice.decision is None:
    reason = "an option says so, or no file uses TensorFlow"
    yield f"TensorFlow {choice.tensorflow}: {reason}"
  else:
    signs = choice.decision.signs
    yield f"TensorFlow {choice.tensorflow}: {'by' if signs else 'by no name'}"
    for sign in signs[:_MOST_NAMES]:
      place = f"{os.path.relpath(sign.path)}:{sign.line}"
      yield f"  {place}: {sign.written} (TensorFlow {sign.tensorflow})"
    if len(signs) > _MOST_NAMES:
      yield f"  and {len(signs) - _MOST_NAMES} other names"


def _explain_keras(choice: choices.Choice) -> Iterator[str]:
  if choice.keras is None:
    yield "Keras: as the environment has it"
  else:
    reason = choice.keras_name and f": {choice.keras_name}"
    if not reason and choice.tensorflow == 1:
      reason = ": TensorFlow 1 needs it"
    yield f"Keras {choice.keras}{reason}"
  if choice.optimizers is not None:
    yield f"tf.keras.optimizers: the {choice.optimizers} classes"
  try:
    which_keras.make_environment(choice.keras or 2)
  except ImportError as error:
    if choice.keras is not None:
      yield f"missing: {error}"


def _list_missing(
  program: program_files.Program, choice: choices.Choice
) -> Iterator[str]:
  """Yields what the program uses and this installation lacks, and the rest.

  What `run` puts back comes first.
  """
  release = which_keras.find_release()
  restored: dict[str, str] = {}
  missing: dict[str, str] = {}
  for source in program.list_sources():
    for use in source.uses:
      place = f"{os.path.relpath(source.path)}:{use.line}"
      package = use.name.partition(".")[0]
      if use.name.endswith(".callbacks.TensorBoard"):
        package = "tensorboard"
      if hints.is_missing(package):
        command = install_commands.make_command(package, release)
        missing.setdefault(f"{package}: {command}", place)
      if use.form in ("hasattr", "text", "store"):
        continue
      if package == "tensorflow" and legacy_names.find_home(use.name):
        restored.setdefault(use.name.replace("tensorflow", "tf", 1), place)
      found = missing_names.find_absence(use.name, choice.tensorflow, release)
      if found is not None and found.command:
        missing.setdefault(f"{found.name}: {found.command}", place)
      elif found is not None and found.state == missing_names.MISSING:
        text = found.hint if found.name in found.hint else found.name
        missing.setdefault(text, place)
      elif found is not None:
        name = ".".join(found.name.split(".")[:3])  # Such as tf.contrib.slim.
        restored.setdefault(name, place)
  if restored:
    yield f"put back: {', '.join(sorted(restored))}"
  for name, place in missing.items():
    yield f"missing: {name} ({place})"
