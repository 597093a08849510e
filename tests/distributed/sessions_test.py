# SPDX-License-Identifier: Apache-2.0
"""Tests that sessions of `open_session` end in their limit."""

import json
import os
import signal
import threading
import time

import clusters
import helpers
from helpers import tf1
import pytest
import tensorflow as tf

from tf_compat_lossscale.distributed import sessions

_PROGRAM = str(helpers.HARNESS / "parameter_server_cluster.py")


def start(cluster, servers, workers, limit, halts):
  """Starts the tasks; `halts` are the points where workers stop, by name."""
  ports = clusters.find_ports(servers + workers)
  addresses = [f"127.0.0.1:{port}" for port in ports]
  spec = {"ps": addresses[:servers], "worker": addresses[servers:]}
  for job in spec:
    for index in range(len(spec[job])):
      name = f"{job}{index}"
      row = {"cluster": spec, "job": job, "index": index, "v2": False}
      row |= {"folder": str(cluster.folder), "seed": 7, "sync": False}
      # Tests act after 12 steps of one worker; the other may take most steps.
      row |= {"steps": 60, "save_every": 5, "pause": 0.05, "limit": limit}
      if name in halts:
        row["halt"] = halts[name]
      cluster.start(name, _PROGRAM, json.dumps(row))
  return spec


def act(cluster, *actions):
  """Kills, stops or starts tasks, such as `kill ps0`."""
  for action in actions:
    verb, name = action.split()
    task = cluster.tasks[name]
    if verb == "kill":
      task.kill()
    elif verb == "stop":
      os.kill(task.process.pid, signal.SIGSTOP)
    else:
      task.start()
      cluster.wait(task, "ready")


def halt_and_act(cluster, name, *actions):
  """Waits until a worker stops; acts; lets the worker go on."""
  (point,) = cluster.wait(cluster.tasks[name], "at", 90)
  act(cluster, *actions)
  (cluster.folder / f"{point}.go").touch()


def wait_for_error(cluster, task, limit):
  """Returns the type and message of the error that a worker ends with."""
  assert cluster.wait_for_end(task, limit + 25) == 3, cluster.describe()
  return task.find("error")[-1]


@pytest.mark.thorough
@pytest.mark.parametrize(
  ("point", "action", "words"),
  [
    (["step", 4], "kill", "got no session"),
    (["ready", 1], "stop", "A step"),
    (["end", 1], "stop", "The end"),
  ],
)
def test_server_vanishes(tmp_path, point, action, words):
  with clusters.Cluster(tmp_path) as cluster:
    spec = start(cluster, 1, 1, 2, {"worker0": point})
    halt_and_act(cluster, "worker0", f"{action} ps0")
    error, message = wait_for_error(cluster, cluster.tasks["worker0"], 2)
  address = spec["ps"][0]
  assert error == "DeadlineExceededError"
  assert words in message and f"/job:ps ({address})" in message
  is_named = f"No process listens at {address}." in message
  assert is_named == (action == "kill"), message


_GONE = {
  "in a save": (["save", 2], ["kill ps0"]),
  "in a restore": (["restore", 1], ["kill ps0"]),
  "after init": (["init", 1], ["kill ps0"]),
  "before a step": (["ready", 1], ["kill ps0"]),
  "one of two": (["step", 4], ["kill ps1"]),
  "no reply in a save": (["save", 2], ["stop ps0"]),
  "no reply after init": (["init", 1], ["stop ps0"]),
  "with the chief": (["step", 4], ["kill ps0", "kill worker0", "start ps0"]),
}


@pytest.mark.machines
@pytest.mark.parametrize("case", _GONE)
def test_each_worker_ends_if_a_server_is_gone(tmp_path, case):
  point, actions = _GONE[case]
  with clusters.Cluster(tmp_path) as cluster:
    spec = start(cluster, 2, 2, 5, {"worker0": point})
    if point[0] == "restore":
      cluster.wait(cluster.tasks["worker0"], "state", 60, 12)
      act(cluster, "kill ps0", "start ps0")
    halt_and_act(cluster, "worker0", *actions)
    for name in ("worker0", "worker1"):
      if f"kill {name}" in actions:
        continue
      error, message = wait_for_error(cluster, cluster.tasks[name], 5)
      assert error == "DeadlineExceededError"
      assert f"/job:ps ({', '.join(spec['ps'])})" in message, message
      if "kill worker0" in actions:
        assert "the chief to initialize the variables" in message
      elif actions[0][:4] == "kill":
        dead = spec["ps"][int(actions[0][-1])]
        assert f"No process listens at {dead}." in message


@pytest.mark.machines
@pytest.mark.parametrize("point", ["init", "restore", "ready", "step", "save"])
def test_workers_go_on_if_a_server_restarts(tmp_path, point):
  with clusters.Cluster(tmp_path) as cluster:
    count = 1 if point in ("init", "restore", "ready") else 2
    start(cluster, 1, 2, 30, {"worker0": [point, count]})
    if point == "restore":
      cluster.wait(cluster.tasks["worker0"], "state", 60, 12)
      act(cluster, "kill ps0", "start ps0")
    halt_and_act(cluster, "worker0", "kill ps0", "start ps0")
    for name in ("worker0", "worker1"):
      (values,) = cluster.wait(cluster.tasks[name], "end", 90)
      assert values[0] >= 60


@pytest.mark.machines
def test_a_lost_end_names_the_server(tmp_path):
  with clusters.Cluster(tmp_path) as cluster:
    spec = start(cluster, 1, 1, 5, {"worker0": ["end", 1]})
    halt_and_act(cluster, "worker0", "kill ps0")
    error, message = wait_for_error(cluster, cluster.tasks["worker0"], 5)
  assert error == "UnavailableError"
  assert "at its end" in message
  assert f"No process listens at {spec['ps'][0]}." in message


@pytest.mark.parametrize(
  ("message", "is_lost"),
  [
    (
      "CANCELLED: From /job:worker/replica:0/task:0:\n"
      "RecvFromRemoteAsync is cancelled.\n"
      "ABORTED: From /job:ps/replica:0/task:0:\nSession handle is not found",
      True,
    ),
    (
      "2 root error(s) found.\n  (0) CANCELLED:  Cancelled\n"
      "  (1) UNAVAILABLE:  Connection reset by peer",
      True,
    ),
    ("RecvFromRemoteAsync is cancelled.", True),
    ("Dequeue operation was cancelled", False),
  ],
)
def test_a_cancelled_step_is_lost_if_a_server_is(message, is_lost):
  error = tf.errors.AbortedError if is_lost else tf.errors.CancelledError
  with pytest.raises(error) as caught, sessions._raise_lost():
    raise tf.errors.CancelledError(None, None, message)
  assert caught.value.message == message


class LostHook(tf1.train.SessionRunHook):
  """A hook that loses its session in one of its calls."""

  def __init__(self, where):
    self._where, self.calls = where, 0

  def after_create_session(self, session, coord):
    self._lose("create")

  def after_run(self, run_context, run_values):
    self._lose("run")

  def _lose(self, where):
    if where == self._where:
      self.calls += 1
      raise tf.errors.UnavailableError(None, None, "lost once more")


def _lose_again_and_again():
  server = tf1.train.Server.create_local_server()
  for where in ("create", "run"):
    with tf.Graph().as_default():
      step = tf1.train.get_or_create_global_step()
      hook, begin = LostHook(where), time.monotonic()
      with (
        pytest.raises(
          tf.errors.DeadlineExceededError, match="before a step ended: "
        ),
        sessions.open_session(server, True, hooks=[hook], limit=2) as session,
      ):
        session.run(step)
      assert hook.calls > 1
      assert time.monotonic() - begin < 30


@pytest.mark.thorough
def test_a_session_that_is_lost_again_and_again():
  helpers.run_alone(_lose_again_and_again, timeout=60)


def _wait_for_the_chief():
  server = tf1.train.Server.create_local_server()
  with tf.Graph().as_default():
    for name in ("a", "b"):
      tf1.get_variable(name, [])
    pattern = r"the chief to initialize the variables a, b in /job:local"
    with (
      pytest.raises(tf.errors.DeadlineExceededError, match=pattern),
      sessions.open_session(server, False, limit=1),
    ):
      pass


def test_a_worker_names_what_the_chief_must_initialize():
  helpers.run_alone(_wait_for_the_chief, timeout=60)


def _forget_a_variable():
  server = tf1.train.Server.create_local_server()
  with tf.Graph().as_default():
    a, _ = tf1.get_variable("a", []), tf1.get_variable("b", [])
    scaffold = tf1.train.Scaffold(init_op=a.initializer)
    with (
      pytest.raises(RuntimeError, match="not initialized: b"),
      sessions.open_session(server, True, scaffold=scaffold, limit=20),
    ):
      pass


def test_a_chief_that_forgets_a_variable():
  helpers.run_alone(_forget_a_variable, timeout=60)


def _interrupt_a_step():
  server = tf1.train.Server.create_local_server()
  with tf.Graph().as_default():
    never = tf1.FIFOQueue(1, tf.float32, [[]]).dequeue()
    begin = time.monotonic()
    with (
      pytest.raises(KeyboardInterrupt),
      sessions.open_session(server, True, limit=50) as session,
    ):
      threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
      session.run(never)
    assert time.monotonic() - begin < 30


def test_ctrl_c_ends_a_step_that_waits():
  helpers.run_alone(_interrupt_a_step, timeout=90)


if __name__ == "__main__":
  helpers.main()
