# SPDX-License-Identifier: Apache-2.0
"""Looks up private names, which may be missing in another release."""

from __future__ import annotations

import importlib
from typing import Any


def find_private(module: str, name: str) -> Any:
  """Returns a name of a private module, or None if a release lacks the name.

  Args:
    module: The module, relative to `tensorflow.python`.
    name: A name that the module may define.
  """
  try:
    return getattr(importlib.import_module(f"tensorflow.python.{module}"), name)
  except (AttributeError, ImportError):
    return None
