# SPDX-License-Identifier: Apache-2.0
"""Tests that a restore by object gives variables their values, or an error.

Before saving, every variable gets a different value, so a value shows which
variable it was saved from.
"""

import contextlib
import random

import numpy as np
from object_models import INNER
from object_models import Model
from object_models import WRAPPERS
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1
_STATE = {"scale", "good", "bad"}


@contextlib.contextmanager
def mode(graph):
  """Yields the session of a new graph, or None to run eagerly."""
  if graph:
    with tf.Graph().as_default(), tf1.Session() as session:
      yield session
  else:
    yield None


def saved(spec, folder, graph=False):
  """Saves a model; returns the path and role -> value."""
  with mode(graph) as session:
    model = Model(spec, session).train().stamp(100)
    return model.save(folder), model.values()


def assert_complete(report, model):
  """Checks that every variable is in the report exactly once."""
  parts = (report.restored, report.bridged, report.initialized, report.kept)
  names = [name for part in parts for name in part]
  assert len(names) == len(set(names)) == len(model.roles()), report
  assert set(report.proofs) == set(report.bridged)


def get_initial_values(spec, graph):
  """Returns role -> initial value."""
  with mode(graph) as session:
    model = Model(spec, session)
    if graph:
      return model.train().values()
    for _, opt, w, b in model.parts:
      opt._create_slots([w, b])
    return model.values()


@pytest.mark.parametrize("here", list(WRAPPERS))
@pytest.mark.parametrize("there", list(WRAPPERS))
def test_any_optimizers(there, here, tmp_path):
  """Checks a pair of wrappers, with random other properties."""
  rng = random.Random(f"{there} {here}")
  source = [(rng.choice(list(INNER)), there)]
  if rng.random() < 0.5:
    source.append((rng.choice(list(INNER)), rng.choice(list(WRAPPERS))))
  same = rng.random() < 0.7
  target = [
    (inner if same else rng.choice(list(INNER)), rng.choice(list(WRAPPERS)))
    for inner, _ in source
  ]
  target[0] = (target[0][0], here)
  from_graph, graph = rng.random() < 0.5, rng.random() < 0.5
  missing = rng.choice(["error", "initialize"])
  path, truth = saved(source, tmp_path, from_graph)
  initial = get_initial_values(target, graph)
  with mode(graph) as session:
    model = Model(target, session).train().stamp(1000)
    before = model.values()
    try:
      report = model.restore(path, missing=missing)
    except checkpoint.CheckpointError as error:
      assert model.values() == before
      if "have other meanings" in str(error):
        inners = [{a[0], b[0]} for a, b in zip(source, target)]
        assert {"momentum", "rmsprop"} in inners
        return
      assert missing == "error"
      wanted = {role for role in before if role.split("/")[1] not in _STATE}
      assert wanted - set(truth)
      return
    assert_complete(report, model)
    for role, value in model.values().items():
      if role in truth:
        assert value == truth[role], (role, report)
      elif role.endswith("bad") and role.replace("bad", "good") in truth:
        assert value == 0
      elif role in before:
        is_state = role.split("/")[1] in _STATE
        assert missing == "initialize" or is_state
        # Eagerly, other variables keep their values.
        wanted = initial if graph or is_state else before
        assert value == wanted[role], (role, report)


def test_slots_that_are_not_there(tmp_path):
  path, _ = saved([("sgd", "dynamic")], tmp_path)
  model = Model([("adagrad", "dynamic")]).train().stamp(1000)
  before = model.values()
  what = "w0/.*/opt0/base_optimizer/accumulator.*missing='initialize'"
  with pytest.raises(checkpoint.CheckpointError, match=what):
    model.restore(path)
  assert model.values() == before


def test_a_scale_of_an_unknown_optimizer_is_no_new_scale(tmp_path):
  """Checks that a loss scale which may have another path is no new one."""
  path, _ = saved([("sgd", "dynamic")], tmp_path)
  model = Model([("sgd", "dynamic")]).train()
  objects = {"optimizer": model.objects["opt0"], "w0": model.objects["w0"]}
  with pytest.raises(checkpoint.CheckpointError, match="loss_scale"):
    checkpoint.restore(None, path, objects)


def test_slots_of_variables_that_are_no_objects(tmp_path):
  path, _ = saved([("adam", "dynamic")], tmp_path)
  model = Model([("adam", "dynamic")]).train().stamp(1000)
  del model.objects["b0"]
  before = model.values()
  report = model.restore(path)
  for role in ("0/b", "0/b/m", "0/b/v"):
    assert model.values()[role] == before[role]
  assert "b0/.ATTRIBUTES/VARIABLE_VALUE" in report.unused


@pytest.mark.any_release
def test_what_is_one_here_and_two_there(tmp_path):
  """Checks variables with two paths, there or here."""
  a, b, w = (tf.Variable(float(i)) for i in (2, 3, 1))
  path = tf.train.Checkpoint(a=w, b=w).save(str(tmp_path / "one"))
  with pytest.raises(checkpoint.CheckpointError, match="a and b are two"):
    checkpoint.restore(None, path, {"a": a, "b": b})
  assert (float(a), float(b)) == (2, 3)
  other = tf.train.Checkpoint(a=a, b=b).save(str(tmp_path / "two"))
  with pytest.raises(checkpoint.CheckpointError, match="a is one variable"):
    checkpoint.restore(None, other, {"a": w, "b": w})
  assert float(w) == 1
  checkpoint.restore(None, other, {"b": w})
  assert float(w) == 3
  for objects in ({"a": a}, {"b": b}):
    checkpoint.restore(None, path, objects)
  assert (float(a), float(b)) == (1, 1)


@pytest.mark.parametrize("fixed", [0, 1])
def test_a_loss_scale_that_two_had(fixed, tmp_path):
  """Checks that a shared scale goes to the optimizer that is still dynamic."""
  scale = tfl.DynamicLossScale(512.0)
  opts = [
    tfl.MixedPrecisionLossScaleOptimizer(INNER["sgd"](), scale)
    for _ in range(2)
  ]
  root = tf.train.Checkpoint(a=opts[0], b=opts[1])
  path = root.save(str(tmp_path / "ckpt"))
  opts = [WRAPPERS["dynamic"](INNER["sgd"]()) for _ in range(2)]
  objects = dict(zip("ab", opts))
  with pytest.raises(checkpoint.CheckpointError, match="two variables here"):
    checkpoint.restore(None, path, objects)
  objects["ab"[fixed]] = WRAPPERS["fixed"](INNER["sgd"]())
  report = checkpoint.restore(None, path, objects)
  assert float(opts[1 - fixed].loss_scale()) == 512.0
  assert len(report.restored) == 2


@pytest.mark.parametrize("first", ["alias", "opt"])
@pytest.mark.parametrize("source", ["plain", "dynamic"])
def test_an_optimizer_by_two_paths(first, source, tmp_path):
  """Checks an optimizer that has a path beside the path by the wrapper."""

  def objects_of(model):
    outer, opt, w, b = model.parts[0]
    named = {"alias": opt, "opt": outer}
    rest = {"w": w, "b": b}
    return {first: named[first]} | named | rest

  model = Model([("adam", source)]).train().stamp(100)
  truth = model.values()
  root = tf.train.Checkpoint(**objects_of(model))
  path = root.save(str(tmp_path / "ckpt"))
  for target in ("plain", "dynamic"):
    model = Model([("adam", target)]).train().stamp(1000)
    report = checkpoint.restore(None, path, objects_of(model))
    assert_complete(report, model)
    for role, value in model.values().items():
      assert value == truth.get(role, value), role
      assert value < 1000, role


def test_a_trackable_as_the_objects(tmp_path):
  def made(value):
    module = tf.Module()
    module.w = tf.Variable(value)
    return tf.train.Checkpoint(module, x=tf.Variable(value))

  path = made(1.0).save(str(tmp_path / "ckpt"))
  root = made(2.0)
  report = checkpoint.restore(None, path, root.root)
  assert report.restored == {"w": "w/.ATTRIBUTES/VARIABLE_VALUE"}
  assert (float(root.root.w), float(root.x)) == (1.0, 2.0)
  root = made(2.0)
  report = checkpoint.restore(None, path, root)
  assert set(report.restored) == {"w", "x"}
  assert (float(root.root.w), float(root.x)) == (1.0, 1.0)


@pytest.mark.any_release
def test_a_graph_needs_a_session(tmp_path):
  path, _ = saved([("sgd", "plain")], tmp_path)
  with tf.Graph().as_default():
    x = tf1.Variable(np.ones(2, "f"), use_resource=True)
    with pytest.raises(ValueError, match="session is None"):
      checkpoint.restore(None, path, {"w0": x})
