# SPDX-License-Identifier: Apache-2.0
"""Judges the loss scale in a checkpoint, which tells the last step alone."""

from __future__ import annotations

from tf_compat_lossscale.monitoring import facts
from tf_compat_lossscale.monitoring import phrases
from tf_compat_lossscale.monitoring import stuck
from tf_compat_lossscale.monitoring import verdicts


def judge_state(
  value: float | None,
  good_steps: int | None = None,
  skipped_steps: int | None = None,
  step: int | None = None,
) -> verdicts.Verdict:
  """Judges the loss scale in a checkpoint.

  Args:
    value: The loss scale; None if the checkpoint has none.
    good_steps: The finite steps since the loss scale changed, or None.
    skipped_steps: How many steps of the run were skipped, or None.
    step: The global step, which skipped steps do not change, or None.

  Returns:
    The verdict.
  """
  if value is None:
    return verdicts.Verdict(
      "too_short",
      "The checkpoint does not have the value of its loss scale.",
    )
  if not facts.is_usable(value):
    return verdicts.refuse(value)
  scale = facts.show_scale(value)
  evidence = []
  if good_steps is not None:
    evidence.append(f"The counter of good steps is {good_steps}.")
  if skipped_steps is not None:
    evidence.append(f"The run skipped {skipped_steps} steps.")
  if value <= 1 and good_steps == 0:
    return verdicts.Verdict(
      "stuck",
      f"The loss scale is {scale}, its minimum for most rules, and the "
      "last step was skipped: the run may be stuck there.",
      tuple(evidence),
      (
        "Restore an earlier checkpoint, or set the scale with tf-lossscale "
        "convert --reset.",
        *phrases.ADVICE_ON_STUCK,
      ),
    )
  if skipped_steps is not None and step is not None and step >= 0:
    attempted = step + skipped_steps
    if (
      skipped_steps >= stuck.FEW
      and skipped_steps > stuck.MOST_SKIPPED * attempted
    ):
      return verdicts.Verdict(
        "skips_often",
        f"The run skipped {skipped_steps} of {attempted} steps "
        f"({skipped_steps / attempted:.1%}).",
        tuple(evidence),
        phrases.ADVICE_ON_RATE,
      )
  if value < 2.0**verdicts.FAR:
    evidence.append(
      f"The scale is low: float16 loses gradients below 2^-24 / {scale}."
    )
  return verdicts.Verdict(
    "healthy",
    f"The loss scale is {scale}.",
    tuple(evidence),
  )
