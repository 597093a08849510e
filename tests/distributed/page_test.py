# SPDX-License-Identifier: Apache-2.0
"""Tests that the programs of docs/distributed.md train, on 127.0.0.1."""

import contextlib
import json
import re
import socket

import clusters
import helpers
import pytest

_PAGE = (helpers.ROOT / "docs" / "distributed.md").read_text("utf-8")
_BLOCKS = dict(
  re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", _PAGE, re.S | re.M)
)
# Sets variables, and runs a program in the same process.
_RUN = (
  "import json, os, sys; os.environ.update(json.loads(sys.argv[1]));"
  "exec(compile(open(sys.argv[2]).read(), sys.argv[2], 'exec'),"
  "{'__name__': '__main__'})"
)


def test_every_program_has_a_name():
  assert sorted(_BLOCKS) == [
    "horovod_agree.py",  # These two are tested by horovod_test.
    "horovod_sessions.py",
    "multi_worker.py",
    "ranks.py",
    "sessions.py",
  ]
  assert _PAGE.count("```python") == len(_BLOCKS)


def start(cluster, name, source, env):
  """Starts a program of the page as a task."""
  path = cluster.folder / f"{name}.py"
  path.write_text(source, "utf-8")
  env = {"TRAIN_FOLDER": str(cluster.folder / "train"), **env}
  return cluster.start(name, "-c", _RUN, json.dumps(env), str(path))


def wait(cluster, task):
  """Returns what a task has printed when it has ended well."""
  assert cluster.wait_for_end(task, 150) == 0, cluster.describe()
  (line,) = [row for row in task.read().splitlines() if row[:4] == "done"]
  return line


@pytest.mark.machines
@pytest.mark.parametrize(
  ("program", "jobs", "done"),
  [
    ("multi_worker.py", {"worker": 2}, "done 20 32768.0"),
    ("sessions.py", {"ps": 1, "worker": 2}, "done"),
  ],
)
def test_program(tmp_path, program, jobs, done):
  spec = clusters.find_addresses(jobs)
  with clusters.Cluster(tmp_path) as cluster:
    tasks = []
    for job, index in [(name, i) for name in jobs for i in range(jobs[name])]:
      task = {"cluster": spec, "task": {"type": job, "index": index}}
      env = {"TF_CONFIG": json.dumps(task)}
      tasks.append(start(cluster, f"{job}{index}", _BLOCKS[program], env))
    lines = [wait(cluster, task) for task in tasks[-2:]]
  assert all(line.startswith(done) for line in lines), lines
  assert len(set(lines)) == 1


def find_port_base():
  """Returns a free port with a free one after it."""
  for _ in range(100):
    (base,) = clusters.find_ports(1)
    with contextlib.suppress(OSError), socket.socket() as following:
      following.bind(("127.0.0.1", base + 1))
      return base
  raise AssertionError("no two free ports in a row")


@pytest.mark.machines
def test_variables_of_launchers(tmp_path):
  source = _BLOCKS["ranks.py"] + _BLOCKS["multi_worker.py"]
  env = {"TRAIN_HOSTS": "127.0.0.1,127.0.0.1"}
  env |= {"PORT_BASE": str(find_port_base())}
  with clusters.Cluster(tmp_path) as cluster:
    tasks = [
      start(cluster, f"rank{i}", source, {**env, name: str(i)})
      for i, name in enumerate(["OMPI_COMM_WORLD_RANK", "SLURM_PROCID"])
    ]
    lines = {wait(cluster, task) for task in tasks}
  assert len(lines) == 1
