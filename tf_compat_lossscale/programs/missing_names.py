# SPDX-License-Identifier: Apache-2.0
"""Says of a missing name or module: why it is missing, and what to do.

`explain` returns the line that the errors of a running program have. `find`
tells `scan` and `run --explain` which names of a source are missing. TensorFlow
is not imported: its files tell.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from typing import NamedTuple

from tf_compat_lossscale import _releases
from tf_compat_lossscale._core import installation
from tf_compat_lossscale._core import legacy_names
from tf_compat_lossscale.programs import tables
from tf_compat_lossscale.programs import tensorflow_names

# Package that goes with TensorFlow, and that old programs import -> why it is
# not there, if TensorFlow once brought it.
COMPANIONS = {
  "tensorboard": " (TensorFlow brings none since 2.21)",
  "tensorflow_addons": "",
  "tensorflow_datasets": "",
  "tensorflow_estimator": " (TensorFlow brings none since 2.16)",
  "tensorflow_hub": "",
  "tensorflow_io": "",
  "tensorflow_model_optimization": "",
  "tensorflow_probability": "",
  "tensorflow_text": "",
  "tf_keras": " (tf.keras is Keras 3 since TensorFlow 2.16)",
  "tf_slim": "",
}


def _read_hints(text: str) -> dict[str, str]:
  """Reads lines `NAMES: HINT`; four spaces continue a line."""
  hints: dict[str, str] = {}
  for line in re.sub(r"\n {4}", " ", text).strip().splitlines():
    names, _, hint = line.partition(": ")
    hints.update(dict.fromkeys(names.split(), hint))
  return hints


# Modules: what to do.
_GONE = _read_hints("""
  hccl npu_bridge npu_device: it exists for Ascend's NPUs alone, and its
    managers and optimizers of loss scales are those of
    tf.contrib.mixed_precision
  tensorflow.tools.graph_transforms: TensorFlow 2 has no Graph Transform Tool:
    use tf.lite or tf.compat.v1.graph_util to change a GraphDef
  tensorflow.examples: its tutorials, and MNIST, were removed in TensorFlow 2.0:
    tf.keras.datasets.mnist.load_data() has that data
""")
_ESTIMATOR = "tensorflow_estimator"
_CALLBACK = re.compile(r"(tensorflow\.)?(\w+\.)*callbacks\.TensorBoard")
# Module of `tf.contrib` -> the package that serves it.
_CONTRIB_PACKAGES = {
  **dict.fromkeys(("layers", "losses", "slim"), "tf_slim"),
  "tensorboard": "tensorboard",
}
# Modules of `tf.contrib`, or names in them: what to do.
HINTS = _read_hints("""
  autograph.set_loop_options: Use tf.autograph.experimental.set_loop_options,
    which has no back_prop.
  bayesflow: Use tensorflow_probability.
  boosted_trees tensor_forest: Use the package ydf, outside of the session.
  cloud ffmpeg hadoop ignite kafka kinesis: Use a Python package to read the
    data, in tf.data.Dataset.from_generator.
  constrained_optimization: Use create_lagrangian_loss of
    tensorflow_constrained_optimization.
  crf.crf_multitag_sequence_score: Call tf.contrib.crf.crf_log_norm, with -inf
    as input of the other tags.
  cudnn_rnn: Use tf.contrib.cudnn_rnn.CudnnCompatibleLSTMCell, or on a GPU
    tf.compat.v1.keras.layers.CuDNNLSTM and CuDNNGRU, which are of Keras 2.
  data.assert_element_shape: Use tf.ensure_shape in the dataset's map.
  data.reduce_dataset: Use the dataset's method reduce.
  data.sliding_window_batch: Use the dataset's window and flat_map.
  distributions: Use tensorflow_probability.distributions.
  eager: Use TensorFlow itself: tf.GradientTape, tf.train.Checkpoint.
  eager.Network: Use tf.keras.Model.
  eager.Sequential: Use tf.keras.Sequential.
  estimator learn: Use tf.estimator.
  factorization: Use tf.compat.v1.estimator.experimental.KMeans.
  feature_column: Use tf.feature_column.
  framework.assert_scalar_int: Use tf.debugging.assert_scalar.
  framework.get_graph_from_inputs: Use the attribute graph of a tensor.
  framework.py_func: Use tf.compat.v1.py_func of flat lists of tensors.
  framework.reduce_sum_n: Use tf.add_n of tf.reduce_sum.
  framework.zero_initializer: Use tf.compat.v1.assign.
  gan: Use tensorflow_gan, with setuptools<81.
  image: Use tf.image, tf.raw_ops.ImageProjectiveTransformV3, or SciPy in
    tf.compat.v1.py_func.
  image.random_hsv_in_yiq: Use tf.image.random_hue, random_saturation and
    random_brightness.
  integrate: Use tensorflow_probability.math.ode, with resource variables.
  kfac: Use the package kfac.
  layers: Use tf.feature_column for columns, and tf_slim for layers.
  layers.bow_encoder: Use tf.nn.safe_embedding_lookup_sparse.
  layers.embedding_lookup_unique: Use tf.nn.embedding_lookup.
  learn.Head: Use tf.estimator.Head, whose methods differ.
  learn.VocabularyProcessor: Use tf.keras.preprocessing.text.Tokenizer.
  learn.datasets: Use tf.keras.datasets.
  legacy_seq2seq: Use tf.contrib.seq2seq, which is here.
  linear_optimizer optimizer_v2 opt: Use an optimizer of tf.compat.v1.train.
  lite: Use tf.lite.
  mixed_precision: Use tf_compat_lossscale.contrib.
  model_pruning: Multiply each weight by a mask, a variable that is not
    trained.
  nn: Use tf.nn, whose losses take labels and logits by name.
  nn.alpha_dropout: Use tf.keras.layers.AlphaDropout with training=True.
  nn.scaled_softplus: Write alpha * tf.nn.softplus(x / alpha).
  opt.MomentumWOptimizer: Use
    tf.contrib.opt.extend_with_decoupled_weight_decay(tf.train.MomentumOptimizer)
    with name="MomentumW".
  opt.MultitaskOptimizerWrapper: Call apply_gradients in a tf.cond that asks
    whether a gradient is not 0.
  opt.VariableClippingOptimizer: After each step, assign tf.clip_by_norm of
    the variable to it.
  predictor: Use tf.compat.v1.saved_model.load in a session.
  quantize: Its rewriter of graphs is gone. Train without it, and quantize the
    trained model by tf.lite.TFLiteConverter.
  recurrent: Use tf.compat.v1.nn.dynamic_rnn and bidirectional_dynamic_rnn,
    and compare losses: their numbers may differ.
  rnn: Use a cell of tf.compat.v1.nn.rnn_cell.
  saved_model session_bundle: Use tf.compat.v1.saved_model.
  seq2seq: Write a subclass of tf.contrib.seq2seq.AttentionMechanism or
    Helper.
  tensorboard: Use the package tensorboard.
  text: Write it in NumPy, in tf.compat.v1.py_func.
  tpu: Use tf.compat.v2.distribute.TPUStrategy.
  training: Use tf.data to read, and tf.compat.v1.train to train.
""")

_ROOT, _PRIVATE = "tensorflow.", "tensorflow.python"
_CONTRIB = f"{tables.CONTRIB}."


class Absence(NamedTuple):
  """A name that today's TensorFlow lacks.

  Attributes:
    name: The part of the name that is missing, as `tf.…`, or a package.
    is_restored: Whether `tfl.install()` puts the name back.
    hint: What to do, or "".
    command: The command that installs the package that has the name, if that
      is not installed; else "".
  """

  name: str
  is_restored: bool = False
  hint: str = ""
  command: str = ""


def explain(name: str, reason: str = "", tensorflow: int = 0) -> str | None:
  """Returns the error for a name or a module that nothing serves, in a line.

  It is None if nothing is known about the full name. The reason is why what
  serves the name cannot be loaded; `run` has decided on TensorFlow 1 or 2.
  """
  if name in COMPANIONS:
    return f"No module named {name!r}{COMPANIONS[name]}: {_make_command(name)}"
  if name == f"{_ROOT}estimator":
    return _explain_estimator()
  if name.startswith(_CONTRIB):
    return _explain_contrib(name.removeprefix(_CONTRIB), reason)
  gone = _find_gone(name)
  if gone:
    return f"{gone} is gone: {_GONE[gone]}"
  if not tensorflow or not name.startswith(_ROOT):
    return None
  path, other = name.removeprefix(_ROOT), 3 - tensorflow
  if not tensorflow_names.find_name(path, other):
    return None
  return (
    f"TensorFlow {other} has tf.{path}: if the program is for TensorFlow "
    f"{other}, try tf-lossscale run --tf{other}"
  )


def explain_keras_2(name: str, keras: str = "tf.keras") -> str:
  """Returns the error for a name of Keras 2 if `keras` is Keras 3."""
  return (
    f"{name} is of Keras 2, and {keras} is Keras 3 here: set "
    f"TF_USE_LEGACY_KERAS=1 and install tf_keras ({_make_command('tf_keras')}),"
    " or run the program by `tf-lossscale run --keras2`."
  )


def _explain_estimator() -> str | None:
  """Returns what to install for `tf.estimator`; None if it is installed."""
  if sys.modules.get(_ESTIMATOR):
    return None
  reason = "went with TensorFlow 2.16, and tensorflow-estimator has it"
  if importlib.util.find_spec(_ESTIMATOR) is not None:
    from importlib import metadata  # Seldom needed.

    try:
      version = metadata.version(_ESTIMATOR)
    except metadata.PackageNotFoundError:
      return None  # A build that pip has not installed.
    # Up to TensorFlow 2.15, each release has an Estimator of its own.
    needed = min((2, 15), installation.find_release() or (2, 15))
    if tuple(int(part) for part in version.split(".")[:2]) >= needed:
      return None
    reason = (
      f"needs tensorflow-estimator 2.15 on this TensorFlow, not {version}"
    )
  return f"tf.estimator {reason}: {_make_command(_ESTIMATOR)}"


def _explain_contrib(path: str, reason: str) -> str:
  top = path.partition(".")[0]
  command = find_install_command(top)
  if command:
    return f"tf.contrib.{top} is in {_CONTRIB_PACKAGES[top]}: {command}"
  if reason:
    return f"tf.contrib.{path} cannot be used: {reason}"
  name = f"{top}.{path.rpartition('.')[2]}"  # Of a module below, too.
  hint = HINTS.get(name) or HINTS.get(top) or ""
  return (
    f"TensorFlow 2 has no tf.contrib.{path}: TensorFlow 2.0 removed "
    "tf.contrib, and neither TensorFlow nor tf_compat_lossscale has this part."
    + (f" {hint}" if hint else "")
  )


def find_install_command(module: str) -> str:
  """Returns what installs the package of a module of `tf.contrib`, or ""."""
  package = _CONTRIB_PACKAGES.get(module)
  if package is None or importlib.util.find_spec(package) is not None:
    return ""
  return _make_command(package)


def _make_command(package: str) -> str:
  """Returns what installs a package beside this TensorFlow."""
  return installation.make_command(package, installation.find_release())


def is_missing(package: str) -> bool:
  """Returns whether a package goes with TensorFlow, and is not installed."""
  return package in COMPANIONS and installation.find_folder(package) is None


@functools.lru_cache(None)
def find(
  name: str, tensorflow: int | None, release: tuple[int, int] | None
) -> Absence | None:
  """Returns why a name does not work as it is; None if it works.

  Args:
    name: The full name, such as "tensorflow.contrib.layers.flatten".
    tensorflow: 1 if plain `tensorflow` becomes `tensorflow.compat.v1`, else 2.
    release: The TensorFlow (major, minor) that the program will run on.
  """
  is_callback = name.endswith("TensorBoard") and _CALLBACK.fullmatch(name)
  package = "tensorboard" if is_callback else name.partition(".")[0]
  if is_missing(package):
    command = installation.make_command(package, release)
    return Absence(package, command=command)
  gone = _find_gone(name)
  if gone:
    return Absence(gone, hint=explain(gone) or "")
  # What every module and class has, such as `__name__`, is no name to miss.
  place = legacy_names.find_place(re.sub(r"\.__\w+__(\..*)?$", "", name))
  if place is None or not place.module or legacy_names.find_home(name):
    return None
  first, _, below = place.module.partition(".")
  if first == "contrib":
    return _find_in_contrib(below)
  if first == "estimator":
    if release is not None and release < _releases.WITHOUT_ESTIMATOR:
      return None
    command = _make_command(_ESTIMATOR) if _explain_estimator() else ""
    return Absence("tf.estimator", True, "", command)
  if name.startswith(f"{_PRIVATE}."):
    return _find_private(name)
  if first in ("keras", "core", "tools", "lite", "python", "summary"):
    return None
  v1 = place.space == "v1" or (tensorflow == 1 and ".compat.v2" not in name)
  lacks = tensorflow_names.find_missing_name(place.module, "compat/v1")
  if lacks is None and not v1:
    return None  # TensorFlow 1 alone has it: `which_tensorflow` weighs that.
  if not v1:
    lacks = tensorflow_names.find_missing_name(place.module, "compat/v2")
  return Absence(f"tf.{lacks}") if lacks else None


def _find_gone(name: str) -> str | None:
  """Returns the module that is gone, if a name is that module or below it."""
  return next((x for x in _GONE if f"{name}.".startswith(f"{x}.")), None)


def _find_in_contrib(path: str) -> Absence:
  if not path:  # The whole of it is imported, or has another name.
    return Absence("tf.contrib", True)
  top, *parts = path.split(".")
  shown = f"tf.contrib.{path}"
  command = find_install_command(top)
  if command:
    return Absence(shown, True, "", command)
  homes = tables.TABLE.stars.get(_CONTRIB + top, [])
  packages = [home.partition(".")[0] for home in homes]
  start = top
  for part in ("", *parts):
    start = f"{start}.{part}".rstrip(".")
    if (part and _has(_CONTRIB + top, part)) or (
      tables.TABLE.find_module(_CONTRIB + start)
    ):
      return Absence(shown, True)
    if not tables.is_contrib_module(start):
      absent = [_make_command(x) for x in packages if is_missing(x)]
      if absent and parts:  # A package that is not here may have the name.
        return Absence(shown, True, "", absent[0])
      hint = explain(_CONTRIB + start) or ""
      return Absence(f"tf.contrib.{start}", hint=hint)
  return Absence(shown, True)


def _has(module: str, name: str) -> bool:
  """Returns whether a module, perhaps one of the table, may have a name."""
  if module not in tables.TABLE.names:
    full = re.sub(r"^\w+", lambda x: tables.SHORT.get(x[0], x[0]), module)
    return tensorflow_names.may_have(full, name)
  homes = tables.TABLE.stars[module]
  is_listed = name in tables.TABLE.names[module]
  return is_listed or any(_has(home, name) for home in homes)


def _find_private(name: str) -> Absence | None:
  if f"{name}.".startswith(f"{tables.PRIVATE_KERAS}."):
    return Absence(tables.PRIVATE_KERAS, True)
  module, last = tensorflow_names.cut(name), ""
  while tensorflow_names.find_spec(module) is None:
    if tables.TABLE.find_module(module):
      return Absence(module, True)
    module, _, last = module.rpartition(".")
    if not module:
      return None  # TensorFlow is not installed.
  if last in tables.TABLE.names.get(module, ()):
    return Absence(f"{module}.{last}", True)
  if not last or tensorflow_names.may_have(module, last):
    return None
  return Absence(f"{module}.{last}")
