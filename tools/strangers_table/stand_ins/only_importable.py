# SPDX-License-Identifier: Apache-2.0
"""A module that a program imports and does not use; the runner names it.

It and all modules below it can be imported, and each name is a class that has
every attribute, and no elements.
"""

import importlib.machinery
import sys
import types


def _make(name):
  if name.startswith("__"):
    raise AttributeError(name)
  return _Type(name, (_Anything,), {})


class _Type(type):
  def __getattr__(cls, name):
    return _make(name)

  def __iter__(cls):
    return iter(())


class _Anything:
  def __init__(self, *args, **kwargs):
    pass

  def __getattr__(self, name):
    return _make(name)

  def __iter__(self):
    return iter(())


class _Module(types.ModuleType):
  __path__ = ()

  def __getattr__(self, name):
    return _make(name)


class _Finder:
  def find_spec(self, name, path=None, target=None):
    if name.startswith(f"{__name__}."):
      return importlib.machinery.ModuleSpec(name, self, is_package=True)
    return None

  def create_module(self, spec):
    return _Module(spec.name)

  def exec_module(self, module):
    pass


sys.meta_path.append(_Finder())
sys.modules[__name__].__class__ = _Module
