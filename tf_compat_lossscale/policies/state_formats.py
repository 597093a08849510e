# SPDX-License-Identifier: Apache-2.0
"""The states of other systems' loss scales, in plain Python.

Each system is a class with two functions. `encode` returns the entries that the
system saves, as Python numbers. `decode` reads such entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import Literal
from typing import Protocol
from typing import TypeAlias

from tf_compat_lossscale.policies import checks
from tf_compat_lossscale.policies import growth_backoff_rule as rules
from tf_compat_lossscale.policies.state_entries import Entries

System: TypeAlias = Literal["deepspeed", "keras3", "megatron", "torch"]


class _Format(Protocol):
  """The state of a system's loss scale."""

  @staticmethod
  def encode(
    rule: rules.GrowthBackoffRule, state: rules.State
  ) -> dict[str, Any]:
    """Returns the entries for a state."""

  @staticmethod
  def decode(rule: rules.GrowthBackoffRule, entries: Entries) -> rules.State:
    """Returns the state that entries hold."""


class _Torch:
  """PyTorch: `torch.amp.GradScaler.state_dict`."""

  @staticmethod
  def encode(
    rule: rules.GrowthBackoffRule, state: rules.State
  ) -> dict[str, Any]:
    return {
      "scale": state.current_loss_scale,
      "growth_factor": rule.growth_factor,
      "backoff_factor": rule.backoff_factor,
      "growth_interval": rule.growth_interval,
      "_growth_tracker": state.good_steps,
    }

  @staticmethod
  def decode(rule: rules.GrowthBackoffRule, entries: Entries) -> rules.State:
    state = rules.State(
      entries.get_scale("scale"), entries.get_count("_growth_tracker")
    )
    up = entries.get_growth("growth_factor")
    down = entries.get_backoff("backoff_factor")
    interval = entries.get_count("growth_interval", at_least=1)
    entries.warn_if_others(
      growth_factor=(up, rule.growth_factor),
      backoff_factor=(down, rule.backoff_factor),
      growth_interval=(interval, rule.growth_interval),
    )
    return state


class _Megatron:
  """Megatron-LM: `DynamicGradScaler.state_dict`.

  Its `hysteresis_tracker` is what is left of the hysteresis. It falls below 0
  if further steps are not finite, as `spent_hysteresis` rises above the
  hysteresis.
  """

  @staticmethod
  def encode(
    rule: rules.GrowthBackoffRule, state: rules.State
  ) -> dict[str, Any]:
    spent = state.spent_hysteresis if rule.counts_hysteresis else 0
    if rules.FINITE in rule.refill and state.good_steps > 0:
      spent = 0  # The rule sets the count to 0 at the next overflow.
    return {
      "scale": state.current_loss_scale,
      "growth_tracker": state.good_steps,
      "hysteresis_tracker": rule.hysteresis - spent,
    }

  @staticmethod
  def decode(rule: rules.GrowthBackoffRule, entries: Entries) -> rules.State:
    scale = entries.get_scale("scale")
    good_steps = entries.get_count("growth_tracker")
    left = entries.get_whole("hysteresis_tracker")
    if left > rule.hysteresis:
      entries.warn("hysteresis_tracker", left, "hysteresis", rule.hysteresis)
    spent = max(rule.hysteresis - left, 0) if rule.counts_hysteresis else 0
    return rules.State(scale, good_steps, spent)


class _DeepSpeed:
  """DeepSpeed: the loss scale in the state of `FP16_Optimizer`.

  DeepSpeed numbers all steps: `cur_iter` is the next step, and
  `last_overflow_iter` is -1 before the first overflow. The scale grows at a
  finite step if the count of finite steps before it, since the last overflow,
  is a positive multiple of `scale_window`:

    cur_iter - last_overflow_iter - 1 = n * scale_window > 0

  So the first growth after an overflow takes a step more than the next ones, as
  with `good_steps_after_growth=1`. With this rule, that of `like('deepspeed')`,
  the count up to the first growth is `good_steps`.

  The number of all steps is no part of a loss scale's state. So `encode`
  chooses -1 for `last_overflow_iter` and, for `cur_iter`, the count with which
  the scale grows at the same step as here: for the rule above, `good_steps`.
  `decode` does the reverse. A rule without the longer first interval cannot
  wait as long as DeepSpeed does right after an overflow: it grows a step
  earlier then.

  Spent hysteresis is no part of DeepSpeed's state.
  """

  @staticmethod
  def encode(
    rule: rules.GrowthBackoffRule, state: rules.State
  ) -> dict[str, Any]:
    window = rule.growth_interval - rule.good_steps_after_growth
    to_growth = max(rule.growth_interval - state.good_steps, 1)
    return {
      "dynamic_loss_scale": True,
      "cur_scale": state.current_loss_scale,
      "cur_iter": max(window + 1 - to_growth, 0),
      "last_overflow_iter": -1,
      "scale_factor": rule.growth_factor,
      "scale_window": window,
    }

  @staticmethod
  def decode(rule: rules.GrowthBackoffRule, entries: Entries) -> rules.State:
    is_dynamic = entries.get("dynamic_loss_scale")
    if is_dynamic is not True:
      raise ValueError(
        "'dynamic_loss_scale' must be True, since a fixed loss scale has no "
        f"state, but got {is_dynamic!r}."
      )
    scale = entries.get_scale("cur_scale")
    next_step = entries.get_count("cur_iter")
    last = entries.get_count("last_overflow_iter", at_least=-1)
    if last >= next_step:
      raise ValueError(
        f"'last_overflow_iter' must be below 'cur_iter'={next_step}, but got "
        f"{last}."
      )
    factor = entries.get_growth("scale_factor")
    window = entries.get_count("scale_window", at_least=1)
    kept = rule.good_steps_after_growth
    entries.warn_if_others(
      growth_factor=(factor, rule.growth_factor),
      backoff_factor=(1 / factor, rule.backoff_factor),
      scale_window=(window, rule.growth_interval - kept),
    )
    count = next_step - last - 1
    to_growth = window - (count - 1) % window if count else window + 1
    return rules.State(scale, max(window + kept - to_growth, 0))


class _Keras3:
  """Keras 3: `LossScaleOptimizer.save_own_variables`.

  An optimizer's variables have numbers: 0 and 1 are its iterations and its
  learning rate, then come `step_counter` and `dynamic_scale`, then the
  variables of the wrapped optimizer.
  """

  @staticmethod
  def encode(
    rule: rules.GrowthBackoffRule, state: rules.State
  ) -> dict[str, Any]:
    del rule
    return {"2": state.good_steps, "3": state.current_loss_scale}

  @staticmethod
  def decode(rule: rules.GrowthBackoffRule, entries: Entries) -> rules.State:
    del rule
    return rules.State(entries.get_scale("3"), entries.get_count("2"))


_FORMATS: dict[System, type[_Format]] = {
  "deepspeed": _DeepSpeed,
  "keras3": _Keras3,
  "megatron": _Megatron,
  "torch": _Torch,
}


def list_names() -> tuple[System, ...]:
  """Returns the names of the systems, sorted."""
  return tuple(sorted(_FORMATS))


def encode(
  rule: rules.GrowthBackoffRule, state: rules.State, like: str
) -> dict[str, Any]:
  """Returns the entries that a system saves, as Python numbers.

  Args:
    rule: The rule of the loss scale.
    state: The state of the loss scale.
    like: A name of `list_names()`.

  Raises:
    ValueError: There is no such system, or the state has no usable scale.
  """
  format_ = checks.find_like("state", like, _FORMATS)
  scale = checks.check_scale("current_loss_scale", state.current_loss_scale)
  # Systems compare a count with the interval by ==. A larger count, of a run
  # with a longer interval, makes the scale grow at the next finite step here.
  state = state._replace(
    current_loss_scale=rule.clip(scale),
    good_steps=min(state.good_steps, rule.growth_interval - 1),
  )
  return format_.encode(rule, state)


def decode(
  rule: rules.GrowthBackoffRule, values: Mapping[str, Any], like: str
) -> rules.State:
  """Returns the state that a system's entries hold.

  Counts that the system does not have are 0. Arguments of the system's loss
  scale that are not those of `rule` are logged.

  Args:
    rule: The rule of the loss scale that gets the state.
    values: The entries: numbers, or arrays or tensors of one number. Further
      entries do not matter.
    like: A name of `list_names()`.

  Raises:
    ValueError: There is no such system, or an entry is missing or is none that
      the system would have.
  """
  format_ = checks.find_like("state", like, _FORMATS)
  if not isinstance(values, Mapping):
    raise ValueError(
      f"A state like {like!r} must be a dict, but got {values!r} of type "
      f"{type(values).__name__}."
    )
  return format_.decode(rule, Entries(like, values))
