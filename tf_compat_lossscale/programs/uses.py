# SPDX-License-Identifier: Apache-2.0
"""Uses of TensorFlow's names in sources, and where each legacy name went."""

from __future__ import annotations

import functools
from typing import Any
from typing import NamedTuple

import tf_compat_lossscale
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core.legacy_names import Place


class Use(NamedTuple):
  """An occurrence of one of TensorFlow's names in a source.

  Attributes:
    line: The line where the occurrence starts, counted from 1.
    written: The name as written.
    name: The full name, such as "tensorflow.train.experimental.LossScale".
    home: The module of this package that defines the name; None if this package
      does not have it.
    form: "expression", "import" (`import a.b`), "from" (`from a import b`),
      "star" (`from a import *`), "follows" (an expression that begins with an
      imported legacy name, and so changes with the import), "method" (of an
      object that TensorFlow made), "getattr" (`getattr(a, "b")`), "call" (by
      its arguments, a function of TensorFlow 1), "text" (in a string) or
      "unknown" (an expression whose first part may be TensorFlow).
    node: The syntax tree's node.
  """

  line: int
  written: str
  name: str
  home: str | None
  form: str
  node: Any

  @property
  def now(self) -> str:
    """The full name in this package."""
    place = legacy_names.find_place(self.name)
    module = find_module_home(place) if place else None
    if module is not None:
      return module
    if place in legacy_names.NAMES_IN:
      return "tf_compat_lossscale"
    last = legacy_names.get_current_name(self.name.rpartition(".")[2])
    if self.home and last not in tf_compat_lossscale.__all__:
      return f"tf_compat_lossscale.{self.home}.{last}"
    return f"tf_compat_lossscale.{last}"


def find_module_home(place: Place) -> str | None:
  """Returns the module of this package that has all names of a place, or None.

  `train.experimental` had more than this package has: its result is None.
  """
  homes = set(legacy_names.NAMES_IN.get(place, {}).values())
  if not homes or place.module == "train.experimental":
    return None
  home = homes.pop()
  private = place.module.startswith("python.training")
  if private or home in ("keras", "contrib"):
    return f"tf_compat_lossscale.{home}"
  return "tf_compat_lossscale"


@functools.lru_cache(1 << 16)
def find_home(name: str) -> str | None:
  """Returns the module of this package that has or replaces `name`, or None."""
  place = legacy_names.find_place(name)
  if place is None:
    return None
  module, _, last = name.rpartition(".")
  parent = legacy_names.find_place(module)
  homes = legacy_names.NAMES_IN.get(parent, {}) if parent else {}
  return homes.get(last) or find_module_home(place)
