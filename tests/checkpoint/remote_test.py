# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints on file systems that TensorFlow alone knows.

`ram://` is one that TensorFlow itself has. `fake://` is a stand-in for a
storage in the network: it counts bytes, and can fail.
"""

import io
import os
import pathlib
import sys
import types

import helpers
import numpy as np
import pytest
import tensorflow as tf
import tensorflow.compat.v2 as tf2

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.files import bundle
from tf_compat_lossscale.checkpoint.files import opening
from tf_compat_lossscale.checkpoint.files import writer
from tf_compat_lossscale.checkpoint.files.values import Stored
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1
_SESSION = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"
_OBJECTS = helpers.GOLDENS / "tf-2.8.4" / "session_dynamic_adam" / "object"


def upload(folder, remote):
  """Copies a folder's files to one of TensorFlow's file systems."""
  for path in folder.rglob("*"):
    if path.is_file():
      there = f"{remote}/{path.relative_to(folder)}"
      tf.io.gfile.makedirs(os.path.dirname(there))
      with tf.io.gfile.GFile(there, "wb") as file:
        file.write(path.read_bytes())


@pytest.fixture
def session_folder():
  upload(_SESSION, "ram://session")
  yield "ram://session"
  tf.io.gfile.rmtree("ram://session")


def describe_as_local(remote, local):
  """Returns a description, with the path on this machine."""
  d = checkpoint.describe(remote, verify=True)
  assert d.path.startswith("ram://")
  here = checkpoint.describe(local, verify=True)
  return d.__dict__ | {"path": here.path}, here.__dict__


@pytest.mark.parametrize(
  "path", ["", "/", "/checkpoint", "/model.ckpt-10", "/model.ckpt-10.meta"]
)
def test_inspect(session_folder, path):
  found, expected = describe_as_local(session_folder + path, _SESSION)
  assert found == expected


def test_objects():
  upload(_OBJECTS, "ram://other")
  found, expected = describe_as_local("ram://other", _OBJECTS)
  assert found == expected
  tf.io.gfile.rmtree("ram://other")


def test_a_saved_model(tmp_path):
  module = tf.Module()
  module.v = tf.Variable(1.0)
  tf.saved_model.save(module, str(tmp_path))
  upload(tmp_path, "ram://saved")
  for path in ("ram://saved", "ram://saved/variables"):
    found, expected = describe_as_local(path, tmp_path)
    assert found == expected and expected["kind"] == "saved_model"
  tf.io.gfile.rmtree("ram://saved")


def test_convert(session_folder, tmp_path):
  checkpoint.convert(session_folder, tmp_path / "a", "saver-v2")
  checkpoint.convert(_SESSION, tmp_path / "b", "saver-v2")
  ends = ("data-00000-of-00001", "index")
  a, b = ([tmp_path / f"{n}.{end}" for end in ends] for n in "ab")
  assert [p.read_bytes() for p in a] == [p.read_bytes() for p in b]


@pytest.mark.parametrize("path", ["", "/checkpoint", "/model.ckpt-10"])
def test_saver(session_folder, path):
  with tf.Graph().as_default(), tf1.Session() as session:
    scale = tfl.DynamicLossScale(2.0)
    scale()
    saver = checkpoint.Saver([*scale._weights.values()])
    saver.restore(session, session_folder + path)
    assert session.run(scale()) == 16384.0


def test_objects_are_restored(tmp_path):
  """Checks a checkpoint by objects, which is restored from a local overlay."""
  saved = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0]))
  saved.write(str(tmp_path / "model"))
  upload(tmp_path, "ram://objects")
  v = tf.Variable([0.0, 0.0])
  report = checkpoint.restore(None, "ram://objects", {"v": v})
  assert v.numpy().tolist() == [1.0, 2.0]
  assert report.path.startswith("ram://objects")
  tf.io.gfile.rmtree("ram://objects")


@pytest.mark.parametrize(
  ("path", "message"),
  [
    ("ram://missing", "ram://missing: no such checkpoint"),
    ("ram://missing.index", "ram://missing.index: No such file"),
    ("foo://x/y", "foo://x/y: TensorFlow knows no file system foo://: install"),
  ],
)
def test_paths_that_lead_nowhere(path, message, capsys, tmp_path):
  """Checks for one line that names the path, of each command."""
  assert cli.main(["inspect", path]) == 2
  error = capsys.readouterr().err
  assert message in error and error.count("\n") == 1
  with pytest.raises(checkpoint.CheckpointError, match=message[:20]):
    checkpoint.convert(path, tmp_path / "new", "saver")
  with tf.Graph().as_default(), tf1.Session() as session:
    tf1.get_variable("v", initializer=0.0)
    with pytest.raises(checkpoint.CheckpointError, match=message[:20]):
      checkpoint.Saver().restore(session, path)
  assert not list(tmp_path.iterdir())


def test_nothing_is_written_to_a_storage(capsys):
  """Checks that the destination is the first error, before the source is read.

  The source is missing, which nobody notices.
  """
  with pytest.raises(SystemExit) as ended:
    cli.main(["convert", "ram://missing", "ram://new", "--to=saver"])
  assert ended.value.code == 2
  error = capsys.readouterr().err
  assert "ram://new: checkpoints are written to folders of this" in error
  assert error.count("\n") == 1 and not tf.io.gfile.exists("ram://new.index")
  with pytest.raises(checkpoint.CheckpointError, match="of this machine"):
    writer.reserve("ram://new").__enter__()


class FakeStorage:
  """Serves a folder as fake://, by the functions of `tf.io.gfile`.

  Attributes:
    count: The number of bytes that were read.
    error: Raised by each function, if there is one.
  """

  def __init__(self, folder):
    self._folder = folder
    self.count, self.error = 0, None

  def _find(self, path):
    if self.error:
      raise self.error
    return self._folder / path.removeprefix("fake://")

  def get_registered_schemes(self):
    return ["fake"]

  def exists(self, path):
    return self._find(path).exists()

  def isdir(self, path):
    return self._find(path).is_dir()

  def listdir(self, path):
    return [p.name + "/" * p.is_dir() for p in self._find(path).iterdir()]

  def stat(self, path):
    try:
      found = self._find(path).stat()
    except FileNotFoundError:
      raise tf.errors.NotFoundError(None, None, f"{path}\nno") from None
    return types.SimpleNamespace(
      length=found.st_size, mtime_nsec=found.st_mtime_ns
    )

  def GFile(self, path, mode):
    assert mode == "rb"
    file = io.BytesIO(self._find(path).read_bytes())

    def read(size):
      data = file.read(size)
      self.count += len(data)
      return data

    return types.SimpleNamespace(
      read=read, seek=file.seek, tell=file.tell, close=file.close
    )


@pytest.fixture
def storage(monkeypatch, tmp_path):
  (tmp_path / "fake").mkdir()
  fake = FakeStorage(tmp_path / "fake")
  monkeypatch.setattr(tf2.io, "gfile", fake)
  return fake


def save_large(prefix):
  """Saves 8 MiB in two shards, and a loss scale."""
  values = {f"w{i}": np.full([1 << 20], i, "f") for i in range(2)}
  values |= {"current_loss_scale": np.float32(8), "good_steps": np.int64(1)}
  parts = []
  for name, value in values.items():
    parts.append(f"{prefix}.{name}")
    tf.raw_ops.SaveV2(
      prefix=parts[-1],
      tensor_names=[name],
      tensors=[value],
      shape_and_slices=[""],
    )
  tf.raw_ops.MergeV2Checkpoints(
    checkpoint_prefixes=parts, destination_prefix=prefix
  )


def test_no_more_is_read_than_needed(storage, tmp_path, monkeypatch):
  """Checks that a description reads the index, and a conversion all once."""
  save_large(str(tmp_path / "fake" / "model"))
  monkeypatch.setattr(bundle, "CHECKED_AT_SIGHT", 1 << 20)
  assert checkpoint.describe("fake://model").loss_scales[0].value == 8.0
  assert storage.count < 10_000
  storage.count = 0
  checkpoint.convert("fake://model", tmp_path / "new", "contrib")
  assert 8 << 20 <= storage.count < (8 << 20) + 10_000
  storage.count = 0
  if opening.is_remote("fake://model"):
    checkpoint.describe("fake://model", verify=True)
    assert 8 << 20 <= storage.count < (8 << 20) + 10_000


def test_an_overlay_is_on_this_machine(storage, tmp_path):
  """Checks the copy from which objects with bridged names are restored."""
  save_large(str(tmp_path / "fake" / "model"))
  source = bundle.Bundle("fake://model")
  sources = {f"new/{name}": Stored(source, name) for name in source.specs}
  (tmp_path / "over").mkdir()
  prefix = writer.write_overlay(str(tmp_path / "over"), source, sources)
  over = bundle.Bundle(prefix)
  over.check()
  assert {f"new/{k}": v for k, v in source.specs.items()} == over.specs


@pytest.mark.thorough
def test_damage_is_found(storage, tmp_path):
  save_large(str(tmp_path / "fake" / "model"))
  (data,) = (tmp_path / "fake").glob("*data-00001-of-00004")
  content = bytearray(data.read_bytes())
  content[1_000_000] ^= 1
  data.write_bytes(content)
  with pytest.raises(checkpoint.CheckpointError, match="fake://model"):
    checkpoint.convert("fake://model", tmp_path / "new", "contrib")
  assert not list(tmp_path.glob("new*"))
  data.write_bytes(content[:-4])
  with pytest.raises(checkpoint.CheckpointError, match="it is cut off"):
    checkpoint.describe("fake://model")


def test_a_checkpoint_that_changes_is_read_again(storage, tmp_path):
  """Checks that a process which overwrites a remote checkpoint is noticed."""
  folder = tmp_path / "fake"
  save_large(str(folder / "model"))
  find, changed = storage._find, []

  def find_and_change(path):
    if path.endswith("data-00000-of-00004") and len(changed) < 2:
      changed.append(path)
      os.utime(find(path), ns=(1, len(changed)))
    return find(path)

  storage._find = find_and_change
  d = checkpoint.describe("fake://model", verify=True)
  assert d.checked and len(changed) == 2


@pytest.mark.parametrize(
  "error",
  [
    tf.errors.UnavailableError(None, None, "all 10 tries failed:\nno route"),
    tf.errors.PermissionDeniedError(None, None, "no credentials"),
    tf.errors.UnimplementedError(None, None, "not implemented"),
  ],
)
def test_a_storage_that_does_not_answer(storage, error, capsys):
  storage.error = error
  assert cli.main(["inspect", "fake://model"]) == 2
  line = capsys.readouterr().err
  assert line.count("\n") == 1
  first = error.message.splitlines()[0]
  assert f"fake://model: fake:// cannot be read: {first}; check" in line


def test_a_path_of_pathlib():
  """Checks that the error says what became of the second slash."""
  with pytest.raises(checkpoint.CheckpointError, match="if gs://… is meant"):
    checkpoint.describe(pathlib.PurePosixPath("gs://bucket/model"))


def test_without_tensorflow(monkeypatch, capsys):
  monkeypatch.setitem(sys.modules, "tensorflow.compat.v2", None)
  assert cli.main(["inspect", "gs://bucket/model"]) == 2
  line = capsys.readouterr().err
  assert "gs://bucket/model: gs:// is read by TensorFlow: pip install" in line


@pytest.mark.parametrize(
  ("path", "expected"),
  [
    *[(p, True) for p in ("gs://b/x", "ram://x", "s3://b", "file:///x")],
    *[(p, False) for p in ("x", "/x", "./gs://b", "a/b://c", "://x")],
    (str(pathlib.Path("a:b")), False),
  ],
)
def test_which_paths_are_remote(path, expected):
  assert opening.is_remote(path) == expected


if __name__ == "__main__":
  helpers.main()
