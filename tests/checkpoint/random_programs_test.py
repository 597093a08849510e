# SPDX-License-Identifier: Apache-2.0
"""Tests restores of random programs into other variants of the programs.

A program has one to three optimizers. Its variants have other control flow, no
loss scales, or those of the other API. Some programs have variables of their
own, named like a loss scale's. Each variable gets the value of the
variable that has its role in the saved program, or there is an error, and then
nothing is assigned. All programs that were ever tried:

  RESTORED_PROGRAMS=500 pytest tests/checkpoint/random_programs_test.py
"""

import collections
import os
import random

import pytest
import role_programs
from role_programs import Program
import tensorflow as tf

from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1
_folder_of_programs = role_programs.folder_of_programs
_CHUNK = 25
_PROGRAMS = int(os.environ.get("RESTORED_PROGRAMS", 50))
_SWAPPED = {"dynamic": "contrib", "contrib": "dynamic"}


def draw(rng):
  """Draws the arguments of `role_programs.build`."""
  optimizers = [
    (
      rng.choice(["adam", "adam", "adam", *role_programs.INNER]),
      rng.choice(["", "", "gen/", "disc/", "cond/"]),
      rng.choice(["plain", "dynamic", "dynamic", "contrib"]),
    )
    for _ in range(rng.randrange(1, 4))
  ]
  is_shared, resource = rng.random() < 0.3, rng.random() < 0.7
  users = rng.choice(["none", "none", "none", "before", "after"])
  return optimizers, is_shared, resource, users


def make_variants(optimizers):
  """Returns name -> optimizers: as drawn, without loss scales, other APIs."""
  return {
    "own": optimizers,
    "plain": [(inner, scope, "plain") for inner, scope, _ in optimizers],
    "swapped": [
      (inner, scope, _SWAPPED.get(kind, kind))
      for inner, scope, kind in optimizers
    ],
  }


def check(found, values, report, program):
  """Checks the values after a restore."""
  for role, value in found.items():
    name = program.variables[role].op.name
    if role in values:
      assert value == values[role], (role, name, str(report))
    else:
      assert name in role_programs.find_started_anew(report), (role, name)


def run(seed, folder):
  """Restores a program into its variants, and each variant into the program.

  Yields:
    Whether names told which variable is which.
  """
  rng = random.Random(seed)
  optimizers, is_shared, resource, users = draw(rng)
  flows = [False, True] if resource else [False]
  programs = {
    (variant, v2): Program(
      lambda made=made: role_programs.build(made, is_shared, resource, users),
      v2,
    )
    for variant, made in make_variants(optimizers).items()
    for v2 in flows
  }
  own = [key for key in programs if key[0] == "own"]
  pairs = [(here, there) for here in own for there in programs]
  pairs += [(there, here) for here in own for there in programs]
  for here, there in dict.fromkeys(pairs):
    path, values = programs[there].save(folder)
    try:
      found, report = programs[here].restore(path)
    except checkpoint.CheckpointError as error:
      assert here != there, (seed, optimizers, str(error))
      assert "names do not tell which of" in str(error), str(error)
      yield False
      continue
    check(found, values, report, programs[here])
    yield True


@pytest.mark.any_release
@pytest.mark.parametrize(
  "first",
  [0]
  + [
    pytest.param(first, marks=pytest.mark.thorough)
    for first in range(_CHUNK, _PROGRAMS, _CHUNK)
  ],
)
def test_every_variable_gets_its_own_value(first, tmp_path):
  """Checks that all values are right, or refused."""
  count = _CHUNK if first else 10
  outcomes = collections.Counter(
    is_told
    for seed in range(first, first + count)
    for is_told in run(seed, tmp_path)
  )
  print(outcomes)
  # A restore that refused everything would make no mistake, either.
  assert outcomes[True] >= outcomes[False]
