# SPDX-License-Identifier: Apache-2.0
"""Tests that a restore by name gives variables their values, or an error."""

import os

import helpers
import role_programs
from role_programs import build
from role_programs import find_started_anew
from role_programs import GAN
from role_programs import get_program
from role_programs import get_values
from role_programs import PAIRS
from role_programs import Program
from role_programs import restore_program
from role_programs import save_program
from role_programs import variables
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint.layouts import dataflow

tf1 = tf.compat.v1

_folder_of_programs = role_programs.folder_of_programs


@pytest.mark.parametrize(
  ("pair", "here", "there"), helpers.pairs(PAIRS, ["v1", "v2"], ["v1", "v2"])
)
def test_with_a_meta_graph(pair, here, there, tmp_path):
  """Checks that all values are found: the graphs prove each match."""
  theirs, ours = PAIRS[pair]
  path, values = save_program(tmp_path, theirs, there == "v2")
  found, report = restore_program(path, ours, here == "v2")
  for key, value in found.items():
    if key in values:
      assert value == values[key], (key, report)
    else:
      assert value != -1  # The variable was initialized.
  initialized = {key for key in found if key not in values}
  assert len(find_started_anew(report)) == len(initialized)
  assert {key[1] for key in initialized} <= {
    *("loss_scale", "good_steps", "bad_steps")
  }


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("pair", "here", "there"), helpers.pairs(PAIRS, ["v1", "v2"], ["v1", "v2"])
)
def test_without_a_meta_graph(pair, here, there, tmp_path):
  """Checks that a restore is right, or that an error asks for a mapping."""
  theirs, ours = PAIRS[pair]
  path, values = save_program(tmp_path, theirs, there == "v2", meta=False)
  names = {name for name, _ in tf1.train.list_variables(path)}
  try:
    found, report = restore_program(path, ours, here == "v2")
  except checkpoint.CheckpointError as error:
    assert "nothing proves" in str(error) and "mapping={" in str(error)
    assert "--map" in str(error) and "\n" not in str(error)
    return
  if not report.bridged and not report.initialized and not report.unused:
    assert set(report.restored) == names  # TensorFlow's Saver does the same.
    return
  given = {key for key in found if key in values}
  assert {key: found[key] for key in given} == {k: values[k] for k in given}
  assert len(find_started_anew(report)) == len(found) - len(given)


@pytest.mark.parametrize("v2", [False, True])
def test_moving_averages_as_weights(v2, tmp_path):
  """Checks that a loss scale is found if weights have other names."""

  def build_average():
    w = tf1.get_variable("w", [2], use_resource=True)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale()
    )
    average = tf.train.ExponentialMovingAverage(0.5)
    with tf1.control_dependencies([opt.minimize(tf.reduce_sum(w * w))]):
      average.apply([w])
    return average

  def build_variables():
    build_average()
    return {v.op.name: v for v in tf1.global_variables()}

  path, values = Program(build_variables, False).save(tmp_path)
  with helpers.control_flow(v2), tf.Graph().as_default():
    saved = build_average().variables_to_restore()
    saved = {key: v for key, v in saved.items() if "Adam" not in key}
    with tf1.Session() as session:
      checkpoint.Saver(saved).restore(session, path)
      got = get_values(session, saved)
  averaged = "w/ExponentialMovingAverage"
  assert got[averaged] == values[averaged]
  assert got["current_loss_scale"] == values["current_loss_scale"]


def test_a_converted_checkpoint_has_no_meta_graph_of_an_older_one(tmp_path):
  """Checks that an overwritten checkpoint's MetaGraph is removed."""
  (tmp_path / "old").mkdir()
  old, _ = save_program(tmp_path / "old", GAN[::-1], True)
  path, values = save_program(tmp_path, GAN, False)
  checkpoint.convert(path, old, "saver-v2", overwrite=True)
  assert not os.path.exists(f"{old}.meta")
  found, _ = restore_program(old, GAN, True)
  assert found == values


def test_a_meta_graph_that_is_older_is_not_of_the_checkpoint(tmp_path):
  path, _ = save_program(tmp_path, GAN, False)
  os.utime(f"{path}.meta", (0, 0))
  with pytest.raises(checkpoint.CheckpointError, match=r"'\.meta' file"):
    restore_program(path, [("", "dynamic")] * 2, True)


@pytest.mark.thorough
@pytest.mark.any_release
def test_many_missing_variables_are_no_long_wait(tmp_path):
  with tf.Graph().as_default(), tf1.Session() as session:
    variables(**{f"a{i}": 0.0 for i in range(300)})
    session.run(tf1.global_variables_initializer())
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  with tf.Graph().as_default(), tf1.Session() as session:
    variables(**{f"layer{i}": 0.0 for i in range(300)})
    with pytest.raises(checkpoint.CheckpointError, match="and 280 more"):
      checkpoint.restore(session, path)


def edit_meta_graph(path, edit):
  meta = tf1.MetaGraphDef()
  with open(f"{path}.meta", "rb") as file:
    meta.ParseFromString(file.read())
  edit(meta.graph_def)
  with open(f"{path}.meta", "wb") as file:
    file.write(meta.SerializeToString())


def read_itself(graph_def):
  """Makes each read op its own input, unlike any graph of TensorFlow."""
  for node in graph_def.node:
    if node.op == "ReadVariableOp":
      node.input[0] = node.name


def call_for_ever(graph_def):
  """Adds 40 functions, each of which calls the next twice: 2**40 calls."""
  for i in range(40):
    function = graph_def.library.function.add()
    function.signature.name = f"f{i}"
    for j in range(2 * (i < 39)):
      function.node_def.add(name=f"call{j}", op=f"f{i + 1}")
  graph_def.node.add(name="call", op="f0")


@pytest.mark.any_release
@pytest.mark.parametrize("edit", [read_itself, call_for_ever])
def test_a_strange_meta_graph_proves_nothing(edit, monkeypatch, tmp_path):
  monkeypatch.setattr(dataflow, "_LARGEST", 20_000)
  path, _ = save_program(tmp_path, GAN, False)
  edit_meta_graph(path, edit)
  match = "nothing proves|is not in it"
  with pytest.raises(checkpoint.CheckpointError, match=match):
    restore_program(path, [("", "dynamic")] * 2, True)


@pytest.mark.parametrize("meta", [False, True])
def test_an_exact_name_wins(meta, tmp_path):
  """Checks variables of the model in scopes that are named like conds."""
  program = Program(lambda: variables(cond__w=1.0, cond_1__w=2.0), False)
  path, values = program.save(tmp_path, meta)
  with tf.Graph().as_default(), tf1.Session() as session:
    here = variables(w=0.0, cond__w=0.0)
    try:
      checkpoint.restore(session, path)
    except checkpoint.CheckpointError as error:
      assert meta and "w is not in it" in str(error)
      report = checkpoint.restore(session, path, missing="initialize")
      assert report.initialized == {"w": "it is not in the checkpoint"}
    else:
      assert not meta and session.run(here["w"]) == values["cond_1__w"]
    assert session.run(here["cond__w"]) == values["cond__w"]


@pytest.mark.parametrize("meta", [False, True])
@pytest.mark.parametrize("pair", ["numbers", "three", "plain and wrapped"])
@pytest.mark.parametrize("there", ["v1", "v2"])
@pytest.mark.parametrize("here", ["v1", "v2"])
def test_converted_for_tensorflows_saver(pair, here, there, meta, tmp_path):
  """Checks that TensorFlow's Saver restores the right values."""
  optimizers = [
    (scope, "dynamic" if kind == "contrib" else kind)
    for scope, kind in PAIRS[pair][0]
  ]
  path, values = save_program(tmp_path, optimizers, there == "v2", meta)
  new = str(tmp_path / "new")
  layout = "saver" if here == "v1" else "saver-v2"
  try:
    checkpoint.convert(path, new, layout)
  except checkpoint.CheckpointError as error:
    assert not meta and here != there and "mapping={" in str(error)
    assert not list(tmp_path.glob("new*"))
    return
  program = get_program(optimizers, here == "v2")
  with program.session() as session:
    program.saver.restore(session, new)
    assert get_values(session, program.variables) == values


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize(
  "pair", ["numbers", "one outside", "three", "wrapped and plain"]
)
def test_the_same_layout_is_the_same_file(pair, v2, tmp_path):
  """Checks that no name changes, not even in scopes named like conds."""
  optimizers = [
    (scope, "dynamic" if kind == "contrib" else kind)
    for scope, kind in PAIRS[pair][0]
  ]
  program = Program(
    lambda: (
      build(*optimizers)
      | variables(cond__w=1.0, a__cond_3__b=2.0, cond_1__cond__c=0.0)
    ),
    v2,
  )
  path, _ = program.save(tmp_path)
  for meta in (True, False):
    done = checkpoint.convert(
      path, tmp_path / "new", "saver-v2" if v2 else "saver", overwrite=True
    )
    assert not done.renamed and not done.dropped and not done.added
    assert read_bytes(str(tmp_path / "new")) == read_bytes(path), meta
    if meta:
      os.remove(f"{path}.meta")


def read_bytes(path):
  """Returns name -> bytes for the tensors of a checkpoint."""
  reader = tf.train.load_checkpoint(path)
  return {
    name: reader.get_tensor(name).tobytes()
    for name, _ in tf1.train.list_variables(path)
  }


def test_missing_slots(tmp_path):
  path, values = save_program(tmp_path, [("", "none")], False)
  more = [("", "none"), ("", "none")]
  with pytest.raises(checkpoint.CheckpointError, match="w1/Adam"):
    restore_program(path, more, False)
  found, report = restore_program(path, more, False, missing="initialize")
  assert {n for n in report.initialized if n.startswith("w1")} == {
    *("w1", "w1/Adam", "w1/Adam_1")
  }
  assert {key: found[key] for key in values} == values
  with pytest.raises(ValueError, match="missing must be 'error' or 'init"):
    restore_program(path, more, False, missing="ignore")


@pytest.mark.any_release
def test_a_meta_graph_of_another_program_proves_nothing(tmp_path):
  path, _ = save_program(tmp_path, PAIRS["numbers"][0], False)
  for folder in ("other", "damaged"):
    (tmp_path / folder).mkdir()
  other, _ = save_program(tmp_path / "other", GAN, False)
  os.replace(f"{other}.meta", f"{path}.meta")
  with pytest.raises(checkpoint.CheckpointError, match="nothing proves"):
    restore_program(path, [("", "dynamic")] * 2, True)
  with open(f"{path}.meta", "r+b") as file:
    file.truncate(1000)
  with pytest.raises(checkpoint.CheckpointError, match="nothing proves"):
    restore_program(path, [("", "dynamic")] * 2, True)


if __name__ == "__main__":
  helpers.main()
