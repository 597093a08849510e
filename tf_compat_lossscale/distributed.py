# SPDX-License-Identifier: Apache-2.0
"""Makes workers agree whether a step's gradients are finite.

Workers that average their gradients have the same gradients, so they need
nothing of this module to keep the same loss scale. `agree` is for workers that
check gradients of their own: each then skips a step if any does.

```
from tf_compat_lossscale import distributed

distributed.agree(opt)  # All ranks of Horovod.
```
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import importlib
from typing import Any
from typing import Literal
from typing import TypeVar

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import contrib
from tf_compat_lossscale import environment
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale._core.tf import control_flow

__all__ = ["agree"]

_T = TypeVar("_T")
__dir__ = functools.partial(sorted, __all__)


def agree(
  target: _T,
  all_reduce: Literal["horovod"] | Callable[[tf.Tensor], Any] = "horovod",
) -> _T:
  """Makes all workers skip a step if the gradients of any are not finite.

  In each step, the workers exchange one number, before the loss scale changes
  and before the step is applied or skipped. So all workers must take the same
  steps. A call that follows replaces the agreement. An optimizer that
  `accumulate` made exchanges the number at the end of a window alone. A loss
  scale of your own must ask `gradients.all_replicas_finite` for the answer.

  There is no need to call this if the workers have the same gradients, as with
  `hvd.DistributedOptimizer`. With `op=hvd.Adasum`, and for variables that
  `register_local_var` got, each rank has gradients of its own: call it.

  Args:
    target: A loss scale, a manager of a loss scale, or an optimizer that has or
      wraps one. The agreement belongs to the loss scale: all optimizers that
      use the loss scale keep to it. A fixed loss scale skips no step, but it
      skips windows of `accumulate`.
    all_reduce: "horovod" for all ranks of Horovod; or a function that gets a
      scalar and returns the sum over all workers, a scalar of the same dtype.
      The function gets tensors of graphs and of `tf.function`, too.

  Returns:
    `target`.

  Raises:
    ImportError: `all_reduce` is "horovod" and Horovod is not installed.
    RuntimeError: `all_reduce` is "horovod" and Horovod is not initialized.
    ValueError: `target` has no loss scale, or `all_reduce` is something else.
  """
  owners = _find_owners(target)
  if all_reduce == "horovod":
    _load_horovod()
    all_reduce = _add_up
  if not callable(all_reduce):
    raise ValueError(
      "all_reduce must be 'horovod' or a function of a tensor, but got "
      f"{wrong_values.show(all_reduce, ('horovod',))}."
    )
  for owner in owners:
    # An attribute of a trackable object would be looked at.
    vars(owner)[graph_weights.AGREEMENT] = functools.partial(_agree, all_reduce)
  return target


def _load_horovod() -> Any:
  """Returns the module `horovod.tensorflow`, which must be initialized."""
  try:
    hvd = importlib.import_module("horovod.tensorflow")
  except ImportError as error:
    raise ImportError(
      "'horovod' needs Horovod with TensorFlow, which cannot be imported: "
      f"{error}. Install Horovod with HOROVOD_WITH_TENSORFLOW=1, or pass a "
      "function.",
      name="horovod",
    ) from error
  if not hvd.is_initialized():
    raise RuntimeError(
      "Horovod is not initialized: call horovod.tensorflow.init() first."
    )
  return hvd


def _add_up(value: tf.Tensor) -> tf.Tensor:
  hvd = _load_horovod()
  total: tf.Tensor = hvd.allreduce(value, op=hvd.Sum, name="found_inf")
  return total


def _agree(all_reduce: Callable[[tf.Tensor], Any], finite: Any) -> tf.Tensor:
  """Returns whether `finite` is True on all workers, a bool scalar."""
  with tf.name_scope(control_flow.NAME_SCOPE):
    found = tf.cast(tf.logical_not(finite), tf.float32)
    total = tf.convert_to_tensor(all_reduce(found))
    if total.dtype != found.dtype or total.shape.rank not in (0, None):
      raise ValueError(
        f"all_reduce must return a scalar of {found.dtype.name}, as it got, "
        f"but returned {total!r}."
      )
    return tf.equal(tf.ensure_shape(total, []), 0)


def _find_owners(target: Any) -> list[Any]:
  """Returns the objects that have the agreement of a target.

  There are several if NVIDIA's environment variables give a loss scale to an
  optimizer and to one that wraps it: only a step shows which one is used.
  """
  if isinstance(target, (loss_scale_lib.LossScale, contrib.LossScaleManager)):
    return [target]
  return [
    each  # The loss scale is an object of Keras.
    if optimizer_kinds.is_keras_with_scale(each)
    else graph_weights.find_owner(loss_scale)
    for each, loss_scale in environment.list_scaled(target, keras=True)
  ]
