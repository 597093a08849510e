# SPDX-License-Identifier: Apache-2.0
"""Tests how a checkpoint is found, and errors of damaged ones.

The state is a folder's file `checkpoint`, which names the latest checkpoint.
"""

import os
import pathlib
import random
import shutil

import helpers
import numpy as np
import pytest
from saved_graphs import save_tensors
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1
pytestmark = pytest.mark.any_release
_SESSION = helpers.GOLDENS / "tf-1.15.5" / "session_dynamic_adam"
_OBJECTS = helpers.GOLDENS / "tf-2.8.4" / "session_dynamic_adam" / "object"
_NAMES = ("model", "日本", "both'\"", "back\\slash", "new\nline", "x.index")
_DISK = "C:"  # Of Windows.


def save(prefix, value=1.0):
  """Writes a checkpoint of one variable."""
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=value)
    session.run(v.initializer)
    return tf1.train.Saver().save(session, str(prefix), write_state=False)


def put(*prefixes):
  """Creates an empty index, which is enough for a checkpoint to be found."""
  for prefix in prefixes:
    pathlib.Path(f"{prefix}.index").touch()


def refuse(path, *parts):
  """Checks that a path is refused in one line, which has the parts."""
  with pytest.raises(checkpoint.CheckpointError) as error:
    checkpoint.describe(path)
  message = str(error.value)
  assert len(message.splitlines()) == 1
  for part in parts:
    assert part in message, message


def test_no_path():
  """Checks what `tf.train.latest_checkpoint` returns for an empty folder."""
  refuse(None, "None", "tf.train.latest_checkpoint")


@pytest.mark.parametrize("name", _NAMES, ids=ascii)
def test_states_that_tensorflow_writes(name, tmp_path):
  """Checks names of checkpoints, also of a folder that was moved."""
  folder = tmp_path / f"in {name}"
  folder.mkdir()
  put(folder / name)
  for written in (name, str(folder / name), f"/elsewhere/{name}"):
    tf1.train.update_checkpoint_state(str(folder), written, ["other", written])
    assert reading.find(str(folder)) == str(folder / name)


@pytest.mark.parametrize("path", [5, None, b"model", ["model"]])
def test_paths_that_are_no_text(path, tmp_path):
  put(tmp_path / "model")
  for use in (
    lambda: checkpoint.describe(path),
    lambda: checkpoint.convert(tmp_path / "model", path, "saver"),
  ):
    with pytest.raises(checkpoint.CheckpointError, match="must be a text or"):
      use()


@pytest.mark.parametrize(
  "text",
  [
    'model_checkpoint_path: "model"\r\nall_model_checkpoint_paths: "old"\r\n',
    # Of Windows, with escapes as TensorFlow writes them there.
    rf'model_checkpoint_path: "{_DISK}\\runs\\x\\model"',
    f'model_checkpoint_path: "{_DISK}/runs/x/model"',
  ],
)
def test_states_of_windows(text, tmp_path):
  put(tmp_path / "model")
  (tmp_path / "checkpoint").write_text(text, "utf-8")
  assert reading.find(tmp_path) == str(tmp_path / "model")


@pytest.mark.parametrize(
  ("text", "what"),
  [
    ('model_checkpoint_path: "model', "no text of a CheckpointState"),
    ("\0\1\2", "no text of a CheckpointState"),
    ('model_checkpoint_path: ""', "names no model_checkpoint_path"),
    ('all_model_checkpoint_paths: "model"', "names no model_checkpoint_path"),
    ('model_checkpoint_path: "gone-5"', "gone-5' as the latest"),
    (rf'model_checkpoint_path: "{_DISK}\\x\\gone-5"', "index is missing"),
    ('model_checkpoint_path: "checkpoint"', "index is missing"),
  ],
)
def test_states_that_name_nothing(text, what, tmp_path):
  put(tmp_path / "model-1", tmp_path / "model-20")
  (tmp_path / "checkpoint").write_text(text)
  refuse(tmp_path, str(tmp_path), what, "there is: model-20, model-1")


def test_the_state_itself_means_its_folder(tmp_path, monkeypatch):
  """Checks the paths of states, also of a state with a name of its own."""
  put(tmp_path / "a", tmp_path / "b")
  (tmp_path / "checkpoint").write_text('model_checkpoint_path: "b"')
  (tmp_path / "latest").write_text('model_checkpoint_path: "a"')
  assert reading.find(f"{tmp_path}/checkpoint") == f"{tmp_path}/b"
  assert reading.find(f"{tmp_path}/latest") == f"{tmp_path}/a"
  monkeypatch.chdir(tmp_path)
  assert os.path.samefile(f"{reading.find('checkpoint')}.index", "b.index")
  put(tmp_path / "checkpoint")  # A checkpoint of that name comes first.
  assert reading.find("checkpoint") == "checkpoint"


def test_a_folder_without_a_state(tmp_path):
  """Checks for the highest step of the most frequent name, and that it says."""
  for step in (9, 10):
    shutil.copy(_SESSION / "model.ckpt-10.index", tmp_path / f"m-{step}.index")
    shutil.copy(
      _SESSION / "model.ckpt-10.data-00000-of-00001",
      tmp_path / f"m-{step}.data-00000-of-00001",
    )
  put(tmp_path / "best-99")
  d = checkpoint.describe(tmp_path)
  assert d.path == f"{tmp_path}/m-10"
  assert "took m-10, the highest step of the most frequent" in d.notes[0]
  assert not checkpoint.describe(tmp_path / "m-9").notes


@pytest.mark.parametrize(
  ("path", "parts"),
  [
    ("model.ckpt", ["there is: model.ckpt-20, model.ckpt-3"]),
    ("model.ckpt-7", ["there is: other-100, model.ckpt-20, model.ckpt-3"]),
    ("model.ckpt-3/", ["model.ckpt-3 is meant without the slash"]),
    ("other-100.index/", ["no folder", "other-100.index is meant without"]),
    ("model.ckpt-*", ["no pattern", "model.ckpt-20"]),
    ("data-1", ["index data-1.index is missing", "model.ckpt-20"]),
    ("data-1.data-00000-of-00001", ["index data-1.index is missing"]),
    ("missing/x", ["no such checkpoint", "name a prefix such as"]),
    ("ram://missing", ["ram://missing: no such checkpoint"]),
    ("foo://x/y", ["install what adds it, such as tensorflow-io-gcs"]),
  ],
)
def test_errors_name_what_lies_beside(path, parts, tmp_path):
  put(*(tmp_path / n for n in ("model.ckpt-3", "model.ckpt-20", "other-100")))
  (tmp_path / "data-1.data-00000-of-00001").touch()
  refuse(path if "://" in path else f"{tmp_path}/{path}", *parts)


def test_folders_of_folders(tmp_path, capsys):
  """Checks that `inspect` looks one level below, and others name it."""
  for name in ("a", "b"):
    shutil.copytree(_SESSION, tmp_path / name)
  (tmp_path / "empty").mkdir()
  refuse(tmp_path, "a folder without a checkpoint; those in it have some: a, b")
  assert cli.main(["inspect", str(tmp_path)]) == 0
  out = capsys.readouterr().out
  assert out.count("checkpoint: ") == 2 and f"{tmp_path}/b/model.ckpt-10" in out
  assert cli.main(["inspect", str(tmp_path / "empty")]) == 2
  assert "a folder without a checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
  "path", ["", "/saved_model.pb", "/variables", "/variables/variables"]
)
def test_paths_of_a_saved_model(path, tmp_path):
  module = tf.Module()
  module.v = tf.Variable(1.0)
  tf.saved_model.save(module, str(tmp_path))
  d = checkpoint.describe(f"{tmp_path}{path}")
  assert (d.path, d.kind) == (f"{tmp_path}/variables/variables", "saved_model")
  assert d.release and reading.expand(str(tmp_path)) == [str(tmp_path)]


def test_a_folder_called_as_a_prefix(tmp_path):
  """Checks that a path means the prefix, as it does to TensorFlow's Saver."""
  prefix = save(tmp_path / "model", 1.0)
  (tmp_path / "model").mkdir()
  inner = save(tmp_path / "model" / "model", 2.0)
  assert reading.find(prefix) == reading.find(f"{prefix}.index") == prefix
  assert reading.find(f"{prefix}/") == inner  # No prefix ends so.
  assert reading.Checkpoint(prefix).read("v") == 1.0


@pytest.mark.parametrize(
  ("name", "data", "what"),
  [
    ("w.h5", b"\x89HDF\r\n\x1a\n", "a file of Keras"),
    ("w.keras", b"PK\x03\x04", "a file of Keras"),
    ("train.tfrecord", b"a record", "no checkpoint: name the prefix"),
    ("empty", b"", "no checkpoint: name the prefix"),
  ],
)
def test_files_of_other_kinds(name, data, what, tmp_path):
  (tmp_path / name).write_bytes(data)
  refuse(tmp_path / name, what)


def test_the_first_format(tmp_path):
  with tf.Graph().as_default(), tf1.Session() as session:
    tf1.get_variable("v", initializer=1.0)
    session.run(tf1.global_variables_initializer())
    saver = tf1.train.Saver(write_version=tf1.train.SaverDef.V1)
    written = saver.save(session, str(tmp_path / "model"), 7)
  for path in (written, tmp_path):
    refuse(path, "(V1)", "tf.compat.v1.train.Saver: save it once")


@pytest.mark.parametrize("name", ["a[1]", "b*", "back\\slash"])
def test_characters_that_tensorflow_takes_for_a_pattern(name, tmp_path):
  (tmp_path / name).mkdir()
  for path in _SESSION.glob("model.ckpt-10.*"):
    shutil.copy(path, tmp_path / name)
  refuse(f"{tmp_path}/{name}/model.ckpt-10", "rename the file or the folder")


@pytest.mark.parametrize("suffix", [".index", ".meta", ".data-00000-of-00001"])
def test_pipes(suffix, tmp_path):
  """Checks that nothing waits for ever for a writer of a pipe."""
  for path in _SESSION.glob("model.ckpt-10.*"):
    shutil.copy(path, tmp_path)
  (tmp_path / f"model.ckpt-10{suffix}").unlink()
  os.mkfifo(tmp_path / f"model.ckpt-10{suffix}")
  refuse(tmp_path / "model.ckpt-10", "not a regular file")
  os.mkfifo(tmp_path / "checkpoint")
  refuse(tmp_path, "not a regular file")


def test_a_meta_graph_that_is_damaged(tmp_path):
  shutil.copytree(_SESSION, tmp_path / "new")
  (tmp_path / "new" / "model.ckpt-10.meta").write_bytes(b"\xff" * 99)
  d = checkpoint.describe(tmp_path / "new")
  assert d.release is None and ".meta is ignored" in d.notes[0]
  assert d.loss_scales[0].value == 16384.0


def test_values_of_all_kinds(tmp_path):
  """Checks bytes with zeros at the end, bfloat16 and scalars."""
  values = {"text": b"a\0", "texts": [b"", b"\xff\0"]}
  values["half"] = tf.constant(1.5, tf.bfloat16)
  prefix = save_tensors(tmp_path, values)
  opened = reading.Checkpoint(prefix)
  assert opened.read("text").item() == b"a\0"
  assert opened.read("texts").tolist() == [b"", b"\xff\0"]
  assert opened.read_scalar("half") == 1.5
  assert opened.specs["half"] == reading.TensorSpec("bfloat16", ())
  for name in ("text", "texts", "missing"):
    with pytest.raises(checkpoint.CheckpointError, match=name):
      opened.read_scalar(name)


@pytest.mark.parametrize("seed", range(30))
def test_damage_is_an_error_or_harmless(seed, tmp_path):
  """Checks damaged files: one line, or all values are as they were."""
  rng = random.Random(seed)
  source = [_SESSION, _OBJECTS][seed % 2]
  folder = tmp_path / "new"
  shutil.copytree(source, folder)
  expected = checkpoint.describe(source)
  path = rng.choice(
    [p for p in sorted(folder.iterdir()) if p.is_file() and p.suffix != ".meta"]
  )
  data = bytearray(path.read_bytes())
  how = rng.choice(["flip", "flip", "cut", "insert", "remove", "empty"])
  at = rng.randrange(len(data))
  if how == "flip":
    data[at] ^= 1 << rng.randrange(8)
  elif how == "cut":
    data = data[:at]
  elif how == "insert":
    data[at:at] = rng.randbytes(9)
  path.write_bytes(b"" if how == "empty" else data)
  if how == "remove":
    path.unlink()
  try:
    found = checkpoint.describe(folder)
  except checkpoint.CheckpointError as error:
    assert len(str(error).splitlines()) == 1 and str(folder) in str(error)
  else:
    assert found.keys == expected.keys
    assert found.loss_scales == expected.loss_scales


def test_too_little_memory_is_said_to_be_that(monkeypatch):
  opened = reading.Checkpoint(f"{_SESSION}/model.ckpt-10")

  class Reader:
    def get_tensor(self, name):
      raise MemoryError

  monkeypatch.setattr(opened, "_reader", Reader())
  with pytest.raises(checkpoint.CheckpointError, match="not enough memory"):
    opened.read("w")


def upload(folder, remote):
  """Copies a folder's files to one of TensorFlow's file systems."""
  for path in folder.rglob("*"):
    if path.is_file():
      there = f"{remote}/{path.relative_to(folder)}"
      tf.io.gfile.makedirs(os.path.dirname(there))
      tf.io.gfile.copy(str(path), there)


def test_other_file_systems(tmp_path):
  """Checks what a checkpoint on `ram://` gives, by all of its paths."""
  upload(_SESSION, "ram://session")
  here = checkpoint.describe(_SESSION, verify=True).__dict__
  for path in ("", "/", "/checkpoint", "/model.ckpt-10", "/model.ckpt-10.meta"):
    there = checkpoint.describe(f"ram://session{path}", verify=True)
    assert there.path.endswith("model.ckpt-10")
    assert there.path.startswith("ram://")
    assert there.__dict__ | {"path": here["path"]} == here
  checkpoint.convert("ram://session", tmp_path / "a", "saver-v2")
  checkpoint.convert(_SESSION, tmp_path / "b", "saver-v2")
  a, b = (reading.Checkpoint(f"{tmp_path}/{n}") for n in "ab")
  assert a.specs == b.specs
  for name in a.specs:
    assert np.array_equal(a.read(name), b.read(name))
  tf.io.gfile.rmtree("ram://session")
