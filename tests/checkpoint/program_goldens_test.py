# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints of unusual programs, written by TensorFlow 1.15.5.

Each `goldens/tf-1.15.5/program_*` has several optimizers, or variables named
like an optimizer's; `manifest.json` has the number that each variable holds.
`program_conversions.json` has the names that a conversion gives, as the graphs
of the programs prove them; null if even they prove nothing.
"""

import json

import helpers
import numpy as np
import pytest
import tensorflow as tf

from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1
_FOLDER = helpers.GOLDENS / "tf-1.15.5"
_CONVERSIONS = json.loads((_FOLDER / "program_conversions.json").read_text())
_PROGRAMS = sorted(_CONVERSIONS)


@pytest.mark.any_release
@pytest.mark.parametrize("program", _PROGRAMS)
def test_the_same_program(program):
  """Checks that each variable gets its own number, by a Saver and without."""
  path = str(_FOLDER / program / "model.ckpt")
  manifest = json.loads((_FOLDER / program / "manifest.json").read_text())
  numbers = {v["name"]: v["number"] for v in manifest["variables"]}
  with helpers.control_flow(False), tf.Graph().as_default():
    saver = checkpoint.import_meta_graph(f"{path}.meta")
    found = {v.op.name: v for v in tf1.global_variables()}
    with tf1.Session() as session:
      for restore in (saver.restore, checkpoint.restore):
        session.run([v.initializer for v in found.values()])
        restore(session, path)
        values = session.run(found)
        for name, number in numbers.items():
          assert np.all(values[name] == number), name


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("to", "least"), [("saver", 5), ("saver-v2", 1), ("contrib", 1), ("fp32", 5)]
)
def test_conversions_are_right_or_refused(to, least, tmp_path):
  """Checks also that not all of them are refused."""
  right = 0
  for program in _PROGRAMS:
    path = str(_FOLDER / program / "model.ckpt")
    try:
      done = checkpoint.convert(path, tmp_path / program, to)
    except checkpoint.CheckpointError as error:
      assert "names do not tell which of" in str(error)
      assert "mapping={" in str(error) and "--map" in str(error)
      continue
    assert done.renamed == _CONVERSIONS[program][to], program
    right += 1
  assert right >= least
