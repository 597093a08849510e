# SPDX-License-Identifier: Apache-2.0
"""Times steps with a hook that watches the loss scale."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import rivals
from benchmarks import shapes
from benchmarks import steps
from benchmarks import timing
import tf_compat_lossscale as tfl
from tf_compat_lossscale import monitoring

tf1 = tf.compat.v1
BUILDS = 5
BARE = "no hook"


class _OneFetch(tf1.train.SessionRunHook):
  """A hook that fetches one number in each run, and does nothing with it.

  No hook that is told of each step can be faster.
  """

  def __init__(self, optimizer: tfl.MixedPrecisionLossScaleOptimizer) -> None:
    self._asked = tf1.train.SessionRunArgs(optimizer.loss_scale.good_steps)

  def before_run(self, run_context: Any) -> tf1.train.SessionRunArgs:
    del run_context
    return self._asked


def _do_nothing(optimizer: Any, folder: str) -> tf1.train.SessionRunHook:
  del optimizer, folder
  return tf1.train.SessionRunHook()


# Name -> a function of the optimizer and a folder that returns the hook.
ARMS: dict[str, Callable[[Any, str], tf1.train.SessionRunHook]] = {
  BARE: _do_nothing,
  "again": _do_nothing,
  "one fetch": lambda opt, folder: _OneFetch(opt),
  "hook": monitoring.LossScaleHook,
  "without blame": lambda opt, folder: monitoring.LossScaleHook(
    opt, folder, blame=False
  ),
}


class _Step:
  """A step in a `MonitoredSession`, with one hook; a call runs the step."""

  def __init__(
    self,
    variable_shapes: Sequence[shapes.Shape],
    loss: Callable[[Sequence[tf.Variable]], tf.Tensor],
    v2: bool,
    make_hook: Callable[[Any, str], tf1.train.SessionRunHook],
    folder: str,
  ) -> None:
    (tf1.enable_control_flow_v2 if v2 else tf1.disable_control_flow_v2)()
    with tf.Graph().as_default():
      variables = [
        tf1.Variable(tf.zeros(shape), name="v", use_resource=True)
        for shape in variable_shapes
      ]
      # Graph optimizers would remove a factor whose value they know.
      one = tf1.Variable(1.0, trainable=False, use_resource=True)
      opt = tfl.MixedPrecisionLossScaleOptimizer(
        rivals.OPTIMIZERS["momentum"](), "dynamic"
      )
      self._train = opt.minimize(
        loss(variables) * one, tf1.train.get_or_create_global_step(), variables
      )
      self._session = tf1.train.MonitoredSession(hooks=[make_hook(opt, folder)])

  def __call__(self) -> None:
    self._session.run(self._train)

  def close(self) -> None:
    self._session.close()


def measure(
  variable_shapes: Sequence[shapes.Shape],
  loss: Callable[[Sequence[tf.Variable]], tf.Tensor],
  mode: str,
  seconds: float,
  rounds: int,
  builds: int = BUILDS,
) -> dict[str, Any]:
  """Times a momentum step with and without a hook at its defaults.

  Args:
    variable_shapes: The shapes of the variables.
    loss: Returns the loss of the variables.
    mode: One of the graph modes of `steps.MODES`.
    seconds: How long to time all steps together, approximately.
    rounds: The least number of rounds, of all builds together.
    builds: How often to build each step.

  Returns:
    Figure -> value: the median seconds of a step whose hook does nothing; for
    each other arm, the ratio over that step with its interval. "again" is a
    second build of the same step: its ratio shows how far the others are exact.
  """
  with tempfile.TemporaryDirectory() as folder:

    def build(name: str) -> _Step:
      return _Step(
        variable_shapes,
        loss,
        mode == steps.MODES[1],
        ARMS[name],
        tempfile.mkdtemp(dir=folder),
      )

    times = timing.time_builds(ARMS, build, builds, seconds, rounds, mode)
  base = times[BARE]
  return {
    "mode": mode,
    "seconds": float(np.median(np.concatenate(base))),
    "over no hook": {
      name: timing.ratio_of_builds(times[name], base)
      for name in ARMS
      if name != BARE
    },
  }
