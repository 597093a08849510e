# SPDX-License-Identifier: Apache-2.0
"""Tests the check of powers' values, and an error about many names.

`mapping_test.py` and `random_programs_test.py` test what is matched.
"""

import types

import numpy as np
import pytest

from tf_compat_lossscale import checkpoint
from tf_compat_lossscale.checkpoint import matching
from tf_compat_lossscale.checkpoint.places import find_wrong_powers
from tf_compat_lossscale.checkpoint.places import Place
from tf_compat_lossscale.checkpoint.places import Source
from tf_compat_lossscale.checkpoint.places import Wishes
from tf_compat_lossscale.checkpoint.reading import TensorSpec


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
  model = types.SimpleNamespace(prefix="model")
  places = [Place(f"a{i}/cond_1/w{i}", spec) for i in range(20_000)]
  sources = {
    f"b{i}/w{i}_1": Source(f"b{i}/w{i}_1", spec) for i in range(20_000)
  }
  with pytest.raises(checkpoint.CheckpointError) as error:
    matching.match(model, places, sources, Wishes(), [], ())
  assert len(str(error.value)) < 10_000
