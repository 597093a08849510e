# SPDX-License-Identifier: Apache-2.0
"""Tests that Keras models and optimizers of old releases restore and go on."""

import helpers
import numpy as np
import processes
import pytest

_GOLDENS = helpers.list_goldens("keras")
# Goldens of the releases between them differ in nothing but their writer.
_QUICK = ("tf-1.15.5", "tf-2.3.4", "tf-2.8.4")
_LOOPS = [golden for golden in _GOLDENS if "policy_model" not in golden]
_MODELS = [golden for golden in _GOLDENS if "policy_model" in golden]
assert len(_LOOPS) >= 9 and len(_MODELS) >= 4


def is_quick(golden):
  return golden.startswith(_QUICK)


def each_of(goldens):
  """Returns a mark that runs a test for each golden, some only thoroughly."""
  return pytest.mark.parametrize(
    "golden",
    [
      pytest.param(
        golden, marks=[pytest.mark.thorough] * (not is_quick(golden))
      )
      for golden in goldens
    ],
  )


def result(golden, factory):
  """Returns a golden's result; a process restores all that are as quick."""
  runner = str(helpers.TESTS / "keras" / "keras_golden_runner.py")
  same = [g for g in _GOLDENS if is_quick(g) == is_quick(golden)]
  paths = [str(helpers.GOLDENS / each) for each in same]
  printed = processes.run_once(factory, runner, *paths, **helpers.KERAS_2)
  results = helpers.parse_json(printed[printed.index("{") :])
  found = results[str(helpers.GOLDENS / golden)]
  assert not isinstance(found, str), found
  return found


@each_of(_LOOPS)
def test_trains_on_as_recorded(golden, tmp_path_factory):
  expected = helpers.expected_of(golden)
  rows, expected_rows = result(golden, tmp_path_factory), expected["rows"]
  expected_rows = expected_rows[expected["steps_before"] :]
  assert len(rows) == len(expected_rows) == expected["steps_after"]
  for row, expected_row in zip(rows, expected_rows):
    for key in ("loss_scale", "good_steps", "iterations"):
      assert row[key] == expected_row[key], (key, expected_row["i"])
    for key in ("w", "b"):
      np.testing.assert_allclose(
        row[key], expected_row[key], rtol=2e-5, atol=2e-7
      )


@each_of(_MODELS)
def test_models_load(golden, tmp_path_factory):
  expected, found = (
    helpers.expected_of(golden),
    result(golden, tmp_path_factory),
  )
  forms = {"weights"}
  forms |= {"model.h5"} if "no_h5" not in expected else set()
  forms |= {"saved_model"} if "no_savedmodel" not in expected else set()
  assert forms <= set(found)
  for form in forms:
    model = found[form]
    # The model computes in float16.
    np.testing.assert_allclose(
      model["probe"], expected["probe"], rtol=5e-3, atol=5e-3
    )
    assert model["legacy"]
    assert model["iterations"] == 12
    if form != "model.h5":  # HDF5 files have no current loss scale.
      assert model["loss_scale"] == expected["loss_scale"]
    if form != "weights" or isinstance(expected["policy_config"], dict):
      assert (model["initial_scale"], model["growth_steps"]) == (512.0, 3)
  if "config" in found:
    assert found["config"] == {
      "initial_scale": 512.0,
      "growth_steps": 3,
      "legacy": True,
      "momentum": pytest.approx(0.9),
    }
