# SPDX-License-Identifier: Apache-2.0
"""DALI can be imported, and no more: programs use it if a flag says so."""

import sys
import types


class _Module(types.ModuleType):
  __path__ = ()

  def __getattr__(self, name):
    if name.startswith("__"):
      raise AttributeError(name)
    return type(name, (), {})


for _name in (
  *("dali", "dali.ops", "dali.types", "dali.pipeline", "dali.tfrecord"),
  *("dali.plugin", "dali.plugin.tf"),
):
  _name = f"{__name__}.{_name}"
  sys.modules[_name] = _module = _Module(_name)
  _parent, _, _leaf = _name.rpartition(".")
  setattr(sys.modules[_parent], _leaf, _module)
