# SPDX-License-Identifier: Apache-2.0
"""Tests that the hints of `missing_names` can be followed.

Each program does what a hint says, in a session, with a loss scale.
"""

import re

import helpers
import numpy as np
import processes
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale.programs import missing_names

_X = np.random.RandomState(0).uniform(-1, 1, (4, 5)).astype("f")


def weight(*shape):
  value = np.random.RandomState(1).uniform(-0.5, 0.5, shape or (5, 3))
  return tf.get_variable("w", initializer=value.astype("f"))


def product():
  return tf.matmul(_X, weight())


def error(y):
  return tf.reduce_mean(tf.square(y - 1.0))


def recurrent():
  cell = tf.nn.rnn_cell.GRUCell
  inputs = tf.ones([2, 3, 4])
  return tf.nn.bidirectional_dynamic_rnn(
    cell(3), cell(3), inputs, dtype=tf.float32
  )[0][0]


def multitag():
  """Returns minus the probability of sequences with tag 0 or 1 alone."""
  crf, inputs = tensorflow.contrib.crf, weight(2, 4, 3)
  allowed = tf.tile([[[True, True, False]]], [2, 4, 1])
  masked = tf.where(allowed, inputs, tf.fill([2, 4, 3], -np.inf))
  norms = [
    crf.crf_log_norm(x, [4, 3], tf.zeros([3, 3])) for x in (inputs, masked)
  ]
  return tf.reduce_mean(norms[0] - norms[1])


def masked():
  w = weight()
  mask = tf.get_variable("m", initializer=tf.ones([5, 3]), trainable=False)
  keep = mask.assign(tf.cast(tf.abs(w) > 0.1, tf.float32))
  with tf.control_dependencies([keep]):
    return tf.matmul(_X, w * mask)


def when_not_zero(opt, loss):
  pairs = opt.compute_gradients(loss)
  is_any = tf.reduce_any([tf.reduce_any(tf.not_equal(g, 0)) for g, _ in pairs])
  return tf.cond(is_any, lambda: opt.apply_gradients(pairs), tf.no_op)


def then_clip(opt, loss):
  (variable,) = tf.trainable_variables()
  with tf.control_dependencies([opt.minimize(loss)]):
    return variable.assign(tf.clip_by_norm(variable, 1.0, [1]))


def compatible_lstm():
  cell = tensorflow.contrib.cudnn_rnn.CudnnCompatibleLSTMCell(3)
  return tf.nn.dynamic_rnn(cell, tf.ones([2, 3, 4]), dtype=tf.float32)[0]


def adam():
  return tf.train.AdamOptimizer(0.1)


def scaled(optimizer):
  precision = tf.mixed_precision
  return precision.MixedPrecisionLossScaleOptimizer(
    optimizer, precision.DynamicLossScale(256.0, 2)
  )


def managed(optimizer):
  precision = tensorflow.contrib.mixed_precision
  return precision.LossScaleOptimizer(
    optimizer, precision.ExponentialUpdateLossScaleManager(256.0, 2)
  )


def momentum_w():
  extend = tensorflow.contrib.opt.extend_with_decoupled_weight_decay
  return extend(tf.train.MomentumOptimizer)(0.01, 0.1, 0.9, name="MomentumW")


def bag():
  ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], np.int64([1, 2, 3]), [2, 2])
  return tf.nn.safe_embedding_lookup_sparse(weight(), ids)


# Key of `HINTS` -> what does as it says: a function that returns a loss, and
# perhaps one that makes the optimizer, and one that makes the step.
_FOLLOWED = {
  "crf.crf_multitag_sequence_score": [multitag],
  "cudnn_rnn": [lambda: error(compatible_lstm())],
  "layers.bow_encoder": [lambda: error(bag())],
  "model_pruning": [lambda: error(masked())],
  "nn.alpha_dropout": [
    lambda: error(tf.keras.layers.AlphaDropout(0.001)(product(), training=True))
  ],
  "opt.MomentumWOptimizer": [lambda: error(product()), momentum_w],
  "opt.MultitaskOptimizerWrapper": [
    lambda: error(product()),
    adam,
    when_not_zero,
  ],
  "opt.VariableClippingOptimizer": [lambda: error(product()), adam, then_clip],
  "recurrent": [lambda: error(recurrent())],
}


def run(loss_of, make=adam, step_of=lambda opt, loss: opt.minimize(loss)):
  """Trains with each loss scale, and variables of each kind."""
  for wrap in (scaled, managed):
    for use_resource in (False, True):
      with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable_scope().set_use_resource(use_resource)
        loss = loss_of()
        step = step_of(wrap(make()), loss)
        session.run(tf.global_variables_initializer())
        first = session.run(loss)
        for _ in range(5):
          session.run(step)
        assert session.run(loss) < first


def check_names(hint):
  """Checks that what begins with `tf` is there, and that nothing refuses it."""
  assert "keras.optimizers" not in hint, hint  # Both loss scales refuse them.
  for path in re.findall(r"\btf((?:\.[A-Za-z_]\w*)+)", hint):
    is_full = path.startswith((".contrib", ".compat.v2"))
    value = tensorflow if is_full else tf
    for part in path.removeprefix(".compat.v1").split(".")[1:]:
      value = getattr(value, part)


def main():
  """Follows the hints after `install()`."""
  tfl.install()
  tf.disable_v2_behavior()
  for hint in missing_names.HINTS.values():
    check_names(hint)
  for name, parts in _FOLLOWED.items():
    assert name in missing_names.HINTS
    run(*parts)
    print(name)


@pytest.mark.thorough
def test_hints_can_be_followed():
  printed = processes.run_forked(__file__, **helpers.KERAS_2)
  assert set(_FOLLOWED) <= set(printed.split())


if __name__ == "__main__":
  main()
