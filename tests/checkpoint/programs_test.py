# SPDX-License-Identifier: Apache-2.0
"""Tests restores of random programs into other variants of the programs.

Every variable gets its own value, or there is an error and nothing is assigned.
The environment variable CHECKPOINT_PROGRAMS sets how many programs are drawn,
and CHECKPOINT_PROGRAMS_FIRST sets the first seed.

TensorFlow 1.15.5 itself wrote `goldens/tf-1.15.5/program_*`, by
`goldens/make_program_goldens.py`.
"""

import collections
import os
import shutil

import helpers
import pytest
import random_builder
from random_builder import Api
from random_builder import Built
from random_builder import Graphs
import random_checks
import random_programs
import random_runs
import random_saves
import tensorflow as tf

from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1
_COUNT = int(os.environ.get("CHECKPOINT_PROGRAMS", "6"))
_FIRST = int(os.environ.get("CHECKPOINT_PROGRAMS_FIRST", "0"))
_EVERYTHING = "CHECKPOINT_PROGRAMS" in os.environ
_CHUNKS = 6
_GOLDENS = sorted(
  str(path.parent.relative_to(helpers.GOLDENS))
  for path in helpers.GOLDENS.glob("tf-*/program_*/manifest.json")
)


@pytest.mark.thorough
@pytest.mark.any_release
@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_every_variable_gets_its_own_value(chunk):
  failed, outcomes = [], collections.Counter()
  for seed in range(_FIRST + chunk, _FIRST + _COUNT, _CHUNKS):
    for what, case, finding in random_runs.run(seed):
      outcomes[what.split()[0], finding.outcome] += 1
      if finding.failed:
        failed.append(f"{case}: {what}: {finding}")
  assert not failed, "\n".join(failed)
  # A restore that refused everything would make no mistake, either.
  restored, refused = outcomes["restore", "ok"], outcomes["restore", "error"]
  assert restored >= (restored + refused) // 3, outcomes


def names_of(built):
  """Returns identity -> name for the variables of a program in a graph."""
  return {identity: v.op.name for identity, v in built.made.items()}


# In program 0, two of three optimizers share a loss scale. Program 1 has name
# scopes, and variables that are named like an optimizer's. Program 2 has
# reference variables and a moving average. Program 5 has a variable scope.
@pytest.mark.parametrize("seed", [0, 1, 2, 5])
def test_programs_are_the_same_by_tensorflows_own_api(seed):
  program = random_programs.program_of(seed)
  kinds = dict.fromkeys(program["optimizers"], "dynamic")
  for v2 in [False] + [True] * program["resource"]:
    variant = {"kinds": kinds, "v2": v2, "dropped": []}
    ours, theirs = (Built(program, variant, Api(api)) for api in ("tfl", "tf"))
    assert names_of(ours) == names_of(theirs)


def _restored(session, path):
  tf1.train.Saver().restore(session, path)
  names = helpers.variable_names()
  return checkpoint.Report(path, restored=dict(zip(names, names)))


def _exchanged(session, path):
  report = _restored(session, path)
  first, second = tf1.global_variables()[-2:]
  random_builder.set_values(session, [(first, session.run(second))])
  return report


def _anew(session, path):
  report = _restored(session, path)
  name = helpers.variable_names()[0]
  del report.restored[name]
  report.initialized[name] = "so be it"
  return report


def _unsaid(session, path):
  report = _restored(session, path)
  del report.restored[helpers.variable_names()[0]]
  return report


def _untold(session, path):
  raise checkpoint.CheckpointError("no")


def _unsure(session, path):
  raise checkpoint.CheckpointError("w0 is not in it")


def _halfway(session, path):
  session.run(tf1.global_variables()[0].initializer)
  raise checkpoint.CheckpointError("w0 is not in it")


def _broken(session, path):
  raise KeyError("w0")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  """Saves a program; returns the arguments of `check`, and the graphs."""
  program = random_programs.program_of(468)
  kinds = {"opt0": "dynamic", "opt1": "contrib"}
  variant = {"kinds": kinds, "v2": False, "dropped": []}
  api, graphs = Api("tfl"), Graphs()
  path, manifest = random_saves.save(
    program,
    variant,
    api,
    str(tmp_path_factory.mktemp("saved") / "model.ckpt"),
    graphs=graphs,
  )
  return (program, variant, api, path, manifest), graphs


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("restore", "outcome"),
  [
    (_restored, "ok"),
    (_exchanged, "WRONG"),
    (_anew, "SILENT"),
    (_unsaid, "SILENT"),
    (_untold, "TEXT"),
    (_unsure, "error"),
    (_halfway, "TOUCHED"),
    (_broken, "CRASHED"),
  ],
)
def test_the_judge(restore, outcome, monkeypatch, saved):
  case, graphs = saved
  monkeypatch.setattr(checkpoint, "restore", restore)
  finding = random_checks.check(*case, graphs=graphs)
  assert finding.outcome == outcome, finding


def variants(variant):
  """Yields (name, variant) pairs: the variants to restore a golden into."""
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
  """Copies a golden into a folder; returns the path of the copy."""
  for path in (helpers.GOLDENS / golden).glob("model.ckpt*"):
    if meta or path.suffix != ".meta":
      shutil.copy(path, folder)
  path = str(folder / "model.ckpt")
  random_saves.make_old(path)
  return path


def golden_cases():
  """Returns (number, golden) pairs; every release must restore one of three."""
  others = [pytest.mark.any_release, pytest.mark.thorough]
  return [
    pytest.param(i, golden, marks=others if i % 3 else [])
    for i, golden in enumerate(_GOLDENS)
  ]


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "golden"), golden_cases())
def test_golden(number, golden, tmp_path):
  """Checks a golden with and without its '.meta' file, in the same graphs.

  To build the graphs takes most of the time. So by default each golden meets
  every other variant and layout, and the next golden meets the rest.
  """
  manifest_path = helpers.GOLDENS / golden / "manifest.json"
  program, variant, manifest = random_saves.read_manifest(manifest_path)
  api, built, failed = Api("tfl"), Graphs(), []
  names = names_of(built.get(program, variant, api))
  assert names == {identity: name for identity, (name, _) in manifest.items()}
  for meta in (True, False):
    folder = tmp_path / ("with" if meta else "without")
    folder.mkdir()
    path = copied(golden, folder, meta)
    for i, (name, here) in enumerate(variants(variant)):
      if not _EVERYTHING and name != "same" and (i + number) % 2:
        continue
      # A Saver restores into each variant once, and `restore` does once.
      saver = (i // 2 + meta) % 2 == 1
      finding = random_checks.check(
        program, here, api, path, manifest, saver, name == "same", built
      )
      if finding.failed:
        failed.append(f"{name} {folder.name}: {finding}")
    for i, to in enumerate(("saver", "contrib", "saver-v2", "fp32")):
      if not _EVERYTHING and (i + number) % 2:
        continue
      finding = random_checks.check_conversion(
        program, variant, path, manifest, to, built
      )
      if finding.failed:
        failed.append(f"converted to {to} {folder.name}: {finding}")
    own = random_programs.own_layout(program, variant)
    if own:
      finding = random_checks.check_own_layout(path, own)
      if finding.failed:
        failed.append(f"converted to its own {own}: {finding}")
  assert not failed, "\n".join(failed)


def test_there_are_goldens():
  assert len(_GOLDENS) >= 12


if __name__ == "__main__":
  helpers.main()
