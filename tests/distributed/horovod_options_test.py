# SPDX-License-Identifier: Apache-2.0
"""Tests options of Horovod, and agreement, with two ranks."""

import helpers
import horovod_runs
import numpy as np
import pytest

pytestmark = horovod_runs.MARKS


@pytest.fixture(scope="module")
def options(tmp_path_factory):
  folder = tmp_path_factory.mktemp("options")
  return horovod_runs.run_task(folder, 2, "run_options")


@pytest.fixture(scope="module")
def agreement(tmp_path_factory):
  folder = tmp_path_factory.mktemp("agreement")
  return horovod_runs.run_task(folder, 2, "run_agreement")


def of_both(results, name):
  """Returns rows that both ranks have."""
  first, second = (of_rank[name].tolist() for of_rank in results)
  assert first == second
  return first


@pytest.mark.parametrize("order", ["inside", "outside"])
@pytest.mark.parametrize("option", ["predivide", "groups", "half", "sum"])
def test_an_infinity_of_one_rank_skips_the_step_of_both(options, option, order):
  rows = np.array([[-2, 8, 1], [-2, 4, 1], [-4, 4, 2], [-6, 8, 3]])
  if option == "sum":
    rows[:, 0] *= 2
  assert of_both(options, f"{option}-{order}") == rows.tolist()


def test_compression_needs_scaled_gradients(options):
  """Small gradients are lost unless Horovod's optimizer is the inner one."""
  assert of_both(options, "small-inside")[-1][0] == 0
  assert of_both(options, "small-outside")[-1][0] == -(2**-25)


def test_the_scale_falls_until_compressed_gradients_fit(options):
  rows = of_both(options, "big-outside")
  assert [row[1] for row in rows] == [2**i for i in (14, 13, 12, 11, 11, 11)]
  assert [row[0] for row in rows] == [0, 0, 0, 0, -8, -16]


@pytest.mark.parametrize("clip", [False, True])
def test_passes_outside(options, clip):
  """Horovod adds gradients of passes; an infinity skips both passes."""
  assert of_both(options, f"passes-{clip}") == [
    [0, 8, 1],
    [-5, 8, 2],
    [-5, 8, 3],
    [-5, 4, 3],
    [-5, 4, 4],
    [-18, 4, 5],
  ]


def test_what_cannot_work_is_an_error(options):
  for of_rank in options:
    assert "tf_compat_lossscale.accumulate(" in str(of_rank["passes-outside"])
    assert "list(zip(gradients, variables))" in str(of_rank["read-before"])


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_agreement_with_adasum(options, order):
  assert of_both(options, f"adasum-{order}") == [
    [-1, 8, 1],
    [-1, 4, 1],
    [-2, 4, 2],
  ]


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_agreement_with_local_variables(options, order):
  for rank, of_rank in enumerate(options):
    own = 1 + rank
    assert of_rank[f"local-{order}"].tolist() == [
      [-own, -1.5, 8],
      [-own, -1.5, 4],
      [-2 * own, -3, 4],
    ]


@pytest.mark.parametrize("mode", helpers.MODES)
def test_agreement(agreement, mode):
  assert of_both(agreement, f"{mode}-True") == [
    [-1, 8],
    [-1, 4],
    [-2, 4],
  ]


@pytest.mark.parametrize("mode", helpers.MODES)
def test_ranks_differ_without_agreement(agreement, mode):
  first, second = (x[f"{mode}-False"].tolist() for x in agreement)
  assert first == [[-1, 8], [-2, 16], [-3, 16]]
  assert second == [[-1, 8], [-1, 4], [-2, 4]]


if __name__ == "__main__":
  helpers.main()
