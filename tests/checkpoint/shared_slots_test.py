# SPDX-License-Identifier: Apache-2.0
"""Tests slots of several optimizers of one name on one variable.

`A` and `B` are two optimizers. Their slots are numbered in the order of their
creation, so `w/Adam` is the first optimizer's in every program of that order.
"""

import functools

import helpers
import pytest
import role_programs
from role_programs import get_values
from role_programs import Program
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


def restore(
  path, order, trains, v2=False, mapping=None, same_order=False, **how
):
  """Restores into a program; returns role -> value."""
  program = get_program(order, trains, v2, **how)
  with program.session() as session:
    checkpoint.restore(session, path, mapping=mapping, same_order=same_order)
    return get_values(session, program.variables)


def get_expected(found, values):
  """Returns the values that the variables of a program should have."""
  return {role: values[role] for role in found}


@pytest.mark.parametrize("kind", list(_KINDS))
@pytest.mark.parametrize("trains", list(_TRAINS))
def test_the_same_order(kind, trains, tmp_path):
  trains = _TRAINS[trains]
  order = "".join(trains)
  path, values = save(tmp_path, order, trains, kind=kind)
  assert restore(path, order, trains, kind=kind) == values


@pytest.mark.any_release
@pytest.mark.parametrize("resource", [True, False, "partitioned"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("here", "there"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_kinds_of_variables_and_conds(resource, sparse, here, there, tmp_path):
  trains = _TRAINS["weights of their own"]
  how = {"resource": resource, "sparse": sparse}
  path, values = save(tmp_path, "AB", trains, bool(there), **how)
  if here != there and resource:
    with pytest.raises(checkpoint.CheckpointError, match="same_order=True"):
      restore(path, "AB", trains, bool(here), **how)
  found = restore(
    path, "AB", trains, bool(here), same_order=here != there, **how
  )
  assert found == values


@pytest.mark.parametrize("wrapped", ["", "AB"])
def test_loss_scales_come_and_go(wrapped, tmp_path):
  trains = _TRAINS["weights of their own"]
  path, values = save(tmp_path, "AB", trains, wrapped=wrapped)
  other = "AB" if not wrapped else ""
  with pytest.raises(checkpoint.CheckpointError, match="same_order=True"):
    restore(path, "AB", trains, wrapped=other)
  found = restore(path, "AB", trains, wrapped=other, same_order=True)
  known = {role: value for role, value in found.items() if role in values}
  assert known == get_expected(known, values)
  assert {role[1] for role in found.keys() - known} <= {"scale", "good"}


def test_a_mapping_tells_slots_apart(tmp_path):
  trains = _TRAINS["weights of their own"]
  path, values = save(tmp_path, "AB", trains, wrapped="")
  mapping = {
    f"beta{i}_power{a}": f"beta{i}_power{b}"
    for i in (1, 2)
    for a, b in (("", "_1"), ("_1", ""))
  }
  mapping |= {
    f"w/Adam{a}": f"w/Adam{b}"
    for a, b in (("", "_2"), ("_1", "_3"), ("_2", ""), ("_3", "_1"))
  }
  found = restore(path, "BA", trains, wrapped="", mapping=mapping)
  assert found == get_expected(found, values)


if __name__ == "__main__":
  helpers.main()
