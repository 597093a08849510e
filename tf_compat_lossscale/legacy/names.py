"""Every name where some TensorFlow release from 1.14 to 2.8 had it.

`legacy_modules.install()` makes it so again; the source tools read it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PRIVATE = "tensorflow.python.training.experimental"
LOSS_SCALE_MODULE = f"{_PRIVATE}.loss_scale"  # Where TensorFlow's own are.
_PRIVATE_KERAS = "tensorflow.python.keras.mixed_precision.experimental"

# In checkpoints: the child of an optimizer whose `iterations` do not count
# skipped steps, as TensorFlow 1.14 to 2.2 did not count them.
SKIPS_NOT_COUNTED = "skipped_steps_are_not_counted"


class Names(NamedTuple):
  """Names that releases kept in the same places.

  Attributes:
    names: The names.
    home: The module of this package that has them.
    places: `tf.X` stands for X in `tensorflow`, `tensorflow.compat.v1` and
      `tensorflow.compat.v2`; other places for themselves.
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
  Names(("get",), "loss_scale", (LOSS_SCALE_MODULE,)),
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

# What stood in `tf.contrib` beside mixed_precision -> what replaced it.
CONTRIB = {
  "cluster_resolver": "tf.distribute.cluster_resolver",
  "cudnn_rnn": "tf.keras.layers.LSTM and GRU, which run on cuDNN",
  "data": "tf.data and tf.data.experimental",
  "distribute": "tf.distribute",
  "eager": "TensorFlow itself: tf.GradientTape, tf.train.Checkpoint",
  "estimator": "tf.estimator, up to TensorFlow 2.15",
  "framework": "tf_slim (arg_scope, variables), tf.nest and tf.train",
  "image": "tensorflow_addons.image and tf.raw_ops",
  "layers": "tf_slim.layers (pip install tf_slim, and it serves)",
  "learn": "tf.estimator, up to TensorFlow 2.15, and tf.keras",
  "lookup": "tf.lookup",
  "metrics": "tf_slim.metrics and tf.compat.v1.metrics",
  "opt": "tf.keras.optimizers and tensorflow_addons.optimizers",
  "rnn": "tf.compat.v1.nn.rnn_cell and tf.keras.layers",
  "seq2seq": "tensorflow_addons.seq2seq",
  "slim": "tf_slim (pip install tf_slim, and it serves)",
  "summary": "tf.summary",
  "tpu": "tf.compat.v1.tpu and tf.distribute.TPUStrategy",
  "training": "tf.data, tf.train and tf.compat.v1.train",
}

# What is known to behave differently here, by name.
NOTES = {
  "DynamicLossScale": "numbers that make no sense (NaN, a multiplier below 1) "
  "now raise ValueError",
  "FixedLossScale": "numbers that make no sense (NaN, 0, True) now raise "
  "ValueError",
  "LossScale": "update() of a subclass is now called, and what it returns "
  "decides whether a step is applied",
  "MixedPrecisionLossScaleOptimizer": "get_slot() and get_slot_names() now "
  "answer for the wrapped optimizer",
  "contrib.ExponentialUpdateLossScaleManager": "DynamicLossScale is what "
  "replaced it",
  "contrib.FixedLossScaleManager": "FixedLossScale is what replaced it",
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
_KERAS = re.compile(
  r"(?:tf_)?keras\.(?:(?:api\.(_v[12])|_tf_keras)\.keras\.)?"
  r"(mixed_precision(?:\..+)?)"
)


def locate(name: str) -> tuple[str, str] | None:
  """Where a module or what is in it belongs, by its dotted name.

  TensorFlow has most of its modules several times, under several names.

  Args:
    name: Such as `tensorflow._api.v2.compat.v1.train.experimental`.

  Returns:
    The namespace it is seen from, "v1" or "v2", and its name below that, here
    ("v1", "train.experimental"); None for what is not TensorFlow's.
  """
  match = _TENSORFLOW.fullmatch(name)
  if match:
    return "v1" if match[1].endswith("v1") else "v2", match[2] or ""
  match = _KERAS.fullmatch(name)
  if match:
    return "v1" if match[1] == "_v1" else "v2", f"keras.{match[2]}"
  return None


def located(place: str) -> list[tuple[str, str]]:
  """What `locate` gives for the modules that a place of the table means."""
  first, _, module = place.partition(".")
  if first == "tensorflow":
    return [("v2", module)]
  if module.startswith("compat.v1."):
    return [("v1", module[len("compat.v1.") :])]
  return [("v2", module), ("v1", module)]


# (namespace, module) -> {name: module of this package that has it}
NAMES_IN: dict[tuple[str, str], dict[str, str]] = {}
# (namespace, module) -> last parts of the names of modules in it that lead to
# such names.
MODULES_IN: dict[tuple[str, str], set[str]] = {}


def _read_table() -> None:
  for row in TABLE:
    for place in row.places:
      for space, module in located(place):
        names = NAMES_IN.setdefault((space, module), {})
        names.update(dict.fromkeys(row.names, row.home))
        while module:
          parent, _, last = module.rpartition(".")
          MODULES_IN.setdefault((space, parent), set()).add(last)
          module = parent


_read_table()


def current_name(name: str) -> str:
  """What a legacy name is called in this package."""
  return name.removesuffix("_v1")
