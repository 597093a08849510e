# SPDX-License-Identifier: Apache-2.0
"""Runs old programs in processes, for tests of `tf-lossscale run`."""

import os
import subprocess
import sys

import helpers
import processes

_RUNNER = str(helpers.HARNESS / "legacy_runner.py")


def environment(**env):
  """Returns an environment with `env` that does not choose a Keras."""
  clean = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
  return {**clean, "PYTHONPATH": str(helpers.ROOT), **env}


def start(*args, cwd, python=(), **kwargs):
  """Starts `python PYTHON… -m tf_compat_lossscale run ARGS…`."""
  return subprocess.Popen(
    [sys.executable, *python, "-m", "tf_compat_lossscale", "run", *args],
    cwd=cwd,
    env=environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    **kwargs,
  )


def run(*args, cwd, python=(), stdin=None):
  """Returns exit status, stdout and stderr of `tf-lossscale run ARGS…`."""
  with start(*args, cwd=cwd, python=python, stdin=subprocess.PIPE) as process:
    out, err = process.communicate(stdin, timeout=600)
  # TensorFlow logs these lines at each start.
  err = "".join(
    line
    for line in err.splitlines(keepends=True)
    if not line.startswith(("WARNING: All log", "I0000", "W0000", "E0000"))
  )
  return process.returncode, out, err


def plain(*args, cwd, **env):
  """Returns exit status, stdout and stderr of `python ARGS…`.

  Args:
    *args: The arguments of Python.
    cwd: The folder to run in.
    **env: Variables to add to the environment.
  """
  done = subprocess.run(
    [sys.executable, *args],
    capture_output=True,
    cwd=cwd,
    env=environment(**env),
    text=True,
    timeout=600,
  )
  return done.returncode, done.stdout, done.stderr


def program(tmp_path, text, name="program.py"):
  """Writes a program and returns its name."""
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True, parents=True)
  path.write_text(text, "utf-8")
  return name


def run_forked(*args, cwd):
  """Runs a program as `tf-lossscale run ARGS...` does, in a forked process.

  Args:
    *args: The options `--tf1`, `--tf2`, `--keras2` and `--keras3`, the program
      and the program's arguments. Without `--keras3`, the program must be one
      that `tf-lossscale run` gives Keras 2.
    cwd: The folder to run in.

  Returns:
    What the program prints.
  """
  env = {} if "--keras3" in args else helpers.KERAS_2
  return processes.run_forked(_RUNNER, *args, cwd=cwd, **env)


def run_text(tmp_path, text, *options, **files):
  """Runs the text of a program as `run_forked` does; `files` are its modules.

  Without an option, it is run for TensorFlow 1.
  """
  for name, content in files.items():
    program(tmp_path, content, f"{name}.py")
  command = (*(options or ["--tf1"]), program(tmp_path, text))
  return run_forked(*command, cwd=tmp_path)
