# SPDX-License-Identifier: Apache-2.0
"""Programs that scale losses as other systems of TensorFlow 1 did.

Each has the names and the ops that the system's checkpoints and MetaGraphs
have, and trains a weight of two elements. A feed makes a step overflow.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import dataclasses
import functools
import pathlib
import tempfile
from typing import Any

import helpers
import tensorflow as tf

tf1 = tf.compat.v1


@dataclasses.dataclass
class Built:
  """A program.

  Attributes:
    op: The op of a step.
    overflow: A bool to feed.
  """

  op: Any
  overflow: Any
  variables: dict[str, Any] = dataclasses.field(default_factory=dict)


def save(folder: pathlib.Path, build, steps: str, meta=True, **options) -> str:
  """Builds a program, runs steps, and saves its variables.

  Args:
    folder: Where to save.
    build: Returns the program.
    steps: A "." for each finite step, and an "x" for each overflow.
    meta: Whether the MetaGraph is written.
    **options: Arguments of `build`.

  Returns:
    The checkpoint's prefix.
  """
  files = _save_once(build, steps, tuple(options.items()))
  for name, data in files.items():
    if meta or not name.endswith(".meta"):
      (folder / name).write_bytes(data)
  return str(folder / f"model.ckpt-{len(steps)}")


@functools.cache  # Many tests save the same programs.
def _save_once(
  build: Callable[..., Built], steps: str, options: tuple[tuple[str, Any], ...]
) -> dict[str, bytes]:
  """Returns the names and contents of the files that a program saves."""
  with helpers.control_flow(False), tf.Graph().as_default():
    built = build(**dict(options))
    saver = tf1.train.Saver(built.variables or None)
    with (
      tf1.Session() as session,
      tempfile.TemporaryDirectory() as folder,
    ):
      session.run(tf1.global_variables_initializer())
      for step in steps:
        session.run(built.op, {built.overflow: step == "x"})
      saver.save(session, f"{folder}/model.ckpt-{len(steps)}")
      return {p.name: p.read_bytes() for p in pathlib.Path(folder).iterdir()}


def _variable(value: Any, dtype: Any, name: str | None = None) -> Any:
  return tf1.Variable(
    value, trainable=False, dtype=dtype, name=name, use_resource=False
  )


def _make_gradient(scale: Any, overflow: Any, weight: Any) -> Any:
  """Returns an unscaled float32 gradient."""
  loss = tf.reduce_sum(tf.cast(weight, tf.float32) * 0.5) * scale
  (gradient,) = tf.gradients(loss, [weight])
  gradient = tf.cast(gradient, tf.float32) / scale
  return gradient * tf.where(overflow, float("inf"), 1.0)


def _make_optimizer(name: str) -> Any:
  if name == "adam":
    return tf1.train.AdamOptimizer(0.1)
  return tf1.train.MomentumOptimizer(0.1, 0.9)


def openseq2seq(
  scope: str | None = "Loss_Optimization",
  kind: str = "Backoff",
  window: int = 3,
  factor: float = 2.0,
  lower: float = 1.0,
  upper: float = 2.0**12,
  before: int = 0,
  clipping: bool = False,
  optimizer: str = "adam",
  use_resource: bool = False,
) -> Built:
  """Returns a program in the manner of OpenSeq2Seq and OpenNMT-tf.

  Args:
    scope: The optimizer's variable scope.
    kind: 'Backoff', 'LogMax' or 'fixed'.
    window: The number of good steps after which the scale grows.
    factor: The factor of the scale.
    lower: The scale's minimum.
    upper: The scale's maximum, and its first value.
    before: The number of other variables without names that come first.
    clipping: Whether a cond clips gradients first.
    optimizer: 'adam' or 'momentum'.
    use_resource: Whether the scale's variables are resources.
  """
  tf1.train.get_or_create_global_step()
  weight = tf1.get_variable("layer/w", [2], tf.float16, use_resource=False)
  overflow = tf1.placeholder(tf.bool, [])
  context = tf1.variable_scope(scope) if scope else contextlib.nullcontext()

  def variable(value, dtype):
    return tf1.Variable(
      value, trainable=False, dtype=dtype, use_resource=use_resource
    )

  with context:
    for _ in range(before):
      variable(5, tf.int64)
    if kind == "Backoff":
      iteration, last = variable(0, tf.int64), variable(-1, tf.int64)
      scale = variable(upper, tf.float32)
    elif kind == "LogMax":
      iteration, scale = variable(0, tf.int64), variable(1.0, tf.float32)
      means = [variable(0.0, tf.float32) for _ in range(3)]
      powers = [variable(1.0, tf.float32) for _ in range(2)]
    else:
      scale = tf.constant(upper)
    master = tf1.get_variable(
      "FP32-master-copy/layer/w",
      initializer=tf.cast(weight.initialized_value(), tf.float32),
      trainable=False,
      use_resource=False,
    )
    gradient = _make_gradient(scale, overflow, weight)
    if clipping:
      gradient = tf1.cond(
        tf.reduce_max(gradient) > 100, lambda: gradient * 0.5, lambda: gradient
      )
    bad = tf.reduce_any(tf.math.is_inf(gradient))

    def clip(value):
      return tf.clip_by_value(value, lower, upper)

    if kind == "Backoff":
      with tf.control_dependencies([gradient]):
        count = tf1.assign_add(iteration, 1)

      def fall():
        lower = tf1.assign(scale, clip(scale / factor))
        with tf.control_dependencies([tf1.assign(last, iteration)]):
          return tf.identity(lower)

      def stay():
        return tf1.cond(
          tf.equal((iteration - last) % window, 0),
          lambda: tf1.assign(scale, clip(scale * factor)),
          lambda: tf.identity(scale),
        )

      with tf.control_dependencies([count]):
        update = tf1.cond(bad, fall, stay)
    elif kind == "LogMax":
      update = _update_log_max(
        gradient, bad, iteration, scale, means, powers, clip
      )
    else:
      update = tf.no_op()
    with tf.control_dependencies([update]):
      apply = _make_optimizer(optimizer)
      step = tf1.train.get_global_step()

      def train():
        done = apply.apply_gradients([(gradient, master)], global_step=step)
        with tf.control_dependencies([done]):
          return tf.group(
            tf1.assign(weight, tf.saturate_cast(master, tf.float16))
          )

      op = tf1.cond(bad, tf.no_op, train)
  return Built(op, overflow)


def _update_log_max(gradient, bad, iteration, scale, means, powers, clip):
  """Returns the op of LogMax's rule."""
  x_hat, slow, squared = means
  log = tf1.cond(
    bad,
    lambda: tf.constant(16.0),
    lambda: tf.math.log(tf.reduce_max(gradient)) / tf.math.log(2.0),
  )

  def average(variable, beta, value):
    return tf1.assign(variable, beta * variable + (1 - beta) * value)

  done = [
    average(x_hat, 0.99, log),
    average(slow, 0.999, log),
    average(squared, 0.999, log * log),
    tf1.assign(powers[0], powers[0] * 0.99),
    tf1.assign(powers[1], powers[1] * 0.999),
  ]
  with tf.control_dependencies(done):
    mean = x_hat.read_value() / (1 - powers[0].read_value())
    slow_mean = slow.read_value() / (1 - powers[1].read_value())
    second = squared.read_value() / (1 - powers[1].read_value())
  deviation = tf.sqrt(tf.maximum(second - slow_mean * slow_mean, 0.0))
  cutoff = deviation * 3.09 + mean
  new = tf1.assign(scale, clip(tf.pow(2.0, 16 - cutoff)))
  with tf.control_dependencies([new]):
    return tf.identity(tf1.assign_add(iteration, 1))


def thumt(
  window: int = 3,
  factor: float = 2.0,
  tolerance: float = 0.6,
  accumulates: bool = False,
  threshold: float | None = None,
) -> Built:
  """Returns a program in the manner of THUMT."""
  step = tf1.train.get_or_create_global_step()
  weight = tf1.get_variable("layer/w", [2], tf.float32, use_resource=False)
  overflow = tf1.placeholder(tf.bool, [])
  scale = _variable(2.0**12, tf.float32, "scale")
  if accumulates:
    micro = _variable(0, tf.int32, "iter")
    accumulator = tf1.get_variable(
      "layer/w/MultiStepOptimizer", [2], trainable=False, use_resource=False
    )
  gradient = _make_gradient(scale, overflow, weight)
  bad = tf.reduce_any(tf.math.is_inf(gradient))
  kept = tf1.cond(bad, lambda: tf.zeros_like(gradient), lambda: gradient)
  inner = tf1.train.AdamOptimizer(0.1)
  if accumulates:
    with tf.control_dependencies([tf1.assign_add(micro, 1)]):
      summed = tf1.assign_add(accumulator, kept)
    op = tf1.cond(
      tf.equal(micro % 1, 0),
      lambda: inner.apply_gradients([(summed, weight)], global_step=step),
      tf.no_op,
    )
  else:
    op = inner.apply_gradients([(kept, weight)], global_step=step)
  iteration = _variable(0, tf.int32, "iter")
  changed = _variable(0, tf.int32, "rescale_iter")
  last = _variable(-1, tf.int32, "overflow_iter")
  count = _variable(0, tf.int32, "overflow")
  with tf.control_dependencies([op]):
    counted = tf1.assign_add(iteration, 1)
  with tf.control_dependencies([counted]):
    more = tf1.cond(
      bad, lambda: tf1.assign_add(count, 1), lambda: tf.identity(count)
    )
    latest = tf1.cond(
      bad, lambda: tf1.assign(last, iteration), lambda: tf.identity(iteration)
    )
  limit = tf.constant(tolerance)
  by = tf.constant(factor)

  def fall():
    lower = tf1.assign(scale, scale / by)
    if threshold is not None:
      lower = tf1.assign(lower, tf.maximum(scale, threshold))
    return tf.group(
      lower,
      tf1.assign(changed, iteration),
      tf1.assign(count, 0),
    )

  def grow():
    return tf.group(
      tf1.assign(scale, scale * by), tf1.assign(changed, iteration)
    )

  with tf.control_dependencies([more, latest]):
    share = tf.cast(count, tf.float32) / tf.cast(
      iteration - changed, tf.float32
    )
    fallen = tf1.cond(tf.logical_and(bad, share > limit), fall, tf.no_op)
  with tf.control_dependencies([fallen]):
    due = tf.equal((iteration - last) % window, 0)
    grown = tf1.cond(tf.logical_and(tf.logical_not(bad), due), grow, tf.no_op)
  return Built(grown, overflow)


def tf_cnn_benchmarks(
  automatic: bool = True,
  every: int = 2,
  prefix: str = "v",
  optimizer: str = "adam",
  replicas: int = 1,
) -> Built:
  """Returns a program in the manner of tf_cnn_benchmarks.

  Args:
    automatic: Whether the scale changes.
    every: The number after which the scale grows.
    prefix: `v`, or `v0` for the first replica.
    optimizer: 'adam' or 'momentum'.
    replicas: How often gradients are applied in a step.
  """
  step = tf1.train.get_or_create_global_step()
  scale = tf1.get_variable(
    "loss_scale",
    initializer=tf.constant(128.0),
    trainable=False,
    use_resource=False,
  )
  weight = tf1.get_variable(
    f"{prefix}/cg/affine0/weights", [2], tf.float32, use_resource=False
  )
  overflow = tf1.placeholder(tf.bool, [])
  gradient = _make_gradient(scale, overflow, weight)
  inner = _make_optimizer(optimizer)
  if not automatic:
    op = inner.apply_gradients([(gradient, weight)], global_step=step)
    return Built(op, overflow)
  normal = tf1.get_variable(
    "loss_scale_normal_steps",
    initializer=tf.constant(0),
    trainable=False,
    use_resource=False,
  )
  bad = tf.reduce_any(tf.math.is_inf(gradient))

  def fall():
    return tf.group(tf1.assign(scale, scale / 2.0), tf1.assign(normal, 0))

  def train():
    return tf.group(
      inner.apply_gradients([(gradient, weight)]),
      tf1.cond(
        normal < every,
        lambda: tf.group(tf1.assign_add(normal, 1)),
        lambda: tf.group(tf1.assign(normal, 0), tf1.assign(scale, scale * 2.0)),
      ),
    )

  ops = [tf1.assign_add(step, 1)]
  for _ in range(replicas):
    scope = tf1.name_scope("append_apply_gradient_ops")
    with scope, tf.control_dependencies(ops[-1:]):
      ops.append(tf1.cond(bad, fall, train, name="cond_if_grad_has_inf_nan"))
  return Built(ops[-1], overflow)
