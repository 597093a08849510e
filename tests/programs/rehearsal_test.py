# SPDX-License-Identifier: Apache-2.0
"""Tests `run --float16-on-cpu`: old programs compute in float16 on the CPU."""

import re

import helpers
import legacy_processes
import processes
import pytest

from tf_compat_lossscale._core import legacy_names

_NET = """
import sys
import tensorflow as tf

def build(rewrite=True):
  w = tf.get_variable("w", initializer=3e3 * tf.ones([4, 4]))
  x = tf.random.uniform([4, 4], 1.0, 1.1)
  loss = tf.reduce_mean(tf.matmul(tf.nn.relu(tf.matmul(x, w)), w))
  opt = tf.train.GradientDescentOptimizer(1e-3)
  if rewrite:
    opt = tf.train.experimental.enable_mixed_precision_graph_rewrite(opt)
  return opt.minimize(loss)

def run(session, *ops):
  for op in (tf.global_variables_initializer(), *ops, *ops):
    session.run(op)
"""
_ON = "float16: N of N products and convolutions, N casts"
_NONE = "float16: 0 of N products and convolutions, 0 casts: "
# A program -> what the lines say.
_PROGRAMS = {
  "op = build()\nwith tf.Session() as s: run(s, op)": [_ON],
  "op = build()\nwith tf.train.MonitoredSession() as s: s.run(op)": [_ON],
  "op = build(False)\nwith tf.Session() as s: run(s, op)": [
    f"{_NONE}the graph rewrite is off: call "
    "enable_mixed_precision_graph_rewrite, or in TensorFlow 1 set "
    "TF_ENABLE_AUTO_MIXED_PRECISION=1"
  ],
  "with tf.Session() as s:\n  op = build()\n  run(s, op)": [
    f"{_NONE}the session is older than the graph rewrite: create it later"
  ],
  "op = build()\nrun(tf.InteractiveSession(), op)": [
    f"{_NONE}no graph of an InteractiveSession is rewritten: use a Session"
  ],
  """
w = tf.get_variable("w", initializer=3.0)
opt = tf.train.AdamOptimizer()
opt = tf.train.experimental.enable_mixed_precision_graph_rewrite(opt)
op = opt.minimize(w * w)
with tf.Session() as s: run(s, op)
""": [
    "float16: 0 of 0 products and convolutions, 0 casts: the graph has no op "
    "that the rewrite begins with"
  ],
  """
def model_fn(features, labels, mode):
  w = tf.get_variable("w", initializer=3e3 * tf.ones([4, 4]))
  y = tf.matmul(tf.nn.relu(tf.matmul(features["x"], w)), w)
  out = tf.reduce_sum(y, 1)
  if mode == tf.estimator.ModeKeys.PREDICT:
    return tf.estimator.EstimatorSpec(mode, {"out": out}, export_outputs={
        "serving_default": tf.estimator.export.PredictOutput({"out": out})})
  loss = tf.reduce_mean(out)
  opt = tf.train.experimental.enable_mixed_precision_graph_rewrite(
      tf.train.GradientDescentOptimizer(1e-3))
  step = opt.minimize(loss, tf.train.get_global_step())
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

def input_fn():
  return tf.data.Dataset.from_tensors(({"x": tf.ones([2, 4])}, 0.0)).repeat()

config = tf.ConfigProto(intra_op_parallelism_threads=1)
estimator = tf.estimator.Estimator(
    model_fn, "model", tf.estimator.RunConfig(session_config=config))
estimator.train(input_fn, steps=3)
loss = estimator.evaluate(input_fn, steps=1)["loss"]
out = next(estimator.predict(input_fn))["out"]
receive = tf.estimator.export.build_raw_serving_input_receiver_fn(
    {"x": tf.placeholder(tf.float32, [None, 4])})
path = estimator.export_saved_model("saved", receive)
with tf.Graph().as_default(), tf.Session() as session:
  loaded = tf.saved_model.load(session, ["serve"], path.decode())
  signature = loaded.signature_def["serving_default"]
  fed = {signature.inputs["x"].name: [[1.0] * 4] * 2}
  served = session.run(signature.outputs["out"].name, fed)[0]
assert loss == out == served == float("inf"), (loss, out, served)
assert config == tf.ConfigProto(intra_op_parallelism_threads=1)
""": [_ON],
}
_PARENT = """
import subprocess
import sys
if len(sys.argv) == 1:
  subprocess.run([sys.executable, __file__, "child"], check=True)
  sys.exit()
"""
_GRAPHS = """
for _ in range(2):
  with tf.Graph().as_default():
    op = build()
    with tf.Session() as s:
      run(s, op)
"""


def list_lines(printed):
  """Returns what a program prints about float16, with N for each number."""
  found = re.findall("tf-lossscale: (float16: .*)", printed)
  lines = [re.sub(r"\b[1-9]\d*( of|( [pc]))", r"N\1", x) for x in found]
  return list(dict.fromkeys(lines))


@pytest.mark.parametrize("text", _PROGRAMS)
def test_a_line_says_what_was_converted(text, tmp_path):
  (tmp_path / "program.py").write_text(_NET + text)
  env = {legacy_names.FLOAT16_ON_CPU: "1", **helpers.KERAS_2}
  command = [str(helpers.HARNESS / "legacy_runner.py"), "--tf1", "program.py"]
  done = processes.complete_forked(*command, cwd=tmp_path, **env)
  assert done.returncode == 0, done.stderr
  assert list_lines(done.stderr) == _PROGRAMS[text]


@pytest.mark.parametrize("quiet", [False, True])
def test_processes_of_the_program_compute_in_float16(quiet, tmp_path):
  (tmp_path / "program.py").write_text(_PARENT + _NET + _GRAPHS)
  options = ["--tf1", "--float16-on-cpu", *["--quiet"] * quiet]
  status, _, err = legacy_processes.run(*options, "program.py", cwd=tmp_path)
  assert status == 0, err
  assert list_lines(err) == ([] if quiet else [_ON])


def test_a_line_says_that_nothing_was_counted(tmp_path):
  (tmp_path / "program.py").write_text(_NET + "build()")
  options = ["--tf1", "--float16-on-cpu", "program.py"]
  status, _, err = legacy_processes.run(*options, cwd=tmp_path)
  assert status == 0, err
  assert list_lines(err) == [
    "float16: not counted: no session.run took a step, as if tf.function or "
    "Keras does; the graph rewrite is on"
  ]
