# SPDX-License-Identifier: Apache-2.0
"""Tests that the fork server isolates programs and reports their failures."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import forks
import helpers
import pytest

pytestmark = pytest.mark.any_release


def test_programs_have_a_runtime_of_their_own():
  code = """if True:
    import sys
    from tensorflow.python.eager import context
    import tensorflow as tf
    started = context._context
    assert started is None or started._context_handle is None, started
    tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * 3,
    )
    assert len(tf.config.list_logical_devices("CPU")) == 3
    assert float(tf.reduce_sum(tf.linalg.matmul(*[tf.ones([50, 50])] * 2))) > 0
    assert not {"tf_compat_lossscale", "helpers"} & set(sys.modules)
  """
  for _ in range(2):
    helpers.run_forked("-c", code)


def fail():
  print("to standard output")
  os.write(2, b"past sys.stderr\n")
  raise KeyError("reason")


def test_a_failing_function_fails_the_test():
  with pytest.raises(AssertionError) as e:
    helpers.run_alone(fail)
  for part in ("Exit status: 1", "KeyError: 'reason'", "to standard output"):
    assert part in str(e.value)
  assert "past sys.stderr" in str(e.value)
  assert "in fail" in str(e.value)


@pytest.mark.parametrize(
  ("code", "status"),
  [
    ("import sys; sys.exit(3)", "3"),
    ("import sys; sys.exit('why')", "1\nwhy"),
    ("import ctypes; print('before', flush=True); ctypes.string_at(0)", "-11"),
  ],
)
def test_an_exit_status_fails_the_test(code, status):
  with pytest.raises(AssertionError) as e:
    helpers.run_forked("-c", code)
  assert f"Exit status: {status}\n" in str(e.value)
  assert ("before\n" in str(e.value)) == ("before" in code)


def is_there(pid):
  """Returns whether a process exists and is no zombie."""
  try:
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text("ascii")
  except FileNotFoundError:
    return False
  return stat.rpartition(")")[2].split()[0] != "Z"


def assert_ends(pid):
  for _ in range(200):
    if not is_there(pid):
      return
    time.sleep(0.05)
  raise AssertionError(f"The process {pid} still runs.")


_HANG = """if True:
  import signal, subprocess, sys, time
  signal.signal(signal.SIGTERM, signal.SIG_IGN)
  child = subprocess.Popen(["sleep", "600"])
  print(child.pid, flush=True)
  time.sleep(600)
"""


def test_a_hanging_program_is_killed_with_what_it_started():
  with pytest.raises(AssertionError, match=r"Killed after 0\.5 s") as e:
    helpers.run_forked("-c", _HANG, timeout=0.5)
  assert_ends(int(str(e.value).split("seconds\n")[1].split()[0]))


def test_a_program_may_be_killed(tmp_path):
  with open(tmp_path / "out", "w+") as out:
    with helpers.start_forked("-c", _HANG, stdout=out, stderr=out) as process:
      assert process.poll() is None
      with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
      process.kill()
      assert process.wait(30) == process.poll() == -signal.SIGKILL
    assert_ends(process.pid)
    with helpers.start_forked("-c", _HANG, stdout=out, stderr=out) as process:
      assert is_there(process.pid)
    assert_ends(process.pid)


def test_nothing_leaks_into_the_next_program(tmp_path):
  code = """if True:
    import os, sys
    import numpy as np
    assert os.environ["OWN"] == "1"
    os.environ["LEAK"] = "1"
    os.chdir("/")
    sys.path.insert(0, "/leak")
    sys.modules["leak"] = sys
    np.leak = 1
    print(np.random.rand())
  """
  draws = {helpers.run_forked("-c", code, OWN="1") for _ in range(2)}
  assert len(draws) == 2
  code = """if True:
    import os, sys
    import numpy as np
    assert not {"OWN", "LEAK"} & set(os.environ)
    assert "/leak" not in sys.path
    assert "leak" not in sys.modules
    assert not hasattr(np, "leak")
    assert sys.argv == ["-c", "an argument"]
    assert __name__ == "__main__"
    print(os.getcwd())
  """
  printed = helpers.run_forked("-c", code, "an argument", cwd=tmp_path)
  assert printed == f"{tmp_path}\n"


def test_scripts_and_modules_run_as_from_a_command_line(tmp_path):
  (tmp_path / "beside.py").write_text("value = 7\n")
  (tmp_path / "script.py").write_text(
    "import sys\nimport beside\n"
    "if __name__ == '__main__': print(beside.value, sys.argv)\n"
  )
  script = str(tmp_path / "script.py")
  for args, cwd in (([script], "/"), (["-m", "script"], tmp_path)):
    printed = helpers.run_forked(*args, "a", "-b", cwd=cwd)
    assert printed == f"7 {[script, 'a', '-b']}\n"


# What forked a program is forked from the server.
_FIND_SERVER = """if True:
    import os
    server = open(f"/proc/{os.getppid()}/stat").read().split()[3]
"""


def test_variables_that_are_read_early_get_their_own_server(monkeypatch):
  code = f"""{_FIND_SERVER}
    print(os.environ.get("TF_FORKS_TEST"), server)
  """
  without = helpers.run_forked("-c", code).split()
  monkeypatch.setattr(forks, "PRELOADED", ())  # A server starts at once.
  with_it = [
    helpers.run_forked("-c", code, TF_FORKS_TEST="1").split() for _ in range(2)
  ]
  assert with_it[0] == with_it[1]
  assert with_it[0][0] == "1" and without[0] == "None"
  assert with_it[0][1] != without[1]


_USER = '''if True:
  import os, signal
  import forks
  forks.PRELOADED = ()
  code = """if True:
    import os, time
    server = open(f"/proc/{os.getppid()}/stat").read().split()[3]
    print(server, os.getppid(), os.getpid(), flush=True)
    time.sleep(600)
  """
  env = dict(os.environ, TF_FORKS_TEST="killed")
  log = open("log", "w+")
  program = forks.start("-c", code, env=env, cwd=".", stdout=log, stderr=log)
  while not open("log").read().endswith("\\n"):
    assert program.poll() is None
  print(open("log").read(), flush=True)
  os.kill(os.getpid(), signal.SIGKILL)
'''


def test_no_process_outlives_pytest_that_is_killed(tmp_path):
  done = subprocess.run(
    [sys.executable, "-c", _USER],
    cwd=tmp_path,
    env={
      **{k: v for k, v in os.environ.items() if "XDIST" not in k},
      "PYTHONPATH": f"{helpers.ROOT}:{helpers.HARNESS}",
    },
    capture_output=True,
    text=True,
  )
  assert done.returncode == -signal.SIGKILL, done.stderr
  server, supervisor, program = done.stdout.split()
  for pid in (program, supervisor, server):
    assert_ends(pid)


if __name__ == "__main__":
  helpers.main()
