# SPDX-License-Identifier: Apache-2.0
"""Clusters of processes on 127.0.0.1."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import time
from typing import Any

import processes


def find_ports(count: int) -> list[int]:
  """Returns ports that no process listens on."""
  with contextlib.ExitStack() as stack:
    sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
    for one in sockets:
      one.bind(("127.0.0.1", 0))
    return [one.getsockname()[1] for one in sockets]


def find_addresses(counts: dict[str, int]) -> dict[str, list[str]]:
  """Returns such addresses for a number of processes of each job."""
  ports = iter(find_ports(sum(counts.values())))
  return {
    job: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
    for job, count in counts.items()
  }


class Task:
  """A process of a cluster, such as `worker0`, with its output in files."""

  def __init__(self, name: str, folder: pathlib.Path, *args: str):
    self.name = name
    self._out = folder / f"{name}.out"
    self._err = self._out.with_suffix(".err")
    with open(self._out, "wb") as out, open(self._err, "wb") as err:
      self.process = processes.start_forked(*args, stdout=out, stderr=err)

  def read(self) -> str:
    """Returns what the process has printed to standard output so far."""
    return self._out.read_text("utf-8")

  def read_errors(self) -> str:
    return self._err.read_text("utf-8", "replace")[-5000:]

  def find(self, key: str) -> list[Any]:
    """Returns the values of a key in the lines of JSON that were printed."""
    found = []
    for line in self.read().split("\n")[:-1]:
      if line.startswith("{"):
        row = json.loads(line)
        if key in row:
          found.append(row[key])
    return found


class Cluster:
  """Processes that are killed at the end of a `with` statement."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    self.tasks: dict[str, Task] = {}

  def __enter__(self) -> Cluster:
    return self

  def __exit__(self, *exc_info: object) -> None:
    for task in self.tasks.values():
      task.process.close()

  def start(self, name: str, *args: str) -> Task:
    """Starts Python on `args` as a task: see `processes.run_forked`."""
    task = self.tasks[name] = Task(name, self.folder, *args)
    return task

  def wait(
    self, task: Task, key: str, seconds: float = 60, count: int = 1
  ) -> list[Any]:
    """Waits until a task has printed a key `count` times; returns the values.

    Raises:
      AssertionError: The task has ended, or the time is over. The message has
        the errors of all tasks.
    """
    end = time.monotonic() + seconds
    while True:
      over = task.process.poll() is not None or time.monotonic() > end
      values = task.find(key)
      if len(values) >= count:
        return values
      assert not over, (
        f"{task.name} did not print {key!r} {count} times in {seconds} s; exit "
        f"status {task.process.returncode}\n{self.describe()}"
      )
      time.sleep(0.05)

  def wait_for_end(self, task: Task, seconds: float = 60) -> int:
    """Returns a task's exit status; fails if the task goes on too long."""
    end = time.monotonic() + seconds
    while task.process.poll() is None:
      assert time.monotonic() < end, (
        f"{task.name} still runs after {seconds} s\n{self.describe()}"
      )
      time.sleep(0.05)
    status = task.process.returncode
    assert status is not None
    return status

  def describe(self) -> str:
    """Returns the output of all tasks."""
    return "\n".join(
      f"== {task.name}\n{task.read()[-3000:]}{task.read_errors()}"
      for task in self.tasks.values()
    )
