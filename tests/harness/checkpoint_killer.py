# SPDX-License-Identifier: Apache-2.0
"""Kills conversions, and checks the files that are left.

This is a program of its own, without TensorFlow, and forks for each conversion:

  python checkpoint_killer.py steps SOURCE FOLDER
  python checkpoint_killer.py moments SOURCE FOLDER TURNS
"""

import builtins
import os
import pathlib
import random
import signal
import sys
import time

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.files import bundle

# The functions of `os` that change the disk.
_STEPS = (
  *("fsync", "mkdir", "open", "remove", "rename", "replace", "rmdir"),
  *("sendfile", "unlink"),
)


def contents(prefix):
  """Returns name -> the bytes of a tensor, after checking all checksums."""
  opened = bundle.Bundle(str(prefix))
  opened.check()
  return {key: opened.read(entry) for key, entry in opened.entries.items()}


def convert(source, target, to):
  checkpoint.convert(source, target, to, overwrite=True)


def fork(function, *args):
  """Runs a function in a forked process; returns the process's id."""
  process = os.fork()
  if process:
    return process
  try:
    function(*args)
  except BaseException as error:
    print(repr(error), file=sys.stderr, flush=True)
    os._exit(1)
  os._exit(0)


def kill_at(step, source, target, to):
  """Converts, but kills this process just before change number `step`."""
  count = 0

  def counted(function):
    def call(*args, **kwargs):
      nonlocal count
      if count == step:
        os.kill(os.getpid(), signal.SIGKILL)
      count += 1
      return function(*args, **kwargs)

    return call

  for name in _STEPS:
    setattr(os, name, counted(getattr(os, name)))
  builtins.open = counted(open)
  convert(source, target, to)


def clear(folder):
  """Removes the checkpoint, but leaves a killed process's temporary files."""
  for path in folder.glob("new*"):
    if path.suffix in (".index", ".meta"):
      path.unlink()


def check(target, allowed):
  """Checks that a checkpoint's contents are among `allowed`; returns the index.

  The contents are None if there is no checkpoint.
  """
  if not target.with_suffix(".index").exists():
    found = None
  else:
    found = contents(target)
  assert found in allowed, "the checkpoint is not whole"
  return allowed.index(found)


def check_next(source, folder):
  """Checks that the next conversion succeeds and removes temporary files."""
  target = folder / "new"
  convert(source, target, "contrib")
  assert len(list(folder.iterdir())) == 2, sorted(folder.iterdir())


def kill_at_every_step(source, folder):
  """Kills a conversion before its first step, its second step, and so on."""
  target = folder / "new"
  convert(source, target, "fp32")
  old = contents(target)
  convert(source, target, "contrib")
  new = contents(target)
  for before in (None, old):
    seen, step, status = [], 0, None
    while status != 0:
      if before is None:
        clear(folder)
      else:
        convert(source, target, "fp32")
        pathlib.Path(f"{target}.meta").touch()
      _, status = os.waitpid(fork(kill_at, step, source, target, "contrib"), 0)
      assert status in (0, signal.SIGKILL), status
      seen.append(check(target, [before, new]))
      if step % 3 == 0:
        check_next(source, folder)
      step += 1
    check_next(source, folder)
    assert seen == sorted(seen), "a later kill left the older checkpoint"
    assert seen.count(0) > 8 and seen.count(1) > 2, seen


def kill_at_any_moment(source, folder, turns):
  """Kills conversions after random times."""
  target = folder / "new"
  begin = time.monotonic()
  os.waitpid(fork(convert, source, target, "contrib"), 0)
  duration = time.monotonic() - begin
  new = contents(target)
  rng = random.Random(20201116)
  absent = 0
  for _ in range(turns):
    clear(folder)
    process = fork(convert, source, target, "contrib")
    time.sleep(rng.uniform(0.05, 1.1) * duration)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    absent += check(target, [None, new]) == 0
  check_next(source, folder)
  assert absent >= turns // 10
  print(absent, "absent,", turns - absent, "whole")


if __name__ == "__main__":
  if sys.argv[1] == "steps":
    kill_at_every_step(sys.argv[2], pathlib.Path(sys.argv[3]))
  else:
    folder = pathlib.Path(sys.argv[3])
    kill_at_any_moment(sys.argv[2], folder, int(sys.argv[4]))
