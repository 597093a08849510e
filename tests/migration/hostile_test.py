# SPDX-License-Identifier: Apache-2.0
"""Tests `scan` and `migrate` on trees that no one wants to meet."""

import os
import re
import resource
import signal
import subprocess
import sys
import time

import helpers
import pytest

from tf_compat_lossscale._core import whole_files
from tf_compat_lossscale.migration import scanner

pytestmark = pytest.mark.any_release

_BEFORE = "import tensorflow as tf\nx = tf.train.experimental.LossScale\n"
_AFTER = (
  "import tf_compat_lossscale as tfl\nimport tensorflow as tf\n"
  "x = tfl.LossScale\n"
)


def start(folder, *words, **options):
  """Starts `tf-lossscale` in a process of its own."""
  return subprocess.Popen(
    [sys.executable, "-m", "tf_compat_lossscale", *words],
    cwd=folder,
    env={**os.environ, "PYTHONPATH": str(helpers.ROOT), "NO_COLOR": "1"},
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    **options,
  )


def end(process):
  """Returns the status, and the lines of output and errors, of a process."""
  try:
    out, err = process.communicate(timeout=120)
  finally:
    process.kill()
  assert "Traceback" not in err
  return process.returncode, out.splitlines(), err.splitlines()


def fill(folder, count):
  """Writes files that need edits; they are a project each."""
  paths = []
  for i in range(count):
    (folder / f"p{i:03}").mkdir()
    paths.append(folder / f"p{i:03}" / "train.py")
    paths[-1].write_text(_BEFORE)
  return paths


def list_files(folder):
  return sorted(
    os.path.join(where, name)
    for where, _, names in os.walk(folder)
    for name in names
  )


@pytest.fixture
def hostile(tmp_path, monkeypatch):
  """Makes a tree with a good file and many bad ones, and goes there."""
  monkeypatch.chdir(tmp_path)
  for name, data in {
    "good.py": _BEFORE.encode(),
    "binary.py": b"\x7fELF\0\0" + b"\xff" * 99,
    "latin.py": b"import tensorflow as tf\nx = '\xe9'\n",
    "broken.py": b"import tensorflow as tf\nx = (\n",
    "unknown.py": b"# coding: nonsense\nimport tensorflow\n",
    "half.ipynb": b'{"cells": [',
    "r.ipynb": b'{"cells": [], "metadata": {"kernelspec": {"language": "R"}}}',
    "empty.py": b"",
    "deep.py": b"import tensorflow\nx = " + b"(" * 3000 + b")" * 3000,
    "nested.py": b"import tensorflow\nx = " + b"-" * 90_000 + b"1",
    "a\nb.py": b"import tensorflow as tf\nx = (\n",
    os.fsdecode(b"\xe9.py"): b"import tensorflow as tf\nx = (\n",
  }.items():
    (tmp_path / name).write_bytes(data)
  with open(tmp_path / "huge.py", "wb") as file:
    file.truncate(1 << 40)
  (tmp_path / "loop.py").symlink_to("loop.py")
  (tmp_path / "dangling.py").symlink_to("nothing.py")
  (tmp_path / "folder.py").mkdir()
  (tmp_path / "inner").mkdir()
  (tmp_path / "inner" / "again").symlink_to("..")
  (tmp_path / "device.py").symlink_to("/dev/zero")
  os.mkfifo(tmp_path / "pipe.py")
  return tmp_path


# The beginning of the line about each file that cannot be read.
_ERRORS = {
  "binary.py": "binary.py: a binary file",
  "huge.py": "huge.py: a binary file",
  "latin.py": "latin.py:2: cannot be read: byte 0xe9",
  "broken.py": "broken.py:2: cannot be parsed: ",
  "unknown.py": "unknown.py: cannot be read: unknown encoding",
  "half.ipynb": "half.ipynb: not a Python notebook: ",
  "r.ipynb": "r.ipynb: not a Python notebook: its language is R",
  "loop.py": "loop.py: Too many levels",
  "dangling.py": "dangling.py: the link leads to nothing",
  "device.py": "device.py: not a regular file",
  "pipe.py": "pipe.py: not a regular file",
  "deep.py": "deep.py:2: cannot be parsed",
  "nested.py": "nested.py:",
}


@pytest.mark.parametrize("command", ["scan", "migrate"])
def test_each_bad_file_has_its_line(hostile, command):
  # Without a file that uses loss scaling, none would be parsed.
  status, out, err = end(start(hostile, command, "good.py", *_ERRORS))
  assert status == (1 if command == "scan" else 2) and out
  assert len(err) == len(_ERRORS)
  for error in _ERRORS.values():
    start_of_line = f"tf-lossscale: {error}"
    assert sum(line.startswith(start_of_line) for line in err) == 1, err


def test_bad_files_do_not_keep_good_ones_from_edits(hostile):
  before = {
    path: os.path.getsize(path)
    for path in list_files(hostile)
    if os.path.isfile(path)
  }
  status, out, err = end(start(hostile, "migrate", "--write", "."))
  assert status == 2
  assert [line.removeprefix("./") for line in out] == ["good.py: rewritten"]
  assert (hostile / "good.py").read_text() == _AFTER
  lines = [line.replace("./", "") for line in err]
  for error in ("binary.py: ", "broken.py:2: ", "pipe.py: ", "loop.py: "):
    assert sum(f": {error}" in line for line in lines) == 1, error
  for name in ("a b.py", "a\\nb.py"):
    assert sum(name in line for line in lines) <= 1
  assert all(line.startswith("tf-lossscale") for line in err)
  after = {path: os.path.getsize(path) for path in before}
  assert {p for p in before if before[p] != after[p]} == {
    str(hostile / "good.py")
  }
  again = end(start(hostile, "migrate", "--write", "."))
  assert again == (2, [], err)


def test_no_room_for_a_file(tmp_path):
  paths = fill(tmp_path, 2)
  paths[0].write_text(_BEFORE + "# long\n" * 999)

  def limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

  process = start(tmp_path, "migrate", "--write", ".", preexec_fn=limit)
  status, out, err = end(process)
  assert status == 2
  assert out == [f"{os.path.join('.', 'p001', 'train.py')}: rewritten"]
  (line,) = err
  assert re.search(r"p000.train\.py: not written: File too large", line)
  assert paths[0].read_text().startswith(_BEFORE)
  assert paths[1].read_text() == _AFTER
  assert len(list_files(tmp_path)) == 2


@pytest.mark.parametrize("moment", ["made", "replaced"])
def test_interrupts_around_the_temporary_file(moment, tmp_path, monkeypatch):
  path = tmp_path / "train.py"
  path.write_text(_BEFORE)
  made, replaced = os.open, os.replace

  def interrupt_made(name, *arguments, **options):
    descriptor = made(name, *arguments, **options)
    if moment == "made" and ".lossscale-" in str(name):
      os.close(descriptor)
      raise KeyboardInterrupt
    return descriptor

  def interrupt_replaced(*names):
    replaced(*names)
    if moment == "replaced":
      raise KeyboardInterrupt

  monkeypatch.setattr(os, "open", interrupt_made)
  monkeypatch.setattr(os, "replace", interrupt_replaced)
  with pytest.raises(KeyboardInterrupt):
    whole_files.replace_file(str(path), _AFTER.encode())
  assert path.read_text() == (_BEFORE if moment == "made" else _AFTER)
  assert os.listdir(tmp_path) == ["train.py"]


def test_a_real_interrupt(tmp_path):
  paths = fill(tmp_path, 200)
  process = start(tmp_path, "migrate", "--write", ".")
  first = process.stdout.readline()
  process.send_signal(signal.SIGINT)
  status, out, err = end(process)
  assert "rewritten" in first
  assert (status, err) == (130, ["tf-lossscale: interrupted"])
  texts = [path.read_text() for path in paths]
  assert set(texts) == {_BEFORE, _AFTER}
  assert texts == sorted(texts, reverse=texts[0] > _BEFORE)
  assert 0 <= texts.count(_AFTER) - len(out) - 1 <= 1
  assert len(list_files(tmp_path)) == len(paths)


_LONG = 8000
_CHAINS = {
  "attributes": "x = a" + ".b" * _LONG,
  "names of TensorFlow": "x = tf.contrib" + ".b" * _LONG,
  "methods": "x = a" + ".b()" * (_LONG // 4),
  "an attribute of a call": "x = a()" + ".b" * _LONG,
  "a question": f"if hasattr(tf, 'a') and a{'.b' * _LONG}: pass",
  "modules of TensorFlow": f"import tensorflow{'.b' * _LONG}",
  "an unknown object": "x = q" + ".train.experimental.LossScale" * (_LONG // 3),
  "legacy names": "x = q" + ".LossScale" * _LONG,
  "bindings": "z = tf\n" * (_LONG // 2) + "z.Session()\n" * (_LONG // 2),
  "an assignment": f"import sys\na{'.b' * _LONG} = sys.path",
  "modules": f"import a{'.b' * _LONG}\nx = 'a{'.b' * _LONG}'",
  "names": "x0 = tf\n"
  + "\n".join(f"x{i + 1} = x{i}.c" for i in range(_LONG // 8)),
  "ways": "def f(): return x40.y\n"
  + "\n".join(f"x{i + 1} = x{i}.c; x{i + 1} = x{i}.d" for i in range(40)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", _CHAINS)
def test_long_chains(kind, tmp_path):
  path = tmp_path / "train.py"
  # A name of TensorFlow 1 has the whole program read.
  path.write_text(f"{_BEFORE}tf.placeholder\n{_CHAINS[kind]}\n")
  start = time.process_time()
  report = scanner.scan([str(tmp_path)])
  assert time.process_time() - start < 10
  assert not report.errors
  assert "LS101" in {finding.code for finding in report.findings}


if __name__ == "__main__":
  helpers.main()
