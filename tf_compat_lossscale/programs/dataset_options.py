# SPDX-License-Identifier: Apache-2.0
"""Gives options of `tf.data` back that TensorFlow has dropped or moved.

Options that moved are set in their new place. Options that do nothing any more
are accepted, and one line says so. Other names are still errors.

TensorFlow 1 made `Dataset.options()` anew at each call, so that programs
changed them and passed them to `with_options`. Since 2.5 that is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import functools
import operator
import os
import sys
import types
from typing import Any

from tf_compat_lossscale._core import legacy_names as table

_OPTIMIZATION = "experimental_optimization"
_FUSIONS = (
  "filter_fusion map_and_batch_fusion map_and_filter_fusion map_fusion "
  "noop_elimination parallel_batch shuffle_and_repeat_fusion"
)

# Attribute of the options ("" for the options themselves) -> options in it that
# do nothing any more. Autotuning is set in another place, and changes no value.
_DROPPED = {
  "": "experimental_autotune experimental_hoist_random_uniform "
  "experimental_latency_all_edges experimental_map_vectorization "
  "experimental_numa_aware experimental_stateful_whitelist experimental_stats",
  _OPTIMIZATION: "autotune autotune_algorithm autotune_buffers "
  "autotune_cpu_budget autotune_ram_budget filter_with_random_uniform_fusion "
  "hoist_random_uniform map_vectorization reorder_data_discarding_ops",
}
# Those that were objects with options of their own.
_NESTED = ("experimental_stats", "map_vectorization")
_said: list[str] = []


class _Old(property):
  """An option of old releases."""


def _say(path: str) -> None:
  """Says in one line, once, that an option does nothing."""
  if not _said and os.environ.get(table.QUIET) != "1":
    print(
      f"tf_compat_lossscale: {path} of tf.data.Options does nothing: "
      "TensorFlow has dropped or moved it, and others of the kind",
      file=sys.stderr,
    )
  _said.append(path)


def _drop(part: str, name: str) -> _Old:
  """Returns an option that does nothing."""
  path, key = f"{part}.{name}".lstrip("."), f"_old_{name}"

  def read(self: Any) -> Any:
    if key not in vars(self) and name in _NESTED:
      _say(path)
      object.__setattr__(self, key, types.SimpleNamespace())
    return vars(self).get(key)

  def write(self: Any, value: Any) -> None:
    object.__setattr__(self, key, value)
    _say(path)

  return _Old(read, write)


def _forward(
  find: Callable[[Any], Any],
  name: str,
  change: Callable[[Any], Any] = lambda value: value,
) -> _Old:
  """Returns an option that is the option `name` of another object today."""
  return _Old(
    lambda self: getattr(find(self), name),
    lambda self, value: setattr(find(self), name, change(value)),
  )


def list_old_options(real: types.ModuleType) -> Iterator[tuple[type, str, Any]]:
  """Yields (class, name, property) for all options that TensorFlow lacks.

  Args:
    real: TensorFlow 2's namespace, `tensorflow.compat.v2`.
  """
  options, policies = real.data.Options, real.data.experimental.AutoShardPolicy
  owners = {
    "": options,
    _OPTIMIZATION: type(options().experimental_optimization),
  }
  old = [
    (owners[part], name, _drop(part, name))
    for part, names in _DROPPED.items()
    for name in names.split()
  ]
  for name in _FUSIONS.split():
    find = operator.attrgetter(_OPTIMIZATION)
    old.append((options, f"experimental_{name}", _forward(find, name)))
  shard = _forward(
    lambda self: self,
    "auto_shard_policy",
    lambda value: policies.OFF if value is False else policies.AUTO,
  )
  old.append((type(options().experimental_distribute), "auto_shard", shard))
  for owner, name, option in old:
    if not hasattr(owner, name):
      yield owner, name, option


def _copy_options(options: Any) -> Any:
  """Returns options of the same values, nested ones copied, too."""
  copy = type(options)()
  base = type(options).__mro__[1]
  for name, option in vars(type(options)).items():
    is_own = isinstance(option, property) and not isinstance(option, _Old)
    value = getattr(options, name) if is_own else None
    if value is not None:
      nested = isinstance(value, base) and base is not object
      setattr(copy, name, _copy_options(value) if nested else value)
  return copy


def allow_changes(real: types.ModuleType) -> None:
  """Makes `Dataset.options()` return options that a program may change.

  Args:
    real: TensorFlow, of either namespace.
  """
  dataset = real.compat.v2.data.Dataset
  method = dataset.options

  @functools.wraps(method)
  def options(self: Any) -> Any:
    return _copy_options(method(self))

  dataset.options = options
