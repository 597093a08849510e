# SPDX-License-Identifier: Apache-2.0
"""Says what to do for what nothing serves: what to install, or what to use.

The errors name the version of a package for the TensorFlow that is installed.
"""

from __future__ import annotations

import importlib.util
import sys

from tf_compat_lossscale._core import install_commands
from tf_compat_lossscale._core import which_keras

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
# Module that TensorFlow had -> what to do.
GONE = {
  "tensorflow.tools.graph_transforms": (
    "TensorFlow 2 has no Graph Transform Tool: use tf.lite or "
    "tf.compat.v1.graph_util to change a GraphDef"
  ),
  "tensorflow.examples": (
    "its tutorials, and MNIST, were removed in TensorFlow 2.0: "
    "tf.keras.datasets.mnist.load_data() has that data"
  ),
}
INSTALL_ESTIMATOR = install_commands.make_command("tensorflow_estimator", None)

# Module of `tf.contrib` -> the package that serves it.
_CONTRIB_PACKAGES = {
  "layers": "tf_slim",
  "losses": "tf_slim",
  "slim": "tf_slim",
  "tensorboard": "tensorboard",
}

_OWN_RULE = (
  "Use an optimizer of tf.compat.v1.train, or write the rule as a subclass of "
  "tf.compat.v1.train.Optimizer."
)
# Module of `tf.contrib`, or a name in it -> what to do.
_HINTS = {
  "bayesflow": "Use tensorflow_probability.",
  "boosted_trees": "Use tensorflow_decision_forests.",
  "cloud": "Use tensorflow_io.",
  "constrained_optimization": "Use tensorflow_constrained_optimization.",
  "cudnn_rnn": "Use tf.keras.layers.LSTM and GRU, which run on cuDNN.",
  "distributions": "Use tensorflow_probability.distributions.",
  "eager": "Use TensorFlow itself: tf.GradientTape, tf.train.Checkpoint.",
  "autograph.set_loop_options": (
    "Use tf.autograph.experimental.set_loop_options, which has no back_prop."
  ),
  "crf.crf_multitag_sequence_score": (
    "Add the scores of the allowed tags by tf.reduce_logsumexp."
  ),
  "data.assert_element_shape": "Use tf.ensure_shape in the dataset's map.",
  "data.reduce_dataset": "Use the dataset's method reduce.",
  "data.sliding_window_batch": "Use the dataset's window and flat_map.",
  "distribute.TPUStrategy": "Use tf.distribute.TPUStrategy.",
  "estimator": "Use tf.estimator.",
  "ffmpeg": "Use tensorflow_io.audio.",
  "gan": "Use tensorflow_gan.",
  "hadoop": "Use tensorflow_io.",
  "ignite": "Use tensorflow_io.",
  "integrate": "Use tensorflow_probability.math.ode.",
  "kafka": "Use tensorflow_io.",
  "kfac": "Use the package kfac.",
  "kinesis": "Use tensorflow_io.",
  "lite": "Use tf.lite.",
  "mixed_precision": "Use tf_compat_lossscale.contrib.",
  "model_pruning": "Use tensorflow_model_optimization.sparsity.",
  "feature_column": "Use tf.feature_column.",
  "framework.assert_scalar_int": "Use tf.debugging.assert_scalar.",
  "framework.get_graph_from_inputs": "Use the attribute graph of a tensor.",
  "framework.py_func": "Use tf.compat.v1.py_func of flat lists of tensors.",
  "framework.reduce_sum_n": "Use tf.add_n of tf.reduce_sum.",
  "framework.zero_initializer": "Use tf.compat.v1.assign.",
  "image": (
    "Use tf.image and tf.raw_ops.ImageProjectiveTransformV3, or up to "
    "TensorFlow 2.15 tensorflow_addons.image."
  ),
  "layers": "Use tf.feature_column for columns, and tf_slim for layers.",
  "layers.bow_encoder": "Use tf.nn.safe_embedding_lookup_sparse.",
  "layers.embedding_lookup_unique": "Use tf.nn.embedding_lookup.",
  "learn": "Use tf.estimator, or tf.keras.",
  "learn.Head": "Use tf.estimator.Head, whose methods differ.",
  "learn.datasets": "Use tf.keras.datasets.",
  "nn.alpha_dropout": "Use tf.keras.layers.AlphaDropout with training=True.",
  "nn.scaled_softplus": "Write alpha * tf.nn.softplus(x / alpha).",
  "opt": "Use an optimizer of tf.compat.v1.train.",
  "opt.AdaMaxOptimizer": "Use tf.keras.optimizers.Adamax.",
  "opt.AddSignOptimizer": _OWN_RULE,
  "opt.MomentumWOptimizer": (
    "Use tf.contrib.opt.extend_with_decoupled_weight_decay("
    'tf.train.MomentumOptimizer) with name="MomentumW".'
  ),
  "opt.MultitaskOptimizerWrapper": (
    "Call apply_gradients in a tf.cond that asks whether a gradient is not 0."
  ),
  "opt.NadamOptimizer": "Use tf.keras.optimizers.Nadam.",
  "opt.PowerSignOptimizer": _OWN_RULE,
  "opt.VariableClippingOptimizer": (
    "Give tf.compat.v1.get_variable a constraint, such as "
    "tf.keras.constraints.MaxNorm."
  ),
  "predictor": "Use tf.compat.v1.saved_model.load in a session.",
  "quantize": (
    "Its rewriter of graphs is gone. Train without it, and quantize the "
    "trained model by tf.lite.TFLiteConverter."
  ),
  "recurrent": (
    "Use tf.compat.v1.nn.dynamic_rnn and bidirectional_dynamic_rnn, and "
    "compare losses: their numbers may differ."
  ),
  "saved_model": "Use tf.compat.v1.saved_model.",
  "seq2seq": "Up to TensorFlow 2.15, tensorflow_addons.seq2seq has it.",
  "session_bundle": "Use tf.compat.v1.saved_model.",
  "sparsemax": "Write it by tf.sort and tf.cumsum, as arXiv 1602.02068 does.",
  "tensor_forest": "Use tensorflow_decision_forests.",
  "tensorboard": "Use the package tensorboard.",
  "rnn": "Use a cell of tf.compat.v1.nn.rnn_cell.",
  "text": "Up to TensorFlow 2.15, tensorflow_addons.text has it.",
  "training": "Use tf.data to read, and tf.compat.v1.train to train.",
}

# Package with a port of `tf.contrib` to one hardware -> what to do.
PORTS = dict.fromkeys(
  ("npu_bridge", "npu_device", "hccl"),
  "It exists for Ascend's NPUs alone. Its managers and optimizers of loss "
  "scales are those of tf.contrib.mixed_precision.",
)


def explain_module(name: str) -> str | None:
  """Returns the error for a module that nothing serves, or None.

  Args:
    name: The module, such as "tensorflow.examples.tutorials" or "tensorboard".
  """
  if name in COMPANIONS:
    command = install_commands.make_command(name, which_keras.find_release())
    return f"No module named {name!r}{COMPANIONS[name]}: {command}"
  if name == "tensorflow.estimator":
    return explain_estimator()
  for gone, reason in GONE.items():
    if f"{name}.".startswith(f"{gone}."):
      return f"{gone} is gone: {reason}"
  return None


def is_missing(package: str) -> bool:
  """Returns whether a package goes with TensorFlow, and is not installed."""
  return package in COMPANIONS and which_keras.find_folder(package) is None


def explain_estimator() -> str | None:
  """Returns what to install for `tf.estimator`; None if it is installed."""
  package = "tensorflow_estimator"
  if sys.modules.get(package):
    return None
  if importlib.util.find_spec(package) is None:
    return (
      "tf.estimator was removed in TensorFlow 2.16, and the package "
      f"tensorflow-estimator has it: {INSTALL_ESTIMATOR}"
    )
  from importlib import metadata  # Seldom needed.

  try:
    version = metadata.version(package)
  except metadata.PackageNotFoundError:
    return None  # A build that pip has not installed.
  # Up to TensorFlow 2.15, each release has an Estimator of its own.
  needed = min((2, 15), which_keras.find_release() or (2, 15))
  if tuple(int(part) for part in version.split(".")[:2]) >= needed:
    return None
  return (
    "tf.estimator needs tensorflow-estimator 2.15 on this TensorFlow, not "
    f"{version}: {INSTALL_ESTIMATOR}"
  )


def find_install_command(module: str) -> str | None:
  """Returns what installs the package of a module of `tf.contrib`, or None.

  None means that all is there.
  """
  package = _CONTRIB_PACKAGES.get(module)
  if package is None or importlib.util.find_spec(package) is not None:
    return None
  return install_commands.make_command(package, which_keras.find_release())


def explain_contrib_package(module: str) -> str | None:
  """Returns the error for a module of `tf.contrib` without its package."""
  command = find_install_command(module)
  return command and (
    f"tf.contrib.{module} is in {_CONTRIB_PACKAGES[module]}: {command}"
  )


def explain_contrib(path: str, reason: str = "") -> str:
  """Returns the error for a name of `tf.contrib` that cannot be served.

  Args:
    path: The name below `tf.contrib`, such as "rnn.GridLSTMCell".
    reason: Why the name's target could not be loaded; "" if it has no target.
  """
  if reason:
    return f"tf.contrib.{path} cannot be used: {reason}"
  top = path.partition(".")[0]
  name = f"{top}.{path.rpartition('.')[2]}"  # Of a module below, too.
  hint = _HINTS.get(name) or _HINTS.get(top) or ""
  return (
    f"TensorFlow 2 has no tf.contrib.{path}: TensorFlow 2.0 removed "
    "tf.contrib, and neither TensorFlow nor tf_compat_lossscale has this part."
    + (f" {hint}" if hint else "")
  )
