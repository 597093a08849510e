# SPDX-License-Identifier: Apache-2.0
"""Lets the choices of a flag be one text, as old releases of absl-py did.

TensorFlow's official models, and programs that copied their flags, have the
choices `("keras', 'graph_rewrite")` for the kind of mixed precision: one text,
by a mistake. Old releases of absl-py looked for the flag's value in that text;
today's refuse it when the program starts.
"""

from __future__ import annotations

import functools
import re
import types
from typing import Any


def split_choices(text: str) -> list[str]:
  """Returns the choices that a text means: its words."""
  return re.findall(r"[\w.+-]+", text)


def accept_texts(module: types.ModuleType) -> None:
  """Makes the parser of flags with choices accept a text.

  Args:
    module: The module `absl.flags._argument_parser`.
  """
  parser = module.EnumParser
  own = parser.__init__

  @functools.wraps(own)
  def init(self: Any, enum_values: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(enum_values, str):
      enum_values = split_choices(enum_values)
    own(self, enum_values, *args, **kwargs)

  parser.__init__ = init
