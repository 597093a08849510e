# SPDX-License-Identifier: Apache-2.0
"""Tests `tf.contrib.mixed_precision`: its managers and its optimizer."""

import math

import growth_backoff_oracle as oracle
import helpers
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf
import trainers

import tf_compat_lossscale as tfl
from tf_compat_lossscale import contrib
from tf_compat_lossscale import policies

tf1 = tf.compat.v1

_INF = float("inf")


class Trainer(trainers.Trainer):
  """The trainer of `helpers`, for tf.contrib's optimizer."""

  def __init__(self, mode, manager, inner="sgd", **kwargs):
    super().__init__(
      mode,
      lambda: contrib.LossScaleOptimizer(helpers.INNER[inner](), manager()),
      **kwargs,
    )

  @property
  def scale(self):
    return float(self.value(self.opt.loss_scale_manager.get_loss_scale()))


def exponential(*args):
  return lambda: contrib.ExponentialUpdateLossScaleManager(*args)


@pytest.mark.parametrize(
  ("mode", "inner"),
  helpers.Rows(
    [
      *((mode, "adam") for mode in helpers.MODES),
      *zip(helpers.MODES, ["sgd", "momentum", "momentum", "sgd"]),
    ]
  ),
)
def test_trains_and_leaves_steps_out(mode, inner):
  grads = (1.0, 2.0, _INF, 3.0, float("nan"), 1.0, -2.0)
  with trainers.Trainer(mode, helpers.INNER[inner]) as bare:
    for grad in filter(math.isfinite, grads):
      bare.step(grad)
    expected = bare.value(bare.variables[0])
  for manager, scales in (
    (
      exponential(1024.0, 2, 2, 2, 0.5),
      [1024, 2048, 2048, 2048, 1024, 1024, 2048],
    ),
    (lambda: contrib.FixedLossScaleManager(512.0), [512] * 7),
  ):
    with Trainer(mode, manager, inner) as trainer:
      for grad, scale in zip(grads, scales):
        trainer.step(grad)
        assert trainer.scale == scale
      assert trainer.value(trainer.global_step) == 5
      value = trainer.value(trainer.variables[0])
    np.testing.assert_allclose(value, expected, rtol=1e-6)


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_names_are_those_of_tensorflow_1(mode):
  """Checks names for Saver: in tf.contrib, the apply's cond was made first."""
  with helpers.mode_scope(mode):
    for scope in ("a", "b"):
      with tf1.variable_scope(scope):
        w = tf1.get_variable("w", [2], use_resource=False)
        manager = contrib.ExponentialUpdateLossScaleManager(8, 2)
        opt = contrib.LossScaleOptimizer(tf1.train.AdamOptimizer(), manager)
        opt.minimize(tf.reduce_sum(w), var_list=[w])
    top = tf1.get_variable("top", [2], use_resource=False)
    for _ in range(2):
      manager = contrib.ExponentialUpdateLossScaleManager(8, 2)
      opt = contrib.LossScaleOptimizer(tf1.train.AdamOptimizer(), manager)
      opt.minimize(tf.reduce_sum(top), var_list=[top])
    names = helpers.variable_names()
  # The names in TensorFlow 1.15.5 of this program.
  assert [n for n in names if "power" in n or "/" not in n] == [
    "a/cond/beta1_power",
    "a/cond/beta2_power",
    "b/cond/beta1_power",
    "b/cond/beta2_power",
    "bad_steps",
    "bad_steps_1",
    "cond/beta1_power",
    "cond/beta2_power",
    "cond_2/beta1_power",
    "cond_2/beta2_power",
    "good_steps",
    "good_steps_1",
    "loss_scale",
    "loss_scale_1",
    "top",
  ]


def test_a_manager_of_ones_own():
  class Halving(contrib.LossScaleManager):
    def __init__(self):
      self._add_weight("mine", 64.0, tf.float32)
      self.seen = []

    def get_loss_scale(self):
      return self._get_weight("mine")

    def update_loss_scale(self, finite_grads):
      self.seen.append(bool(finite_grads))
      mine = self._get_weight("mine")
      return mine.assign(mine / 2)

  class Duck:
    def get_loss_scale(self):
      return tf.constant(4.0)

    def update_loss_scale(self, finite_grads):
      return tf.no_op()

  for manager in (Halving(), Duck()):
    w = tf.Variable(1.0)
    opt = contrib.LossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.5), manager
    )
    opt.minimize(lambda w=w: w * 1.0, var_list=[w])
    opt.minimize(lambda w=w: w * _INF, var_list=[w])
    assert w.numpy() == 0.5
  halving = Halving()
  opt = contrib.LossScaleOptimizer(tf1.train.AdamOptimizer(), halving)
  opt.minimize(lambda: w * 1.0, var_list=[w])
  assert halving.seen == [True] and halving.get_loss_scale().numpy() == 32.0
  assert any("mine" in v.name for v in opt.variables())


@pytest.mark.parametrize(
  ("make", "what"),
  [
    (lambda: contrib.FixedLossScaleManager(0.5), "loss_scale.*0.5"),
    (lambda: contrib.FixedLossScaleManager("x"), "loss_scale.*'x'"),
    (exponential(0, 1), "init_loss_scale.*0"),
    (exponential(1, 0), "incr_every_n_steps.*0"),
    (exponential(1, 1, -1), "decr_every_n_nan_or_inf.*-1"),
    (exponential(1, 1, 1, 1.0), r"incr_ratio.*1\.0"),
    (exponential(1, 1, 1, 2, 1.0), r"decr_ratio.*1\.0"),
    (
      lambda: contrib.LossScaleOptimizer(1, contrib.FixedLossScaleManager(1)),
      "opt.*1",
    ),
    (
      lambda: contrib.LossScaleOptimizer(tf1.train.AdamOptimizer(), 8.0),
      r"loss_scale_manager.*8\.0",
    ),
  ],
)
def test_mistakes(make, what):
  with pytest.raises(ValueError, match=what):
    make()


def test_what_replaced_them():
  fixed = contrib.FixedLossScaleManager(16).to_loss_scale()
  assert fixed.get_config() == tfl.FixedLossScale(16).get_config()
  dynamic = exponential(32, 5, 1, 4, 0.25)().to_loss_scale()
  assert dynamic.get_config() == tfl.DynamicLossScale(32, 5, 4).get_config()
  for arguments in ((5,), (5, 1, 2, 0.8), (5, 1, 3, 1 / 3)):
    other = exponential(32, *arguments)().to_loss_scale()
    assert isinstance(other, policies.GrowthBackoff)
    assert other.get_config()["growth_interval"] == 5


@given(
  start=st.floats(1, 2.0**127, width=32),
  interval=st.integers(1, 4),
  hysteresis=st.integers(1, 3),
  up=st.sampled_from([2, 4]) | st.floats(1.015625, 1024, width=32),
  down=st.sampled_from([0.5, 1 / 3]) | st.floats(2**-9, 0.984375, width=32),
  steps=st.lists(st.booleans(), max_size=25),
)
@settings(deadline=None, max_examples=60)
def test_the_rule_and_what_replaced_it(
  start, interval, hysteresis, up, down, steps
):
  manager = exponential(start, interval, hysteresis, up, down)()
  scale = manager.to_loss_scale()
  rule = oracle.Rule(
    start,
    float(np.float32(up)),
    float(np.float32(down)),
    interval,
    hysteresis=hysteresis,
    refill=("growth", "backoff"),
  )
  for finite, state in zip(steps, rule.run(steps)):
    assert manager.update_loss_scale(tf.constant(finite)) is None
    scale.update([tf.constant(1.0 if finite else _INF)])
    found = manager.loss_scale, scale()
    assert [x.numpy() for x in found] == [state.current_loss_scale] * 2
    counts = manager.good_steps, manager.bad_steps
    assert [int(x) for x in counts] == [
      state.good_steps,
      state.spent_hysteresis,
    ]


def test_the_state_is_public():
  manager = contrib.ExponentialUpdateLossScaleManager(8, 5)
  opt = contrib.LossScaleOptimizer(
    tf1.train.GradientDescentOptimizer(0.1), manager
  )
  assert opt.loss_scale_manager is opt._loss_scale_manager is manager
  assert manager.loss_scale is manager.get_loss_scale() is opt.loss_scale()
  assert manager.good_steps is manager._num_good_steps
  assert manager.bad_steps is manager._num_bad_steps
  assert contrib.FixedLossScaleManager(16).loss_scale == 16.0


class _Replaced(contrib.ExponentialUpdateLossScaleManager):
  """A manager with variables of its own, in place of the constructor's."""

  def __init__(self, use_resource):
    self._loss_scale = self._num_good_steps = None
    super().__init__(1024.0, 2, 2, 4, 0.25)
    self.resets = 0

    def make(name, value):
      return tf1.Variable(value, name=name, use_resource=use_resource)

    self._loss_scale = make("mine", 64.0)
    self._num_good_steps = make("good", 1)
    self._num_bad_steps = make("bad", 1)

  def _reset_stats(self):
    self.resets += 1
    return super()._reset_stats()


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("mode", helpers.MODES)
def test_a_subclass_sets_the_variables(mode, use_resource):
  use_resource = use_resource or mode not in helpers.GRAPH_MODES
  with Trainer(mode, lambda: _Replaced(use_resource)) as trainer:
    scales = []
    for grad in (1.0, _INF, 1.0, 1.0, _INF):
      trainer.step(grad)
      scales.append(trainer.scale)
    assert scales == [256, 256, 256, 1024, 1024]
    manager = trainer.opt.loss_scale_manager
    assert trainer.value(manager._num_bad_steps) == 1
    assert manager.loss_scale is manager._loss_scale
    assert manager.resets >= 1


def test_what_a_program_sets_is_what_is_saved(tmp_path):
  def make():
    opt = contrib.LossScaleOptimizer(
      tf1.train.GradientDescentOptimizer(0.5), exponential(8.0, 1)()
    )
    opt._opt = tf1.train.MomentumOptimizer(0.5, 0.9)
    opt._loss_scale_manager = exponential(16.0, 1)()
    w = tf.Variable(1.0)
    return opt, w, tf.train.Checkpoint(opt=opt, w=w)

  opt, w, checkpoint = make()
  opt.minimize(lambda: w * 1.0, var_list=[w])
  path = checkpoint.save(str(tmp_path / "ckpt"))
  opt, w, checkpoint = make()
  opt.minimize(lambda: w * 0.0, var_list=[w])
  checkpoint.restore(path).assert_consumed()
  assert opt._loss_scale_manager.loss_scale.numpy() == 32.0
  assert opt.get_slot(w, "momentum").numpy() == 1.0
  newer = tfl.MixedPrecisionLossScaleOptimizer(opt._opt, "dynamic")
  newer._loss_scale = tfl.DynamicLossScale(64.0)
  saved = tf.train.Checkpoint(opt=newer).save(str(tmp_path / "newer"))
  key = "opt/loss_scale/current_loss_scale/.ATTRIBUTES/VARIABLE_VALUE"
  assert tf.train.load_variable(saved, key) == 64.0
