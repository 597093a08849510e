# SPDX-License-Identifier: Apache-2.0
"""Tests that changes of other modules are taken back."""

import importlib
import sys
import types

import helpers
import pytest

from tf_compat_lossscale._core import patching

pytestmark = pytest.mark.any_release


class Owner:
  kept = "own"


def test_the_last_change_goes_first():
  log = patching.UndoLog()
  assert log.set(Owner, "kept", "first") == "own"
  assert log.set(Owner, "kept", "second") == "first"
  assert log.set(Owner, "new", 1) is patching.ABSENT
  assert (Owner.kept, Owner.new) == ("second", 1)
  for _ in range(2):
    log.undo()
    assert Owner.kept == "own" and not hasattr(Owner, "new")


def test_what_a_program_set_stays(monkeypatch):
  monkeypatch.setattr(Owner, "kept", "own")
  log = patching.UndoLog()
  log.set(Owner, "kept", "ours")
  Owner.kept = "theirs"
  log.undo()
  assert Owner.kept == "theirs" and log.has_set("ours")
  # The program takes its own change back, too.
  Owner.kept = "ours"
  log.undo()
  assert Owner.kept == "own" and not log.has_set("ours")


def test_a_copy_of_what_was_set_is_restored_like_the_original():
  log = patching.UndoLog()
  first, late = types.ModuleType("first"), types.ModuleType("late")
  first.name = "own"
  ours = object()
  log.set(first, "name", ours)
  late.name = ours
  assert log.set(late, "name", ours) == "own"
  log.undo()
  assert first.name == late.name == "own"


def test_a_supplied_module_leaves_its_parent(monkeypatch):
  parent = types.ModuleType("parent")
  parent.child = "own"
  monkeypatch.setitem(sys.modules, "parent", parent)
  log = patching.UndoLog()
  child, grandchild = types.ModuleType("c"), types.ModuleType("g")
  for name, module in (("child", child), ("child.last", grandchild)):
    # What the import system does.
    sys.modules[f"parent.{name}"] = log.supply(f"parent.{name}", module)
    owner, _, last = f"parent.{name}".rpartition(".")
    setattr(sys.modules[owner], last, module)
  log.undo()
  assert parent.child == "own"
  assert not [name for name in sys.modules if name.startswith("parent.")]
  assert child.last is grandchild  # A program may hold the supplied parent.
  with pytest.raises(ModuleNotFoundError):
    importlib.import_module("parent.child")


if __name__ == "__main__":
  helpers.main()
