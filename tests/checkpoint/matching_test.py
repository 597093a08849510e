# SPDX-License-Identifier: Apache-2.0
"""Tests the rules by which names are matched, on names alone.

`name_variables` says what TensorFlow calls the variables of optimizers, and so
all small programs can be tried: each variable gets its own tensor, or there is
an error.
"""

import ast
import itertools
import re
import shlex
import types

import helpers
import numpy as np
import pytest

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import matching
from tf_compat_lossscale.checkpoint.places import find_wrong_powers
from tf_compat_lossscale.checkpoint.places import Place
from tf_compat_lossscale.checkpoint.places import Source
from tf_compat_lossscale.checkpoint.places import Wishes
from tf_compat_lossscale.checkpoint.reading import TensorSpec

_FLOAT, _INT, _LONG = (
  TensorSpec(dtype, ()) for dtype in ("float32", "int32", "int64")
)
_SCALES = {
  "dynamic": {"current_loss_scale": _FLOAT, "good_steps": _LONG},
  "contrib": {"loss_scale": _FLOAT, "good_steps": _INT, "bad_steps": _INT},
}


def name_variables(optimizers, v2):
  """Returns (optimizer, variable) -> (name, dtype and shape).

  Args:
    optimizers: (scope, kind) of each Adam, in the order of creation.
    v2: Whether the program has TensorFlow 2's control flow.
  """
  counts, found = {}, {}

  def make(name):
    counts[name] = counts.get(name, -1) + 1
    return f"{name}_{counts[name]}" if counts[name] else name

  for i, (scope, kind) in enumerate(optimizers):
    for base, spec in _SCALES.get(kind, {}).items():
      what = base.replace("current_", "")
      found[i, what] = make(f"{scope}{base}"), spec
    where = scope
    if kind != "plain":
      conds = [make(f"{scope}cond"), make(f"{scope}cond")]
      where = "" if v2 else f"{conds[kind == 'dynamic']}/"
    for power in ("beta1_power", "beta2_power"):
      found[i, power] = make(f"{where}{power}"), _FLOAT
  return found


def match_names(wanted, sources, wishes, others=None, order=()):
  """Matches names; returns variable -> tensor, and what starts anew."""
  places = [Place(name, spec) for name, spec in wanted.items()]
  others = [Place(name, spec) for name, spec in (others or {}).items()]
  model = types.SimpleNamespace(prefix="model")
  matching.match(model, places, sources, wishes, others, order)
  assert all(place.is_decided for place in places)
  return {p.name: p.source.key for p in places if p.source}


def match(here, there, **wishes):
  """Matches two programs; returns variable -> tensor, by what they are."""
  roles = {name: role for role, (name, _) in there.items()}
  found = match_names(
    dict(here.values()),
    {name: Source(name, spec) for name, spec in there.values()},
    Wishes(**wishes),
    order=dict(here.values()),
  )
  return {
    role: roles.get(found[name])
    for role, (name, _) in here.items()
    if name in found
  }


def check(found, here, there):
  """Checks that each variable has its own tensor, or starts anew."""
  for role in here:
    other = found.get(role)
    if other is not None:
      assert other == role
    else:  # Only compat.v1 lacks a count.
      i, what = role
      assert what == "bad_steps" or not any(
        key[0] == i and key[1] not in ("beta1_power", "beta2_power")
        for key in there
      )


def list_pairs(kinds):
  """Yields the kinds of optimizers here and there that programs may have."""
  swapped = {"dynamic": "contrib", "contrib": "dynamic", "plain": "plain"}
  plain = ("plain",) * len(kinds)
  for other in (kinds, plain, tuple(swapped[kind] for kind in kinds)):
    yield kinds, other
    yield other, kinds


@pytest.mark.any_release
@pytest.mark.parametrize(
  "count", [1, 2, pytest.param(3, marks=pytest.mark.thorough)]
)
def test_nothing_lands_in_another_variable(count):
  """Checks other control flow, loss scales that come or go, another API."""
  outcomes = {"right": 0, "refused": 0}
  for scopes, kinds in itertools.product(
    itertools.product(("", "a/", "b/"), repeat=count),
    itertools.product(("plain", "dynamic", "contrib"), repeat=count),
  ):
    for (mine, other), v2, v2_there in itertools.product(
      list_pairs(kinds), (False, True), (False, True)
    ):
      here = name_variables([*zip(scopes, mine)], v2)
      there = name_variables([*zip(scopes, other)], v2_there)
      try:
        found = match(here, there)
      except checkpoint.CheckpointError:
        assert mine != other or v2 != v2_there
        outcomes["refused"] += 1
        continue
      check(found, here, there)
      outcomes["right"] += 1
  assert outcomes["right"] > (0 if count > 1 else outcomes["refused"])
  if count == 1:
    assert not outcomes["refused"]
  print(outcomes)


@pytest.mark.any_release
@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("scope", ["", "net/"])
def test_the_mapping_of_an_error_can_be_pasted(scope, v2):
  """Checks that its pairs are right if the order of creation is the same."""
  here = name_variables([(scope, "dynamic")] * 3, not v2)
  there = name_variables([(scope, "dynamic")] * 3, v2)
  if scope and not v2:
    there, here = here, there  # In v2, numbers show the order in any scope.
  with pytest.raises(checkpoint.CheckpointError) as error:
    match(here, there)
  text = str(error.value)
  assert "\n" not in text and "same_order=True (--same-order)" in text
  mapping = ast.literal_eval(re.search(r"mapping=(\{.*?\})", text)[1])
  check(match(here, there, mapping=mapping), here, there)
  check(match(here, there, same_order=True), here, there)
  words = shlex.split(text[text.index("--map") : text.index("; that is")])
  assert words[::2] == ["--map"] * len(mapping)
  assert words[1::2] == [f"{a}={b}" for a, b in mapping.items()]


@pytest.mark.any_release
def test_names_do_not_show_an_order_across_scopes():
  scopes = [("gen/", "dynamic"), ("disc/", "dynamic")]
  here, there = name_variables(scopes, True), name_variables(scopes, False)
  for wishes in ({}, {"same_order": True}):
    with pytest.raises(checkpoint.CheckpointError) as error:
      match(here, there, **wishes)
    assert "'beta1_power': ..." in str(error.value)
    assert "names do not show the order" in str(error.value)
    for name, _ in [*here.values(), *there.values()]:
      assert "power" not in name or name in str(error.value)


@pytest.mark.any_release
def test_other_optimizers_of_the_program_have_a_claim():
  """Checks restores of some variables: names of the others count, too."""
  whole = name_variables([("", "dynamic"), ("", "dynamic")], False)
  other = name_variables([("", "dynamic"), ("", "dynamic")], True)
  sources = {name: Source(name, spec) for name, spec in whole.values()}
  for i in range(2):
    wanted = dict([whole[i, "beta1_power"], whole[i, "loss_scale"]])
    others = {n: s for n, s in whole.values() if n not in wanted}
    found = match_names(wanted, sources, Wishes(), others)
    assert found == {n: n for n in wanted}
    wanted = dict([other[i, "beta1_power"]])
    others = {n: s for n, s in other.values() if n not in wanted}
    with pytest.raises(checkpoint.CheckpointError, match="names do not tell"):
      match_names(wanted, sources, Wishes(), others)


@pytest.mark.any_release
def test_one_of_several_scopes():
  gan = [("gen/", "dynamic"), ("disc/", "dynamic")]
  there = name_variables(gan, False)
  here = name_variables(gan[:1], False)
  assert match(here, there) == {role: role for role in here}
  plain = name_variables([("gen/", "plain")], False)
  assert match(plain, there) == {role: role for role in plain}
  with pytest.raises(checkpoint.CheckpointError, match="names do not tell"):
    match(name_variables([("", "dynamic")], True), there)


@pytest.mark.any_release
@pytest.mark.parametrize("steps", [1, 10, 900, 7000])
def test_powers(steps):
  """Checks powers as training computes them, and those of other betas."""
  dtype = np.float32

  def find_wrong(betas, found):
    names = ("beta1_power", "beta2_power")
    return find_wrong_powers(
      dict(zip(names, map(dtype, betas))), dict(zip(names, map(float, found)))
    )

  made = {}
  for beta in (0.5, 0.9, 0.98, 0.999, 0.9999):
    made[beta] = dtype(beta)
    for _ in range(steps):
      made[beta] *= dtype(beta)
  for betas in ((0.5, 0.999), (0.9, 0.999), (0.9, 0.98), (0.5, 0.9999)):
    assert not find_wrong(betas, [made[beta] for beta in betas])
  assert not find_wrong((0.9, 0.999), (1000.0, 1001.0))  # No optimizer's.
  assert not find_wrong((0.0, 0.999), (0.0, made[0.999]))
  if steps < 900:  # Later, the power of 0.9 is nearly 0.
    for betas in ((0.5, 0.999), (0.9, 0.9999), (0.9, 0.98)):
      assert find_wrong(betas, (made[0.9], made[0.999]))


@pytest.mark.any_release
def test_many_names_that_are_not_there():
  """Checks that the error for 20,000 variables comes at once."""
  spec = TensorSpec("float32", (2,))
  wanted = {f"a{i}/cond_1/w{i}": spec for i in range(20_000)}
  sources = {
    f"b{i}/w{i}_1": Source(f"b{i}/w{i}_1", spec) for i in range(20_000)
  }
  with pytest.raises(checkpoint.CheckpointError) as error:
    match_names(wanted, sources, Wishes())
  assert len(str(error.value)) < 10_000


if __name__ == "__main__":
  helpers.main()
