# SPDX-License-Identifier: Apache-2.0
"""Forks Python programs from a server that has TensorFlow loaded.

A new process takes five seconds to import TensorFlow; a forked one takes none.
The server only imports TensorFlow and never makes a tensor, a graph or a
device, so that each program sets up a runtime of its own.

Tests use `run_alone` and `run_forked` of `processes`. This file is also the
server's program. All pytest workers of a run share a server, which ends when
pytest ends. For each program the server forks a process that waits for the
program's end, or for that of the connection, and then kills what is left of the
program. Sockets have abstract addresses (Linux), so that no file is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import hashlib
import importlib
import json
import os
import pathlib
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any
from typing import NoReturn
import warnings

# Importing these must not open files or start threads that run: forks lose
# threads and share files.
PRELOADED = ("tensorflow", "numpy", "numpy.testing", "pytest")


# The client ----------------------------------------------------------------


class Forked:
  """A forked program, with the part of `subprocess.Popen` that tests need."""

  def __init__(self, connection: socket.socket):
    self._answers = connection.makefile("rb")
    self._connection = connection
    self.returncode: int | None = None
    line = self._answers.readline()
    assert line, "The fork server ended: see its standard error."
    self.pid = int(line)

  def wait(self, timeout: float | None = None) -> int:
    if self.returncode is None:
      with selectors.DefaultSelector() as selector:
        selector.register(self._connection, selectors.EVENT_READ)
        if not selector.select(timeout):
          raise subprocess.TimeoutExpired("forked Python", timeout or 0)
      line = self._answers.readline()
      self.close()
      self.returncode = int(line) if line else -signal.SIGKILL
    return self.returncode

  def poll(self) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
      return self.wait(0)
    return None

  def kill(self) -> None:
    """Kills the program and the processes of its group with SIGKILL."""
    if self.poll() is None:
      os.killpg(self.pid, signal.SIGKILL)

  def close(self) -> None:
    """Closes the connection, which kills the program if it runs."""
    self._answers.close()
    self._connection.close()

  def __enter__(self) -> Forked:
    return self

  def __exit__(self, *exc_info: object) -> None:
    self.close()


def start(
  *args: str, env: dict[str, str], cwd: Any, stdout: Any, stderr: Any
) -> Forked:
  """Starts Python on `args` (`-c`, `-m` or a script) in a forked process.

  `env` is the whole environment. Each set of variables that TensorFlow may
  read while it is imported has a server of its own.
  """
  settings = tuple(sorted((k, v) for k, v in env.items() if _is_read_early(k)))
  connection = socket.socket(socket.AF_UNIX)
  _connect(connection, _address_of_server(settings))
  with tempfile.TemporaryFile("w+") as request:
    json.dump({"args": args, "env": env, "cwd": os.fspath(cwd)}, request)
    request.flush()
    fds = [request.fileno(), stdout.fileno(), stderr.fileno()]
    socket.send_fds(connection, [b"0"], fds)
  return Forked(connection)


def _is_read_early(name: str) -> bool:
  """Returns whether TensorFlow or Python may read a variable while starting."""
  return name.startswith(("TF_", "TF2_", "KERAS_", "PYTHON"))


def _connect(connection: socket.socket, address: bytes) -> None:
  for _ in range(100):
    try:
      return connection.connect(address)
    except ConnectionRefusedError:  # Another worker does not listen there yet.
      time.sleep(0.05)
  connection.connect(address)


@functools.cache
def _address_of_server(settings: tuple[tuple[str, str], ...]) -> bytes:
  """Returns the address of the server that has these variables.

  Starts the server if no other worker has done so.
  """
  is_worker = "PYTEST_XDIST_WORKER" in os.environ
  owner = os.getppid() if is_worker else os.getpid()
  run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
  key = repr((run, owner, os.getuid(), sys.executable, settings)).encode()
  address = b"\0tf_compat_lossscale-" + hashlib.sha256(key).hexdigest().encode()
  with socket.socket(socket.AF_UNIX) as listener:
    try:
      listener.bind(address)
    except OSError:  # Another worker starts the server.
      return address
    listener.listen(64)
    env = {k: v for k, v in os.environ.items() if not _is_read_early(k)}
    command = [sys.executable, __file__, listener.fileno(), owner, *PRELOADED]
    subprocess.Popen(
      list(map(str, command)),
      env={**env, **dict(settings)},
      pass_fds=[listener.fileno()],
      start_new_session=True,  # Ctrl-C must reach pytest alone.
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
    ).returncode = 0  # Set, or Popen would warn that the server still runs.
  return address


# The server ----------------------------------------------------------------


def main() -> None:
  listener = socket.socket(fileno=int(sys.argv[1]))
  owner = os.pidfd_open(int(sys.argv[2]))
  # Python warns of forks in processes with threads. This process has only
  # threads of TensorFlow's libraries, which wait, so a fork is safe.
  warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
  for name in sys.argv[3:]:
    importlib.import_module(name)
  gc.collect()
  gc.freeze()  # Or a child's collector would copy pages that it looks at.
  signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for children.
  while owner not in _wait_for_any(listener, owner):
    connection = listener.accept()[0]
    if not os.fork():
      signal.signal(signal.SIGCHLD, signal.SIG_DFL)
      listener.close()
      os.close(owner)
      try:
        _supervise(connection)
      finally:
        os._exit(0)
    connection.close()


def _wait_for_any(*files: Any) -> list[Any]:
  """Returns those of some files that can be read, when one can."""
  with selectors.DefaultSelector() as selector:
    for file in files:
      selector.register(file, selectors.EVENT_READ)
    return [key.fileobj for key, _ in selector.select()]


def _supervise(connection: socket.socket) -> None:
  """Runs the program that a connection asks for, and says how it ended."""
  _, fds, *_ = socket.recv_fds(connection, 1, 3)
  if not fds:
    return  # The connection was closed.
  with open(fds.pop(0)) as file:
    file.seek(0)
    request = json.load(file)
  pid = os.fork()
  if not pid:
    connection.close()
    _run_child(request, fds)
  with contextlib.suppress(ProcessLookupError, PermissionError):
    os.setpgid(pid, pid)  # The child does so, too; one of them is the first.
  with contextlib.suppress(ConnectionError):
    connection.sendall(b"%d\n" % pid)
  _wait_for_any(connection, os.pidfd_open(pid))
  # The child may have left processes behind. As long as nobody has waited for
  # the child, no other process has its number.
  os.killpg(pid, signal.SIGKILL)
  status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
  connection.sendall(b"%d\n" % status)


def _run_child(request: dict[str, Any], fds: list[int]) -> NoReturn:
  """Runs a request in this forked process, and ends the process."""
  status = 1
  try:
    _set_up_child(request, fds)
    status = _run(request["args"])
  except BaseException:
    traceback.print_exc()
  finally:
    for stream in (sys.stdout, sys.stderr):
      with contextlib.suppress(ValueError):  # The program closed the stream.
        stream.flush()
    # A normal exit would wait for TensorFlow's threads.
    os._exit(status)


def _set_up_child(request: dict[str, Any], fds: list[int]) -> None:
  """Gives this process its own group, files, folder and environment."""
  os.setpgid(0, 0)
  # 1 is PR_SET_PDEATHSIG: the kernel kills this process with the one above.
  ctypes.CDLL(None).prctl(1, signal.SIGKILL)
  for fd, target in zip(fds, (1, 2)):
    os.dup2(fd, target)
    os.close(fd)
  os.environ.clear()
  os.environ.update(request["env"])
  os.chdir(request["cwd"])
  if "numpy" in sys.modules:  # Otherwise all children draw the same numbers.
    sys.modules["numpy"].random.seed()
  if "multiprocessing.process" in sys.modules:  # It noted the server's folder.
    sys.modules["multiprocessing.process"].ORIGINAL_DIR = os.getcwd()


def _run(args: list[str]) -> int:
  """Runs Python on `args`; returns the exit status."""
  what, *rest = args
  try:
    if what == "-c":
      sys.argv = ["-c", *rest[1:]]
      sys.path.insert(0, "")
      exec(compile(rest[0], "<string>", "exec"), _new_main())
    elif what == "-m":
      sys.argv = rest
      sys.path.insert(0, os.getcwd())
      runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
      sys.argv = list(args)
      sys.path.insert(0, str(pathlib.Path(what).resolve().parent))
      runpy.run_path(what, run_name="__main__")
  except SystemExit as e:
    if e.code is None or isinstance(e.code, int):
      return (e.code or 0) & 0xFF
    print(e.code, file=sys.stderr)
    return 1
  return 0


def _new_main() -> dict[str, Any]:
  """Returns the namespace of a new module `__main__`."""
  main = type(sys)("__main__")
  sys.modules["__main__"] = main
  return vars(main)


if __name__ == "__main__":
  main()
