# SPDX-License-Identifier: Apache-2.0
"""The names in TensorFlow's modules, some of which wrap another module."""

from __future__ import annotations

import types
from typing import Any


def list_namespaces(module: types.ModuleType) -> list[dict[str, Any]]:
  """Returns the dictionaries in which a module looks a name up.

  `setattr` and `delattr` also change a cache and `__all__`, and `delattr` of a
  name that was read makes TensorFlow 2.15 crash. There is no public way to the
  module that is wrapped. In a release without wrappers, only the module's own
  dictionary is returned.
  """
  own = vars(module)
  wrapped = own.get("_tfmw_wrapped_module")
  return [own] if wrapped is None else [own, vars(wrapped)]
