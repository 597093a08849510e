# SPDX-License-Identifier: Apache-2.0
"""A network's protocol buffer: a message takes every field, and writes none."""

import itertools


class _Numbers(type):
  """Gives names of an enumeration numbers, in the order of the questions."""

  def __getattr__(cls, name):
    if name.startswith("__"):
      raise AttributeError(name)
    setattr(cls, name, next(cls.numbers))
    return getattr(cls, name)


class NetworkFormat(metaclass=_Numbers):
  numbers = itertools.count(2)
  INPUT_CLASSICAL_112_PLANE = 1  # The games' records have this number.


class Format(metaclass=_Numbers):
  numbers = itertools.count(1)


class _Repeated(list):
  def add(self):
    self.append(Net())
    return self[-1]


class Net:
  def __getattr__(self, name):
    if name.startswith("__"):
      raise AttributeError(name)
    is_repeated = name == "residual" or name.endswith("encoder")
    setattr(self, name, _Repeated() if is_repeated else Net())
    return getattr(self, name)

  def SerializeToString(self):
    return b""
