# SPDX-License-Identifier: Apache-2.0
"""Grappler's auto mixed precision, switched on together with a loss scale."""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterable
import functools
import importlib
import os
import re
from typing import Any
from typing import Final
from typing import NamedTuple

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import patching
from tf_compat_lossscale._core.tf import rewrite

__all__ = [
  "EMULATE",
  "Float16Count",
  "count_float16",
  "count_in_graphs",
  "disable_mixed_precision_graph_rewrite",
  "disable_on_cpu",
  "enable_mixed_precision_graph_rewrite",
  "enable_on_cpu",
  "register_loss_scale_wrapper",
  "turn_on",
]
__dir__ = functools.partial(sorted, __all__)


_OPTION = "auto_mixed_precision"
# The module that registers this package's wrapper for optimizers of Keras 2. It
# loads Keras 2, so it is loaded for such an optimizer alone.
_KERAS_2 = "tf_compat_lossscale.keras.optimizer"
_Wrapper = Callable[[Any, Any], Any]
# If this is not false, CPUs compute in float32, between two casts. TensorFlow
# reads the variable at each conversion.
EMULATE: Final = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_EMULATE_FP16"
_KINDS: Final = {
  "products": re.compile(r"MatMul|^Einsum$|LSTM|GRU|CudnnRNN"),
  "convolutions": re.compile(r"Conv[23]D|Conv2d"),
  "others": re.compile(""),
}
_HALF = tf.float16.as_datatype_enum

_log: Final = patching.UndoLog()

# For each base class of optimizers, a function that wraps an optimizer, and the
# class of the wrapped optimizer.
_wrappers: dict[type, tuple[_Wrapper, type]] = {
  tf.compat.v1.train.Optimizer: (
    loss_scale_optimizer.MixedPrecisionLossScaleOptimizer,
    loss_scale_optimizer.MixedPrecisionLossScaleOptimizer,
  ),
}


def register_loss_scale_wrapper(
  optimizer_cls: type, wrapper_fn: _Wrapper, wrapper_cls: type | None = None
) -> None:
  """Registers a wrapper for another family of optimizers.

  Args:
    optimizer_cls: The base class of those optimizers.
    wrapper_fn: Takes an optimizer and the loss scale that the user passed, and
      returns the wrapped optimizer.
    wrapper_cls: The class of the wrapped optimizer; by default `wrapper_fn` is
      that class.

  Raises:
    ValueError: `wrapper_cls` is missing and `wrapper_fn` is no class.
  """
  cls = wrapper_fn if wrapper_cls is None else wrapper_cls
  if not isinstance(cls, type):
    raise ValueError(
      f"wrapper_cls must be given if wrapper_fn is no class, but got "
      f"wrapper_fn={wrapper_fn!r} and wrapper_cls={wrapper_cls!r}."
    )
  _wrappers[optimizer_cls] = (wrapper_fn, cls)


def enable_mixed_precision_graph_rewrite(
  opt: Any,
  loss_scale: loss_scale_lib.Identifier = "dynamic",
) -> Any:
  """Enables the auto mixed precision rewrite and wraps an optimizer for it.

  Sessions and functions created afterwards run some of their float32 ops in
  float16, on devices that are faster in float16. Compute gradients by the
  returned optimizer alone, for no other optimizer scales the loss.

  Args:
    opt: A `tf.compat.v1.train.Optimizer`, or an optimizer of a registered
      family. Keras 2 registers its own optimizers.
    loss_scale: 'dynamic', a number for a fixed loss scale, or a LossScale.

  Returns:
    `opt`, wrapped in an optimizer that scales the loss.

  Raises:
    ValueError: `opt` is wrapped already or of no known family, `loss_scale` is
      no loss scale, or a mixed Keras policy is set. Then nothing is enabled.
  """
  if rewrite.is_mixed_policy_set():
    raise ValueError(
      "The mixed precision graph rewrite cannot be enabled, because the global "
      "Keras dtype Policy has been set to a mixed one: both would lower "
      "precision. Keep the policy and wrap the optimizer in a "
      "LossScaleOptimizer, or set the policy back to 'float32'."
    )
  wrapped = _wrap(opt, loss_scale)
  turn_on()
  return wrapped


def turn_on() -> None:
  """Enables the rewrite for sessions and functions created afterwards."""
  if rewrite.has_plain_session():
    # The words are those of TensorFlow, as are the next ones.
    logging.warning(
      "You already have existing Sessions that do not use mixed precision. "
      "enable_mixed_precision_graph_rewrite() will not affect these Sessions."
    )
  tf.config.optimizer.set_experimental_options({_OPTION: True})
  rewrite.set_rewrite_enabled(True)


def disable_mixed_precision_graph_rewrite() -> None:
  """Disables the rewrite for sessions and functions created afterwards.

  Optimizers that are wrapped already go on to scale the loss. Sessions that
  were created in between keep the rewrite.
  """
  if not rewrite.is_rewrite_enabled():
    logging.warning(
      "disable_mixed_precision_graph_rewrite() called when mixed precision is "
      "already disabled."
    )
  tf.config.optimizer.set_experimental_options({_OPTION: False})
  rewrite.set_rewrite_enabled(False)


def enable_on_cpu() -> None:
  """Makes the graph rewrite convert on CPUs, too: a rehearsal of float16.

  Sessions that are created from now on, if the rewrite is on, compute in
  float16 what they would on a GPU. So does each later call of a function, also
  of one that was traced before. GPUs compute as ever. The rewrite itself is
  turned on as before. The environment variable
  TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_EMULATE_FP16 becomes "false", unless it
  is set: else each op would compute in float32, between two casts.
  """
  os.environ.setdefault(EMULATE, "false")
  disable_on_cpu()
  rewrite.convert_on_cpu(_log)


def disable_on_cpu() -> None:
  """Takes back `enable_on_cpu`, for later sessions and calls of functions."""
  _log.undo()
  # This makes calls of functions read all options anew.
  tf.config.optimizer.set_experimental_options({})


class Float16Count(NamedTuple):
  """The ops of a run that compute with floating-point numbers.

  Attributes:
    products: How many matrix products are in float16, and how many there are.
      A recurrent layer in one op is a product, too.
    convolutions: The same for convolutions, with those of gradients.
    others: The same for all other ops, casts apart.
    casts: How many casts to float16 or from float16 there are.
  """

  products: tuple[int, int]
  convolutions: tuple[int, int]
  others: tuple[int, int]
  casts: int

  def __str__(self) -> str:
    done, total = map(sum, zip(self.products, self.convolutions))
    return f"{done} of {total} products and convolutions, {self.casts} casts"


def count_float16(
  session: Any, fetches: Any, feed_dict: Any = None
) -> Float16Count:
  """Runs fetches, and returns how many of the ops computed in float16.

  Args:
    session: A `tf.compat.v1.Session`, or a session that wraps one.
    fetches: What the session runs: the train op, for a step of training.
    feed_dict: As that of `session.run`.

  Returns:
    The count in the graphs that the session made for its devices, GPUs too. An
    op counts if its branch was not taken, and not inside `tf.data` functions.
  """
  options = tf.compat.v1.RunOptions(output_partition_graphs=True)
  metadata = tf.compat.v1.RunMetadata()
  session.run(fetches, feed_dict, options=options, run_metadata=metadata)
  return count_in_graphs(metadata.partition_graphs)


def count_in_graphs(graphs: Iterable[Any]) -> Float16Count:
  """Returns the count in GraphDefs."""
  half, total = collections.Counter[str](), collections.Counter[str]()
  casts = 0
  for node in (node for graph in graphs for node in graph.node):
    dtype, source, to = (node.attr[x].type for x in ("T", "SrcT", "DstT"))
    if node.op.endswith("Cast"):
      casts += _HALF in (source, to)
    elif dtype and tf.as_dtype(dtype).is_floating:
      kind = next(k for k, ops in _KINDS.items() if ops.search(node.op))
      half[kind] += dtype == _HALF
      total[kind] += 1
  shares = {kind: (half[kind], total[kind]) for kind in _KINDS}
  return Float16Count(**shares, casts=casts)


def _wrap(opt: Any, loss_scale: Any) -> Any:
  if optimizer_kinds.find_keras(opt).startswith("2"):
    importlib.import_module(_KERAS_2)
  tensorflows = tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer
  for wrapper_cls in [tensorflows, *(cls for _, cls in _wrappers.values())]:
    if isinstance(opt, wrapper_cls):
      raise ValueError(
        f'"opt" must not already be an instance of a {wrapper_cls.__name__}. '
        "enable_mixed_precision_graph_rewrite() wraps it: pass the optimizer "
        "that is inside."
      )
  for optimizer_cls, (wrapper_fn, _) in _wrappers.items():
    if isinstance(opt, optimizer_cls):
      return wrapper_fn(opt, loss_scale)
  raise ValueError(
    '"opt" must be an instance of a tf.train.Optimizer or a '
    "tf.keras.optimizers.Optimizer, but got: "
    f"{optimizer_kinds.show_wrong(opt)}"
  )
