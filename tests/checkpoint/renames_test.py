# SPDX-License-Identifier: Apache-2.0
"""Tests mappings of scopes in random programs.

A program has one to three parts: weights in a scope, an optimizer in the scope
or outside, perhaps parts of a partitioned variable, and averages. The program
that restores has other scopes. All values are right, or there is an error; the
same is true of a conversion that TensorFlow's own Saver restores:

  RENAMED_PROGRAMS=200 pytest tests/checkpoint/renames_test.py
"""

import collections
import contextlib
import os
import random

import numpy as np
import pytest
import role_programs
from role_programs import Program
from saved_graphs import save_tensors
from saved_graphs import variable
import tensorflow as tf

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1
_folder_of_programs = role_programs.folder_of_programs
_PROGRAMS = int(os.environ.get("RENAMED_PROGRAMS", 12))
_SCOPES = ("", "a/", "b/", "a/c/", "enc/", "net/")


def build(parts, scopes):
  """Builds a program; returns role -> variable."""
  found = {}
  for i, (part, scope) in enumerate(zip(parts, scopes)):
    inner, kind, is_inside, is_partitioned, is_averaged = part
    inner = role_programs.INNER[inner]()
    parted = tf1.fixed_size_partitioner(2) if is_partitioned else None
    with contextlib.ExitStack() as stack:
      if scope:
        stack.enter_context(tf1.variable_scope(scope[:-1]))
      weight = tf1.get_variable(
        f"w{i}", [4], partitioner=parted, use_resource=True
      )
      weights = [*weight] if is_partitioned else [weight]
      if not is_inside:
        stack.close()
      opt, scale = role_programs.wrap(inner, kind)
      loss = tf.reduce_sum(tf.convert_to_tensor(weight) ** 2)
      opt.minimize(loss, var_list=weights)
      averages = tf1.train.ExponentialMovingAverage(0.9)
      if is_averaged:
        averages.apply(weights)
    for k, each in enumerate(weights):
      found[i, "w", k] = each
      for slot in inner.get_slot_names():
        found[i, slot, k] = inner.get_slot(each, slot)
      if is_averaged:
        found[i, "average", k] = averages.average(each)
    if isinstance(inner, tf1.train.AdamOptimizer):
      powers = inner._get_beta_accumulators()
      found[i, "beta1"], found[i, "beta2"] = powers
    for name, weight in scale._weights.items() if scale else ():
      found[i, name.replace("current_", "")] = weight
  return found


def draw(rng):
  """Draws the parts of a program, and the scopes there and here."""
  count = rng.randrange(1, 4)
  kinds = rng.choice([["dynamic"], ["dynamic", "plain"], ["contrib"]])
  parts = [
    (
      rng.choice(["adam", "adam", *role_programs.INNER]),
      rng.choice(kinds),
      rng.random() < 0.5,
      rng.random() < 0.3,
      rng.random() < 0.3,
    )
    for _ in range(count)
  ]
  there = rng.sample(_SCOPES, count)
  return parts, there, [rng.choice([s, *_SCOPES]) for s in there]


def run(seed, folder):
  """Restores and converts a program; yields what became of it."""
  rng = random.Random(seed)
  parts, there, here = draw(rng)
  if len(set(here)) < len(here):
    here = rng.sample(_SCOPES, len(parts))
  v2, is_single = rng.random() < 0.5, rng.random() < 0.3
  mapping = {h: t for h, t in zip(here, there) if h != t}
  if is_single:
    mapping = {
      f"{h}w{i}": f"{t}w{i}"
      for i, (h, t) in enumerate(zip(here, there))
      if h != t
    }
  story = seed, parts, there, here, v2, mapping
  old = Program(lambda: build(parts, there), v2)
  path, values = old.save(folder)
  for flow in (v2, not v2):
    new = Program(lambda: build(parts, here), flow)
    try:
      with new.session() as session:
        checkpoint.restore(session, path, mapping=mapping)
        found = role_programs.get_values(session, new.variables)
    except checkpoint.CheckpointError:
      yield "refused"
    else:
      assert found == values, story
      yield "restored"
    kinds = {kind for _, kind, *_ in parts}
    if flow != v2 or (v2 and "contrib" in kinds):
      continue
    to = "contrib" if "contrib" in kinds else "saver-v2" if v2 else "saver"
    try:
      checkpoint.convert(
        path, str(folder / "new"), to, mapping=mapping, overwrite=True
      )
      with new.session() as session:
        new.saver.restore(session, str(folder / "new"))
        found = role_programs.get_values(session, new.variables)
    except (checkpoint.CheckpointError, tf.errors.NotFoundError):
      yield "no conversion"
    else:
      assert found == values, story
      yield "converted"


@pytest.mark.any_release
def test_all_is_right_or_refused(tmp_path):
  outcomes = collections.Counter(
    outcome for seed in range(_PROGRAMS) for outcome in run(seed, tmp_path)
  )
  print(outcomes)
  assert outcomes["restored"] > outcomes["refused"]
  assert outcomes["converted"]


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("mapping", "expected"),
  [
    # An encoder under another prefix, and a head that is new.
    ({"new/": "old/", "head/": None}, {"new/w": "old/w", "head/w": None}),
    ({"": "old/"}, {"w": "old/w", "v": "old/v"}),
    ({"new/": ""}, {"new/w": "w", "w": "w"}),
    # Two towers from one; two scopes change places.
    ({"u/": "old/"}, {"old/w": "old/w", "u/w": "old/w"}),
    ({"b/": "old/", "old/": "b/"}, {"b/w": "old/w", "old/w": "b/w"}),
    # A longer scope, and a single name with its slots.
    ({"a/": "b/", "a/d/": "old/"}, {"a/w": "b/w", "a/d/w": "old/w"}),
    ({"a/": "b/", "a/w": "old/v"}, {"a/w": "old/v"}),
    ({"w": None}, {"w": None, "b/w": "b/w"}),
    ({"": ""}, {"w": "w", "b/w": "b/w"}),
    ({"": "odl/"}, "no scope 'odl/' .nearest: old/"),
    ({"nwe/": "old/"}, "the program has no scope 'nwe/'"),
    ({"new/": "old"}, "from a scope to a scope"),
    ({"w": "old/w", "w/Adam": "nope"}, "'nope'.*not in the checkpoint"),
    ({"c/": "b/"}, "no name is in both scopes"),
  ],
)
def test_scopes(mapping, expected, tmp_path):
  ends = ("", "/Adam")
  listed = ["w", "old/w", "old/v", "b/w"]
  values = {n + end: [float(len(n + end))] for n in listed for end in ends}
  path = save_tensors(tmp_path, values)
  heres = ["new/w", "w", "c/v"] if isinstance(expected, str) else expected
  with tf.Graph().as_default(), tf1.Session() as session:
    made = {n + end: variable(n + end, [9.0]) for n in heres for end in ends}
    for restore in (
      lambda: checkpoint.restore(session, path, mapping=mapping),
      lambda: checkpoint.Saver(mapping=mapping).restore(session, path),
    ):
      session.run(tf1.global_variables_initializer())
      if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
          restore()
        continue
      restore()
      for name, value in session.run(made).items():
        weight, *slot = name.split("/Adam")
        there = expected[weight]
        key = f"{there}/Adam" if slot else there
        assert value == (values[key] if there else [9.0]), name


@pytest.mark.any_release
def test_the_command_line(tmp_path, capsys):
  """Checks `convert` and `inspect`, also of names that collide."""
  path = save_tensors(tmp_path, dict.fromkeys(["a/w", "a/w/Adam", "w"], 1.0))
  new = str(tmp_path / "new")
  assert cli.main(["inspect", path, "--map=b/=a/"]) == 0
  assert "map: b/w/Adam from a/w/Adam\n" in capsys.readouterr().out
  assert cli.main(["convert", path, new, "--to=saver", "--map=b/=a/"]) == 0
  assert {*checkpoint.describe(new).keys} == {"b/w", "b/w/Adam", "w"}
  assert (
    "mapping={'b/': 'a/'} decides on 2 variables" in capsys.readouterr().out
  )
  with pytest.raises(SystemExit):
    cli.main(["convert", path, f"{new}2", "--to=saver", "--map==a/"])
  assert "--map NAME=" in capsys.readouterr().err


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("pair", "expected"),
  [
    (("c/v", "a/b/w"), {"c/v", "c/c/v/Adam", "c/v/Average"}),
    (("c/b/v", "a/b/w"), {"c/b/v", "c/c/b/v/Adam", "c/b/v/Average"}),
    (("v", "a/b/w"), {"v", "v/Adam", "v/Average"}),
    # `b` is the end of this scope's name, but no scope in it.
    (("c/bb/v", "a/b/w"), {"c/bb/v", "a/c/bb/v/Adam", "c/bb/v/Average"}),
  ],
)
def test_a_conversion_moves_the_scope_before_a_slot(pair, expected, tmp_path):
  """Checks a slot that was made in the variable scope `a`, or `a/b`."""
  scope = "a/" if pair[0].startswith("c/b") else "a/b/"
  listed = ["a/b/w", f"{scope}a/b/w/Adam", "a/b/w/Average"]
  path = save_tensors(tmp_path, dict.fromkeys(listed, 1.0))
  checkpoint.convert(path, tmp_path / "new", "saver", mapping=dict([pair]))
  assert {*checkpoint.describe(tmp_path / "new").keys} == expected


@pytest.mark.any_release
def test_weights_alone_do_not_change_scopes(tmp_path):
  """Checks single names where equal names of powers are another's."""
  parts = [("adam", "plain", True, False, False)] * 2
  old = Program(lambda: build(parts, ["a/", "b/"]), True)
  new = Program(lambda: build(parts, ["b/", "a/"]), True)
  path, values = old.save(tmp_path)
  mapping = {"b/w0": "a/w0", "a/w1": "b/w1"}
  for change in (
    lambda: new.restore(path, mapping=mapping),
    lambda: checkpoint.convert(path, tmp_path / "x", "saver", mapping=mapping),
  ):
    with pytest.raises(checkpoint.CheckpointError, match=r"\{'b/': 'a/'\}"):
      change()
  found, _ = new.restore(path, mapping={"b/": "a/", "a/": "b/"})
  assert found == values


def test_objects_by_name(tmp_path):
  path = save_tensors(tmp_path, {"old/w": [1.0], "old/w/Momentum": [2.0]})
  w = tf.Variable([0.0], name="w")
  optimizer = tf1.train.MomentumOptimizer(0.1, 0.9)
  optimizer.apply_gradients([(tf.zeros_like(w), w)])
  objects = {"w": w, "optimizer": optimizer}
  checkpoint.restore(None, path, objects, mapping={"": "old/"})
  assert w.numpy() == [1] and optimizer.get_slot(w, "momentum").numpy() == [2]


def test_a_scaffold(tmp_path):
  save_tensors(tmp_path, {"old/w": [1.0], "global_step": np.int64(3)})
  tf1.train.update_checkpoint_state(str(tmp_path), str(tmp_path / "old"))
  with tf.Graph().as_default():
    step = tf1.train.get_or_create_global_step()
    w = variable("w", [0.0])
    with tf1.train.MonitoredTrainingSession(
      checkpoint_dir=str(tmp_path),
      scaffold=checkpoint.Scaffold(mapping={"": "old/"}),
    ) as session:
      assert session.run([w, step]) == [[1.0], 3]
