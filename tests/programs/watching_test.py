# SPDX-License-Identifier: Apache-2.0
"""Tests `run --watch`: old programs are watched without an edit."""

import os

import processes
import pytest

_SESSION = """
import tensorflow as tf
x = tf.placeholder(tf.float32, [])
losses = [x * tf.get_variable(name, initializer=1.0) for name in "ab"]
step = tf.train.get_or_create_global_step()
make = tf.train.experimental.MixedPrecisionLossScaleOptimizer
ops = [
  make(tf.train.GradientDescentOptimizer(0.1), "dynamic").minimize(loss, step)
  for loss in losses[:COUNT]
]
with tf.train.MonitoredTrainingSession() as session:
  for i in range(12):
    session.run(ops, {x: float("nan") if i > 5 else 1.0})
"""
_ESTIMATOR = """
import numpy as np
import tensorflow as tf

def model_fn(features, labels, mode):
  w = tf.get_variable("w", [4, 1])
  loss = tf.reduce_mean(tf.square(tf.matmul(features["x"], w) - labels))
  if mode == tf.estimator.ModeKeys.EVAL:
    return tf.estimator.EstimatorSpec(mode, loss=loss)
  optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(
      tf.train.AdamOptimizer(0.1))
  step = optimizer.minimize(loss, tf.train.get_global_step())
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

def input_fn():
  data = {"x": np.ones([8, 4], np.float32)}, np.ones([8, 1], np.float32)
  return tf.data.Dataset.from_tensors(data).repeat()

estimator = tf.estimator.Estimator(model_fn, "model")
estimator.train(input_fn, steps=5)
estimator.evaluate(input_fn, steps=1)
estimator.train(input_fn, steps=5)
"""

_PLAIN = """
import tensorflow as tf
tf.set_random_seed(1)
x = tf.placeholder(tf.float32, [])
v = tf.get_variable("v", initializer=1.0)
make = tf.train.experimental.MixedPrecisionLossScaleOptimizer
sgd = make(tf.train.GradientDescentOptimizer(0.1), "dynamic")
step = sgd.minimize(x * v, tf.train.get_or_create_global_step())
"""
_WAYS = {
  "session": """
with tf.Session() as session:
  session.run(tf.global_variables_initializer())
  for i in range(12):
    session.run([step, {"v": v}], {x: float("nan") if i > 5 else 1.0})
""",
  "interactive": """
session = tf.InteractiveSession()
tf.global_variables_initializer().run()
tf.get_default_graph().finalize()
for i in range(12):
  step.run({x: float("nan") if i > 5 else 1.0})
""",
  "supervisor": """
with tf.train.Supervisor(logdir="").managed_session() as session:
  for i in range(12):
    session.run(step, {x: float("nan") if i > 5 else 1.0},
                tf.RunOptions(), tf.RunMetadata())
""",
  "callable": """
session = tf.Session()
session.run(tf.global_variables_initializer())
do = session.make_callable(step, [x])
assert session.make_callable(v, accept_options=True)() == 1.0
for i in range(12):
  do(float("nan") if i > 5 else 1.0)
""",
}


def run_watched(program, folder):
  """Runs a program under `run --watch=watched`; returns what doctor says."""
  (folder / "program.py").write_text(program)
  command = ["-m", "tf_compat_lossscale"]
  watch = [*command, "run", "--tf1", "--watch", "watched", "program.py"]
  processes.run_python(*watch, cwd=folder)
  return {
    name: processes.complete_forked(*command, "doctor", name, cwd=folder).stdout
    for name in ("watched", os.path.join("watched", "2"))
    if (folder / name).exists()
  }


@pytest.mark.parametrize(
  "count", [1, pytest.param(2, marks=pytest.mark.thorough)]
)
def test_a_session(count, tmp_path):
  found = run_watched(_SESSION.replace("COUNT", str(count)), tmp_path)
  assert len(found) == count
  for said in found.values():
    assert "Steps 0 to 12, 6 of them skipped" in said


@pytest.mark.parametrize("way", _WAYS)
def test_a_plain_session(way, tmp_path):
  (said,) = run_watched(_PLAIN + _WAYS[way], tmp_path).values()
  assert "Steps 0 to 12, 6 of them skipped" in said


def test_sessions_of_the_same_time_write_to_folders_of_their_own(tmp_path):
  program = (
    _PLAIN
    + """
sessions = [tf.Session() for _ in range(2)]
for i in range(5):
  for number, session in enumerate(sessions):
    if not i:
      session.run(tf.global_variables_initializer())
    session.run(step, {x: float("nan") if number else 1.0})
sessions[0].close()
with tf.Session() as session:
  session.run(tf.global_variables_initializer())
  session.run(step, {x: 1.0})
"""
  )
  found = list(run_watched(program, tmp_path).values())
  assert "Steps 0 to 1, 0 of them skipped" in found[0]
  assert "Steps 0 to 5, 5 of them skipped" in found[1]


@pytest.mark.thorough
def test_the_run_stays_the_same(tmp_path):
  """Checks the weights, the loss scale, and ops that are built later."""
  program = (
    _PLAIN
    + """
import numpy as np
noise = tf.random_normal([])
session = tf.Session()
session.run(tf.global_variables_initializer())
for i in range(12):
  if i == 4:
    noise = tf.random_normal([])
  session.run(step, {x: session.run(noise) if i % 5 else np.inf})
  print([a.tobytes().hex() for a in session.run(tf.global_variables())])
"""
  )
  (tmp_path / "program.py").write_text(program)
  run = "-m", "tf_compat_lossscale", "run", "--tf1"
  bare, watched = (
    processes.run_python(*run, *more, "program.py", cwd=tmp_path)
    for more in ((), ("--watch=watched",))
  )
  assert bare == watched and len(bare.splitlines()) == 12
  assert (tmp_path / "watched").exists()


def test_a_program_without_such_a_session(tmp_path):
  (tmp_path / "program.py").write_text("import tensorflow as tf")
  command = ["run", "--watch=watched", "program.py"]
  done = processes.complete_forked(
    "-m", "tf_compat_lossscale", *command, cwd=tmp_path
  )
  assert "no session ran a step of an optimizer" in done.stderr
  assert not (tmp_path / "watched").exists()


@pytest.mark.thorough
def test_a_loss_that_ends_an_estimator_is_seen(tmp_path):
  program = _ESTIMATOR.partition("estimator.train(")[0].replace(
    "np.ones([8, 1]", "np.nan * np.ones([8, 1]"
  )
  program += """
try:
  estimator.train(input_fn, steps=5)
except tf.train.NanLossDuringTrainingError:
  print("ended")
"""
  (said,) = run_watched(program, tmp_path).values()
  assert "Steps 0 to 1, 1 of them skipped" in said


@pytest.mark.thorough
def test_trainings_by_an_estimator_are_one_run(tmp_path):
  (said,) = run_watched(_ESTIMATOR, tmp_path).values()
  assert "Steps 0 to 10, 0 of them skipped" in said
