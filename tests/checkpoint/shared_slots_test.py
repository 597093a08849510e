# SPDX-License-Identifier: Apache-2.0
"""Tests slots of several optimizers of one name on one variable.

`A` and `B` are two optimizers. Their slots are numbered in the order of their
creation, so in another program `w/Adam` may be the other optimizer's.
"""

import functools

import helpers
import role_programs
from role_programs import get_values
from role_programs import Program
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1

_folder_of_programs = role_programs.folder_of_programs

_KINDS = {
  "adam": lambda: tf1.train.AdamOptimizer(0.1),
  "momentum": lambda: tf1.train.MomentumOptimizer(0.1, 0.5),
  "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.1),
  "ftrl": lambda: tf1.train.FtrlOptimizer(0.1),
}
# Optimizer -> the weights that it trains, and those that its loss reads.
_TRAINS = {
  "weights of their own": {"A": ("wa", ""), "B": ("wb", "")},
  "equal losses but for a weight": {"A": ("w", "a"), "B": ("w", "b")},
  "one with all": {"A": ("wab", ""), "B": ("w", "")},
  "three": {"A": ("wa", ""), "B": ("wb", ""), "C": ("w", "ab")},
}


def build(
  kind, order, trains, wrapped="AB", resource=True, sparse=False, scopes=()
):
  """Builds optimizers in an order; returns role -> variable."""
  found = {}
  partitioner = None
  if resource == "partitioned":
    partitioner = tf1.fixed_size_partitioner(2)
  for name in "wab":
    found[name] = tf1.get_variable(
      name,
      [4],
      use_resource=bool(resource),
      initializer=tf1.ones_initializer(),
      partitioner=partitioner,
    )
  for key in order:
    trained, read = trains[key]
    inner = opt = _KINDS[kind]()
    with tf1.name_scope(dict(scopes).get(key)):
      if key in wrapped:
        scale = tfl.DynamicLossScale(8.0)
        opt = tfl.MixedPrecisionLossScaleOptimizer(inner, scale)
      parts = [
        part
        for name in trained
        for part in (
          list(found[name]) if resource == "partitioned" else [found[name]]
        )
      ]
      values = [tf1.gather(part, [0]) if sparse else part for part in parts] + [
        tf.convert_to_tensor(found[name]) for name in read
      ]
      loss = tf.square(tf.add_n([tf.reduce_sum(value) for value in values]))
      opt.minimize(loss, var_list=parts)
    if key in wrapped:
      found[key, "scale"] = scale._weights["current_loss_scale"]
      found[key, "good"] = scale._weights["good_steps"]
    for part in parts:
      for slot in inner.get_slot_names():
        found[key, part.op.name, slot] = inner.get_slot(part, slot)
    if kind == "adam":
      found[key, "1"], found[key, "2"] = inner._get_beta_accumulators()
  if resource == "partitioned":
    for name in "wab":
      for i, part in enumerate(found.pop(name)):
        found[name, i] = part
  return found


@functools.cache
def _get_program(kind, order, trains, v2, how):
  return Program(lambda: build(kind, order, dict(trains), **dict(how)), v2)


def get_program(order, trains, v2=False, kind="adam", **how):
  """Returns the program with these optimizers, as `build` takes them."""
  trains, how = tuple(trains.items()), tuple(sorted(how.items()))
  return _get_program(kind, order, trains, v2, how)


def save(folder, order, trains, v2=False, meta=True, **how):
  """Saves a program; returns the checkpoint's path and role -> value."""
  return get_program(order, trains, v2, **how).save(folder, meta)


def restore(path, order, trains, v2=False, saver=False, mapping=None, **how):
  """Restores into a program; returns role -> value."""
  program = get_program(order, trains, v2, **how)
  with program.session() as session:
    if saver:
      checkpoint.Saver().restore(session, path)
    else:
      checkpoint.restore(session, path, mapping=mapping)
    return get_values(session, program.variables)


def get_expected(found, values):
  """Returns the values that the variables of a program should have."""
  return {role: values[role] for role in found}


@pytest.mark.parametrize("kind", list(_KINDS))
@pytest.mark.parametrize("trains", list(_TRAINS))
def test_another_order(kind, trains, tmp_path):
  trains = _TRAINS[trains]
  order = "".join(trains)
  path, values = save(tmp_path, order, trains, kind=kind)
  found = restore(path, order[::-1], trains, kind=kind)
  assert found == get_expected(found, values)


@pytest.mark.any_release
@pytest.mark.parametrize("resource", [True, False, "partitioned"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("here", "there"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_kinds_of_variables_and_conds(resource, sparse, here, there, tmp_path):
  trains = _TRAINS["weights of their own"]
  how = {"resource": resource, "sparse": sparse}
  path, values = save(tmp_path, "AB", trains, bool(there), **how)
  saver = here == there
  found = restore(path, "BA", trains, bool(here), saver=saver, **how)
  assert found == get_expected(found, values)


@pytest.mark.parametrize("kind", ["adam", "momentum"])
@pytest.mark.parametrize("left", ["A", "B"])
@pytest.mark.parametrize("trains", list(_TRAINS)[:3])
def test_one_is_dropped(kind, left, trains, tmp_path):
  trains = _TRAINS[trains]
  path, values = save(tmp_path, "AB", trains, kind=kind)
  found = restore(path, left, trains, kind=kind)
  assert found == get_expected(found, values)


@pytest.mark.parametrize("order", ["AB", "BA"])
def test_one_is_added(order, tmp_path):
  trains = _TRAINS["weights of their own"]
  path, values = save(tmp_path, "A", trains)
  with pytest.raises(
    checkpoint.CheckpointError, match=r"another optimizer's|is not in it"
  ):
    restore(path, order, trains)
  program = get_program(order, trains)
  found, report = program.restore(path, missing="initialize")
  new = {role for role in found if role[0] == "B"}
  assert {r: found[r] for r in found if r not in new} == values | {
    "b": values["b"]
  }
  assert len(report.initialized) == len(new)


@pytest.mark.parametrize("wrapped", ["", "A", "B"])
def test_other_optimizers_are_wrapped(wrapped, tmp_path):
  trains = _TRAINS["weights of their own"]
  path, values = save(tmp_path, "AB", trains, wrapped=wrapped)
  found = restore(path, "BA", trains)
  known = {role: value for role, value in found.items() if role in values}
  assert known == get_expected(known, values)
  assert {role[1] for role in found.keys() - known} == {"scale", "good"}


def test_scopes_tell_slots_apart(tmp_path):
  trains = {"A": ("w", ""), "B": ("w", "")}
  scopes = (("A", "gen"), ("B", "disc"))
  path, values = save(tmp_path, "AB", trains, scopes=scopes)
  found = restore(path, "BA", trains, True, scopes=scopes)
  assert found == get_expected(found, values)


@pytest.mark.parametrize("left", ["A", "B"])
def test_without_evidence_nothing_is_guessed(left, tmp_path, caplog):
  trains = _TRAINS["weights of their own"]
  path, values = save(tmp_path, "AB", trains, meta=False, wrapped="")
  # TensorFlow's Saver restores equal names, too.
  with caplog.at_level("WARNING", logger="absl"):
    assert restore(path, "AB", trains, wrapped="", saver=True) == values
  assert "equal names decided about w/Adam and 3 more" in caplog.text
  wrapped = get_program("AB", trains, True)
  with pytest.raises(
    checkpoint.CheckpointError, match="nothing proves which of w"
  ):
    wrapped.restore(path)  # TensorFlow's does not restore these names.
  with pytest.raises(checkpoint.CheckpointError) as error:
    restore(path, left, trains, wrapped="")
  assert "w/Adam_2" in str(error.value) and "mapping={" in str(error.value)
  number = "_1" * (left == "B")
  mapping = {"beta1_power": f"beta1_power{number}"}
  first = ("Adam", "Adam_1") if left == "A" else ("Adam_2", "Adam_3")
  mapping |= {f"w/Adam{n}": f"w/{key}" for n, key in zip(("", "_1"), first)}
  found = restore(path, left, trains, mapping=mapping, wrapped="")
  assert found == get_expected(found, values)


@pytest.mark.parametrize("rates", [True, False])
def test_equal_names_may_be_denied(rates, tmp_path):
  """Checks optimizers that train and read the same variables."""

  def build_two(order):
    w = tf1.get_variable("w", [2], use_resource=True)
    for key in order:
      rate = {"A": 0.5, "B": 0.25}[key] if rates else 0.5
      loss = tf.square(w) if key == "A" or rates else tf.exp(w)
      opt = tf1.train.MomentumOptimizer(rate, 0.5)
      opt.minimize(loss, var_list=[w])
    return {v.op.name: v for v in tf1.global_variables()}

  path, values = Program(lambda: build_two("AB"), False).save(tmp_path)
  found, _ = Program(lambda: build_two("AB"), False).restore(path)
  assert found == values
  other = Program(lambda: build_two("BA"), False)
  with pytest.raises(checkpoint.CheckpointError) as error:
    other.restore(path)
  assert "nothing proves which of w/Momentum, w/Momentum_1" in str(error.value)
  mapping = {"w/Momentum": "w/Momentum_1", "w/Momentum_1": "w/Momentum"}
  found, _ = other.restore(path, mapping=mapping)
  assert found == values | {new: values[old] for new, old in mapping.items()}


@pytest.mark.parametrize("meta", [True, False])
def test_a_template_of_objects(meta, tmp_path):
  trains = {"A": ("wa", ""), "B": ("w", "")}

  def build_objects(order):
    found = {n: tf1.get_variable(n, [2], use_resource=True) for n in "wa"}
    opts = {}
    for key in order:
      opts[key] = tf1.train.AdamOptimizer(0.1)
      weights = [found[name] for name in trains[key][0]]
      loss = tf.add_n([tf.reduce_sum(v * v) for v in weights])
      opts[key].minimize(loss, var_list=weights)
    for key, opt in opts.items():
      for name in trains[key][0]:
        for slot in ("m", "v"):
          found[key, name, slot] = opt.get_slot(found[name], slot)
      found[key, "1"], found[key, "2"] = opt._get_beta_accumulators()
    return found, opts

  path, values = Program(lambda: build_objects("AB")[0], False).save(
    tmp_path, meta
  )
  with helpers.control_flow(False), tf.Graph().as_default():
    found, opts = build_objects("BA")
    with tf1.Session() as session:
      saved = tf1.train.Checkpoint(w=found["w"], a=found["a"], **opts)
      session.run(tf1.global_variables_initializer())
      session.run(saved.save_counter.initializer)
      template = saved.save(str(tmp_path / "template"), session)
      new = str(tmp_path / "new")
      checkpoint.convert(path, new, "object", template=template)
      if not meta:
        return  # All names are equal, and nothing contradicts them.
      saved.restore(new).assert_existing_objects_matched().run_restore_ops(
        session
      )
      assert get_values(session, found) == values


if __name__ == "__main__":
  helpers.main()
