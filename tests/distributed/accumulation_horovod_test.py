# SPDX-License-Identifier: Apache-2.0
"""Tests accumulation with optimizers that reduce gradients over processes."""

import helpers
from helpers import MODES
import horovod_runs
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


class Reducing(tf1.train.Optimizer):
  """Doubles gradients as it computes them, in place of communication."""

  def __init__(self, optimizer, helper=None):
    super().__init__(False, "Reducing")
    self._optimizer = optimizer
    self._agg_helper = helper
    self.reductions = []

  def _allreduce_grads(self, grads):
    self.reductions.append(len(grads))
    return [None if grad is None else 2 * grad for grad in grads]

  def compute_gradients(self, *args, **kwargs):
    grads, variables = zip(*self._optimizer.compute_gradients(*args, **kwargs))
    return list(zip(self._allreduce_grads(grads), variables))

  def apply_gradients(self, *args, **kwargs):
    return self._optimizer.apply_gradients(*args, **kwargs)

  def get_slot(self, *args):
    return self._optimizer.get_slot(*args)

  def get_slot_names(self):
    return self._optimizer.get_slot_names()

  def variables(self):
    return self._optimizer.variables()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drop", ["window", "micro_batch"])
def test_reduced_once_in_a_window(mode, drop):
  reducing = []

  def make():
    sgd = tf1.train.GradientDescentOptimizer(0.5)
    reducing.append(Reducing(sgd))
    scaled = tfl.MixedPrecisionLossScaleOptimizer(
      reducing[0], tfl.DynamicLossScale(8, 2)
    )
    return tfl.accumulate(scaled, 2, drop)

  with helpers.Trainer(mode, make) as trainer:
    for grad in (1.0, 3.0, float("inf"), 1.0):
      trainer.step(grad)
    expected = -1.0 if drop == "window" else -2.0
    assert trainer.state()["v0"].tolist() == [expected] * 2
    assert trainer.loss_scale == 4
  # A window reduces the counts, then the gradient.
  once = [2, 1]
  # A function may be traced twice.
  times = {"eager": [2], "function": [1, 2]}.get(mode, [1])
  assert reducing[0].reductions in [once * n for n in times]


def test_another_accumulation_is_an_error():
  sgd = Reducing(tf1.train.GradientDescentOptimizer(0.5), helper=object())
  scaled = tfl.MixedPrecisionLossScaleOptimizer(sgd, 8)
  with pytest.raises(ValueError, match="backward_passes_per_step"):
    tfl.accumulate(scaled, 2)


@pytest.mark.machines
@horovod_runs.NEEDS_HOROVOD
def test_horovod(tmp_path):
  """Runs all modes in one launch, for a launch takes longer than a mode."""
  program = str(helpers.HARNESS / "accumulation_horovod.py")
  status, log = horovod_runs.complete(tmp_path, 2, program, *MODES, timeout=300)
  assert status == 0, log
  for mode in MODES:
    for rank in range(2):
      assert f"done {mode} of rank {rank}" in log


if __name__ == "__main__":
  helpers.main()
