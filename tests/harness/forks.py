# SPDX-License-Identifier: Apache-2.0
"""Forks Python programs from a server that has TensorFlow loaded.

A new process takes five seconds to import TensorFlow; a forked one takes none.
The server only imports TensorFlow and never makes a tensor, a graph or a
device, so that each child sets up a runtime of its own.

Tests use `helpers.run_alone` and `helpers.run_forked`. This file is also the
server's program. All pytest workers of a run share a server. A worker holds a
connection to the server until the worker ends; the server ends when the last
connection closes. The server's socket has an abstract address (Linux), so that
no file is left.
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
import time
import traceback
from typing import Any
from typing import NoReturn
import warnings

# Importing these must not open files or start threads that run: forks lose
# threads and share files.
PRELOADED = ("tensorflow", "numpy", "numpy.testing", "pytest")
_LONGEST_REQUEST = 1 << 20


class ServerGone(Exception):
  """The server ended before it could take a request."""


# The client ----------------------------------------------------------------


class Forked:
  """A forked program, with the part of `subprocess.Popen` that tests need.

  The server kills the program if the connection closes.

  Attributes:
    pid: The id of the process and of its process group.
    returncode: None while the program runs, then its exit status, or minus the
      number of the signal that killed the program.
  """

  def __init__(self, connection: socket.socket):
    self._answers = connection.makefile("rb")
    self._connection = connection
    self.returncode: int | None = None
    line = self._answers.readline()
    if not line:
      raise ServerGone
    self.pid = int(line)

  def wait(self, timeout: float | None = None) -> int:
    """Waits for the program to end; returns its exit status.

    Args:
      timeout: The most seconds to wait; None to wait forever.

    Raises:
      subprocess.TimeoutExpired: The program still runs.
    """
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
    """Returns the exit status, or None while the program runs."""
    try:
      return self.wait(0)
    except subprocess.TimeoutExpired:
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

  Args:
    *args: What follows `python` on a command line.
    env: All environment variables. Each set of variables that TensorFlow may
      read while it is imported has a server of its own.
    cwd: The folder to run in.
    stdout: The open file to write standard output to.
    stderr: The open file to write standard error to.
  """
  request = {"args": args, "env": env, "cwd": os.fspath(cwd)}
  message = json.dumps(request).encode()
  assert len(message) < _LONGEST_REQUEST
  settings = tuple(sorted((k, v) for k, v in env.items() if _is_read_early(k)))
  for _ in range(3):
    try:
      connection = _connect(settings)
      fds = [stdout.fileno(), stderr.fileno()]
      socket.send_fds(connection, [b"%d\n" % len(message)], fds)
      connection.sendall(message)
      return Forked(connection)
    except (ServerGone, ConnectionError):
      _lifeline.cache_clear()  # The server's last user has just left.
      time.sleep(0.2)  # An ending server may still hold its address.
  raise ServerGone("The fork server ends at once: see its standard error.")


def _is_read_early(name: str) -> bool:
  """Returns whether TensorFlow or Python may read a variable while starting."""
  return name.startswith(("TF_", "TF2_", "KERAS_", "PYTHON"))


def _connect(settings: tuple[tuple[str, str], ...]) -> socket.socket:
  """Returns a new connection to the server that has these variables."""
  address = _lifeline(settings)[0]
  connection = socket.socket(socket.AF_UNIX)
  connection.connect(address)
  return connection


@functools.cache
def _lifeline(
  settings: tuple[tuple[str, str], ...],
) -> tuple[bytes, socket.socket]:
  """Returns a server's address, and a connection that keeps the server alive.

  Starts the server if no other worker has done so.
  """
  run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
  key = repr((run, os.getuid(), sys.executable, settings)).encode()
  address = b"\0tf_compat_lossscale-" + hashlib.sha256(key).hexdigest().encode()
  with socket.socket(socket.AF_UNIX) as listener:
    try:
      listener.bind(address)
    except OSError:  # Another worker starts the server.
      pass
    else:
      listener.listen(64)
      _start_server(listener, dict(settings))
  connection = socket.socket(socket.AF_UNIX)
  for attempt in range(100):
    try:
      connection.connect(address)
      break
    except ConnectionRefusedError:
      # Another worker has bound the address and does not listen yet.
      if attempt == 99:
        raise
      time.sleep(0.05)
  return address, connection


def _start_server(listener: socket.socket, settings: dict[str, str]) -> None:
  """Starts a server with these variables on a listening socket."""
  env = {k: v for k, v in os.environ.items() if not _is_read_early(k)}
  fd = listener.fileno()
  subprocess.Popen(
    [sys.executable, __file__, str(fd), *PRELOADED],
    env={**env, **settings},
    pass_fds=[fd],
    start_new_session=True,  # Ctrl-C must reach pytest alone.
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
  ).returncode = 0  # Set, or Popen would warn that the server still runs.


# The server ----------------------------------------------------------------


class Server:
  """A loop that takes requests, forks children and reports how they ended."""

  def __init__(self, listener: socket.socket):
    self._listener = listener
    self._selector = selectors.DefaultSelector()
    self._children: dict[int, socket.socket] = {}
    # SIGCHLD writes a byte to the first socket, which wakes the selector.
    self._wakeup = socket.socketpair()
    for end in self._wakeup:
      end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(self._wakeup[0].fileno(), warn_on_full_buffer=False)
    self._selector.register(self._wakeup[1], selectors.EVENT_READ)
    self._selector.register(listener, selectors.EVENT_READ)
    self._users: set[socket.socket] = set()

  def serve(self) -> None:
    """Serves until the last connection has closed."""
    while True:
      for key, _ in self._selector.select():
        if key.fileobj is self._listener:
          user = self._listener.accept()[0]
          self._users.add(user)
          self._selector.register(user, selectors.EVENT_READ)
        elif key.fileobj is self._wakeup[1]:
          self._wakeup[1].recv(4096)
          self._reap()
        elif key.fileobj in self._users:  # It may be gone since `select`.
          self._answer(key.fileobj)
      if not self._users:
        self._close()
        return

  def _close(self) -> None:
    """Closes the server's own files and sockets."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    self._selector.close()
    for open_socket in (self._listener, *self._wakeup, *self._users):
      open_socket.close()

  def _answer(self, user: Any) -> None:
    """Reads a request and forks, or forgets the user of a closed connection."""
    fds: list[int] = []
    try:
      begin, fds, *_ = socket.recv_fds(user, 32, 2)
      if not begin:
        raise EOFError
      length, _, message = begin.partition(b"\n")
      while len(message) < int(length):
        part = user.recv(_LONGEST_REQUEST)
        if not part:
          raise EOFError
        message += part
      self._fork(user, json.loads(message), fds)
    except (EOFError, ConnectionError):
      self._forget(user)
    finally:
      for fd in fds:
        os.close(fd)

  def _fork(self, user: Any, request: dict[str, Any], fds: list[int]) -> None:
    pid = os.fork()
    if pid == 0:
      self._close()
      _run_child(request, fds)
    with contextlib.suppress(ProcessLookupError):  # The child may have ended.
      os.setpgid(pid, pid)
    self._children[pid] = user
    user.sendall(b"%d\n" % pid)

  def _forget(self, user: Any) -> None:
    """Closes a connection and kills the children started for its user."""
    self._selector.unregister(user)
    self._users.discard(user)
    user.close()
    for pid, owner in self._children.items():
      if owner is user:
        _kill_group(pid)

  def _reap(self) -> None:
    """Reports the exit statuses of ended children to their users."""
    while self._children:
      pid, status = os.waitpid(-1, os.WNOHANG)
      if not pid:
        return
      user = self._children.pop(pid)
      _kill_group(pid)  # The child may have left processes behind.
      if user in self._users:
        try:
          user.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        except ConnectionError:
          self._forget(user)


def _kill_group(pid: int) -> None:
  """Kills the processes of a child's group that still run."""
  with contextlib.suppress(ProcessLookupError):
    os.killpg(pid, signal.SIGKILL)


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
  # 1 is PR_SET_PDEATHSIG: the kernel kills this process when the server ends.
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


def main() -> None:
  listener = socket.socket(fileno=int(sys.argv[1]))
  # Python warns of forks in processes with threads. This process has only
  # threads of TensorFlow's libraries, which wait, so a fork is safe.
  warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
  for name in sys.argv[2:]:
    importlib.import_module(name)
  gc.collect()
  gc.freeze()  # Or a child's collector would copy pages that it looks at.
  Server(listener).serve()


if __name__ == "__main__":
  main()
