# SPDX-License-Identifier: Apache-2.0
"""Tests what Python's library and absl-py had once."""

import collections
import types

import legacy_processes
import pytest

from tf_compat_lossscale.programs import old_libraries

pytestmark = pytest.mark.any_release

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


def test_run_puts_names_back(tmp_path):
  name = legacy_processes.program(tmp_path, _PROGRAM)
  status, out, err = legacy_processes.run(name, cwd=tmp_path)
  expected = "(['a', 'b'], 'c', 'd', (2,)) True d\nTrue\n"
  assert (status, out) == (0, expected), err


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


def test_the_choices_of_a_flag_may_be_one_text(tmp_path):
  name = legacy_processes.program(tmp_path, _FLAGS)
  command = (name, "--fp16_implementation=graph_rewrite")
  status, out, err = legacy_processes.run(*command, cwd=tmp_path)
  assert (status, out) == (0, "graph_rewrite small\n"), err


@pytest.mark.parametrize("flag", ["fp16_implementation=rewrite", "size=tiny"])
def test_other_values_of_flags_are_refused(tmp_path, flag):
  name = legacy_processes.program(tmp_path, _FLAGS)
  status, _, err = legacy_processes.run(name, f"--{flag}", cwd=tmp_path)
  assert status == 1 and "value should be one of" in err
