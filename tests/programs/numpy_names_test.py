# SPDX-License-Identifier: Apache-2.0
"""Tests the names of NumPy that old programs use and that NumPy removed."""

import types

import helpers
import legacy_processes
import numpy as np
import pytest

from tf_compat_lossscale.programs import numpy_names

_PROGRAM = """
import numpy as np
assert np.zeros(2, np.int).dtype == int
assert np.zeros(2, np.bool).dtype == bool
assert np.zeros(2, np.float).dtype == float
assert np.array(["a"], np.object)[0] == "a"
assert np.product([2, 3]) == 6 and np.alltrue([True])
assert np.asscalar(np.ones(1)) == 1
assert np.isnan(np.NaN) and np.NINF == -np.inf
assert np.asfarray([1, 2], np.int32).dtype == np.float64
print("done")
"""


def test_run_puts_names_back(tmp_path):
  (tmp_path / "program.py").write_text(_PROGRAM, "utf-8")
  done = legacy_processes.run("program.py", cwd=tmp_path)
  assert done[:2] == (0, "done\n"), done


@pytest.mark.any_release
def test_names_that_numpy_has_stay():
  fake = types.ModuleType("numpy")
  vars(fake).update(vars(np), int="mine", product=max)
  numpy_names.add_names(fake)
  assert fake.int == "mine" and fake.product is max
  for name in numpy_names._BUILTINS | numpy_names._RENAMED:
    assert hasattr(fake, name) or name == "trapz", name


@pytest.mark.any_release
def test_this_process_is_not_changed():
  with pytest.raises(AttributeError):
    np.int  # noqa: B018


if __name__ == "__main__":
  helpers.main()
