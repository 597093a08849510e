# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests of monitoring: a program with a hook, and what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
import json
import os
import pathlib
from typing import Any

import helpers
import numpy as np
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import monitoring
from tf_compat_lossscale.monitoring import event_files

tf1 = tf.compat.v1


def make_sgd(scale: Any = 8.0, period: int = 100) -> tf1.train.Optimizer:
  """Returns an optimizer with a loss scale.

  Args:
    scale: The first value of a `DynamicLossScale`, or any loss scale.
    period: The good steps after which the scale grows.
  """
  if isinstance(scale, float):
    scale = tfl.DynamicLossScale(scale, period)
  sgd = tf1.train.GradientDescentOptimizer(0.5)
  return tfl.MixedPrecisionLossScaleOptimizer(sgd, scale)


class Program:
  """A training program in a graph, with a hook, in a plain session.

  Attributes:
    trainer: The program.
    hook: The hook.
    train_op: The op that does a step.
    session: The session.
  """

  def __init__(
    self,
    mode: str = "graph_v1",
    make_optimizer: Any = make_sgd,
    specs: tuple[helpers.Spec, ...] = (helpers.Spec(),),
    apply_only: bool = False,
    use_resource: bool = True,
    **options: Any,
  ) -> None:
    """Builds the program; `options` are those of the hook."""
    self.trainer = helpers.Trainer(
      mode, make_optimizer, specs, apply_only, use_resource
    )
    self.specs = specs
    self.train_op = self.trainer.train_op
    self.session = self.trainer.session
    self.hook = monitoring.LossScaleHook(self.trainer.opt, **options)
    self.hook.begin()

  def __enter__(self) -> Program:
    return self

  def __exit__(self, *error: Any) -> None:
    self.trainer.__exit__(*error)

  def feed(self, *grads: Any) -> dict[tf.Tensor, np.ndarray]:
    """Returns a feed with a gradient for each variable; one is for all."""
    if len(grads) == 1:
      grads *= len(self.specs)
    return {
      fed: np.broadcast_to(
        np.asarray(grad, tf.as_dtype(spec.fed_dtype).as_numpy_dtype), spec.fed
      )
      for grad, spec, fed in zip(grads, self.specs, self.trainer.feeds)
    }

  def step(self, *grads: Any) -> None:
    """Does a step with a gradient for each variable."""
    self.hook.run(self.session, self.train_op, self.feed(*grads))

  def end(self) -> None:
    self.hook.end(self.session)


def run_steps(folder: Any, grads: Sequence[float], **options: Any) -> list:
  """Trains a variable by given gradients; returns the lines of the log.

  Args:
    folder: The `output_dir`.
    grads: The gradient of each step.
    **options: Other arguments of `Program`.
  """
  with Program(output_dir=folder, **options) as program:
    for grad in grads:
      program.step(grad)
    program.end()
  return read_lines(folder)


def read_lines(folder: Any) -> list[dict[str, Any]]:
  """Returns the lines of a log, without their times."""
  text = (pathlib.Path(folder) / "loss_scale.jsonl").read_text("utf-8")
  assert not text or text.endswith("\n")
  lines = [json.loads(line) for line in text.splitlines()]
  for line in lines:
    assert line.pop("time") > 1e9
  return lines


def read_scalars(folder: Any) -> dict[int, dict[str, float]]:
  """Returns step -> the scalars of the event files, as TensorBoard reads them.

  TensorFlow's own reader reads the files.
  """
  found: dict[int, dict[str, float]] = {}
  for path in event_files.list_files(folder):
    for event in tf1.train.summary_iterator(path):
      if event.session_log.status == tf1.SessionLog.START:
        found = {k: v for k, v in found.items() if k < event.step}
      for value in event.summary.value:
        found.setdefault(event.step, {})[value.tag] = value.simple_value
  return found


def assert_same_series(folder: Any) -> list[dict[str, Any]]:
  """Asserts that lines and scalars are one series; returns the lines."""
  lines = read_lines(folder)
  steps = [line["step"] for line in lines]
  assert steps == sorted(set(steps)), steps
  expected = {
    line["step"]: {
      key: np.float32(float(value))
      for key, value in line.items()
      if key.startswith("loss_scale/")
    }
    for line in lines
  }
  assert read_scalars(folder) == expected
  return lines


def list_files(folder: Any) -> list[str]:
  return sorted(os.listdir(folder))
