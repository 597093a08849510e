# SPDX-License-Identifier: Apache-2.0
"""Tests the files that conversions write, complete or interrupted."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from checkpoint_contents import contents
import helpers
import processes
import pytest
from saved_graphs import save_tensors
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import _writing
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1
pytestmark = pytest.mark.any_release
_SESSION = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"
_DATA = ".data-00000-of-00001"


def checksums(folder):
  """Returns path -> checksum of every file in a folder."""
  return {
    str(path): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(folder.rglob("*"))
    if path.is_file()
  }


def names_in(folder):
  return sorted(path.name for path in folder.iterdir())


def test_mistakes_in_the_destination(tmp_path):
  source = shutil.copytree(_SESSION, tmp_path / "source")
  prefix = str(source / "model.ckpt-10")

  def refuse(destination, what, **kwargs):
    with pytest.raises(checkpoint.CheckpointError, match=what):
      checkpoint.convert(prefix, destination, "fp32", **kwargs)

  refuse(prefix, "--overwrite")
  refuse(prefix, "never changed", overwrite=True)
  (tmp_path / "link").symlink_to(source)
  refuse(tmp_path / "link/model.ckpt-10", "never changed", overwrite=True)
  refuse(tmp_path, "a folder; name what is to be in it")
  refuse(f"{tmp_path}/", "a folder")
  refuse("gs://bucket/new", "folders of this machine alone")
  for name in ("a[1]", "b*/new", "not\udcffutf8"):
    refuse(tmp_path / name, "rename the file or the folder")
  for end in (".npz", ".safetensors", ".index", ".meta", _DATA, ".h5"):
    refuse(tmp_path / f"new{end}", "prefix does not end in")
  refuse(os.devnull, "no file, but a device", overwrite=True)
  (tmp_path / "file").touch()
  refuse(tmp_path / "file" / "new", "file.*Not a directory")
  assert names_in(tmp_path) == ["file", "link", "source"]


def test_the_state_and_the_meta_graph(tmp_path, capsys):
  """Checks that TensorFlow finds the new checkpoint as the latest one."""
  folder = tmp_path / "a" / "b"
  command = ["convert", str(_SESSION), f"{folder}/model.ckpt-10"]
  assert cli.main([*command, "--to=saver"]) == 0
  out = capsys.readouterr().out
  assert f"{folder}/checkpoint is written" in out
  assert f"{folder}/model.ckpt-10.meta is copied from the source" in out
  assert tf.train.latest_checkpoint(str(folder)) == f"{folder}/model.ckpt-10"
  old = (_SESSION / "model.ckpt-10.meta").read_bytes()
  assert (folder / "model.ckpt-10.meta").read_bytes() == old
  # A state that is there stays, and names that change need another MetaGraph.
  state = (folder / "checkpoint").read_bytes()
  assert cli.main(["convert", str(_SESSION), f"{folder}/new", "--to=fp32"]) == 0
  out = capsys.readouterr().out
  assert "checkpoint stays as it was: a program that takes the latest" in out
  assert "model.ckpt-10.meta is not copied" in out
  assert (folder / "checkpoint").read_bytes() == state
  assert not (folder / "new.meta").exists()
  (folder / "checkpoint").unlink()
  (folder / "checkpoint").symlink_to("missing")  # It is not followed.
  result = checkpoint.convert(_SESSION, folder / "new2", "fp32")
  assert "checkpoint stays as it was" in result.notes[0]
  assert not (folder / "missing").exists()


def test_overwriting(tmp_path, capsys):
  new = str(tmp_path / "new")
  command = ["convert", str(_SESSION), new]
  assert cli.main([*command, "--to=contrib"]) == 0
  assert ", 3 renamed\nadded: bad_steps" in capsys.readouterr().out
  with pytest.raises(SystemExit):
    cli.main([*command, "--to=fp32"])
  assert "--overwrite (overwrite=True) replaces" in capsys.readouterr().err
  for layout in ("saver", "fp32", "contrib"):
    assert cli.main([*command, f"--to={layout}", "--overwrite"]) == 0
    contents(new)
    has_meta = os.path.exists(f"{new}.meta")
    assert has_meta == (layout == "saver")
  assert checkpoint.describe(new).api == "contrib"
  assert names_in(tmp_path)[0] == "checkpoint"


@pytest.mark.parametrize("suffix", [_DATA, ".meta", ".index"])
def test_what_others_left_is_not_removed(suffix, tmp_path):
  (tmp_path / f"new{suffix}").write_bytes(b"precious")
  (tmp_path / f"new2{_DATA}").write_bytes(b"precious")
  before = checksums(tmp_path)
  with pytest.raises(checkpoint.CheckpointError, match="--overwrite"):
    checkpoint.convert(_SESSION, tmp_path / "new", "fp32")
  assert checksums(tmp_path) == before
  checkpoint.convert(_SESSION, tmp_path / "new", "fp32", overwrite=True)
  contents(tmp_path / "new")
  assert (tmp_path / f"new2{_DATA}").read_bytes() == b"precious"


def test_planted_links(tmp_path):
  """Checks that a link at the destination is replaced, and never followed."""
  elsewhere = tmp_path / "elsewhere"
  elsewhere.mkdir()
  for suffix in (_DATA, ".meta", ".index", ".npz"):
    (elsewhere / f"file{suffix}").write_bytes(b"precious")
    (tmp_path / f"new{suffix}").symlink_to(elsewhere / f"file{suffix}")
  before = checksums(elsewhere)
  checkpoint.convert(_SESSION, tmp_path / "new", "fp32", overwrite=True)
  checkpoint.convert(_SESSION, tmp_path / "new.npz", "npz", overwrite=True)
  assert checksums(elsewhere) == before
  contents(tmp_path / "new")


@pytest.mark.parametrize(
  ("module", "name", "error", "to"),
  [
    (os, "fsync", OSError(28, "No space left on device"), "fp32"),
    (os, "fsync", OSError(28, "No space left on device"), "npz"),
    (os, "fsync", OSError(28, "No space left on device"), "safetensors"),
    (tempfile, "mkdtemp", PermissionError(13, "Permission denied"), "fp32"),
  ],
)
def test_what_the_system_refuses(
  module, name, error, to, tmp_path, monkeypatch
):
  def refuse(*args, **kwargs):
    raise error

  monkeypatch.setattr(module, name, refuse)
  with pytest.raises(checkpoint.CheckpointError, match=error.strerror):
    checkpoint.convert(_SESSION, tmp_path / "folder" / "new", to)
  assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_for_tensorflow(tmp_path):
  """Checks an error of SaveV2 itself: no file may have more than 100 bytes."""
  code = f"""
import resource, signal, sys
from tf_compat_lossscale.cli import main as cli
from tf_compat_lossscale import checkpoint
checkpoint.describe({str(_SESSION)!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
sys.exit(cli.main(["convert", {str(_SESSION)!r},
  {str(tmp_path / "sub" / "new")!r}, "--to=fp32"]))
"""
  done = processes.complete_forked("-c", code)
  assert done.returncode == 2 and not list(tmp_path.iterdir())


_KILLED = """
import os, signal, sys
from tf_compat_lossscale import checkpoint
source, new, to, step = sys.argv[1:]
count = 0
def wrap(function):
  def call(*args, **kwargs):
    global count
    if count == int(step):
      os.kill(os.getpid(), signal.SIGKILL)
    count += 1
    return function(*args, **kwargs)
  return call
for name in ("link", "unlink", "replace", "fsync"):
  setattr(os, name, wrap(getattr(os, name)))
checkpoint.convert(source, new, to, overwrite=True)
"""


@pytest.mark.parametrize("replaces", [False, True])
def test_killed_at_any_step(replaces, tmp_path):
  """Checks that the checkpoint is the old one or the new one, and is whole."""
  checkpoint.convert(_SESSION, tmp_path / "expected", "contrib")
  expected = contents(tmp_path / "expected")
  before = checksums(_SESSION)
  seen = []
  for step in (1, 4, 6, 8, 99):
    folder = tmp_path / str(step)
    folder.mkdir()
    new = folder / "new"
    if replaces:
      checkpoint.convert(_SESSION, new, "saver")
    old = contents(new) if replaces else None
    done = processes.complete_forked(
      "-c", _KILLED, str(_SESSION), str(new), "contrib", str(step)
    )
    found = contents(new) if (folder / "new.index").exists() else None
    assert found in (old, expected)
    seen.append(found == expected)
    checkpoint.convert(_SESSION, new, "contrib", overwrite=True)
    assert contents(new) == expected
    assert done.returncode == (-signal.SIGKILL if step < 99 else 0), done.stderr
  assert seen == sorted(seen) and seen.count(False) > 1, seen
  assert checksums(_SESSION) == before


def fail_at(monkeypatch, end, error, done=False):
  """Lets the file whose name has this end fail, or what follows if `done`."""

  def wrap(function):
    def call(source, target):
      if not target.endswith(end):
        return function(source, target)
      if done:
        function(source, target)
      raise error

    return call

  for name in ("replace", "link"):
    monkeypatch.setattr(os, name, wrap(getattr(os, name)))


@pytest.mark.parametrize("refused", [".index", "-of-00002"])
def test_a_file_that_cannot_be_replaced(refused, tmp_path, monkeypatch):
  """Checks a refusal, as of Windows while another process reads the index."""
  new = tmp_path / "new"
  checkpoint.convert(_SESSION, new, "saver")
  before = checksums(tmp_path)
  fail_at(monkeypatch, refused, PermissionError(13, "Permission denied"))
  with pytest.raises(checkpoint.CheckpointError, match="Permission denied"):
    checkpoint.convert(_SESSION, new, "contrib", overwrite=True)
  assert checksums(tmp_path) == before


@pytest.mark.parametrize("overwrite", [True, False])
def test_interrupted_after_the_index(overwrite, tmp_path, monkeypatch):
  """Checks that the files of a checkpoint that is there already stay."""
  new = tmp_path / "new"
  checkpoint.convert(_SESSION, tmp_path / "wanted", "contrib")
  if overwrite:
    checkpoint.convert(_SESSION, new, "saver")
  fail_at(monkeypatch, "new.index", KeyboardInterrupt(), done=True)
  with pytest.raises(KeyboardInterrupt):
    checkpoint.convert(_SESSION, new, "contrib", overwrite=overwrite)
  assert contents(new) == contents(tmp_path / "wanted")


def test_another_process_is_first(tmp_path, monkeypatch):
  """Checks files that appear while the conversion writes."""
  real = _writing._flush

  def appear(folder, *args, **kwargs):
    real(folder, *args, **kwargs)
    for name in ("new.index", "new.npz"):
      (tmp_path / name).write_bytes(b"another's")

  monkeypatch.setattr(_writing, "_flush", appear)
  for name, to in (("new", "fp32"), ("new.npz", "npz")):
    (tmp_path / name).with_suffix(".index").unlink(missing_ok=True)
    (tmp_path / "new.npz").unlink(missing_ok=True)
    with pytest.raises(checkpoint.CheckpointError, match=r"already|meanwhile"):
      checkpoint.convert(_SESSION, tmp_path / name, to)
    assert names_in(tmp_path) == ["new.index", "new.npz"]
    assert (tmp_path / "new.npz").read_bytes() == b"another's"


def test_file_systems_without_links(tmp_path, monkeypatch):
  def refuse(source, target):
    raise PermissionError(1, "Operation not permitted", target)

  monkeypatch.setattr(os, "link", refuse)
  checkpoint.convert(_SESSION, tmp_path / "new", "saver")
  ends = (_DATA, ".index", ".meta")
  assert names_in(tmp_path) == ["checkpoint", *(f"new{end}" for end in ends)]


def test_one_tensor_is_not_replaced(tmp_path):
  """Checks the case in which the new data file needs the old one's name."""
  path = save_tensors(tmp_path, {"w": 1.0})
  checkpoint.convert(path, tmp_path / "new", "weights")
  before = checksums(tmp_path)
  with pytest.raises(checkpoint.CheckpointError, match="remove it first"):
    checkpoint.convert(path, tmp_path / "new", "weights", overwrite=True)
  assert checksums(tmp_path) == before


def test_files_are_replaced_by_another_number_of_files(tmp_path, monkeypatch):
  """Checks groups that cannot be split: there are joined ones, or others."""
  path = save_tensors(tmp_path, {"w0": 1.0, "w1": 2.0, "w2": 3.0})
  monkeypatch.setattr(_writing, "_GROUP", 4)
  for count in (3, 2, 3):
    checkpoint.convert(path, tmp_path / "new", "weights", overwrite=True)
    assert len(list(tmp_path.glob("new.data-*"))) == count
    assert contents(tmp_path / "new") == contents(path)


@pytest.mark.thorough
def test_interrupted(tmp_path):
  process = subprocess.Popen(
    [sys.executable, "-c", _SLOW, str(_SESSION), str(tmp_path / "new")],
    cwd=helpers.ROOT,
    stderr=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == "begun\n"
  process.send_signal(signal.SIGINT)
  _, err = process.communicate(timeout=120)
  assert (process.returncode, err) == (130, "tf-lossscale: interrupted\n")
  assert not list(tmp_path.iterdir())


_SLOW = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from tf_compat_lossscale.cli import main as cli
def slow(*args):
  print("begun", flush=True)
  time.sleep(5)
os.fsync = slow
sys.exit(cli.main(["convert", sys.argv[1], sys.argv[2], "--to=fp32"]))
"""


def test_progress(tmp_path):
  sizes = []

  def begin(total):
    sizes.append(total)
    return lambda size: sizes.append(-size)

  for to in ("contrib", "npz"):
    checkpoint.convert(_SESSION, tmp_path / to, to, progress=begin)
    assert sizes[0] > 0 and sum(sizes) == 0
    sizes.clear()
