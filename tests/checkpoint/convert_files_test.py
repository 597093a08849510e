# SPDX-License-Identifier: Apache-2.0
"""Tests the files that conversions write, complete or interrupted."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys

from checkpoint_contents import contents
import checkpoint_killer
import helpers
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale._core.bytes import crc32c
from tf_compat_lossscale.checkpoint.files import bundle
from tf_compat_lossscale.checkpoint.files import writer
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1


_SESSION = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"


@pytest.mark.any_release
def test_mistakes_in_the_destination(tmp_path):
  source = shutil.copytree(_SESSION, tmp_path / "source")
  prefix = str(source / "model.ckpt-10")

  def refused(destination, what, **kwargs):
    with pytest.raises(checkpoint.CheckpointError, match=what):
      checkpoint.convert(prefix, destination, "fp32", **kwargs)

  refused(prefix, "--overwrite")
  refused(prefix, "never changed", overwrite=True)
  (tmp_path / "link").symlink_to(source)
  refused(tmp_path / "link/model.ckpt-10", "never changed", overwrite=True)
  refused(tmp_path, "a folder; name a checkpoint in it")
  refused(f"{tmp_path}/", "a folder")
  (tmp_path / "file").touch()
  refused(tmp_path / "file" / "new", "file.*Not a directory")
  (tmp_path / "file").unlink()
  assert checkpoint.describe(source) == checkpoint.describe(prefix)
  assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "source"]


@pytest.mark.any_release
def test_missing_folders_of_the_destination_are_made(tmp_path):
  new = tmp_path / "a" / "b" / "new"
  checkpoint.convert(_SESSION, new, "fp32")
  assert checkpoint.describe(new).loss_scales == ()
  with pytest.raises(checkpoint.CheckpointError, match="template"):
    checkpoint.convert(_SESSION, tmp_path / "c" / "new", "object")
  assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.any_release
def test_a_full_disk(tmp_path, monkeypatch):
  def full(*_):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(os, "fsync", full)
  with pytest.raises(checkpoint.CheckpointError, match="No space left"):
    checkpoint.convert(_SESSION, tmp_path / "folder" / "new", "fp32")
  assert not list(tmp_path.iterdir())


@pytest.mark.any_release
def test_overwriting(tmp_path, capsys):
  new = str(tmp_path / "new")
  command = ["convert", str(_SESSION), new]
  assert cli.main([*command, "--to=contrib"]) == 0
  assert ", 3 renamed\nadded: bad_steps" in capsys.readouterr().out
  with pytest.raises(SystemExit):
    cli.main([*command, "--to=fp32"])
  assert "--overwrite replaces it" in capsys.readouterr().err
  for layout in ("saver", "fp32", "contrib"):
    assert cli.main([*command, f"--to={layout}", "--overwrite"]) == 0
    assert len(list(tmp_path.iterdir())) == 2
    contents(new)
  assert checkpoint.describe(new).api == "contrib"


@pytest.mark.any_release
@pytest.mark.parametrize("moved", [False, True])
def test_what_was_left_is_no_hindrance(moved, tmp_path):
  """Checks that files of a killed conversion do not matter.

  Args:
    moved: Whether the process had renamed the data file, but not the index.
    tmp_path: The folder.
  """
  new = tmp_path / "new"
  folder = tmp_path / ".new.unfinished"
  folder.mkdir()
  (folder / "data").write_bytes(b"half")
  (folder / "index").write_bytes(b"half")
  if moved:
    checkpoint.convert(_SESSION, tmp_path / "other", "saver")
    (folder / "data").unlink()
    data = ".data-00000-of-00001"
    (tmp_path / f"other{data}").rename(f"{new}{data}")
    (tmp_path / "other.index").rename(folder / "index")
    (folder / "meta").write_bytes(b"of the old checkpoint")
  if moved:  # The old checkpoint gets its MetaGraph back.
    with pytest.raises(checkpoint.CheckpointError, match="meta: there is"):
      checkpoint.convert(_SESSION, new, "fp32")
    meta = tmp_path / "new.meta"
    assert meta.read_bytes() == b"of the old checkpoint"
    meta.unlink()
  checkpoint.convert(_SESSION, new, "fp32")
  assert len(list(tmp_path.iterdir())) == 2
  contents(new)


@pytest.mark.any_release
@pytest.mark.parametrize("suffix", [".data-00000-of-00001", ".meta", ".index"])
def test_what_others_left_is_not_removed(suffix, tmp_path):
  new = tmp_path / "new"
  (tmp_path / f"new{suffix}").write_bytes(b"precious")
  before = checksums(tmp_path)
  with pytest.raises(checkpoint.CheckpointError, match="--overwrite replaces"):
    checkpoint.convert(_SESSION, new, "fp32")
  assert checksums(tmp_path) == before
  # What a killed conversion left beside it does not make it ours.
  checkpoint.convert(_SESSION, tmp_path / "other", "fp32")
  (tmp_path / ".new.unfinished").mkdir()
  (tmp_path / "other.index").rename(tmp_path / ".new.unfinished" / "index")
  os.utime(tmp_path / ".new.unfinished" / "index", (1, 1))
  with pytest.raises(checkpoint.CheckpointError, match="--overwrite replaces"):
    checkpoint.convert(_SESSION, new, "fp32")
  assert (tmp_path / f"new{suffix}").read_bytes() == b"precious"
  checkpoint.convert(_SESSION, new, "fp32", overwrite=True)
  assert len(list(tmp_path.glob("*new*"))) == 2
  contents(new)


def _plant_file_in(folder, name):
  folder.mkdir()
  (folder / name).write_bytes(b"precious")


def _plant_link_in(folder, link):
  folder.mkdir()
  link(folder.parent / "elsewhere" / "file", folder / "data")


_PLANTED = {
  "a link": lambda p: p.symlink_to(p.parent / "elsewhere"),
  "a dangling link": lambda p: p.symlink_to(p.parent / "missing"),
  "a pipe": os.mkfifo,
  "a file": lambda p: p.write_bytes(b"precious"),
  "a folder": lambda p: _plant_file_in(p, "notes.txt"),
  "a folder in a folder": lambda p: (p / "data").mkdir(parents=True),
  "a link in a folder": lambda p: _plant_link_in(p, os.symlink),
  "a hard link in a folder": lambda p: _plant_link_in(p, os.link),
  "a folder of another user": lambda p: _plant_file_in(p, "data"),
}


@pytest.mark.any_release
@pytest.mark.parametrize("what", _PLANTED)
def test_what_others_put_in_the_place_of_the_folder(
  what, tmp_path, monkeypatch
):
  """Checks that a planted link, say, is neither followed nor removed."""
  (tmp_path / "elsewhere").mkdir()
  (tmp_path / "elsewhere" / "file").write_bytes(b"precious")
  (tmp_path / "elsewhere" / "data").write_bytes(b"precious")
  _PLANTED[what](tmp_path / ".new.unfinished")
  if "user" in what:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)

  def walk():
    return [
      (str(path), path.is_file() and path.read_bytes())
      for path in sorted(tmp_path.rglob("*"))
    ]

  before = walk()
  with pytest.raises(checkpoint.CheckpointError) as error:
    checkpoint.convert(_SESSION, tmp_path / "new", "fp32")
  assert "new.unfinished is in the way" in str(error.value)
  assert "rename or remove it" in str(error.value)
  assert walk() == before


@pytest.mark.any_release
def test_two_at_once(tmp_path):
  import fcntl

  folder = tmp_path / ".new.unfinished"
  folder.mkdir()
  lock = os.open(folder, os.O_RDONLY)
  fcntl.flock(lock, fcntl.LOCK_EX)
  with pytest.raises(checkpoint.CheckpointError, match="another process"):
    checkpoint.convert(_SESSION, tmp_path / "new", "fp32")
  os.close(lock)
  checkpoint.convert(_SESSION, tmp_path / "new", "fp32")


@pytest.mark.any_release
@pytest.mark.parametrize("third", [False, True])
def test_a_folder_that_is_removed_before_it_is_locked(
  third, tmp_path, monkeypatch
):
  """Checks the lock of a folder that is not at its path any more.

  Args:
    third: Whether a third process makes and locks a folder at that path.
    tmp_path: The folder of the checkpoint.
    monkeypatch: Puts the other processes' steps before the lock.
  """
  import fcntl

  folder = tmp_path / ".new.unfinished"
  flock, locks = fcntl.flock, []

  def interrupted(number, flags):
    if not locks:
      folder.rmdir()
      locks.append(None)
      if third:
        folder.mkdir()
        locks.append(os.open(folder, os.O_RDONLY))
        flock(locks[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    return flock(number, flags)

  monkeypatch.setattr(fcntl, "flock", interrupted)
  if third:
    with pytest.raises(checkpoint.CheckpointError, match="another process"):
      checkpoint.convert(_SESSION, tmp_path / "new", "fp32")
    assert list(tmp_path.iterdir()) == [folder]
    os.close(locks[1])
  checkpoint.convert(_SESSION, tmp_path / "new", "fp32")
  assert len(list(tmp_path.iterdir())) == 2


_RIVAL = """
import os, random, sys, time
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.files import bundle
source, folder = sys.argv[1:]
copy = bundle.Bundle.copy

def alone(*args):
  os.mkdir(folder + "/inside")  # Raises if another process is inside.
  copy(*args)
  os.rmdir(folder + "/inside")

bundle.Bundle.copy = alone
done, end = 0, time.monotonic() + 60
while done < 25:
  try:
    checkpoint.convert(source, folder + "/new", "contrib", overwrite=True)
    done += 1
  except checkpoint.CheckpointError as error:
    assert "another process is writing it now" in str(error), error
    assert time.monotonic() < end, f"had the lock {done} times"
  time.sleep(random.uniform(0, 0.01))
"""


@pytest.mark.any_release
def test_two_processes_never_have_the_lock_both(tmp_path):
  rivals = [
    subprocess.Popen(
      [sys.executable, "-c", _RIVAL, str(_SESSION), str(tmp_path)],
      cwd=helpers.ROOT,
      stderr=subprocess.PIPE,
      text=True,
    )
    for _ in range(2)
  ]
  for rival in rivals:
    _, err = rival.communicate(timeout=120)
    assert not rival.returncode, err
  assert len(list(tmp_path.iterdir())) == 2
  contents(tmp_path / "new")


@pytest.mark.any_release
def test_a_copy_that_differs_from_its_source(tmp_path, monkeypatch):
  """Checks damage that only one of two reads of a file would show."""
  copy = bundle._copy_chunk

  def damaged(shard, at, size, file):
    copied = copy(shard, at, size, file)
    os.pwrite(file.fileno(), b"?", os.lseek(file.fileno(), 0, 1) - 1)
    return copied

  monkeypatch.setattr(bundle, "_copy_chunk", damaged)
  with pytest.raises(checkpoint.CheckpointError, match="not those of the sou"):
    checkpoint.convert(_SESSION, tmp_path / "new", "fp32")
  assert not list(tmp_path.iterdir())


@pytest.mark.any_release
def test_old_data_that_cannot_be_removed(tmp_path, monkeypatch, capsys):
  new = tmp_path / "new"
  checkpoint.convert(_SESSION, new, "fp32")
  remove = os.remove

  def refuse(path, **kwargs):
    if ".data-" in path:
      raise PermissionError(13, "Permission denied", path)
    remove(path, **kwargs)

  monkeypatch.setattr(os, "remove", refuse)
  command = ["convert", str(_SESSION), str(new), "--to=contrib", "--overwrite"]
  assert cli.main(command) == 0
  captured = capsys.readouterr()
  assert f"{new}: written" in captured.out
  assert "new.data-00000-of-00001, which was replaced, could" in captured.err
  assert checkpoint.describe(new).api == "contrib"
  monkeypatch.undo()
  checkpoint.convert(_SESSION, new, "contrib", overwrite=True)
  assert len(list(tmp_path.iterdir())) == 2


_ON_WINDOWS = """
import os, sys
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios"):
  sys.modules[name] = None
for name in ("sendfile", "O_DIRECTORY", "fork", "geteuid", "getuid", "killpg"):
  delattr(os, name)
from tf_compat_lossscale.cli import main as cli
sys.exit(cli.main(["convert", sys.argv[1], sys.argv[2], "--to=contrib"]))
"""


@pytest.mark.any_release
def test_without_what_windows_does_not_have(tmp_path):
  new = tmp_path / "new"
  helpers.run_python("-c", _ON_WINDOWS, str(_SESSION), str(new))
  checkpoint.convert(_SESSION, tmp_path / "same", "contrib")
  assert contents(new) == contents(tmp_path / "same")
  assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.any_release
def test_a_folder_that_cannot_be_locked(tmp_path, monkeypatch):
  """Checks an existing folder: nothing shows whether its process still runs."""
  monkeypatch.setattr(writer, "fcntl", None)
  monkeypatch.delattr(os, "sendfile")
  folder = tmp_path / ".new.unfinished"
  folder.mkdir()
  with pytest.raises(checkpoint.CheckpointError) as error:
    checkpoint.convert(_SESSION, tmp_path / "new", "fp32")
  assert str(error.value).endswith(
    f"if that process was killed, remove {folder}"
  )
  folder.rmdir()
  checkpoint.convert(_SESSION, tmp_path / "new", "fp32")
  assert len(list(tmp_path.iterdir())) == 2
  contents(tmp_path / "new")


@pytest.mark.any_release
@pytest.mark.parametrize("refused", [".index", "-of-00002", "/meta"])
def test_an_index_that_cannot_be_replaced(refused, tmp_path, monkeypatch):
  """Checks a refusal, as of Windows while another process reads the index."""
  new = tmp_path / "new"
  checkpoint.convert(_SESSION, new, "fp32")
  (tmp_path / "new.meta").write_bytes(b"its MetaGraph")
  before = checksums(tmp_path)
  replace = os.replace

  def refuse(source, target):
    if target.endswith(refused):
      raise PermissionError(13, "Permission denied", target)
    replace(source, target)

  monkeypatch.setattr(os, "replace", refuse)
  with pytest.raises(checkpoint.CheckpointError, match="Permission denied"):
    checkpoint.convert(_SESSION, new, "contrib", overwrite=True)
  assert checksums(tmp_path) == before
  assert len(list(tmp_path.iterdir())) == 3


def large(folder, megabytes=48):
  """Saves a large model; returns the path."""
  with tf.Graph().as_default(), tf1.Session() as session:
    ones = tf1.ones_initializer()
    for i in range(8):
      tf1.get_variable(f"w{i}", [megabytes << 18], initializer=ones)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.1), tfl.DynamicLossScale(8.0)
    )
    del opt
    session.run(tf1.global_variables_initializer())
    return tf1.train.Saver().save(session, str(folder / "model"))


def checksums(folder):
  """Returns file -> checksum. Unfinished files are in a folder, so not here."""
  return {
    path.name: hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(folder.iterdir())
    if path.is_file()
  }


@pytest.mark.thorough
@pytest.mark.any_release
def test_killed_at_every_step(tmp_path):
  helpers.run_python(
    checkpoint_killer.__file__, "steps", str(_SESSION), str(tmp_path)
  )


@pytest.mark.thorough
@pytest.mark.any_release
def test_killed_at_any_moment(tmp_path):
  source, target = tmp_path / "source", tmp_path / "target"
  source.mkdir()
  target.mkdir()
  path = large(source, megabytes=3)
  before = checksums(source)
  print(
    helpers.run_python(
      checkpoint_killer.__file__, "moments", path, str(target), "20"
    )
  )
  assert checksums(source) == before


@pytest.mark.any_release
def test_interrupted(tmp_path):
  process = subprocess.Popen(
    [
      sys.executable,
      "-c",
      _INTERRUPTIBLE,
      str(_SESSION),
      str(tmp_path / "new"),
    ],
    cwd=helpers.ROOT,
    stderr=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == "begun\n"
  process.send_signal(signal.SIGINT)
  _, err = process.communicate(timeout=60)
  assert (process.returncode, err) == (130, "tf-lossscale: interrupted\n")
  assert not list(tmp_path.iterdir())


_INTERRUPTIBLE = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale.checkpoint.files import bundle
copy = bundle.Bundle.copy
def slow(*args):
  print("begun", flush=True)
  time.sleep(20)
  copy(*args)
bundle.Bundle.copy = slow
sys.exit(cli.main(["convert", sys.argv[1], sys.argv[2], "--to=fp32"]))
"""


@pytest.mark.thorough
def test_a_large_one_is_checked_by_numpy(tmp_path, monkeypatch):
  """Checks that damage is found if NumPy compares the checksums."""
  path = large(tmp_path, megabytes=2)
  monkeypatch.setattr(crc32c, "_extend", None)  # As without google-crc32c.
  monkeypatch.setattr(bundle, "CHECKED_AT_SIGHT", 1 << 20)
  d = checkpoint.describe(path)
  assert not d.checked and checkpoint.describe(path, verify=True).checked
  assert d.loss_scales[0].value == 8.0
  checkpoint.convert(path, tmp_path / "good", "fp32")
  with open(f"{path}.data-00000-of-00001", "r+b") as file:
    file.seek(5_000_000)
    file.write(b"\xff")
  assert checkpoint.describe(path).loss_scales == d.loss_scales
  with pytest.raises(checkpoint.CheckpointError, match="w2"):
    checkpoint.describe(path, verify=True)
  with pytest.raises(checkpoint.CheckpointError, match="w2"):
    checkpoint.convert(path, tmp_path / "bad", "fp32")
  assert not list(tmp_path.glob("*bad*"))


@pytest.mark.thorough
@pytest.mark.any_release
def test_a_large_one_is_checked_without_tensorflow(tmp_path):
  """Checks that google-crc32c needs neither TensorFlow nor much memory."""
  if crc32c._extend is None:
    pytest.skip("google-crc32c is not installed")
  path = large(tmp_path, megabytes=12)
  with open(f"{path}.data-00000-of-00001", "r+b") as file:
    file.seek(15 << 20)
    file.write(b"\xff\xfe")
  run = helpers.run_python("-c", _CHECK_LARGE, path, str(tmp_path / "new"))
  assert run.splitlines() == ["w1: the bytes", "w1: the bytes", "False True"]


_CHECK_LARGE = """
import re, resource, sys
from tf_compat_lossscale import checkpoint
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for use in (
  lambda: checkpoint.describe(sys.argv[1], verify=True),
  lambda: checkpoint.convert(sys.argv[1], sys.argv[2], "fp32"),
):
  try:
    use()
  except checkpoint.CheckpointError as error:
    print(re.search("w1: the bytes", str(error))[0])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print("tensorflow" in sys.modules, peak < 6 << 10)
"""


@pytest.mark.any_release
@pytest.mark.skipif(
  "LARGE_CHECKPOINT" not in os.environ,
  reason="writes 4 GiB; LARGE_CHECKPOINT=1 has it run",
)
def test_memory_for_the_largest_tensor(tmp_path):
  """Checks the memory for a file of 2 GiB with tensors of 128 MiB."""
  sys.path.insert(0, str(helpers.ROOT))
  from benchmarks import checkpoints

  source, target = str(tmp_path / "source"), str(tmp_path / "target")
  checkpoints.make(source)
  _, before, after = checkpoints.convert(source, target)
  assert after - before < 512 << 20
  assert checkpoint.describe(target).api == "contrib"
  assert os.path.getsize(f"{target}.data-00000-of-00001") > 2 << 30


@pytest.mark.any_release
def test_progress(tmp_path):
  sizes = []

  def begin(total):
    sizes.append(total)
    return lambda size: sizes.append(-size)

  checkpoint.convert(_SESSION, tmp_path / "new", "contrib", progress=begin)
  total = sizes[0]
  assert (
    total > 0 and abs(sum(sizes)) < 100
  )  # The new names have other lengths.


if __name__ == "__main__":
  helpers.main()
