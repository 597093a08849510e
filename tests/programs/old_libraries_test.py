# SPDX-License-Identifier: Apache-2.0
"""Tests what Python's library, absl-py and NumPy had once."""

import collections
import types

import legacy_processes
import numpy as np
import pytest

from tf_compat_lossscale.programs import old_libraries

_PROGRAM = """
import collections
from collections import Iterable, Mapping
assert isinstance([], collections.Sequence) and isinstance({}, Mapping)
assert issubclass(collections.OrderedDict, collections.MutableMapping)

import inspect
def f(a, b=2, *c, **d): pass
spec = inspect.getargspec(f)
print(tuple(spec), "b" in spec.args, spec.keywords)
def g(a, *, b): pass
try:
  inspect.getargspec(g)
except ValueError as error:
  print("keyword-only" in str(error))
"""


@pytest.mark.any_release
def test_run_puts_names_back(tmp_path):
  name = legacy_processes.program(tmp_path, _PROGRAM)
  status, out, err = legacy_processes.run(name, cwd=tmp_path)
  expected = "(['a', 'b'], 'c', 'd', (2,)) True d\nTrue\n"
  assert (status, out) == (0, expected), err


@pytest.mark.any_release
def test_names_that_python_has_stay():
  fake = types.ModuleType("collections")
  fake.Mapping = "mine"
  old_libraries.add_to_collections(fake)
  assert fake.Mapping == "mine"
  assert fake.Sequence is collections.abc.Sequence
  fake = types.ModuleType("inspect")
  fake.getargspec = "mine"
  old_libraries.add_to_inspect(fake)
  assert vars(fake).get("getargspec") == "mine"


_FLAGS = """
from absl import app, flags
flags.DEFINE_enum(name="fp16_implementation", default="keras",
                  enum_values=("keras', 'graph_rewrite"), help="By what.")
flags.DEFINE_enum("size", "small", ["small", "large"], "How large.")
def main(_):
  print(flags.FLAGS.fp16_implementation, flags.FLAGS.size)
app.run(main)
"""


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("flag", "expected"),
  [
    ("fp16_implementation=graph_rewrite", "graph_rewrite small\n"),
    ("fp16_implementation=rewrite", None),
    ("size=tiny", None),
  ],
)
def test_the_choices_of_a_flag_may_be_one_text(flag, expected, tmp_path):
  name = legacy_processes.program(tmp_path, _FLAGS)
  status, out, err = legacy_processes.run(name, f"--{flag}", cwd=tmp_path)
  if expected is not None:
    assert (status, out) == (0, expected), err
  else:
    assert status == 1 and "value should be one of" in err


_NUMPY = """
import numpy as np
assert np.zeros(2, np.int).dtype == int
assert np.zeros(2, np.bool).dtype == bool
assert np.zeros(2, np.float).dtype == float
assert np.array(["a"], np.object)[0] == "a"
assert np.product([2, 3]) == 6 and np.alltrue([True])
assert np.asscalar(np.ones(1)) == 1
assert np.isnan(np.NaN) and np.NINF == -np.inf
assert np.asfarray([1, 2], np.int32).dtype == np.float64
assert np.fromstring("AB", "u1")[1] == 66 and np.fromstring("5", sep=" ") == 5
assert np.float32 in np.sctypes["float"] and np.uint8 in np.sctypes["uint"]
assert np.cast["f"]([1, 2]).dtype == np.float32 and np.cast[np.int8](1.9) == 1
assert np.nbytes["f8"] == np.nbytes[np.float64] == 8
for arrays, scalars, common in (
    ([np.float32], [], "f4"), ([], ["i8"], "i8"), (["i8", "f4"], [], "f8"),
    (["f4"], ["i8", "f8"], "f4"), (["i8"], ["f4"], "f8"),
    (["i4"], ["c8"], "c16"),
):
  assert np.find_common_type(arrays, scalars) == np.dtype(common), arrays
assert (np.mat([[1, 2]]) * np.mat([[3], [4]])).item() == 11
assert np.in1d([[1, 2], [3, 4]], [2, 3]).tolist() == [False, True, True, False]
assert np.in1d([1, 2], [2], invert=True).tolist() == [True, False]
assert np.issctype(np.int32) and np.issctype(np.dtype("f4"))
assert not np.issctype(1.5) and not np.issctype(list)
assert np.obj2sctype("f4") is np.obj2sctype(np.ones(1, "f")) is np.float32
assert np.obj2sctype("no type", 5) == 5 and np.sctype2char("i2") == "h"
assert np.issubclass_(np.int32, np.integer) and not np.issubclass_(1, int)
assert np.cfloat is np.complex128 and np.msort([[2, 1], [1, 3]])[0, 0] == 1
assert np.safe_eval("[1, 2]") == [1, 2] and np.math.pi > 3
first, last = np.byte_bounds(np.zeros(3))
assert last - first == 24 and np.DataSource(None)
assert issubclass(np.AxisError, ValueError) and np.RankWarning
with open("table.csv", "w") as file:
  file.write("A,B\\n1,2.5\\n3,4.5\\n")
assert np.recfromcsv("table.csv").b.tolist() == [2.5, 4.5]
assert np.recfromtxt("table.csv", delimiter=",", skip_header=1).shape
np.disp("done", linefeed=False)
np.source(np.disp)
for call in (np.lookfor, lambda x: np.set_string_function(x, repr=False)):
  if np.__version__ < "2":
    break
  try:
    call("fft")
  except NotImplementedError as error:
    assert "numpy." in str(error)
  else:
    raise AssertionError
"""


def test_run_puts_numpys_names_back(tmp_path):
  name = legacy_processes.program(tmp_path, _NUMPY)
  done = legacy_processes.run(name, cwd=tmp_path)
  assert done[0] == 0 and done[1].startswith("done"), done
  assert "def disp(" in done[1]


@pytest.mark.any_release
def test_names_that_numpy_has_stay():
  fake = types.ModuleType("numpy")
  vars(fake).update(vars(np), int="mine", product=max)
  old_libraries.add_to_numpy(fake)
  assert fake.int == "mine" and fake.product is max
  for name in old_libraries.NUMPY_REPLACED:
    assert hasattr(fake, name), name
