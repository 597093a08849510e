"""Checkpoints of programs drawn by chance, in other control flow and wrapping.

Every variable gets its own value, or there is an error and nothing is assigned.
More programs than the usual ones are run by the variables of the environment
CHECKPOINT_PROGRAMS (how many) and CHECKPOINT_PROGRAMS_FIRST (from which seed).

`goldens/tf-1.15.5/program_*` were written by that release itself, by
`goldens/make_program_goldens.py`.
"""

import collections
import os
import shutil

import helpers
import pytest
import random_programs
from random_programs import Api
import tensorflow as tf

tf1 = tf.compat.v1
_COUNT = int(os.environ.get("CHECKPOINT_PROGRAMS", "100"))
_FIRST = int(os.environ.get("CHECKPOINT_PROGRAMS_FIRST", "0"))
_CHUNKS = 10
_GOLDENS = sorted(
  str(path.parent.relative_to(helpers.GOLDENS))
  for path in helpers.GOLDENS.glob("tf-*/program_*/manifest.json")
)


@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_every_variable_gets_its_own_value(chunk):
  failed, outcomes = [], collections.Counter()
  for seed in range(_FIRST + chunk, _FIRST + _COUNT, _CHUNKS):
    for what, case, finding in random_programs.run(seed):
      outcomes[what.split()[0], finding.outcome] += 1
      if finding.failed:
        failed.append(f"{case}: {what}: {finding}")
  assert not failed, "\n".join(failed)
  # Who refuses everything makes no mistake, either.
  restored, refused = outcomes["restore", "ok"], outcomes["restore", "error"]
  assert restored >= (restored + refused) // 3, outcomes


def names_of(program, variant, api):
  with (
    helpers.control_flow(variant["v2"]),
    tf.Graph().as_default(),
  ):
    made, _ = random_programs.build(program, variant, api)
    return {identity: v.op.name for identity, v in made.items()}


@pytest.mark.parametrize("seed", range(10))
def test_programs_are_the_same_by_tensorflows_own_api(seed):
  program = random_programs.program_of(seed)
  kinds = dict.fromkeys(program["optimizers"], "dynamic")
  for v2 in [False] + [True] * program["resource"]:
    variant = {"kinds": kinds, "v2": v2, "dropped": []}
    assert names_of(program, variant, Api("tfl")) == names_of(
      program, variant, Api("tf")
    )


def variants(variant):
  """Yields (name, variant): the ways to restore a golden."""
  kinds = variant["kinds"]
  yield "same", variant
  yield "other_flow", dict(variant, v2=not variant["v2"])
  swap = {"dynamic": "contrib", "contrib": "dynamic"}
  other = {key: swap.get(kind, kind) for key, kind in kinds.items()}
  yield "other_api", dict(variant, kinds=other)
  yield "plain", dict(variant, kinds=dict.fromkeys(kinds, "plain"))
  yield "wrapped", dict(variant, kinds=dict.fromkeys(kinds, "dynamic"))
  if len(set(kinds.values())) > 1:
    order = list(kinds.values())
    other = dict(zip(kinds, [*order[1:], order[0]]))
    yield "swapped", dict(variant, kinds=other)


def copied(golden, folder, meta):
  """Copies a golden; returns (path, program, variant, manifest)."""
  source = helpers.GOLDENS / golden
  for path in source.glob("model.ckpt*"):
    if meta or path.suffix != ".meta":
      shutil.copy(path, folder)
  manifest = random_programs.read_manifest(source / "manifest.json")
  return (str(folder / "model.ckpt"), *manifest)


@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize("golden", _GOLDENS)
def test_golden(golden, meta, tmp_path):
  path, program, variant, manifest = copied(golden, tmp_path, meta)
  failed = []
  for name, here in variants(variant):
    for saver in (False, True):
      finding = random_programs.check(
        program, here, Api("tfl"), path, manifest, saver, name == "same"
      )
      if finding.failed:
        failed.append(f"{name}: {finding}")
  for to in ("saver", "saver-v2", "contrib", "fp32"):
    finding = random_programs.check_conversion(
      program, variant, path, manifest, to
    )
    if finding.failed:
      failed.append(f"converted to {to}: {finding}")
  own = random_programs.own_layout(program, variant)
  if own:
    finding = random_programs.check_own_layout(path, own)
    if finding.failed:
      failed.append(f"converted to its own {own}: {finding}")
  assert not failed, "\n".join(failed)


@pytest.mark.parametrize("golden", _GOLDENS)
def test_goldens_names_are_todays(golden):
  manifest_path = helpers.GOLDENS / golden / "manifest.json"
  program, variant, manifest = random_programs.read_manifest(manifest_path)
  names = names_of(program, variant, Api("tfl"))
  assert names == {identity: name for identity, (name, _) in manifest.items()}


def test_there_are_goldens():
  assert len(_GOLDENS) >= 12


if __name__ == "__main__":
  helpers.main()
