# SPDX-License-Identifier: Apache-2.0
"""Tests how a checkpoint is found by its folder or by its prefix.

The state is a folder's file `checkpoint`, which names the latest checkpoint.
"""

import contextlib
import os
import pathlib
import tempfile

import helpers
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import paths
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1
_NAMES = (
  *("model", "ä", "日本", "😀", "\u0130\u0307", 'quo"te', "sin'gle", "both'\""),
  *("back\\slash", "\\303\\244", "\\x41", "ends\\", "new\nline", "tab\t\r"),
  *("# hash", "{brace}", "<a: 'b'>", "a, b; c", " blank ", "\x01\x7f\x80\xff"),
  *("model.ckpt", "x.index", "model_checkpoint_path: ", "percent %s {}"),
)
_named = pytest.mark.parametrize("name", _NAMES, ids=ascii)


def save(prefix, value=1.0):
  """Writes a checkpoint of one variable."""
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=value)
    session.run(v.initializer)
    return tf1.train.Saver().save(session, str(prefix), write_state=False)


def put(prefix):
  """Creates an empty index, which is enough for a checkpoint to be found."""
  pathlib.Path(f"{prefix}.index").touch()


@_named
@pytest.mark.parametrize("relative", [False, True])
def test_states_that_tensorflow_writes(name, relative, tmp_path):
  folder = tmp_path / f"in {name}"
  folder.mkdir()
  put(folder / name)
  written = name if relative else str(folder / name)
  tf1.train.update_checkpoint_state(str(folder), written, ["other", written])
  state = tf.train.get_checkpoint_state(str(folder))
  assert state.model_checkpoint_path == str(folder / name)
  assert paths.find(str(folder)).path == str(folder / name)
  latest = tf.train.latest_checkpoint(str(folder))
  # TensorFlow searches by a glob pattern, in which a backslash is an escape.
  assert latest == str(folder / name) or "\\" in name


@_named
def test_folders_that_were_moved(name, tmp_path):
  put(tmp_path / name)
  tf1.train.update_checkpoint_state(str(tmp_path), f"/elsewhere/{name}")
  assert paths.find(str(tmp_path)).path == str(tmp_path / name)


@pytest.mark.parametrize("name", ["ä", "日本 \"'", "new\nline"], ids=ascii)
def test_what_a_saver_saves(name, tmp_path):
  folder = tmp_path / name
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=1.0)
    session.run(v.initializer)
    saver = tf1.train.Saver()
    for step in range(3):
      saver.save(session, str(folder / name), global_step=step)
  latest = tf.train.latest_checkpoint(str(folder))
  assert latest == str(folder / f"{name}-2")
  assert paths.find(str(folder)).path == latest


@pytest.mark.parametrize(
  "text",
  [
    'model_checkpoint_path : "model"',
    '\ufeff\n# "of" {it}\n\t model_checkpoint_path:"model"'[1:],
    "model_checkpoint_path: 'model'",
    "model_checkpoint_path: 'mo' \"de\" # A comment.\n  'l'",
    'model_checkpoint_path: "m\\157\\x64\\145\\x6C"',
    'all_model_checkpoint_paths: "x"; model_checkpoint_path: "model",',
    'all_model_checkpoint_paths: ["x", \'y\'] model_checkpoint_path: "model"',
    'model_checkpoint_path: "old"\nmodel_checkpoint_path: "model"',
    'model_checkpoint_path: "model"\r\nall_model_checkpoint_paths: "old"\r\n',
    'all_model_checkpoint_timestamps: -1.5e+9 model_checkpoint_path: "model" '
    "last_preserved_timestamp: inf",
  ],
)
def test_any_text_format(text, tmp_path):
  put(tmp_path / "model")
  (tmp_path / "checkpoint").write_text(text, "utf-8")
  expected = str(tmp_path / "model")
  assert tf.train.latest_checkpoint(str(tmp_path)) == expected
  assert paths.find(str(tmp_path)).path == expected


def test_escapes_that_protobuf_for_python_leaves(tmp_path):
  """Checks escapes that protobuf reads in other languages than Python."""
  put(tmp_path / "?AäÄ😀")
  (tmp_path / "checkpoint").write_text(
    r'model_checkpoint_path: "\?\X41\u00e4\U000000c4\U0001f600"'
  )
  assert paths.find(str(tmp_path)).path == str(tmp_path / "?AäÄ😀")


def test_fields_that_this_release_does_not_know(tmp_path):
  put(tmp_path / "model")
  (tmp_path / "checkpoint").write_text(
    'model_checkpoint_path: "model"\n'
    'a_message { model_checkpoint_path: "other" b < c: "}" > }\n'
    'd: "e"\n'
  )
  assert paths.find(str(tmp_path)).path == str(tmp_path / "model")


@hypothesis.settings(deadline=None, max_examples=150, derandomize=True)
@hypothesis.given(
  st.lists(
    st.one_of(
      st.sampled_from(
        [
          *(r"\303\244", r"\xc3\xa4", r"\xc3\244", r"\a\b\f\n\r\t\v"),
          *(r"\'\"\\", r"\1", r"\12", r"\0601", r"\x9", r"\x9g", r"\x411"),
          *(r"\377", r"\q", r"\x", "#", "é", "{"),
        ]
      ),
      st.text(st.characters(blacklist_characters="\"'\\\n\0/"), max_size=9),
    ),
    min_size=1,
  ),
  st.sampled_from("'\""),
)
def test_escapes(pieces, quote):
  text = "".join(pieces)
  hypothesis.assume(text.encode("utf-8", "replace").decode() == text)
  text = f"model_checkpoint_path: {quote}{text}{quote}"
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / "checkpoint").write_bytes(text.encode())
    try:
      state = tf.train.get_checkpoint_state(str(folder))
    except ValueError:  # The path is missing or empty.
      state = None
    if state is None:
      with pytest.raises(CheckpointError):
        paths.find(str(folder))
    else:
      found = paths._read_latest(str(folder / "checkpoint"))
      assert os.path.join(folder, found) == state.model_checkpoint_path


@pytest.mark.parametrize(
  ("text", "what"),
  [
    ('model_checkpoint_path: "model', "line 1 is no text"),
    ('\n\nmodel_checkpoint_path: "mo\ndel"', "line 3 is no text"),
    ("model_checkpoint_path: model", "names no model_checkpoint_path"),
    ('model_checkpoint_path: ""', "names no model_checkpoint_path"),
    ('all_model_checkpoint_paths: "model"', "names no model_checkpoint_path"),
    ('model_checkpoint_path: "\\Uffffffff"', "decode"),
    ('model_checkpoint_path: "model\\000"', "is missing"),
    ('model_checkpoint_path: "gone"', "'gone' as the latest .* is missing"),
    ("\0\1\2", "line 1 is no text"),
  ],
)
def test_states_that_name_nothing(text, what, tmp_path):
  put(tmp_path / "model")
  (tmp_path / "checkpoint").write_text(text)
  with pytest.raises(CheckpointError, match=what) as error:
    paths.find(str(tmp_path))
  assert str(tmp_path) in str(error.value)
  assert len(str(error.value).splitlines()) == 1


def test_the_state_itself_means_its_folder(tmp_path, monkeypatch):
  """Checks the paths of states, also of a state with a name of its own."""
  for name in ("a", "b", "c"):
    put(tmp_path / name)
  (tmp_path / "checkpoint").write_text('model_checkpoint_path: "b"')
  (tmp_path / "latest").write_text('model_checkpoint_path: "a"')
  assert paths.find(f"{tmp_path}/checkpoint").path == f"{tmp_path}/b"
  assert paths.find(f"{tmp_path}/latest").path == f"{tmp_path}/a"
  monkeypatch.chdir(tmp_path)
  assert paths.find("checkpoint").path == "b"
  put(tmp_path / "checkpoint")  # A checkpoint of that name comes first.
  assert paths.find("checkpoint").path == "checkpoint"


@pytest.mark.parametrize(
  "path", ["", "/saved_model.pb", "/variables", "/variables/variables"]
)
def test_paths_of_a_saved_model(path, tmp_path):
  (tmp_path / "saved_model.pb").touch()
  with pytest.raises(CheckpointError):
    paths.find(str(tmp_path) + path)
  (tmp_path / "variables").mkdir()
  put(tmp_path / "variables" / "variables")
  assert paths.find(str(tmp_path) + path) == paths.Found(
    f"{tmp_path}/variables/variables", "saved_model", str(tmp_path)
  )


@pytest.mark.parametrize("named", ["checkpoint", "other"])
def test_states_that_name_states(named, tmp_path):
  for name, other in (("checkpoint", named), ("other", "checkpoint")):
    (tmp_path / name).write_text(f'model_checkpoint_path: "{other}"')
  for path in (tmp_path, tmp_path / "checkpoint", tmp_path / "other"):
    with pytest.raises(CheckpointError, match="which is missing"):
      paths.find(str(path))


def write_v1(folder, sharded):
  """Saves in TensorFlow's first format; returns the path that Saver takes."""
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=1.0)
    session.run(v.initializer)
    saver = tf1.train.Saver(
      write_version=tf1.train.SaverDef.V1, sharded=sharded
    )
    return saver.save(session, str(folder / "model"), 7)


@pytest.mark.parametrize("sharded", [False, True])
def test_the_first_format(sharded, tmp_path, capsys):
  """Checks the error, and that TensorFlow restores the file as it says."""
  written = write_v1(tmp_path, sharded)
  prefix = tmp_path / "model-7"
  paths_to_try = [written, prefix, f"{prefix}.meta", tmp_path]
  if sharded:
    paths_to_try.append(f"{prefix}-00000-of-00001")
  for path in paths_to_try:
    with pytest.raises(CheckpointError, match=r"\(V1\).*train\.Saver restores"):
      paths.find(str(path))
  for command in (
    ["inspect", written],
    ["convert", written, str(tmp_path / "new"), "--to=saver-v2"],
  ):
    with contextlib.suppress(SystemExit):
      assert cli.main(command) == 2
    err = capsys.readouterr().err
    assert "first format" in err and err.count("\n") == 1
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=0.0)
    for restore in (
      lambda: checkpoint.Saver().restore(session, written),
      lambda: checkpoint.restore(session, written),
    ):
      with pytest.raises(CheckpointError, match="first format"):
        restore()
    tf1.train.Saver().restore(session, written)
    np.testing.assert_equal(session.run(v), 1.0)


@pytest.mark.parametrize(
  ("name", "data", "what"),
  [
    ("w.h5", b"\x89HDF\r\n\x1a\n", "HDF5 file.*keras.load_model"),
    ("w.keras", b"PK\x03\x04", "zip file.*keras.load_model"),
    ("w.npz", b"PK\x03\x04", "numpy.load reads it"),
    (
      "w.safetensors",
      b"\x02" + bytes(7) + b"{}",
      "safetensors.numpy.load_file",
    ),
    ("train-00000-of-00001", b"a record", "no checkpoint: name the prefix"),
    ("empty", b"", "no checkpoint: name the prefix"),
  ],
)
def test_files_of_other_kinds(name, data, what, tmp_path):
  (tmp_path / name).write_bytes(data)
  with pytest.raises(CheckpointError, match=what):
    paths.find(str(tmp_path / name))


def test_names_that_are_no_text(tmp_path):
  """Checks that the name of a checkpoint may be any bytes."""
  prefix = str(tmp_path / os.fsdecode(b"\xff\xe4"))
  put(prefix)
  (tmp_path / "checkpoint").write_text(r'model_checkpoint_path: "\377\344"')
  assert paths.find(str(tmp_path)).path == prefix


def test_a_folder_called_as_a_prefix(tmp_path):
  """Checks that a path means the prefix, as it does to TensorFlow's Saver."""
  prefix = save(tmp_path / "model", 1.0)
  (tmp_path / "model").mkdir()
  inner = save(tmp_path / "model" / "model", 2.0)
  (tmp_path / "model" / "checkpoint").write_text(
    'model_checkpoint_path: "model"'
  )
  assert paths.find(prefix).path == prefix
  assert paths.find(f"{prefix}.index").path == prefix
  assert paths.find(f"{prefix}/").path == inner  # No prefix ends so.
  with tf.Graph().as_default(), tf1.Session() as session:
    v = tf1.get_variable("v", initializer=0.0)
    tf1.train.Saver().restore(session, prefix)
    np.testing.assert_equal(session.run(v), 1.0)
  # The state may name the prefix, too.
  (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model"')
  assert paths.find(str(tmp_path)).path == prefix


def test_a_folder_beside_a_folder_called_as_an_index(tmp_path):
  inner = save(tmp_path / "model" / "inner")
  (tmp_path / "model.index").mkdir()
  assert paths.find(str(tmp_path / "model")).path == inner


if __name__ == "__main__":
  helpers.main()
