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
# "again" is a second build of the same step: its ratio shows how far the other
# one is exact.
BARE, AGAIN, HOOK = "no hook", "again", "hook"


class _Step:
  """A momentum step in a `MonitoredSession`; a call runs the step."""

  def __init__(
    self, variable_shapes: Any, loss: Any, v2: bool, folder: str | None
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
      hooks = [monitoring.LossScaleHook(opt, folder)] if folder else []
      self._session = tf1.train.MonitoredSession(hooks=hooks)

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
  """Times a step with and without a hook; the arguments are as in `timing`."""

  def build(name: str) -> _Step:
    folder = tempfile.mkdtemp() if name == HOOK else None
    return _Step(variable_shapes, loss, mode == steps.MODES[1], folder)

  names = (BARE, AGAIN, HOOK)
  times = timing.time_builds(names, build, builds, seconds, rounds, mode)
  ratio = timing.ratio_of_builds
  return {
    "mode": mode,
    "seconds": float(np.median(np.concatenate(times[BARE]))),
    "over no hook": {x: ratio(times[x], times[BARE]) for x in names[1:]},
  }
