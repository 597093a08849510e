# SPDX-License-Identifier: Apache-2.0
"""Tests the names of the standard library that Python removed."""

import collections
import sys
import types

import legacy_processes
import pytest

from tf_compat_lossscale.programs import python_names

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
  python_names.add_to_collections(fake)
  assert fake.Mapping == "mine"
  assert fake.Sequence is collections.abc.Sequence
  fake = types.ModuleType("inspect")
  fake.getargspec = "mine"
  python_names.add_to_inspect(fake)
  assert vars(fake).get("getargspec") == "mine"


def test_this_process_is_not_changed():
  assert not hasattr(collections, "Sequence") or sys.version_info < (3, 10)
