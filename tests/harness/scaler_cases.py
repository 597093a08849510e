# SPDX-License-Identifier: Apache-2.0
"""Random runs of loss scalers, and the files that hold recorded runs."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import pathlib
from typing import Any
from typing import NamedTuple

import numpy as np

FOLDER = pathlib.Path(__file__).absolute().parent.parent / "goldens" / "scalers"
# The arguments of `find_rule` that each system has.
ARGUMENTS = {
  "apex": ("growth_interval", "min_loss_scale", "max_loss_scale"),
  "contrib": (
    *("growth_factor", "backoff_factor", "growth_interval"),
    "hysteresis",
  ),
  "deepspeed": (
    *("growth_interval", "min_loss_scale", "hysteresis"),
    *("consecutive_hysteresis", "at_minimum"),
  ),
  "fairseq": (
    *("growth_factor", "growth_interval", "min_loss_scale"),
    "overflow_tolerance",
  ),
  "flax": (
    *("growth_factor", "backoff_factor", "growth_interval"),
    "min_loss_scale",
  ),
  "jmp": ("growth_factor", "growth_interval", "min_loss_scale"),
  "keras3": ("growth_interval",),
  "megatron": (
    *("growth_factor", "backoff_factor", "growth_interval"),
    *("min_loss_scale", "hysteresis"),
  ),
  "torch": ("growth_factor", "backoff_factor", "growth_interval"),
}
# Systems whose minimum may be None.
_WITHOUT_MINIMUM = ("apex", "flax")
_OVERFLOW_PROBABILITIES = (0.0, 0.02, 0.1, 0.3, 0.6, 0.95)
# Files hold numbers only: None is NaN there, and a word is its index.
_WORDS = {"at_minimum": ("stay", "raise")}
_LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class Case:
  """A run of a loss scaler.

  Attributes:
    changes: The arguments of `find_rule` that differ from the defaults.
    overflows: For each step, whether its gradients are not finite.
  """

  changes: dict[str, Any]
  overflows: np.ndarray

  @property
  def finite(self) -> list[bool]:
    """The argument of `simulate`."""
    return (~self.overflows).tolist()


class Recording(NamedTuple):
  """A case and the scales of a system's own code.

  Attributes:
    case: The case.
    scales: The scale after each step, in float32. They end before a step at
      which the system failed.
  """

  case: Case
  scales: np.ndarray


def make_cases(system: str, count: int, seed: int) -> list[Case]:
  """Returns random cases, the same for the same seed.

  Args:
    system: A name in ARGUMENTS.
    count: The number of cases.
    seed: The seed of the random numbers.
  """
  rng = np.random.default_rng(seed)
  return [_make_case(rng, system) for _ in range(count)]


def _make_case(rng: np.random.Generator, system: str) -> Case:
  names = ARGUMENTS[system]

  def pick(*values: Any) -> Any:
    return values[rng.integers(len(values))]

  changes: dict[str, Any] = {"growth_interval": int(rng.integers(1, 13))}
  # One run in six has factors that are no powers of 2.
  if "growth_factor" in names and rng.random() < 1 / 6:
    changes["growth_factor"] = pick(1.7, 3.0)
  elif "growth_factor" in names:
    changes["growth_factor"] = pick(2.0, 2.0, 4.0)
  if "backoff_factor" in names:
    odd = changes["growth_factor"] in (1.7, 3.0)
    changes["backoff_factor"] = pick(0.8, 0.3) if odd else pick(0.5, 0.5, 0.25)
  lowest = 1.0 if system == "contrib" else 0.0
  if "min_loss_scale" in names:
    least = pick(1.0, 1.0, 0.0625, 16.0)
    if system in _WITHOUT_MINIMUM and rng.random() < 0.3:
      least = None
    if system == "fairseq":  # The scale never falls to the minimum itself.
      least = pick(1e-4, 1e-4, 1.0, 16.0)
    changes["min_loss_scale"] = least
    lowest = (least or 0.0) * (2 if system == "fairseq" else 1)
  highest = _LARGEST
  if "max_loss_scale" in names:
    highest = pick(2.0**24, 2.0**17, 2.0**10)
    changes["max_loss_scale"] = highest
  # One run in eight begins near one end of float32.
  if rng.random() < 0.125:
    initial = 2.0 ** pick(-125, -120, 120, 126)
  else:
    initial = 2.0 ** int(rng.integers(-2, 25)) * pick(1.0, 1.0, 1.25)
  changes["initial_loss_scale"] = min(max(initial, lowest, 2**-125), highest)
  if "hysteresis" in names:
    changes["hysteresis"] = int(rng.integers(1, 5))
  if "consecutive_hysteresis" in names:
    changes["consecutive_hysteresis"] = bool(rng.integers(2))
  if "at_minimum" in names:
    changes["at_minimum"] = pick(*_WORDS["at_minimum"])
  if "overflow_tolerance" in names:
    changes["overflow_tolerance"] = pick(0.0, 0.1, 0.25, 0.5)
  steps = 1 + int(80 * rng.random() ** 2)  # Most runs are short.
  return Case(changes, rng.random(steps) < pick(*_OVERFLOW_PROBABILITIES))


def write(path: pathlib.Path, recordings: Sequence[Recording]) -> None:
  """Writes recordings to a file that `read` reads."""
  cases = [recording.case for recording in recordings]
  scales = [recording.scales for recording in recordings]
  columns = {
    f"argument/{name}": np.array([_to_number(name, c.changes) for c in cases])
    for name in cases[0].changes
  }
  # The differences of the scales' bits repeat, so they pack well: if a scale
  # is halved, that is 2**23 whatever the scale.
  bits = np.concatenate(
    [
      np.diff(x.view(np.int32), prepend=_first_bits(case))
      for case, x in zip(cases, scales)
    ]
  )
  changed = bits != 0
  path.parent.mkdir(exist_ok=True)
  np.savez_compressed(
    path,
    steps=np.array([len(case.overflows) for case in cases], np.uint8),
    overflows=np.packbits(np.concatenate([case.overflows for case in cases])),
    steps_lost=np.array(
      [len(c.overflows) - len(x) for c, x in zip(cases, scales)], np.uint8
    ),
    changed=np.packbits(changed),
    bytes_of_changes=bits[changed].view(np.uint8).reshape(-1, 4).T,
    **columns,
  )


def read(path: pathlib.Path) -> list[Recording]:
  """Returns the recordings in a file of `write`."""
  return list(_read(path))


def _read(path: pathlib.Path) -> Iterator[Recording]:
  with np.load(path) as file:
    data = {name: file[name] for name in file.files}
  prefix = "argument/"
  columns = {
    name.removeprefix(prefix): values.tolist()
    for name, values in data.items()
    if name.startswith(prefix)
  }
  ends = np.cumsum(data["steps"], dtype=np.int64)
  ends_of_scales = ends - np.cumsum(data["steps_lost"], dtype=np.int64)
  overflows = np.unpackbits(data["overflows"], count=ends[-1]).astype(bool)
  changed = np.unpackbits(data["changed"], count=ends_of_scales[-1])
  bits = np.zeros(len(changed), np.int32)
  planes = np.ascontiguousarray(data["bytes_of_changes"].T)
  bits[changed.astype(bool)] = planes.view(np.int32)[:, 0]
  runs = np.split(overflows, ends[:-1])
  parts = np.split(bits, ends_of_scales[:-1])
  for i, (run, part) in enumerate(zip(runs, parts)):
    changes = {
      name: _from_number(name, values[i]) for name, values in columns.items()
    }
    case = Case(changes, run)
    part = np.cumsum(part, dtype=np.int32) + _first_bits(case)
    yield Recording(case, part.view(np.float32))


def _first_bits(case: Case) -> np.int32:
  """Returns the bits of the first scale, as a whole number."""
  first = np.array([case.changes["initial_loss_scale"]], np.float32)
  return first.view(np.int32)[0]


def _to_number(name: str, changes: dict[str, Any]) -> float:
  """Returns an argument's value as a number."""
  value = changes[name]
  if name in _WORDS:
    return _WORDS[name].index(value)
  return float("nan") if value is None else value


def _from_number(name: str, number: Any) -> Any:
  """Returns the value that `_to_number` was given."""
  if name in _WORDS:
    return _WORDS[name][number]
  return None if number != number else number
