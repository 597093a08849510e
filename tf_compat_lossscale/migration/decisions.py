# SPDX-License-Identifier: Apache-2.0
"""Decides which TensorFlow each file of a call means."""

from __future__ import annotations

from collections.abc import Sequence

from tf_compat_lossscale.migration import contexts
from tf_compat_lossscale.migration import files as files_lib
from tf_compat_lossscale.migration.rewrites import old_installs
from tf_compat_lossscale.programs import which_tensorflow


def decide(
  files: Sequence[files_lib.File], tensorflow: int | None
) -> dict[str, contexts.Meaning]:
  """Returns which TensorFlow each file means.

  A file without names that tell means what most of the others mean, unless it
  imports `tensorflow.compat.v1`. A file that asks for a name of TensorFlow 2
  alone does not mean TensorFlow 1: another branch of it would run.
  """
  votes = [file.facts.vote for file in files]
  most = 1 if votes.count(1) > votes.count(2) else 2
  decisions = {}
  for file in files:
    facts, decision = file.facts, file.facts.alone
    if not file.imports_tensorflow:
      decision = contexts.Meaning(None)
    elif tensorflow is not None:
      decision = contexts.Meaning(tensorflow)
    elif decision.tensorflow is None:
      is_ported = file.imports_package and "legacy" not in facts.signs
      decision = contexts.Meaning(
        1 if file.imports_compat_v1 else most,
        stays_eager=file.imports_compat_v1 and (most == 2 or is_ported),
      )
    if tensorflow is None and decision.tensorflow == 1 and facts.guarded:
      both = f"the other files are of 1, {facts.guarded} of 2"
      decision = contexts.Meaning(2, both=both)
    decisions[file.path] = decision
  return decisions


def decide_alone(
  file: files_lib.File, guarded: str
) -> tuple[contexts.Meaning, int | None]:
  """Returns which TensorFlow a file means by itself, and what it counts as.

  What `migrate` writes never makes a file count for TensorFlow 1, and never
  takes away that a file counts for TensorFlow 2. Otherwise, a second `migrate`
  might take other files for TensorFlow 1 than the first.
  """
  decision = which_tensorflow.decide([file.source])
  of_1 = of_2 = None
  for sign in decision.signs:
    if sign.tensorflow == 1 and sign.weight:
      of_1 = of_1 or sign
    elif sign.tensorflow == 2 and sign.weight > 1:
      of_2 = of_2 or sign
  name_of_2 = file.show_sign(of_2) if of_2 else guarded
  if of_1 and name_of_2:
    both = f"{file.show_sign(of_1)} is of 1, {name_of_2} of 2"
    return contexts.Meaning(2, both=both), None
  if decision.signs:
    sign, means = decision.signs[0], decision.tensorflow
    # A name of `tensorflow.compat.v1` says it of a file that is not migrated.
    return contexts.Meaning(
      means, file.show_sign(sign) if sign.weight else ""
    ), means
  if (told := old_installs.find_release(file)) is not None:
    return contexts.Meaning(told), told
  if "disable_v2_behavior" in file.calls:
    return contexts.Meaning(1), 1 if file.has_names_of_compat_v1 else None
  # `migrate` may have edited the names away that told.
  if file.imports_package and not file.imports_compat_v1:
    return contexts.Meaning(2), 2 if file.imports_tensorflow else None
  return contexts.Meaning(None), None


def find_guarded(file: files_lib.File) -> str:
  """Returns a name behind a question that TensorFlow 2 alone has, or ""."""
  for sign in which_tensorflow.find_signs(file.source, guarded=True):
    if sign.tensorflow == 2 and sign.weight > 1:
      return file.show_sign(sign)
  return ""
