# SPDX-License-Identifier: Apache-2.0
"""Random faults of the tasks of a cluster, and what must come of them.

Each engine trains to a number of steps while tasks are killed, restarted or
stopped. Run this file with an engine, a first seed and a number of schedules to
try many schedules.
"""

import json
import pathlib
import random
import sys
import tempfile
import time

import clusters
import helpers

_FOLDER = pathlib.Path(__file__).parent
_LIMIT = 15  # Seconds that a session waits.
_PATIENCE = 150  # Seconds until a schedule counts as hanging.


class Engine:
  """A way to train with several processes.

  Attributes:
    program: The program of the tasks.
    jobs: The number of tasks of each job that has an address.
    leader: The task that says when training has ended.
    trainers: The tasks that end by themselves.
    restarts_all: Whether all tasks must restart if one fails.
    given: Further keys of the program.
    exact: The tasks that may be killed without a change of the final state.
  """

  def __init__(
    self, program, jobs, leader, trainers, restarts_all, exact, **given
  ):
    self.program, self.jobs, self.leader = program, jobs, leader
    self.trainers, self.restarts_all = trainers, restarts_all
    self.exact, self.given = exact, given

  def start(self, folder, seed):
    """Returns a running cluster."""
    ports = iter(clusters.find_ports(sum(self.jobs.values())))
    spec = {
      job: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
      for job, count in self.jobs.items()
    }
    tasks = [(job, i) for job in spec for i in range(len(spec[job]))]
    if self.leader == "chief0":
      tasks.append(("chief", 0))
    cluster = clusters.Cluster(folder)
    for job, index in tasks:
      row = {"cluster": spec, "workers": spec["worker"], "job": job}
      row |= {"index": index, "folder": str(folder / "saved"), "seed": seed}
      row |= {"steps": 60, "save_every": 5, "pause": 0.05, **self.given}
      arguments = json.dumps(row)
      cluster.start(f"{job}{index}", str(_FOLDER / self.program), arguments)
    return cluster


_SESSION = {"program": "parameter_server_cluster.py", "leader": "worker0"}
_SESSION |= {"v2": False, "limit": _LIMIT, "restarts_all": False}
ENGINES = {
  "sessions_async": Engine(
    **_SESSION,
    jobs={"ps": 1, "worker": 1},
    trainers=["worker0"],
    sync=False,
    exact=["ps0", "worker0"],
  ),
  "sessions_sync": Engine(
    **_SESSION,
    jobs={"ps": 1, "worker": 2},
    trainers=["worker0", "worker1"],
    sync=True,
    exact=["ps0"],
  ),
  "coordinator": Engine(
    "coordinator_cluster.py",
    {"ps": 1, "worker": 1},
    "chief0",
    ["chief0"],
    False,
    ["ps0", "chief0"],
    rate=0.2,
    one_by_one=True,
  ),
  "multi_worker": Engine(
    "multi_worker_cluster.py",
    {"worker": 2},
    "worker0",
    ["worker0", "worker1"],
    True,
    ["worker0", "worker1"],
    rate=0.1,
    module="tfl",
    timeout=_LIMIT,
  ),
}


def draw(engine, seed):
  """Returns a schedule: rows of (seconds, action, task, seconds)."""
  rng = random.Random(f"{engine}-{seed}")
  jobs = ENGINES[engine].jobs
  tasks = [f"{job}{i}" for job, count in jobs.items() for i in range(count)]
  if ENGINES[engine].leader == "chief0":
    tasks.append("chief0")
  rows = []
  for _ in range(rng.randint(1, 2)):
    action = rng.choice(["restart", "restart", "stop", "gone"])
    seconds = {"restart": 0.0, "stop": 3.0, "gone": 4.0}[action]
    rows.append((rng.uniform(0, 3), action, rng.choice(tasks), seconds))
  return rows


def run(engine_name, seed, folder):
  """Runs a schedule.

  Returns:
    The final state, the schedule, the number of restarts after errors, and the
    seconds of the run.

  Raises:
    AssertionError: Training did not come to its end.
  """
  engine, schedule = ENGINES[engine_name], draw(engine_name, seed)
  begin, restarts = time.monotonic(), 0
  with engine.start(folder, 7) as cluster:
    leader = cluster.tasks[engine.leader]
    key = "saved" if engine.leader == "chief0" else "state"
    cluster.wait(leader, key, 90)
    for seconds, action, name, away in schedule:
      time.sleep(seconds)
      task = cluster.tasks[name]
      if leader.find("end") or task.process.poll() is not None:
        break
      if action == "stop":
        task.stop_for(away)
        continue
      task.kill()
      time.sleep(away)
      if not engine.restarts_all:
        task.start()
    end = time.monotonic() + _PATIENCE
    while not leader.find("end"):
      assert time.monotonic() < end, f"hangs: {schedule}\n{cluster.describe()}"
      restarts += mend(engine, cluster)
      time.sleep(0.1)
    state = leader.find("end")[-1]
  return state, schedule, restarts, time.monotonic() - begin


def mend(engine, cluster):
  """Restarts tasks that have ended; returns how many."""
  ended = [
    task
    for task in cluster.tasks.values()
    if task.process.poll() is not None and not task.find("end")
  ]
  if ended and engine.restarts_all:
    ended = list(cluster.tasks.values())
    for task in ended:
      task.kill()
  for task in ended:
    task.start()
  return len(ended)


def is_exact(engine_name, schedule):
  """Returns whether a schedule must lead to the state without faults."""
  return all(
    action == "stop" or name in ENGINES[engine_name].exact
    for _, action, name, _ in schedule
  )


def main():
  """Prints a line for each schedule."""
  name, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
  with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    alone = folder / "alone"
    alone.mkdir()
    want = run_alone(name, alone)
    for seed in range(first, first + count):
      own = folder / str(seed)
      own.mkdir()
      try:
        state, schedule, restarts, seconds = run(name, seed, own)
        same = state == want
        verdict = "same" if same else "differs"
        if not same and not is_exact(name, schedule):
          verdict = "ends"
      except AssertionError as error:
        verdict, schedule, restarts, seconds = "FAILED", str(error), 0, 0
      print(name, seed, verdict, round(seconds), restarts, schedule, flush=True)


def run_alone(engine_name, folder):
  """Returns the final state of a run without faults."""
  with ENGINES[engine_name].start(folder, 7) as cluster:
    leader = cluster.tasks[ENGINES[engine_name].leader]
    return cluster.wait(leader, "end", 120)[-1]


if __name__ == "__main__":
  assert helpers.ROOT
  main()
