# SPDX-License-Identifier: Apache-2.0
"""The scaling rules of other systems, as arguments of `GrowthBackoff`.

Each system is a function that takes changes of the system's defaults and
returns all arguments. Its docstring names the source of the rule.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import inspect
from typing import Any
from typing import Literal
from typing import TYPE_CHECKING
from typing import TypeAlias

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale.policies import checks
from tf_compat_lossscale.policies import float32
from tf_compat_lossscale.policies import growth_backoff_rule as rules

if TYPE_CHECKING:
  from typing_extensions import Unpack

System: TypeAlias = Literal[
  "apex",
  "contrib",
  "deepspeed",
  "fairseq",
  "flax",
  "jmp",
  "keras3",
  "megatron",
  "torch",
]
_Arguments = dict[str, Any]
_FIELDS = {field.name for field in dataclasses.fields(rules.GrowthBackoffRule)}
# Arguments that a system with float32 arithmetic rounds before it uses them.
_ROUNDED = {
  "growth_factor": arguments.check_growth,
  "backoff_factor": arguments.check_backoff,
  "min_loss_scale": checks.check_scale,
}
# So many falls that the factor is next to 1.
_MANY_FALLS = 100_000
_FAIRSEQ_MINIMUM = 1e-4


def find_rule(
  name: System, /, **changes: Unpack[rules.Changes]
) -> rules.GrowthBackoffRule:
  """Returns the rule of another system.

  Args:
    name: A name of `list_names()`.
    **changes: Arguments of `GrowthBackoff` that replace the system's defaults.
      They mean what they mean in that system: for 'flax', a growth interval of
      n ends at the step n + 1, as it does there. 'deepspeed' also takes
      `consecutive_hysteresis`.

  Raises:
    ValueError: There is no such system, or an argument makes no sense.
    TypeError: There is no such argument.
  """
  make = checks.find_like("policy", name, _SYSTEMS)
  known = [*_FIELDS, *_list_own_arguments(make)]
  checks.check_names(f"A policy like {name!r}", changes, known)
  return rules.GrowthBackoffRule(**make(**changes))


def list_names() -> tuple[System, ...]:
  """Returns the names of all systems, sorted."""
  return tuple(sorted(_SYSTEMS))


def _list_own_arguments(make: Callable[..., _Arguments]) -> list[str]:
  """Returns the arguments that a system has beside those of the rule."""
  parameters = inspect.signature(make).parameters.values()
  return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]


def _torch(**changes: Any) -> _Arguments:
  """PyTorch 2: `torch.amp.GradScaler`."""
  defaults = {"initial_loss_scale": 2.0**16, "min_loss_scale": None}
  return defaults | changes


def _apex(**changes: Any) -> _Arguments:
  """NVIDIA Apex: `apex.amp.scaler.LossScaler`."""
  defaults = {
    "initial_loss_scale": 2.0**16,
    "min_loss_scale": None,
    "max_loss_scale": 2.0**24,
  }
  return defaults | changes


def _megatron(**changes: Any) -> _Arguments:
  """Megatron-LM: `megatron.core.optimizer.grad_scaler.DynamicGradScaler`."""
  defaults = {
    "initial_loss_scale": 2.0**32,
    "growth_interval": 1000,
    "hysteresis": 2,
  }
  return _round(defaults | changes)


def _deepspeed(
  *, consecutive_hysteresis: bool = False, **changes: Any
) -> _Arguments:
  """DeepSpeed: `deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler`.

  The defaults are those of the section "fp16" of a DeepSpeed configuration.
  The rule is that of DeepSpeed 0.17.3 and later, and of the `FP16_Optimizer` of
  all releases: the first interval after a fall is a step longer.
  """
  if not checks.is_flag(consecutive_hysteresis):
    raise ValueError(
      "consecutive_hysteresis must be True or False, but got "
      f"{consecutive_hysteresis!r}."
    )
  defaults = {
    "initial_loss_scale": 2.0**16,
    "growth_interval": 1000,
    "hysteresis": 2,
    "refill": (rules.FINITE if consecutive_hysteresis else rules.GROWTH,),
    "at_minimum": rules.RAISE,
    "good_steps_after_growth": 1,
  }
  return _add_step(_with_one_factor(defaults | changes))


def _fairseq(**changes: Any) -> _Arguments:
  """fairseq: `fairseq.optim.dynamic_loss_scaler.DynamicLossScaler`.

  fairseq fails if the scale would fall to its minimum or below. So the minimum
  here is the last scale above that number.
  """
  defaults = {
    "overflow_reset": (rules.BACKOFF,),
    "at_minimum": rules.RAISE,
  }
  found = _with_one_factor(defaults | changes)
  limit = found.get("min_loss_scale", _FAIRSEQ_MINIMUM)
  if limit is not None:
    found["min_loss_scale"] = _find_last_above(limit, found)
  return found


def _keras3(**changes: Any) -> _Arguments:
  """Keras 3: `keras.optimizers.LossScaleOptimizer`."""
  return _round({"min_loss_scale": None} | changes)


def _flax(**changes: Any) -> _Arguments:
  """Flax: `flax.training.dynamic_scale.DynamicScale`.

  Flax grows the scale at the first finite step after the interval.
  """
  defaults = {
    "initial_loss_scale": 2.0**16,
    "growth_interval": 2000,
    "min_loss_scale": float32.SMALLEST,
  }
  return _add_step(_round(defaults | changes))


def _jmp(**changes: Any) -> _Arguments:
  """jmp: `jmp.DynamicLossScale`, which has no default for the first scale."""
  return _with_one_factor(_round(changes))


def _contrib(**changes: Any) -> _Arguments:
  """TensorFlow 1.15: `ExponentialUpdateLossScaleManager`.

  The manager has no defaults for the first scale and the growth interval.
  """
  defaults = {
    "backoff_factor": 0.8,
    "hysteresis": 2,
    "refill": (rules.GROWTH, rules.BACKOFF),
  }
  return _round(defaults | changes)


def _round(found: _Arguments) -> _Arguments:
  """Rounds factors as a system does that computes in float32."""
  for name, check in _ROUNDED.items():
    if found.get(name) is not None:
      found[name] = float32.round_nearest(check(name, found[name]))
  return found


def _with_one_factor(found: _Arguments) -> _Arguments:
  """Sets the backoff factor of a system that divides by its growth factor."""
  if "growth_factor" in found:
    factor = arguments.check_growth("growth_factor", found["growth_factor"])
    found.setdefault("backoff_factor", 1 / factor)
  return found


def _add_step(found: _Arguments) -> _Arguments:
  """Makes the growth interval a step longer."""
  interval = arguments.check_steps("growth_interval", found["growth_interval"])
  return found | {"growth_interval": interval + 1}


def _find_last_above(limit: Any, found: _Arguments) -> float:
  """Returns the last scale above a limit, if every step overflows."""
  limit = checks.check_scale("min_loss_scale", limit)
  rule = rules.GrowthBackoffRule(**found | {"min_loss_scale": None})
  scale = float32.round_nearest(rule.initial_loss_scale)
  if scale <= limit:
    raise ValueError(
      f"initial_loss_scale must be above min_loss_scale={limit:g}, at which "
      f"fairseq fails, but got {scale:g}."
    )
  for _ in range(_MANY_FALLS):
    lower = float32.round_nearest(scale * rule.backoff_factor)
    if lower <= limit or lower == scale:
      return scale
    scale = lower
  # The last scale above the limit is next to the limit.
  return float32.round_inwards(limit * (1 + 2.0**-24), up=True)


_SYSTEMS: dict[System, Callable[..., _Arguments]] = {
  "apex": _apex,
  "contrib": _contrib,
  "deepspeed": _deepspeed,
  "fairseq": _fairseq,
  "flax": _flax,
  "jmp": _jmp,
  "keras3": _keras3,
  "megatron": _megatron,
  "torch": _torch,
}
