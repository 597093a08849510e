# SPDX-License-Identifier: Apache-2.0
"""Tests slots that a restore creates before the first step of replicas."""

import contextlib
import copy

import helpers
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1


def scaled(inner):
  return tfl.MixedPrecisionLossScaleOptimizer(inner, tfl.DynamicLossScale(8, 2))


WRAPPERS = {
  "dynamic": scaled,
  "fixed": lambda inner: tfl.MixedPrecisionLossScaleOptimizer(inner, 8),
  "accumulate": lambda inner: tfl.accumulate(scaled(inner), 2),
}


def make(strategy, wrapper, inner, mode):
  """Returns a variable, an optimizer and a function that does a step."""
  with strategy.scope():
    v = tf.Variable([1.0, 2.0])
    opt = WRAPPERS[wrapper](helpers.INNER[inner]())

  def step(factor):
    def replica_fn():
      opt.minimize(lambda: tf.reduce_sum(v * v * factor), var_list=[v])

    strategy.run(replica_fn)

  if mode == "function":
    step = tf.function(step, autograph=False)
  return v, opt, step


@pytest.mark.parametrize("in_scope", [False, True])
@pytest.mark.parametrize(
  ("wrapper", "inner", "mode"),
  helpers.pairs(WRAPPERS, ["adam", "momentum"], ["eager", "function"]),
)
def test_trains_on_bit_for_bit(wrapper, inner, mode, in_scope, tmp_path):
  strategy = helpers.two_replicas()
  v, opt, step = make(strategy, wrapper, inner, mode)
  for factor in (0.1, 0.2, 0.3):
    step(tf.constant(factor))
  path = tf.train.Checkpoint(opt=opt, v=v).save(str(tmp_path / "ckpt"))
  again, opt_again, step_again = make(strategy, wrapper, inner, mode)
  with strategy.scope() if in_scope else contextlib.nullcontext():
    checkpoint = tf.train.Checkpoint(opt=opt_again, v=again)
    status = checkpoint.restore(path)
  for factor in (0.4, 0.1, 0.3):
    step(tf.constant(factor))
    step_again(tf.constant(factor))
    for value, expected in zip(again.values, v.values):
      assert value.numpy().tolist() == expected.numpy().tolist()
  status.assert_consumed()
  # Later checkpoints have the slots, too.
  path = tf.train.Checkpoint(opt=opt_again, v=again).write(
    str(tmp_path / "later")
  )
  for factor in (0.4, 0.1):
    step_again(tf.constant(factor))
  checkpoint.restore(path)
  for factor in (0.2, 0.3):
    step(tf.constant(factor))
    step_again(tf.constant(factor))
  assert again.values[1].numpy().tolist() == v.values[1].numpy().tolist()


def test_copies_have_slots_of_their_own():
  v = tf.Variable([1.0, 2.0])
  opt = helpers.INNER["momentum"]()
  scaled(opt)
  twin = copy.deepcopy(opt)
  twin.minimize(lambda: v * v, var_list=[v])
  assert twin.get_slot_names() == ["momentum"]
  assert opt.get_slot_names() == []
  assert len(twin._trackable_children("savedmodel")) == 1
  assert not opt._trackable_children("savedmodel")


if __name__ == "__main__":
  helpers.main()
