# SPDX-License-Identifier: Apache-2.0
"""Tests import hooks."""

import importlib
import sys
import types

import processes
import pytest

from tf_compat_lossscale.programs import import_hooks
from tf_compat_lossscale.programs import launch

pytestmark = pytest.mark.any_release


def test_watchers_are_asked_in_their_order(tmp_path, monkeypatch):
  """Checks one finder: the newest replaces, then others find, then the oldest.

  A module that another finder has is told of in the order of the nesting.
  """
  said = []

  class Watcher(import_hooks.ImportWatcher):
    def __init__(self, name, replaces="", supplies=""):
      self.name, self.replaces, self.supplies = name, replaces, supplies

    def watches(self, name):
      return name.startswith("watched_")

    def after_load(self, name, module):
      said.append(self.name)

    def replace_module(self, name):
      return types.ModuleType(self.name) if name == self.replaces else None

    def supply_module(self, name):
      return types.ModuleType(self.name) if name in self.supplies else None

  for name in ("watched_both", "watched_file"):
    (tmp_path / f"{name}.py").touch()
  monkeypatch.syspath_prepend(tmp_path)
  before = list(sys.meta_path)
  old = Watcher("old", "watched_both", "watched_file watched_gone")
  new = Watcher("new", "watched_both", "watched_file watched_gone")
  old.start()
  new.start()
  assert sys.meta_path[1:] == before
  assert old.is_started() and new.is_started()
  found = [
    importlib.import_module(f"watched_{name}").__name__
    for name in ("both", "gone", "file")
  ]
  old.stop()
  assert not old.is_started() and sys.meta_path[1:] == before
  new.stop()
  assert sys.meta_path == before
  assert found == ["new", "old", "watched_file"]
  assert said == ["old", "new"]
  for name in ("both", "gone", "file"):
    del sys.modules[f"watched_{name}"]


def test_start_costs_no_tensorflow():
  out = processes.run_python(
    "-c",
    "import sys; print([m for m in sys.modules if m in ('tensorflow', 'numpy', "
    "'ast', 'absl')])",
    TF_COMPAT_LOSSSCALE_RUN="tf1",
    PYTHONPATH=launch._SITE,
  )
  assert out == "[]\n"
