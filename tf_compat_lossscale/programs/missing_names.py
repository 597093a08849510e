# SPDX-License-Identifier: Apache-2.0
"""Tells which of a program's names today's TensorFlow has, and what helps.

`scan` and `run --explain` ask. TensorFlow is not imported: its files tell.
"""

from __future__ import annotations

from collections.abc import Mapping
import functools
import glob
import os
import re
from typing import NamedTuple

from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale._core import which_keras
from tf_compat_lossscale.programs import hints
from tf_compat_lossscale.programs import tables
from tf_compat_lossscale.programs import tensorflow_names

RESTORED, MISSING = "restored", "missing"

# The first TensorFlow without `tf.estimator`.
_WITHOUT_ESTIMATOR = (2, 16)
_ROOT = "tensorflow."
_PRIVATE = "tensorflow.python"


class Absence(NamedTuple):
  """A name that today's TensorFlow lacks.

  Attributes:
    name: The part of the name that is missing, as `tf.…`.
    state: `RESTORED` if `tfl.install()` puts the name back, else `MISSING`.
    hint: What to do, or "".
    command: The command that installs what `tfl.install()` needs and what is
      not installed; "" if all is there.
  """

  name: str
  state: str
  hint: str = ""
  command: str = ""


@functools.lru_cache(None)
def find_absence(
  name: str, tensorflow: int | None, release: tuple[int, int] | None
) -> Absence | None:
  """Returns why a name does not work as it is; None if it works.

  Args:
    name: The full name, such as "tensorflow.contrib.layers.flatten".
    tensorflow: 1 if plain `tensorflow` becomes `tensorflow.compat.v1`, else 2.
    release: The TensorFlow (major, minor) that the program will run on.
  """
  # What every module and class has, such as `__name__`, is no name to miss.
  place = legacy_names.find_place(re.sub(r"(\.__\w+__)+$", "", name))
  if place is None or not place.module or legacy_names.find_home(name):
    return None
  first, _, below = place.module.partition(".")
  if first == "contrib":
    return _find_absence_in_contrib(below)
  if first == "estimator":
    return _find_absence_of_estimator(release)
  if name.startswith(_ROOT + "python.") or name in hints.GONE:
    return _find_absence_of_private(name)
  if first in ("keras", "core", "tools", "lite", "python", "summary"):
    return None
  v1 = place.space == "v1" or (tensorflow == 1 and ".compat.v2" not in name)
  lacks = tensorflow_names.find_missing_name(place.module, "compat/v1")
  if lacks is None and not v1:
    return None  # TensorFlow 1 alone has it: `which_tensorflow` weighs that.
  if not v1:
    lacks = tensorflow_names.find_missing_name(place.module, "compat/v2")
  return Absence(f"tf.{lacks}", MISSING) if lacks else None


def _find_absence_of_estimator(
  release: tuple[int, int] | None,
) -> Absence | None:
  if release is not None and release < _WITHOUT_ESTIMATOR:
    return None
  command = hints.INSTALL_ESTIMATOR if hints.explain_estimator() else ""
  return Absence("tf.estimator", RESTORED, "", command)


def _find_absence_in_contrib(path: str) -> Absence:
  if not path:  # The whole of it is imported, or has another name.
    return Absence("tf.contrib", RESTORED)
  parts = path.split(".")
  top = parts[0]
  shown = f"tf.contrib.{path}"
  command = hints.find_install_command(top)
  if command:
    return Absence(shown, RESTORED, "", command)
  names = tables.list_contrib_names(top)
  for i, part in enumerate(parts):
    start = ".".join(parts[: i + 1])
    module = f"{tables.CONTRIB}.{start}"
    if (
      i and (part in names or _is_in_star(names, part))
    ) or tables.TABLE.find_module(module):
      return Absence(shown, RESTORED)
    if not tables.is_contrib_module(start):
      break
  else:
    return Absence(shown, RESTORED)
  return Absence(f"tf.contrib.{start}", MISSING, hints.explain_contrib(start))


def _is_in_star(names: Mapping[str, str], name: str) -> bool:
  """Returns whether a module may have a name that another module has."""
  pattern = rf"^(def|class) {name}\b|^{name} =|['\"]{name}['\"]"
  for home in tables.list_star_homes(names):
    package, _, path = home.partition(".")
    base = os.path.join(
      which_keras.find_folder(package) or "", *path.split(".")
    )
    if not path or package != "tf_slim":
      return True
    for file in glob.glob(f"{base}.py") + glob.glob(os.path.join(base, "*.py")):
      if re.search(pattern, _read(file) or "", re.MULTILINE):
        return True
  return False


def _find_absence_of_private(name: str) -> Absence | None:
  if name in hints.GONE:
    return Absence(name, MISSING, hints.GONE[name])
  if f"{name}.".startswith(f"{tables.PRIVATE_KERAS}."):
    return Absence(tables.PRIVATE_KERAS, RESTORED)
  module, parts = name, list[str]()
  while module != _PRIVATE:
    path = tensorflow_names.find_module_file(module)
    if path is not None:
      break
    if tables.TABLE.find_module(module):
      return Absence(module, RESTORED)
    module, _, last = module.rpartition(".")
    parts.insert(0, last)
  else:
    path = tensorflow_names.find_module_file(module)
  if not parts or path is None:
    return None
  if parts[0] in tables.TABLE.names.get(module, ()):
    return Absence(f"{module}.{parts[0]}", RESTORED)
  if _mentions(path, parts[0]):
    return None
  return Absence(f"{module}.{parts[0]}", MISSING)


@functools.lru_cache(256)
def _read(path: str) -> str | None:
  """Returns the text of a module; None for a folder or a compiled module."""
  if not path.endswith(".py"):
    return None
  with open(path, encoding="utf-8") as file:
    return file.read()


def _mentions(path: str, name: str) -> bool:
  """Returns whether a module may have a name: its text has the word."""
  text = _read(path)
  if text is None:
    return not path.endswith("python")
  if re.search(r"^from \S+ import \*", text, re.MULTILINE):
    return True
  return re.search(rf"\b{re.escape(name)}\b", text) is not None
