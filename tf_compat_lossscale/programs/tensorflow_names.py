# SPDX-License-Identifier: Apache-2.0
"""Tells which TensorFlow has a name, by TensorFlow's files alone.

TensorFlow is installed with the list that `tf_upgrade_v2` goes by: every name
of TensorFlow 1 that is elsewhere in TensorFlow 2. It also has a file for each
module of its namespaces. Both are read as text, because importing TensorFlow
takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
import functools
import importlib.machinery
import itertools
import os
import re

from tf_compat_lossscale._core import installation

_MOST_PARTS = 64  # No name has more parts; `a.b.c…` may have any number.
_V1 = "tensorflow.compat.v1."
_LIST = "tools/compatibility/renames_v2.py"

# Modules of TensorFlow 1 that the list lacks, in some releases or in all, and
# names that tell TensorFlow 1 code if there is no list.
_TENSORFLOW_1_NAMES = """
  app contrib distributions estimator.inputs examples flags gfile layers logging
  manip nn.rnn_cell python_io resource_loader spectral user_ops
  ConfigProto GraphKeys InteractiveSession Session get_variable
  global_variables_initializer placeholder variable_scope
  summary.FileWriter summary.merge_all
  train.AdamOptimizer train.GradientDescentOptimizer train.MomentumOptimizer
  train.MonitoredTrainingSession train.Saver
  parse_example parse_single_example
"""
_TENSORFLOW_1 = frozenset(_TENSORFLOW_1_NAMES.split())
# Methods that the datasets of TensorFlow 1 alone have.
METHODS = ("make_initializable_iterator", "make_one_shot_iterator")
# Names of the list that TensorFlow 2 has at the same place, from Keras or from
# TensorBoard, with other parameters.
_IN_BOTH_NAMES = """
  losses.Reduction losses.mean_squared_error metrics.mean_absolute_error
  metrics.mean_squared_error summary.audio summary.histogram summary.image
  summary.scalar summary.text
"""
_IN_BOTH = frozenset(_IN_BOTH_NAMES.split())
# Modules that Keras, TensorBoard or this package decide about, not the list.
_UNDECIDED = re.compile(
  r"keras\.(optimizers|layers|utils)|mixed_precision|train\.experimental"
)
# Names that TensorFlow has, though no file of names lists them.
_UNLISTED_NAMES = """
  compat core dtensor estimator flags initializers keras layers lite losses
  metrics optimizers python security summary tools tsl
"""
_UNLISTED = frozenset(_UNLISTED_NAMES.split())
# Names of Keras that came with TensorFlow 2. Keras has no file of names within
# TensorFlow.
_KERAS_IN_2_NAMES = """
  keras.mixed_precision.LossScaleOptimizer keras.mixed_precision.Policy
  keras.mixed_precision.global_policy keras.mixed_precision.set_global_policy
  keras.optimizers.experimental keras.optimizers.legacy
  keras.preprocessing.image_dataset_from_directory
  keras.utils.image_dataset_from_directory keras.utils.set_random_seed
  optimizers
"""
_KERAS_IN_2 = frozenset(_KERAS_IN_2_NAMES.split())
# What a module has in it that makes its names when they are asked for.
_MAKING_NAMES = ("\n__getattr__", "\ndef __getattr__", "globals()")


@functools.lru_cache(1 << 16)
def find_name(name: str, tensorflow: int) -> str | None:
  """Returns the part of a name that only TensorFlow 1, or 2, has; or None.

  It is the shortest from the start of the dotted name below `tensorflow`:
  "train.AdamOptimizer" of "train.AdamOptimizer.apply".
  """
  for start in _list_starts(name):
    if tensorflow == 1:
      if start in _IN_BOTH or _UNDECIDED.match(start):
        return None
      if start in _TENSORFLOW_1 or start in _read_renamed():
        return start
    else:
      module, _, last = start.rpartition(".")
      new = _read_module("", module) - _read_module("compat/v1", module)
      if start in _KERAS_IN_2 or last in new:
        return start
  return None


def find_missing_name(name: str, namespace: str) -> str | None:
  """Returns the part of a name that this TensorFlow lacks, as `find_name` does.

  The namespace is "compat/v1" or "compat/v2". None also if there is no
  TensorFlow.
  """
  module = ""
  for start in _list_starts(name):
    names = _read_module(namespace, module)
    last = start.rpartition(".")[2]
    if not names or last in _UNLISTED or last.startswith("_"):
      return None  # The module before was a class, or has no file.
    if last not in names:
      return start
    module = start
  return None


def cut(name: str) -> str:
  """Returns the start of a dotted name that has more parts than any module."""
  return ".".join(name.split(".", _MOST_PARTS)[:_MOST_PARTS])


def _list_starts(name: str) -> Iterator[str]:
  """Yields the starts of a dotted name, which is cut; the shortest first."""
  parts = cut(name).split(".")
  return itertools.accumulate(parts, lambda start, part: f"{start}.{part}")


@functools.lru_cache(1)
def _read_renamed() -> frozenset[str]:
  text = _read(_LIST)
  return frozenset(re.findall(r"^ *'tf\.([\w.]+)':", text, re.MULTILINE))


@functools.lru_cache(None)
def _read_module(namespace: str, module: str) -> frozenset[str]:
  """Returns the names in a module below a namespace; none if there is none."""
  folder = os.path.join("_api/v2", namespace, *module.split("."))
  text = _read(os.path.join(folder, "__init__.py"))
  found = re.findall(
    r"^from \S+ import (\w+)(?: as (\w+))?", text, re.MULTILINE
  )
  return frozenset(alias or name for name, alias in found)


@functools.lru_cache(None)
def find_spec(module: str) -> importlib.machinery.ModuleSpec | None:
  """Returns what `installation.find_spec` does, and looks there once."""
  parent, _, last = module.rpartition(".")
  if not parent:
    return installation.find_spec(last)
  spec = find_spec(parent)
  folders = spec.submodule_search_locations if spec is not None else None
  return installation.find_spec(last, folders) if folders is not None else None


def may_have(module: str, name: str) -> bool:
  """Returns whether a module may have a name: its text has the word.

  Modules whose names it imports all count as well. The text of a compiled
  module, and of one that makes its names when they are asked for, has any name.
  """
  if module.startswith(_V1):
    return name in _read_module("compat/v1", module.removeprefix(_V1))
  modules = [module]
  for each in modules:  # They grow.
    spec = installation.find_spec(each)
    if spec is None:
      continue
    if not (spec.origin or "").endswith(".py"):
      return True
    text = _read(str(spec.origin))
    # The pattern begins with the name, which Python looks for fast. A word in
    # quotes may be the name of an op.
    word = rf"{name}\b(?<![\w\"']{name})"
    has_word = name in text and re.search(word, text)
    if has_word or any(each in text for each in _MAKING_NAMES):
      return True
    stars = set(re.findall(r"\nfrom (\S+) import \*", text))
    modules += stars.difference(modules)
  return False


@functools.lru_cache(256)
def _read(path: str) -> str:
  """Returns the text of a file, found from TensorFlow's folder, or ""."""
  spec = find_spec("tensorflow")
  if spec is None or spec.origin is None:
    return ""
  try:
    path = os.path.join(os.path.dirname(spec.origin), path)
    with open(path, encoding="utf-8") as file:
      return file.read()
  except OSError:
    return ""
