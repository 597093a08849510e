# SPDX-License-Identifier: Apache-2.0
"""Savers of TensorFlow 1."""

from __future__ import annotations

from typing import Any


def find_saved_objects(saver: Any) -> Any:
  """Returns the variables and other objects that a Saver was told to save.

  `Saver` keeps its argument `var_list` in a private attribute. A public reader
  would replace this function. In a release without the attribute the Saver's
  ops tell the same, as for a Saver of a MetaGraph.

  Returns:
    A list, or a dict from keys to them; None if there is no such list.
  """
  return getattr(saver, "_var_list", None)
