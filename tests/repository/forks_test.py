# SPDX-License-Identifier: Apache-2.0
"""Tests that the fork server isolates programs and reports their failures."""

import os
import pathlib
import time

import processes
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
    processes.run_forked("-c", code)


def fail():
  print("to standard output")
  os.write(2, b"past sys.stderr\n")
  raise KeyError("reason")


def test_what_fails_fails_the_test():
  with pytest.raises(AssertionError) as e:
    processes.run_alone(fail)
  for part in ("Exit status: 1", "KeyError: 'reason'", "to standard output"):
    assert part in str(e.value)
  assert "past sys.stderr" in str(e.value) and "in fail" in str(e.value)
  code = "import ctypes; print('before', flush=True); ctypes.string_at(0)"
  with pytest.raises(AssertionError, match=r"Exit status: -11\nbefore\n"):
    processes.run_forked("-c", code)


def assert_ends(pid):
  """Asserts that a process ends soon, or is a zombie."""
  for _ in range(200):
    try:
      stat = pathlib.Path(f"/proc/{pid}/stat").read_text("ascii")
    except FileNotFoundError:
      return
    if stat.rpartition(")")[2].split()[0] == "Z":
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
  with pytest.raises(AssertionError, match=r"Killed after 5 s") as e:
    processes.run_forked("-c", _HANG, timeout=5)
  assert_ends(int(str(e.value).split("seconds\n")[1].split()[0]))


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
  draws = {processes.run_forked("-c", code, OWN="1") for _ in range(2)}
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
  printed = processes.run_forked("-c", code, "an argument", cwd=tmp_path)
  assert printed == f"{tmp_path}\n"
