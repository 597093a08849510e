# SPDX-License-Identifier: Apache-2.0
"""Ascend's functions of tensors and graphs, by those of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import enum
from typing import Any
import weakref

import tensorflow.compat.v1 as tf

from tf_compat_lossscale._core import arguments


def dropout(
  x: Any,
  keep_prob: Any,
  noise_shape: Any = None,
  seed: int | None = None,
  name: str | None = None,
) -> Any:
  """Sets elements to 0 at random, and divides the others by `keep_prob`.

  Args:
    x: A float tensor of any shape.
    keep_prob: The probability that an element is kept: in (0, 1], a number or
      a float [].
    noise_shape: As of `tf.nn.dropout`.
    seed: A seed.
    name: A name.

  Raises:
    ValueError: `keep_prob` is no such number.
  """
  if isinstance(keep_prob, (int, float)) and not 0 < keep_prob <= 1:
    raise ValueError(f"keep_prob must be in (0, 1], but got {keep_prob}")
  if isinstance(keep_prob, float) and keep_prob == 1:
    return tf.convert_to_tensor(x)
  return tf.nn.dropout(
    x, rate=1 - keep_prob, noise_shape=noise_shape, seed=seed, name=name
  )


def gelu(x: Any, name: str | None = None) -> Any:
  """Returns GELU of a float tensor, approximated by tanh as on NPUs."""
  x = tf.convert_to_tensor(x)
  with tf.name_scope(name, "Gelu"):
    return tf.compat.v2.nn.gelu(x, approximate=True)


def fast_gelu(x: Any, name: str | None = None) -> Any:
  """Returns `x * sigmoid(1.702 * x)` of a float tensor."""
  x = tf.convert_to_tensor(x)
  with tf.name_scope(name, "FastGelu"):
    return x * tf.sigmoid(1.702 * x)


def npu_dynamic_rnn(
  cell: Any,
  inputs: Any,
  initial_state: Any = None,
  dtype: Any = None,
  sequence_length: Any = None,
  scope: Any = None,
) -> tuple[Any, Any]:
  """Runs a cell over the first axis of `inputs`, [time, batch, depth].

  Returns:
    The outputs, [time, batch, units], and the last state.
  """
  outputs, state = tf.nn.static_rnn(
    cell,
    tf.unstack(inputs, axis=0),
    initial_state=initial_state,
    dtype=dtype,
    sequence_length=sequence_length,
    scope=scope,
  )
  return tf.stack(outputs, axis=0), state


def initialize_system(name: str | None = None) -> Any:
  """Returns an op that does nothing, as `shutdown_system` does."""
  return tf.no_op(name=name)


class NpuExecutePlacement(enum.Enum):
  """Where an NPU computes."""

  ALL = "all"
  CUBE = "cube"
  VECTOR = "vector"
  TAISHAN = "taishan"
  DVPP = "dvpp"
  HOST = "host"


@contextlib.contextmanager
def no_scope(*args: Any, **kwargs: Any) -> Iterator[None]:
  """A context that changes nothing: its arguments are hints for NPUs."""
  del args, kwargs
  yield


def set_iteration_per_loop(
  sess: Any, train_op: Any, iterations_per_loop: int = 1
) -> Any:
  """Returns an op whose run by a session takes several steps.

  Args:
    sess: The session. Its method `run` changes.
    train_op: The op that takes a step.
    iterations_per_loop: The number of steps, at least 1. All of them get what
      the program feeds.

  Raises:
    ValueError: `iterations_per_loop` is no such number.
  """
  arguments.check_steps("iterations_per_loop", iterations_per_loop)
  if iterations_per_loop == 1:
    return train_op
  loop = IterationPerLoop()
  op = loop.create_iteration_per_loop_var(train_op)
  loop.load_iteration_per_loop_var(sess, iterations_per_loop)
  return op


class IterationPerLoop:
  """The two halves of `set_iteration_per_loop`: the graph's and the session's.

  Attributes:
    op: The op whose run takes several steps, once there is one.
  """

  def __init__(self) -> None:
    self.op: Any = None
    # Session -> the number of steps.
    self._steps: weakref.WeakKeyDictionary[Any, int] = (
      weakref.WeakKeyDictionary()
    )

  def create_iteration_per_loop_var(self, train_op: Any) -> Any:
    """Returns the op whose run takes several steps.

    Args:
      train_op: The op that takes a step.
    """
    self.op = tf.group(train_op, name="IterationOp")
    return self.op

  def load_iteration_per_loop_var(
    self, sess: Any, iterations_per_loop: int = 1
  ) -> None:
    """Makes a session take several steps in a run of the op.

    Args:
      sess: The session. Its method `run` changes.
      iterations_per_loop: The number of steps, at least 1. A later call
        changes it.

    Raises:
      ValueError: `iterations_per_loop` is no such number.
      RuntimeError: There is no op yet.
    """
    arguments.check_steps("iterations_per_loop", iterations_per_loop)
    if self.op is None:
      raise RuntimeError(
        "there is no op for several steps: call create_iteration_per_loop_var "
        "before load_iteration_per_loop_var"
      )
    is_new = sess not in self._steps
    self._steps[sess] = iterations_per_loop
    if not is_new:
      return
    run = sess.run

    def run_several(fetches: Any, *args: Any, **kwargs: Any) -> Any:
      if self.op in tf.nest.flatten(fetches):
        for _ in range(self._steps[sess] - 1):
          run(self.op, *args, **kwargs)
      return run(fetches, *args, **kwargs)

    sess.run = run_several


def get_first(fetch: Any, *args: Any, **kwargs: Any) -> Any:
  """Returns the first argument: the others tell NPUs how to compute it."""
  del args, kwargs
  return fetch


_values: dict[str, Any] = {}


def set_value(key: str, value: Any) -> None:
  """Keeps a value for `get_value`."""
  _values[key] = value


def get_value(key: str, def_value: Any = None) -> Any:
  """Returns a value that `set_value` kept, or `def_value`."""
  return _values.get(key, def_value)
