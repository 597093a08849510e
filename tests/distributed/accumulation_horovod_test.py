# SPDX-License-Identifier: Apache-2.0
"""Tests accumulation with optimizers that reduce gradients over processes."""

import helpers
from helpers import MODES
import horovod_runs
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib

tf1 = tf.compat.v1


class Reducing(tf1.train.GradientDescentOptimizer):
  """Doubles gradients as it computes them, in place of communication.

  Attributes:
    reductions: How many reductions were built, or done eagerly.
  """

  # As in Horovod's own optimizer.
  __module__ = "horovod.tensorflow"

  def __init__(self, passes=1):
    super().__init__(0.5)
    self._backward_passes_per_step = passes
    self.reductions = 0

  def compute_gradients(self, *args, **kwargs):
    self.reductions += 1
    pairs = super().compute_gradients(*args, **kwargs)
    return [(2 * grad, var) for grad, var in pairs]


@pytest.mark.parametrize("mode", MODES)
def test_each_micro_batch_is_reduced(mode):
  reducing = Reducing()
  make = lambda: tfl.accumulate(  # noqa: E731
    tfl.MixedPrecisionLossScaleOptimizer(reducing, tfl.DynamicLossScale(8, 2)),
    2,
  )
  with helpers.Trainer(mode, make) as trainer:
    for grad in (1.0, 3.0, float("inf"), 1.0):
      trainer.step(grad)
    assert trainer.state()["v0"].tolist() == [-1.0] * 2
    assert trainer.loss_scale == 4
  # A function may be traced twice.
  assert reducing.reductions in {"eager": [4], "function": [1, 2]}.get(
    mode, [1]
  )


class Wrapper(tf1.train.Optimizer):
  """An optimizer of a user, around another one."""

  def __init__(self, optimizer):
    super().__init__(name="Wrapper", use_locking=False)
    self._opt = optimizer


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("is_contrib", [False, True])
def test_passes_inside_are_an_error_that_says_what_works(between, is_contrib):
  opt = Wrapper(Reducing(2)) if between else Reducing(2)
  message = (
    r"backward_passes_per_step=2: .*tf_compat_lossscale\.accumulate\("
    r"tf_compat_lossscale\.MixedPrecisionLossScaleOptimizer\("
    r"hvd\.DistributedOptimizer\(opt\), loss_scale\), 2\)"
  )
  with pytest.raises(ValueError, match=message):
    if is_contrib:
      contrib.LossScaleOptimizer(opt, contrib.FixedLossScaleManager(8))
    tfl.MixedPrecisionLossScaleOptimizer(opt, "dynamic")
  # A loss scale that never changes is the same on all ranks.
  fixed = tfl.MixedPrecisionLossScaleOptimizer(opt, 8)
  with pytest.raises(ValueError, match=message):
    tfl.accumulate(fixed, 2)


@pytest.mark.machines
@horovod_runs.NEEDS_HOROVOD
def test_horovod(tmp_path):
  """Runs all modes in one launch, for a launch takes longer than a mode."""
  program = str(helpers.TESTS / "distributed" / "accumulation_horovod.py")
  status, log = horovod_runs.complete(tmp_path, 2, program, *MODES, timeout=300)
  assert status == 0, log
  for mode in MODES:
    for rank in range(2):
      assert f"done {mode} of rank {rank}" in log


if __name__ == "__main__":
  helpers.main()
