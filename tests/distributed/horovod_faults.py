# SPDX-License-Identifier: Apache-2.0
"""Random faults for ranks of Horovod.

  python tests/distributed/horovod_faults.py [SEEDS] [FIRST]

In each schedule, `horovodrun` trains to the end; ranks and launchers are
killed, and ranks are stopped for a time or for good. After a fault, the ranks
must end within a minute, and a new launch goes on from the last checkpoint. The
final state must be that of a run without faults.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import signal
import sys
import tempfile
import time

import horovod_programs as programs
import horovod_runs
import numpy as np

_MINUTE = 60.0
_WORKER = horovod_runs.WORKER.with_name("horovod_fault_worker.py")
KINDS = ("kill a rank", "delay a rank", "freeze a rank", "kill the launcher")


@dataclasses.dataclass(frozen=True)
class Fault:
  """A fault of a launch.

  Attributes:
    kind: One of KINDS.
    rank: The rank that the fault hits.
    step: The step after which it hits.
    seconds: How long a delay takes.
  """

  kind: str
  rank: int
  step: int
  seconds: float


@dataclasses.dataclass
class Result:
  """What a schedule led to.

  Attributes:
    faults: The faults.
    seconds: For each fault, the seconds until all processes had ended.
    differing: The ranks whose final state is another than that without faults.
  """

  faults: list[Fault]
  seconds: list[float]
  differing: list[int]


def make_schedule(seed: int, ranks: int, steps: int) -> list[Fault]:
  """Returns the faults of a schedule, one for each launch but the last."""
  random = np.random.default_rng([seed, 7])
  # Each kind begins a schedule in turn; some schedules have a second fault.
  kinds = [KINDS[seed % len(KINDS)]]
  if random.random() < 0.3:
    kinds.append(KINDS[random.integers(len(KINDS))])
  begin, faults = 0, []
  for kind in kinds:
    step = int(random.integers(begin + 1, steps - 10))
    begin = step
    rank, seconds = int(random.integers(ranks)), float(random.uniform(1, 4))
    faults.append(Fault(kind, rank, step, seconds))
  return faults


def run_schedule(
  seed: int, folder: pathlib.Path, ranks: int = 2, steps: int = 40
) -> Result:
  """Trains to the end under the faults of a schedule.

  Raises:
    TimeoutError: A launch took too long: something hangs.
  """
  faults = make_schedule(seed, ranks, steps)
  seconds = []
  for fault in [*faults, None]:
    for path in folder.glob("*.pid"):
      path.unlink()
    with open(folder / "log.txt", "ab") as log:
      process = horovod_runs.start(
        folder, ranks, str(_WORKER), str(folder), str(steps), log=log
      )
      try:
        if fault is not None:
          if _wait_for_step(folder, process, fault.step):
            _inflict(fault, folder, process)
          begin = time.monotonic()
        _wait_for_end(folder, process, ranks, fault)
        if fault is not None:
          seconds.append(time.monotonic() - begin)
      finally:
        horovod_runs.stop(process, folder)
  expected = compute_final(ranks, steps)
  differing = [
    rank
    for rank in range(ranks)
    if np.load(folder / f"{rank}.npy").tobytes() != expected.tobytes()
  ]
  return Result(faults, seconds, differing)


@functools.cache
def compute_final(ranks: int, steps: int) -> np.ndarray:
  """Returns the final state without faults, by one process."""
  case = programs.Case("eager", "outside", steps=steps)
  return programs.compute_states(case, ranks)[-1]


def _wait_for_step(folder: pathlib.Path, process, step: int) -> bool:
  """Waits until rank 0 has done a step; returns whether the launch runs."""
  deadline = time.monotonic() + 2 * _MINUTE
  path = folder / "0.step"
  while time.monotonic() < deadline:
    if process.poll() is not None:
      return False
    text = path.read_text("utf-8") if path.exists() else ""
    if text and int(text) >= step and list(folder.glob("0.pid")):
      return True
    time.sleep(0.01)
  raise TimeoutError(f"no step {step} in {folder}: see log.txt there")


def _inflict(fault: Fault, folder: pathlib.Path, process) -> None:
  """Does what a fault says."""
  rank = folder / f"{fault.rank}.pid"
  if fault.kind == "kill the launcher":
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
  elif fault.kind == "kill a rank":
    horovod_runs.kill_rank(rank, signal.SIGKILL)
  else:
    horovod_runs.kill_rank(rank, signal.SIGSTOP)
    if fault.kind == "delay a rank":
      time.sleep(fault.seconds)
      horovod_runs.kill_rank(rank, signal.SIGCONT)


def _wait_for_end(
  folder: pathlib.Path, process, ranks: int, fault: Fault | None
) -> None:
  """Waits until the ranks have ended; a frozen rank never does."""
  frozen = fault.rank if fault and fault.kind == "freeze a rank" else None
  # Without a fault, the limit is for the start and all steps.
  deadline = time.monotonic() + (4 * _MINUTE if fault is None else _MINUTE)
  alive = ["the launcher"]
  while alive:
    alive = [
      f"rank {rank}"
      for rank in range(ranks)
      if rank != frozen and _is_alive(folder, rank)
    ]
    # The launcher waits for all ranks, a frozen one included.
    if process.poll() is None and frozen is None:
      alive.append("the launcher")
    if alive and time.monotonic() > deadline:
      steps = [path.read_text("utf-8") for path in folder.glob("*.step")]
      raise TimeoutError(
        f"{', '.join(alive)} hangs after {fault}, at steps {steps}: {folder}"
      )
    time.sleep(0.05)


def _is_alive(folder: pathlib.Path, rank: int) -> bool:
  """Returns whether a rank runs."""
  path = folder / f"{rank}.pid"
  text = path.read_text("utf-8") if path.exists() else ""
  return bool(text) and horovod_runs.is_rank(int(text), folder)


def main() -> None:
  """Runs schedules and prints what they led to."""
  seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
  first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
  bad = 0
  for seed in range(first, first + seeds):
    with tempfile.TemporaryDirectory() as folder:
      try:
        result = run_schedule(seed, pathlib.Path(folder))
      except TimeoutError as error:
        log = pathlib.Path(folder, "log.txt").read_text("utf-8", "replace")
        print(f"{seed}: {error}\n{log[-3000:]}", flush=True)
        bad += 1
        continue
    bad += bool(result.differing)
    what = ", ".join(
      f"{x.kind} ({x.rank}) at {x.step}: {s:.1f} s"
      for x, s in zip(result.faults, result.seconds)
    )
    print(f"{seed}: {what}; differing: {result.differing}", flush=True)
  print(f"{seeds} schedules, {bad} bad")
  sys.exit(bool(bad))


if __name__ == "__main__":
  main()
