# SPDX-License-Identifier: Apache-2.0
"""NumPy by the name of CuPy; arrays have CuPy's `get`."""

import numpy as np


class ndarray(np.ndarray):
  def get(self):
    return np.asarray(self)


def _wrap(function):
  def wrapped(*args, **kwargs):
    result = function(*args, **kwargs)
    if isinstance(result, list):
      return [r.view(ndarray) if type(r) is np.ndarray else r for r in result]
    return result.view(ndarray) if type(result) is np.ndarray else result

  return wrapped


class _Random:
  def __getattr__(self, name):
    return _wrap(getattr(np.random, name))


class _Nothing:
  def __getattr__(self, name):
    return lambda *args, **kwargs: self


random, cuda = _Random(), _Nothing()


def get_default_memory_pool():
  return _Nothing()


def asnumpy(array):
  return np.asarray(array)


def __getattr__(name):
  value = getattr(np, name)
  return (
    _wrap(value) if callable(value) and not isinstance(value, type) else value
  )
