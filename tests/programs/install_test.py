# SPDX-License-Identifier: Apache-2.0
"""Tests how the legacy names are installed and uninstalled."""

import importlib
import sys
import threading
import types

import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale._core import legacy_names as table
from tf_compat_lossscale.programs import old_modules

_CORE = [row for row in table.TABLE if row.home not in ("keras", "contrib")]
_ROOTS = ("tensorflow", "tensorflow.compat.v1", "tensorflow.compat.v2")


def spellings(place):
  """Returns the names of the modules that a place of the table stands for."""
  first, _, module = place.partition(".")
  if first == "tensorflow":
    return [place]
  if module.startswith("compat."):
    return [f"tensorflow.{module}"]
  return [f"{root}.{module}" for root in _ROOTS]


def by_attributes(name):
  module = importlib.import_module("tensorflow")
  for part in name.split(".")[1:]:
    module = getattr(module, part)
  return module


def snapshot():
  """Returns module -> attributes for all modules of TensorFlow and Keras."""
  return {
    name: dict(vars(module))
    for name, module in sys.modules.items()
    if name.startswith(("tensorflow", "keras", "tf_keras"))
    and isinstance(module, types.ModuleType)
    # Such modules store each attribute that is read.
    and "LazyLoader" not in type(module).__name__
  }


def same(before, after):
  assert set(before) <= set(after)
  for name, names in before.items():
    for key in {*names, *after[name]}:
      if key in ("_fastdict", "__warningregistry__") or key.startswith("_tfmw"):
        continue
      assert names.get(key) is after[name].get(key), (name, key)
  for name in set(after) - set(before):
    assert not isinstance(after[name], old_modules.LazyModule), name


CASES = [
  pytest.param(module, name, row.home, id=f"{module}.{name}")
  for row in _CORE
  for place in row.places
  for module in spellings(place)
  for name in row.names
]


@pytest.mark.parametrize(("module", "name", "home"), CASES)
def test_every_name_in_every_place(module, name, home):
  home = importlib.import_module(f"{tfl.__name__}.{home}")
  ours = getattr(home, table.get_current_name(name))
  with tfl.installed():
    if not module.startswith("tensorflow.python"):
      assert getattr(by_attributes(module), name) is ours
    assert getattr(importlib.import_module(module), name) is ours
    scope = {}
    exec(f"from {module} import {name} as found", scope)
    assert scope["found"] is ours
    parent, _, last = module.rpartition(".")
    exec(f"from {parent} import {last} as found", scope)
    assert getattr(scope["found"], name) is ours


def test_namespaces_in_namespaces():
  with tfl.installed():
    v1, v2 = tf.compat.v1, tf.compat.v2
    assert v1.mixed_precision.LossScale is tfl.LossScale
    assert v1.compat.v1.train.experimental.LossScale is tfl.LossScale
    assert v2.mixed_precision.experimental.LossScale is tfl.LossScale


def test_nothing_is_left_behind():
  with tfl.installed():  # Loads lazy modules before the snapshot.
    pass
  before = snapshot()
  with tfl.installed():
    importlib.import_module("tensorflow.contrib.mixed_precision")
    importlib.import_module("tensorflow.mixed_precision.experimental")
    assert hasattr(tf, "contrib") and hasattr(tf, "mixed_precision")
  same(before, snapshot())
  assert not [name for name in sys.modules if name.startswith("tensorflow.con")]
  assert not any(
    type(finder).__module__.startswith("tf_compat") for finder in sys.meta_path
  )
  with pytest.raises(ModuleNotFoundError):
    importlib.import_module("tensorflow.contrib.mixed_precision")
  assert tf.compat.v1.mixed_precision.LossScale is not tfl.LossScale


def test_a_module_that_an_import_has_set_in_its_parent_goes():
  with tfl.installed():
    importlib.import_module("tensorflow.compat.v1.keras.mixed_precision")
  keras = vars(sys.modules["tensorflow.compat.v1"]).get("keras")
  assert not isinstance(keras, old_modules.LazyModule)


def test_what_somebody_else_set_stays():
  place = tf.compat.v1.train.experimental
  own = place.FixedLossScale
  try:
    with tfl.installed():
      place.FixedLossScale = mine = object()
    assert place.FixedLossScale is mine
  finally:
    place.FixedLossScale = own


def test_install_is_idempotent_and_contexts_nest():
  own = tf.compat.v1.mixed_precision.LossScale

  def theirs():
    return tf.compat.v1.mixed_precision.LossScale is own

  finders = list(sys.meta_path)
  first, second = tfl.install(), tfl.install()
  assert repr(first) == repr(second)
  with tfl.installed():
    assert "stay" in repr(tfl.uninstall())
    assert not theirs()
    with tfl.installed():
      pass
    assert not theirs()
  assert theirs()
  assert "no legacy names" in repr(tfl.uninstall())
  tfl.install()
  with tfl.installed():
    pass
  assert not theirs()
  assert "taken back" in repr(tfl.uninstall())
  assert theirs() and sys.meta_path == finders


def test_threads():
  before = snapshot()
  wrong = []

  def work():
    for _ in range(20):
      with tfl.installed():
        if tf.train.experimental.LossScale is not tfl.LossScale:
          wrong.append("not there")

  threads = [threading.Thread(target=work) for _ in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not wrong
  same(before, snapshot())


def test_report_is_a_table():
  with tfl.installed() as report:
    lines = repr(report).splitlines()
  assert len(lines) > 10
  row = next(
    line for line in lines if " tensorflow.train.experimental " in line
  )
  assert "DynamicLossScale" in row and "added" in row
  row = next(line for line in lines if "v1.mixed_precision " in line)
  assert "replaces TensorFlow's" in row
  row = next(line for line in lines if "tensorflow.contrib.mixed_pre" in line)
  assert "loads when used" in row


def test_unknown_names_are_as_unknown_as_ever():
  with tfl.installed():
    with pytest.raises(AttributeError, match="LossScales"):
      tf.mixed_precision.experimental.LossScales  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
      importlib.import_module("tensorflow.mixed_precision.no_such")
