# SPDX-License-Identifier: Apache-2.0
"""The table of legacy names: where TensorFlow 1.14 to 2.8 exported each.

`install()` puts the names there again; `scan` and `run` look them up in
sources. The table knows the modules of this package as strings alone, so that
reading it imports none of them. Other names that several modules need, such
as those of environment variables, are here, too.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

_PRIVATE = "tensorflow.python.training.experimental"
LOSS_SCALE_MODULE = f"{_PRIVATE}.loss_scale"  # Has TensorFlow's own classes.
_PRIVATE_KERAS = "tensorflow.python.keras.mixed_precision.experimental"

# The name in object-based checkpoints of an optimizer's child that says: the
# optimizer's `iterations` do not count skipped steps. TensorFlow 1.14 to 2.2
# did not count them.
SKIPS_NOT_COUNTED = "skipped_steps_are_not_counted"

# What `tf-lossscale run` tells its processes: "tf1", "tf2", or "auto" for a
# program that does not import TensorFlow: then each Python process that the
# program starts decides for itself. `_site/` reads MODE and QUIET, too.
MODE = "TF_COMPAT_LOSSSCALE_RUN"
KERAS_OPTIMIZERS = "TF_COMPAT_LOSSSCALE_KERAS_OPTIMIZERS"  # Of `install`.
WATCH = "TF_COMPAT_LOSSSCALE_WATCH"  # The folder of `--watch`.
QUIET = "TF_COMPAT_LOSSSCALE_QUIET"  # 1 with `--quiet`.
FLOAT16_ON_CPU = "TF_COMPAT_LOSSSCALE_FLOAT16_ON_CPU"  # 1 with that option.
# The installed packages that are the program's own, separated as in PATH.
PACKAGES = "TF_COMPAT_LOSSSCALE_PACKAGES"

# The environment variables of NVIDIA's TensorFlow 1: the first stands for both
# of the others.
MIXED_PRECISION = "TF_ENABLE_AUTO_MIXED_PRECISION"
LOSS_SCALING = f"{MIXED_PRECISION}_LOSS_SCALING"
GRAPH_REWRITE = f"{MIXED_PRECISION}_GRAPH_REWRITE"


class Place(NamedTuple):
  """A module of TensorFlow in which a release exported names.

  Attributes:
    space: The namespace, "v1" or "v2". `tensorflow.compat.v1` is "v1".
    module: The module's name below that namespace, such as
      "train.experimental"; "" for the namespace itself.
  """

  space: str
  module: str


class Names(NamedTuple):
  """A row of the table: names that releases exported from the same places.

  Attributes:
    names: The names.
    home: The module of this package that defines the names.
    places: The places, as `expand_place` reads them.
  """

  names: tuple[str, ...]
  home: str
  places: tuple[str, ...]


TABLE = (
  Names(
    ("LossScale", "FixedLossScale", "DynamicLossScale"),
    "loss_scale",
    (
      "tf.train.experimental",  # 1.14 to 2.8
      "tf.mixed_precision.experimental",  # 2.3 to 2.8
      "tf.compat.v1.mixed_precision",  # 2.4 on
      LOSS_SCALE_MODULE,
    ),
  ),
  Names(("get", "get_loss_scale_weights"), "loss_scale", (LOSS_SCALE_MODULE,)),
  Names(
    ("MixedPrecisionLossScaleOptimizer",),
    "loss_scale_optimizer",
    (
      "tf.train.experimental",
      "tf.compat.v1.mixed_precision",
      f"{_PRIVATE}.loss_scale_optimizer",
    ),
  ),
  Names(
    (
      "enable_mixed_precision_graph_rewrite",
      "disable_mixed_precision_graph_rewrite",
    ),
    "graph_rewrite",
    (
      "tf.train.experimental",  # 1.14 to 2.5
      "tf.compat.v1.mixed_precision",
      f"{_PRIVATE}.mixed_precision",
    ),
  ),
  Names(
    (
      "enable_mixed_precision_graph_rewrite_v1",
      "disable_mixed_precision_graph_rewrite_v1",
    ),
    "graph_rewrite",
    (f"{_PRIVATE}.mixed_precision",),
  ),
  Names(
    (
      "LossScaleOptimizer",
      "Policy",
      "global_policy",
      "set_policy",
      "get_layer_policy",
    ),
    "keras",
    ("tf.keras.mixed_precision.experimental",),  # 1.14 to 2.8
  ),
  Names(
    ("LossScaleOptimizer",),
    "keras",
    (f"{_PRIVATE_KERAS}.loss_scale_optimizer",),
  ),
  Names(
    ("Policy", "global_policy", "set_policy"),
    "keras",
    (f"{_PRIVATE_KERAS}.policy",),
  ),
  Names(
    ("get_layer_policy",),
    "keras",
    (f"{_PRIVATE_KERAS}.get_layer_policy",),
  ),
  Names(
    (
      "LossScaleManager",
      "FixedLossScaleManager",
      "ExponentialUpdateLossScaleManager",
    ),
    "contrib",
    (
      "tf.contrib.mixed_precision",  # 1.x
      "tensorflow.contrib.mixed_precision.python.loss_scale_manager",
    ),
  ),
  Names(
    ("LossScaleOptimizer",),
    "contrib",
    (
      "tf.contrib.mixed_precision",
      "tensorflow.contrib.mixed_precision.python.loss_scale_optimizer",
    ),
  ),
)

# A name of this package -> a known difference from TensorFlow's behavior.
NOTES = {
  "DynamicLossScale": "numbers that make no sense (NaN, a multiplier below 1) "
  "now raise ValueError",
  "FixedLossScale": "numbers that make no sense (NaN, 0, True) now raise "
  "ValueError",
  "LossScale": "update() of a subclass is now called, and what it returns "
  "decides whether a step is applied",
  "MixedPrecisionLossScaleOptimizer": "get_slot() and get_slot_names() now "
  "answer for the wrapped optimizer",
  "contrib.ExponentialUpdateLossScaleManager": "DynamicLossScale replaced it",
  "contrib.FixedLossScaleManager": "FixedLossScale replaced it",
  "contrib.LossScaleOptimizer": "get_slot() and variables() now answer for the "
  "wrapped optimizer, too",
  "enable_mixed_precision_graph_rewrite": "it wraps the optimizer in this "
  "package's class",
  "keras.LossScaleOptimizer": "old checkpoints restore into "
  "tf.keras.optimizers.legacy optimizers alone",
  "keras.Policy": "loss_scale is a loss scale of this package",
}

_TENSORFLOW = re.compile(
  r"tensorflow(?:\._api\.v2)?((?:\.compat\.v[12])*)(?:\.(.+))?"
)
_ROOT = "tensorflow"
# Folders in which 1.15 to 2.1 had TensorFlow itself and its public modules.
_FOLDERS = re.compile(r"tensorflow(_core(\._api\.v[12])?|\._api\.v1)(?=\.|$)")
_KERAS = re.compile(
  r"(?:tf_)?keras\.(?:(?:api\.(_v[12])|_tf_keras)\.keras\.)?"
  r"(mixed_precision(?:\..+)?)"
)


@functools.lru_cache(1 << 16)
def leave_folders(name: str) -> str:
  """Returns the public name of what a name calls by its place in the files.

  Editors imported names of TensorFlow 1.15 to 2.1 from the package that had
  them, such as "tensorflow_core._api.v1.train". Other names stay as they are.
  """
  return _FOLDERS.sub("tensorflow", name, 1) if name[:10] == _ROOT else name


@functools.lru_cache(1 << 16)
def find_place(name: str) -> Place | None:
  """Returns the place that the dotted name of a module stands for.

  TensorFlow has most of its modules several times, under several names.

  Args:
    name: Such as `tensorflow._api.v2.compat.v1.train.experimental`. The name of
      a member of a module is read as if the member were a module.

  Returns:
    The place, here ("v1", "train.experimental"), or None if the name is neither
    TensorFlow's nor of Keras's mixed_precision.
  """
  match = _TENSORFLOW.fullmatch(name)
  if match:
    return Place("v1" if match[1].endswith("v1") else "v2", match[2] or "")
  match = _KERAS.fullmatch(name)
  if match:
    return Place("v1" if match[1] == "_v1" else "v2", f"keras.{match[2]}")
  return None


def expand_place(text: str) -> list[Place]:
  """Returns the places that a text of the table's column `places` means.

  `tf.X` means X in `tensorflow`, `tensorflow.compat.v1` and
  `tensorflow.compat.v2`; any other text means the one module of that name.
  """
  first, _, module = text.partition(".")
  if first == "tensorflow":
    return [Place("v2", module)]
  if module.startswith("compat.v1."):
    return [Place("v1", module.removeprefix("compat.v1."))]
  return [Place("v2", module), Place("v1", module)]


# For each place, the names in it and the module here that defines each.
NAMES_IN: dict[Place, dict[str, str]] = {}
# For each place, the modules right below it that are places or have places
# below them; of a module's name, the last part.
MODULES_IN: dict[Place, set[str]] = {}


def _read_table() -> None:
  """Fills NAMES_IN and MODULES_IN."""
  for row in TABLE:
    for text in row.places:
      for place in expand_place(text):
        names = NAMES_IN.setdefault(place, {})
        names.update(dict.fromkeys(row.names, row.home))
        space, module = place
        while module:
          module, _, last = module.rpartition(".")
          MODULES_IN.setdefault(Place(space, module), set()).add(last)


_read_table()


def get_current_name(name: str) -> str:
  """Returns the name that this package has for a legacy name."""
  return name.removesuffix("_v1")


def find_module_home(place: Place) -> str | None:
  """Returns the module of this package that has all names of a place, or None.

  `train.experimental` had more than this package has: its result is None.
  """
  homes = set(NAMES_IN.get(place, {}).values())
  if not homes or place.module == "train.experimental":
    return None
  home = homes.pop()
  private = place.module.startswith("python.training")
  if private or home in ("keras", "contrib"):
    return f"tf_compat_lossscale.{home}"
  return "tf_compat_lossscale"


@functools.lru_cache(1 << 16)
def find_home(name: str) -> str | None:
  """Returns the module of this package that has a full name today, or None."""
  place = find_place(name)
  if place is None:
    return None
  module, _, last = name.rpartition(".")
  parent = find_place(module)
  homes = NAMES_IN.get(parent, {}) if parent else {}
  return homes.get(last) or find_module_home(place)
