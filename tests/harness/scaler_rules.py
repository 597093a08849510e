# SPDX-License-Identifier: Apache-2.0
"""The scaling rules of other systems, told once more as oracles for tests.

Each function tells the published rule of a system by the length of the present
run of finite steps, in the arithmetic of that system. Nothing here is shared
with `policies`. A function yields the scale after each step. If the system
fails at a step, the function ends there.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import math
from typing import Any

import numpy as np

_INF = math.inf


def _single(number: float) -> float:
  """Returns the nearest number of float32, or an infinity."""
  return float(np.float32(number))


def _count_runs(finite: Iterable[bool]) -> Iterator[int]:
  """Yields after each step how many finite steps there are in a row."""
  length = 0
  for flag in finite:
    length = length + 1 if flag else 0
    yield length


def run_torch(
  finite: Iterable[bool],
  initial_loss_scale: float,
  growth_factor: float,
  backoff_factor: float,
  growth_interval: int,
) -> Iterator[float]:
  """PyTorch: float64 factors, a float32 scale, no bounds but infinity."""
  scale = _single(initial_loss_scale)
  for length in _count_runs(finite):
    if length == 0:
      scale = _single(scale * backoff_factor)
    elif length % growth_interval == 0:
      grown = _single(scale * growth_factor)
      scale = scale if grown == _INF else grown
    yield scale


def run_flax(
  finite: Iterable[bool],
  initial_loss_scale: float,
  growth_factor: float,
  backoff_factor: float,
  growth_interval: int,
  min_loss_scale: float | None,
) -> Iterator[float]:
  """Flax: the step that makes the scale grow comes after the interval."""
  up, down = _single(growth_factor), _single(backoff_factor)
  scale = _single(initial_loss_scale)
  largest = float(np.finfo(np.float32).max)
  for length in _count_runs(finite):
    if length == 0:
      scale = max(_single(scale * down), _single(min_loss_scale or 0.0))
    elif length % (growth_interval + 1) == 0:
      scale = min(_single(scale * up), largest)
    yield scale


def run_jmp(
  finite: Iterable[bool],
  initial_loss_scale: float,
  growth_factor: float,
  growth_interval: int,
  min_loss_scale: float,
) -> Iterator[float]:
  """jmp: one float32 factor, by which the scale is multiplied or divided."""
  factor = np.float32(growth_factor)
  scale = np.float32(initial_loss_scale)
  for length in _count_runs(finite):
    if length == 0:
      scale = max(scale / factor, np.float32(min_loss_scale))
    elif length % growth_interval == 0 and scale * factor < _INF:
      scale = scale * factor
    yield float(scale)


def run_keras3(
  finite: Iterable[bool], initial_loss_scale: float, growth_interval: int
) -> Iterator[float]:
  """Keras 3: twice and half, without any bound."""
  scale = _single(initial_loss_scale)
  for length in _count_runs(finite):
    if length == 0:
      scale = _single(scale / 2)
    elif length % growth_interval == 0:
      scale = _single(scale * 2)
    yield scale


def run_megatron(
  finite: Iterable[bool],
  initial_loss_scale: float,
  growth_factor: float,
  backoff_factor: float,
  growth_interval: int,
  min_loss_scale: float,
  hysteresis: int,
) -> Iterator[float]:
  """Megatron: patience, which only growth brings back."""
  up, down = _single(growth_factor), _single(backoff_factor)
  scale = _single(initial_loss_scale)
  overflows_since_growth = 0
  for length in _count_runs(finite):
    if length == 0:
      overflows_since_growth += 1
      if overflows_since_growth >= hysteresis:
        scale = max(_single(scale * down), _single(min_loss_scale))
    elif length % growth_interval == 0:
      overflows_since_growth = 0
      scale = _single(scale * up)
    yield scale


def run_deepspeed(
  finite: Iterable[bool],
  initial_loss_scale: float,
  growth_interval: int,
  min_loss_scale: float,
  hysteresis: int,
  consecutive_hysteresis: bool,
  at_minimum: str,
) -> Iterator[float]:
  """DeepSpeed: the first step after an overflow does not count for growth.

  Nor does the first step of all.
  """
  scale, patience = initial_loss_scale, hysteresis
  for length in _count_runs(finite):
    if length == 0 and patience > 1:
      patience -= 1
    elif length == 0:
      if scale == min_loss_scale and at_minimum == "raise":
        return
      scale = max(scale / 2, min_loss_scale)
    else:
      is_due = length > 1 and (length - 1) % growth_interval == 0
      if is_due or consecutive_hysteresis:
        patience = hysteresis
      scale = scale * 2 if is_due else scale
    yield scale


def run_fairseq(
  finite: Iterable[bool],
  initial_loss_scale: float,
  growth_factor: float,
  growth_interval: int,
  min_loss_scale: float,
  overflow_tolerance: float,
) -> Iterator[float]:
  """fairseq: a share of overflows since the last change, in float64."""
  scale, changed_at, overflows = initial_loss_scale, -1, 0
  for step, length in enumerate(_count_runs(finite)):
    if length == 0:
      overflows += 1
      if overflows / (step - changed_at) >= overflow_tolerance:
        scale, changed_at, overflows = scale / growth_factor, step, 0
      if scale <= min_loss_scale:
        return
    elif length % growth_interval == 0:
      scale, changed_at = scale * growth_factor, step
    yield scale


def run_apex(
  finite: Iterable[bool],
  initial_loss_scale: float,
  growth_interval: int,
  min_loss_scale: float | None,
  max_loss_scale: float,
) -> Iterator[float]:
  """Apex: twice and half within bounds, in float64."""
  scale = initial_loss_scale
  for length in _count_runs(finite):
    if length == 0:
      scale = max(scale / 2, min_loss_scale or 0.0)
    elif length % growth_interval == 0:
      scale = min(scale * 2, max_loss_scale)
    yield scale


def run_contrib(
  finite: Iterable[bool],
  initial_loss_scale: float,
  growth_factor: float,
  backoff_factor: float,
  growth_interval: int,
  hysteresis: int,
) -> Iterator[float]:
  """tf.contrib: every change of the scale brings patience back."""
  up, down = _single(growth_factor), _single(backoff_factor)
  scale, overflows = _single(initial_loss_scale), 0
  for length in _count_runs(finite):
    if length == 0:
      overflows += 1
      if overflows == hysteresis:
        scale, overflows = max(_single(scale * down), 1.0), 0
    elif length % growth_interval == 0:
      grown = _single(scale * up)
      scale, overflows = (scale if grown == _INF else grown), 0
    yield scale


_RULES: dict[str, Callable[..., Iterator[float]]] = {
  "apex": run_apex,
  "contrib": run_contrib,
  "deepspeed": run_deepspeed,
  "fairseq": run_fairseq,
  "flax": run_flax,
  "jmp": run_jmp,
  "keras3": run_keras3,
  "megatron": run_megatron,
  "torch": run_torch,
}


def run(system: str, finite: Iterable[bool], **changes: Any) -> np.ndarray:
  """Returns the scales of a system after each step, rounded to float32."""
  with np.errstate(over="ignore", under="ignore"):
    scales = list(_RULES[system](finite, **changes))
    return np.array(scales, np.float64).astype(np.float32)
