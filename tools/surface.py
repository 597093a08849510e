# SPDX-License-Identifier: Apache-2.0
"""Tells which private names the package needs, and this TensorFlow lacks.

    python tools/surface.py [--all]

The names are those behind the doors, those of `private_names`, the targets of
the tables of old names, and files that are read as text. A line says "gone,
used by …", with `--all` also "there". The exit status is 1 if a name is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
import functools
import importlib.util
import inspect
import os
import pathlib
import re
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "tools")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import private_names  # noqa: E402

import tf_compat_lossscale as tfl  # noqa: E402
from tf_compat_lossscale import _releases  # noqa: E402
from tf_compat_lossscale._core import installation  # noqa: E402
from tf_compat_lossscale.programs import old_modules  # noqa: E402
from tf_compat_lossscale.programs import tables  # noqa: E402

# What some releases lack -> why nothing breaks.
_GONE = {
  "._experimental_distribute": "RunConfig makes attributes from other names",
  "py.checkpoint.util.optimizer_v1": "the writer asks by type in 2.12 alone",
  "tf.data.experimental.CheckpointInputPipelineHook": "went with tf.estimator",
}
# Packages whose names no TensorFlow has to have.
_OTHERS = {"tensorboard", "tf_slim", "tf1_contrib", "tf_compat_lossscale"}
# Files of TensorFlow that are read as text. Without one, names are not found.
_FILES = ("tools/compatibility/renames_v2.py", "_api/v2/compat/v1/__init__.py")


def _list_needs() -> Iterator[tuple[str, str]]:
  """Yields names, as `_find_lack` takes them, and what uses each."""
  for module, tree in private_names.read_modules().items():
    if f"{module}.".startswith(private_names.DOORS):
      yield from ((name, module) for name in private_names.list_door(tree))
  for place, names in private_names.USES.items():
    for name in names:
      if name.partition(".")[0] in private_names.OWNERS:
        yield name, place
  yield from ((path, "programs.tensorflow_names") for path in _FILES)
  yield from (
    row for each in (tables.TABLE, tables.KERAS) for row in _rows(each)
  )


def _rows(table: tables.Table) -> Iterator[tuple[str, str]]:
  """Yields the targets of a table and their old names."""
  for old, names in table.names.items():
    yield from ((target, f"{old}.{key}") for key, target in names.items())
  for old, homes in table.stars.items():
    yield from ((home, old) for home in homes)
  yield from ((target, old) for old, target in table.modules.items())


def _find_lack(name: str) -> str:
  """Returns "" if this TensorFlow has a file, an attribute or a target."""
  if name in _FILES:
    is_there = (_find_folder("tensorflow") / name).exists()
    return "" if is_there else "there is no such file"
  if name.startswith("."):
    return "" if name[1:] in _read_words() else "no source has it"
  first, _, attribute = name.partition(".")
  try:
    if first not in private_names.OWNERS:
      old_modules.load(name)
      return ""
    owner = old_modules.load(private_names.OWNERS[first])
  except ImportError as error:
    return str(error).partition("\n")[0]
  sources = map(inspect.getsource, inspect.getmro(owner)[:-1])
  has = hasattr(owner, attribute) or any(attribute in each for each in sources)
  return "" if has else f"{private_names.OWNERS[first]} has none"


def _find_folder(package: str) -> pathlib.Path:
  spec = importlib.util.find_spec(package)
  assert spec is not None and spec.origin is not None, package
  return pathlib.Path(spec.origin).parent


@functools.cache
def _read_words() -> set[str]:
  """Returns the private names in TensorFlow, Keras 2 and the Estimator."""
  keras = old_modules.expand("keras2").partition(".")[0]
  words: set[str] = set()
  for package in ("tensorflow.python", keras, "tensorflow_estimator"):
    for path in _find_folder(package).rglob("*.py"):
      text = path.read_text("utf-8", errors="replace")
      words.update(re.findall(r"\b_[A-Za-z]\w+", text))
  return words


def main(argv: list[str]) -> int:
  """Prints the names; returns the exit status."""
  if (installation.find_release() or (0, 0)) >= _releases.WITH_KERAS_3:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
  tfl.install()  # A target may itself be an old name that a row puts back.
  keras = old_modules.expand("keras2").partition(".")[0]
  others = _OTHERS | ({"keras", "tf_keras"} - {keras})
  users: dict[str, set[str]] = {}
  for name, user in _list_needs():
    if name.partition(".")[0] not in others:
      users.setdefault(name, set()).add(user)
  lacks = {name: _find_lack(name) for name in sorted(users)}
  for name in filter(lacks.get, lacks):
    olds = [x for x in users[name] if x.startswith("tensorflow.")]
    # A row is not needed if TensorFlow has the name where it was.
    is_served = olds and not any(map(_find_lack, olds))
    if is_served or name in _GONE:
      lacks[name] = ""
  for name, lack in lacks.items():
    if lack:
      print(f"{name}: gone, used by {', '.join(sorted(users[name]))}: {lack}")
    elif "--all" in argv:
      print(f"{name}: {_GONE.get(name, 'there')}")
  gone = sum(map(bool, lacks.values()))
  print(f"{len(lacks)} names, {gone} gone")
  return int(gone > 0)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
