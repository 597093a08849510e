# SPDX-License-Identifier: Apache-2.0
"""The state of a checkpoint's loss scale, as another system saves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.checkpoint.description import Description
from tf_compat_lossscale.checkpoint.description import LossScaleState
from tf_compat_lossscale.checkpoint.layouts import scalers
from tf_compat_lossscale.cli import errors
from tf_compat_lossscale.cli import policy_options
from tf_compat_lossscale.policies import growth_backoff_rule as rules
from tf_compat_lossscale.policies import state_formats


def find_state(
  path: str,
  like: str,
  changes: list[str],
  name: str | None = None,
  verify: bool = False,
) -> dict[str, Any]:
  """Returns the state of a checkpoint's loss scale, as plain numbers.

  Args:
    path: What `checkpoint.describe` takes.
    like: The value of `--like`: a system, with changes of its arguments.
    changes: The values of `--policy`.
    name: A variable of the loss scale; None if the checkpoint has one loss
      scale alone.
    verify: Whether to compare every byte with its checksum.

  Raises:
    CheckpointError: The checkpoint is missing or damaged.
    Mistake: An option is wrong, or the checkpoint has no such loss scale.
  """
  system = like.partition(",")[0].strip()
  names = (*scalers.LIKE, *state_formats.list_names())
  if system not in state_formats.list_names():
    raise errors.Mistake(
      f"--like must be the system that wrote the checkpoint "
      f"({', '.join(scalers.LIKE)}), or one whose state is to be printed "
      f"({', '.join(state_formats.list_names())}), but got "
      f"{wrong_values.show(system, names)}"
    )
  policy_options.make_policies([like], changes)  # The first errors to report.
  description = checkpoint.describe(path, verify)
  found = _choose(description, name)
  (policy,) = policy_options.make_policies(
    [like], [*changes, *_list_known(found, [like, *changes])]
  )
  if found.value is None:
    raise errors.Mistake(
      f"{description.path}: the file has the loss scale's first value, "
      f"{found.initial:g}, but no state"
    )
  try:
    return state_formats.encode(policy.rule, _convert(found), system)
  except ValueError as error:
    raise errors.Mistake(f"{description.path}: {error}") from None


def _list_known(state: LossScaleState, texts: list[str]) -> list[str]:
  """Returns the arguments that the checkpoint's MetaGraph proves.

  Args:
    state: The loss scale.
    texts: The values of the options, whose arguments decide.
  """
  parts = ",".join(texts).split(",")
  given = {part.partition("=")[0].strip() for part in parts}
  known = {}
  if "increment_period" in state.rule:
    known["growth_interval"] = state.rule["increment_period"]
  multiplier = state.rule.get("multiplier", 2)
  if multiplier != 2:
    known |= {"growth_factor": multiplier, "backoff_factor": 1 / multiplier}
  return [f"{k}={v:g}" for k, v in known.items() if k not in given]


def _choose(description: Description, name: str | None) -> LossScaleState:
  """Returns the loss scale of that name, or the only loss scale."""
  found: Sequence[LossScaleState] = description.loss_scales
  names = ", ".join(state.names[0] for state in found if state.names)
  if not found:
    raise errors.Mistake(
      f"{description.path}: there is no dynamic loss scale in it"
    )
  if name is not None:
    found = [state for state in found if name in state.names]
    if not found:
      raise errors.Mistake(
        f"{description.path}: no loss scale has a variable {name!r}; there is "
        f"{names}"
      )
  if len(found) > 1:
    raise errors.Mistake(
      f"{description.path}: there are {len(found)} loss scales: choose one by "
      f"--loss-scale={names.replace(', ', ' or --loss-scale=')}"
    )
  return found[0]


def _convert(state: LossScaleState) -> rules.State:
  """Returns a description of a loss scale as the state of a policy.

  A count that the checkpoint does not have is 0. The tolerance of a policy
  counts further steps, which no other system saves.
  """
  return rules.State(
    float(state.value or 0),
    good_steps=int(state.good_steps or 0),
    spent_hysteresis=int(state.bad_steps or 0),
    skipped_steps=int(state.skipped_steps or 0),
  )
