# SPDX-License-Identifier: Apache-2.0
"""Tests that the log of a run tells that its loss scale is bypassed."""

import monitoring_logs as logs
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import monitoring
from tf_compat_lossscale._core import scale_uses
from tf_compat_lossscale.cli import main as cli

tf1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
  monkeypatch.setattr(scale_uses, "process", scale_uses.State())


def _wrap():
  sgd = tf1.train.GradientDescentOptimizer(0.1)
  return tfl.MixedPrecisionLossScaleOptimizer(sgd, "dynamic")


def _train_eagerly(folder, bypasses):
  v, optimizer = tf.Variable([1.0, 2.0]), _wrap()
  with monitoring.Monitor(optimizer, folder) as monitor:
    for _ in range(3):
      if bypasses:
        with tf.GradientTape() as tape:
          loss = tf.reduce_sum(v * v)
        optimizer.apply_gradients([(tape.gradient(loss, v), v)])
      else:
        optimizer.minimize(lambda: tf.reduce_sum(v * v), var_list=[v])
      monitor.step()


def _train_in_a_session(folder, bypasses):
  with tf.Graph().as_default():
    v = tf1.get_variable("v", initializer=[1.0, 2.0])
    loss, optimizer = tf.reduce_sum(v * v), _wrap()
    step = tf1.train.get_or_create_global_step()
    hook = monitoring.LossScaleHook(optimizer, folder)
    if bypasses:
      op = optimizer.apply_gradients(zip(tf.gradients(loss, [v]), [v]), step)
    else:
      op = optimizer.minimize(loss, step)
    with tf1.train.SingularMonitoredSession([hook]) as session:
      for _ in range(3):
        session.run(op)


@pytest.mark.parametrize("train", [_train_eagerly, _train_in_a_session])
@pytest.mark.parametrize("bypasses", [True, False])
def test_doctor(train, bypasses, tmp_path, capsys):
  train(str(tmp_path), bypasses)
  log = monitoring.read_run(str(tmp_path))
  assert monitoring.judge(log).kind == ("bypassed" if bypasses else "too_short")
  assert cli.main(["doctor", str(tmp_path)]) == bypasses
  assert ("is bypassed" in capsys.readouterr().out) == bypasses


@pytest.mark.any_release
def test_a_program_that_was_mended_is_not_blamed(tmp_path):
  records = logs.make_records(logs.make_flags(200))
  records[0]["bypassed"] = True

  def judge(name):
    return monitoring.judge(
      monitoring.read_run(logs.write(tmp_path / name, records))
    )

  verdict = judge("before")
  assert verdict.kind == "bypassed"
  assert not verdict.is_healthy
  records[-1]["config"] = logs.CONFIG
  assert judge("after").is_healthy
