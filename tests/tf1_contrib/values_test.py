# SPDX-License-Identifier: Apache-2.0
"""Tests that pieces of `tf.contrib` compute what those of 1.15.5 computed.

`goldens/contrib/values.json` is what `goldens/make_contrib_goldens.py` wrote on
TensorFlow 1.15.5. The same program runs here, and every element is compared.
"""

import json

import contrib_table
import helpers
import numpy as np
import processes
import pytest

_RECORDED = json.loads(
  (helpers.GOLDENS / "contrib" / "values.json").read_text("utf-8")
)
_NAMES = sorted({key.partition("/")[0] for key in _RECORDED})
# `definitions_test.py` proves the pieces of these modules.
_BY_DEFINITION = ("estimator", "graph_editor", "image", "memory_stats")
_PIECES = {
  f"{module}.{name}"
  for module, names in contrib_table.NAMES.items()
  for name, target in names.items()
  # `contrib_signatures_test.py` tests what only took other parameters.
  if target.startswith("tf1_contrib.")
  if not target.startswith("tf1_contrib.parameters.")
  if module not in _BY_DEFINITION
}


def select(values, name):
  """Returns the values of one name of `tf.contrib`."""
  return {k: v for k, v in values.items() if k.startswith(f"{name}/")}


@pytest.mark.thorough
def test_values_are_those_of_tensorflow_1(subtests):
  program = str(helpers.GOLDENS / "make_contrib_goldens.py")
  printed = processes.run_forked(program, "/dev/stdout", **helpers.KERAS_2)
  current = helpers.parse_json(printed)
  for name in _NAMES:
    with subtests.test(name):
      check_values(select(_RECORDED, name), select(current, name))


def check_values(expected, found):
  """Checks the values of one name against those of TensorFlow 1."""
  assert len(expected) > 1, "it was not recorded"
  assert set(found) == set(expected)
  for key, (dtype, shape, elements) in expected.items():
    assert found[key][:2] == [dtype, shape], key
    if dtype.startswith("float"):
      np.testing.assert_allclose(
        found[key][2], elements, rtol=2e-5, atol=2e-6, err_msg=key
      )
    else:
      assert found[key][2] == elements, key


def test_every_piece_is_recorded():
  assert set(_NAMES) >= _PIECES


def test_nothing_else_is_recorded():
  # What TensorFlow itself has today may be recorded, too.
  table = contrib_table.list_names().items()
  assert set(_NAMES) <= {
    f"{module}.{n}" for module, names in table for n in names
  }
