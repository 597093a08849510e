# SPDX-License-Identifier: Apache-2.0
"""Tests `scan` and `migrate` on trees that no one wants to meet."""

import os
import signal
import subprocess
import sys

import helpers
import pytest

from tf_compat_lossscale.migration import scanner

pytestmark = pytest.mark.any_release

_BEFORE = "import tensorflow as tf\nx = tf.train.experimental.LossScale\n"
_AFTER = (
  "import tf_compat_lossscale as tfl\nimport tensorflow as tf\n"
  "x = tfl.LossScale\n"
)


def start(folder, *words):
  """Starts `tf-lossscale` in a process of its own."""
  return subprocess.Popen(
    [sys.executable, "-m", "tf_compat_lossscale", *words],
    cwd=folder,
    env={**os.environ, "PYTHONPATH": str(helpers.ROOT), "NO_COLOR": "1"},
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  )


def end(process):
  """Returns the status, and the lines of output and errors, of a process."""
  try:
    out, err = process.communicate(timeout=120)
  finally:
    process.kill()
  assert "Traceback" not in err
  return process.returncode, out.splitlines(), err.splitlines()


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
  def read_sizes():
    paths = filter(os.path.isfile, list_files(hostile))
    return {path: os.path.getsize(path) for path in paths}

  before = read_sizes()
  status, out, err = end(start(hostile, "migrate", "--write", "."))
  assert status == 2
  assert [line.removeprefix("./") for line in out] == ["good.py: rewritten"]
  assert (hostile / "good.py").read_text() == _AFTER
  assert all(line.startswith("tf-lossscale") for line in err)
  changed = {
    path for path, size in read_sizes().items() if before[path] != size
  }
  assert changed == {str(hostile / "good.py")}
  again = end(start(hostile, "migrate", "--write", "."))
  assert again == (2, [], err)


def test_a_real_interrupt(tmp_path):
  paths = [tmp_path / f"train{i:03}.py" for i in range(200)]
  for path in paths:
    path.write_text(_BEFORE)
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
  "modules of TensorFlow": f"import tensorflow{'.b' * _LONG}",
  "an unknown object": "x = q" + ".train.experimental.LossScale" * (_LONG // 3),
  "bindings": "z = tf\n" * (_LONG // 2) + "z.Session()\n" * (_LONG // 2),
  # Followed one by one, these would be 2 ** 40.
  "ways": "def f(): return x40.y\n"
  + "\n".join(f"x{i + 1} = x{i}.c; x{i + 1} = x{i}.d" for i in range(40)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", _CHAINS)
def test_long_chains_end(kind):
  text = f"{_BEFORE}tf.placeholder\nx0 = tf\n{_CHAINS[kind]}\n"
  report = scanner.scan_text(text.encode(), "train.py")
  assert not report.errors
  assert "LS101" in {finding.code for finding in report.findings}
